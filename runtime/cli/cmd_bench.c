/* quern bench: prompt and generation speed, measured and printed as llama.cpp does it. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/load.h"
#include "cli/sampling.h"
#include "engine/sampler.h"

enum { MAX_MODELS = 16 };

typedef struct bench_args {
    qn_model_args model;
    qn_ints n_prompt, n_gen, depth, n_seq, threads, batch, ubatch;
    int repeats;
    int output; /* QN_BENCH_* */
    bool warm_up, device_limits;
    qn_sampling_args sampling;
    quern_sampler *sampler;
} bench_args;

static const char *const outputs[] = {"table", "md", "json", "csv", "jsonl", NULL};

static const qn_opt bench_opts[] = {
    {"-p, --n-prompt", "N,...", "Prompt sizes; 0: none. Default: 512.", QN_OPT_RANGES,
     offsetof(bench_args, n_prompt), 0, 1 << 30},
    {"-n, --n-gen", "N,...", "Tokens to generate; 0: none. Default: 128.", QN_OPT_RANGES,
     offsetof(bench_args, n_gen), 0, 1 << 30},
    {"-d, --n-depth", "N,...", "Tokens in the context before each test. Default: 0.", QN_OPT_RANGES,
     offsetof(bench_args, depth), 0, 1 << 30},
    {"-npl, --n-parallel", "N,...", "Sequences at once, each with its own context; 1 to 8. Default: 1.",
     QN_OPT_RANGES, offsetof(bench_args, n_seq), 1, QUERN_MAX_SEQUENCES},
    {"-t, --threads", "N,...", "CPU threads. Default: all CPUs of this process.", QN_OPT_RANGES,
     offsetof(bench_args, threads), 1, 4096},
    {"-ub, --ubatch-size", "N,...", "Prompt tokens processed at once. Default: 512.", QN_OPT_RANGES,
     offsetof(bench_args, ubatch), 1, 1 << 30},
    {"-b, --batch-size", "N,...", "The same as -ub; of both, the smaller counts. Default: 2048.",
     QN_OPT_RANGES, offsetof(bench_args, batch), 1, 1 << 30},
    {"-r, --repetitions", "N", "Repeats of each test. Default: 5.", QN_OPT_INT, offsetof(bench_args, repeats),
     1, 1 << 20},
    {"-o, --output", "NAME", "table (or md), json, jsonl or csv. Default: table.", QN_OPT_CHOICE,
     offsetof(bench_args, output), 0, 0, outputs},
    {"--temp", "T", "Temperature of generation; 0: the likeliest token. Default: 0.", QN_OPT_FLOAT,
     offsetof(bench_args, sampling.params.temperature), 0, INT_MAX},
    {"-s, --seed", "N", "Seed of its draws; -1: a random one. Default: 1.", QN_OPT_STR,
     offsetof(bench_args, sampling.seed)},
    {"--no-warmup", NULL, "No run before the first measured one.", QN_OPT_UNSET,
     offsetof(bench_args, warm_up)},
    {"--device-limits", NULL,
     "Measure first what the device can do at most (read of memory, dense arithmetic) and keep it in the "
     "cache "
     "folder; tests are then shown beside it. Alone, without a model, it prints the figures.",
     QN_OPT_FLAG, offsetof(bench_args, device_limits)},
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

/* The token behind each sequence's last one, from its logits, by the host. */
static int choose_each(quern_session *s, quern_sampler *sampler, int n_seq, int32_t *tokens, quern_error *err)
{
    int rc = 0;
    for (int i = n_seq - 1; rc == 0 && i >= 0; i--) { /* the first one stays selected */
        rc = quern_session_select(s, i, err);
        rc = rc != 0 ? rc
                     : quern_sample(sampler, quern_session_logits(s, -1), quern_model_n_vocab(s->m),
                                    s->tokens, (size_t)quern_session_length(s), &tokens[i], err);
    }
    return rc;
}

/* One more token in each sequence, n times: chosen by the executor itself where it has a loop for that, else
 * by the host where choosing takes time, else given. */
static int generate(quern_session *s, qn_bench_test *t, quern_sampler *sampler, const int32_t *ids,
                    quern_error *err)
{
    qn_exec *e = s->exec;
    int seqs[QUERN_MAX_SEQUENCES];
    int32_t tokens[QUERN_MAX_SEQUENCES];
    qn_loop_row rows[QUERN_MAX_SEQUENCES];
    for (int i = 0; i < t->n_seq; i++) {
        seqs[i] = i;
        tokens[i] = ids[0];
        rows[i] = (qn_loop_row){
            .seq = i, .token = ids[0], .n = t->n, .how = qn_sampler_choice(sampler), .history = s->tokens};
    }
    int rc = e->loop != NULL ? e->loop(e, rows, t->n_seq, qn_engine_err(err)) : 1;
    t->by_device = rc == 0;
    if (rc != 1) {
        return rc;
    }
    bool draws = qn_bench_draws(t->sampler);
    rc = 0;
    for (int k = 0; rc == 0 && k < t->n; k++) {
        for (int i = 0; i < t->n_seq && !draws; i++) {
            tokens[i] = ids[k];
        }
        rc = quern_session_append_each(s, seqs, tokens, t->n_seq, err);
        rc = rc == 0 && draws ? choose_each(s, sampler, t->n_seq, tokens, err) : rc;
    }
    return rc;
}

/* The selected sequence holds depth tokens. */
static int set_depth(quern_session *s, int depth, const int32_t *ids, quern_error *err)
{
    int held = quern_session_length(s);
    if (quern_session_truncate(s, held < depth ? 0 : depth, err) != 0) {
        return -1;
    }
    held = quern_session_length(s);
    return held < depth ? quern_session_append(s, ids + held, (size_t)(depth - held), false, err) : 0;
}

/* One run of a test; every sequence holds t->depth tokens before. */
static int run_once(quern_session *s, qn_bench_test *t, quern_sampler *sampler, const int32_t *ids,
                    double *seconds)
{
    quern_error err;
    int rc = 0;
    for (int i = t->n_seq - 1; rc == 0 && i >= 0; i--) { /* the first one stays selected */
        rc = quern_session_select(s, i, &err) != 0 || set_depth(s, t->depth, ids, &err) != 0;
    }
    double start = qn_seconds();
    if (rc == 0 && t->gen) {
        rc = generate(s, t, sampler, ids + t->depth, &err);
    }
    for (int i = t->n_seq - 1; rc == 0 && !t->gen && i >= 0; i--) {
        rc = quern_session_select(s, i, &err) != 0 ||
             quern_session_append(s, ids + t->depth, (size_t)t->n, false, &err) != 0;
    }
    if (rc != 0) {
        qn_cli_error("%s", err.text);
        return -1;
    }
    *seconds = qn_seconds() - start;
    return 0;
}

static int run_test(const bench_args *a, quern_session *s, qn_bench_test *t, const int32_t *ids)
{
    double ignored;
    qn_bench_test warm = *t;
    char name[48];
    warm.n = t->gen ? 1 : t->n;
    qn_bench_name(t, name);
    int n_warm = !a->warm_up                     ? 0
                 : !t->gen && s->exec->opts.cuda ? 2
                                                 : 1; /* a prompt's second run is captured */
    for (int i = 0; i < n_warm; i++) {
        if (run_once(s, &warm, a->sampler, ids, &ignored) != 0) {
            return -1;
        }
    }
    for (int r = 0; r < a->repeats; r++) {
        qn_cli_progress("bench: %s, run %d of %d", name, r + 1, a->repeats);
        if (run_once(s, t, a->sampler, ids, &t->seconds[r]) != 0) {
            return -1;
        }
    }
    qn_cli_progress_end();
    if (s->exec->stats.graph_off[0] != 0 && !a->model.no_graph) {
        qn_cli_error("%s was measured without a graph: %s", name, s->exec->stats.graph_off);
        return -1;
    }
    return 0;
}

/* Where results go: one after the other, or JSON that is printed at the end. */
typedef struct sink {
    int output;
    size_t n;
    json_t *json;
    bool said; /* that the device's limits are not known */
} sink;

static int put(sink *k, const qn_bench_test *t)
{
    if (k->output == QN_BENCH_TABLE || k->output == QN_BENCH_MARKDOWN) {
        qn_bench_table(t, k->n == 0);
    } else if (k->output == QN_BENCH_CSV) {
        qn_bench_csv(t, k->n == 0);
    } else if (k->output == QN_BENCH_JSONL) {
        return qn_json_print(qn_bench_json(t), JSON_COMPACT);
    } else if (json_array_append_new(k->json, qn_bench_json(t)) != 0) {
        return qn_cli_error("out of memory for JSON output");
    }
    k->n++;
    fflush(stdout);
    return QN_EXIT_OK;
}

/* The limits of a session's device, as far as they were measured. */
static void find_limits(const bench_args *a, const quern_session *s, qn_limits *l, sink *k)
{
    qn_err err;
    const qn_exec_opts *o = &s->exec->opts;
    if (qn_limits_key(l, o->cuda, o->device, o->n_threads, &err) != 0) {
        qn_cli_note("the device's limits are not known: %s", err.text);
    } else if (!qn_limits_find(l, a->model.cache) && !k->said) {
        qn_cli_note("the limits of %s%s were not measured yet: 'quern bench --device-limits' does it",
                    l->device, o->cuda ? "" : " with these threads");
        k->said = true;
    }
}

/* Longest context that a test needs; 0: there is no test. */
static int longest_test(const bench_args *a)
{
    int longest = 0;
    for (size_t d = 0; d < a->depth.n; d++) {
        for (size_t i = 0; i < a->n_prompt.n + a->n_gen.n; i++) {
            int n = i < a->n_prompt.n ? a->n_prompt.items[i] : a->n_gen.items[i - a->n_prompt.n];
            longest = n > 0 && n + a->depth.items[d] > longest ? n + a->depth.items[d] : longest;
        }
    }
    return longest;
}

/* All tests of one session: for each depth the prompts, then the generations. */
static int measure_session(const bench_args *a, quern_session *s, int n_seq, const int32_t *ids,
                           double *seconds, sink *k)
{
    int rc = QN_EXIT_OK;
    size_t per_depth = a->n_prompt.n + a->n_gen.n;
    qn_limits limits;
    find_limits(a, s, &limits, k);
    for (size_t i = 0; rc == QN_EXIT_OK && i < a->depth.n * per_depth; i++) {
        size_t at = i % per_depth;
        bool gen = at >= a->n_prompt.n;
        qn_bench_test t = {.s = s,
                           .sampler = &a->sampling.params,
                           .path = a->model.path,
                           .limits = &limits,
                           .n_batch = a->model.n_batch,
                           .n = gen ? a->n_gen.items[at - a->n_prompt.n] : a->n_prompt.items[at],
                           .depth = a->depth.items[i / per_depth],
                           .n_seq = n_seq,
                           .gen = gen,
                           .repeats = a->repeats,
                           .seconds = seconds};
        if (t.n > 0) {
            rc = run_test(a, s, &t, ids) == 0 ? put(k, &t) : QN_EXIT_ERROR;
        }
    }
    return rc;
}

/* One setting of the options that a session is made with. */
static int measure(const bench_args *a, int n_seq, int longest, double *seconds, sink *k)
{
    qn_loaded l;
    qn_model_args m = a->model;
    m.n_sequences = n_seq;
    if (qn_cli_load(&l, &m, QN_LOAD_SESSION) != 0) {
        return QN_EXIT_ERROR;
    }
    int rc;
    int32_t *ids = qn_calloc((size_t)longest, sizeof *ids);
    if (ids == NULL) {
        rc = qn_cli_error("out of memory for %d tokens", longest);
    } else {
        fill_tokens(ids, longest, quern_model_n_vocab(l.model));
        rc = measure_session(a, l.session, n_seq, ids, seconds, k);
    }
    free(ids);
    qn_loaded_free(&l);
    return rc;
}

/* Every model with every combination of threads, batches and sequences. */
static int measure_all(bench_args *a, const char *const *models)
{
    int longest = longest_test(a), rc = QN_EXIT_OK;
    if (longest == 0) {
        return qn_cli_usage_error("bench", "nothing to measure: -p and -n are 0");
    }
    a->model.n_ctx = a->model.n_ctx > longest ? a->model.n_ctx : longest;
    double *seconds = qn_calloc((size_t)a->repeats, sizeof *seconds);
    sink k = {.output = a->output, .json = json_array()};
    if (seconds == NULL || k.json == NULL) {
        rc = qn_cli_error("out of memory");
    }
    size_t per_model = a->ubatch.n * a->batch.n * a->threads.n * a->n_seq.n;
    for (size_t i = 0; rc == QN_EXIT_OK && models[i / per_model] != NULL; i++) {
        size_t at = i % per_model;
        a->model.path = models[i / per_model];
        int n_seq = a->n_seq.items[at % a->n_seq.n];
        at /= a->n_seq.n;
        a->model.n_threads = a->threads.items[at % a->threads.n];
        at /= a->threads.n;
        a->model.n_batch = a->batch.items[at % a->batch.n];
        a->model.n_ubatch = a->ubatch.items[at / a->batch.n];
        rc = measure(a, n_seq, longest, seconds, &k);
    }
    free(seconds);
    if (rc == QN_EXIT_OK && a->output == QN_BENCH_JSON) {
        return qn_json_print(k.json, JSON_INDENT(2));
    }
    json_decref(k.json);
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

static int set_defaults(bench_args *a)
{
    const struct {
        qn_ints *list;
        int value;
    } lists[] = {{&a->n_prompt, 512}, {&a->n_gen, 128},  {&a->depth, 0},   {&a->n_seq, 1},
                 {&a->threads, 0},    {&a->batch, 2048}, {&a->ubatch, 512}};
    int rc = -1;
    for (size_t i = 0; rc < 0 && i < sizeof lists / sizeof *lists; i++) {
        rc = default_ints(lists[i].list, lists[i].value);
    }
    return rc;
}

/* The sampler of generated tokens. -1: go on. */
static int make_sampler(bench_args *a)
{
    quern_error err;
    int rc = qn_sampling_finish(&a->sampling, "bench");
    if (rc < 0 && quern_sampler_new(&a->sampler, &a->sampling.params, &err) != 0) {
        rc = qn_cli_error("%s", err.text);
    }
    if (rc < 0 && qn_bench_draws(&a->sampling.params)) {
        qn_sampling_show(&a->sampling.params);
    }
    return rc;
}

static int run(bench_args *a, const char **models)
{
    bool has_model = models[0] != NULL || a->model.path != NULL;
    int rc = -1;
    if (a->device_limits) {
        bool json = a->output == QN_BENCH_JSON || a->output == QN_BENCH_JSONL;
        rc = qn_limits_measure(&a->model, a->threads.items, a->threads.n, json, !has_model);
        if (rc != QN_EXIT_OK || !has_model) {
            return rc;
        }
    }
    rc = qn_model_args_finish(&a->model, "bench", models[0]);
    rc = rc >= 0 ? rc : set_defaults(a);
    rc = rc >= 0 ? rc : make_sampler(a);
    models[0] = a->model.path;
    return rc >= 0 ? rc : measure_all(a, models);
}

int qn_cmd_bench(int argc, char **argv)
{
    bench_args a = {.model = qn_model_args_defaults,
                    .repeats = 5,
                    .warm_up = true,
                    .sampling = qn_sampling_args_defaults()};
    a.sampling.params.temperature = 0;
    a.sampling.seed = "1";
    const qn_opt_group groups[] = {{"Bench", bench_opts, &a},
                                   qn_sampling_filters_group(&a.sampling),
                                   qn_load_group(&a.model),
                                   qn_device_group(&a.model),
                                   qn_common_group};
    const qn_usage usage = {
        "bench",
        "MODEL... [-p N,...] [-n N,...] [-d N,...] [-npl N,...] [-r N] [options], or --device-limits",
        "Measures tokens per second of prompts (pp) and of generation (tg), each after -d tokens of context; "
        "beside them the arithmetic of a prompt and the bytes of weights and KV cache that generation reads, "
        "and "
        "their share of what the device can do. Lists may have ranges: 1-8, 512-2048+512, 1-64*2; an option "
        "given "
        "again adds to its list.",
        groups,
        sizeof groups / sizeof *groups,
        MAX_MODELS};
    const char *models[MAX_MODELS + 1] = {NULL};
    int rc = qn_opts_parse(&usage, argc, argv, models);
    rc = rc >= 0 ? rc : run(&a, models);
    quern_sampler_free(a.sampler);
    qn_ints *lists[] = {&a.n_prompt, &a.n_gen, &a.depth,  &a.n_seq,
                        &a.threads,  &a.batch, &a.ubatch, &a.model.end_tokens};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        qn_ints_free(lists[i]);
    }
    return rc;
}
