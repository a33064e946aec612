// Prompts as captured graphs, with a driver that keeps books (tests/fake/fake_run.c): when a bucket is
// captured, what replays, what stays with direct launches, rows that products and grids have, and what a
// failure leaves.
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
    int syncs, queries, launches, graph_launches, captures, choices[QN_CHOOSE_COUNT], bad_at;
    int refuse_captures, embed_blocks, product_rows, products;
} fake_books;

enum { N_CTX = 400, UBATCH = 100 };

static quern_model *model;
static fake_books *books, *library;
static int n_said;

static void log_line(void *user, int level, const char *line)
{
    (void)user;
    n_said += level == 0 && strncmp(line, "graphs of prompts: off", 22) == 0;
}

static int open_model(void **state)
{
    (void)state;
    quern_error err;
    const quern_model_params mp = {.n_ctx = N_CTX, .log = log_line};
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

static fake_books *books_of(const char *name)
{
    void *lib = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(lib);
    fake_books *b = dlsym(lib, "fake_run_books");
    assert_non_null(b);
    return b;
}

static quern_session *open_session(quern_session_params p)
{
    quern_error err;
    quern_session *s;
    p.backend = QUERN_BACKEND_CUDA;
    p.cache = "none";
    p.n_ubatch = UBATCH;
    if (quern_session_new(&s, model, &p, &err) != 0) {
        fail_msg("%s", err.text);
    }
    books = books_of("libcuda.so.1");
    library = books_of("libcublasLt.so.13");
    return s;
}

// A prompt at the session's end; what it added to the books of the driver.
static fake_books append(quern_session *s, int n, bool all)
{
    static const int32_t ids[N_CTX];
    quern_error err;
    fake_books before = *books;
    if (quern_session_append(s, ids, (size_t)n, all, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return (fake_books){.launches = books->launches - before.launches,
                        .graph_launches = books->graph_launches - before.graph_launches,
                        .captures = books->captures - before.captures};
}

static void reset(quern_session *s)
{
    quern_error err;
    assert_int_equal(quern_session_truncate(s, 0, &err), 0);
}

static const qn_exec_stats *stats(const quern_session *s)
{
    return &s->exec->stats;
}

static void buckets(void **state)
{
    (void)state;
    static const int cases[][3] = {{1, 2048, 8},     {8, 2048, 8},       {9, 2048, 16},    {17, 2048, 32},
                                   {64, 2048, 64},   {65, 2048, 128},    {128, 2048, 128}, {129, 2048, 192},
                                   {193, 2048, 256}, {257, 2048, 320},   {511, 2048, 512}, {512, 512, 512},
                                   {513, 2048, 513}, {2048, 2048, 2048}, {70, 100, 100},   {3, 4, 4},
                                   {450, 500, 500}};
    int different = 0, last = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(qn_cuda_bucket(cases[i][0], cases[i][1]), cases[i][2]);
    }
    for (int n = 1; n <= 512; n++) {
        int b = qn_cuda_bucket(n, 512);
        assert_true(b >= n && b >= last);
        assert_true(n <= 8 || b < 2 * n); // what is wasted, at most
        assert_true(n <= 128 || b - n < 64);
        assert_int_equal(qn_cuda_bucket(b, 512), b); // a graph's own rows
        different += b != last;
        last = b;
    }
    assert_true(4 * different <= QN_CUDA_PROMPT_GRAPHS);
    qn_cuda_exec x = {.base.opts.n_ubatch =
                          1000}; // products of bytes: multiples of 16 rows, where there is room
    qn_cuda_action a = {.rows = QN_ROWS_TOKENS};
    assert_int_equal(qn_cuda_product_rows(&x, &a, 601), 601);
    a.gemm.fp8 = 1;
    assert_int_equal(qn_cuda_product_rows(&x, &a, 601), 608);
    assert_int_equal(qn_cuda_product_rows(&x, &a, 997), 997);
    a.rows = QN_ROWS_OUTPUTS;
    a.gemm.fp8 = 0;
    assert_int_equal(qn_cuda_product_rows(&x, &a, 41), 41);
}

static void third_of_a_bucket_replays(void **state)
{
    (void)state;
    quern_session *s = open_session((quern_session_params){0});
    fake_books a = append(s, 20, false); // first: launches
    assert_true(a.launches > 20);
    assert_true(a.captures == 0 && a.graph_launches == 0);
    assert_int_equal(library->product_rows, 32); // the bucket's, as in the graph: the same bits
    assert_int_equal(books->embed_blocks, 20);
    fake_books b =
        append(s, 25, false); // second, elsewhere in the context: launches, and a capture behind them
    assert_int_equal(b.launches, a.launches);
    assert_true(b.captures == 1 && b.graph_launches == 0);
    assert_int_equal(books->embed_blocks, 32); // captured
    assert_int_equal(library->product_rows, 32);
    reset(s);
    int products = library->products;
    fake_books c = append(s, 17, false); // third, of a session begun anew
    assert_true(c.launches == 0 && c.captures == 0 && c.graph_launches == 1);
    assert_int_equal(library->products, products);
    const qn_cuda_exec *x = (const qn_cuda_exec *)s->exec;
    assert_int_equal(x->host_state->n_rows, 17); // what kernels go by
    assert_int_equal(x->host_state->pos, 0);
    c = append(s, 32, false);
    assert_true(c.launches == 0 && c.graph_launches == 1);
    assert_int_equal(x->host_state->n_rows, 32);
    assert_int_equal(x->host_state->pos, 17);
    assert_int_equal(quern_session_length(s), 49);
    assert_int_equal(stats(s)->prompt_captures, 1);
    assert_int_equal(stats(s)->prompt_replays, 2);
    assert_int_equal(stats(s)->captures, 0); // none of decode
    c = append(s, 33, false);                // another bucket
    assert_true(c.launches == a.launches && c.captures == 0);
    assert_int_equal(library->product_rows, 64);
    quern_session_free(s);
}

// A context filled over and over, with prompts of all lengths: as many captures as there are buckets.
static void few_captures(void **state)
{
    (void)state;
    quern_session *s = open_session((quern_session_params){0});
    for (int round = 0; round < 8; round++) {
        for (int n = 2; n <= UBATCH; n += 7) {
            if (quern_session_length(s) + n > N_CTX) {
                reset(s);
            }
            append(s, n, false);
        }
    }
    assert_int_equal(stats(s)->prompt_captures, 5); // 8 16 32 64 100
    quern_session_free(s);
}

// Chunks before the last have no logits: a graph of their own. All logits: never captured.
static void chunks(void **state)
{
    (void)state;
    quern_session *s = open_session((quern_session_params){0});
    fake_books a;
    for (int round = 0; round < 3; round++) {
        reset(s);
        a = append(s, UBATCH + 40, false);
    }
    assert_true(a.launches == 0 && a.graph_launches == 2);
    assert_int_equal(stats(s)->prompt_captures, 2);
    for (int round = 0; round < 3; round++) {
        a = append(s, 40, true);
        assert_true(a.launches > 0 && a.graph_launches == 0 && a.captures == 0);
    }
    quern_session_free(s);
}

static void switched_off(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        quern_session *s =
            open_session((quern_session_params){.no_graph = k == 0, .no_prompt_graph = k == 1});
        for (int round = 0; round < 4; round++) {
            fake_books a = append(s, 20, false);
            assert_true(a.launches > 0 && a.graph_launches == 0 && a.captures == 0);
            assert_int_equal(library->product_rows, 32); // as with a graph
        }
        assert_string_equal(stats(s)->prompt_graph_off, k == 0 ? "--no-graph" : "--no-prompt-graph");
        fake_books one = append(s, 1, false); // decode
        assert_int_equal(one.graph_launches, k);
        quern_session_free(s);
    }
}

// Said once; launches serve, and decode keeps its graph.
static void refused(void **state)
{
    (void)state;
    quern_session *s = open_session((quern_session_params){0});
    n_said = 0;
    books->refuse_captures = 1;
    for (int round = 0; round < 5; round++) {
        fake_books a = append(s, 20, false);
        assert_true(a.launches > 0 && a.graph_launches == 0 && a.captures == 0);
    }
    assert_int_equal(n_said, 1);
    assert_int_equal(books->refuse_captures, 0);
    assert_true(stats(s)->prompt_graph_off[0]);
    assert_int_equal(stats(s)->prompt_captures, 0);
    assert_int_equal(append(s, 1, false).graph_launches, 1);
    assert_int_equal(quern_session_length(s), 101);
    quern_session_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets),      cmocka_unit_test(third_of_a_bucket_replays),
        cmocka_unit_test(few_captures), cmocka_unit_test(chunks),
        cmocka_unit_test(switched_off), cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
