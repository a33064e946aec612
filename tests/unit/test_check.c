// --check's machinery: the CPU's fast arithmetic against the exact one, and steps that are wrong on purpose.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/check.h"
#include "engine/engine.h"

#define ARCHS  QN_BUILD_DIR "/goldens/archs/"
#define QUANTS QN_TEST_DATA "/goldens/quants/"

typedef struct pair {
    qn_model *model;
    qn_plans *plans;
    qn_exec *fast, *exact;
} pair;

static pair open_pair(const char *path, int n_ctx, int n_ubatch)
{
    pair p = {0};
    qn_err err;
    const qn_model_opts mo = {.n_ctx = n_ctx};
    qn_exec_opts o = {.n_ctx = n_ctx, .n_ubatch = n_ubatch, .n_threads = 2};
    if (qn_model_load(&p.model, path, &mo, &err) || qn_plans_build(&p.plans, p.model, &err) ||
        qn_cpu_exec_new(&p.fast, p.plans, &o, &err)) {
        fail_msg("%s", err.text);
    }
    o.exact = true;
    if (qn_cpu_exec_new(&p.exact, p.plans, &o, &err)) {
        fail_msg("%s", err.text);
    }
    return p;
}

static void close_pair(pair *p)
{
    p->fast->free(p->fast);
    p->exact->free(p->exact);
    qn_plans_free(p->plans);
    qn_model_free(p->model);
}

static void fill(int32_t *ids, int n, int n_vocab)
{
    for (int i = 0; i < n; i++) {
        ids[i] = (int32_t)(((unsigned)i * 2654435761u >> 7) % (unsigned)n_vocab);
    }
}

enum { LONG = 60, CHUNK = 23, DECODE = 3 };

static qn_check *check_all(pair *p, qn_exec *tested)
{
    qn_check *c;
    qn_err err;
    int32_t ids[LONG];
    float *logits = malloc(sizeof *logits * (size_t)p->model->n_vocab);
    fill(ids, LONG, p->model->n_vocab);
    if (qn_check_new(&c, tested, p->exact, &err)) {
        fail_msg("%s", err.text);
    }
    for (int at = 0; at < LONG;) {
        bool decode = at >= LONG - DECODE;
        int left = LONG - DECODE - at, n = decode ? 1 : left < CHUNK ? left : CHUNK;
        if (qn_check_run(c, ids + at, n, decode ? QN_PHASE_DECODE : QN_PHASE_PREFILL, logits, &err)) {
            fail_msg("%s", err.text);
        }
        at += n;
        assert_int_equal(tested->length, at);
        assert_int_equal(p->exact->length, at);
    }
    free(logits);
    return c;
}

static void fast_is_within_tolerance(void **state)
{
    (void)state;
    static const char *const files[] = {
        ARCHS "llama.gguf",       ARCHS "gemma3.gguf",      ARCHS "qwen2.gguf",
        ARCHS "qwen3.gguf",       QUANTS "llama-Q4_0.gguf", QUANTS "llama-mix-Q4_K_M.gguf",
        QUANTS "llama-Q8_0.gguf", QUANTS "llama-F16.gguf",  QUANTS "llama-BF16.gguf",
        QUANTS "llama-Q2_K.gguf", QUANTS "llama-Q5_1.gguf", QUANTS "llama-IQ4_XS.gguf",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        pair p = open_pair(files[i], 64, CHUNK);
        qn_check *c = check_all(&p, p.fast);
        int n, kinds = 0;
        const qn_check_row *r = qn_check_rows(c, &n);
        for (int k = 0; k < n; k++) {
            assert_true(r[k].n > 0 && r[k].worst <= r[k].tolerance && r[k].n_failed == 0);
            if (r[k].arith == QN_ARITH_8BIT) { // the reference has the same rounded activations
                assert_true(r[k].tolerance == 1e-10);
            }
            kinds |= 1 << r[k].op->id;
        }
        if (qn_check_failure(c)) {
            fail_msg("%s: %s", files[i], qn_check_failure(c));
        }
        const int all = 1 << QN_OP_EMBED | 1 << QN_OP_SELECT | 1 << QN_OP_NORM | 1 << QN_OP_LINEAR |
                        1 << QN_OP_GLU | 1 << QN_OP_ROPE_KV | 1 << QN_OP_ATTENTION;
        assert_int_equal(kinds & all, all);
        qn_check_free(c);
        close_pair(&p);
    }
}

