/* gguf_writer.h: GGUF files in memory, for tests.
 *
 *     gw w = gw_new();                                    // version 3, alignment 32
 *     gw_str(&w, "general.architecture", "llama");
 *     gw_u32(&w, "llama.block_count", 2);
 *     gw_strs(&w, "tokenizer.ggml.tokens", 3, (const char *[]){"a", "b", "c"});
 *     gw_tensor(&w, "token_embd.weight", QN_F32, 2, (uint64_t[]){64, 96}, floats);   // NULL: zeros
 *     size_t size;
 *     void *bytes = gw_bytes(&w, &size);                  // to qn_gguf_open_memory; or gw_save(&w, path)
 *     gw_free(&w); free(bytes);
 *
 * Tests of damaged files set the public fields (version, n_kv, n_tensors), append raw pieces to the sections
 * `kv`, `table` and `data`, or use gw_tensor_raw. Running out of memory aborts. */
#ifndef QN_TESTS_GGUF_WRITER_H
#define QN_TESTS_GGUF_WRITER_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/dtype.h"
#include "model/gguf.h"

typedef struct gw_buf {
    uint8_t *p;
    size_t n, capacity;
} gw_buf;

typedef struct gw {
    uint32_t version;
    uint64_t alignment; /* set by gw_alignment */
    uint64_t n_kv, n_tensors;
    gw_buf kv, table, data;
} gw;

static inline gw gw_new(void)
{
    return (gw){.version = 3, .alignment = 32};
}

static inline void gw_free(gw *w)
{
    free(w->kv.p);
    free(w->table.p);
    free(w->data.p);
    *w = (gw){0};
}

/* n bytes to a section; NULL appends zeros. */
static inline void gw_put(gw_buf *b, const void *p, size_t n)
{
    if (b->n + n > b->capacity) {
        b->capacity = 2 * b->capacity + n + 64;
        b->p = realloc(b->p, b->capacity);
        if (!b->p) {
            abort();
        }
    }
    if (p && n) {
        memcpy(b->p + b->n, p, n);
    } else if (n) {
        memset(b->p + b->n, 0, n);
    }
    b->n += n;
}

/* The low `bytes` bytes of v, little-endian. */
static inline void gw_put_uint(gw_buf *b, uint64_t v, int bytes)
{
    uint8_t le[8];
    for (int i = 0; i < 8; i++) {
        le[i] = (uint8_t)(v >> (8 * i));
    }
    gw_put(b, le, (size_t)bytes);
}

static inline void gw_put_string(gw_buf *b, const void *s, size_t len)
{
    gw_put_uint(b, len, 8);
    gw_put(b, s, len);
}

static inline void gw_pad(gw_buf *b, uint64_t alignment)
{
    gw_put(b, NULL, (size_t)((alignment - b->n % alignment) % alignment));
}

/* Name and type of a key; the value follows, by gw_put* on w->kv. */
static inline void gw_key(gw *w, const char *key, uint32_t type)
{
    gw_put_string(&w->kv, key, strlen(key));
    gw_put_uint(&w->kv, type, 4);
    w->n_kv++;
}

/* Begins an array of n elements; they follow. */
static inline void gw_array(gw *w, const char *key, uint32_t elem_type, uint64_t n)
{
    gw_key(w, key, QN_KV_ARRAY);
    gw_put_uint(&w->kv, elem_type, 4);
    gw_put_uint(&w->kv, n, 8);
}

