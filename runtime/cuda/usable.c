/* usable.c: what must be there before backend auto chooses a GPU. */
#include "codegen/backend.h"
#include "codegen/nvrtc.h"
#include "cuda/cublaslt.h"
#include "cuda/driver.h"

/* The libraries stay open: a session that follows finds them so. */
int qn_cuda_usable(int device, uint64_t *free_bytes, qn_err *err)
{
    qn_cuda cuda;
    qn_cuda_device dev;
    qn_nvrtc nvrtc;
    qn_cublaslt lt;
    qn_arch arch;
    if (qn_cuda_available(device, free_bytes, err) || qn_cuda_load(&cuda, err) || qn_cuda_init(&cuda, err) ||
        qn_cuda_device_get(&cuda, device, &dev, err)) {
        return -1;
    }
    int major = cuda.version / 1000;
    if (qn_nvrtc_load(&nvrtc, major, err) || qn_arch_for_device(&arch, &nvrtc, dev.cc, err)) {
        return -1;
    }
    return qn_cublaslt_load(&lt, major, err);
}
