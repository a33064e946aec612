/* dots_avx512.h: quantised rows against few rows of x, codes unpacked in registers. */
#ifndef QN_CPU_DOTS_AVX512_H
#define QN_CPU_DOTS_AVX512_H

#include "cpu/matmul_kernels.h"

enum { DOT_TOKENS_MAX = 3 };

/* The block's rows against its 1 to DOT_TOKENS_MAX rows of x. */
void qn_dots_avx512(const qn_mm_block *b);

#endif
