// The host's part of decoding on a device, with a driver that keeps books (tests/fake/fake_run.c): how often
// the host waits, what is launched, what a session holds after choices that ran ahead. Ids are the fake's, by
// position and sequence.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/exec.h"
#include "engine/engine.h"
#include "engine/quern.h"

typedef struct fake_books { // as in fake_run.c
    int syncs, queries, launches, graph_launches, captures, choices[QN_CHOOSE_COUNT], bad_at, rest[4];
} fake_books;

enum { N_CTX = 400, PROMPT = 11 };

static quern_model *model;
static fake_books *books;

static int open_model(void **state)
{
    (void)state;
    quern_error err;
    const quern_model_params mp = {.n_ctx = N_CTX};
    if (quern_model_load(&model, QN_BUILD_DIR "/goldens/archs/gemma3.gguf", &mp, &err) != 0) {
        print_message("%s\n", err.text);
        return -1;
    }
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    quern_model_free(model);
    return 0;
}

static quern_session *open_session(int n_seq, bool no_graph, bool persistent)
{
    quern_error err;
    quern_session *s;
    const quern_session_params p = {.backend = QUERN_BACKEND_CUDA,
                                    .cache = "none",
                                    .n_ubatch = 32,
                                    .n_sequences = n_seq,
                                    .no_graph = no_graph,
                                    .persistent = persistent};
    if (quern_session_new(&s, model, &p, &err) != 0) {
        fail_msg("%s", err.text);
    }
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(lib);
    books = dlsym(lib, "fake_run_books");
    if (!books) {
        fail_msg("the driver found is not the fake one");
    }
    int32_t ids[PROMPT] = {0};
    for (int i = 0; i < n_seq; i++) {
        if (quern_session_select(s, i, &err) != 0 ||
            quern_session_append(s, ids, PROMPT - (size_t)i, false, &err)) {
            fail_msg("%s", err.text);
        }
    }
    assert_int_equal(quern_session_select(s, 0, &err), 0);
    return s;
}

static int32_t fake_id(int pos, int seq)
{
    return (int32_t)(((unsigned)pos * 2654435761u + (unsigned)seq * 40503u) >> 7) %
           quern_model_n_vocab(model);
}

static quern_sampler *sampler_of(quern_sampler_params p)
{
    quern_error err;
    quern_sampler *s;
    assert_int_equal(quern_sampler_new(&s, &p, &err), 0);
    return s;
}

static quern_sampler_params greedy(void)
{
    quern_sampler_params p = quern_sampler_defaults();
    p.temperature = 0;
    return p;
}

static bool stop_at(void *user, const char *text, size_t len, int32_t token)
{
    (void)text;
    (void)len;
    (void)token;
    int *left = user;
    return --*left != 0;
}

// Tokens behind the first, which the host takes from the prompt's logits.
static void check_tokens(const quern_generate_result *r, int length, int seq)
{
    for (size_t i = 1; i < r->n_generated; i++) {
        assert_int_equal(r->tokens[i], fake_id(length + (int)i - 1, seq));
    }
}

static void no_wait_a_token(void **state)
{
    (void)state;
    quern_sampler_params settings[3] = {greedy(), quern_sampler_defaults(), quern_sampler_defaults()};
    settings[1].repeat_penalty = 1.1f;
    settings[2].top_k = 0;
    for (int k = 0; k < 9; k++) {
        if (k == 6) {
            continue; // the fake driver does not look into the persistent kernel, which has the greedy choice
                      // in it
        }
        quern_session *s = open_session(1, k / 3 == 1, k / 3 == 2);
        quern_sampler *sampler = sampler_of(settings[k % 3]);
        int syncs[2];
        for (int i = 0; i < 2; i++) {
            quern_error err;
            quern_generate_result r;
            int length = quern_session_length(s), n = i ? 150 : 20, graphs = books->graph_launches;
            fake_books before = *books;
            quern_generate_params p = {.n_predict = n, .ignore_end = true};
            if (quern_generate(s, sampler, &p, &r, &err) != 0) {
                fail_msg("%s", err.text);
            }
            syncs[i] = books->syncs - before.syncs;
            assert_int_equal(r.n_generated, n);
            assert_int_equal(books->choices[k % 3] - before.choices[k % 3], n - 1);
            assert_int_equal(books->graph_launches - graphs, k / 3 == 1 ? 0 : n - 1);
            assert_int_equal(books->captures - before.captures, k / 3 != 1 && i == 0);
            check_tokens(&r, length, 0);
            assert_int_equal(quern_session_length(s), length + n - 1);
            int32_t last = r.tokens[n - 1];
            quern_generate_result_free(&r);
            assert_int_equal(quern_session_append(s, &last, 1, false, &err), 0);
        }
        assert_int_equal(syncs[0], syncs[1]); // however many tokens
        assert_true(syncs[0] <= 1);
        quern_sampler_free(sampler);
        quern_session_free(s);
    }
}

