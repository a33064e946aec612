/* matmul.h: products of GGUF weights and f32 rows on the CPU.
 *
 *     y[t][r] = sum_k W[r][k] * x[t][k]        0 <= t < n_tokens, 0 <= r < n_out, 0 <= k < n_in
 *
 * W stays as the GGUF blocks it is; rows are unpacked into scratch of a few hundred kB a worker, never kept.
 *
 * Two arithmetics:
 * - exact: W decoded to f32 by its dtype row, products and sums in f32 in one fixed order (16 lanes). A value
 *   depends on W[r] and x[t] alone, bit for bit: not on the instruction set, threads, n_tokens or who
 * computes.
 * - fast: F32, F16 and BF16 weights against f32 rows with fused multiply-adds. Quantised weights against rows
 *   rounded to 8 bits in groups of 16 (scale = max |x| / 127, nearest, f32 scale): integer sums per group of
 *   16 are exact, so instruction sets, and few rows of x against many, differ only in the order of f32 sums.
 *   Groups of 32 would be a little faster but double the divergence of real models: docs/performance-log.md.
 *
 * A row of x that holds NaN or Inf gives NaN or Inf, never an ordinary number. */
#ifndef QN_CPU_MATMUL_H
#define QN_CPU_MATMUL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/threads.h"
#include "cpu/isa.h"
#include "model/dtype.h"

/* Engine: arithmetic, instruction set, scratch of every worker of the pool. */
typedef struct qn_mm qn_mm;

/* max_n_in: longest weight row that will be used. The pool must outlive the engine. An instruction set that
 * this CPU lacks is an error. */
int qn_mm_new(qn_mm **out, qn_pool *pool, qn_isa isa, bool exact, int max_n_in, qn_err *err);
void qn_mm_free(qn_mm *mm);
/* Bytes that an engine with these options allocates. */
size_t qn_mm_bytes(int n_threads, bool exact, int max_n_in);

/* Input rows and, made once when first needed, their 8-bit form; any number of products may share it. */
typedef struct qn_act {
    const float *x; /* row t at x + t * stride */
    ptrdiff_t stride;
    int n_in, n_tokens;
    bool q8_ready;
    unsigned char *q8; /* layout: matmul_kernels.h */
    size_t q8_bytes;   /* capacity */
} qn_act;

/* Makes room for the 8-bit form of up to max_tokens rows of up to max_n_in values (not used by an exact
 * engine: exact gets none). qn_act_free frees it; the struct itself is the caller's. */
int qn_act_init(qn_act *act, bool exact, int max_n_in, int max_tokens, qn_err *err);
void qn_act_free(qn_act *act);
size_t qn_act_bytes(bool exact, int max_n_in, int max_tokens);

/* Points act at new rows; x is read by the products that follow, until the next call. */
void qn_act_set(qn_act *act, const float *x, ptrdiff_t stride, int n_in, int n_tokens);

/* One weight of a product and where its result goes. */
typedef struct qn_product {
    qn_type type;  /* a type with a decode */
    const void *w; /* n_out rows of blocks, back to back, any alignment */
    int n_out;
    float *y; /* y[t * y_stride + r] */
    ptrdiff_t y_stride;
} qn_product;

/* All the products of one input, their rows shared out over the pool in one job. act->n_in is n_in of every
 * weight: a multiple of its block_values and at most the engine's max_n_in. Not to be called inside a job. */
void qn_mm_run(qn_mm *mm, qn_act *act, const qn_product *p, int n_products);

#endif
