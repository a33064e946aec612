/* quern profile: where the time of a prompt or of a decode step goes, step by step (backend cuda). */
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/limits.h"
#include "cli/load.h"
#include "codegen/cost.h"
#include "engine/engine.h"

typedef struct profile_args {
    qn_model_args model;
    int n_prompt, depth, repeats;
    bool steps;
} profile_args;

static const qn_opt profile_opts[] = {
    {"-p, --n-prompt", "N", "Tokens of the measured chunk; 1: a decode step. Default: 1.", QN_OPT_INT,
     offsetof(profile_args, n_prompt), 1, 1 << 20},
    {"-d, --n-depth", "N", "Tokens that are there before it. Default: 0.", QN_OPT_INT,
     offsetof(profile_args, depth), 0, 1 << 30},
    {"-r, --repetitions", "N", "Passes; each step shows its median. Default: 9.", QN_OPT_INT,
     offsetof(profile_args, repeats), 1, 1000},
    {"--steps", NULL, "One line a step, not only the sums by kind.", QN_OPT_FLAG,
     offsetof(profile_args, steps)},
    {0},
};

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The part of a step's name behind the layer: steps of one kind share it. */
static const char *kind_of(const qn_step *s)
{
    const char *dot = s->layer >= 0 ? strchr(s->name + 4, '.') : NULL;
    return dot ? dot + 1 : s->name;
}

/* Share: of the time that the measured limits leave, by reading or by products, whichever is more. */
static void print_row(const char *name, int count, double ms, double total, double bytes, double flop,
                      const qn_limits *l)
{
    if (ms <= 0) {
        printf("%-22s %5d          - (part of a neighbouring step)\n", name, count);
        return;
    }
    printf("%-22s %5d %10.3f ms %6.1f %% %9.1f GB/s %9.2f TFLOP/s", name, count, ms, 100 * ms / total,
           bytes / ms * 1e-6, flop / ms * 1e-9);
    double reading = l->read > 0 ? 1e3 * bytes / l->read : 0, products = l->f16 > 0 ? 1e3 * flop / l->f16 : 0;
    double least = reading > products ? reading : products;
    if (l->read > 0 && l->f16 > 0 && least > 0) {
        printf(" %6.1f %% of the limit", 100 * least / ms);
    }
    putchar('\n');
}

/* What decode's launches chose, and whether that was tuned, a line a kind of step. */
static void print_choices(const qn_exec *e, const qn_plan *plan)
{
    char text[128];
    for (int i = 0; i < plan->n_step; i++) {
        bool seen = false;
        for (int k = 0; k < i; k++) {
            seen |= strcmp(kind_of(&plan->steps[k]), kind_of(&plan->steps[i])) == 0;
        }
        if (!seen && e->knobs(e, &plan->steps[i], text, sizeof text)) {
            printf("%-22s %s\n", kind_of(&plan->steps[i]), text);
        }
    }
}

static void print_profile(const profile_args *a, const qn_plan *plan, const float *ms, const qn_limits *l)
{
    double total = 0, all_bytes = 0, all_flop = 0;
    for (int i = 0; i < plan->n_step; i++) {
        total += (double)ms[i];
    }
    for (int i = 0; i < plan->n_step; i++) {
        const char *kind = kind_of(&plan->steps[i]);
        double sum = 0, bytes = 0, flop = 0;
        int count = 0;
        bool seen = false;
        for (int k = 0; k < i && !a->steps; k++) {
            seen |= strcmp(kind_of(&plan->steps[k]), kind) == 0;
        }
        for (int k = i; k < plan->n_step && !seen; k++) {
            if (a->steps ? k == i : strcmp(kind_of(&plan->steps[k]), kind) == 0) {
                qn_cost c = qn_step_cost(&plan->steps[k], a->n_prompt, a->depth, 1);
                sum += (double)ms[k];
                bytes += c.bytes;
                flop += c.flop;
                count++;
            }
        }
        if (!seen) {
            print_row(a->steps ? plan->steps[i].name : kind, count, sum, total, bytes, flop, l);
            all_bytes += bytes;
            all_flop += flop;
        }
    }
    print_row("total", plan->n_step, total, total, all_bytes, all_flop, l);
}

