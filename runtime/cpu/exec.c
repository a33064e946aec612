/* exec.c: the CPU executor: memory, and the walk over a plan's steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/kv_type.h"
#include "cpu/cpu.h"

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Bytes of one cache with heads of `dim` values. */
static size_t kv_bytes(const qn_kv_cache *kv, const qn_exec_opts *opts, int dim, qn_cache_type type)
{
    size_t width = (size_t)kv->n_head_kv * (size_t)dim;
    return (size_t)qn_n_seq(opts) * (size_t)qn_kv_rows(kv, opts) *
           (opts->exact ? sizeof(float) * width : qn_cache_bytes(type, width));
}

static size_t buf_bytes(const qn_buf *b, const qn_exec_opts *opts)
{
    return (size_t)b->width * (size_t)qn_buf_rows(b, opts) * sizeof(float);
}

/* What the steps of a plan need beyond its buffers. */
typedef struct needs {
    int max_n_in;
    size_t product;      /* floats a row */
    size_t worker_bytes; /* scratch a worker */
} needs;

static needs find_needs(const qn_plans *p, const qn_exec_opts *opts)
{
    needs n = {1, 1, qn_cpu_attention_scratch(p, opts)};
    for (int i = 0; i < p->prefill.n_step; i++) {
        const qn_step *s = &p->prefill.steps[i];
        size_t row = 0;
        if (s->op->id == QN_OP_LINEAR) {
            n.max_n_in = s->spec.linear.n_in > n.max_n_in ? s->spec.linear.n_in : n.max_n_in;
            n.product = max_size(n.product, s->spec.linear.residual ? (size_t)s->spec.linear.n_out : 0);
        } else if (s->op->id == QN_OP_GLU) {
            n.max_n_in = s->spec.glu.n_in > n.max_n_in ? s->spec.glu.n_in : n.max_n_in;
            n.product = max_size(n.product, 2 * (size_t)s->spec.glu.n_ff);
        } else if (s->op->id == QN_OP_NORM) {
            row = (size_t)s->spec.norm.n;
        } else if (s->op->id == QN_OP_ROPE_KV) {
            row = (size_t)s->spec.rope_kv.n_head_kv * (size_t)s->spec.rope_kv.v_dim;
        } else if (s->op->id == QN_OP_ALTUP) {
            row = 2 * (size_t)s->spec.altup.n;
        }
        n.worker_bytes = max_size(n.worker_bytes, row * sizeof(float));
    }
    n.worker_bytes = (n.worker_bytes + 127) / 64 * 64;
    return n;
}

static int thread_count(const qn_exec_opts *opts)
{
    return opts->n_threads > 0 ? opts->n_threads : qn_cpu_count();
}

void qn_cpu_memory(const qn_plans *p, const qn_exec_opts *opts, qn_memory *out)
{
    needs n = find_needs(p, opts);
    int threads = thread_count(opts);
    *out = (qn_memory){.weights = qn_model_weight_bytes(p->model)};
    for (int i = 0; i < p->n_kv; i++) {
        out->kv += kv_bytes(&p->kv[i], opts, p->kv[i].k_dim, opts->k_type) +
                   kv_bytes(&p->kv[i], opts, p->kv[i].v_dim, opts->v_type);
    }
    for (int i = 0; i < p->n_buf; i++) {
        out->activations += buf_bytes(&p->bufs[i], opts);
    }
    out->activations += n.product * (size_t)opts->n_ubatch * sizeof(float);
    out->other = n.worker_bytes * (size_t)threads + qn_mm_bytes(threads, opts->exact, n.max_n_in) +
                 qn_act_bytes(opts->exact, n.max_n_in, opts->n_ubatch) +
                 qn_cpu_split_floats(p, opts, threads) * sizeof(float);
}

static void cpu_free(qn_exec *e)
{
    qn_cpu *c = (qn_cpu *)e;
    for (int i = 0; c->bufs && i < e->plans->n_buf; i++) {
        free(c->bufs[i]);
    }
    for (int i = 0; c->kv && i < e->plans->n_kv; i++) {
        free(c->kv[i].k);
        free(c->kv[i].v);
    }
    for (int i = 0; i < c->n_rope; i++) {
        free(c->ropes[i].cs);
    }
    free(c->bufs);
    free(c->kv);
    free(c->ropes);
    free(c->scratch);
    free(c->product);
    free(c->split);
    qn_act_free(&c->act);
    qn_mm_free(c->mm);
    qn_pool_free(c->pool);
    free(c);
}

