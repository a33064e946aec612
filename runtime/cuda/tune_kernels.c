/* tune_kernels.c: choices of decode's launches, measured on the card: round by round one candidate of each
 * site against what is shipped, then the best of each once more, then all of them together in a whole token.
 */
#include "cuda/tune_kernels.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "codegen/cost.h"

enum { RUNS = 7, LAST_RUNS = 15, MAX_POSITIONS = 3 };

/* What is known of a site. */
typedef struct trial {
    qn_knobs candidates[QN_KNOB_CANDIDATES];
    int n, tried, best; /* best: index of the candidate that beat the shipped choice by most; -1: none has */
    int n_launch;       /* of a token; 0: decode has no such launch */
    float ratio;        /* of best's time to the shipped one's, of the same turns */
    float shipped_ms, chosen_ms;
    double bytes;
    qn_cu_graph_exec shipped;
} trial;

typedef struct tuner {
    qn_cuda_exec *x;
    const qn_tune_opts *o;
    qn_jit *jit;
    qn_tune_build base; /* as shipped */
    qn_tune_clock clock;
    int positions[MAX_POSITIONS], n_position;
    trial *trials; /* by site of base.low */
    int n, round;  /* round: the candidate that is built now; -1: each site's best */
    int done, total;
    double end;
} tuner;

static bool out_of_time(const tuner *t)
{
    return qn_cuda_seconds() >= t->end;
}

static void tell(tuner *t)
{
    t->done++;
    if (t->o->progress) {
        t->o->progress(t->o->user, t->done < t->total ? t->done : t->total, t->total);
    }
}

/* The sites of all lowerings of a plan come in one order; their keys need not differ. */
static int site_index(const tuner *t, const qn_site *site)
{
    for (int i = 0; i < t->n; i++) {
        const qn_site *s = &t->base.low.sites[i];
        if (strcmp(s->key, site->key) == 0 && memcmp(&s->shipped, &site->shipped, sizeof s->shipped) == 0 &&
            memcmp(&s->room, &site->room, sizeof s->room) == 0) {
            return i;
        }
    }
    return -1;
}

/* qn_lower_opts.knobs of a round. */
static bool knobs_of_round(void *user, const qn_site *site, qn_knobs *k)
{
    const tuner *t = user;
    int i = site_index(t, site);
    if (i < 0 || t->trials[i].n_launch == 0) {
        return false;
    }
    const trial *r = &t->trials[i];
    int c = t->round < 0 ? r->best : t->round < r->n ? t->round : -1;
    if (c >= 0) {
        *k = r->candidates[c];
    }
    return c >= 0;
}

/* Depths at which attention is timed; the others' time hangs on none. */
static void choose_positions(tuner *t)
{
    int last = t->x->base.opts.n_ctx - 1;
    const int wanted[MAX_POSITIONS] = {last < 100 ? last : 100, last / 4, last};
    for (int i = 0; i < MAX_POSITIONS; i++) {
        if (t->n_position == 0 || wanted[i] > t->positions[t->n_position - 1]) {
            t->positions[t->n_position++] = wanted[i];
        }
    }
}

static bool is_attention(const qn_site *s)
{
    return s->kind == QN_KNOBS_MMA || s->kind == QN_KNOBS_ROWS;
}

static void set_positions(tuner *t, const qn_site *s)
{
    t->clock.positions = t->positions;
    t->clock.n_position = s && is_attention(s) ? t->n_position : 1;
}

static int open_tuner(tuner *t, const char *place, qn_err *err)
{
    qn_cuda_exec *x = t->x;
    const qn_jit_opts jo = {.nvrtc = &x->nvrtc,
                            .arch = *qn_jit_arch(x->jit),
                            .cache_dir = place,
                            .kernel_src = x->base.opts.kernel_src};
    if (qn_jit_new(&t->jit, &jo, err) || qn_tune_build_make(&t->base, x, t->jit, NULL, NULL, NULL, err)) {
        return -1;
    }
    const qn_lowered *low = &t->base.low;
    t->n = low->n_site;
    t->trials = qn_calloc((size_t)t->n + 1, sizeof *t->trials);
    if (!t->trials) {
        return qn_fail(err, "out of memory");
    }
    choose_positions(t);
    for (int i = 0; i < low->decode.n; i++) {
        const qn_cuda_action *a = &low->decode.actions[i];
        trial *r = a->site && a->step ? &t->trials[a->site - 1] : NULL;
        for (int p = 0; r && p < (is_attention(&low->sites[a->site - 1]) ? t->n_position : 1); p++) {
            r->bytes += qn_step_cost(a->step, 1, t->positions[p], 1).bytes;
        }
        if (r) {
            r->n_launch++;
        }
    }
    for (int i = 0; i < t->n; i++) {
        trial *r = &t->trials[i];
        r->best = -1;
        r->n = r->n_launch ? qn_knobs_candidates(&low->sites[i], r->candidates) : 0;
        t->total += r->n;
        if (r->n > 0 && !(r->shipped = qn_tune_capture(&t->base, x, i, err))) {
            return -1;
        }
    }
    qn_cu_result s = x->cuda.api.EventCreate(&t->clock.from, QN_CU_EVENT_DEFAULT);
    s = s ? s : x->cuda.api.EventCreate(&t->clock.to, QN_CU_EVENT_DEFAULT);
    if (s) {
        return qn_cuda_fail(&x->cuda, s, "events", err);
    }
    t->clock.x = x;
    t->clock.before = qn_tune_capture(&t->base, x, -1, err);
    return t->clock.before ? 0 : -1;
}