static void what_ran_ahead_is_forgotten(void **state)
{
    (void)state;
    quern_session *s = open_session(1, false, false);
    quern_sampler *sampler = sampler_of(greedy());
    quern_error err;
    quern_generate_result r;
    int left = 13;
    fake_books before = *books;
    quern_generate_params p = {.n_predict = -1, .ignore_end = true, .on_text = stop_at, .user = &left};
    assert_int_equal(quern_generate(s, sampler, &p, &r, &err), 0);
    assert_int_equal(r.n_generated, 13);
    assert_int_equal(r.stop, QUERN_STOP_ABORT);
    check_tokens(&r, PROMPT, 0);
    int made = books->choices[QN_CHOOSE_BEST] - before.choices[QN_CHOOSE_BEST];
    assert_in_range(made, 12, 12 + 8);
    assert_int_equal(quern_session_length(s), PROMPT + 12);
    assert_int_equal(s->exec->high, PROMPT + made); // rows of rings beyond are written
    for (int i = 1; i < 12; i++) {
        assert_int_equal(s->tokens[PROMPT + i], r.tokens[i]);
    }
    quern_generate_result_free(&r);
    // A session that goes on does so from where the answer ended.
    assert_int_equal(quern_session_append(s, (int32_t[]){5}, 1, false, &err), 0);
    const qn_cuda_exec *x = (const qn_cuda_exec *)s->exec;
    assert_int_equal(x->host_state->pos, PROMPT + 12);
    assert_int_equal(x->host_state->token, 5);
    quern_sampler_free(sampler);
    quern_session_free(s);
}

static void sequences_end_apart(void **state)
{
    (void)state;
    enum { N = 4 };
    quern_session *s = open_session(N, false, false);
    quern_error err;
    quern_sampler *samplers[N];
    quern_generate_params params[N];
    quern_generate_result r[N];
    int left[N] = {1000, 40, 1000, 7}, n_predict[N] = {60, -1, 25, -1};
    const int seqs[N] = {3, 0, 2, 1};
    for (int i = 0; i < N; i++) {
        quern_sampler_params p = i == 1 ? greedy() : quern_sampler_defaults();
        p.top_k = i == 3 ? 0 : 40;
        samplers[i] = sampler_of(p);
        params[i] = (quern_generate_params){
            .n_predict = n_predict[i], .ignore_end = true, .on_text = stop_at, .user = &left[i]};
    }
    fake_books before = *books;
    if (quern_generate_each(s, N, seqs, samplers, params, r, &err) != 0) {
        fail_msg("%s", err.text);
    }
    const size_t want[N] = {60, 40, 25, 7};
    for (int i = 0; i < N; i++) {
        assert_int_equal(r[i].n_generated, want[i]);
        check_tokens(&r[i], PROMPT - seqs[i], seqs[i]);
        assert_int_equal(quern_session_select(s, seqs[i], &err), 0);
        assert_int_equal(quern_session_length(s), PROMPT - seqs[i] + (int)want[i] - 1);
        assert_int_equal(s->tokens[quern_session_length(s) - 1], r[i].tokens[want[i] - 2]);
        quern_generate_result_free(&r[i]);
        quern_sampler_free(samplers[i]);
    }
    // Four loops: by all kernels' full sampler, then three, two and one rows by the fast one.
    assert_int_equal(books->captures - before.captures, 4);
    assert_int_equal(books->syncs - before.syncs, 4);
    assert_true(books->choices[QN_CHOOSE_FULL] - before.choices[QN_CHOOSE_FULL] <= (6 + 8) * 4);
    assert_true(books->choices[QN_CHOOSE_TOP_K] > before.choices[QN_CHOOSE_TOP_K]);
    // The same number of tokens by the host's choices: one graph for two sequences.
    before = *books;
    const int two[2] = {1, 3};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(quern_session_append_each(s, two, (int32_t[]){1, 2}, 2, &err), 0);
    }
    assert_int_equal(books->graph_launches - before.graph_launches, 5);
    quern_session_free(s);
}

