#include "cpu/exact.h"
#include "cpu/matmul_kernels.h"
#include "cpu/unpack.h"

/* One row as codes against one 8-bit row. Inlined for each form, so that its loops have known lengths. */
static inline __attribute__((always_inline)) float dot_codes(struct unpacked w, int group, bool wide,
                                                             qn_q8_row x)
{
    float sum = 0.0f;
    const float *xsum = group == 32 ? x.sum : x.sum2;
    for (int g = 0; g < w.used; g++) {
        float part = 0.0f;
        for (int h = g * group / 16; h < (g + 1) * group / 16; h++) {
            const uint8_t *code = w.code + 16 * h;
            const int8_t *q = x.q + 16 * h;
            int isum = wide ? x.bias[h] : 0;
#pragma GCC unroll 1 /* unrolled, it is not vectorised */
            for (int i = 0; i < 16; i++) {
                isum += (int16_t)((int16_t)code[i] * (int16_t)q[i]); /* at most 255 * 127 */
            }
            part += x.d[h] * (float)isum;
        }
        sum += w.s[g] * part;
        sum -= wide ? 0.0f : w.m[g] * xsum[g];
    }
    return sum;
}

static void quantised_rows(const qn_mm_block *b, const qn_unpack *u)
{
    const qn_act *a = b->act;
    struct unpacked r = unpacked_in(b->scratch, a->n_in, u->group);
    for (int row = 0; row < b->n_rows; row++) {
        unpack_row(b, row, r, 0);
        for (int t = 0; t < a->n_tokens; t++) {
            qn_q8_row x = qn_q8_row_at(a, t);
            float *y = &b->y[t * b->y_stride + row];
            if (u->group == 16) {
                *y = dot_codes(r, 16, false, x);
            } else if (u->wide) {
                *y = dot_codes(r, 32, true, x);
            } else {
                *y = dot_codes(r, 32, false, x);
            }
        }
    }
}

static void float_rows(const qn_mm_block *b)
{
    const qn_act *a = b->act;
    float *buf = (float *)(void *)b->scratch;
    for (int r = 0; r < b->n_rows; r++) {
        const float *w = unpack_float_row(b->type, b->w + (size_t)r * b->row_bytes, a->n_in, buf);
        for (int t = 0; t < a->n_tokens; t++) {
            exact_dots(w, a->x + t * a->stride, 0, 1, a->n_in, &b->y[t * b->y_stride + r]);
        }
    }
}

static void run_rows(const qn_mm_block *b)
{
    const qn_unpack *u = &unpack_rows[b->type];
    if (u->group) {
        quantised_rows(b, u);
    } else {
        float_rows(b);
    }
}

const qn_mm_kernels qn_mm_portable = {.quantize = quantize_row, .rows = run_rows, .exact = exact_rows};
