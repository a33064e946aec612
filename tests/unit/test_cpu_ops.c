// rooms: room_cpu
/* Reference functions of the CPU executor against formulas written out in double precision here: attention in
 * both arithmetics (GQA, window, ring, soft-cap, ALiBi, chunks), RoPE styles and QK norm orders, and the op
 * table's completeness. Plans are made by hand, so that no model file is needed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/half.h"
#include "codegen/kv_type.h"
#include "cpu/cpu.h"

enum { VOCAB = 64, MAX_TOK = 160 };

static uint32_t rng_state;
static float uniform(void)
{
    rng_state = rng_state * 1664525u + 1013904223u;
    return (float)(rng_state >> 8) * (2.0f / 16777216.0f) - 1.0f;
}

/* embed -> rope_kv -> attention over one buffer: token embeddings are the q, k, v of the token. */
typedef struct rig {
    qn_model model;
    qn_tensor embd;
    qn_plans plans;
    qn_buf bufs[3];
    qn_kv_cache kv;
    qn_step steps[3];
    float *table, freq[256];
    qn_exec *exec;
    int n_head, n_kv, kd, vd, width;
} rig;

typedef struct shape {
    int n_head, n_kv, kd, vd, window, n_rot, style, norm, order, exact, ubatch, n_ctx, k_q8, v_q8;
    float softcap, alibi, temp;
} shape;

static const qn_view none = {-1, 0, 0};

static void rig_init(rig *r, const shape *s)
{
    memset(r, 0, sizeof *r);
    r->n_head = s->n_head;
    r->n_kv = s->n_kv;
    r->kd = s->kd;
    r->vd = s->vd;
    int nq = s->n_head * s->kd, nk = s->n_kv * s->kd, nv = s->n_kv * s->vd;
    r->width = nq + nk + nv;
    r->table = malloc(sizeof(float) * (size_t)(VOCAB * r->width));
    rng_state = 7;
    for (int i = 0; i < VOCAB * r->width; i++) {
        r->table[i] = 1.5f * uniform();
    }
    for (int i = 0; i < s->n_rot / 2; i++) {
        r->freq[i] = powf(100.0f, -2.0f * (float)i / (float)s->n_rot);
    }
    r->embd = (qn_tensor){.name = "embd",
                          .type = QN_F32,
                          .n_dims = 2,
                          .ne = {(uint64_t)r->width, VOCAB, 1, 1},
                          .n_bytes = sizeof(float) * (uint64_t)(VOCAB * r->width),
                          .data = (uint8_t *)r->table};
    r->model = (qn_model){.n_embd = r->width, .n_vocab = VOCAB, .tok_embd = &r->embd};
    r->bufs[0] = (qn_buf){"x", r->width, QN_ROWS_TOKENS};
    r->bufs[1] = (qn_buf){"att", s->n_head * s->vd, QN_ROWS_TOKENS};
    r->bufs[2] = (qn_buf){"logits", 1, QN_ROWS_OUTPUTS};
    r->kv = (qn_kv_cache){0, s->n_kv, s->kd, s->vd, s->window};
    for (int i = 0; i < 3; i++) {
        qn_step *st = &r->steps[i];
        st->kv = i ? 0 : -1;
        for (int v = 0; v < QN_STEP_VIEWS; v++) {
            st->in[v] = st->out[v] = none;
        }
    }
    r->steps[0].op = &qn_ops[QN_OP_EMBED];
    r->steps[0].out[0] = (qn_view){0, 0, r->width};
    r->steps[0].w[0] = &r->embd;
    r->steps[0].spec.embed = (qn_spec_embed){r->width, VOCAB, QN_F32, -1, 0, 1.0f};
    r->steps[1].op = &qn_ops[QN_OP_ROPE_KV];
    r->steps[1].in[0] = r->steps[1].out[0] = (qn_view){0, 0, nq};
    r->steps[1].in[1] = (qn_view){0, nq, nk};
    r->steps[1].in[2] = (qn_view){0, nq + nk, nv};
    r->steps[1].table = s->style ? r->freq : NULL;
    r->steps[1].spec.rope_kv = (qn_spec_rope_kv){.n_head = s->n_head,
                                                 .n_head_kv = s->n_kv,
                                                 .k_dim = s->kd,
                                                 .v_dim = s->vd,
                                                 .has_kv = 1,
                                                 .qk_norm = s->norm,
                                                 .q_has_norm = s->norm != 0,
                                                 .k_has_norm = s->norm != 0,
                                                 .qk_order = s->order,
                                                 .rope_style = s->style,
                                                 .n_rot = s->style ? s->n_rot : 0,
                                                 .temp_ctx = 16,
                                                 .eps = 1e-5f,
                                                 .mscale = 1.25f,
                                                 .temp_scale = s->temp};
    r->steps[2].op = &qn_ops[QN_OP_ATTENTION];
    r->steps[2].in[0] = (qn_view){0, 0, nq};
    r->steps[2].out[0] = (qn_view){1, 0, s->n_head * s->vd};
    r->steps[2].spec.attention =
        (qn_spec_attention){s->n_head, s->n_kv, s->kd, s->vd, s->window, 0.3f, s->softcap, s->alibi};
    r->plans = (qn_plans){.model = &r->model, .n_buf = 3, .bufs = r->bufs, .n_kv = 1, .kv = &r->kv};
    r->plans.prefill = (qn_plan){QN_PHASE_PREFILL, 3, r->steps, 2};
    r->plans.decode = (qn_plan){QN_PHASE_DECODE, 3, r->steps, 2};
    qn_exec_opts o = {.n_ctx = s->n_ctx,
                      .n_ubatch = s->ubatch,
                      .n_threads = 2,
                      .exact = s->exact,
                      .k_type = s->k_q8 ? QN_CACHE_Q8_0 : QN_CACHE_F16,
                      .v_type = s->v_q8 ? QN_CACHE_Q8_0 : QN_CACHE_F16};
    qn_err err;
    assert_int_equal(qn_cpu_exec_new(&r->exec, &r->plans, &o, &err), 0);
}

