// Generation where the executor chooses by itself: equal to the host's loop in every way. The
// executor is the CPU's behind a loop that, like a GPU's, has gone further than the choice it hands out.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/quern.h"

enum { AHEAD = 3 };

typedef struct looper {
    qn_exec base;
    qn_exec *real;
    int n_loops, most_rows;
} looper;

static int loop_run(qn_exec *e, const qn_run *r, qn_err *err)
{
    qn_exec *real = ((looper *)e)->real;
    int rc = qn_exec_select(real, e->seq, err) ? -1 : real->run(real, r, err);
    for (int i = 0; i < QN_MAX_SEQ && i < qn_n_seq(&e->opts); i++) {
        qn_exec_set_length(e, i, qn_exec_length(real, i), 0);
    }
    return rc;
}

static int loop_truncate(qn_exec *e, int length, qn_err *err)
{
    qn_exec *real = ((looper *)e)->real;
    int rc = qn_exec_select(real, e->seq, err) ? -1 : real->truncate(real, length, err);
    e->length = real->length;
    return rc;
}

static void loop_free(qn_exec *e)
{
    qn_exec *real = ((looper *)e)->real;
    real->free(real);
    free(e);
}

// What one row has made: choices beyond those taken are dropped.
typedef struct ahead {
    int base, made;
    int32_t *ids;
    quern_sampler *sampler;
    int32_t *history;
    bool ended;
} ahead;

static int choose(looper *l, const qn_loop_row *row, ahead *a, float *logits, qn_err *err)
{
    qn_exec *real = l->real;
    const qn_run r = {.tokens = a->made ? &a->ids[a->made - 1] : &row->token,
                      .n = 1,
                      .pos = real->length,
                      .phase = QN_PHASE_DECODE,
                      .outputs = QN_OUT_LAST,
                      .logits = logits,
                      .stop_after = -1};
    if (real->run(real, &r, err)) {
        return -1;
    }
    for (size_t i = 0; i < row->n_banned; i++) {
        logits[row->banned[i]] = -INFINITY;
    }
    a->history[a->base + a->made] = r.tokens[0];
    int rc = quern_sample(a->sampler, logits, real->plans->model->n_vocab, a->history,
                          (size_t)(a->base + a->made + 1), &a->ids[a->made], qn_public_err(err));
    a->made++;
    return rc;
}

static int start_row(looper *l, const qn_loop_row *row, ahead *a, qn_err *err)
{
    const qn_choice *c = &row->how;
    const quern_sampler_params p = {.temperature = c->temperature,
                                    .top_k = c->top_k,
                                    .top_p = c->top_p,
                                    .min_p = c->min_p,
                                    .repeat_penalty = c->repeat_penalty,
                                    .repeat_last_n = c->repeat_last_n,
                                    .seed = c->seed};
    int n_ctx = l->base.opts.n_ctx;
    *a = (ahead){.base = qn_exec_length(l->real, row->seq)};
    assert_true(row->n >= 1 && row->n <= n_ctx - a->base);
    a->ids = calloc((size_t)n_ctx, sizeof *a->ids);
    a->history = calloc((size_t)n_ctx + 1, sizeof *a->history);
    memcpy(a->history, row->history, sizeof *a->history * (size_t)a->base);
    return quern_sampler_new(&a->sampler, &p, qn_public_err(err));
}

static int loop_rows(qn_exec *e, qn_loop_row *rows, int n_row, qn_err *err)
{
    looper *l = (looper *)e;
    qn_exec *real = l->real;
    int selected = e->seq, rc = 0;
    float *logits = malloc(sizeof *logits * (size_t)e->plans->model->n_vocab);
    ahead a[QN_MAX_SEQ];
    bool ended = false;
    l->n_loops++;
    l->most_rows = n_row > l->most_rows ? n_row : l->most_rows;
    for (int i = 0; i < n_row && rc == 0; i++) {
        rows[i].n_done = 0;
        rc = start_row(l, &rows[i], &a[i], err);
    }
    while (rc == 0 && !ended) {
        for (int i = 0; i < n_row && rc == 0; i++) {
            rc = qn_exec_select(real, rows[i].seq, err);
            while (rc == 0 && a[i].made < rows[i].n && a[i].made < rows[i].n_done + AHEAD) {
                rc = choose(l, &rows[i], &a[i], logits, err);
            }
        }
        for (int i = 0; i < n_row && rc == 0; i++) {
            int32_t id = a[i].ids[rows[i].n_done++];
            a[i].ended = rows[i].take(rows[i].user, id) || rows[i].n_done == rows[i].n;
            ended = ended || a[i].ended;
        }
    }
    for (int i = 0; i < n_row; i++) {
        rc = rc ? rc : qn_exec_select(real, rows[i].seq, err);
        rc = rc ? rc : real->truncate(real, a[i].base + rows[i].n_done, err);
        qn_exec_set_length(e, rows[i].seq, qn_exec_length(real, rows[i].seq), 0);
        quern_sampler_free(a[i].sampler);
        free(a[i].ids);
        free(a[i].history);
    }
    qn_exec_select(real, selected, err);
    free(logits);
    return rc;
}

