/* quern profile: where the time of a prompt or of a decode step goes, step by step (backend cuda). */
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/limits.h"
#include "cli/load.h"
#include "codegen/cost.h"
#include "engine/engine.h"

typedef struct profile_args {
    qn_model_args model;
    int n_prompt, n_gen, depth, repeats;
    int output; /* index in `outputs` */
    bool steps;
} profile_args;

static const char *const outputs[] = {"table", "json", NULL};

static const qn_opt profile_opts[] = {
    {"-p, --n-prompt", "N", "Tokens of the measured chunk; 1: a decode step. Default: 1.", QN_OPT_INT,
     offsetof(profile_args, n_prompt), 1, 1 << 20},
    {"-n, --n-gen", "N", "Decode steps that are measured, each at the depth of -d: as -p 1 -r N. Default: 9.",
     QN_OPT_INT, offsetof(profile_args, n_gen), 1, 1000},
    {"-d, --n-depth", "N", "Tokens that are there before it. Default: 0.", QN_OPT_INT,
     offsetof(profile_args, depth), 0, 1 << 30},
    {"-r, --repetitions", "N", "Passes; each step shows its median. Default: 9.", QN_OPT_INT,
     offsetof(profile_args, repeats), 1, 1000},
    {"-o, --output", "NAME", "table or json. Default: table.", QN_OPT_CHOICE, offsetof(profile_args, output),
     0, 0, outputs},
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

/* A step, or all of one kind. ms 0: a part of a neighbouring step. */
typedef struct profile_row {
    const char *name;
    const qn_step *step; /* the first; NULL: the sum of all */
    int count;
    double ms, bytes, flop;
} profile_row;

/* Of the time that a row took: what the measured limits leave, by reading or by products, whichever is more;
 * 0: not known. */
static double share_of_limit(const profile_row *r, const qn_limits *l)
{
    double reading = l->read > 0 ? 1e3 * r->bytes / l->read : 0;
    double products = l->f16 > 0 ? 1e3 * r->flop / l->f16 : 0;
    double least = reading > products ? reading : products;
    return l->read > 0 && l->f16 > 0 && r->ms > 0 ? least / r->ms : 0;
}

static void print_row(const profile_row *r, double total, const qn_limits *l)
{
    if (r->ms <= 0) {
        printf("%-22s %5d          - (part of a neighbouring step)\n", r->name, r->count);
        return;
    }
    printf("%-22s %5d %10.3f ms %6.1f %% %9.1f GB/s %9.2f TFLOP/s", r->name, r->count, r->ms,
           100 * r->ms / total, r->bytes / r->ms * 1e-6, r->flop / r->ms * 1e-9);
    double share = share_of_limit(r, l);
    if (share > 0) {
        printf(" %6.1f %% of the limit", 100 * share);
    }
    putchar('\n');
}

static json_t *row_json(const profile_row *r, double total, const qn_limits *l, const qn_exec *e)
{
    json_t *o = json_object();
    double share = share_of_limit(r, l);
    char choice[128];
    int bad = qn_json_set(o, "name", qn_json_str(r->name));
    bad |= qn_json_set(o, "steps", json_integer(r->count));
    bad |= qn_json_set(o, "ms", qn_json_real(r->ms));
    bad |= qn_json_set(o, "share_of_time", qn_json_real(r->ms / total));
    bad |= qn_json_set(o, "bytes", qn_json_real(r->bytes));
    bad |= qn_json_set(o, "flop", qn_json_real(r->flop));
    bad |= qn_json_set(o, "gb_per_s", r->ms > 0 ? qn_json_real(r->bytes / r->ms * 1e-6) : json_null());
    bad |= qn_json_set(o, "tflop_per_s", r->ms > 0 ? qn_json_real(r->flop / r->ms * 1e-9) : json_null());
    bad |= qn_json_set(o, "share_of_limit", share > 0 ? qn_json_real(share) : json_null());
    if (r->step && e->knobs && e->knobs(e, r->step, choice, sizeof choice)) {
        bad |= qn_json_set(o, "choices", qn_json_str(choice));
    }
    return qn_json_whole(o, bad);
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

/* rows: [n_step + 1], the last one the sum of all. Returns how many there are. */
static int make_rows(profile_row *rows, const profile_args *a, const qn_plan *plan, const float *ms)
{
    profile_row all = {.name = "total", .count = plan->n_step};
    int n = 0;
    for (int i = 0; i < plan->n_step; i++) {
        const qn_step *s = &plan->steps[i];
        int at = a->steps ? n : 0;
        while (at < n && strcmp(rows[at].name, kind_of(s)) != 0) {
            at++;
        }
        if (at == n) {
            rows[n++] = (profile_row){.name = a->steps ? s->name : kind_of(s), .step = s};
        }
        qn_cost c = qn_step_cost(s, a->n_prompt, a->depth, 1);
        profile_row *const to[] = {&rows[at], &all};
        for (int k = 0; k < 2; k++) {
            to[k]->ms += (double)ms[i];
            to[k]->bytes += c.bytes;
            to[k]->flop += c.flop;
        }
        rows[at].count++;
    }
    rows[n++] = all;
    return n;
}

static int print_json(const profile_args *a, const profile_row *rows, int n, const qn_limits *l,
                      const qn_exec *e)
{
    json_t *o = json_object(), *steps = json_array();
    double total = rows[n - 1].ms;
    int bad = qn_json_set(o, "model", qn_json_str(a->model.path));
    bad |= qn_json_set(o, "n_prompt", json_integer(a->n_prompt > 1 ? a->n_prompt : 0));
    bad |= qn_json_set(o, "n_gen", json_integer(a->n_prompt > 1 ? 0 : 1));
    bad |= qn_json_set(o, "n_depth", json_integer(a->depth));
    bad |= qn_json_set(o, "repetitions", json_integer(a->repeats));
    bad |= qn_json_set(o, "limit_gb_per_s", l->read > 0 ? qn_json_real(l->read * 1e-9) : json_null());
    bad |= qn_json_set(o, "limit_tflop_per_s", l->f16 > 0 ? qn_json_real(l->f16 * 1e-12) : json_null());
    for (int i = 0; i < n - 1; i++) {
        bad |= json_array_append_new(steps, row_json(&rows[i], total, l, e));
    }
    bad |= qn_json_set(o, "rows", steps);
    bad |= qn_json_set(o, "total", row_json(&rows[n - 1], total, l, e));
    return qn_json_print(qn_json_whole(o, bad), JSON_INDENT(2));
}

static int print_profile(const profile_args *a, const qn_exec *e, const qn_plan *plan, const float *ms,
                         const qn_limits *l)
{
    profile_row *rows = malloc(sizeof *rows * ((size_t)plan->n_step + 1));
    if (!rows) {
        return qn_cli_error("out of memory");
    }
    int n = make_rows(rows, a, plan, ms), rc = QN_EXIT_OK;
    if (a->output == 1) {
        rc = print_json(a, rows, n, l, e);
    } else {
        for (int i = 0; i < n; i++) {
            print_row(&rows[i], rows[n - 1].ms, l);
        }
        if (a->n_prompt == 1 && e->knobs) {
            print_choices(e, plan);
        }
    }
    free(rows);
    return rc;
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
        rc = print_profile(a, e, plan, ms, &limits);
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
                            "MODEL [-p N | -n N] [-d N] [options]",
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
    if (a.n_gen > 0 && a.n_prompt > 1) {
        return qn_cli_usage_error("profile",
                                  "-n measures decode steps and -p a chunk of a prompt: one of them");
    }
    a.repeats = a.n_gen > 0 ? a.n_gen : a.repeats;
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
