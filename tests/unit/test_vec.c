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
#include "cpu/vec.h"

enum { MAX_Q = 11, MAX_K = 37, MAX_DIM = 260 };

static uint64_t seed = 7;

static float uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(seed >> 40) / (1 << 23) - 1.0);
}

static int n_tables(void)
{
    return 1 + QN_ISA_COUNT;
}

/* Tables: 0 exact, then one an instruction set; NULL where it is not usable. */
static const qn_vec *table(int i)
{
    if (i == 0) {
        return qn_vec_get(QN_ISA_PORTABLE, true);
    }
    return qn_isa_usable((qn_isa)(i - 1)) ? qn_vec_get((qn_isa)(i - 1), false) : NULL;
}

static float q[MAX_Q * MAX_DIM], k32[MAX_K * MAX_DIM], w[MAX_Q * MAX_K], acc[MAX_Q * MAX_DIM],
    out[MAX_Q * MAX_K];
static uint16_t k16[MAX_K * MAX_DIM];
static const int dims[] = {1, 8, 16, 40, 64, 80, 100, 128, 192, 256};
static const int q_counts[] = {1, 2, 3, 4, 7, 8, 11}, k_counts[] = {1, 2, 4, 5, 16, 37};

static void fill(void)
{
    for (int i = 0; i < MAX_Q * MAX_DIM; i++) {
        q[i] = uniform();
        acc[i] = uniform();
    }
    for (int i = 0; i < MAX_K * MAX_DIM; i++) {
        k16[i] = qn_f32_to_f16(uniform());
        k32[i] = qn_f16_to_f32(k16[i]);
    }
    for (int i = 0; i < MAX_Q * MAX_K; i++) {
        w[i] = uniform();
    }
}

static void each(void (*check)(const qn_vec *v, qn_kv_rows_view k, int n_q, int n_k, int dim))
{
    fill();
    for (int t = 0; t < n_tables(); t++) {
        const qn_vec *v = table(t);
        for (size_t a = 0; v && a < sizeof dims / sizeof *dims; a++) {
            for (size_t b = 0; b < sizeof q_counts / sizeof *q_counts; b++) {
                for (size_t c = 0; c < sizeof k_counts / sizeof *k_counts; c++) {
                    check(v, (qn_kv_rows_view){k32, MAX_DIM, false}, q_counts[b], k_counts[c], dims[a]);
                    check(v, (qn_kv_rows_view){k16, MAX_DIM, true}, q_counts[b], k_counts[c], dims[a]);
                }
            }
        }
    }
}

static void check_scores(const qn_vec *v, qn_kv_rows_view k, int n_q, int n_k, int dim)
{
    v->scores(q, MAX_DIM, n_q, k, n_k, dim, out, MAX_K);
    for (int i = 0; i < n_q; i++) {
        for (int j = 0; j < n_k; j++) {
            double s = 0, size = 0;
            for (int d = 0; d < dim; d++) {
                s += (double)q[i * MAX_DIM + d] * k32[j * MAX_DIM + d];
                size += fabs((double)q[i * MAX_DIM + d] * k32[j * MAX_DIM + d]);
            }
            assert_true(fabs(out[i * MAX_K + j] - s) <= 1e-6 * size);
        }
    }
    if (!k.half) {
        float one = v->dot(q, k32, dim);
        assert_true(fabsf(one - out[0]) <= 1e-6f * (float)dim);
    }
}

static void scores_are_dot_products(void **state)
{
    (void)state;
    each(check_scores);
}

static void check_mix(const qn_vec *v, qn_kv_rows_view k, int n_q, int n_k, int dim)
{
    float got[MAX_Q * MAX_DIM];
    memcpy(got, acc, sizeof got);
    v->mix(w, MAX_K, n_q, k, n_k, dim, got, MAX_DIM);
    for (int i = 0; i < MAX_Q; i++) {
        for (int d = 0; d < MAX_DIM; d++) {
            double s = acc[i * MAX_DIM + d], size = fabs(s);
            for (int j = 0; j < n_k && i < n_q && d < dim; j++) {
                s += (double)w[i * MAX_K + j] * k32[j * MAX_DIM + d];
                size += fabs((double)w[i * MAX_K + j] * k32[j * MAX_DIM + d]);
            }
            assert_true(fabs(got[i * MAX_DIM + d] - s) <= 3e-6 * size);
        }
    }
}

static void mix_adds_weighted_rows(void **state)
{
    (void)state;
    each(check_mix);
}