static void close_tuner(tuner *t)
{
    const qn_cuda_api *cu = &t->x->cuda.api;
    for (int i = 0; t->trials && i < t->n; i++) {
        if (t->trials[i].shipped) {
            cu->GraphExecDestroy(t->trials[i].shipped);
        }
    }
    if (t->clock.before) {
        cu->GraphExecDestroy(t->clock.before);
    }
    if (t->clock.from) {
        cu->EventDestroy(t->clock.from);
    }
    if (t->clock.to) {
        cu->EventDestroy(t->clock.to);
    }
    qn_tune_build_free(&t->base, t->x);
    qn_jit_free(t->jit);
    free(t->trials);
}

/* Registers that did not suffice: what a candidate's kernels spill, that the shipped ones do not. */
static bool spills(const tuner *t, const qn_tune_build *b, int site)
{
    int most[2] = {0, 0};
    for (int k = 0; k < 2; k++) {
        const qn_tune_build *one = k ? b : &t->base;
        for (int i = 0; i < one->low.decode.n; i++) {
            const qn_cuda_action *a = &one->low.decode.actions[i];
            if (a->site != site + 1 || !one->kernels[a->program]) {
                continue;
            }
            const qn_kernel_entry *e =
                qn_kernel_find(one->kernels[a->program], one->low.programs[a->program].source.symbol);
            int n = e ? e->spill_stores + e->spill_loads : 0;
            most[k] = n > most[k] ? n : most[k];
        }
    }
    return most[1] > most[0];
}

/* One candidate of a site beside the shipped choice: ms[2 * runs]. -1: the shipped one does not run any more.
 */
static int time_site(tuner *t, const qn_tune_build *b, int site, int runs, float *ms, qn_err *err)
{
    qn_err ignored; /* what cannot be captured cannot be launched so: it is no choice */
    qn_cu_graph_exec g = qn_tune_capture(b, t->x, site, &ignored);
    for (int i = 0; i < 2 * runs; i++) {
        ms[i] = 0;
    }
    if (!g) {
        return 0;
    }
    set_positions(t, &t->base.low.sites[site]);
    qn_tune_time(&t->clock, t->trials[site].shipped, g, runs, ms);
    t->x->cuda.api.GraphExecDestroy(g);
    return qn_knobs_median(ms, runs) > 0
               ? 0
               : qn_fail(err, "measuring %s: a launch failed or took no time", t->base.low.sites[site].key);
}

static int run_round(tuner *t, qn_err *err)
{
    qn_tune_build b;
    float ms[2 * RUNS];
    bool *sites = qn_calloc((size_t)t->n + 1, sizeof *sites);
    if (!sites) {
        return qn_fail(err, "out of memory");
    }
    for (int i = 0; i < t->n; i++) {
        sites[i] = t->round < t->trials[i].n;
    }
    int rc = qn_tune_build_make(&b, t->x, t->jit, knobs_of_round, t, sites, err);
    for (int i = 0; rc == 0 && i < t->n && !out_of_time(t); i++) {
        trial *r = &t->trials[i];
        if (!sites[i]) {
            continue;
        }
        r->tried++;
        rc = spills(t, &b, i) ? 1 : time_site(t, &b, i, RUNS, ms, err);
        float ratio = rc == 0 ? qn_knobs_median(ms + RUNS, RUNS) / qn_knobs_median(ms, RUNS) : 0;
        if (rc == 0 && qn_knobs_select(ms, 2, RUNS) == 1 && (r->best < 0 || ratio < r->ratio)) {
            r->best = t->round;
            r->ratio = ratio;
        }
        if (rc == 0 && r->shipped_ms <= 0) {
            r->shipped_ms = qn_knobs_median(ms, RUNS);
        }
        rc = rc > 0 ? 0 : rc;
        tell(t);
    }
    qn_tune_build_free(&b, t->x);
    free(sites);
    return rc;
}

