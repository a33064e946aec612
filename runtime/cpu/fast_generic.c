#define QN_FAST_NAME  qn_fast_generic
#define QN_FAST_LABEL "generic"
#include "cpu/fast_impl.h"

#include "cpu/isa.h"

static const qn_fast_kernels *const by_isa[QN_ISA_COUNT] = {
    [QN_ISA_PORTABLE] = &qn_fast_generic,
#if defined(__x86_64__)
    [QN_ISA_AVX2] = &qn_fast_avx2,
    [QN_ISA_AVX512] = &qn_fast_avx512,
#endif
};

const qn_fast_kernels *qn_fast_select(void)
{
    return by_isa[qn_isa_best()];
}
