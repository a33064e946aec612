/* vec_tables.h: the tables behind qn_vec_get. */
#ifndef QN_CPU_VEC_TABLES_H
#define QN_CPU_VEC_TABLES_H

#include "cpu/vec.h"

extern const qn_vec qn_vec_exact, qn_vec_portable;
#if defined(__x86_64__)
extern const qn_vec qn_vec_avx2, qn_vec_avx512;
#endif

#endif
