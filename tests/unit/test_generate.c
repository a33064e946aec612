// The library's face against the lookup-table model (tests/tools/make_table_model.py), whose answers are
// known.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/memory.h"
#include "engine/quern.h"
#include "text/utf8.h"

#define TABLE QN_BUILD_DIR "/table.gguf"
#define EMOJI "\xf0\x9f\x98\x80"

typedef struct bench_top {
    quern_model *m;
    quern_session *s;
    quern_sampler *greedy;
} bench_top;

static bench_top open_with(const char *path, const quern_model_params *mp, const quern_session_params *sp)
{
    bench_top b = {0};
    quern_error err;
    quern_sampler_params p = quern_sampler_defaults();
    p.temperature = 0;
    if (quern_model_load(&b.m, path, mp, &err) != 0 || quern_session_new(&b.s, b.m, sp, &err) != 0 ||
        quern_sampler_new(&b.greedy, &p, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return b;
}

static bench_top open_table(void)
{
    return open_with(TABLE, NULL, NULL);
}

static void close_all(bench_top *b)
{
    quern_sampler_free(b->greedy);
    quern_session_free(b->s);
    quern_model_free(b->m);
}

/* Starts the session anew with a prompt. */
static size_t prompt(bench_top *b, const char *text)
{
    quern_error err;
    int32_t *ids;
    size_t n;
    assert_int_equal(quern_session_truncate(b->s, 0, &err), 0);
    assert_int_equal(quern_tokenize(b->m, text, strlen(text), true, true, &ids, &n, &err), 0);
    if (quern_session_append(b->s, ids, n, false, &err) != 0) {
        fail_msg("%s", err.text);
    }
    free(ids);
    return n;
}

/* What the callback saw. */
typedef struct seen {
    char text[4096];
    size_t len, pieces, last_len;
    int32_t tokens[512];
    size_t stop_after; /* returns false at this piece; 0: never */
} seen;

static bool record(void *user, const char *text, size_t len, int32_t token)
{
    seen *s = user;
    uint32_t cp;
    for (size_t i = 0; i < len;) {
        int k = qn_utf8_next((const unsigned char *)text + i, len - i, &cp);
        assert_true(k > 0); /* every piece is valid by itself */
        i += (size_t)k;
    }
    memcpy(s->text + s->len, text, len);
    s->len += len;
    s->last_len = len;
    s->tokens[s->pieces++] = token;
    return s->pieces != s->stop_after;
}

static void generate(bench_top *b, quern_generate_params p, seen *s, quern_generate_result *r)
{
    quern_error err;
    size_t stop_after = s->stop_after;
    memset(s, 0, sizeof *s);
    s->stop_after = stop_after;
    p.on_text = record;
    p.user = s;
    if (quern_generate(b->s, b->greedy, &p, r, &err) != 0) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(s->pieces, r->n_generated); /* one call a token */
    assert_memory_equal(s->tokens, r->tokens, s->pieces * sizeof *s->tokens);
    assert_int_equal(s->len, r->text_len);
    assert_memory_equal(s->text, r->text, s->len);
    assert_int_equal(r->text[r->text_len], 0);
}

static void expect(bench_top *b, const char *prompt_text, quern_generate_params p, const char *text,
                   quern_stop stop, size_t n_generated)
{
    seen s = {0};
    quern_generate_result r;
    prompt(b, prompt_text);
    generate(b, p, &s, &r);
    assert_string_equal(r.text, text);
    assert_int_equal(r.stop, stop);
    assert_int_equal(r.n_generated, n_generated);
    quern_generate_result_free(&r);
}

static const quern_generate_params until_end = {.n_predict = -1};

static void test_chains(void **state)
{
    (void)state;
    bench_top b = open_table();
    expect(&b, "A", until_end, " Hello world!", QUERN_STOP_END, 4);
    expect(&b, "E", until_end, "", QUERN_STOP_END, 1);                  /* the second end token */
    expect(&b, "H", until_end, "there", QUERN_STOP_END, 3);             /* a control token has no text */
    expect(&b, "B", until_end, EMOJI "é日本", QUERN_STOP_END, 7);       /* one character in four tokens */
    expect(&b, "G", until_end, "\xef\xbf\xbd", QUERN_STOP_END, 3);      /* a character that never ends */
    expect(&b, "I", until_end, "\xef\xbf\xbdthere", QUERN_STOP_END, 3); /* a byte that begins none */
    expect(&b, "", until_end, " Hi", QUERN_STOP_END, 2);                /* from the begin-of-text token */
    expect(&b, "A</s>A", until_end, " Hello world!", QUERN_STOP_END,
           4); /* end tokens of the prompt do not end it */
    close_all(&b);
}

static void test_end_token_ids(void **state)
{
    (void)state;
    bench_top b = open_table();
    seen s = {0};
    quern_generate_result r;
    prompt(&b, "A");
    generate(&b, until_end, &s, &r);
    assert_int_equal(r.tokens[3], 2);
    assert_int_equal(s.last_len, 0);
    quern_generate_result_free(&r);
    assert_true(quern_is_end_token(b.m, 2));
    assert_true(quern_is_end_token(b.m, 3));
    assert_false(quern_is_end_token(b.m, 1));
    assert_false(quern_is_end_token(b.m, -1));
    close_all(&b);
}

static void test_utf8_is_held_back(void **state)
{
    (void)state;
    bench_top b = open_table();
    quern_generate_result r;
    for (size_t n = 1; n <= 4; n++) {
        seen s = {.stop_after = n};
        prompt(&b, "B");
        generate(&b, until_end, &s, &r);
        assert_int_equal(s.last_len, n == 4 ? 4 : 0);
        assert_int_equal(r.stop, QUERN_STOP_ABORT);
        quern_generate_result_free(&r);
    }
    /* Cut short, what is there becomes one replacement character. */
    expect(&b, "B", (quern_generate_params){.n_predict = 3}, "\xef\xbf\xbd", QUERN_STOP_LENGTH, 3);
    close_all(&b);
}

static void test_stop_strings(void **state)
{
    (void)state;
    bench_top b = open_table();
    const char *stop[] = {"STOP"}, *two[] = {"zzz", "cS"}, *byte[] = {"\x9f"}, *whole[] = {"abcSTOPde"};
    const char *none[] = {"STOY"}, *character[] = {EMOJI}, *blank[] = {" world"};
    quern_generate_params p = {.n_predict = -1, .n_stop = 1};
    p.stop = stop;
    expect(&b, "D", p, "abc", QUERN_STOP_STRING, 3); /* across two tokens; its rest is swallowed */
    p.stop = whole;
    expect(&b, "D", p, "", QUERN_STOP_STRING, 3);
    p.stop = none;
    expect(&b, "D", p, "abcSTOPde", QUERN_STOP_END, 4); /* its beginning was held back, then came */
    p.stop = blank;
    expect(&b, "A", p, " Hello", QUERN_STOP_STRING, 2);
    p.stop = character;
    expect(&b, "B", p, "", QUERN_STOP_STRING, 4); /* spread over byte tokens */
    p.stop = byte;
    expect(&b, "B", p, "\xef\xbf\xbd", QUERN_STOP_STRING,
           2); /* even inside a character the output stays valid */
    p.stop = two;
    p.n_stop = 2;
    expect(&b, "D", p, "ab", QUERN_STOP_STRING, 2);
    /* Held-back text comes out when the answer ends for another reason. */
    p.stop = stop;
    p.n_stop = 1;
    p.n_predict = 2;
    expect(&b, "D", p, "abcST", QUERN_STOP_LENGTH, 2);
    close_all(&b);
}

static void test_stop_string_holds_back(void **state)
{
    (void)state;
    bench_top b = open_table();
    const char *stop[] = {"STOP"};
    seen s = {.stop_after = 2};
    quern_generate_result r;
    prompt(&b, "D");
    generate(&b, (quern_generate_params){.n_predict = -1, .stop = stop, .n_stop = 1}, &s, &r);
    assert_string_equal(r.text, "abc"); /* "ST" may become STOP */
    assert_int_equal(r.stop, QUERN_STOP_ABORT);
    quern_generate_result_free(&r);
    close_all(&b);
}

static void test_lengths(void **state)
{
    (void)state;
    bench_top b = open_table();
    expect(&b, "C", (quern_generate_params){.n_predict = 0}, "", QUERN_STOP_LENGTH, 0);
    expect(&b, "C", (quern_generate_params){.n_predict = 1}, "x", QUERN_STOP_LENGTH, 1);
    expect(&b, "C", (quern_generate_params){.n_predict = 5}, "xyzxy", QUERN_STOP_LENGTH, 5);
    expect(&b, "A", (quern_generate_params){.n_predict = 4}, " Hello world!", QUERN_STOP_END, 4);
    expect(&b, "A", (quern_generate_params){.n_predict = 3}, " Hello world!", QUERN_STOP_LENGTH, 3);
    /* To the end of the context of 64: prompt and answer fill it. */
    seen s = {0};
    quern_generate_result r;
    size_t n_prompt = prompt(&b, "C");
    generate(&b, until_end, &s, &r);
    assert_int_equal(r.stop, QUERN_STOP_LENGTH);
    assert_int_equal(n_prompt + r.n_generated, 64);
    assert_int_equal(quern_session_length(b.s), 63);
    quern_generate_result_free(&r);
    /* A prompt that fills it leaves room for nothing. */
    char full[64];
    memset(full, 'C', 63);
    full[63] = 0;
    expect(&b, full, until_end, "", QUERN_STOP_LENGTH, 0);
    quern_error err;
    assert_int_equal(quern_generate(b.s, b.greedy, &(quern_generate_params){.n_predict = -2}, &r, &err), -1);
    close_all(&b);
}

static void test_ends(void **state)
{
    (void)state;
    bench_top b = open_table();
    const int32_t y = 5 + 256 + 16; /* the 17th piece, behind the control and byte tokens */
    quern_generate_params p = {.n_predict = 3, .ignore_end = true};
    expect(&b, "E", p, "STOXSTOXSTOX", QUERN_STOP_LENGTH, 3); /* both end tokens are masked */
    p = (quern_generate_params){.n_predict = -1, .extra_end = &y, .n_extra_end = 1};
    expect(&b, "C", p, "x", QUERN_STOP_END, 2);
    p.ignore_end = true;
    p.n_predict = 2;
    seen s = {0};
    quern_generate_result r;
    prompt(&b, "C");
    generate(&b, p, &s, &r);
    assert_int_not_equal(r.tokens[1], y);
    quern_generate_result_free(&r);
    close_all(&b);
    /* A list of the caller's own. */
    const int32_t end = y + 1;
    b = open_with(TABLE, &(quern_model_params){.end_tokens = &end, .n_end_tokens = 1}, NULL);
    expect(&b, "C", until_end, "xy", QUERN_STOP_END, 3);
    expect(&b, "A", (quern_generate_params){.n_predict = 4}, " Hello world!", QUERN_STOP_LENGTH, 4);
    close_all(&b);
}

static void test_leading_blank(void **state)
{
    (void)state;
    bench_top b = open_with(QN_BUILD_DIR "/table-prefix.gguf", NULL, NULL);
    expect(&b, "", until_end, "Hi", QUERN_STOP_END, 2); /* begins the text: the dummy blank goes */
    expect(&b, "A", until_end, " Hello world!", QUERN_STOP_END, 4); /* goes on after text: a real one */
    close_all(&b);
}

static void test_seeds(void **state)
{
    (void)state;
    bench_top b = open_table();
    quern_error err;
    char texts[3][64];
    const uint64_t seeds[3] = {7, 7, 8};
    for (int i = 0; i < 3; i++) {
        quern_sampler_params p = quern_sampler_defaults();
        quern_sampler *s;
        quern_generate_result r;
        p.seed = seeds[i];
        p.temperature = 1;
        assert_int_equal(quern_sampler_new(&s, &p, &err), 0);
        prompt(&b, "F");
        assert_int_equal(quern_generate(b.s, s, &(quern_generate_params){.n_predict = 50}, &r, &err), 0);
        assert_int_equal(r.text_len, 50);
        memcpy(texts[i], r.text, 51);
        quern_generate_result_free(&r);
        quern_sampler_free(s);
    }
    assert_string_equal(texts[0], texts[1]);
    assert_string_not_equal(texts[0], texts[2]);
    close_all(&b);
}

/* Stopped and taken up again, an answer is the same as in one go. */
static void test_resume(void **state)
{
    (void)state;
    bench_top b = open_table();
    quern_error err;
    quern_sampler_params p = quern_sampler_defaults();
    quern_sampler *s;
    quern_generate_result whole, part;
    assert_int_equal(quern_sampler_new(&s, &p, &err), 0);
    prompt(&b, "F");
    assert_int_equal(quern_generate(b.s, s, &(quern_generate_params){.n_predict = 30}, &whole, &err), 0);
    size_t n = prompt(&b, "F");
    char text[64] = "";
    for (int i = 0; i < 3; i++) {
        assert_int_equal(quern_generate(b.s, s, &(quern_generate_params){.n_predict = 10}, &part, &err), 0);
        assert_int_equal(quern_session_length(b.s), (int)n + 10 * i + 9);
        assert_int_equal(quern_session_append(b.s, &part.tokens[9], 1, false, &err), 0);
        strcat(text, part.text);
        quern_generate_result_free(&part);
    }
    assert_string_equal(text, whole.text);
    quern_generate_result_free(&whole);
    quern_sampler_free(s);
    close_all(&b);
}

static void test_session_rules(void **state)
{
    (void)state;
    bench_top b = open_table();
    quern_error err;
    quern_generate_result r;
    int32_t ids[65] = {1, 261, 273};
    assert_int_equal(quern_session_n_ctx(b.s), 64);
    assert_string_equal(quern_session_backend(b.s), "cpu");
    assert_null(quern_session_logits(b.s, -1));
    assert_int_equal(quern_generate(b.s, b.greedy, &until_end, &r, &err), -1); /* nothing to go on from */
    assert_int_equal(quern_session_append(b.s, ids, 65, false, &err), -1);
    assert_non_null(strstr(err.text, "64")); /* both numbers */
    assert_non_null(strstr(err.text, "65"));
    ids[2] = quern_model_n_vocab(b.m);
    assert_int_equal(quern_session_append(b.s, ids, 3, false, &err), -1);
    ids[2] = -1;
    assert_int_equal(quern_session_append(b.s, ids, 3, false, &err), -1);
    assert_int_equal(quern_session_length(b.s), 0); /* none of them appended anything */
    ids[2] = 273;
    assert_int_equal(quern_session_append(b.s, ids, 0, false, &err), 0);
    assert_int_equal(quern_session_append(b.s, ids, 3, true, &err), 0);
    assert_int_equal(quern_session_length(b.s), 3);
    /* The row of "A" has " Hello" at 20, that of " Hello" has " world" at 20. */
    assert_true(quern_session_logits(b.s, 1)[273] > 19.9f && quern_session_logits(b.s, 1)[273] < 20.1f);
    assert_ptr_equal(quern_session_logits(b.s, 2), quern_session_logits(b.s, -1));
    assert_ptr_equal(quern_session_logits(b.s, 0), quern_session_logits(b.s, -3));
    assert_true(quern_session_logits(b.s, 2)[274] > 19.9f);
    assert_null(quern_session_logits(b.s, 3));
    assert_null(quern_session_logits(b.s, -4));
    assert_int_equal(quern_session_append(b.s, ids, 3, false, &err), 0);
    assert_null(quern_session_logits(b.s, 1));
    assert_non_null(quern_session_logits(b.s, 2));
    assert_int_equal(quern_session_truncate(b.s, 7, &err), -1);
    assert_int_equal(quern_session_truncate(b.s, -1, &err), -1);
    assert_int_equal(quern_session_truncate(b.s, 6, &err), 0);
    assert_non_null(quern_session_logits(b.s, -1)); /* nothing was forgotten */
    assert_int_equal(quern_session_truncate(b.s, 2, &err), 0);
    assert_null(quern_session_logits(b.s, -1));
    assert_int_equal(quern_session_length(b.s), 2);
    close_all(&b);
}

static void test_no_tokenizer(void **state)
{
    (void)state;
    bench_top b = open_with(QN_BUILD_DIR "/table-ids.gguf", NULL, NULL);
    quern_error err;
    quern_generate_result r;
    seen s = {0};
    int32_t *ids;
    size_t n;
    const int32_t a = 261, end = 2;
    const char *stop[] = {"x"};
    char *text;
    assert_false(quern_model_has_tokenizer(b.m));
    assert_int_equal(quern_tokenize(b.m, "A", 1, true, true, &ids, &n, &err), -1);
    assert_int_equal(quern_detokenize(b.m, &a, 1, false, &text, &n, &err), -1);
    assert_int_equal(quern_session_append(b.s, &a, 1, false, &err), 0);
    assert_int_equal(quern_generate(b.s, b.greedy,
                                    &(quern_generate_params){.n_predict = 5, .stop = stop, .n_stop = 1}, &r,
                                    &err),
                     -1);
    generate(&b, (quern_generate_params){.n_predict = -1, .extra_end = &end, .n_extra_end = 1}, &s, &r);
    assert_int_equal(r.n_generated, 4);
    assert_int_equal(r.tokens[0], 273);
    assert_int_equal(r.text_len, 0);
    assert_int_equal(r.stop, QUERN_STOP_END);
    quern_generate_result_free(&r);
    close_all(&b);
}

static void test_refusals(void **state)
{
    (void)state;
    quern_error err;
    quern_model *m;
    quern_session *s;
    assert_int_equal(quern_model_load(&m, "/no/such/file.gguf", NULL, &err), -1);
    assert_null(m);
    assert_non_null(strstr(err.text, "/no/such/file.gguf"));
    assert_int_equal(quern_model_load(&m, TABLE, &(quern_model_params){.n_ctx = -5}, &err), -1);
    assert_int_equal(quern_model_load(&m, TABLE, &(quern_model_params){.config_dir = "/no/such/dir"}, &err),
                     -1);
    assert_int_equal(quern_model_load(&m, TABLE, NULL, &err), 0);
    assert_int_equal(quern_session_new(&s, m, &(quern_session_params){.backend = QUERN_BACKEND_CUDA}, &err),
                     -1);
    assert_null(s);
    assert_non_null(strstr(err.text, "cuda"));
    assert_int_equal(quern_session_new(&s, m, &(quern_session_params){.n_ubatch = -1}, &err), -1);
    assert_int_equal(quern_session_new(&s, m, &(quern_session_params){.n_threads = -1}, &err), -1);
    quern_model_free(m);
    /* 2^31 positions take 2^31 * 2 * 32 * 2 bytes and more: said with numbers before anything is allocated.
     */
    assert_int_equal(quern_model_load(&m, TABLE, &(quern_model_params){.n_ctx = INT_MAX}, &err), 0);
    assert_int_equal(quern_session_new(&s, m, NULL, &err), -1);
    assert_non_null(strstr(err.text, "largest context that fits is"));
    assert_non_null(strstr(err.text, "KV cache 256.0 GiB"));
    quern_model_free(m);
    bench_top b = open_with(QN_BUILD_DIR "/table-nan.gguf", NULL, NULL);
    const int32_t a = 261;
    assert_int_equal(quern_session_append(b.s, &a, 1, false, &err), -1);
    assert_non_null(strstr(err.text, "NaN"));
    assert_int_equal(quern_session_length(b.s), 0);
    close_all(&b);
}

/* A session of its own in each thread, one model. */
static void *many_answers(void *model)
{
    bench_top b = {.m = model};
    quern_error err;
    quern_sampler_params p = quern_sampler_defaults();
    size_t good = 0;
    p.temperature = 0;
    if (quern_session_new(&b.s, b.m, &(quern_session_params){.n_threads = 2}, &err) == 0 &&
        quern_sampler_new(&b.greedy, &p, &err) == 0) {
        for (int i = 0; i < 20; i++) {
            quern_generate_result r = {0};
            int32_t *ids = NULL;
            size_t n;
            bool ok = quern_session_truncate(b.s, 0, &err) == 0 &&
                      quern_tokenize(b.m, "A", 1, true, true, &ids, &n, &err) == 0 &&
                      quern_session_append(b.s, ids, n, false, &err) == 0 &&
                      quern_generate(b.s, b.greedy, &until_end, &r, &err) == 0;
            good += ok && strcmp(r.text, " Hello world!") == 0;
            quern_generate_result_free(&r);
            free(ids);
        }
    }
    quern_sampler_free(b.greedy);
    quern_session_free(b.s);
    return (void *)good;
}

static void test_sessions_in_threads(void **state)
{
    (void)state;
    bench_top b = open_table();
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, many_answers, b.m), 0);
    }
    for (int i = 0; i < 3; i++) {
        void *good;
        pthread_join(threads[i], &good);
        assert_int_equal((size_t)good, 20);
    }
    close_all(&b);
}