int qn_cpu_pos(const qn_cpu *c, int row)
{
    return c->seqs ? qn_exec_length(&c->base, c->seqs[row]) : c->pos + row;
}

int qn_cpu_seq(const qn_cpu *c, int row)
{
    return c->seqs ? c->seqs[row] : c->base.seq;
}

/* cos and sin of the run's positions for every table, once. The angle is formed in double: at position
 * 100,000 a float product would be off by several thousandths of a turn. */
static void fill_ropes(qn_cpu *c)
{
    for (int i = 0; i < c->n_rope; i++) {
        const qn_cpu_rope *r = &c->ropes[i];
        for (int t = 0; t < c->n_tokens; t++) {
            float *cs = r->cs + (size_t)t * r->n_rot;
            for (int k = 0; k < r->n_rot / 2; k++) {
                double angle = (double)qn_cpu_pos(c, t) * (double)r->table[k];
                cs[2 * k] = (float)cos(angle) * r->mscale;
                cs[2 * k + 1] = (float)sin(angle) * r->mscale;
            }
        }
    }
}

static int copy_logits(const qn_cpu *c, const qn_plan *plan, float *out, qn_err *err)
{
    size_t n = (size_t)c->base.plans->model->n_vocab;
    const float *in = c->bufs[plan->logits_buf];
    for (size_t i = 0; i < n * (size_t)c->n_out; i++) {
        if (!isfinite(in[i])) {
            return qn_fail(err, "logits hold %s (output row %zu, token %zu)",
                           isnan(in[i]) ? "NaN" : "infinity", i / n, i % n);
        }
    }
    memcpy(out, in, sizeof(float) * n * (size_t)c->n_out);
    return 0;
}

static int cpu_run(qn_exec *e, const qn_run *r, qn_err *err)
{
    qn_cpu *c = (qn_cpu *)e;
    const qn_plan *plan = r->phase == QN_PHASE_DECODE ? &e->plans->decode : &e->plans->prefill;
    c->tokens = r->tokens;
    c->n_tokens = r->n;
    c->seqs = r->seqs;
    c->pos = r->pos;
    c->n_out = r->outputs == QN_OUT_ALL ? r->n : r->outputs == QN_OUT_LAST ? 1 : 0;
    c->first_out = r->n - c->n_out;
    if (qn_run_check(e, r, c->n_out, err)) {
        return -1;
    }
    fill_ropes(c);
    for (int i = r->first_step; i < plan->n_step; i++) {
        const qn_step *s = &plan->steps[i];
        if (r->go_on && !r->go_on(r->go_on_user)) {
            int end = r->pos + r->n;
            e->high = e->high > end ? e->high : end; /* some rows of the caches are written */
            return qn_fail(err, "stopped before step %s", s->name);
        }
        bool wanted = s->rows == QN_ROWS_TOKENS || c->n_out > 0;
        bool head = s->out[0].buf == plan->logits_buf && c->n_out == 0;
        if (wanted && !head && qn_cpu_ops[s->op->id](c, s, err)) {
            return qn_fail_prefix(err, "step %s", s->name);
        }
        if (i == r->stop_after) {
            qn_exec_advance(e, r);
            return 0;
        }
    }
    if (c->n_out > 0 && copy_logits(c, plan, r->logits, err)) {
        return -1;
    }
    qn_exec_advance(e, r);
    return 0;
}

static int cpu_truncate(qn_exec *e, int length, qn_err *err)
{
    if (length < 0 || length > e->length) {
        return qn_fail(err, "cannot keep %d of %d positions", length, e->length);
    }
    if (qn_kv_check_truncate(e, length, err)) {
        return -1;
    }
    e->length = length;
    e->high = length == 0 ? 0 : e->high;
    return 0;
}

