/* matmul_kernels.h: what an instruction set provides to matmul.c, and the forms that its functions share. */
#ifndef QN_CPU_MATMUL_KERNELS_H
#define QN_CPU_MATMUL_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "cpu/matmul.h"

enum {
    QN_MM_ROWS = 16, /* rows of a weight that one call takes */
    QN_MM_PAD = 64,  /* rows of codes are padded to this many values */
};

static inline int qn_mm_padded(int n_in)
{
    return (n_in + QN_MM_PAD - 1) / QN_MM_PAD * QN_MM_PAD;
}
/* f32 per row of per-group data, for groups of 16 and 32 values; whole vectors of 16. */
static inline int qn_mm_groups16(int n_in)
{
    return (n_in / 16 + 15) / 16 * 16;
}
static inline int qn_mm_groups32(int n_in)
{
    return (n_in / 32 + 15) / 16 * 16;
}

/* 8-bit form of one row x of n_in values: x[k] ~ d[k / 16] * q[k], |q| <= 127. Padding is zero. A weight with
 * scales for 32 values takes two groups: s * (d0 * sum0 + d1 * sum1). */
typedef struct qn_q8_row {
    int8_t *q;     /* [padded] */
    float *d;      /* [groups16] */
    float *sum;    /* [groups32] sum of d * q over a group of 32 */
    float *sum2;   /* [groups16] d * sum of q over a group of 16 */
    int32_t *bias; /* [groups16] -128 * sum of q over a group of 16 */
} qn_q8_row;

/* Bytes of a row in qn_act.q8. The odd multiple of 64 keeps equal columns of several rows in different sets
 * of the first-level cache. */
static inline size_t qn_q8_row_bytes(int n_in)
{
    size_t b = (size_t)qn_mm_padded(n_in) +
               sizeof(float) * ((size_t)qn_mm_groups32(n_in) + 3 * (size_t)qn_mm_groups16(n_in));
    b = (b + 63) / 64;
    return (b | 1) * 64;
}

static inline qn_q8_row qn_q8_row_at(const qn_act *a, int t)
{
    unsigned char *p = a->q8 + (size_t)t * qn_q8_row_bytes(a->n_in);
    qn_q8_row r;
    r.q = (int8_t *)p;
    r.d = (float *)(p + qn_mm_padded(a->n_in));
    r.sum = r.d + qn_mm_groups16(a->n_in);
    r.sum2 = r.sum + qn_mm_groups32(a->n_in);
    r.bias = (int32_t *)(void *)(r.sum2 + qn_mm_groups16(a->n_in));
    return r;
}

/* A quantised row of n values, unpacked: W[k] = s[g] * code[k] - m[g], g = k / group. In a wide type code is
 * 0..255, W[k] = s[g] * (code[k] - 128), and m is not written. */
typedef struct qn_unpack {
    void (*scales)(const uint8_t *blocks, int n, float *s, float *m);
    void (*codes)(const uint8_t *blocks, int n, uint8_t *code);
    int group; /* 16 or 32 values share a scale; 0: no codes, the row is floating point */
    bool wide; /* codes above 63 occur; only with groups of 32 */
} qn_unpack;

/* Up to QN_MM_ROWS rows of one weight against all rows of act. */
typedef struct qn_mm_block {
    const uint8_t *w; /* first row */
    size_t row_bytes;
    int n_rows;
    qn_type type;
    const qn_act *act;
    float *y; /* y[t * y_stride + row] */
    ptrdiff_t y_stride;
    unsigned char *scratch; /* the worker's own, qn_mm_scratch_bytes, 64-aligned */
} qn_mm_block;

typedef struct qn_mm_kernels {
    void (*quantize)(const float *x, int n, qn_q8_row out);
    void (*rows)(const qn_mm_block *b);  /* fast arithmetic */
    void (*exact)(const qn_mm_block *b); /* exact arithmetic */
} qn_mm_kernels;

extern const qn_mm_kernels qn_mm_portable;
#if defined(__x86_64__)
extern const qn_mm_kernels qn_mm_avx2;
extern const qn_mm_kernels qn_mm_avx512;
#endif

/* Scratch of one worker: room for QN_MM_ROWS rows as f32 twice (rows, then interleaved), which is more than
 * codes with their scales take. */
static inline size_t qn_mm_scratch_bytes(int max_n_in)
{
    return 2 * sizeof(float) * QN_MM_ROWS * (size_t)qn_mm_padded(max_n_in) + 4096;
}

#endif
