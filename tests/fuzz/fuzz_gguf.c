// rooms: room_model
/* The GGUF reader on arbitrary bytes: opens them, then reads every key, string and tensor that it hands out.
 */
#include <stdint.h>
#include <stdlib.h>

#include "model/dtype.h"
#include "model/gguf.h"

static volatile unsigned sink; /* keeps the reads */

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void touch(const void *p, uint64_t n)
{
    const uint8_t *b = p;
    if (n) {
        sink += b[0] + b[n - 1];
    }
}

static void read_element(const qn_kv *kv, uint64_t i)
{
    int64_t v;
    double f;
    bool b;
    qn_str s;
    bool is_int = qn_kv_i64(kv, i, &v), is_num = qn_kv_f64(kv, i, &f), is_bool = qn_kv_bool(kv, i, &b);
    bool is_str = qn_kv_str(kv, i, &s);
    must(is_int || is_num || is_bool || is_str);
    must(is_str == (kv->elem_type == QN_KV_STRING) && !(is_str && is_num));
    if (is_str) {
        touch(s.data, s.len);
        must((const uint8_t *)s.data >= kv->raw &&
             (const uint8_t *)s.data + s.len <= kv->raw + kv->raw_bytes);
    }
}

static void read_key(const qn_gguf *g, const qn_kv *kv)
{
    must(qn_gguf_find(g, kv->key) == kv && kv->key[0] != '\0');
    must(qn_kv_type_name(kv->type)[0] != '?' && kv->elem_type != QN_KV_ARRAY);
    touch(kv->raw, kv->raw_bytes);
    for (uint64_t i = 0; i < kv->count; i++) {
        read_element(kv, i);
    }
    int64_t v;
    double f;
    bool b;
    qn_str s;
    must(!qn_kv_i64(kv, kv->count, &v) && !qn_kv_f64(kv, kv->count, &f));
    must(!qn_kv_bool(kv, kv->count, &b) && !qn_kv_str(kv, kv->count, &s));
}

static void read_tensor(const qn_gguf *g, const qn_tensor *t)
{
    const qn_dtype *row = qn_dtype_get(t->type);
    must(row && qn_gguf_find_tensor(g, t->name) == t && t->ne[0] % row->block_values == 0);
    uint64_t n = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    must(n > 0 && t->n_bytes == n / row->block_values * row->block_bytes);
    touch(t->data, t->n_bytes);
    if (row->decode) {
        float out[256];
        row->decode(t->data, out, row->block_values);
        row->decode(t->data + t->n_bytes - row->block_bytes, out, row->block_values);
        touch(out, row->block_values * sizeof *out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qn_gguf *g;
    qn_err err = {{0}};
    if (qn_gguf_open_memory(&g, data, size, "fuzz", &err) != 0) {
        must(g == NULL && err.text[0] != '\0');
        return 0;
    }
    for (uint64_t i = 0; i < qn_gguf_n_kv(g); i++) {
        read_key(g, qn_gguf_kv(g, i));
    }
    for (uint64_t i = 0; i < qn_gguf_n_tensors(g); i++) {
        read_tensor(g, qn_gguf_tensor(g, i));
    }
    must(qn_gguf_file_bytes(g) == size);
    qn_gguf_close(g);
    return 0;
}