static inline int gw_width(uint32_t type)
{
    static const uint8_t width[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof width ? width[type] : 0;
}

/* A key of any integer type or bool. */
static inline void gw_int(gw *w, const char *key, qn_kv_type type, int64_t v)
{
    gw_key(w, key, type);
    gw_put_uint(&w->kv, (uint64_t)v, gw_width(type));
}

static inline void gw_u32(gw *w, const char *key, uint32_t v)
{
    gw_int(w, key, QN_KV_U32, v);
}

static inline void gw_bool(gw *w, const char *key, bool v)
{
    gw_int(w, key, QN_KV_BOOL, v);
}

static inline void gw_put_f32(gw_buf *b, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    gw_put_uint(b, bits, 4);
}

static inline void gw_f32(gw *w, const char *key, float v)
{
    gw_key(w, key, QN_KV_F32);
    gw_put_f32(&w->kv, v);
}

static inline void gw_f64(gw *w, const char *key, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    gw_key(w, key, QN_KV_F64);
    gw_put_uint(&w->kv, bits, 8);
}

static inline void gw_str(gw *w, const char *key, const char *v)
{
    gw_key(w, key, QN_KV_STRING);
    gw_put_string(&w->kv, v, strlen(v));
}

/* Arrays; the values of gw_ints are narrowed to the type. */
static inline void gw_ints(gw *w, const char *key, qn_kv_type type, uint64_t n, const int64_t *v)
{
    gw_array(w, key, type, n);
    for (uint64_t i = 0; i < n; i++) {
        gw_put_uint(&w->kv, (uint64_t)v[i], gw_width(type));
    }
}

static inline void gw_f32s(gw *w, const char *key, uint64_t n, const float *v)
{
    gw_array(w, key, QN_KV_F32, n);
    for (uint64_t i = 0; i < n; i++) {
        gw_put_f32(&w->kv, v[i]);
    }
}

static inline void gw_strs(gw *w, const char *key, uint64_t n, const char *const *v)
{
    gw_array(w, key, QN_KV_STRING, n);
    for (uint64_t i = 0; i < n; i++) {
        gw_put_string(&w->kv, v[i], strlen(v[i]));
    }
}

/* Writes general.alignment and obeys it. Before the first tensor. */
static inline void gw_alignment(gw *w, uint32_t alignment)
{
    gw_u32(w, "general.alignment", alignment);
    w->alignment = alignment;
}

/* A table entry as given, without data. */
static inline void gw_tensor_raw(gw *w, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *ne,
                                 uint64_t offset)
{
    gw_put_string(&w->table, name, strlen(name));
    gw_put_uint(&w->table, n_dims, 4);
    for (uint32_t d = 0; d < n_dims; d++) {
        gw_put_uint(&w->table, ne[d], 8);
    }
    gw_put_uint(&w->table, type, 4);
    gw_put_uint(&w->table, offset, 8);
    w->n_tensors++;
}

/* A tensor with its data (bytes in the layout of the type; NULL: zeros). Returns the bytes in the writer, for
 * filling in; valid until the next gw_tensor. ne[0] is the contiguous dimension. */
static inline uint8_t *gw_tensor(gw *w, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *ne,
                                 const void *data)
{
    const qn_dtype *row = qn_dtype_get(type);
    if (!row) {
        abort();
    }
    uint64_t n = 1;
    for (uint32_t d = 0; d < n_dims; d++) {
        n *= ne[d];
    }
    size_t bytes = (size_t)(n / row->block_values * row->block_bytes);
    gw_tensor_raw(w, name, type, n_dims, ne, w->data.n);
    size_t at = w->data.n;
    gw_put(&w->data, data, bytes);
    gw_pad(&w->data, w->alignment);
    return w->data.p + at;
}

/* The whole file, exactly as long as it is (so that a sanitizer sees an overrun); free with free(). */
static inline uint8_t *gw_bytes(const gw *w, size_t *size)
{
    gw_buf b = {0};
    gw_put(&b, "GGUF", 4);
    gw_put_uint(&b, w->version, 4);
    gw_put_uint(&b, w->n_tensors, 8);
    gw_put_uint(&b, w->n_kv, 8);
    gw_put(&b, w->kv.p, w->kv.n);
    gw_put(&b, w->table.p, w->table.n);
    if (w->alignment) {
        gw_pad(&b, w->alignment);
    }
    gw_put(&b, w->data.p, w->data.n);
    uint8_t *exact = malloc(b.n);
    if (!exact) {
        abort();
    }
    memcpy(exact, b.p, b.n);
    free(b.p);
    *size = b.n;
    return exact;
}

/* 0, or -1 where writing failed. */
static inline int gw_write_file(const char *path, const void *bytes, size_t size)
{
    FILE *f = fopen(path, "wb");
    if (!f) {
        return -1;
    }
    size_t n = size ? fwrite(bytes, 1, size, f) : 0;
    return fclose(f) == 0 && n == size ? 0 : -1;
}

static inline int gw_save(const gw *w, const char *path)
{
    size_t size;
    uint8_t *bytes = gw_bytes(w, &size);
    int rc = gw_write_file(path, bytes, size);
    free(bytes);
    return rc;
}

#endif
