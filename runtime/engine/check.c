#include "engine/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 2 * 2 * QN_OP_COUNT * (QN_ARITH_COUNT + 1) };

struct qn_check {
    qn_exec *tested, *reference;
    float *a, *b;             /* [n_ubatch][widest buffer] */
    float *ka, *va, *kb, *vb; /* [n_ubatch][widest KV row] */
    qn_check_row rows[MAX_ROWS];
    int n_row;
    char failure[QN_ERR_MAX];
};

double qn_check_nmse(const float *a, const float *b, int rows, int width)
{
    double all = 0, worst = 0;
    for (size_t i = 0; i < (size_t)rows * (size_t)width; i++) {
        if (!isfinite(a[i])) {
            return INFINITY;
        }
        all += (double)b[i] * (double)b[i];
    }
    double least = rows > 0 ? 1e-3 * all / rows : 0;
    for (int r = 0; r < rows; r++) {
        double error = 0, energy = 0;
        for (int i = 0; i < width; i++) {
            double x = (double)a[(size_t)r * (size_t)width + (size_t)i];
            double y = (double)b[(size_t)r * (size_t)width + (size_t)i];
            error += (x - y) * (x - y);
            energy += y * y;
        }
        energy = energy > least ? energy : least;
        double nmse = error == 0 ? 0 : energy > 0 ? error / energy : INFINITY;
        worst = nmse > worst || isnan(nmse) ? nmse : worst;
    }
    return isnan(worst) ? INFINITY : worst;
}

int qn_check_new(qn_check **out, qn_exec *tested, qn_exec *reference, qn_err *err)
{
    const qn_plans *p = tested->plans;
    const qn_exec_opts *t = &tested->opts, *o = &reference->opts;
    if (reference->plans != p || t->n_ctx != o->n_ctx || t->n_ubatch != o->n_ubatch || tested->length != 0 ||
        reference->length != 0) {
        return qn_fail(err, "check: the executors differ in plans, context or chunk size, or are not empty");
    }
    size_t width = 1, kv = 1, rows = (size_t)t->n_ubatch;
    for (int i = 0; i < p->n_buf; i++) {
        width = (size_t)p->bufs[i].width > width ? (size_t)p->bufs[i].width : width;
    }
    for (int i = 0; i < p->n_kv; i++) {
        const qn_kv_cache *k = &p->kv[i];
        size_t n = (size_t)k->n_head_kv * (size_t)(k->k_dim > k->v_dim ? k->k_dim : k->v_dim);
        kv = n > kv ? n : kv;
    }
    qn_check *c = qn_calloc(1, sizeof *c);
    if (!c) {
        return qn_fail(err, "out of memory");
    }
    c->tested = tested;
    c->reference = reference;
    c->a = qn_calloc(width * rows, sizeof *c->a);
    c->b = qn_calloc(width * rows, sizeof *c->b);
    c->ka = qn_calloc(kv * rows, 4 * sizeof *c->ka);
    if (!c->a || !c->b || !c->ka) {
        qn_check_free(c);
        return qn_fail(err, "out of memory for the check of chunks of %d tokens", t->n_ubatch);
    }
    c->va = c->ka + kv * rows;
    c->kb = c->va + kv * rows;
    c->vb = c->kb + kv * rows;
    *out = c;
    return 0;
}

void qn_check_free(qn_check *c)
{
    if (c) {
        free(c->a);
        free(c->b);
        free(c->ka);
        free(c);
    }
}

const qn_check_row *qn_check_rows(const qn_check *c, int *n)
{
    *n = c->n_row;
    return c->rows;
}

const char *qn_check_failure(const qn_check *c)
{
    return c->failure[0] ? c->failure : NULL;
}

static qn_check_row *row_of(qn_check *c, const qn_step *s, qn_arith arith, qn_phase phase, bool kv,
                            double tolerance)
{
    for (int i = 0; i < c->n_row; i++) {
        qn_check_row *r = &c->rows[i];
        if (r->op == s->op && r->arith == arith && r->phase == phase && r->kv == kv &&
            r->tolerance == tolerance) {
            return r;
        }
    }
    qn_check_row *r = &c->rows[c->n_row++]; /* one of each kind at most: they fit */
    *r = (qn_check_row){s->op, arith, phase, kv, 0, 0, 0, tolerance, ""};
    return r;
}

/* rounded: the reference had the rounded activations of an 8-bit product, so that only sums in f32 differ. */
static void record(qn_check *c, const qn_run *run, const qn_step *s, qn_arith arith, bool kv, bool rounded,
                   double nmse)
{
    double tolerance = s->op->tolerance[rounded ? QN_ARITH_F32 : arith];
    qn_check_row *r = row_of(c, s, arith, run->phase, kv, tolerance);
    if (r->n == 0 || nmse > r->worst) {
        r->worst = nmse;
        snprintf(r->worst_step, sizeof r->worst_step, "%s", s->name);
    }
    r->n++;
    if (nmse <= r->tolerance) {
        return;
    }
    r->n_failed++;
    if (!c->failure[0]) {
        snprintf(c->failure, sizeof c->failure,
                 "step %s (%s%s, %s of %d tokens at position %d, %s): NMSE %.3g is beyond %.3g", s->name,
                 s->op->name, kv ? ", KV cache" : "", run->phase == QN_PHASE_DECODE ? "decode" : "prefill",
                 run->n, run->pos, qn_names_arith[arith], nmse, r->tolerance);
    }
}