typedef struct side {
    quern_model *m;
    quern_session *s;
    quern_sampler *sampler;
    looper *l;
} side;

static side open_side(const char *path, int n_ctx, bool device, const quern_sampler_params *sp)
{
    side d = {0};
    quern_error err;
    const quern_model_params mp = {.n_ctx = n_ctx};
    const quern_session_params p = {.backend = QUERN_BACKEND_CPU, .n_threads = 2, .exact = true};
    if (quern_model_load(&d.m, path, &mp, &err) || quern_session_new(&d.s, d.m, &p, &err) ||
        quern_sampler_new(&d.sampler, sp, &err)) {
        fail_msg("%s", err.text);
    }
    if (device) {
        d.l = calloc(1, sizeof *d.l);
        d.l->base = *d.s->exec;
        d.l->real = d.s->exec;
        d.l->base.run = loop_run;
        d.l->base.truncate = loop_truncate;
        d.l->base.loop = loop_rows;
        d.l->base.free = loop_free;
        d.s->exec = &d.l->base;
    }
    return d;
}

static void close_side(side *d)
{
    quern_sampler_free(d->sampler);
    quern_session_free(d->s);
    quern_model_free(d->m);
}

static bool stop_at(void *user, const char *text, size_t len, int32_t token)
{
    (void)text;
    (void)len;
    (void)token;
    int *left = user;
    return --*left != 0;
}

// The same prompt and parameters on both; then a second turn on what the sessions hold.
static void compare_with(const char *path, int n_ctx, const int32_t *ids, size_t n, quern_generate_params p,
                         int abort_after, const quern_sampler_params *sp, bool uses_loop)
{
    quern_generate_result r[2], again[2];
    int lengths[2];
    side d[2];
    for (int i = 0; i < 2; i++) {
        quern_error err;
        int left = abort_after;
        d[i] = open_side(path, n_ctx, i == 1, sp);
        p.on_text = stop_at;
        p.user = &left;
        if (quern_session_append(d[i].s, ids, n, false, &err) ||
            quern_generate(d[i].s, d[i].sampler, &p, &r[i], &err)) {
            fail_msg("%s", err.text);
        }
        lengths[i] = quern_session_length(d[i].s);
        assert_int_equal(lengths[i], (int)(n + r[i].n_generated) - (r[i].n_generated > 0));
        memset(&again[i], 0, sizeof again[i]);
        if (lengths[i] + 4 < n_ctx && r[i].n_generated > 0) {
            left = 0;
            quern_generate_params q = {.n_predict = 3};
            if (quern_session_append(d[i].s, &r[i].tokens[r[i].n_generated - 1], 1, false, &err) ||
                quern_generate(d[i].s, d[i].sampler, &q, &again[i], &err)) {
                fail_msg("%s", err.text);
            }
        }
    }
    assert_int_equal(r[0].stop, r[1].stop);
    assert_int_equal(r[0].n_generated, r[1].n_generated);
    assert_memory_equal(r[0].tokens, r[1].tokens, sizeof(int32_t) * r[0].n_generated);
    assert_int_equal(r[0].text_len, r[1].text_len);
    assert_string_equal(r[0].text, r[1].text);
    assert_int_equal(lengths[0], lengths[1]);
    assert_memory_equal(d[0].s->tokens, d[1].s->tokens, sizeof(int32_t) * (size_t)lengths[0]);
    assert_int_equal(again[0].n_generated, again[1].n_generated);
    if (again[0].n_generated > 0) {
        assert_memory_equal(again[0].tokens, again[1].tokens, sizeof(int32_t) * again[0].n_generated);
    }
    assert_int_equal(d[1].l->n_loops > 0, uses_loop);
    for (int i = 0; i < 2; i++) {
        quern_generate_result_free(&r[i]);
        quern_generate_result_free(&again[i]);
        close_side(&d[i]);
    }
}

