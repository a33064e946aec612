#include "codegen/kv_type.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

enum { GROUP = 32, GROUP_BYTES = GROUP + 2 };

const char *const qn_cache_type_names[] = {"f16", "q8_0", NULL};

size_t qn_cache_bytes(qn_cache_type type, size_t n)
{
    return type == QN_CACHE_Q8_0 ? n / GROUP * GROUP_BYTES : 2 * n;
}

static void store_group(const float *x, uint8_t *to)
{
    float top = 0;
    for (int i = 0; i < GROUP; i++) {
        float a = fabsf(x[i]);
        top = a > top ? a : top;
    }
    float d = top / 127.0f, inverse = d > 0 ? 1.0f / d : 0.0f;
    uint16_t half = qn_f32_to_f16(d);
    memcpy(to, &half, sizeof half);
    for (int i = 0; i < GROUP; i++) {
        to[2 + i] = (uint8_t)(int8_t)lrintf(x[i] * inverse);
    }
}

static void load_group(const uint8_t *from, float *x)
{
    uint16_t half;
    memcpy(&half, from, sizeof half);
    float d = qn_f16_to_f32(half);
    for (int i = 0; i < GROUP; i++) {
        x[i] = d * (float)(int8_t)from[2 + i];
    }
}

void qn_kv_store(qn_cache_type type, const float *x, void *row, size_t n)
{
    uint16_t *h = row;
    for (size_t i = 0; type == QN_CACHE_F16 && i < n; i++) {
        h[i] = qn_f32_to_f16(x[i]);
    }
    for (size_t i = 0; type == QN_CACHE_Q8_0 && i < n / GROUP; i++) {
        store_group(x + i * GROUP, (uint8_t *)row + i * GROUP_BYTES);
    }
}

void qn_kv_load(qn_cache_type type, const void *row, float *x, size_t n)
{
    const uint16_t *h = row;
    for (size_t i = 0; type == QN_CACHE_F16 && i < n; i++) {
        x[i] = qn_f16_to_f32(h[i]);
    }
    for (size_t i = 0; type == QN_CACHE_Q8_0 && i < n / GROUP; i++) {
        load_group((const uint8_t *)row + i * GROUP_BYTES, x + i * GROUP);
    }
}

void qn_kv_round(qn_cache_type type, float *x, size_t n)
{
    for (size_t i = 0; type == QN_CACHE_Q8_0 && i < n / GROUP; i++) {
        uint8_t group[GROUP_BYTES];
        store_group(x + i * GROUP, group);
        load_group(group, x + i * GROUP);
    }
}

int qn_kv_check_types(const qn_plans *p, const qn_exec_opts *opts, qn_err *err)
{
    for (int i = 0; i < p->n_kv; i++) {
        const qn_kv_cache *kv = &p->kv[i];
        bool k = opts->k_type == QN_CACHE_Q8_0 && kv->k_dim % GROUP != 0,
             v = opts->v_type == QN_CACHE_Q8_0 && kv->v_dim % GROUP != 0;
        if (k || v) {
            return qn_fail(
                err, "cache type q8_0 of %s: layer %d has heads of %d values, which is no multiple of %d",
                k ? "keys" : "values", kv->layer, k ? kv->k_dim : kv->v_dim, GROUP);
        }
    }
    return 0;
}
