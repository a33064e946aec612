/* kv_layout.c: the device's KV caches seen from the host (kernel_src/kv_q8.cuh). */
#include "codegen/kv_type.h"
#include "cuda/lower.h"

#include <string.h>

enum { GROUP = 32, GROUP_BYTES = 34 };

size_t qn_cuda_kv_bytes(qn_cache_type type, int heads, int dim)
{
    size_t scales = 2 * (size_t)(dim / GROUP);
    return (size_t)heads * (type == QN_CACHE_Q8_0 ? (size_t)dim + (scales + 15) / 16 * 16 : 2 * (size_t)dim);
}

void qn_cuda_kv_put(qn_cache_type type, const float *x, uint8_t *head, int dim)
{
    if (type == QN_CACHE_F16) {
        qn_kv_store(type, x, head, (size_t)dim);
        return;
    }
    memset(head, 0, qn_cuda_kv_bytes(type, 1, dim));
    for (int g = 0; g < dim / GROUP; g++) {
        uint8_t group[GROUP_BYTES];
        qn_kv_store(type, x + g * GROUP, group, GROUP);
        memcpy(head + dim + 2 * g, group, 2);
        memcpy(head + g * GROUP, group + 2, GROUP);
    }
}

void qn_cuda_kv_get(qn_cache_type type, const uint8_t *head, float *x, int dim)
{
    if (type == QN_CACHE_F16) {
        qn_kv_load(type, head, x, (size_t)dim);
        return;
    }
    for (int g = 0; g < dim / GROUP; g++) {
        uint8_t group[GROUP_BYTES];
        memcpy(group, head + dim + 2 * g, 2);
        memcpy(group + 2, head + g * GROUP, GROUP);
        qn_kv_load(type, group, x + g * GROUP, GROUP);
    }
}