static void rig_free(rig *r)
{
    r->exec->free(r->exec);
    free(r->table);
}

/* q or k of one head at a position, in double: norm and rotation written out. */
static void ref_head(const rig *r, const shape *s, const float *x, int pos, double *out)
{
    for (int i = 0; i < s->kd; i++) {
        out[i] = (double)x[i];
    }
    for (int pass = 0; pass < 2; pass++) {
        bool norm = s->norm && (pass == 0) == (s->order == QN_QK_BEFORE_ROPE);
        if (norm) {
            double sum = 0;
            for (int i = 0; i < s->kd; i++) {
                sum += out[i] * out[i];
            }
            for (int i = 0; i < s->kd; i++) {
                out[i] /= sqrt(sum / s->kd + 1e-5);
            }
        }
        if (pass == 0 && s->style) {
            for (int i = 0; i < s->n_rot / 2; i++) {
                int a = s->style == QN_ROPE_NEOX ? i : 2 * i,
                    b = s->style == QN_ROPE_NEOX ? i + s->n_rot / 2 : 2 * i + 1;
                double t = (double)pos * (double)r->freq[i], u = out[a], v = out[b];
                out[a] = 1.25 * (u * cos(t) - v * sin(t));
                out[b] = 1.25 * (u * sin(t) + v * cos(t));
            }
        }
    }
}

/* n values as a q8_0 cache gives them back: groups of 32, a half d, codes of -127 to 127. */
static void ref_q8(double *x, int n)
{
    for (int g = 0; g < n; g += 32) {
        double top = 0;
        for (int i = g; i < g + 32; i++) {
            top = fabs(x[i]) > top ? fabs(x[i]) : top;
        }
        double d = (double)qn_f16_to_f32(qn_f32_to_f16((float)(top / 127)));
        for (int i = g; i < g + 32; i++) {
            x[i] = top > 0 ? rint(x[i] * 127 / top) * d : 0;
        }
    }
}

