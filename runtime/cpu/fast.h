/* fast.h: vector kernels of the fast arithmetic; one build an instruction set, chosen at run time. */
#ifndef QN_CPU_FAST_H
#define QN_CPU_FAST_H

#include <stddef.h>
#include <stdint.h>

#include "cpu/isa.h"

/* One query block against a range of keys of one KV head, online softmax. */
typedef struct qn_attn_block {
    int n_row;          /* query rows: (token, head of the group) pairs */
    const float *q;     /* [n_row][k_dim], already multiplied by the scale */
    const int *row_pos; /* position of each row's token */
    const float *slope; /* ALiBi slope of each row (0: none) */
    int k_dim, v_dim;
    int key_first, key_last;   /* keys [first, last) by position; masks are applied inside */
    int window;                /* 0: all */
    float softcap;             /* 0: none */
    const uint16_t *k, *v;     /* f16 cache, first row, this head's columns */
    size_t k_stride, v_stride; /* values between cache rows */
    int cache_rows;
    float *m, *l;   /* [n_row] running maximum and sum, written */
    float *o;       /* [n_row][v_dim], not divided by l, written */
    float *scratch; /* qn_attn_scratch floats */
    /* in place of k, v: a q8_0 cache (codegen/kv_type.h) with rows of so many bytes; NULL: f16 */
    const uint8_t *k_q8, *v_q8;
    size_t k_q8_stride, v_q8_stride;
} qn_attn_block;

enum { QN_ATTN_TILE = 64 };

static inline size_t qn_attn_scratch(int k_dim, int v_dim)
{
    return (size_t)QN_ATTN_TILE * (size_t)(k_dim + v_dim);
}

typedef struct qn_fast_kernels {
    const char *name;
    void (*attention)(const qn_attn_block *b);
    void (*silu_mul)(const float *gate, const float *up, float *out, int n); /* out = silu(gate) * up */
    void (*gelu_mul)(const float *gate, const float *up, float *out, int n);
    void (*silu)(float *x, int n);
    void (*gelu)(float *x, int n);
    void (*to_f16)(const float *x, uint16_t *out, int n);
} qn_fast_kernels;

extern const qn_fast_kernels qn_fast_portable, qn_fast_avx2, qn_fast_avx512;

/* The kernels of an instruction set that qn_isa_usable. */
const qn_fast_kernels *qn_fast_get(qn_isa isa);

#endif