// An executor that spoils one step's output: everything else is the executor behind it.
typedef struct spoiler {
    qn_exec base;
    qn_exec *real;
    int step, token; // -1 as token: in decode
    float add;
    bool in_cache;
} spoiler;

static int spoil_run(qn_exec *e, const qn_run *r, qn_err *err)
{
    spoiler *s = (spoiler *)e;
    int rc = s->real->run(s->real, r, err), pos = s->real->length;
    bool decode = r->phase == QN_PHASE_DECODE;
    e->length = pos;
    if (rc || r->stop_after != s->step || r->first_step != s->step || decode != (s->token < 0)) {
        return rc;
    }
    const qn_step *step = &(decode ? &e->plans->decode : &e->plans->prefill)->steps[s->step];
    int row = decode ? 0 : s->token;
    if (s->in_cache) {
        float *kv = calloc(1 << 12, sizeof *kv);
        assert_int_equal(s->real->kv_rows(s->real, step->kv, r->pos + row, 1, kv, kv + 2048, false, err), 0);
        kv[2048] += s->add;
        assert_int_equal(s->real->kv_rows(s->real, step->kv, r->pos + row, 1, kv, kv + 2048, true, err), 0);
        free(kv);
        return 0;
    }
    qn_view v = step->out[0];
    v.col += v.width - 1;
    v.width = 1;
    float x;
    assert_int_equal(s->real->read(s->real, v, row, 1, &x, err), 0);
    x += s->add;
    return s->real->write(s->real, v, row, 1, &x, err);
}

static int spoil_read(qn_exec *e, qn_view v, int row, int n, float *out, qn_err *err)
{
    qn_exec *real = ((spoiler *)e)->real;
    return real->read(real, v, row, n, out, err);
}

static int spoil_kv_rows(qn_exec *e, int kv, int pos, int n, float *k, float *v, bool store, qn_err *err)
{
    qn_exec *real = ((spoiler *)e)->real;
    return real->kv_rows(real, kv, pos, n, k, v, store, err);
}

static qn_arith spoil_arith(const qn_exec *e, const qn_run *r, const qn_step *s)
{
    qn_exec *real = ((const spoiler *)e)->real;
    return real->arith(real, r, s);
}

static bool spoil_round_input(const qn_exec *e, const qn_step *s, float *x, int rows, int n)
{
    const qn_exec *real = ((const spoiler *)e)->real;
    return real->round_input(real, s, x, rows, n);
}

// The first failure must be that step's, and no later step may be blamed for it.
static void expect_found_in(const char *path, const char *name, int token, float add, bool in_cache)
{
    pair p = open_pair(path, 64, CHUNK);
    const qn_plan *plan = token < 0 ? &p.plans->decode : &p.plans->prefill;
    spoiler s = {*p.fast, p.fast, qn_plan_find(plan, name), token, add, in_cache};
    s.base.run = spoil_run;
    s.base.read = spoil_read;
    s.base.kv_rows = spoil_kv_rows;
    s.base.arith = spoil_arith;
    s.base.round_input = spoil_round_input;
    assert_true(s.step >= 0);
    qn_check *c = check_all(&p, &s.base);
    char want[64];
    snprintf(want, sizeof want, "step %s (", name);
    const char *got = qn_check_failure(c);
    if (!got || strncmp(got, want, strlen(want)) != 0) {
        fail_msg("spoiled %s, found %s", name, got ? got : "nothing");
    }
    int n, failed = 0;
    const qn_check_row *r = qn_check_rows(c, &n);
    for (int i = 0; i < n; i++) {
        failed += r[i].n_failed;
    }
    if (isfinite(add)) {                                  // others are not
        assert_int_equal(failed, token < 0 ? DECODE : 3); // the step in each chunk
    }
    qn_check_free(c);
    close_pair(&p);
}

static void expect_found(const char *name, int token, float add, bool in_cache)
{
    expect_found_in(ARCHS "qwen3.gguf", name, token, add, in_cache);
}

// Far below what rounding activations to 8 bits changes.
static void a_slightly_wrong_8_bit_product_is_found(void **state)
{
    (void)state;
    expect_found_in(QUANTS "llama-Q4_0.gguf", "blk.0.attn_out", 2, 1e-3f, false);
    expect_found_in(QUANTS "llama-mix-Q4_K_M.gguf", "blk.0.ffn_glu", -1, 1e-3f, false);
}