static int cpu_read(qn_exec *e, qn_view v, int row, int n_rows, float *out, qn_err *err)
{
    const qn_cpu *c = (const qn_cpu *)e;
    if (qn_exec_check_view(e, v, row, n_rows, err)) {
        return -1;
    }
    for (int r = 0; r < n_rows; r++) {
        memcpy(out + (size_t)r * v.width, qn_cpu_at(c, v, row + r), sizeof(float) * (size_t)v.width);
    }
    return 0;
}

static int cpu_write(qn_exec *e, qn_view v, int row, int n_rows, const float *in, qn_err *err)
{
    const qn_cpu *c = (const qn_cpu *)e;
    if (qn_exec_check_view(e, v, row, n_rows, err)) {
        return -1;
    }
    for (int r = 0; r < n_rows; r++) {
        memcpy(qn_cpu_at(c, v, row + r), in + (size_t)r * v.width, sizeof(float) * (size_t)v.width);
    }
    return 0;
}

/* Row `row` of n values between a cache and x. */
static void copy_kv(const qn_cpu *c, void *cache, qn_cache_type type, size_t row, float *x, size_t n,
                    bool store)
{
    float *f = (float *)cache + row * n;
    uint8_t *at = (uint8_t *)cache + row * qn_cache_bytes(type, n);
    if (!c->fast) {
        memcpy(store ? f : x, store ? x : f, sizeof(float) * n);
    } else if (store) {
        qn_kv_store(type, x, at, n);
    } else {
        qn_kv_load(type, at, x, n);
    }
}

static int cpu_kv_rows(qn_exec *e, int kv, int pos, int n, float *k, float *v, bool store, qn_err *err)
{
    const qn_cpu *c = (const qn_cpu *)e;
    if (qn_exec_check_kv(e, kv, pos, n, err)) {
        return -1;
    }
    const qn_kv_cache *p = &e->plans->kv[kv];
    size_t nk = (size_t)p->n_head_kv * (size_t)p->k_dim, nv = (size_t)p->n_head_kv * (size_t)p->v_dim;
    for (int i = 0; i < n; i++) {
        size_t row = (size_t)e->seq * (size_t)c->kv[kv].rows + (size_t)((pos + i) % c->kv[kv].rows);
        copy_kv(c, c->kv[kv].k, e->opts.k_type, row, k + (size_t)i * nk, nk, store);
        copy_kv(c, c->kv[kv].v, e->opts.v_type, row, v + (size_t)i * nv, nv, store);
    }
    return 0;
}

static qn_arith cpu_arith(const qn_exec *e, const qn_run *r, const qn_step *s)
{
    (void)r;
    bool product = s->op->id == QN_OP_LINEAR || s->op->id == QN_OP_GLU;
    for (int i = 0; product && !e->opts.exact && i < QN_STEP_WEIGHTS; i++) {
        if (s->w[i] && qn_dtype_get(s->w[i]->type)->block_values > 1) {
            return QN_ARITH_8BIT;
        }
    }
    return QN_ARITH_F32;
}

/* Groups of 16 as unpack.h makes them. Weights that are not quantised take f32. */
static bool cpu_round_input(const qn_exec *e, const qn_step *s, float *x, int rows, int n)
{
    enum { GROUP = 16, WEIGHTS = 9 };
    (void)e;
    for (int i = 0; i < WEIGHTS; i += 3) { /* linear: 0, 3, 6; glu: 0, 3 */
        if (s->w[i] && qn_dtype_get(s->w[i]->type)->block_values == 1) {
            return false;
        }
    }
    for (float *g = x, *end = x + (size_t)rows * (size_t)n; g < end; g += GROUP) {
        float top = 0;
        for (int i = 0; i < GROUP; i++) {
            top = fmaxf(top, fabsf(g[i]));
        }
        float d = top < 1e-30f ? 0 : top / 127.0f, up = top < 1e-30f ? 0 : 127.0f / top;
        for (int i = 0; i < GROUP; i++) {
            g[i] = d * rintf(g[i] * up);
        }
    }
    return true;
}