static void bad_logits_are_reported(void **state)
{
    (void)state;
    quern_session *s = open_session(1, false, false);
    quern_sampler *sampler = sampler_of(quern_sampler_defaults());
    quern_error err;
    quern_generate_result r;
    books->bad_at = PROMPT + 20;
    quern_generate_params p = {.n_predict = 100, .ignore_end = true};
    assert_int_equal(quern_generate(s, sampler, &p, &r, &err), -1);
    books->bad_at = 0;
    char want[80];
    snprintf(want, sizeof want, "NaN at position %d", PROMPT + 20);
    assert_non_null(strstr(err.text, want));
    assert_int_equal(quern_session_length(s), PROMPT + 20); // what was good stays
    quern_sampler_free(sampler);
    quern_session_free(s);
}

// What the device is given of penalties and bans.
static void marks_are_sent(void **state)
{
    (void)state;
    quern_session *s = open_session(1, false, false);
    quern_sampler_params sp = quern_sampler_defaults();
    quern_error err;
    quern_generate_result r;
    sp.repeat_penalty = 1.2f;
    sp.repeat_last_n = 4;
    quern_sampler *sampler = sampler_of(sp);
    assert_int_equal(quern_session_append(s, (int32_t[]){7, 9, 7}, 3, false, &err), 0);
    const int32_t extra[2] = {11, 9};
    quern_generate_params p = {.n_predict = 2, .ignore_end = true, .extra_end = extra, .n_extra_end = 2};
    assert_int_equal(quern_generate(s, sampler, &p, &r, &err), 0);
    const qn_cuda_exec *x = (const qn_cuda_exec *)s->exec;
    const uint32_t *marks = (const uint32_t *)(uintptr_t)x->mem.marks;
    const int32_t *history = (const int32_t *)(uintptr_t)x->mem.history;
    const qn_cuda_sampling *set = (const qn_cuda_sampling *)(uintptr_t)x->mem.sampling;
    uint32_t sum = 0;
    for (int i = 0; i < quern_model_n_vocab(model); i++) {
        sum += marks[i] & ~QN_MARK_BANNED;
    }
    assert_int_equal(sum, 4); // the window, with the first token
    assert_int_equal(marks[7] & ~QN_MARK_BANNED, 2u + (r.tokens[0] == 7));
    assert_int_equal(marks[9], 1u | QN_MARK_BANNED);
    assert_int_equal(marks[11] & QN_MARK_BANNED, QN_MARK_BANNED);
    assert_int_equal(history[PROMPT + 2], 7);
    assert_int_equal(history[PROMPT + 3], r.tokens[0]);
    assert_int_equal(set->top_k, 40);
    assert_int_equal(set->last_n, 4);
    assert_int_equal(set->flags, QN_SAMPLE_MARKED);
    assert_true(set->inv_temp == 1.0 / (double)0.8f && set->least == (double)0.05f * 0x1p44);
    quern_generate_result_free(&r);
    quern_sampler_free(sampler);
    quern_session_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_wait_a_token),     cmocka_unit_test(what_ran_ahead_is_forgotten),
        cmocka_unit_test(sequences_end_apart), cmocka_unit_test(bad_logits_are_reported),
        cmocka_unit_test(marks_are_sent),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
