/* Values of metadata keys. The bytes were checked at open. */
#include <string.h>

#include "model/dtype_decode.h"
#include "model/gguf.h"

static uint64_t load_u64(const uint8_t *p)
{
    return qn_load_u32(p) | (uint64_t)qn_load_u32(p + 4) << 32;
}

bool qn_kv_i64(const qn_kv *kv, uint64_t i, int64_t *out)
{
    if (i >= kv->count) {
        return false;
    }
    const uint8_t *raw = kv->raw;
    switch (kv->elem_type) {
    case QN_KV_U8:
    case QN_KV_BOOL:
        *out = raw[i];
        return true;
    case QN_KV_I8:
        *out = (int8_t)raw[i];
        return true;
    case QN_KV_U16:
        *out = qn_load_u16(raw + 2 * i);
        return true;
    case QN_KV_I16:
        *out = (int16_t)qn_load_u16(raw + 2 * i);
        return true;
    case QN_KV_U32:
        *out = qn_load_u32(raw + 4 * i);
        return true;
    case QN_KV_I32:
        *out = (int32_t)qn_load_u32(raw + 4 * i);
        return true;
    case QN_KV_I64:
        *out = (int64_t)load_u64(raw + 8 * i);
        return true;
    case QN_KV_U64: {
        uint64_t v = load_u64(raw + 8 * i);
        if (v > INT64_MAX) {
            return false;
        }
        *out = (int64_t)v;
        return true;
    }
    default:
        return false;
    }
}

bool qn_kv_f64(const qn_kv *kv, uint64_t i, double *out)
{
    if (i >= kv->count || kv->elem_type == QN_KV_BOOL) {
        return false;
    }
    if (kv->elem_type == QN_KV_F32) {
        *out = (double)qn_f32_from_bits(qn_load_u32(kv->raw + 4 * i));
        return true;
    }
    if (kv->elem_type == QN_KV_F64) {
        uint64_t bits = load_u64(kv->raw + 8 * i);
        memcpy(out, &bits, sizeof bits);
        return true;
    }
    if (kv->elem_type == QN_KV_U64) {
        *out = (double)load_u64(kv->raw + 8 * i);
        return true;
    }
    int64_t v;
    if (!qn_kv_i64(kv, i, &v)) {
        return false;
    }
    *out = (double)v;
    return true;
}

bool qn_kv_bool(const qn_kv *kv, uint64_t i, bool *out)
{
    if (i >= kv->count || kv->elem_type != QN_KV_BOOL) {
        return false;
    }
    *out = kv->raw[i] != 0;
    return true;
}

bool qn_kv_str(const qn_kv *kv, uint64_t i, qn_str *out)
{
    if (i >= kv->count || kv->elem_type != QN_KV_STRING) {
        return false;
    }
    const uint8_t *p = kv->raw + (kv->at ? kv->at[i] : 0);
    out->len = load_u64(p);
    out->data = (const char *)p + 8;
    return true;
}

const char *qn_kv_type_name(qn_kv_type t)
{
    static const char *const names[] = {"u8",   "i8",  "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "str", "array", "u64", "i64", "f64"};
    return (unsigned)t < sizeof names / sizeof names[0] ? names[t] : "?";
}
