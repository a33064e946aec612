/* tensor_maps.c: what kernels need to know of tensors that they copy boxes of: attention_tma.cu of the KV
 * caches, product_wgmma.cu of activations. */
#include <stdlib.h>

#include "cuda/exec.h"

static int encode(const qn_cuda_exec *x, const qn_tma *t, uint64_t base, const char *what,
                  qn_cu_tensor_map *out, qn_err *err)
{
    const unsigned int steps[4] = {1, 1, 1, 1};
    qn_cu_result r = x->cuda.api.TensorMapEncodeTiled(
        out, QN_CU_TENSOR_F16, 4, (void *)(uintptr_t)base, t->dims, t->strides, t->box, steps,
        QN_CU_INTERLEAVE_NONE, QN_CU_SWIZZLE_128B, QN_CU_L2_PROMOTION_256B, QN_CU_OOB_ZERO);
    return r ? qn_fail_prefix((qn_cuda_fail(&x->cuda, r, "describing a tensor", err), err), "%s", what) : 0;
}

enum { MAPS = 4 }; /* of a cache: keys' and values', each for both shapes */

size_t qn_cuda_map_bytes(const qn_plans *p)
{
    return sizeof(qn_cu_tensor_map) * MAPS * (size_t)p->n_kv;
}

int qn_cuda_make_maps(qn_cuda_exec *x, uint64_t at, qn_err *err)
{
    const qn_plans *p = x->base.plans;
    size_t bytes = qn_cuda_map_bytes(p);
    if (!x->cuda.api.TensorMapEncodeTiled) {
        return qn_fail(err, "--attention tma: the driver is older than CUDA 12 and has no tensor maps");
    }
    qn_cu_tensor_map *maps = aligned_alloc(_Alignof(qn_cu_tensor_map), bytes + sizeof *maps);
    int rc = maps ? 0 : qn_fail(err, "out of memory for tensor maps");
    for (int i = 0; i < p->n_kv && rc == 0; i++) {
        const qn_tma shapes[2] = {qn_tma_of(&p->kv[i], &x->base.opts),
                                  qn_tma_short_of(&p->kv[i], &x->base.opts)};
        qn_cu_tensor_map *k = maps + MAPS * i, *v = k + 2;
        for (int j = 0; j < 2 && shapes[j].keys && rc == 0; j++) {
            rc = encode(x, &shapes[j], x->mem.k[i], "KV cache", &k[j], err) ||
                         encode(x, &shapes[j], x->mem.v[i], "KV cache", &v[j], err)
                     ? -1
                     : 0;
            x->mem.k_map[i] = at + sizeof *maps * (uint64_t)(k - maps);
            x->mem.v_map[i] = at + sizeof *maps * (uint64_t)(v - maps);
        }
    }
    qn_cu_result r = rc || bytes == 0 ? QN_CU_SUCCESS : x->cuda.api.MemcpyHtoD(at, maps, bytes);
    free(maps);
    return r ? qn_cuda_fail(&x->cuda, r, "sending tensor maps", err) : rc;
}

int qn_cuda_make_act_maps(qn_cuda_exec *x, uint64_t at, const int *widths, int n, qn_err *err)
{
    _Static_assert(sizeof(qn_cu_tensor_map) == QN_CUDA_MAP_BYTES, "a map of the driver's");
    if (!x->cuda.api.TensorMapEncodeTiled) {
        return qn_fail(err, "--prefill wgmma: the driver is older than CUDA 12 and has no tensor maps");
    }
    for (int i = 0; i < n; i++) {
        qn_cu_tensor_map map;
        qn_tma t = qn_act_tma_of(widths[i], &x->base.opts);
        if (encode(x, &t, x->mem.a16, "activations", &map, err)) {
            return -1;
        }
        qn_cu_result r = x->cuda.api.MemcpyHtoD(at + sizeof map * (uint64_t)i, &map, sizeof map);
        if (r) {
            return qn_cuda_fail(&x->cuda, r, "sending tensor maps", err);
        }
    }
    return 0;
}