/* ms[i]: median of step i over the passes; all: [repeats][n_step], column: [repeats]. */
static void medians(const float *all, size_t n, size_t repeats, float *column, float *ms)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t r = 0; r < repeats; r++) {
            column[r] = all[r * n + i];
        }
        qsort(column, repeats, sizeof *column, by_value);
        ms[i] = column[repeats / 2];
    }
}

static int measure(const profile_args *a, quern_session *s)
{
    qn_err err;
    qn_exec *e = s->exec;
    const qn_plan *plan = a->n_prompt == 1 ? &e->plans->decode : &e->plans->prefill;
    size_t n = (size_t)plan->n_step, repeats = (size_t)a->repeats;
    float *all = malloc(sizeof *all * n * repeats), *ms = malloc(sizeof *ms * (n + repeats));
    int32_t *ids = malloc(sizeof *ids * (size_t)(a->depth + a->n_prompt));
    int rc = all && ms && ids ? 0 : qn_cli_error("out of memory");
    for (int i = 0; rc == 0 && i < a->depth + a->n_prompt; i++) {
        ids[i] = (int32_t)((uint32_t)i * 7919u % (uint32_t)e->plans->model->n_vocab);
    }
    if (rc == 0 && a->depth > 0 &&
        quern_session_append(s, ids, (size_t)a->depth, false, qn_public_err(&err))) {
        rc = qn_cli_error("%s", err.text);
    }
    for (size_t r = 0; rc == 0 && r < repeats; r++) {
        qn_run run = {.tokens = ids + a->depth,
                      .n = a->n_prompt,
                      .pos = a->depth,
                      .phase = a->n_prompt == 1 ? QN_PHASE_DECODE : QN_PHASE_PREFILL,
                      .stop_after = -1};
        if (e->profile(e, &run, all + r * n, &err) || e->truncate(e, a->depth, &err)) {
            rc = qn_cli_error("%s", err.text);
        }
    }
    if (rc == 0) {
        qn_limits limits = {.threads = 0};
        if (qn_limits_key(&limits, true, e->opts.device, 0, &err) != 0 ||
            !qn_limits_find(&limits, a->model.cache)) {
            qn_cli_note(
                "no shares of the limits: they were not measured yet ('quern bench --device-limits')");
        }
        medians(all, n, repeats, ms + n, ms);
        print_profile(a, plan, ms, &limits);
        if (a->n_prompt == 1 && e->knobs) {
            print_choices(e, plan);
        }
    }
    free(all);
    free(ms);
    free(ids);
    return rc;
}

int qn_cmd_profile(int argc, char **argv)
{
    profile_args a = {.model = qn_model_args_defaults, .n_prompt = 1, .repeats = 9};
    const qn_opt_group groups[] = {
        {"Profile", profile_opts, &a}, qn_load_group(&a.model), qn_backend_group(&a.model), qn_common_group};
    const qn_usage usage = {"profile",
                            "MODEL [-p N] [-d N] [options]",
                            "Measures every step of one prompt chunk or decode step on the GPU.",
                            groups,
                            sizeof groups / sizeof *groups,
                            1};
    const char *positional[1];
    qn_loaded l = {0};
    int rc = qn_opts_parse(&usage, argc, argv, positional);
    rc = rc >= 0 ? rc : qn_model_args_finish(&a.model, "profile", positional[0]);
    if (rc >= 0) {
        return rc;
    }
    a.model.n_ctx = a.model.n_ctx > 0 ? a.model.n_ctx : a.depth + a.n_prompt + 1;
    a.model.n_ubatch = a.model.n_ubatch > 0 ? a.model.n_ubatch : a.n_prompt > 512 ? a.n_prompt : 512;
    rc = qn_cli_load(&l, &a.model, QN_LOAD_SESSION) ? QN_EXIT_ERROR : QN_EXIT_OK;
    if (rc == QN_EXIT_OK && !l.session->exec->profile) {
        rc = qn_cli_error("profile: backend %s does not measure steps; use --backend cuda",
                          l.session->exec->name);
    }
    rc = rc == QN_EXIT_OK ? measure(&a, l.session) : rc;
    qn_loaded_free(&l);
    return rc;
}