/* The best of each site once more: what was the luckiest of many may be none of the fastest. */
static int confirm(tuner *t, const qn_tune_build *b, qn_err *err)
{
    float ms[2 * LAST_RUNS];
    for (int i = 0; i < t->n; i++) {
        trial *r = &t->trials[i];
        if (r->best < 0) {
            continue;
        }
        if (time_site(t, b, i, LAST_RUNS, ms, err)) {
            return -1;
        }
        r->shipped_ms = qn_knobs_median(ms, LAST_RUNS);
        r->chosen_ms = qn_knobs_median(ms + LAST_RUNS, LAST_RUNS);
        r->best = qn_knobs_select(ms, 2, LAST_RUNS) == 1 ? r->best : -1;
    }
    return 0;
}

static int count_best(const tuner *t)
{
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        n += t->trials[i].best >= 0;
    }
    return n;
}

/* All choices together, in a whole token: where that is not faster they are dropped. */
static int time_token(tuner *t, qn_tune_result *r, qn_err *err)
{
    qn_tune_build b;
    float ms[2 * LAST_RUNS];
    if (qn_tune_build_make(&b, t->x, t->jit, knobs_of_round, t, NULL, err)) {
        return -1;
    }
    qn_cu_graph_exec g = qn_tune_capture(&b, t->x, -1, err);
    if (g) {
        set_positions(t, NULL);
        qn_tune_time(&t->clock, t->clock.before, g, LAST_RUNS, ms);
        t->x->cuda.api.GraphExecDestroy(g);
        r->shipped_ms = (double)qn_knobs_median(ms, LAST_RUNS);
        r->tuned_ms = (double)qn_knobs_median(ms + LAST_RUNS, LAST_RUNS);
        r->dropped = !(r->tuned_ms > 0 && r->tuned_ms < r->shipped_ms);
    }
    for (int i = 0; i < t->n && r->dropped; i++) {
        t->trials[i].best = -1;
    }
    qn_tune_build_free(&b, t->x);
    return g ? 0 : -1;
}

static int finish(tuner *t, qn_tune_result *r, qn_err *err)
{
    qn_tune_build b;
    bool *sites = qn_calloc((size_t)t->n + 1, sizeof *sites);
    if (!sites) {
        return qn_fail(err, "out of memory");
    }
    t->round = -1;
    for (int i = 0; i < t->n; i++) {
        sites[i] = t->trials[i].best >= 0;
    }
    int rc = count_best(t) ? qn_tune_build_make(&b, t->x, t->jit, knobs_of_round, t, sites, err) : 0;
    if (rc == 0 && count_best(t)) {
        rc = confirm(t, &b, err);
        qn_tune_build_free(&b, t->x);
    }
    free(sites);
    return rc == 0 && count_best(t) ? time_token(t, r, err) : rc;
}

/* A site whose candidates were all measured is kept with what it has, shipped or not; another one where it
 * has a better choice. */
static int keep(const tuner *t, const char *place, qn_tune_result *r, qn_err *err)
{
    qn_choices c;
    char text[QN_KNOB_TEXT];
    const qn_kernel_world w = qn_kernel_world_of(t->x);
    if (qn_kernel_choices_open(&c, place, &w, err)) {
        return -1;
    }
    bool ok = true;
    for (int i = 0; i < t->n && ok; i++) {
        const trial *one = &t->trials[i];
        const qn_site *s = &t->base.low.sites[i];
        if (one->best >= 0 || (one->n > 0 && one->tried == one->n)) {
            const qn_knobs *k = one->best >= 0 ? &one->candidates[one->best] : &s->shipped;
            ok = qn_choices_put(&c, s->key, qn_knobs_text(s->kind, k, text));
        }
    }
    snprintf(r->kept, sizeof r->kept, "%s", c.path);
    int rc = ok ? qn_choices_keep(&c, err) : qn_fail(err, "too many choices in %s", c.path);
    qn_choices_free(&c);
    return rc;
}

