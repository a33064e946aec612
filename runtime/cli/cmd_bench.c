/* quern bench: prompt and generation speed, measured and printed as llama.cpp does it. */
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/load.h"

enum { MAX_MODELS = 16 };
enum { OUT_TABLE, OUT_JSON, OUT_CSV };

typedef struct bench_args {
    qn_model_args model;
    qn_ints n_prompt, n_gen, depth;
    int repeats;
    int output; /* index in `outputs` */
    bool warm_up;
} bench_args;

static const char *const outputs[] = {"table", "json", "csv", NULL};

static const qn_opt bench_opts[] = {
    {"-p, --n-prompt", "N,...", "Prompt sizes; 0: none. Default: 512.", QN_OPT_INTS,
     offsetof(bench_args, n_prompt), 0, 1 << 30},
    {"-n, --n-gen", "N,...", "Tokens to generate; 0: none. Default: 128.", QN_OPT_INTS,
     offsetof(bench_args, n_gen), 0, 1 << 30},
    {"-d, --n-depth", "N,...", "Tokens in the context before each test. Default: 0.", QN_OPT_INTS,
     offsetof(bench_args, depth), 0, 1 << 30},
    {"-r, --repetitions", "N", "Repeats of each test. Default: 5.", QN_OPT_INT, offsetof(bench_args, repeats),
     1, 1 << 20},
    {"-o, --output", "NAME", "table, json or csv. Default: table.", QN_OPT_CHOICE,
     offsetof(bench_args, output), 0, 0, outputs},
    {"--no-warmup", NULL, "No run before the first measured one.", QN_OPT_UNSET,
     offsetof(bench_args, warm_up)},
    {0},
};

/* Any ids will do for speed; a fixed sequence makes runs alike. */
static void fill_tokens(int32_t *ids, int n, int n_vocab)
{
    uint64_t x = 1;
    for (int i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((x >> 33) % (uint64_t)n_vocab);
    }
}

/* n tokens one by one: chosen greedily by the executor itself where it has a loop for that, else given. */
static int generate(quern_session *s, const int32_t *ids, int n, quern_error *err)
{
    qn_exec *e = s->exec;
    if (e->loop != NULL) {
        qn_loop_row row = {
            .seq = e->seq, .token = ids[0], .n = n, .how = {.repeat_penalty = 1}, .history = s->tokens};
        return e->loop(e, &row, 1, qn_engine_err(err));
    }
    int rc = 0;
    for (int i = 0; rc == 0 && i < n; i++) {
        rc = quern_session_append(s, ids + i, 1, false, err);
    }
    return rc;
}

/* One run of a test; the context holds t->depth tokens before. */
static int run_once(quern_session *s, const qn_bench_test *t, const int32_t *ids, double *seconds)
{
    quern_error err;
    int held = quern_session_length(s);
    int rc = quern_session_truncate(s, held < t->depth ? 0 : t->depth, &err);
    held = quern_session_length(s);
    if (rc == 0 && held < t->depth) {
        rc = quern_session_append(s, ids + held, (size_t)(t->depth - held), false, &err);
    }
    double start = qn_seconds();
    if (rc == 0 && t->gen) {
        rc = generate(s, ids + t->depth, t->n, &err);
    } else if (rc == 0) {
        rc = quern_session_append(s, ids + t->depth, (size_t)t->n, false, &err);
    }
    if (rc != 0) {
        qn_cli_error("%s", err.text);
        return -1;
    }
    *seconds = qn_seconds() - start;
    return 0;
}

static int run_test(const bench_args *a, quern_session *s, const qn_bench_test *t, const int32_t *ids)
{
    double ignored;
    qn_bench_test warm = *t;
    char name[48];
    warm.n = t->gen ? 1 : t->n;
    if (a->warm_up && run_once(s, &warm, ids, &ignored) != 0) {
        return -1;
    }
    for (int r = 0; r < a->repeats; r++) {
        if (run_once(s, t, ids, &t->seconds[r]) != 0) {
            return -1;
        }
    }
    if (s->exec->stats.graph_off[0] != 0 && !a->model.no_graph) {
        qn_cli_error("%s was measured without a graph: %s", qn_bench_name(t, name), s->exec->stats.graph_off);
        return -1;
    }
    return 0;
}

/* The tests that are not empty: for each depth the prompts, then the generations; *longest: the context they
 * need. */
static size_t list_tests(const bench_args *a, qn_bench_test *tests, double *seconds, int *longest)
{
    size_t n = 0, per_depth = a->n_prompt.n + a->n_gen.n;
    *longest = 0;
    for (size_t i = 0; i < a->depth.n * per_depth; i++) {
        size_t k = i % per_depth;
        bool gen = k >= a->n_prompt.n;
        int depth = a->depth.items[i / per_depth];
        int size = gen ? a->n_gen.items[k - a->n_prompt.n] : a->n_prompt.items[k];
        if (size > 0) {
            tests[n] = (qn_bench_test){.n = size,
                                       .depth = depth,
                                       .gen = gen,
                                       .repeats = a->repeats,
                                       .seconds = seconds + n * (size_t)a->repeats};
            *longest = size + depth > *longest ? size + depth : *longest;
            n++;
        }
    }
    return n;
}

