#include "cpu/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* Not among the names that every compiler's __builtin_cpu_supports knows. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

bool qn_isa_usable(qn_isa isa)
{
    if (isa == QN_ISA_PORTABLE) {
        return true;
    }
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    if (isa == QN_ISA_AVX2) {
        return avx2;
    }
    return isa == QN_ISA_AVX512 && avx2 && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
#else
    return false;
#endif
}

qn_isa qn_isa_best(void)
{
    qn_isa best = QN_ISA_PORTABLE;
    for (int i = 0; i < QN_ISA_COUNT; i++) {
        best = qn_isa_usable((qn_isa)i) ? (qn_isa)i : best;
    }
    return best;
}

const char *qn_isa_name(qn_isa isa)
{
    static const char *const names[QN_ISA_COUNT] = {"portable", "avx2", "avx512"};
    return (unsigned)isa < QN_ISA_COUNT ? names[isa] : "unknown";
}
