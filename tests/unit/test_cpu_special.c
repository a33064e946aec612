// rooms: room_cpu
/* Ops that only some models have, against their formulas written out here in double precision. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/half.h"
#include "cpu/cpu.h"

enum { ROWS = 5, WIDTH = 64 };

static float value(int i)
{
    return sinf((float)i * 1.7f + 0.3f) * 2.0f;
}

/* One step on buffers in, other, out of WIDTH values a row; in and other hold value(). */
typedef struct rig {
    qn_model model;
    qn_plans plans;
    qn_buf bufs[3];
    qn_step step;
    float in[ROWS][WIDTH], other[ROWS][WIDTH], out[ROWS][WIDTH];
} rig;

static void rig_init(rig *r, qn_op_id op)
{
    memset(r, 0, sizeof *r);
    r->model = (qn_model){.n_embd = WIDTH, .n_vocab = 8};
    for (int i = 0; i < 3; i++) {
        r->bufs[i] = (qn_buf){"b", WIDTH, QN_ROWS_TOKENS};
    }
    r->plans = (qn_plans){.model = &r->model, .n_buf = 3, .bufs = r->bufs};
    r->plans.prefill = r->plans.decode = (qn_plan){QN_PHASE_PREFILL, 1, &r->step, 2};
    r->step.op = &qn_ops[op];
    r->step.kv = -1;
    for (int i = 0; i < QN_STEP_VIEWS; i++) {
        r->step.in[i] = r->step.out[i] = (qn_view){-1, 0, 0};
    }
    for (int i = 0; i < ROWS * WIDTH; i++) {
        r->in[i / WIDTH][i % WIDTH] = value(i);
        r->other[i / WIDTH][i % WIDTH] = value(i + 1000);
    }
}

static void rig_run(rig *r)
{
    qn_exec *e;
    qn_err err = {""};
    int32_t ids[ROWS] = {0};
    const qn_exec_opts o = {.n_ctx = ROWS, .n_ubatch = ROWS, .n_threads = 2, .exact = true};
    qn_run run = {.tokens = ids, .n = ROWS, .outputs = QN_OUT_NONE};
    const qn_view all[3] = {{0, 0, WIDTH}, {1, 0, WIDTH}, {2, 0, WIDTH}};
    if (qn_cpu_exec_new(&e, &r->plans, &o, &err) || e->write(e, all[0], 0, ROWS, r->in[0], &err) ||
        e->write(e, all[1], 0, ROWS, r->other[0], &err) || e->write(e, all[2], 0, ROWS, r->out[0], &err)) {
        fail_msg("%s", err.text);
    }
    r->plans.prefill.logits_buf = r->plans.decode.logits_buf =
        0; /* so that the step is no part of the head */
    if (e->run(e, &run, &err) || e->read(e, all[2], 0, ROWS, r->out[0], &err)) {
        fail_msg("%s", err.text);
    }
    e->free(e);
}

static void near(float got, double want)
{
    if (!(fabs((double)got - want) <= 2e-6 * (1 + fabs(want)))) {
        fail_msg("%.9g instead of %.9g", (double)got, want);
    }
}

static void test_mul(void **state)
{
    (void)state;
    static rig r;
    float w[20];
    for (int with_w = 0; with_w < 2; with_w++) {
        rig_init(&r, QN_OP_MUL);
        qn_tensor t = {.name = "w", .type = QN_F32, .n_dims = 1, .ne = {20, 1, 1, 1}, .data = (uint8_t *)w};
        for (int i = 0; i < 20; i++) {
            w[i] = value(i + 500);
        }
        r.step.in[0] = (qn_view){0, 3, 20};
        r.step.in[1] = with_w ? (qn_view){-1, 0, 0} : (qn_view){1, 5, 20};
        r.step.out[0] = (qn_view){2, 1, 20};
        r.step.w[0] = with_w ? &t : NULL;
        r.step.spec.mul = (qn_spec_mul){20, with_w};
        rig_run(&r);
        for (int i = 0; i < ROWS * 20; i++) {
            int row = i / 20, k = i % 20;
            near(r.out[row][1 + k], (double)r.in[row][3 + k] * (double)(with_w ? w[k] : r.other[row][5 + k]));
        }
        assert_true(r.out[0][0] == 0 && r.out[0][21] == 0);
    }
}

static void test_repeated_mix(void **state)
{
    (void)state;
    static rig r;
    rig_init(&r, QN_OP_MIX);
    r.step.in[0] = (qn_view){0, 4, 30};
    r.step.in[1] = (qn_view){1, 2, 10};
    r.step.out[0] = (qn_view){2, 0, 30};
    r.step.spec.mix = (qn_spec_mix){30, 10, 1.5f, -0.5f};
    rig_run(&r);
    for (int i = 0; i < ROWS * 30; i++) {
        int row = i / 30, k = i % 30;
        near(r.out[row][k], 1.5 * (double)r.in[row][4 + k] - 0.5 * (double)r.other[row][2 + k % 10]);
    }
}

static double length_of(const float *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    return sqrt(sum);
}

static void test_rescale(void **state)
{
    (void)state;
    static rig r;
    enum { N = 13, GROUPS = 3 };
    for (int average = 0; average < 2; average++) {
        rig_init(&r, QN_OP_RESCALE);
        r.step.in[0] = (qn_view){0, 2, N * GROUPS};
        r.step.in[1] = (qn_view){1, 1, N};
        r.step.out[0] = (qn_view){2, 0, average ? N : N * GROUPS};
        r.step.spec.rescale = (qn_spec_rescale){N, GROUPS, average};
        memset(&r.in[3][2 + N], 0, sizeof(float) * N); /* a group without length stays so */
        rig_run(&r);
        for (int row = 0; row < ROWS; row++) {
            for (int i = 0; i < N; i++) {
                double sum = (double)r.other[row][1 + i];
                for (int g = 0; g < GROUPS; g++) {
                    const float *x = &r.in[row][2 + g * N];
                    double is = length_of(x, N);
                    double y = is > 0 ? (double)x[i] * length_of(&r.other[row][1], N) / is : 0;
                    sum += y;
                    if (!average) {
                        near(r.out[row][g * N + i], y);
                    }
                }
                if (average) {
                    near(r.out[row][i], sum / (GROUPS + 1));
                }
            }
        }
    }
}

