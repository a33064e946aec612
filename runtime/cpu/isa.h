/* isa.h: instruction sets that the CPU code has implementations for, chosen at run time. */
#ifndef QN_CPU_ISA_H
#define QN_CPU_ISA_H

#include <stdbool.h>

typedef enum qn_isa {
    QN_ISA_PORTABLE, /* plain C, any machine */
    QN_ISA_AVX2,     /* AVX2, FMA, F16C */
    QN_ISA_AVX512,   /* AVX-512 F, BW, VL, DQ and VNNI; without VNNI the AVX2 code is the one to use */
    QN_ISA_COUNT,
} qn_isa;

/* True where this CPU (and this build) can run it. */
bool qn_isa_usable(qn_isa isa);

/* The last usable one of the list above. */
qn_isa qn_isa_best(void);

/* "portable", "avx2", "avx512". */
const char *qn_isa_name(qn_isa isa);

#endif