/* The largest context that fits is exact; an explicit one is never shrunk. */
static void test_memory_fit(void **state)
{
    (void)state;
    bench_top b = open_table();
    qn_err err;
    qn_memory m;
    qn_exec_opts opts = {.n_ctx = 5000, .n_ubatch = 512, .n_threads = 1};
    qn_memory_of(b.m->plans, &opts, &m);
    uint64_t five_thousand = qn_memory_total(&m);
    opts.n_ctx = 5001;
    qn_memory_of(b.m->plans, &opts, &m);
    assert_true(qn_memory_total(&m) > five_thousand);
    opts.n_ctx = 100000;
    assert_int_equal(qn_memory_largest_ctx(b.m->plans, &opts, five_thousand), 5000);
    assert_int_equal(qn_memory_fit(b.m->plans, &opts, false, five_thousand, &err), -1);
    assert_non_null(strstr(err.text, "a context of 100000 needs"));
    assert_non_null(strstr(err.text, "largest context that fits is 5000"));
    assert_int_equal(opts.n_ctx, 100000);
    assert_int_equal(qn_memory_fit(b.m->plans, &opts, true, five_thousand, &err), 0);
    assert_int_equal(opts.n_ctx, 5000);
    assert_int_equal(qn_memory_fit(b.m->plans, &opts, false, five_thousand, &err), 0);
    assert_int_equal(qn_memory_fit(b.m->plans, &opts, true, 1000, &err), -1); /* less than the weights */
    assert_non_null(strstr(err.text, "no context fits"));
    assert_true(qn_memory_available() > 1 << 20);
    char text[24];
    assert_string_equal(qn_memory_text(1023, text), "1023 B");
    assert_string_equal(qn_memory_text(1536, text), "1.5 KiB");
    close_all(&b);
}

