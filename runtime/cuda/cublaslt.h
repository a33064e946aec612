/* cublaslt.h: cuBLASLt, found and opened at run time. Its absence is a stated limitation, not a failure of
 * the engine. */
#ifndef QN_CUDA_CUBLASLT_H
#define QN_CUDA_CUBLASLT_H

#include "base/dynlib.h"
#include "base/error.h"
#include "cuda/cublaslt_api.h"

typedef struct qn_cublaslt {
    qn_cublaslt_api api;
    qn_dynlib lib;
    size_t version; /* major * 10000 + minor * 100 + patch */
} qn_cublaslt;

/* Finds cuBLASLt 12 or 13; driver_major > 0: not newer than that CUDA version. err: what was looked for,
 * remedy. */
int qn_cublaslt_load(qn_cublaslt *out, int driver_major, qn_err *err);

#endif