static quern_sampler_params greedy(void)
{
    quern_sampler_params p = quern_sampler_defaults();
    p.temperature = 0;
    return p;
}

static void compare(const char *text, quern_generate_params p, int abort_after)
{
    quern_error err;
    int32_t *ids;
    size_t n;
    const quern_sampler_params sp = greedy();
    side d = open_side(QN_BUILD_DIR "/table.gguf", 64, false, &sp);
    assert_int_equal(quern_tokenize(d.m, text, strlen(text), true, true, &ids, &n, &err), 0);
    compare_with(QN_BUILD_DIR "/table.gguf", 64, ids, n, p, abort_after, &sp, true);
    free(ids);
    close_side(&d);
}

static void ends_are_equal(void **state)
{
    (void)state;
    const char *const stop[] = {"wor"};
    compare("A", (quern_generate_params){.n_predict = -1}, 0); // an end token
    compare("B", (quern_generate_params){.n_predict = -1}, 0); // a character in four tokens
    compare("G", (quern_generate_params){.n_predict = -1}, 0);
    for (int n = 2; n < 8; n++) {
        compare("B", (quern_generate_params){.n_predict = n}, 0);
    }
    compare("A", (quern_generate_params){.n_predict = -1, .stop = stop, .n_stop = 1}, 0);
    compare("B", (quern_generate_params){.n_predict = -1}, 3); // the callback says stop
    compare("A", (quern_generate_params){.n_predict = 50}, 0);
}

static void contexts_fill_equally(void **state)
{
    (void)state;
    int32_t ids[40];
    const quern_sampler_params sp = greedy();
    for (int i = 0; i < 40; i++) {
        ids[i] = 3 + i % 40;
    }
    static const char *const models[] = {"llama", "gemma3", "qwen2", "qwen3"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        char path[512];
        snprintf(path, sizeof path, QN_BUILD_DIR "/goldens/archs/%s.gguf", models[m]);
        for (int n = 37; n <= 40; n++) { // up to a prompt that fills the context
            compare_with(path, 40, ids, (size_t)n, (quern_generate_params){.n_predict = -1}, 0, &sp, n < 39);
        }
        compare_with(path, 60, ids, 20, (quern_generate_params){.n_predict = 25}, 0, &sp, true);
        compare_with(path, 60, ids, 20, (quern_generate_params){.n_predict = 1}, 0, &sp, true);
    }
}

static void every_sampler_has_the_loop(void **state)
{
    (void)state;
    int32_t ids[9] = {3, 4, 5, 6, 7, 8, 9, 10, 11};
    const char *path = QN_BUILD_DIR "/goldens/archs/qwen3.gguf";
    const quern_generate_params p = {.n_predict = 12};
    quern_sampler_params sp = quern_sampler_defaults();
    compare_with(path, 60, ids, 9, p, 0, &sp, true);
    sp.repeat_penalty = 1.3f;
    compare_with(path, 60, ids, 9, p, 0, &sp, true);
    sp = greedy();
    compare_with(path, 60, ids, 9, (quern_generate_params){.n_predict = 0}, 0, &sp, false);
    sp.repeat_penalty = 1.3f;
    compare_with(path, 60, ids, 9, p, 0, &sp, true);
    sp.repeat_last_n = 0;
    compare_with(path, 60, ids, 9, p, 0, &sp, true);
}

static void end_tokens_that_may_not_win(void **state)
{
    (void)state;
    const quern_sampler_params sp = greedy();
    side d = open_side(QN_BUILD_DIR "/table.gguf", 64, true, &sp);
    quern_generate_result r;
    quern_error err;
    int32_t *ids;
    size_t n;
    assert_int_equal(quern_tokenize(d.m, "A", 1, true, true, &ids, &n, &err), 0);
    assert_int_equal(quern_session_append(d.s, ids, n, false, &err), 0);
    const quern_generate_params p = {.n_predict = 20, .ignore_end = true};
    assert_int_equal(quern_generate(d.s, d.sampler, &p, &r, &err), 0);
    assert_int_equal(r.n_generated, 20);
    assert_true(d.l->n_loops > 0);
    for (size_t i = 0; i < r.n_generated; i++) {
        assert_false(quern_is_end_token(d.m, r.tokens[i]));
    }
    quern_generate_result_free(&r);
    free(ids);
    close_side(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_are_equal),
        cmocka_unit_test(contexts_fill_equally),
        cmocka_unit_test(every_sampler_has_the_loop),
        cmocka_unit_test(end_tokens_that_may_not_win),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
