#include "cpu/vec.h"

#include "cpu/vec_tables.h"

const qn_vec *qn_vec_get(qn_isa isa, bool exact)
{
    if (exact) {
        return &qn_vec_exact;
    }
#if defined(__x86_64__)
    if (isa == QN_ISA_AVX512) {
        return &qn_vec_avx512;
    }
    if (isa == QN_ISA_AVX2) {
        return &qn_vec_avx2;
    }
#endif
    (void)isa;
    return &qn_vec_portable;
}
