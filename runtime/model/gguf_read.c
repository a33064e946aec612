/* Header and metadata of one file. */
#include <stdlib.h>
#include <string.h>

#include "model/dtype_decode.h"
#include "model/gguf_internal.h"

enum {
    KEY_MAX = 65535,       /* the format's own limit */
    KEY_MIN_BYTES = 14,    /* of a record: length, one letter, type, one byte of value */
    TENSOR_MIN_BYTES = 33, /* of a record: length, one letter, n_dims, one dimension, type, offset */
};

/* Bytes of one value; 0 where the size varies. */
static const uint8_t scalar_bytes[13] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

const uint8_t *qn_gguf_take(qn_gguf_file *f, uint64_t n)
{
    if (n > f->size - f->pos) {
        return NULL;
    }
    const uint8_t *p = f->data + f->pos;
    f->pos += n;
    return p;
}

bool qn_gguf_take_u32(qn_gguf_file *f, uint32_t *out)
{
    const uint8_t *p = qn_gguf_take(f, 4);
    if (p) {
        *out = qn_load_u32(p);
    }
    return p != NULL;
}

bool qn_gguf_take_u64(qn_gguf_file *f, uint64_t *out)
{
    const uint8_t *p = qn_gguf_take(f, 8);
    if (p) {
        *out = qn_load_u32(p) | (uint64_t)qn_load_u32(p + 4) << 32;
    }
    return p != NULL;
}

int qn_gguf_cut_short(const qn_gguf_file *f, const char *what, uint64_t i, uint64_t n, qn_err *err)
{
    return qn_fail(
        err, "%s: ends inside %s %llu of %llu (file size %llu bytes); the file is probably incomplete",
        f->shown, what, (unsigned long long)i + 1, (unsigned long long)n, (unsigned long long)f->size);
}

void *qn_gguf_grow(void *items, uint64_t n, uint64_t *capacity, size_t size)
{
    if (n < *capacity) {
        return items;
    }
    uint64_t wanted = *capacity ? 2 * *capacity : 32;
    uint64_t bytes;
    if (!qn_mul_u64(wanted, size, &bytes) || bytes > SIZE_MAX) {
        return NULL;
    }
    void *p = realloc(items, (size_t)bytes);
    if (p) {
        *capacity = wanted;
    }
    return p;
}

int qn_gguf_take_name(qn_gguf_file *f, qn_arena *arena, uint64_t max, const char *what, uint64_t i,
                      uint64_t n, const char **out, qn_err *err)
{
    uint64_t len;
    if (!qn_gguf_take_u64(f, &len)) {
        return qn_gguf_cut_short(f, what, i, n, err);
    }
    unsigned long long shown_i = (unsigned long long)i + 1, shown_n = (unsigned long long)n;
    if (len == 0 || len > max) {
        return qn_fail(err, "%s: name of %s %llu of %llu has %llu bytes; 1 to %llu are allowed", f->shown,
                       what, shown_i, shown_n, (unsigned long long)len, (unsigned long long)max);
    }
    const uint8_t *p = qn_gguf_take(f, len);
    if (!p) {
        return qn_gguf_cut_short(f, what, i, n, err);
    }
    if (memchr(p, 0, (size_t)len)) {
        return qn_fail(err, "%s: name of %s %llu of %llu has a NUL byte in it", f->shown, what, shown_i,
                       shown_n);
    }
    *out = qn_arena_strndup(arena, (const char *)p, (size_t)len);
    return *out ? 0 : qn_fail(err, "%s: out of memory", f->shown);
}

static int value_too_long(const qn_gguf_file *f, const char *key, const char *what, uint64_t count,
                          qn_err *err)
{
    return qn_fail(err,
                   "%s: key %.200s: %s %llu does not fit in the %llu bytes that are left of the file's %llu; "
                   "the file is "
                   "damaged or incomplete",
                   f->shown, key, what, (unsigned long long)count, (unsigned long long)(f->size - f->pos),
                   (unsigned long long)f->size);
}

static int take_string(qn_gguf_file *f, const char *key, qn_err *err)
{
    uint64_t len;
    if (!qn_gguf_take_u64(f, &len)) {
        return qn_fail(
            err,
            "%s: key %.200s: ends inside the length of a string (file size %llu bytes); the file is "
            "probably incomplete",
            f->shown, key, (unsigned long long)f->size);
    }
    if (!qn_gguf_take(f, len)) {
        return value_too_long(f, key, "string length", len, err);
    }
    return 0;
}

static int take_strings(qn_gguf_file *f, qn_arena *arena, qn_kv *kv, qn_err *err)
{
    if (kv->count > (f->size - f->pos) / 8) {
        return value_too_long(f, kv->key, "string count", kv->count, err);
    }
    /* 8 bytes an element, as the element's own length field: never more than the file. */
    uint64_t *at = qn_arena_alloc(arena, (size_t)kv->count * sizeof *at);
    if (!at) {
        return qn_fail(err, "%s: out of memory", f->shown);
    }
    uint64_t begin = f->pos;
    for (uint64_t i = 0; i < kv->count; i++) {
        at[i] = f->pos - begin;
        if (take_string(f, kv->key, err) != 0) {
            return -1;
        }
    }
    kv->at = at;
    return 0;
}

static int check_bools(const qn_gguf_file *f, const qn_kv *kv, qn_err *err)
{
    for (uint64_t i = 0; i < kv->raw_bytes; i++) {
        if (kv->raw[i] > 1) {
            return qn_fail(err, "%s: key %.200s: bool value %u is neither 0 nor 1", f->shown, kv->key,
                           kv->raw[i]);
        }
    }
    return 0;
}

