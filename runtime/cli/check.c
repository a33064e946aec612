#include "cli/check.h"

#include <string.h>

#include "cli/cli.h"
#include "cli/json.h"

int qn_checker_open(qn_checker *c, const quern_session *s)
{
    qn_err err;
    qn_exec_opts opts = s->exec->opts;
    *c = (qn_checker){.s = s};
    opts.exact = true;
    opts.cuda = false;
    if (qn_cpu_exec_new(&c->reference, s->m->plans, &opts, &err) ||
        qn_check_new(&c->check, s->exec, c->reference, &err)) {
        qn_cli_error("--check: %s", err.text);
        qn_checker_close(c);
        return -1;
    }
    qn_cli_note("checking every step of backend %s%s against the exact reference functions", s->exec->name,
                s->exec->opts.exact ? " exact" : "");
    return 0;
}

void qn_checker_close(qn_checker *c)
{
    qn_check_free(c->check);
    if (c->reference) {
        c->reference->free(c->reference);
    }
    memset(c, 0, sizeof *c);
}

int qn_checker_tokens(qn_checker *c, const int32_t *ids, size_t n, int chunk, qn_phase phase, float *logits)
{
    qn_err err;
    for (size_t done = 0; done < n;) {
        size_t m = n - done < (size_t)chunk ? n - done : (size_t)chunk;
        if (qn_check_run(c->check, ids + done, (int)m, phase, logits, &err)) {
            qn_cli_error("--check: %s", err.text);
            return -1;
        }
        done += m;
    }
    return 0;
}

static json_t *row_json(const qn_check_row *r)
{
    json_t *o = json_object();
    int bad = 0;
    bad |= qn_json_set(o, "op", qn_json_str(r->op->name));
    bad |= qn_json_set(o, "phase", qn_json_str(r->phase == QN_PHASE_DECODE ? "decode" : "prefill"));
    bad |= qn_json_set(o, "arithmetic", qn_json_str(qn_names_arith[r->arith]));
    bad |= qn_json_set(o, "kv", json_boolean(r->kv));
    bad |= qn_json_set(o, "n", json_integer(r->n));
    bad |= qn_json_set(o, "n_failed", json_integer(r->n_failed));
    bad |= qn_json_set(o, "worst_nmse", qn_json_real(r->worst));
    bad |= qn_json_set(o, "tolerance", qn_json_real(r->tolerance));
    bad |= qn_json_set(o, "worst_step", qn_json_str(r->worst_step));
    return qn_json_whole(o, bad);
}

static int print_json(const qn_check_row *rows, int n, const char *failure)
{
    json_t *o = json_object(), *steps = json_array();
    int bad = qn_json_set(o, "passed", json_boolean(failure == NULL));
    for (int i = 0; i < n; i++) {
        bad |= json_array_append_new(steps, row_json(&rows[i]));
    }
    bad |= qn_json_set(o, "steps", steps);
    return qn_json_print(qn_json_whole(o, bad), JSON_INDENT(2));
}

int qn_checker_report(const qn_checker *c, bool json)
{
    int n;
    const qn_check_row *rows = qn_check_rows(c->check, &n);
    const char *failure = qn_check_failure(c->check);
    if (json) {
        int rc = print_json(rows, n, failure);
        return failure ? qn_cli_error("--check: %s", failure) : rc;
    }
    printf("%-13s %-8s %-7s %6s %6s %10s %10s  %s\n", "op", "phase", "arith", "steps", "failed", "worst",
           "tolerance", "step");
    for (int i = 0; i < n; i++) {
        const qn_check_row *r = &rows[i];
        char name[24];
        snprintf(name, sizeof name, "%s%s", r->kv ? "KV of " : "", r->op->name);
        printf("%-13s %-8s %-7s %6d %6d %10.2e %10.1e  %s\n", name,
               r->phase == QN_PHASE_DECODE ? "decode" : "prefill", qn_names_arith[r->arith], r->n,
               r->n_failed, r->worst, r->tolerance, r->worst_step);
    }
    if (failure) {
        fflush(stdout);
        return qn_cli_error("--check: %s", failure);
    }
    puts("all steps are within their tolerance");
    return QN_EXIT_OK;
}