/* A sliding-window model whose ring has forgotten what an earlier position needs: the tokens are processed
 * again. */
static void test_truncate_over_the_ring(void **state)
{
    (void)state;
    const quern_session_params small = {.n_ubatch = 4, .exact = true};
    bench_top b = open_with(QN_BUILD_DIR "/goldens/archs/gemma3.gguf", NULL, &small);
    quern_error err;
    int32_t ids[40];
    int n_vocab = quern_model_n_vocab(b.m);
    for (int i = 0; i < 40; i++) {
        ids[i] = (7 * i + 3) % n_vocab;
    }
    float *want = malloc((size_t)n_vocab * sizeof *want);
    assert_int_equal(quern_session_append(b.s, ids, 10, false, &err), 0);
    assert_int_equal(quern_session_append(b.s, ids + 20, 12, false, &err), 0);
    memcpy(want, quern_session_logits(b.s, -1), (size_t)n_vocab * sizeof *want);
    assert_int_equal(quern_session_truncate(b.s, 0, &err), 0);
    assert_int_equal(quern_session_append(b.s, ids, 40, false, &err), 0);
    assert_true(memcmp(want, quern_session_logits(b.s, -1), (size_t)n_vocab * sizeof *want) != 0);
    assert_int_equal(quern_session_truncate(b.s, 10, &err), 0);
    assert_int_equal(quern_session_length(b.s), 10);
    assert_int_equal(quern_session_append(b.s, ids + 20, 12, false, &err), 0);
    assert_memory_equal(want, quern_session_logits(b.s, -1), (size_t)n_vocab * sizeof *want);
    free(want);
    close_all(&b);
}