static int measure(const bench_args *a, const qn_bench_test *tests, size_t n, int longest, bool first,
                   json_t *json)
{
    qn_loaded l;
    if (qn_cli_load(&l, &a->model, QN_LOAD_SESSION) != 0) {
        return QN_EXIT_ERROR;
    }
    int rc = QN_EXIT_OK;
    int32_t *ids = qn_calloc((size_t)longest, sizeof *ids);
    if (ids == NULL) {
        rc = qn_cli_error("out of memory for %d tokens", longest);
    } else {
        fill_tokens(ids, longest, quern_model_n_vocab(l.model));
    }
    for (size_t i = 0; rc == QN_EXIT_OK && i < n; i++) {
        rc = run_test(a, l.session, &tests[i], ids) == 0 ? QN_EXIT_OK : QN_EXIT_ERROR;
    }
    if (rc == QN_EXIT_OK && a->output == OUT_JSON) {
        if (qn_bench_json(json, l.session, a->model.path, tests, n) != 0) {
            rc = qn_cli_error("out of memory for JSON output");
        }
    } else if (rc == QN_EXIT_OK) {
        if (a->output == OUT_CSV) {
            qn_bench_csv(l.session, a->model.path, tests, n, first);
        } else {
            qn_bench_table(l.session, tests, n, first);
        }
        fflush(stdout);
    }
    free(ids);
    qn_loaded_free(&l);
    return rc;
}

static int measure_all(bench_args *a, const char *const *models, qn_bench_test *tests, double *seconds)
{
    int longest, rc = QN_EXIT_OK;
    size_t n = list_tests(a, tests, seconds, &longest);
    if (n == 0) {
        return qn_cli_usage_error("bench", "nothing to measure: -p and -n are 0");
    }
    a->model.n_ctx = a->model.n_ctx > longest ? a->model.n_ctx : longest;
    json_t *json = json_array();
    for (size_t i = 0; rc == QN_EXIT_OK && models[i] != NULL; i++) {
        a->model.path = models[i];
        rc = measure(a, tests, n, longest, i == 0, json);
    }
    if (rc == QN_EXIT_OK && a->output == OUT_JSON) {
        return qn_json_print(json, JSON_INDENT(2));
    }
    json_decref(json);
    return rc;
}

static int default_ints(qn_ints *list, int value)
{
    if (list->n == 0) {
        list->items = malloc(sizeof *list->items);
        if (list->items == NULL) {
            return qn_cli_error("out of memory");
        }
        list->items[list->n++] = value;
    }
    return -1;
}

int qn_cmd_bench(int argc, char **argv)
{
    bench_args a = {.model = qn_model_args_defaults, .repeats = 5, .warm_up = true};
    const qn_opt_group groups[] = {
        {"Bench", bench_opts, &a}, qn_load_group(&a.model), qn_backend_group(&a.model), qn_common_group};
    const qn_usage usage = {
        "bench",
        "MODEL... [-p N,...] [-n N,...] [-d N,...] [-r N] [options]",
        "Measures tokens per second of prompts (pp) and of generation (tg), each after -d tokens of context; "
        "beside "
        "them the arithmetic of a prompt and the bytes of weights and KV cache that generation reads.",
        groups,
        sizeof groups / sizeof *groups,
        MAX_MODELS};
    const char *models[MAX_MODELS + 1] = {NULL};
    int rc = qn_opts_parse(&usage, argc, argv, models);
    rc = rc >= 0 ? rc : qn_model_args_finish(&a.model, "bench", models[0]);
    rc = rc >= 0 ? rc : default_ints(&a.n_prompt, 512);
    rc = rc >= 0 ? rc : default_ints(&a.n_gen, 128);
    rc = rc >= 0 ? rc : default_ints(&a.depth, 0);
    if (rc < 0) {
        models[0] = a.model.path;
        size_t n = (a.n_prompt.n + a.n_gen.n) * a.depth.n;
        qn_bench_test *tests = qn_calloc(n, sizeof *tests);
        double *seconds = qn_calloc(n * sizeof *seconds, (size_t)a.repeats);
        rc = tests != NULL && seconds != NULL ? measure_all(&a, models, tests, seconds)
                                              : qn_cli_error("out of memory");
        free(tests);
        free(seconds);
    }
    qn_ints_free(&a.n_prompt);
    qn_ints_free(&a.n_gen);
    qn_ints_free(&a.depth);
    qn_ints_free(&a.model.end_tokens);
    return rc;
}