static int alloc_ropes(qn_cpu *c, const qn_plans *p, qn_err *err)
{
    c->ropes = qn_calloc((size_t)p->prefill.n_step, sizeof *c->ropes);
    if (!c->ropes) {
        return qn_fail(err, "out of memory");
    }
    for (int i = 0; i < p->prefill.n_step; i++) {
        const qn_step *s = &p->prefill.steps[i];
        bool known = !s->table;
        for (int k = 0; k < c->n_rope && !known; k++) {
            known = c->ropes[k].table == s->table && c->ropes[k].n_rot == s->spec.rope_kv.n_rot &&
                    c->ropes[k].mscale == s->spec.rope_kv.mscale;
        }
        if (known) {
            continue;
        }
        qn_cpu_rope *r = &c->ropes[c->n_rope++];
        *r = (qn_cpu_rope){s->table, s->spec.rope_kv.n_rot, s->spec.rope_kv.mscale, NULL};
        r->cs = qn_alloc64((size_t)r->n_rot * (size_t)c->base.opts.n_ubatch * sizeof(float));
        if (!r->cs) {
            return qn_fail(err, "out of memory for RoPE tables");
        }
    }
    return 0;
}

static int alloc_memory(qn_cpu *c, const qn_plans *p, qn_err *err)
{
    const qn_exec_opts *o = &c->base.opts;
    needs n = find_needs(p, o);
    c->bufs = qn_calloc((size_t)p->n_buf, sizeof *c->bufs);
    c->kv = qn_calloc((size_t)p->n_kv, sizeof *c->kv);
    c->scratch_bytes = n.worker_bytes;
    c->scratch = qn_alloc64(n.worker_bytes * (size_t)o->n_threads);
    c->product = qn_alloc64(n.product * (size_t)o->n_ubatch * sizeof(float));
    c->split = qn_alloc64(qn_cpu_split_floats(p, o, o->n_threads) * sizeof(float));
    if (!c->bufs || !c->kv || !c->scratch || !c->product || !c->split) {
        return qn_fail(err, "out of memory for scratch");
    }
    for (int i = 0; i < p->n_buf; i++) {
        c->bufs[i] = qn_alloc64(buf_bytes(&p->bufs[i], o));
        if (!c->bufs[i]) {
            return qn_fail(err, "out of memory for activations (%zu bytes for '%s')",
                           buf_bytes(&p->bufs[i], o), p->bufs[i].name);
        }
    }
    for (int i = 0; i < p->n_kv; i++) {
        const qn_kv_cache *kv = &p->kv[i];
        c->kv[i].rows = qn_kv_rows(kv, o);
        c->kv[i].k = qn_alloc64(kv_bytes(kv, o, kv->k_dim, o->k_type));
        c->kv[i].v = qn_alloc64(kv_bytes(kv, o, kv->v_dim, o->v_type));
        if (!c->kv[i].k || !c->kv[i].v) {
            return qn_fail(err, "out of memory for the KV cache (n_ctx %d)", o->n_ctx);
        }
    }
    if (alloc_ropes(c, p, err) || qn_act_init(&c->act, o->exact, n.max_n_in, o->n_ubatch, err)) {
        return -1;
    }
    return qn_mm_new(&c->mm, c->pool, qn_isa_best(), o->exact, n.max_n_in, err);
}

int qn_cpu_exec_new(qn_exec **out, const qn_plans *plans, const qn_exec_opts *opts, qn_err *err)
{
    qn_cpu *c = qn_calloc(1, sizeof *c);
    if (!c) {
        return qn_fail(err, "out of memory");
    }
    c->base = (qn_exec){.name = "cpu",
                        .plans = plans,
                        .opts = *opts,
                        .run = cpu_run,
                        .truncate = cpu_truncate,
                        .read = cpu_read,
                        .write = cpu_write,
                        .kv_rows = cpu_kv_rows,
                        .arith = cpu_arith,
                        .round_input = cpu_round_input,
                        .free = cpu_free};
    c->base.opts.n_threads = thread_count(opts);
    c->fast = opts->exact ? NULL : qn_fast_get(qn_isa_best());
    if (qn_pool_new(&c->pool, c->base.opts.n_threads, err) || alloc_memory(c, plans, err)) {
        cpu_free(&c->base);
        return -1;
    }
    *out = &c->base;
    return 0;
}
