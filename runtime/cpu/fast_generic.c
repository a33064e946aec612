#define QN_FAST_NAME  qn_fast_generic
#define QN_FAST_LABEL "generic"
#include "cpu/fast_impl.h"

const qn_fast_kernels *qn_fast_select(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni")) {
        return &qn_fast_avx512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
        return &qn_fast_avx2;
    }
#endif
    return &qn_fast_generic;
}
