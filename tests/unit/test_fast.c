// rooms: room_cpu
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

#include "base/half.h"
#include "cpu/fast.h"

enum { MAX_ROW = 13, MAX_CACHE = 200, MAX_DIM = 256 };

static uint64_t seed = 7;

static float uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(seed >> 40) / (1 << 23) - 1.0);
}

static const qn_fast_kernels *kernels(int isa)
{
    return qn_isa_usable((qn_isa)isa) ? qn_fast_get((qn_isa)isa) : NULL;
}

static float q[MAX_ROW * MAX_DIM], o[MAX_ROW * MAX_DIM], m[MAX_ROW], l[MAX_ROW], slope[MAX_ROW];
static float scratch[QN_ATTN_TILE * 2 * MAX_DIM];
static int row_pos[MAX_ROW];
static uint16_t k[MAX_CACHE * MAX_DIM], v[MAX_CACHE * MAX_DIM];

/* Softmax of one row by its definition, in double. */
static void check_row(const qn_attn_block *b, int row)
{
    double p[512], out[MAX_DIM] = {0}, size[MAX_DIM] = {0}, sum = 0, top = -INFINITY;
    int pos = b->row_pos[row], first = b->key_first, last = b->key_last < pos + 1 ? b->key_last : pos + 1;
    if (b->window > 0 && pos - b->window + 1 > first) {
        first = pos - b->window + 1;
    }
    for (int i = first; i < last; i++) {
        const uint16_t *key = b->k + (size_t)(i % b->cache_rows) * b->k_stride;
        double s = 0;
        for (int d = 0; d < b->k_dim; d++) {
            s += (double)b->q[row * b->k_dim + d] * (double)qn_f16_to_f32(key[d]);
        }
        s = b->softcap > 0 ? (double)b->softcap * tanh(s / (double)b->softcap) : s;
        p[i - first] = s - (double)b->slope[row] * (pos - i);
        top = p[i - first] > top ? p[i - first] : top;
    }
    for (int i = first; i < last; i++) {
        const uint16_t *value = b->v + (size_t)(i % b->cache_rows) * b->v_stride;
        double w = exp(p[i - first] - top);
        sum += w;
        for (int d = 0; d < b->v_dim; d++) {
            out[d] += w * (double)qn_f16_to_f32(value[d]);
            size[d] += w * fabs((double)qn_f16_to_f32(value[d]));
        }
    }
    if (first >= last) {
        assert_true(b->m[row] == -INFINITY && b->l[row] == 0);
        return;
    }
    assert_true(fabs((double)b->l[row] - sum) <= 2e-5 * sum && fabs((double)b->m[row] - top) <= 2e-5);
    for (int d = 0; d < b->v_dim; d++) {
        assert_true(fabs((double)b->o[row * b->v_dim + d] - out[d]) <= 2e-5 * size[d]);
    }
}

/* n_row rows of tokens that end at position `pos`, keys [first, pos]. */
static void check_attention(const qn_fast_kernels *f, int n_row, int k_dim, int v_dim, int pos,
                            int cache_rows, int window, float softcap, float alibi)
{
    int oldest = pos + 1 - cache_rows > 0 ? pos + 1 - cache_rows : 0;
    for (int i = 0; i < MAX_ROW; i++) {
        row_pos[i] = pos - (n_row - 1 - i) / 2;
        slope[i] = alibi * (float)(1 + i);
    }
    qn_attn_block b = {
        .n_row = n_row,
        .q = q,
        .row_pos = row_pos,
        .slope = slope,
        .k_dim = k_dim,
        .v_dim = v_dim,
        .key_first = oldest,
        .key_last = pos + 1,
        .window = window,
        .softcap = softcap,
        .k = k,
        .v = v,
        .k_stride = (size_t)k_dim + 3,
        .v_stride = (size_t)v_dim,
        .cache_rows = cache_rows,
        .m = m,
        .l = l,
        .o = o,
        .scratch = scratch,
    };
    f->attention(&b);
    for (int r = 0; r < n_row; r++) {
        check_row(&b, r);
    }
}

