// Several sequences in a session: each is what a session of its own would hold. The exact arithmetic gives
// the same bits however rows are grouped, so results are compared with lone sessions' bit for bit.
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

enum { SEQS = 4, N_CTX = 64 };

static quern_model *open_model(const char *name)
{
    char path[512];
    quern_error err;
    quern_model *m;
    const quern_model_params mp = {.n_ctx = N_CTX};
    snprintf(path, sizeof path, QN_BUILD_DIR "/goldens/archs/%s.gguf", name);
    if (quern_model_load(&m, path, &mp, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return m;
}

static quern_session *open_session(const quern_model *m, int n_seq, bool exact)
{
    quern_error err;
    quern_session *s;
    const quern_session_params p = {
        .backend = QUERN_BACKEND_CPU, .n_threads = 2, .n_ubatch = 8, .exact = exact, .n_sequences = n_seq};
    if (quern_session_new(&s, m, &p, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return s;
}

static int prompt_of(int seq, int32_t *ids, int n_vocab)
{
    int n = 5 + 9 * seq;
    for (int i = 0; i < n; i++) {
        ids[i] = (i * (seq + 3) + 7 * seq + 1) % n_vocab;
    }
    return n;
}

static void append(quern_session *s, const int32_t *ids, int n)
{
    quern_error err;
    if (quern_session_append(s, ids, (size_t)n, false, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static void choose(quern_session *s, int seq)
{
    quern_error err;
    if (quern_session_select(s, seq, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static double nmse(const float *a, const float *b, int n)
{
    double d = 0, sum = 0;
    for (int i = 0; i < n; i++) {
        d += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        sum += (double)b[i] * (double)b[i];
    }
    return d / sum;
}

// Prompts of different lengths, then tokens for changing groups of sequences.
static void compare_appends(const char *name, bool exact)
{
    quern_model *m = open_model(name);
    int n_vocab = quern_model_n_vocab(m);
    quern_session *many = open_session(m, SEQS, exact), *lone[SEQS];
    int32_t ids[N_CTX];
    quern_error err;
    for (int i = 0; i < SEQS; i++) {
        int n = prompt_of(i, ids, n_vocab);
        lone[i] = open_session(m, 1, exact);
        append(lone[i], ids, n);
        choose(many, i);
        append(many, ids, n);
    }
    for (int round = 0; round < 24; round++) {
        int seqs[SEQS], n = 0;
        int32_t tokens[SEQS];
        for (int i = SEQS - 1; i >= 0; i--) {
            if ((round + i) % 3 != 0 || round % 5 == 0) {
                seqs[n] = i;
                tokens[n++] = (round * 11 + 5 * i) % n_vocab;
                append(lone[i], &tokens[n - 1], 1);
            }
        }
        if (quern_session_append_each(many, seqs, tokens, n, &err) != 0) {
            fail_msg("%s", err.text);
        }
        assert_int_equal(many->exec->seq, SEQS - 1); // the selection stays
        for (int i = 0; i < SEQS; i++) {
            choose(many, i);
            assert_int_equal(quern_session_length(many), quern_session_length(lone[i]));
            assert_memory_equal(many->tokens, lone[i]->tokens,
                                sizeof *ids * (size_t)quern_session_length(many));
            const float *a = quern_session_logits(many, -1), *b = quern_session_logits(lone[i], -1);
            if (exact) {
                assert_memory_equal(a, b, sizeof *a * (size_t)n_vocab);
            } else {
                assert_true(nmse(a, b, n_vocab) < 1e-3);
            }
        }
    }
    // Going back in one leaves the others alone.
    choose(many, 1);
    assert_int_equal(quern_session_truncate(many, 3, &err), 0);
    assert_int_equal(quern_session_truncate(lone[1], 3, &err), 0);
    for (int i = 0; i < SEQS; i++) {
        int32_t token = 2;
        choose(many, i);
        append(many, &token, 1);
        append(lone[i], &token, 1);
        if (exact) {
            assert_memory_equal(quern_session_logits(many, -1), quern_session_logits(lone[i], -1),
                                sizeof(float) * (size_t)n_vocab);
        }
        quern_session_free(lone[i]);
    }
    choose(many, 2); // freed while another than the first is selected
    quern_session_free(many);
    quern_model_free(m);
}

static void appends_equal_lone_sessions(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen3", "gemma3", "gpt2", "gemma4-e2b", "bloom"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        compare_appends(names[i], true);
    }
    compare_appends("qwen3", false);
    compare_appends("gemma3", false);
}

static bool stop_at(void *user, const char *text, size_t len, int32_t token)
{
    (void)text;
    (void)len;
    (void)token;
    int *left = user;
    return --*left != 0;
}

static void answers_equal_lone_sessions(void **state)
{
    (void)state;
    quern_model *m = open_model("gemma3");
    int n_vocab = quern_model_n_vocab(m), left[SEQS], lone_left[SEQS];
    quern_session *many = open_session(m, SEQS, true);
    quern_sampler *samplers[SEQS];
    quern_generate_params params[SEQS];
    quern_generate_result results[SEQS], want;
    quern_error err;
    int32_t ids[N_CTX];
    const int seqs[SEQS] = {2, 0, 3, 1};
    for (int i = 0; i < SEQS; i++) {
        quern_sampler_params sp = quern_sampler_defaults();
        sp.seed = (uint64_t)i;
        sp.temperature = i == 1 ? 0 : 1.5f;
        sp.repeat_penalty = i == 2 ? 1.3f : 1;
        assert_int_equal(quern_sampler_new(&samplers[i], &sp, &err), 0);
        choose(many, seqs[i]);
        append(many, ids, prompt_of(seqs[i], ids, n_vocab));
        left[i] = lone_left[i] = i == 3 ? 6 : 1000; // one is stopped, one ends early, one fills its context
        params[i] = (quern_generate_params){
            .n_predict = i == 0 ? 9 : -1, .ignore_end = true, .on_text = stop_at, .user = &left[i]};
    }
    if (quern_generate_each(many, SEQS, seqs, samplers, params, results, &err) != 0) {
        fail_msg("%s", err.text);
    }
    for (int i = 0; i < SEQS; i++) {
        quern_session *lone = open_session(m, 1, true);
        append(lone, ids, prompt_of(seqs[i], ids, n_vocab));
        params[i].user = &lone_left[i];
        assert_int_equal(quern_generate(lone, samplers[i], &params[i], &want, &err), 0);
        assert_int_equal(results[i].n_generated, want.n_generated);
        assert_int_equal(results[i].stop, want.stop);
        assert_memory_equal(results[i].tokens, want.tokens, sizeof *ids * want.n_generated);
        assert_string_equal(results[i].text, want.text);
        choose(many, seqs[i]);
        assert_int_equal(quern_session_length(many), quern_session_length(lone));
        assert_memory_equal(many->tokens, lone->tokens, sizeof *ids * (size_t)quern_session_length(lone));
        quern_generate_result_free(&want);
        quern_generate_result_free(&results[i]);
        quern_sampler_free(samplers[i]);
        quern_session_free(lone);
    }
    assert_int_equal(many->exec->seq, 1);
    quern_session_free(many);
    quern_model_free(m);
}

static void misuse_is_refused(void **state)
{
    (void)state;
    quern_model *m = open_model("qwen3");
    quern_session *s, *many = open_session(m, 3, true);
    quern_error err;
    const int32_t tokens[9] = {1, 2, 3};
    quern_session_params p = {.backend = QUERN_BACKEND_CPU, .n_sequences = 9};
    assert_int_equal(quern_session_new(&s, m, &p, &err), -1);
    assert_non_null(strstr(err.text, "9 sequences"));
    p.n_sequences = -1;
    assert_int_equal(quern_session_new(&s, m, &p, &err), -1);
    p.n_sequences = 8;
    p.n_ubatch = 7;
    assert_int_equal(quern_session_new(&s, m, &p, &err), -1);
    assert_int_equal(quern_session_select(many, 3, &err), -1);
    assert_int_equal(quern_session_select(many, -1, &err), -1);
    assert_int_equal(quern_session_append_each(many, (int[]){0, 1, 0}, tokens, 3, &err), -1);
    assert_non_null(strstr(err.text, "sequence 0 is named twice"));
    assert_int_equal(quern_session_append_each(many, (int[]){0, 3}, tokens, 2, &err), -1);
    assert_int_equal(quern_session_append_each(many, (int[]){0}, tokens, 0, &err), -1);
    assert_int_equal(quern_session_append_each(many, (int[]){0, 1, 2, 0}, tokens, 4, &err), -1);
    assert_int_equal(quern_session_append_each(many, (int[]){0, 1}, (int32_t[]){1, 1 << 30}, 2, &err), -1);
    int32_t full[N_CTX] = {0};
    choose(many, 1);
    append(many, full, N_CTX);
    assert_int_equal(quern_session_append_each(many, (int[]){0, 1}, tokens, 2, &err), -1);
    assert_non_null(strstr(err.text, "sequence 1 is full"));
    choose(many, 0);
    assert_int_equal(quern_session_length(many), 0); // nothing has grown
    quern_generate_result r[3];
    quern_sampler *none[3] = {NULL};
    quern_generate_params g[3] = {{.n_predict = 1}};
    assert_int_equal(quern_generate_each(many, 2, (int[]){0, 0}, none, g, r, &err), -1);
    assert_int_equal(quern_generate_each(many, 0, (int[]){0}, none, g, r, &err), -1);
    assert_int_equal(quern_generate_each(many, 1, (int[]){5}, none, g, r, &err), -1);
    assert_int_equal(quern_generate_each(many, 2, (int[]){1, 0}, none, g, r, &err), -1); // no logits in 0
    assert_null(r[0].text);
    assert_int_equal(many->exec->seq, 0);
    quern_session_free(many);
    quern_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_equal_lone_sessions),
        cmocka_unit_test(answers_equal_lone_sessions),
        cmocka_unit_test(misuse_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
