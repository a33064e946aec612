/* emu_knobs [WORD]: kernels of decode at both ends of everything that may be chosen of them, under emulation,
 * against the shipped choice: equal bit for bit where sums keep their order, else within the order's
 * rounding. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu_exec.h"
#include "emu_knobs.h"

typedef struct runner {
    const char *word;
    int n_run, n_equal, n_failed, n_changed[QN_KNOBS_KINDS];
    double worst;
} runner;

/* What a run leaves: the outputs of the last step, and the cache. */
typedef struct result {
    float *out;
    uint8_t *kv;
    size_t n_out, n_kv;
} result;

static void start(emu_case *c, qn_exec *e)
{
    const qn_cuda_mem *m = emu_exec_mem(e);
    for (int i = 0; i < CASE_BUFS; i++) {
        if (c->start[i]) {
            emu_put(m->bufs[i], c->start[i], sizeof(float) * (size_t)c->bufs[i].width * CASE_UBATCH);
        }
    }
    if (c->k) {
        int rows = qn_kv_rows(&c->kv, &c->exec);
        emu_put_cache(m->k[0], c->exec.k_type, c->k, rows, c->kv.n_head_kv, c->kv.k_dim);
        emu_put_cache(m->v[0], c->exec.v_type, c->v, rows, c->kv.n_head_kv, c->kv.v_dim);
    }
    e->length = c->pos;
}

static int take(emu_case *c, qn_exec *e, int rows, result *r, qn_err *err)
{
    const qn_step *last = &c->steps[c->plans.prefill.n_step - 1];
    qn_view v = last->out[0];
    int n = c->steps[0].rows == QN_ROWS_TOKENS || c->outputs == QN_OUT_ALL ? rows : 1;
    memset(r, 0, sizeof *r);
    if (c->plans.n_kv) {
        int kv_rows = qn_kv_rows(&c->kv, &c->exec);
        r->n_kv = (size_t)kv_rows * qn_cuda_kv_bytes(c->exec.k_type, c->kv.n_head_kv, c->kv.k_dim);
        r->kv = malloc(r->n_kv);
        memcpy(r->kv, (const void *)(uintptr_t)emu_exec_mem(e)->k[0], r->n_kv);
    }
    r->n_out = (size_t)n * (size_t)v.width;
    r->out = malloc(sizeof(float) * (r->n_out + 1));
    return e->read(e, v, 0, n, r->out, err);
}

/* same: all sites of the lists that run add as shipped. */
static int run(runner *r, emu_case *c, int set, bool decode, result *out, bool *same, qn_err *err)
{
    static int32_t tokens[CASE_UBATCH];
    int n_program, rows = decode ? 1 : 3;
    emu_exec_opts eo = {.variant = QN_VARIANT_SM80,
                        .multiprocessors = CASE_MULTIPROCESSORS,
                        .seed = 77u + (uint64_t)set,
                        .list = EMU_LIST_FEW,
                        .knobs = emu_knob_set,
                        .knobs_user = &set};
    eo.programs = emu_programs(&n_program);
    eo.n_program = n_program;
    qn_exec *e = NULL;
    if (emu_exec_new(&e, &c->plans, &c->exec, &eo, err)) {
        return -1;
    }
    const qn_lowered *low = emu_exec_lowered(e);
    const qn_cuda_list *list = decode ? &low->decode : &low->few;
    *same = true;
    for (int i = 0; i < list->n; i++) {
        const qn_site *s = list->actions[i].site ? &low->sites[list->actions[i].site - 1] : NULL;
        *same = *same && (!s || qn_knobs_same_sums(s->kind, &s->shipped, &s->now));
        if (s && s->tuned) {
            r->n_changed[s->kind]++;
        }
    }
    start(c, e);
    qn_run q = {.tokens = tokens,
                .n = rows,
                .pos = c->pos,
                .outputs = c->outputs,
                .phase = decode ? QN_PHASE_DECODE : QN_PHASE_PREFILL,
                .stop_after = c->plans.prefill.n_step - 1};
    int rc = e->run(e, &q, err) || take(c, e, rows, out, err) ? -1 : 0;
    e->free(e);
    return rc;
}

static double difference(const result *a, const result *b)
{
    double d2 = 0, all = 0;
    for (size_t i = 0; i < a->n_out; i++) {
        double d = (double)a->out[i] - (double)b->out[i];
        d2 += d * d;
        all += (double)a->out[i] * (double)a->out[i];
    }
    return all > 0 ? d2 / all : d2;
}

static bool equal(const result *a, const result *b)
{
    return memcmp(a->out, b->out, sizeof(float) * a->n_out) == 0 &&
           (a->n_kv == 0 || memcmp(a->kv, b->kv, a->n_kv) == 0);
}

static void drop(result *r)
{
    free(r->out);
    free(r->kv);
    memset(r, 0, sizeof *r);
}

/* Chains round to 8 bits between their steps; attention rounds weights to f16 against another maximum. */
static double tolerance(const emu_case *c)
{
    return c->plans.prefill.n_step >= 3 ? 1e-5 : c->plans.n_kv ? 1e-6 : 1e-11;
}

static int run_route(runner *r, emu_case *c, bool decode, const char *route)
{
    result want = {0}, got = {0};
    qn_err err = {""};
    bool same;
    if (run(r, c, 0, decode, &want, &same, &err)) {
        printf("FAILED %s%s, shipped: %s\n", c->name, route, err.text);
        r->n_failed++;
    }
    for (int set = 1; set < EMU_KNOB_SETS && want.out; set++) {
        int rc = run(r, c, set, decode, &got, &same, &err);
        double d = rc ? 1 : difference(&want, &got);
        r->n_run++;
        r->n_equal += rc == 0 && same;
        r->worst = rc == 0 && d > r->worst ? d : r->worst;
        if (rc || (same ? !equal(&want, &got) : !(d <= tolerance(c)))) {
            r->n_failed++;
            printf("FAILED %s%s, %s, set %d: %s NMSE %.2e%s\n", c->name, route, decode ? "decode" : "few",
                   set, err.text, d, same ? ", and the order of sums is the same" : "");
        }
        drop(&got);
    }
    drop(&want);
    return 0;
}

static int run_case(void *user, emu_case *c)
{
    runner *r = user;
    if (r->word && !strstr(c->name, r->word)) {
        return 0;
    }
    bool rows_too = c->plans.n_kv && c->exec.k_type == QN_CACHE_F16 && c->exec.v_type == QN_CACHE_F16;
    for (int decode = 0; decode < 2; decode++) {
        run_route(r, c, decode, "");
        c->exec.rows_attention = true;
        if (rows_too) {
            run_route(r, c, decode, " by rows");
        }
        c->exec.rows_attention = false;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static runner r;
    r.word = argc > 1 ? argv[1] : NULL;
    emu_knob_cases(run_case, &r);
    int kinds = 0;
    for (int i = 0; i < QN_KNOBS_KINDS; i++) {
        kinds += r.n_changed[i] > 0;
    }
    printf("%d runs, %d of them with sums in the same order, %d failed, worst NMSE %.2e; launches chosen:",
           r.n_run, r.n_equal, r.n_failed, r.worst);
    for (int i = 0; i < QN_KNOBS_KINDS; i++) {
        printf(" %d", r.n_changed[i]);
    }
    putchar('\n');
    return r.n_failed || (!r.word && (kinds != QN_KNOBS_KINDS || r.n_equal == 0));
}
