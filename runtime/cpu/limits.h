/* limits.h: what this CPU can do at most, measured: the limits that a run is held against. */
#ifndef QN_CPU_LIMITS_H
#define QN_CPU_LIMITS_H

#include "base/error.h"
#include "cpu/isa.h"

typedef struct qn_cpu_limits {
    double read;      /* bytes a second from memory into registers, far beyond the caches */
    double f32, int8; /* operations a second (a multiply and an add are two) on registers: f32 with f32 sums,
                       * 8-bit with 32-bit sums, as the fast arithmetic multiplies them */
} qn_cpu_limits;

/* Measures with that many threads and the instruction set, for about a second each; the best of several
 * passes, since whatever else runs only slows. bytes: of the memory read, at least 1 MiB. */
int qn_cpu_limits_measure(qn_cpu_limits *out, int n_threads, qn_isa isa, size_t bytes, qn_err *err);

#endif