enum { S = 3, N_ALT = 12 };

static void altup_row(const float *x, const float *z, bool correct, const float *norm, const float *router,
                      const float *coef, double *out)
{
    const float *y = correct ? z : x;
    double m[S], square = 0;
    for (int i = 0; i < N_ALT; i++) {
        square += (double)y[i] * (double)y[i];
    }
    for (int k = 0; k < S; k++) {
        double dot = 0;
        for (int i = 0; i < N_ALT; i++) {
            dot += (double)y[i] / sqrt(square / N_ALT + 1e-6) * (double)norm[i] / N_ALT *
                   (double)router[k * N_ALT + i];
        }
        m[k] = tanh(dot);
    }
    for (int o = 0; o < S; o++) {
        for (int i = 0; i < N_ALT; i++) {
            double v = (double)x[o * N_ALT + i], c = 1;
            for (int k = 0; correct && k < S; k++) {
                c += (double)coef[o * S + k] * m[k];
            }
            for (int j = 0; !correct && j < S; j++) {
                double p = 0;
                for (int k = 0; k < S; k++) {
                    p += (double)coef[(o * S + j) * S + k] * m[k];
                }
                v += p * (double)x[j * N_ALT + i];
            }
            out[o * N_ALT + i] = correct ? v + ((double)z[i] - (double)x[i]) * c : v;
        }
    }
}

static void test_altup(void **state)
{
    (void)state;
    static rig r;
    float norm[N_ALT], router[S * N_ALT], coef[S * S * S];
    uint16_t router16[S * N_ALT];
    for (int i = 0; i < N_ALT; i++) {
        norm[i] = 10 * value(i + 70);
    }
    for (int i = 0; i < S * N_ALT; i++) {
        router16[i] = qn_f32_to_f16(value(i + 200));
        router[i] = qn_f16_to_f32(router16[i]);
    }
    for (int i = 0; i < S * S * S; i++) {
        coef[i] = value(i + 300);
    }
    for (int correct = 0; correct < 2; correct++) {
        int rows = correct ? S : S * S;
        qn_tensor t[3] = {
            {.name = "norm", .type = QN_F32, .n_dims = 1, .ne = {N_ALT, 1, 1, 1}, .data = (uint8_t *)norm},
            {.name = "router", .type = QN_F16, .n_dims = 2, .ne = {N_ALT, S, 1, 1}, .n_bytes = 2 * S * N_ALT},
            {.name = "coef", .type = QN_F32, .n_dims = 2, .ne = {S, (uint64_t)rows, 1, 1}}};
        t[1].data = (uint8_t *)router16;
        t[2].data = (uint8_t *)coef;
        t[2].n_bytes = sizeof(float) * S * (uint64_t)rows;
        rig_init(&r, QN_OP_ALTUP);
        r.step.in[0] = (qn_view){0, 2, S * N_ALT};
        r.step.in[1] = correct ? (qn_view){1, 3, N_ALT} : (qn_view){-1, 0, 0};
        r.step.out[0] = (qn_view){2, 1, S * N_ALT};
        for (int i = 0; i < 3; i++) {
            r.step.w[i] = &t[i];
        }
        r.step.spec.altup = (qn_spec_altup){N_ALT, S, correct, QN_F16, QN_F32, 1e-6f};
        rig_run(&r);
        for (int row = 0; row < ROWS; row++) {
            double want[S * N_ALT];
            altup_row(&r.in[row][2], &r.other[row][3], correct, norm, router, coef, want);
            for (int i = 0; i < S * N_ALT; i++) {
                near(r.out[row][1 + i], want[i]);
            }
        }
    }
}

static void test_latent_kv(void **state)
{
    (void)state;
    static rig r;
    enum { HEADS = 3, NOPE = 4, ROT = 2, V = 5 };
    rig_init(&r, QN_OP_LATENT_KV);
    r.step.in[0] = (qn_view){0, 1, HEADS * (NOPE + V)};
    r.step.in[1] = (qn_view){1, 7, ROT};
    r.step.out[0] = (qn_view){2, 0, HEADS * (NOPE + ROT)};
    r.step.out[1] = (qn_view){2, HEADS * (NOPE + ROT), HEADS * V};
    r.step.spec.latent_kv = (qn_spec_latent_kv){HEADS, NOPE, ROT, V};
    rig_run(&r);
    for (int row = 0; row < ROWS; row++) {
        for (int h = 0; h < HEADS; h++) {
            const float *from = &r.in[row][1 + h * (NOPE + V)], *k = &r.out[row][h * (NOPE + ROT)];
            assert_memory_equal(k, from, sizeof(float) * NOPE);
            assert_memory_equal(k + NOPE, &r.other[row][7], sizeof(float) * ROT);
            assert_memory_equal(&r.out[row][HEADS * (NOPE + ROT) + h * V], from + NOPE, sizeof(float) * V);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mul), cmocka_unit_test(test_repeated_mix),
                                       cmocka_unit_test(test_rescale), cmocka_unit_test(test_altup),
                                       cmocka_unit_test(test_latent_kv)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