static void a_wrong_step_is_found(void **state)
{
    (void)state;
    expect_found("embed", 0, 1.0f, false);
    expect_found("blk.0.attn_norm", 2, 1.0f, false);
    expect_found("blk.1.qkv", 7, 3.0f, false);
    expect_found("blk.1.rope_kv", 5, 1.0f, false);
    expect_found("blk.0.rope_kv", 5, 1.0f, true);
    expect_found("blk.0.attention", 5, 1.0f, false);
    expect_found("blk.1.ffn_glu", 3, NAN, false);
    expect_found("blk.1.ffn_down", 3, INFINITY, false);
    expect_found("output", -1, 2.0f, false);
    expect_found("blk.0.attention", -1, 1.0f, false);
}

static void nmse(void **state)
{
    (void)state;
    const float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 2, 3, 4, 5, 7}, zero[6] = {0};
    const float bad[6] = {1, 2, NAN, 4, 5, 6}, small[4] = {100, 100, 0, 1e-6f}, near[4] = {100, 100, 0, 0};
    assert_true(qn_check_nmse(a, a, 2, 3) == 0);
    assert_true(fabs(qn_check_nmse(a, b, 2, 3) - 1.0 / 90) < 1e-12); // of the second row
    assert_true(fabs(qn_check_nmse(a, b, 1, 6) - 1.0 / 104) < 1e-12);
    assert_true(isinf(qn_check_nmse(bad, a, 2, 3)));
    assert_true(isinf(qn_check_nmse(a, bad, 2, 3)));
    assert_true(isinf(qn_check_nmse(a, zero, 2, 3)));
    assert_true(qn_check_nmse(zero, zero, 2, 3) == 0);
    assert_true(qn_check_nmse(near, small, 2, 2) < 1e-9); // a row that is nearly zero does not count alone
}

static void steps_one_by_one_equal_a_run(void **state)
{
    (void)state;
    pair p = open_pair(ARCHS "gemma3.gguf", 64, CHUNK);
    size_t n_vocab = (size_t)p.model->n_vocab;
    float *a = malloc(sizeof *a * n_vocab), *b = malloc(sizeof *b * n_vocab);
    int32_t ids[CHUNK];
    qn_err err;
    fill(ids, CHUNK, p.model->n_vocab);
    qn_run r = {.tokens = ids, .n = CHUNK, .outputs = QN_OUT_LAST, .logits = a, .stop_after = -1};
    assert_int_equal(p.exact->run(p.exact, &r, &err), 0);
    assert_int_equal(p.exact->truncate(p.exact, 0, &err), 0);
    r.logits = b;
    r.hold = true;
    for (int i = 0; i < p.plans->prefill.n_step; i++) {
        r.first_step = r.stop_after = i;
        assert_int_equal(p.exact->run(p.exact, &r, &err), 0);
        assert_int_equal(p.exact->length, 0);
    }
    r.first_step = p.plans->prefill.n_step;
    r.stop_after = -1;
    r.hold = false;
    assert_int_equal(p.exact->run(p.exact, &r, &err), 0);
    assert_int_equal(p.exact->length, CHUNK);
    assert_memory_equal(a, b, sizeof *a * n_vocab);
    free(a);
    free(b);
    close_pair(&p);
}

