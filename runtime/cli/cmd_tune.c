/* quern tune: measures what the launches of decode may choose on the GPU, and keeps what is faster. */
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/limits.h"
#include "cli/load.h"

typedef struct tune_args {
    qn_model_args model;
    int budget, output; /* seconds; index in `outputs` */
} tune_args;

static const char *const outputs[] = {"table", "json", NULL};

static const qn_opt tune_opts[] = {
    {"--budget", "SECONDS", "About how long at most; the most promising choices come first. Default: 60.",
     QN_OPT_INT, offsetof(tune_args, budget), 1, 3600},
    {"-o, --output", "NAME", "table or json. Default: table.", QN_OPT_CHOICE, offsetof(tune_args, output), 0,
     0, outputs},
    {0},
};

/* Where the results go. */
typedef struct sink {
    bool json;
    double limit; /* bytes a second that the card reads; 0: not measured */
    json_t *rows; /* of JSON */
    int bad;
} sink;

/* GB a second of a launch; 0: not measured. */
static double rate(double bytes, double ms)
{
    return ms > 0 ? 1e-6 * bytes / ms : 0;
}

static void print_choice(const sink *s, const char *name, const char *knobs, double bytes, double ms)
{
    printf("  %-8s %-46s %9.2f us %8.1f GB/s", name, knobs, 1e3 * ms, rate(bytes, ms));
    if (s->limit > 0) {
        printf(" %5.1f %% of the limit", 1e11 * rate(bytes, ms) / s->limit);
    }
    putchar('\n');
}

static void print_row(const sink *s, const qn_tune_row *r)
{
    printf("%s: %d launches of %.3f MB, %d choices measured", r->site, r->n_launch, 1e-6 * r->bytes,
           r->n_tried);
    printf(r->n_left > 0 ? ", %d not come to\n" : "\n", r->n_left);
    if (r->shipped_ms <= 0) {
        printf("  %-8s %s\n", "shipped", r->shipped);
        return;
    }
    print_choice(s, "shipped", r->shipped, r->bytes, r->shipped_ms);
    if (r->tuned) {
        print_choice(s, "tuned", r->chosen, r->bytes, r->chosen_ms);
    }
}

static json_t *choice_json(const sink *s, const char *knobs, double bytes, double ms)
{
    json_t *o = json_object();
    int bad = qn_json_set(o, "knobs", qn_json_str(knobs));
    bad |= qn_json_set(o, "us", ms > 0 ? qn_json_real(1e3 * ms) : json_null());
    bad |= qn_json_set(o, "gb_per_second", ms > 0 ? qn_json_real(rate(bytes, ms)) : json_null());
    bad |= qn_json_set(o, "share_of_limit",
                       ms > 0 && s->limit > 0 ? qn_json_real(1e9 * rate(bytes, ms) / s->limit) : json_null());
    return qn_json_whole(o, bad);
}

static json_t *row_json(const sink *s, const qn_tune_row *r)
{
    json_t *o = json_object();
    int bad = qn_json_set(o, "launch", qn_json_str(r->site));
    bad |= qn_json_set(o, "launches", json_integer(r->n_launch));
    bad |= qn_json_set(o, "bytes", qn_json_real(r->bytes));
    bad |= qn_json_set(o, "measured", json_integer(r->n_tried));
    bad |= qn_json_set(o, "left", json_integer(r->n_left));
    bad |= qn_json_set(o, "shipped", choice_json(s, r->shipped, r->bytes, r->shipped_ms));
    bad |=
        qn_json_set(o, "tuned", r->tuned ? choice_json(s, r->chosen, r->bytes, r->chosen_ms) : json_null());
    return qn_json_whole(o, bad);
}

static void on_row(void *user, const qn_tune_row *r)
{
    sink *s = user;
    if (s->json) {
        s->bad |= json_array_append_new(s->rows, row_json(s, r));
    } else {
        print_row(s, r);
    }
}

static void on_progress(void *user, int done, int total)
{
    (void)user;
    qn_cli_progress("tune: %d of %d choices measured", done, total);
}