static void report(const tuner *t, qn_tune_result *r)
{
    char shipped[QN_KNOB_TEXT], chosen[QN_KNOB_TEXT];
    for (int i = 0; i < t->n; i++) {
        const trial *one = &t->trials[i];
        const qn_site *s = &t->base.low.sites[i];
        if (one->n_launch == 0) {
            continue;
        }
        bool tuned = one->best >= 0;
        double n = one->n_launch, shipped_ms = (double)one->shipped_ms / n;
        const qn_tune_row row = {
            .site = s->key,
            .shipped = qn_knobs_text(s->kind, &s->shipped, shipped),
            .chosen = qn_knobs_text(s->kind, tuned ? &one->candidates[one->best] : &s->shipped, chosen),
            .tuned = tuned,
            .n_launch = one->n_launch,
            .n_tried = one->tried,
            .n_left = one->n - one->tried,
            .shipped_ms = shipped_ms,
            .chosen_ms = tuned ? (double)one->chosen_ms / n : shipped_ms,
            .bytes = one->bytes / n};
        r->n_row++;
        r->n_tuned += tuned;
        if (t->o->row) {
            t->o->row(t->o->user, &row);
        }
    }
}

/* Measuring wrote rows of caches that nothing has written for a session, and may have ended between the parts
 * of an attention. */
static int clean_up(qn_cuda_exec *x, qn_err *err)
{
    const qn_plans *p = x->base.plans;
    const qn_exec_opts *o = &x->base.opts;
    const qn_cuda_sizes z = qn_cuda_scratch_sizes(p, o);
    qn_cu_result r = QN_CU_SUCCESS;
    for (int i = 0; i < p->n_kv && !r; i++) {
        const qn_kv_cache *kv = &p->kv[i];
        size_t rows = (size_t)qn_n_seq(o) * (size_t)qn_kv_rows(kv, o);
        r = x->cuda.api.MemsetD8Async(
            x->mem.k[i], 0, rows * qn_cuda_kv_bytes(o->k_type, kv->n_head_kv, kv->k_dim), x->stream);
        r = r ? r
              : x->cuda.api.MemsetD8Async(
                    x->mem.v[i], 0, rows * qn_cuda_kv_bytes(o->v_type, kv->n_head_kv, kv->v_dim), x->stream);
    }
    if (!r && z.part_count) {
        r = x->cuda.api.MemsetD8Async(x->mem.part_count, 0, z.part_count, x->stream);
    }
    r = r ? r : x->cuda.api.StreamSynchronize(x->stream);
    return r ? qn_cuda_fail(&x->cuda, r, "clearing what was measured with", err) : 0;
}

int qn_cuda_tune(qn_exec *e, const qn_tune_opts *o, qn_tune_result *r, qn_err *err)
{
    qn_cuda_exec *x = (qn_cuda_exec *)e;
    char place[QN_PATH_MAX];
    const char *why;
    double start = qn_cuda_seconds(), longest = 0;
    memset(r, 0, sizeof *r);
    if (!qn_cache_place(place, sizeof place, e->opts.cache, &why)) {
        return qn_fail(err, "choices are kept in the folder of compiled kernels, and there is none (%s)",
                       why);
    }
    if (e->length > 0 || e->opts.persistent) {
        return qn_fail(err, e->length > 0 ? "only an empty session can measure its kernels"
                                          : "phases of the persistent kernel have nothing to choose");
    }
    x->cuda.api.CtxSetCurrent(x->ctx);
    tuner t = {.x = x, .o = o, .end = start + o->seconds};
    int rc = open_tuner(&t, place, err);
    int most = 0;
    for (int i = 0; rc == 0 && i < t.n; i++) {
        most = t.trials[i].n > most ? t.trials[i].n : most;
    }
    /* The last tenth is for the comparisons at the end; a round is not begun that would hardly end in time.
     */
    for (t.end -= 0.1 * o->seconds; rc == 0 && t.round < most && qn_cuda_seconds() + longest < t.end;
         t.round++) {
        double before = qn_cuda_seconds();
        rc = run_round(&t, err);
        double took = qn_cuda_seconds() - before;
        longest = took > longest ? took : longest;
    }
    rc = rc ? rc : finish(&t, r, err);
    rc = rc ? rc : keep(&t, place, r, err);
    if (rc == 0) {
        report(&t, r);
    }
    r->n_compiled = t.jit ? qn_jit_compiles(t.jit) : 0;
    close_tuner(&t);
    qn_err late;
    if (clean_up(x, rc ? &late : err) && rc == 0) {
        rc = -1;
    }
    r->seconds = qn_cuda_seconds() - start;
    return rc;
}
