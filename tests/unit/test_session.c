// Sessions that go on from what they hold: update, and stopping in the middle of a prompt. The exact
// arithmetic gives the same bits however a prompt is cut, so every result is compared with a fresh session's.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/quern.h"

enum { N = 40, UBATCH = 4 };

typedef struct fixture {
    quern_model *m;
    quern_session *s;
    int n_vocab;
    int32_t ids[N];
} fixture;

static fixture open_file(const char *path)
{
    fixture f = {0};
    quern_error err;
    const quern_session_params p = {.backend = QUERN_BACKEND_CPU, .n_ubatch = UBATCH, .exact = true};
    if (quern_model_load(&f.m, path, NULL, &err) != 0 || quern_session_new(&f.s, f.m, &p, &err) != 0) {
        fail_msg("%s", err.text);
    }
    f.n_vocab = quern_model_n_vocab(f.m);
    for (int i = 0; i < N; i++) {
        f.ids[i] = (7 * i + 3) % f.n_vocab;
    }
    return f;
}

/* A sliding-window model whose window is shorter than N. */
static fixture open_window(void)
{
    return open_file(QN_BUILD_DIR "/goldens/archs/gemma3.gguf");
}

static void close_all(fixture *f)
{
    quern_session_free(f->s);
    quern_model_free(f->m);
}

static size_t update(fixture *f, const int32_t *ids, size_t n)
{
    quern_error err;
    size_t n_processed;
    if (quern_session_update(f->s, ids, n, &n_processed, &err) != 0) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(quern_session_length(f->s), n);
    assert_memory_equal(quern_session_tokens(f->s), ids, n * sizeof *ids);
    return n_processed;
}

/* The session's last logits are those of a session that never held anything else. */
static void check_fresh(const fixture *f)
{
    quern_error err;
    quern_session *s;
    const quern_session_params p = {.backend = QUERN_BACKEND_CPU, .exact = true};
    size_t bytes = (size_t)f->n_vocab * sizeof(float);
    assert_int_equal(quern_session_new(&s, f->m, &p, &err), 0);
    assert_int_equal(
        quern_session_append(s, quern_session_tokens(f->s), (size_t)quern_session_length(f->s), false, &err),
        0);
    assert_non_null(quern_session_logits(f->s, -1));
    assert_memory_equal(quern_session_logits(f->s, -1), quern_session_logits(s, -1), bytes);
    quern_session_free(s);
}

static void test_update(void **state)
{
    (void)state;
    fixture f = open_window();
    int32_t other[N];
    assert_int_equal(update(&f, f.ids, 10), 10);
    assert_int_equal(update(&f, f.ids, 13), 3); /* longer */
    check_fresh(&f);
    assert_int_equal(update(&f, f.ids, 13), 0); /* the same: its logits are there already */
    check_fresh(&f);
    assert_int_equal(update(&f, f.ids, 12), 1); /* shorter: one token for the logits */
    check_fresh(&f);
    memcpy(other, f.ids, sizeof other);
    other[9] = (other[9] + 1) % f.n_vocab;
    assert_int_equal(update(&f, other, 12), 3); /* another from position 9 on */
    check_fresh(&f);
    other[0] = (other[0] + 1) % f.n_vocab;
    assert_int_equal(update(&f, other, 3), 3);
    check_fresh(&f);
    close_all(&f);
}

/* Where the ring of a windowed layer has moved on, everything is processed again, and counted. */
static void test_update_over_the_ring(void **state)
{
    (void)state;
    fixture f = open_window();
    assert_int_equal(update(&f, f.ids, N), N);
    f.ids[10] = (f.ids[10] + 1) % f.n_vocab;
    assert_int_equal(update(&f, f.ids, 20), 20);
    check_fresh(&f);
    close_all(&f);
}

static void test_update_refused(void **state)
{
    (void)state;
    fixture f = open_file(QN_BUILD_DIR "/table.gguf");
    quern_error err;
    size_t n_processed = 99, n_ctx = (size_t)quern_session_n_ctx(f.s);
    int32_t *many = calloc(n_ctx + 1, sizeof *many);
    update(&f, f.ids, 10);
    assert_int_equal(quern_session_update(f.s, many, n_ctx + 1, &n_processed, &err), -1);
    assert_non_null(strstr(err.text, "65 tokens do not fit: the context holds 64"));
    assert_int_equal(n_processed, 0);
    assert_int_equal(quern_session_update(f.s, many, 0, NULL, &err), -1);
    assert_int_equal(update(&f, f.ids, 10), 0); /* nothing was lost */
    f.ids[8] = f.n_vocab;
    assert_int_equal(quern_session_update(f.s, f.ids, 10, &n_processed, &err), -1);
    assert_non_null(strstr(err.text, "outside the vocabulary"));
    assert_int_equal(quern_session_length(f.s), 8);
    assert_int_equal(update(&f, many, n_ctx), n_ctx);
    free(many);
    close_all(&f);
}

typedef struct watch {
    int calls, stop_at; /* 0: never */
    int done, total;
} watch;

static bool on_progress(void *user, int done, int total)
{
    watch *w = user;
    assert_true(done >= w->done && done < total && done % UBATCH == 0);
    w->done = done;
    w->total = total;
    return ++w->calls != w->stop_at;
}

/* Stopped at every possible place of a prompt that goes around the ring, then taken up again. */
static void test_stop(void **state)
{
    (void)state;
    fixture f = open_window();
    quern_error err;
    watch w = {0};
    size_t n_processed, first = 30;
    quern_session_on_progress(f.s, on_progress, &w);
    update(&f, f.ids, first);
    assert_int_equal(w.done, 28);
    assert_int_equal(w.total, 30);
    int calls = w.calls;
    assert_true(calls > 8 * 2); /* more than once a chunk */
    for (int at = 1; at <= calls; at += at < 12 ? 1 : 7) {
        quern_session_on_progress(f.s, NULL, NULL);
        assert_int_equal(quern_session_truncate(f.s, 0, &err), 0);
        w = (watch){.stop_at = at};
        quern_session_on_progress(f.s, on_progress, &w);
        assert_int_equal(quern_session_update(f.s, f.ids, first, &n_processed, &err), -1);
        assert_non_null(strstr(err.text, "stopped after"));
        assert_null(quern_session_logits(f.s, -1));
        assert_int_equal(n_processed, w.done);
        assert_int_equal(quern_session_length(f.s), w.done);
        w = (watch){0};
        assert_int_equal(update(&f, f.ids, first), first - n_processed);
        check_fresh(&f);
    }
    w = (watch){.stop_at = 1};
    assert_int_equal(quern_session_append(f.s, f.ids, 1, false, &err), 0); /* one token is never stopped */
    assert_int_equal(w.calls, 0);
    close_all(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_update),
        cmocka_unit_test(test_update_over_the_ring),
        cmocka_unit_test(test_update_refused),
        cmocka_unit_test(test_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
