/* fp8_scales.c: what brings weights kept as e4m3 back (kernel_src/fp8.cuh). */
#include <math.h>

#include "cuda/exec.h"

int qn_cuda_find_fp8_scales(qn_cuda_exec *x, qn_err *err)
{
    const qn_cuda_api *cu = &x->cuda.api;
    size_t bytes = sizeof(float) * (size_t)x->halves.n_fp8;
    if (bytes == 0) {
        return 0;
    }
    qn_cu_result r = cu->MemsetD8Async(x->mem.fp8_tops, 0, bytes, x->stream);
    for (int i = 0; i < x->low.tops.n && !r; i++) {
        if (qn_cuda_launch_one(x, &x->low.tops.actions[i], 1, err)) {
            return -1;
        }
    }
    r = r ? r : cu->StreamSynchronize(x->stream);
    r = r ? r : cu->MemcpyDtoH(x->fp8_up, x->mem.fp8_tops, bytes);
    for (int i = 0; i < x->halves.n_fp8 && !r; i++) {
        if (!isfinite(x->fp8_up[i])) {
            return qn_fail(err, "--prefill fp8: a weight is %s", isnan(x->fp8_up[i]) ? "NaN" : "infinite");
        }
        x->fp8_up[i] = qn_cuda_fp8_up(x->fp8_up[i]);
    }
    x->gemm.fp8_up = x->fp8_up;
    return r ? qn_cuda_fail(&x->cuda, r, "finding the largest weights", err) : 0;
}
