/* quern bench: prompt and generation speed, measured and printed as llama.cpp does it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/load.h"
#include "cli/model_facts.h"
#include "engine/memory.h"

typedef struct bench_args {
    qn_model_args model;
    qn_ints n_prompt, n_gen;
    int repeats;
    int output; /* index in `outputs` */
    bool warm_up;
} bench_args;

typedef struct bench_test {
    int n;
    bool gen;
    double *seconds; /* [repeats] */
} bench_test;

static const char *const outputs[] = {"table", "json", NULL};

static const qn_opt bench_opts[] = {
    {"-p, --n-prompt", "N,...", "Prompt sizes; 0: none. Default: 512.", QN_OPT_INTS,
     offsetof(bench_args, n_prompt), 0, 1 << 30},
    {"-n, --n-gen", "N,...", "Tokens to generate; 0: none. Default: 128.", QN_OPT_INTS,
     offsetof(bench_args, n_gen), 0, 1 << 30},
    {"-r, --repetitions", "N", "Repeats of each test. Default: 5.", QN_OPT_INT, offsetof(bench_args, repeats),
     1, 1 << 20},
    {"-o, --output", "NAME", "table or json. Default: table.", QN_OPT_CHOICE, offsetof(bench_args, output), 0,
     0, outputs},
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

/* One run of a test from an empty context. */
static int run_once(quern_session *s, const bench_test *t, const int32_t *ids, double *seconds)
{
    quern_error err;
    if (quern_session_truncate(s, 0, &err) != 0) {
        qn_cli_error("%s", err.text);
        return -1;
    }
    double start = qn_seconds();
    int rc = 0;
    if (!t->gen) {
        rc = quern_session_append(s, ids, (size_t)t->n, false, &err);
    }
    for (int i = 0; t->gen && rc == 0 && i < t->n; i++) {
        rc = quern_session_append(s, ids + i, 1, false, &err);
    }
    if (rc != 0) {
        qn_cli_error("%s", err.text);
        return -1;
    }
    *seconds = qn_seconds() - start;
    return 0;
}

static int run_test(const bench_args *a, quern_session *s, const bench_test *t, const int32_t *ids)
{
    double ignored;
    bench_test warm = *t;
    warm.n = t->gen ? 1 : t->n;
    if (a->warm_up && run_once(s, &warm, ids, &ignored) != 0) {
        return -1;
    }
    for (int r = 0; r < a->repeats; r++) {
        if (run_once(s, t, ids, &t->seconds[r]) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Mean and standard deviation (n - 1) of f(seconds), f = n / seconds or seconds. */
static void statistics(const bench_test *t, int repeats, bool per_second, double *mean, double *sd)
{
    double sum = 0, sum2 = 0;
    for (int r = 0; r < repeats; r++) {
        sum += per_second ? t->n / t->seconds[r] : t->seconds[r];
    }
    *mean = sum / repeats;
    for (int r = 0; r < repeats; r++) {
        double d = (per_second ? t->n / t->seconds[r] : t->seconds[r]) - *mean;
        sum2 += d * d;
    }
    *sd = repeats > 1 ? sqrt(sum2 / (repeats - 1)) : 0;
}

static void print_table(const bench_args *a, const quern_session *s, const bench_test *tests, size_t n)
{
    qn_model_facts f;
    char size[24], test[32];
    qn_model_facts_get(s->m->model->gguf, &f);
    printf("| %-30s | %10s | %10s | %-9s | %7s | %8s | %20s |\n", "model", "size", "params", "backend",
           "threads", "test", "t/s");
    printf("| %.30s | %.9s: | %.9s: | %.9s | %.6s: | %.7s: | %.19s: |\n", "------------------------------",
           "----------", "----------", "----------", "-------", "--------", "--------------------");
    for (size_t i = 0; i < n; i++) {
        double mean, sd;
        char model[64], rate[64];
        statistics(&tests[i], a->repeats, true, &mean, &sd);
        snprintf(model, sizeof model, "%.40s %.20s", s->m->model->arch, f.main_type);
        snprintf(test, sizeof test, "%s%d", tests[i].gen ? "tg" : "pp", tests[i].n);
        snprintf(rate, sizeof rate, "%.2f ± %.2f", mean, sd);
        /* "±" has two bytes in one column. */
        printf("| %-30s | %10s | %8.2f M | %-9s | %7d | %8s | %21s |\n", model,
               qn_memory_text(f.tensor_bytes, size), 1e-6 * (double)f.n_params, s->exec->name,
               s->exec->opts.n_threads, test, rate);
    }
}

static int print_json(const bench_args *a, const quern_session *s, const bench_test *tests, size_t n)
{
    qn_model_facts f;
    qn_json_out o = {.indented = true};
    qn_json_open(&o, '[');
    qn_model_facts_get(s->m->model->gguf, &f);
    for (size_t i = 0; i < n; i++) {
        double mean, sd;
        qn_json_open(&o, '{');
        qn_json_add_str(&o, "build_version", quern_version());
        qn_json_add_str(&o, "model_filename", a->model.path);
        qn_json_add_str(&o, "model_type", s->m->model->arch);
        qn_json_add_str(&o, "model_quant", f.main_type);
        qn_json_add_uint(&o, "model_size", f.tensor_bytes);
        qn_json_add_uint(&o, "model_n_params", f.n_params);
        qn_json_add_str(&o, "backends", s->exec->name);
        qn_json_add_bool(&o, "exact", s->exec->opts.exact);
        qn_json_add_int(&o, "n_threads", s->exec->opts.n_threads);
        qn_json_add_int(&o, "n_ubatch", s->exec->opts.n_ubatch);
        qn_json_add_int(&o, "n_prompt", tests[i].gen ? 0 : tests[i].n);
        qn_json_add_int(&o, "n_gen", tests[i].gen ? tests[i].n : 0);
        statistics(&tests[i], a->repeats, false, &mean, &sd);
        qn_json_add_double(&o, "avg_ns", round(1e9 * mean));
        qn_json_add_double(&o, "stddev_ns", round(1e9 * sd));
        statistics(&tests[i], a->repeats, true, &mean, &sd);
        qn_json_add_double(&o, "avg_ts", mean);
        qn_json_add_double(&o, "stddev_ts", sd);
        qn_json_add_open(&o, "samples_ns", '[');
        for (int r = 0; r < a->repeats; r++) {
            qn_json_double(&o, round(1e9 * tests[i].seconds[r]));
        }
        qn_json_close(&o, ']');
        qn_json_add_open(&o, "samples_ts", '[');
        for (int r = 0; r < a->repeats; r++) {
            qn_json_double(&o, tests[i].n / tests[i].seconds[r]);
        }
        qn_json_close(&o, ']');
        qn_json_close(&o, '}');
    }
    qn_json_close(&o, ']');
    return qn_json_print(&o);
}

/* The tests that are not empty, prompt sizes first; *longest: the context they need. */
static size_t list_tests(const bench_args *a, bench_test *tests, double *seconds, int *longest)
{
    size_t n = 0;
    *longest = 0;
    for (size_t i = 0; i < a->n_prompt.n + a->n_gen.n; i++) {
        bool gen = i >= a->n_prompt.n;
        int size = gen ? a->n_gen.items[i - a->n_prompt.n] : a->n_prompt.items[i];
        if (size > 0) {
            tests[n] = (bench_test){.n = size, .gen = gen, .seconds = seconds + n * (size_t)a->repeats};
            *longest = size > *longest ? size : *longest;
            n++;
        }
    }
    return n;
}

static int measure(bench_args *a, bench_test *tests, double *seconds)
{
    int longest;
    size_t n = list_tests(a, tests, seconds, &longest);
    qn_loaded l;
    if (n == 0) {
        return qn_cli_usage_error("bench", "nothing to measure: -p and -n are 0");
    }
    a->model.n_ctx = a->model.n_ctx > longest ? a->model.n_ctx : longest;
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
    if (rc == QN_EXIT_OK && a->output == 0) {
        print_table(a, l.session, tests, n);
    } else if (rc == QN_EXIT_OK) {
        rc = print_json(a, l.session, tests, n);
    }
    free(ids);
    qn_loaded_free(&l);
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
    const qn_usage usage = {"bench",
                            "MODEL [-p N,...] [-n N,...] [-r N] [options]",
                            "Measures tokens per second of prompts (pp) and of generation (tg).",
                            groups,
                            sizeof groups / sizeof *groups,
                            1};
    const char *positional[1];
    int rc = qn_opts_parse(&usage, argc, argv, positional);
    rc = rc >= 0 ? rc : qn_model_args_finish(&a.model, "bench", positional[0]);
    rc = rc >= 0 ? rc : default_ints(&a.n_prompt, 512);
    rc = rc >= 0 ? rc : default_ints(&a.n_gen, 128);
    if (rc < 0) {
        size_t n = a.n_prompt.n + a.n_gen.n;
        bench_test *tests = qn_calloc(n, sizeof *tests);
        double *seconds = qn_calloc(n * sizeof *seconds, (size_t)a.repeats);
        rc = tests != NULL && seconds != NULL ? measure(&a, tests, seconds) : qn_cli_error("out of memory");
        free(tests);
        free(seconds);
    }
    qn_ints_free(&a.n_prompt);
    qn_ints_free(&a.n_gen);
    qn_ints_free(&a.model.end_tokens);
    return rc;
}