/* The value of kv, whose key is already there. An array's elements are of a simple type, so no recursion. */
static int take_value(qn_gguf_file *f, qn_arena *arena, qn_kv *kv, uint64_t i, uint64_t n, qn_err *err)
{
    uint32_t type;
    if (!qn_gguf_take_u32(f, &type)) {
        return qn_gguf_cut_short(f, "metadata key", i, n, err);
    }
    if (type > QN_KV_F64) {
        return qn_fail(err, "%s: key %.200s has value type %u; GGUF knows 0 to 12", f->shown, kv->key, type);
    }
    kv->type = kv->elem_type = (qn_kv_type)type;
    kv->count = 1;
    if (kv->type == QN_KV_ARRAY) {
        if (!qn_gguf_take_u32(f, &type) || !qn_gguf_take_u64(f, &kv->count)) {
            return qn_gguf_cut_short(f, "metadata key", i, n, err);
        }
        if (type > QN_KV_F64) {
            return qn_fail(err, "%s: key %.200s: array of value type %u; GGUF knows 0 to 12", f->shown,
                           kv->key, type);
        }
        if (type == QN_KV_ARRAY) {
            return qn_fail(err, "%s: key %.200s: an array of arrays is not supported", f->shown, kv->key);
        }
        kv->elem_type = (qn_kv_type)type;
    }
    kv->raw = f->data + f->pos;
    uint64_t begin = f->pos;
    if (kv->elem_type != QN_KV_STRING) {
        uint64_t bytes;
        if (!qn_mul_u64(kv->count, scalar_bytes[kv->elem_type], &bytes) || !qn_gguf_take(f, bytes)) {
            return value_too_long(f, kv->key, kv->type == QN_KV_ARRAY ? "array count" : "value count",
                                  kv->count, err);
        }
    } else if (kv->type == QN_KV_ARRAY ? take_strings(f, arena, kv, err) : take_string(f, kv->key, err)) {
        return -1;
    }
    kv->raw_bytes = f->pos - begin;
    return kv->elem_type == QN_KV_BOOL ? check_bools(f, kv, err) : 0;
}

/* general.alignment, where it is there: a multiple of 8 says the format, a power of two say its writers. */
static int read_alignment(qn_gguf_file *f, qn_err *err)
{
    f->alignment = 32;
    const qn_kv *kv = qn_name_index_find(&f->keys, "general.alignment");
    if (!kv) {
        return 0;
    }
    int64_t v;
    if (kv->type == QN_KV_ARRAY || !qn_kv_i64(kv, 0, &v)) {
        return qn_fail(err, "%s: key general.alignment is of type %s; u32 is right", f->shown,
                       qn_kv_type_name(kv->type));
    }
    if (v < 8 || v > UINT32_MAX || (v & (v - 1)) != 0) {
        return qn_fail(err, "%s: key general.alignment is %lld; a power of two from 8 on is right", f->shown,
                       (long long)v);
    }
    f->alignment = (uint64_t)v;
    return 0;
}

/* A count must be payable from the bytes that are left before anything is done with it. */
static int check_counts(const qn_gguf_file *f, uint64_t n_kv, qn_err *err)
{
    uint64_t left = f->size - f->pos;
    uint64_t keys_bytes, tensors_bytes, bytes;
    if (!qn_mul_u64(n_kv, KEY_MIN_BYTES, &keys_bytes) || keys_bytes > left) {
        return qn_fail(
            err,
            "%s: the header promises %llu metadata keys, but the file has only %llu bytes; it is damaged "
            "or incomplete",
            f->shown, (unsigned long long)n_kv, (unsigned long long)f->size);
    }
    if (!qn_mul_u64(f->n_tensors, TENSOR_MIN_BYTES, &tensors_bytes) ||
        !qn_add_u64(keys_bytes, tensors_bytes, &bytes) || bytes > left) {
        return qn_fail(
            err,
            "%s: the header promises %llu tensors, but the file has only %llu bytes; it is damaged or "
            "incomplete",
            f->shown, (unsigned long long)f->n_tensors, (unsigned long long)f->size);
    }
    return 0;
}

int qn_gguf_read_keys(qn_gguf_file *f, qn_arena *arena, qn_err *err)
{
    uint64_t n_kv = 0, capacity = 0;
    f->pos = 8;
    if (!qn_gguf_take_u64(f, &f->n_tensors) || !qn_gguf_take_u64(f, &n_kv)) {
        return qn_fail(err, "%s: ends inside the header", f->shown);
    }
    if (check_counts(f, n_kv, err) != 0) {
        return -1;
    }
    for (uint64_t i = 0; i < n_kv; i++) {
        qn_kv *grown = qn_gguf_grow(f->kv, i, &capacity, sizeof *grown);
        if (!grown) {
            return qn_fail(err, "%s: out of memory", f->shown);
        }
        f->kv = grown;
        qn_kv *kv = &f->kv[i];
        *kv = (qn_kv){0};
        if (qn_gguf_take_name(f, arena, KEY_MAX, "metadata key", i, n_kv, &kv->key, err) != 0 ||
            take_value(f, arena, kv, i, n_kv, err) != 0) {
            return -1;
        }
        f->n_kv = i + 1;
    }
    uint64_t first, second;
    int rc = qn_name_index_build(&f->keys, f->kv, sizeof *f->kv, f->n_kv, &first, &second);
    if (rc > 0) {
        return qn_fail(err, "%s: key %.200s is there twice (metadata keys %llu and %llu)", f->shown,
                       f->kv[first].key, (unsigned long long)first + 1, (unsigned long long)second + 1);
    }
    if (rc < 0) {
        return qn_fail(err, "%s: out of memory", f->shown);
    }
    return read_alignment(f, err);
}