/* Queries alone or together, keys at once or in two calls: the same bits. */
static void exact_does_not_depend_on_the_call(void **state)
{
    (void)state;
    const qn_vec *v = table(0);
    fill();
    for (size_t a = 0; a < sizeof dims / sizeof *dims; a++) {
        int dim = dims[a];
        for (int half = 0; half < 2; half++) {
            qn_kv_rows_view k = {half ? (void *)k16 : (void *)k32, MAX_DIM, half};
            qn_kv_rows_view rest = {half ? (void *)(k16 + 13 * MAX_DIM) : (void *)(k32 + 13 * MAX_DIM),
                                    MAX_DIM, half};
            float whole[MAX_Q * MAX_DIM], parts[MAX_Q * MAX_DIM], one[MAX_K];
            memcpy(whole, acc, sizeof whole);
            memcpy(parts, acc, sizeof parts);
            v->scores(q, MAX_DIM, MAX_Q, k, MAX_K, dim, out, MAX_K);
            v->mix(w, MAX_K, MAX_Q, k, MAX_K, dim, whole, MAX_DIM);
            for (int i = 0; i < MAX_Q; i++) {
                v->scores(q + i * MAX_DIM, MAX_DIM, 1, k, 13, dim, one, 0);
                v->scores(q + i * MAX_DIM, MAX_DIM, 1, rest, MAX_K - 13, dim, one + 13, 0);
                assert_memory_equal(one, out + i * MAX_K, sizeof one);
                v->mix(w + i * MAX_K, MAX_K, 1, k, 13, dim, parts + i * MAX_DIM, MAX_DIM);
                v->mix(w + i * MAX_K + 13, MAX_K, 1, rest, MAX_K - 13, dim, parts + i * MAX_DIM, MAX_DIM);
            }
            assert_memory_equal(parts, whole, sizeof parts);
        }
    }
}

static void exponential_is_accurate(void **state)
{
    (void)state;
    enum { N = 20011 };
    static float x[N], y[N], other[N];
    for (int t = 0; t < n_tables(); t++) {
        const qn_vec *v = table(t);
        if (!v) {
            continue;
        }
        double sum = 0;
        for (int i = 0; i < N; i++) {
            x[i] = y[i] = -87.0f + 160.0f * (float)i / (N - 1);
        }
        float got = v->exp_sum(y, N, 0.5f);
        for (int i = 0; i < N; i++) {
            double e = exp((double)(x[i] - 0.5f));
            sum += e;
            assert_true(fabs(y[i] - e) <= 2e-7 * e + 1e-44);
        }
        assert_true(fabs(got - sum) <= 1e-5 * sum);
        if (t == 1) {
            memcpy(other, y, sizeof other);
        } else if (t > 1) {
            assert_memory_equal(other, y, sizeof y);
        }
        float edge[] = {-INFINITY, -200, 0, 200, INFINITY, NAN};
        v->exp_sum(edge, 6, 0);
        assert_true(edge[0] == 0 && edge[1] == 0 && edge[2] == 1 && isinf(edge[3]) && isinf(edge[4]) &&
                    isnan(edge[5]));
    }
}

static void activations_match_their_formulas(void **state)
{
    (void)state;
    enum { N = 4003 };
    static float x[N], s[N], g[N];
    for (int t = 0; t < n_tables(); t++) {
        const qn_vec *v = table(t);
        if (!v) {
            continue;
        }
        for (int i = 0; i < N; i++) {
            x[i] = s[i] = g[i] = -30.0f + 60.0f * (float)i / (N - 1);
        }
        v->silu(s, N);
        v->gelu_tanh(g, N);
        for (int i = 0; i < N; i++) {
            double a = x[i], u = 0.79788456080286535588 * (a + 0.044715 * a * a * a);
            assert_true(fabs(s[i] - a / (1 + exp(-a))) <= 4e-7 * fabs(a / (1 + exp(-a))) + 1e-40);
            assert_true(fabs(g[i] - 0.5 * a * (1 + tanh(u))) <= 1e-6 * fabs(a));
        }
        float edge[] = {-INFINITY, INFINITY, NAN, -1000, 1000}, edge2[] = {INFINITY, NAN, -1000, 1000};
        v->silu(edge + 1, 4);
        v->gelu_tanh(edge2, 4);
        assert_true(isinf(edge[1]) && isnan(edge[2]) && edge[3] == 0 && edge[4] == 1000);
        assert_true(isinf(edge2[0]) && isnan(edge2[1]) && edge2[2] == 0 && edge2[3] == 1000);
    }
}

static void elementwise(void **state)
{
    (void)state;
    fill();
    for (int t = 0; t < n_tables(); t++) {
        const qn_vec *v = table(t);
        for (int n = 0; v && n < 70; n++) {
            float a[70], b[70], c[70];
            uint16_t h[70];
            v->add(a, q, k32, n);
            v->mul(b, q, k32, n);
            v->scale(c, q, 0.3f, n);
            v->to_half(h, q, n);
            float max = -INFINITY;
            for (int i = 0; i < n; i++) {
                assert_true(a[i] == q[i] + k32[i] && b[i] == q[i] * k32[i] && c[i] == q[i] * 0.3f);
                assert_int_equal(h[i], qn_f32_to_f16(q[i]));
                max = q[i] > max ? q[i] : max;
            }
            assert_true(v->max(q, n) == max);
        }
        float bad[] = {1, NAN, 3};
        assert_true(!v || isnan(v->max(bad, 3)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_dot_products),           cmocka_unit_test(mix_adds_weighted_rows),
        cmocka_unit_test(exact_does_not_depend_on_the_call), cmocka_unit_test(exponential_is_accurate),
        cmocka_unit_test(activations_match_their_formulas),  cmocka_unit_test(elementwise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
