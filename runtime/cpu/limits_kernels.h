/* limits_kernels.h: the loops that limits.c measures, one set an instruction set. */
#ifndef QN_CPU_LIMITS_KERNELS_H
#define QN_CPU_LIMITS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

typedef struct qn_limits_kernels {
    /* Reads bytes (a multiple of 1024) at `p` (aligned to 64); the result hangs on all of them. */
    uint64_t (*read)(const void *p, size_t bytes);
    /* `rounds` times the same independent multiply-adds of registers; *ops: operations done. The result hangs
     * on all of them. */
    double (*f32)(long rounds, double *ops);
    double (*int8)(long rounds, double *ops);
} qn_limits_kernels;

extern const qn_limits_kernels qn_limits_portable, qn_limits_avx2, qn_limits_avx512;

#endif
