#include "cpu/fast.h"

const qn_fast_kernels *qn_fast_get(qn_isa isa)
{
    static const qn_fast_kernels *const by_isa[QN_ISA_COUNT] = {
        [QN_ISA_PORTABLE] = &qn_fast_portable,
#if defined(__x86_64__)
        [QN_ISA_AVX2] = &qn_fast_avx2,
        [QN_ISA_AVX512] = &qn_fast_avx512,
#endif
    };
    return by_isa[isa];
}