static void attention_matches_its_definition(void **state)
{
    (void)state;
    static const int row_counts[] = {1, 2, 3, 4, 5, 8, 13}, k_dims[] = {64, 16, 40, 100, 8, 192, 256},
                     v_dims[] = {64, 48, 40, 100, 24, 128, 256}, ends[] = {5, 63, 64, 150, 317, 399, 199};
    for (int i = 0; i < MAX_ROW * MAX_DIM; i++) {
        q[i] = uniform() * 0.5f;
    }
    for (int i = 0; i < MAX_CACHE * MAX_DIM; i++) {
        k[i] = qn_f32_to_f16(uniform());
        v[i] = qn_f32_to_f16(uniform());
    }
    for (int isa = 0; isa < QN_ISA_COUNT; isa++) {
        const qn_fast_kernels *f = kernels(isa);
        for (int i = 0; f && i < 7 * 7 * 7; i++) {
            int n_row = row_counts[i % 7], dim = i / 7 % 7, end = ends[i / 49];
            int cache_rows = end < 180 ? 190 : 77;
            check_attention(f, n_row, k_dims[dim], v_dims[dim], end, cache_rows, 0, 0, 0);
            check_attention(f, n_row, k_dims[dim], v_dims[dim], end, cache_rows, 20, i % 2 ? 3.0f : 0, 0);
            check_attention(f, n_row, k_dims[dim], v_dims[dim], end, cache_rows, 0, 0, 0.02f);
        }
    }
}

/* A part of the keys that a row does not see leaves it empty, not NaN. */
static void unseen_keys_leave_a_row_empty(void **state)
{
    (void)state;
    for (int isa = 0; isa < QN_ISA_COUNT; isa++) {
        const qn_fast_kernels *f = kernels(isa);
        for (int n_row = 1; f && n_row < 8; n_row++) {
            for (int i = 0; i < n_row; i++) {
                row_pos[i] = 90 + 20 * i;
                slope[i] = 0;
            }
            qn_attn_block b = {n_row, q, row_pos, slope, 16,  16, 100, 150, 30,     0,
                               k,     v, 16,      16,    200, m,  l,   o,   scratch};
            f->attention(&b);
            for (int r = 0; r < n_row; r++) {
                check_row(&b, r);
            }
        }
    }
}

static void activations_match_their_formulas(void **state)
{
    (void)state;
    enum { N = 4003 };
    static float x[N], s[N], g[N], up[N], su[N], gu[N];
    for (int isa = 0; isa < QN_ISA_COUNT; isa++) {
        const qn_fast_kernels *f = kernels(isa);
        if (!f) {
            continue;
        }
        for (int i = 0; i < N; i++) {
            x[i] = s[i] = g[i] = -30.0f + 60.0f * (float)i / (N - 1);
            up[i] = uniform();
        }
        f->silu(s, N);
        f->gelu(g, N);
        f->silu_mul(x, up, su, N);
        f->gelu_mul(x, up, gu, N);
        for (int i = 0; i < N; i++) {
            double a = (double)x[i], u = 0.79788456080286535588 * (a + 0.044715 * a * a * a);
            double silu = a / (1 + exp(-a)), gelu = a / (1 + exp(-2 * u));
            assert_true(fabs((double)s[i] - silu) <= 4e-7 * fabs(silu) + 1e-40);
            assert_true(fabs((double)g[i] - gelu) <= 1e-6 * fabs(a));
            assert_true(su[i] == s[i] * up[i] && gu[i] == g[i] * up[i]);
        }
        float edge[] = {INFINITY, NAN, -1000, 1000}, edge2[] = {INFINITY, NAN, -1000, 1000};
        f->silu(edge, 4);
        f->gelu(edge2, 4);
        assert_true(isinf(edge[0]) && isnan(edge[1]) && edge[2] == 0 && edge[3] == 1000);
        assert_true(isinf(edge2[0]) && isnan(edge2[1]) && edge2[2] == 0 && edge2[3] == 1000);
    }
}

static void halves_round_to_nearest_even(void **state)
{
    (void)state;
    float x[70];
    uint16_t h[71];
    for (int i = 0; i < 70; i++) {
        x[i] = i < 4 ? 1.0f + (float)(2 * i + 1) * 0x1p-11f : uniform() * (i % 7 == 0 ? 1e5f : 1e-6f);
    }
    for (int isa = 0; isa < QN_ISA_COUNT; isa++) {
        const qn_fast_kernels *f = kernels(isa);
        for (int n = 0; f && n <= 70; n++) {
            h[n] = 0xabcd;
            f->to_f16(x, h, n);
            for (int i = 0; i < n; i++) {
                assert_int_equal(h[i], qn_f32_to_f16(x[i]));
            }
            assert_int_equal(h[n], 0xabcd);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_matches_its_definition),
        cmocka_unit_test(unseen_keys_leave_a_row_empty),
        cmocka_unit_test(activations_match_their_formulas),
        cmocka_unit_test(halves_round_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
