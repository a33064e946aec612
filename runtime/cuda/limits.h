/* limits.h: what a device can do at most, measured: the limits that a run is held against. */
#ifndef QN_CUDA_LIMITS_H
#define QN_CUDA_LIMITS_H

#include "codegen/source.h"

typedef struct qn_cuda_limits {
    double read; /* bytes a second, from device memory into registers */
    double f16;  /* operations a second (a multiply and an add are two) of a large cuBLASLt product, f16 with
                  * f32 sums;  0: there is no cuBLASLt, and `why` says so */
    qn_err why;
} qn_cuda_limits;

/* Measures a device; the best of several passes. The kernel is compiled through the cache (cache, kernel_src:
 * as in qn_exec_opts). */
int qn_cuda_limits_measure(qn_cuda_limits *out, int device, const char *cache, const char *kernel_src,
                           qn_err *err);

/* The program that reads: free with qn_source_free. */
int qn_cuda_limits_source(qn_source *out, int variant, qn_err *err);

#endif