static void test_text_and_ids(void **state)
{
    (void)state;
    bench_top b = open_table();
    quern_error err;
    int32_t *ids;
    size_t n, len;
    char *text;
    assert_int_equal(quern_tokenize(b.m, "A<|eot|>", 8, false, true, &ids, &n, &err), 0);
    assert_int_equal(n, 2);
    assert_int_equal(ids[1], 3);
    assert_int_equal(quern_detokenize(b.m, ids, n, false, &text, &len, &err), 0);
    assert_string_equal(text, "A");
    free(text);
    assert_int_equal(quern_detokenize(b.m, ids, n, true, &text, &len, &err), 0);
    assert_string_equal(text, "A<|eot|>");
    free(text);
    free(ids);
    assert_int_equal(quern_tokenize(b.m, "A<|eot|>", 8, false, false, &ids, &n, &err), 0);
    assert_true(n > 2);
    free(ids);
    close_all(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_end_token_ids),
        cmocka_unit_test(test_utf8_is_held_back),
        cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_stop_string_holds_back),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_leading_blank),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_session_rules),
        cmocka_unit_test(test_no_tokenizer),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_sessions_in_threads),
        cmocka_unit_test(test_memory_fit),
        cmocka_unit_test(test_truncate_over_the_ring),
        cmocka_unit_test(test_text_and_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