/* out [n_head * vd] of the query at position `pos` of the sequence ids. */
static void ref_attention(const rig *r, const shape *s, const int32_t *ids, int pos, double *out)
{
    int nq = s->n_head * s->kd, nk = s->n_kv * s->kd;
    int n2 = 1;
    while (2 * n2 <= s->n_head) {
        n2 *= 2;
    }
    for (int h = 0; h < s->n_head; h++) {
        int g = h / (s->n_head / s->n_kv);
        double q[512], k[512], v[512], w[MAX_TOK], sum = 0;
        ref_head(r, s, r->table + (size_t)ids[pos] * r->width + h * s->kd, pos, q);
        double temp = s->temp != 0 ? 1 + (double)s->temp * log(floor(pos / 16.0) + 1) : 1;
        double slope = 0;
        if (s->alibi > 0) {
            slope = h < n2 ? pow(2, -(double)s->alibi / n2 * (h + 1))
                           : pow(2, -(double)s->alibi / (2.0 * n2) * (2 * (h - n2) + 1));
        }
        memset(out + h * s->vd, 0, sizeof(double) * (size_t)s->vd);
        for (int j = 0; j <= pos; j++) {
            if (s->window && pos - j >= s->window) {
                continue;
            }
            ref_head(r, s, r->table + (size_t)ids[j] * r->width + nq + g * s->kd, j, k);
            if (s->k_q8) {
                ref_q8(k, s->kd);
            }
            double dot = 0;
            for (int d = 0; d < s->kd; d++) {
                dot += q[d] * temp * k[d];
            }
            dot *= (double)0.3f;
            dot = s->softcap > 0 ? (double)s->softcap * tanh(dot / (double)s->softcap) : dot;
            w[j] = exp(dot - slope * (pos - j));
            sum += w[j];
        }
        for (int j = 0; j <= pos; j++) {
            if (s->window && pos - j >= s->window) {
                continue;
            }
            const float *raw = r->table + (size_t)ids[j] * r->width + nq + nk + g * s->vd;
            for (int d = 0; d < s->vd; d++) {
                v[d] = (double)raw[d];
            }
            if (s->v_q8) {
                ref_q8(v, s->vd);
            }
            for (int d = 0; d < s->vd; d++) {
                out[h * s->vd + d] += w[j] / sum * v[d];
            }
        }
    }
}

static void run_shape(const shape *s, const int *chunks, double tolerance)
{
    rig r;
    rig_init(&r, s);
    int32_t ids[MAX_TOK];
    int total = 0;
    for (int i = 0; i < MAX_TOK; i++) {
        ids[i] = (i * 37 + i / 7) % VOCAB;
    }
    double err2 = 0, ref2 = 0;
    for (int c = 0; chunks[c]; c++) {
        qn_run run = {.tokens = ids + total, .n = chunks[c], .pos = total, .stop_after = 2};
        run.phase = chunks[c] == 1 ? QN_PHASE_DECODE : QN_PHASE_PREFILL;
        qn_err err;
        assert_int_equal(r.exec->run(r.exec, &run, &err), 0);
        int n = s->n_head * s->vd;
        float *got = malloc(sizeof(float) * (size_t)(n * chunks[c]));
        double *want = malloc(sizeof(double) * (size_t)n);
        assert_int_equal(r.exec->read(r.exec, r.steps[2].out[0], 0, chunks[c], got, &err), 0);
        for (int t = 0; t < chunks[c]; t++) {
            ref_attention(&r, s, ids, total + t, want);
            for (int i = 0; i < n; i++) {
                double d = (double)got[t * n + i] - want[i];
                err2 += d * d;
                ref2 += want[i] * want[i];
            }
        }
        free(got);
        free(want);
        total += chunks[c];
    }
    if (!(err2 / ref2 < tolerance)) {
        fail_msg("NMSE %g over tolerance %g (heads %d/%d, dims %d/%d, window %d, exact %d)", err2 / ref2,
                 tolerance, s->n_head, s->n_kv, s->kd, s->vd, s->window, s->exact);
    }
    rig_free(&r);
}