static void views_and_rows_are_checked(void **state)
{
    (void)state;
    pair p = open_pair(ARCHS "gemma3.gguf", 64, 8);
    qn_err err;
    float x[4096], y[4096], k[4096], v[4096];
    qn_exec *execs[2] = {p.fast, p.exact};
    for (int e = 0; e < 2; e++) {
        qn_exec *x0 = execs[e];
        int width = p.plans->bufs[0].width;
        qn_view view = {0, 1, width - 1};
        for (int i = 0; i < 2 * (width - 1); i++) {
            x[i] = (float)i;
        }
        assert_int_equal(x0->write(x0, view, 6, 2, x, &err), 0);
        assert_int_equal(x0->read(x0, view, 6, 2, y, &err), 0);
        assert_memory_equal(x, y, sizeof *x * 2 * (size_t)(width - 1));
        assert_int_equal(x0->write(x0, view, 7, 2, x, &err), -1);
        assert_int_equal(x0->read(x0, (qn_view){0, 2, width - 1}, 0, 1, y, &err), -1);
        assert_int_equal(x0->read(x0, (qn_view){p.plans->n_buf, 0, 1}, 0, 1, y, &err), -1);
        assert_int_equal(x0->read(x0, (qn_view){0, -1, 1}, 0, 1, y, &err), -1);
        for (int i = 0; i < 4096; i++) {
            k[i] = (float)(i % 512);
            v[i] = (float)(-i % 512);
        }
        int rows = qn_kv_rows(&p.plans->kv[0], &x0->opts);
        assert_true(rows < 64 && p.plans->kv[0].window > 0);                    // a ring
        assert_int_equal(x0->kv_rows(x0, 0, rows - 1, 2, k, v, true, &err), 0); // over its end
        assert_int_equal(x0->kv_rows(x0, 0, rows - 1, 2, x, y, false, &err), 0);
        assert_memory_equal(k, x, sizeof *k * 2 * (size_t)(p.plans->kv[0].n_head_kv * p.plans->kv[0].k_dim));
        assert_memory_equal(v, y, sizeof *v * 2 * (size_t)(p.plans->kv[0].n_head_kv * p.plans->kv[0].v_dim));
        assert_int_equal(x0->kv_rows(x0, 0, 0, rows + 1, x, y, false, &err), -1);
        assert_int_equal(x0->kv_rows(x0, 0, 63, 2, x, y, false, &err), -1);
        assert_int_equal(x0->kv_rows(x0, p.plans->n_kv, 0, 1, x, y, false, &err), -1);
    }
    close_pair(&p);
}

// Going back twice must not make rows valid that the first stretch has overwritten.
static void a_ring_remembers_how_far_it_went(void **state)
{
    (void)state;
    enum { CTX = 200, UBATCH = 8 };
    pair p = open_pair(ARCHS "gemma3.gguf", CTX, UBATCH);
    int32_t ids[CTX];
    qn_err err;
    fill(ids, CTX, p.model->n_vocab);
    int window = p.plans->kv[0].window, end = 0;
    assert_true(window > 0 && 3 * window < CTX);
    while (end < 2 * window + UBATCH) {
        qn_run r = {.tokens = ids + end, .n = UBATCH, .pos = end, .stop_after = -1};
        assert_int_equal(p.exact->run(p.exact, &r, &err), 0);
        end += UBATCH;
    }
    assert_int_equal(p.exact->truncate(p.exact, end - UBATCH / 2, &err), 0);
    assert_int_equal(p.exact->truncate(p.exact, end - UBATCH - 2, &err), -1);
    assert_int_equal(p.exact->length, end - UBATCH / 2);
    assert_int_equal(p.exact->truncate(p.exact, 0, &err), 0);
    qn_run r = {.tokens = ids, .n = UBATCH, .stop_after = -1};
    assert_int_equal(p.exact->run(p.exact, &r, &err), 0);
    assert_int_equal(p.exact->truncate(p.exact, 2, &err), 0); // from nothing on, all is fresh
    close_pair(&p);
}

static void unlike_executors_are_refused(void **state)
{
    (void)state;
    qn_check *c;
    qn_err err;
    pair p = open_pair(ARCHS "qwen3.gguf", 64, 8), q = open_pair(ARCHS "qwen3.gguf", 64, 9);
    assert_int_equal(qn_check_new(&c, p.fast, q.exact, &err), -1);
    int32_t id = 1;
    qn_run r = {.tokens = &id, .n = 1, .stop_after = -1};
    assert_int_equal(p.fast->run(p.fast, &r, &err), 0);
    assert_int_equal(qn_check_new(&c, p.fast, p.exact, &err), -1);
    close_pair(&p);
    close_pair(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nmse),
        cmocka_unit_test(fast_is_within_tolerance),
        cmocka_unit_test(a_wrong_step_is_found),
        cmocka_unit_test(a_slightly_wrong_8_bit_product_is_found),
        cmocka_unit_test(steps_one_by_one_equal_a_run),
        cmocka_unit_test(views_and_rows_are_checked),
        cmocka_unit_test(a_ring_remembers_how_far_it_went),
        cmocka_unit_test(unlike_executors_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