/* Rows of a view in a run whose logits are asked for the last token only. */
static int view_rows(const qn_exec *e, qn_view v, int n)
{
    return e->plans->bufs[v.buf].rows == QN_ROWS_OUTPUTS ? 1 : n;
}

/* *rounded: the reference gets the activations as an 8-bit product rounds them. */
static int copy_inputs(qn_check *c, const qn_run *run, const qn_step *s, bool *rounded, qn_err *err)
{
    const qn_exec *t = c->tested;
    *rounded = false;
    for (int i = 0; i < QN_STEP_VIEWS; i++) {
        qn_view v = s->in[i];
        if (v.buf < 0) {
            continue;
        }
        int rows = view_rows(c->tested, v, run->n);
        if (c->tested->read(c->tested, v, 0, rows, c->a, err)) {
            return -1;
        }
        if (i == 0 && t->round_input && t->arith(t, run, s) == QN_ARITH_8BIT) {
            *rounded = t->round_input(t, s, c->a, rows, v.width);
        }
        if (c->reference->write(c->reference, v, 0, rows, c->a, err)) {
            return -1;
        }
    }
    return 0;
}

static int compare_outputs(qn_check *c, const qn_run *run, const qn_step *s, bool rounded, qn_err *err)
{
    qn_arith arith = c->tested->arith(c->tested, run, s);
    double worst = 0;
    for (int i = 0; i < QN_STEP_VIEWS; i++) {
        qn_view v = s->out[i];
        if (v.buf < 0) {
            continue;
        }
        int rows = view_rows(c->tested, v, run->n);
        if (c->tested->read(c->tested, v, 0, rows, c->a, err) ||
            c->reference->read(c->reference, v, 0, rows, c->b, err)) {
            return -1;
        }
        double nmse = qn_check_nmse(c->a, c->b, rows, v.width);
        worst = nmse > worst ? nmse : worst;
    }
    record(c, run, s, arith, false, rounded, worst);
    return 0;
}

/* Compares the rows that were stored, then gives the reference those of the tested executor. */
static int compare_kv(qn_check *c, const qn_run *run, const qn_step *s, qn_err *err)
{
    const qn_kv_cache *kv = &c->tested->plans->kv[s->kv];
    if (c->tested->kv_rows(c->tested, s->kv, run->pos, run->n, c->ka, c->va, false, err) ||
        c->reference->kv_rows(c->reference, s->kv, run->pos, run->n, c->kb, c->vb, false, err)) {
        return -1;
    }
    double k = qn_check_nmse(c->ka, c->kb, run->n, kv->n_head_kv * kv->k_dim);
    double v = qn_check_nmse(c->va, c->vb, run->n, kv->n_head_kv * kv->v_dim);
    record(c, run, s, QN_ARITH_F16, true, false, k > v ? k : v);
    return c->reference->kv_rows(c->reference, s->kv, run->pos, run->n, c->ka, c->va, true, err);
}

static int check_step(qn_check *c, qn_run run, const qn_plan *plan, int i, qn_err *err)
{
    const qn_step *s = &plan->steps[i];
    run.first_step = run.stop_after = i;
    run.hold = true;
    bool rounded;
    if (copy_inputs(c, &run, s, &rounded, err) || c->tested->run(c->tested, &run, err) ||
        c->reference->run(c->reference, &run, err) || compare_outputs(c, &run, s, rounded, err)) {
        return -1;
    }
    bool stores = s->op->id == QN_OP_ROPE_KV && s->kv >= 0;
    return stores ? compare_kv(c, &run, s, err) : 0;
}

int qn_check_run(qn_check *c, const int32_t *tokens, int n, qn_phase phase, float *logits, qn_err *err)
{
    const qn_plans *p = c->tested->plans;
    const qn_plan *plan = phase == QN_PHASE_DECODE ? &p->decode : &p->prefill;
    qn_run run = {.tokens = tokens,
                  .n = n,
                  .pos = c->tested->length,
                  .phase = phase,
                  .outputs = QN_OUT_LAST,
                  .logits = c->b};
    for (int i = 0; i < plan->n_step; i++) {
        if (check_step(c, run, plan, i, err)) {
            return qn_fail_prefix(err, "step %s", plan->steps[i].name);
        }
    }
    const qn_view all = {plan->logits_buf, 0, p->model->n_vocab};
    if (logits && c->tested->read(c->tested, all, 0, 1, logits, err)) {
        return -1;
    }
    /* Nothing is left to run: the lengths grow, and no logits are asked for, so that NaN is no error here. */
    run.first_step = run.stop_after = plan->n_step;
    run.outputs = QN_OUT_NONE;
    return c->tested->run(c->tested, &run, err) || c->reference->run(c->reference, &run, err) ? -1 : 0;
}