static const shape shapes[] = {
    {.n_head = 4, .n_kv = 2, .kd = 32, .vd = 32, .style = QN_ROPE_NEOX, .n_rot = 32},
    {.n_head = 9, .n_kv = 3, .kd = 64, .vd = 64, .style = QN_ROPE_INTERLEAVED, .n_rot = 64},
    {.n_head = 4, .n_kv = 1, .kd = 48, .vd = 40, .window = 8, .style = QN_ROPE_NEOX, .n_rot = 20},
    {.n_head = 3, .n_kv = 3, .kd = 80, .vd = 80, .style = QN_ROPE_NONE, .alibi = 8},
    {.n_head = 6,
     .n_kv = 1,
     .kd = 96,
     .vd = 16,
     .softcap = 2,
     .window = 70,
     .style = QN_ROPE_INTERLEAVED,
     .n_rot = 96},
    {.n_head = 16, .n_kv = 1, .kd = 256, .vd = 256, .norm = QN_NORM_RMS, .style = QN_ROPE_NEOX, .n_rot = 256},
    {.n_head = 2,
     .n_kv = 2,
     .kd = 32,
     .vd = 33,
     .norm = QN_NORM_RMS,
     .order = QN_QK_AFTER_ROPE,
     .style = QN_ROPE_NEOX,
     .n_rot = 16,
     .temp = 0.3f},
};

static void test_attention(void **state)
{
    (void)state;
    const int one_batch[] = {100, 0}, chunks[] = {17, 1, 33, 1, 1, 47, 0},
              many[] = {32, 32, 5, 32, 1, 32, 1, 0};
    const int *plans[] = {one_batch, chunks, many};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int p = 0; p < 3; p++) {
            shape s = shapes[i];
            s.n_ctx = MAX_TOK;
            s.ubatch = p == 0 ? 100 : p == 1 ? 47 : 32; /* small rings wrap within the sequence */
            s.exact = 1;
            run_shape(&s, plans[p], 1e-11);
            s.exact = 0;
            run_shape(&s, plans[p], 2e-6); /* f16 cache */
        }
    }
}

/* Keys and values of their own types; a code on the edge may fall to either side. */
static void test_attention_over_8_bit_caches(void **state)
{
    (void)state;
    const int chunks[] = {17, 1, 33, 1, 1, 47, 0};
    for (int i = 0; i < 4; i++) {
        for (int types = 1; types < 4; types++) {
            shape s = shapes[(const int[]){0, 1, 5, 1}[i]];
            s.n_ctx = MAX_TOK;
            s.ubatch = 47;
            s.window = i == 3 ? 20 : 0; /* the ring wraps */
            s.k_q8 = types & 1;
            s.v_q8 = types >> 1;
            s.exact = 1;
            run_shape(&s, chunks, 1e-6);
            s.exact = 0;
            run_shape(&s, chunks, 3e-6);
        }
    }
}

static void test_exact_is_independent_of_chunks(void **state)
{
    (void)state;
    shape s = shapes[1];
    s.exact = 1;
    s.n_ctx = MAX_TOK;
    s.ubatch = 64;
    float a[576], b[576];
    for (int pass = 0; pass < 2; pass++) {
        rig r;
        rig_init(&r, &s);
        int32_t ids[40];
        for (int i = 0; i < 40; i++) {
            ids[i] = i;
        }
        qn_err err;
        for (int done = 0; done < 40;) {
            int n = pass ? 1 : 40;
            qn_run run = {.tokens = ids + done, .n = n, .pos = done, .stop_after = 2};
            assert_int_equal(r.exec->run(r.exec, &run, &err), 0);
            done += n;
        }
        assert_int_equal(r.exec->read(r.exec, r.steps[2].out[0], pass ? 0 : 39, 1, pass ? b : a, &err), 0);
        rig_free(&r);
    }
    assert_memory_equal(a, b, sizeof a);
}

static void test_cache_rows_and_bytes(void **state)
{
    (void)state;
    shape s = shapes[1];
    s.n_ctx = 40;
    s.ubatch = 16;
    size_t nk = (size_t)(s.n_kv * s.kd);
    float *a = calloc(2 * nk, sizeof *a), *b = calloc(2 * nk, sizeof *b);
    for (int exact = 0; exact < 2; exact++) {
        rig r;
        qn_err err;
        qn_memory f16, q8;
        s.exact = exact;
        s.k_q8 = s.v_q8 = 0;
        rig_init(&r, &s);
        qn_cpu_memory(&r.plans, &r.exec->opts, &f16);
        rig_free(&r);
        s.k_q8 = s.v_q8 = 1;
        rig_init(&r, &s);
        qn_cpu_memory(&r.plans, &r.exec->opts, &q8);
        assert_true(exact ? q8.kv == f16.kv : q8.kv == f16.kv * 34 / 64);
        for (size_t i = 0; i < 2 * nk; i++) {
            a[i] = uniform();
        }
        qn_kv_round(QN_CACHE_Q8_0, a, 2 * nk); /* what is stored comes back */
        assert_int_equal(r.exec->kv_rows(r.exec, 0, 3, 1, a, a + nk, true, &err), 0);
        assert_int_equal(r.exec->kv_rows(r.exec, 0, 3, 1, b, b + nk, false, &err), 0);
        assert_memory_equal(a, b, 2 * nk * sizeof *a);
        rig_free(&r);
    }
    free(a);
    free(b);
}