static int print_json(sink *s, const qn_limits *l, const qn_tune_result *r)
{
    json_t *o = json_object();
    int bad = s->bad | qn_json_set(o, "device", qn_json_str(l->device));
    bad |= qn_json_set(o, "driver", qn_json_str(l->driver));
    bad |= qn_json_set(o, "seconds", qn_json_real(r->seconds));
    bad |= qn_json_set(o, "kernels_compiled", json_integer(r->n_compiled));
    bad |= qn_json_set(o, "kept", qn_json_str(r->kept));
    bad |= qn_json_set(o, "dropped", json_boolean(r->dropped));
    bad |= qn_json_set(o, "token_ms_shipped", r->shipped_ms > 0 ? qn_json_real(r->shipped_ms) : json_null());
    bad |= qn_json_set(o, "token_ms_tuned", r->tuned_ms > 0 ? qn_json_real(r->tuned_ms) : json_null());
    bad |= qn_json_set(o, "launches", json_incref(s->rows));
    return qn_json_print(qn_json_whole(o, bad), JSON_INDENT(2));
}

static int tune(const tune_args *a, qn_exec *e)
{
    sink s = {.json = a->output == 1, .rows = json_array()};
    const qn_tune_opts o = {.seconds = a->budget, .progress = on_progress, .row = on_row, .user = &s};
    qn_limits limits = {.threads = 0};
    static qn_tune_result r;
    qn_err err;
    if (qn_limits_key(&limits, true, e->opts.device, 0, &err) == 0 &&
        qn_limits_find(&limits, a->model.cache)) {
        s.limit = limits.read;
    } else {
        qn_cli_note("no shares of the limit: it was not measured yet ('quern bench --device-limits')");
    }
    int rc = s.rows ? e->tune(e, &o, &r, &err) : qn_fail(&err, "out of memory for JSON output");
    qn_cli_progress_end();
    if (rc) {
        json_decref(s.rows);
        return qn_cli_error("tune: %s", err.text);
    }
    qn_cli_note("%d of %d launches tuned in %.1f s, %d kernels compiled; kept in %s", r.n_tuned, r.n_row,
                r.seconds, r.n_compiled, r.kept);
    if (r.shipped_ms > 0) {
        qn_cli_note("a token without its choice: %.3f ms as shipped, %.3f ms tuned%s", r.shipped_ms,
                    r.tuned_ms, r.dropped ? "; not faster, so nothing was kept" : "");
    }
    rc = s.json ? print_json(&s, &limits, &r) : QN_EXIT_OK;
    json_decref(s.rows);
    return rc;
}

int qn_cmd_tune(int argc, char **argv)
{
    tune_args a = {.model = qn_model_args_defaults, .budget = 60};
    const qn_opt_group groups[] = {
        {"Tune", tune_opts, &a}, qn_load_group(&a.model), qn_backend_group(&a.model), qn_common_group};
    const qn_usage usage = {"tune",
                            "MODEL [--budget SECONDS] [-o table|json] [options]",
                            "Measures other shapes of the launches of decode on the GPU: warps, warps that "
                            "share a row, loads under way, parts of attention, each kind of launch over the "
                            "model's own layers. What is faster than shipped by more than the noise is kept "
                            "beside the compiled kernels, for this card, driver and compiler, and serves "
                            "every later run on it (not with --tune off or --deterministic).",
                            groups,
                            sizeof groups / sizeof *groups,
                            1};
    const char *positional[1];
    qn_loaded l = {0};
    int rc = qn_opts_parse(&usage, argc, argv, positional);
    rc = rc >= 0 ? rc : qn_model_args_finish(&a.model, "tune", positional[0]);
    if (rc < 0 && (a.model.no_tune || a.model.deterministic || a.model.persistent)) {
        rc = qn_cli_usage_error("tune", "%s leaves nothing to tune",
                                a.model.persistent      ? "--persistent"
                                : a.model.deterministic ? "--deterministic"
                                                        : "--tune off");
    }
    if (rc < 0) {
        a.model.tune_seconds = 0;
        rc = qn_cli_load(&l, &a.model, QN_LOAD_SESSION) ? QN_EXIT_ERROR : QN_EXIT_OK;
        if (rc == QN_EXIT_OK && !l.session->exec->tune) {
            rc = qn_cli_error("tune: backend %s has nothing to tune; use --backend cuda",
                              l.session->exec->name);
        }
        rc = rc == QN_EXIT_OK ? tune(&a, l.session->exec) : rc;
        qn_loaded_free(&l);
    }
    qn_ints_free(&a.model.end_tokens);
    return rc;
}
