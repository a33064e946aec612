#include "cpu/exact.h"
#include "cpu/matmul_kernels.h"
#include "cpu/unpack.h"

/* One row as codes against one 8-bit row. */
static float dot_codes(struct unpacked w, const qn_unpack *u, qn_q8_row x)
{
    float sum = 0.0f;
    const float *xsum = u->group == 32 ? x.sum : x.sum2;
    for (int g = 0; g < w.used; g++) {
        const uint8_t *code = w.code + g * u->group;
        const int8_t *q = x.q + g * u->group;
        int isum = u->wide ? -128 * x.isum[g] : 0;
        for (int i = 0; i < u->group; i++) {
            isum += (int)code[i] * q[i];
        }
        sum += w.s[g] * x.d[g * u->group / 32] * (float)isum;
        sum -= u->wide ? 0.0f : w.m[g] * xsum[g];
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
            b->y[t * b->y_stride + row] = dot_codes(r, u, qn_q8_row_at(a, t));
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