static void test_cache_types_that_do_not_fit(void **state)
{
    (void)state;
    qn_err err;
    qn_kv_cache kv = {3, 2, 80, 64, 0};
    qn_plans p = {.n_kv = 1, .kv = &kv};
    qn_exec_opts o = {.v_type = QN_CACHE_Q8_0};
    assert_int_equal(qn_kv_check_types(&p, &o, &err), 0);
    o.k_type = QN_CACHE_Q8_0;
    assert_int_equal(qn_kv_check_types(&p, &o, &err), -1);
    assert_string_equal(
        err.text, "cache type q8_0 of keys: layer 3 has heads of 80 values, which is no multiple of 32");
}

static void test_run_refuses(void **state)
{
    (void)state;
    shape s = shapes[0];
    s.n_ctx = 20;
    s.ubatch = 16;
    rig r;
    rig_init(&r, &s);
    int32_t ids[32] = {0};
    qn_err err;
    qn_run run = {.tokens = ids, .n = 17, .stop_after = 2};
    assert_int_equal(r.exec->run(r.exec, &run, &err), -1);
    run.n = 16;
    run.pos = 1;
    assert_int_equal(r.exec->run(r.exec, &run, &err), -1);
    run.pos = 0;
    ids[3] = VOCAB;
    assert_int_equal(r.exec->run(r.exec, &run, &err), -1);
    assert_non_null(strstr(err.text, "position 3"));
    ids[3] = 0;
    assert_int_equal(r.exec->run(r.exec, &run, &err), 0);
    run.pos = 16;
    assert_int_equal(r.exec->run(r.exec, &run, &err), -1);
    assert_non_null(strstr(err.text, "20"));
    rig_free(&r);
}

static void test_truncate_ring(void **state)
{
    (void)state;
    shape s = shapes[2]; /* window 8 */
    s.n_ctx = MAX_TOK;
    s.ubatch = 16; /* ring of 24 rows */
    rig r;
    rig_init(&r, &s);
    int32_t ids[64] = {0};
    qn_err err;
    for (int i = 0; i < 4; i++) {
        qn_run run = {.tokens = ids, .n = 16, .pos = 16 * i, .stop_after = 2};
        assert_int_equal(r.exec->run(r.exec, &run, &err), 0);
    }
    assert_int_equal(r.exec->truncate(r.exec, 48, &err), 0);  /* needs 41..47; the ring holds 40..63 */
    assert_int_equal(r.exec->truncate(r.exec, 30, &err), -1); /* needs 23.. */
    assert_int_equal(r.exec->length, 48);
    assert_int_equal(r.exec->truncate(r.exec, 0, &err), 0);
    rig_free(&r);
}

static void test_op_table_is_complete(void **state)
{
    (void)state;
    for (int i = 0; i < QN_OP_COUNT; i++) {
        assert_int_equal(qn_ops[i].id, i);
        assert_non_null(qn_cpu_ops[i]);
        assert_true(qn_ops[i].n_field > 0 && qn_ops[i].doc && qn_ops[i].weight_roles);
        assert_ptr_equal(qn_op_find(qn_ops[i].name), &qn_ops[i]);
    }
    assert_null(qn_op_find("no such op"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_attention_over_8_bit_caches),
        cmocka_unit_test(test_exact_is_independent_of_chunks),
        cmocka_unit_test(test_cache_rows_and_bytes),
        cmocka_unit_test(test_cache_types_that_do_not_fit),
        cmocka_unit_test(test_run_refuses),
        cmocka_unit_test(test_truncate_ring),
        cmocka_unit_test(test_op_table_is_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
