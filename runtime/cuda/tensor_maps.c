/* tensor_maps.c: what attention_tma.cu needs to know of the KV caches. */
#include <stdlib.h>

#include "cuda/exec.h"

static int encode(const qn_cuda_exec *x, const qn_tma *t, uint64_t base, qn_cu_tensor_map *out, qn_err *err)
{
    const unsigned int steps[4] = {1, 1, 1, 1};
    qn_cu_result r = x->cuda.api.TensorMapEncodeTiled(
        out, QN_CU_TENSOR_F16, 4, (void *)(uintptr_t)base, t->dims, t->strides, t->box, steps,
        QN_CU_INTERLEAVE_NONE, QN_CU_SWIZZLE_128B, QN_CU_L2_PROMOTION_256B, QN_CU_OOB_ZERO);
    return r ? qn_cuda_fail(&x->cuda, r, "describing a KV cache as a tensor", err) : 0;
}

int qn_cuda_make_maps(qn_cuda_exec *x, uint64_t at, qn_err *err)
{
    const qn_plans *p = x->base.plans;
    size_t bytes = sizeof(qn_cu_tensor_map) * 2 * (size_t)p->n_kv;
    if (!x->cuda.api.TensorMapEncodeTiled) {
        return qn_fail(err, "--attention tma: the driver is older than CUDA 12 and has no tensor maps");
    }
    qn_cu_tensor_map *maps = aligned_alloc(_Alignof(qn_cu_tensor_map), bytes + sizeof *maps);
    int rc = maps ? 0 : qn_fail(err, "out of memory for tensor maps");
    for (int i = 0; i < p->n_kv && rc == 0; i++) {
        qn_tma t = qn_tma_of(&p->kv[i], &x->base.opts);
        if (t.keys) {
            rc = encode(x, &t, x->mem.k[i], &maps[2 * i], err) ||
                         encode(x, &t, x->mem.v[i], &maps[2 * i + 1], err)
                     ? -1
                     : 0;
            x->mem.k_map[i] = at + sizeof *maps * (2 * (uint64_t)i);
            x->mem.v_map[i] = at + sizeof *maps * (2 * (uint64_t)i + 1);
        }
    }
    qn_cu_result r = rc || bytes == 0 ? QN_CU_SUCCESS : x->cuda.api.MemcpyHtoD(at, maps, bytes);
    free(maps);
    return r ? qn_cuda_fail(&x->cuda, r, "sending tensor maps", err) : rc;
}
