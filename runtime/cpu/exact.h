/* exact.h: the exact arithmetic's dot product, included once per instruction set.
 *
 * 16 partial sums in a fixed place each, added pairwise at the end; no fused multiply-add
 * (-ffp-contract=off). So every build gives the same bits, however wide its vectors are. */
#ifndef QN_CPU_EXACT_H
#define QN_CPU_EXACT_H

#include "cpu/matmul_kernels.h"

typedef float qn_f32x16 __attribute__((vector_size(64), aligned(4), may_alias));

static inline float exact_sum(const float *lanes)
{
    float a[8];
    for (int i = 0; i < 8; i++) {
        a[i] = lanes[i] + lanes[i + 8];
    }
    for (int i = 0; i < 4; i++) {
        a[i] += a[i + 4];
    }
    return (a[0] + a[2]) + (a[1] + a[3]);
}

/* out[t] = w . x_t for n_x rows (at most 4, `stride` apart) at once. */
static inline __attribute__((always_inline)) void exact_dots(const float *w, const float *x, ptrdiff_t stride,
                                                             int n_x, int n, float *out)
{
    qn_f32x16 acc[4] = {{0}, {0}, {0}, {0}};
    int k = 0;
    for (; k + 16 <= n; k += 16) {
        qn_f32x16 v = *(const qn_f32x16 *)(w + k);
        for (int t = 0; t < n_x; t++) {
            acc[t] += v * *(const qn_f32x16 *)(x + t * stride + k);
        }
    }
    for (int t = 0; t < n_x; t++) {
        float lanes[16];
        *(qn_f32x16 *)lanes = acc[t];
        for (int i = 0; k + i < n; i++) {
            lanes[i] += w[k + i] * x[t * stride + k + i];
        }
        out[t] = exact_sum(lanes);
    }
}

static void exact_rows(const qn_mm_block *b)
{
    const qn_act *a = b->act;
    const qn_dtype *type = qn_dtype_get(b->type);
    float *row = (float *)(void *)b->scratch;
    for (int r = 0; r < b->n_rows; r++) {
        type->decode(b->w + (size_t)r * b->row_bytes, row, a->n_in);
        float *y = b->y + r, four[4];
        int t = 0;
        for (; t + 4 <= a->n_tokens; t += 4) {
            exact_dots(row, a->x + t * a->stride, a->stride, 4, a->n_in, four);
            for (int i = 0; i < 4; i++) {
                y[(t + i) * b->y_stride] = four[i];
            }
        }
        for (; t < a->n_tokens; t++) {
            exact_dots(row, a->x + t * a->stride, a->stride, 1, a->n_in, four);
            y[t * b->y_stride] = four[0];
        }
    }
}

#endif
