/* vec.h: f32 vector functions of attention, activations and element-wise ops on the CPU.
 *
 * Two tables, as in matmul.h. exact: products and sums in one fixed order and without fused multiply-adds,
 * expf and tanhf of the C library; a result does not depend on how many queries or keys one call takes. fast:
 * by instruction set, sums in any order, own exponential (relative error below 2e-7). NaN and Inf go through
 * both. */
#ifndef QN_CPU_VEC_H
#define QN_CPU_VEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/isa.h"

/* Rows of a KV cache (or anything of that form): row i at `data` + i * stride values; f16 or f32. */
typedef struct qn_kv_rows_view {
    const void *data; /* const uint16_t * if half, else const float * */
    ptrdiff_t stride; /* values */
    bool half;
} qn_kv_rows_view;

typedef struct qn_vec {
    float (*dot)(const float *a, const float *b, int n);

    /* out[i * out_stride + j] = q_i . k_j for n_q queries (q + i * q_stride) of dim values and n_k rows. */
    void (*scores)(const float *q, ptrdiff_t q_stride, int n_q, qn_kv_rows_view k, int n_k, int dim,
                   float *out, ptrdiff_t out_stride);

    /* acc[i * acc_stride + d] += sum_j w[i * w_stride + j] * v_j[d], j rising, for n_q rows of w and n_v of
     * v. */
    void (*mix)(const float *w, ptrdiff_t w_stride, int n_q, qn_kv_rows_view v, int n_v, int dim, float *acc,
                ptrdiff_t acc_stride);

    float (*max)(const float *x, int n);          /* -Inf for n = 0; NaN if any is */
    float (*exp_sum)(float *x, int n, float max); /* x = exp(x - max), returns the sum; exp(-Inf) = 0 */
    void (*silu)(float *x, int n);                /* x / (1 + exp(-x)) */
    void (*gelu_tanh)(float *x, int n);           /* 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
    void (*add)(float *y, const float *a, const float *b, int n); /* y = a + b; y may be a or b */
    void (*mul)(float *y, const float *a, const float *b, int n); /* y = a * b; y may be a or b */
    void (*scale)(float *y, const float *a, float s, int n);      /* y = a * s; y may be a */
    void (*to_half)(uint16_t *y, const float *x, int n);          /* nearest, ties to even */
} qn_vec;

/* The table for an instruction set that qn_isa_usable; exact ignores it (every build gives the same bits). */
const qn_vec *qn_vec_get(qn_isa isa, bool exact);

#endif
