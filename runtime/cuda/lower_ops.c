/* lower_ops.c: one function an op: which kernels serve it, with which launch shape and arguments. */
#include "cuda/lower_internal.h"

#include <string.h>

/* clang-format off */
#define CONST(n, v)        {n, v, false, false}
#define CONST_SYMBOL(n, v) {n, v, true, false}
#define CONST_DTYPE(n, v)  {n, v, true, true}
/* clang-format on */

uint32_t qn_ceil_div(int64_t a, int64_t b)
{
    return (uint32_t)((a + b - 1) / b);
}

uint32_t qn_row_threads(int n)
{
    uint32_t t = 32;
    while (t < 1024 && (int64_t)t * 4 < n) {
        t *= 2;
    }
    return t;
}

/* The persistent kernel's blocks are no larger than the products of decode want them. */
static uint32_t decode_threads(const lowerer *l, uint32_t threads)
{
    enum { MOST = 256 }; /* of the powers of two */
    return l->opts->persistent && l->mode == LOWER_DECODE && threads > MOST ? MOST : threads;
}

int qn_lower_outputs(const lowerer *l)
{
    return l->step->rows == QN_ROWS_OUTPUTS;
}

/* Is this for few rows: the kernels of decode? */
static bool few(const lowerer *l)
{
    return l->mode != LOWER_PREFILL || l->few_rows;
}

/* 8-bit activations: does a step make them (q8_at: where)? The buffers alternate, since a step
 * may read one form while it writes the next. */
static bool q8_target(lowerer *l, qn_view out)
{
    l->q8_view.buf = -1;
    l->q8_rms = false;
    if (!few(l) || l->opts->f32_activations || out.width % 32 != 0) {
        return false;
    }
    l->q8_turn ^= 1;
    l->q8_made++;
    l->q8_view = out;
    return true;
}

/* Address of the 8-bit activations that stand. */
static uint64_t q8_at(const lowerer *l)
{
    return l->opts->mem->q8[l->q8_turn];
}

bool qn_lower_q8_target(lowerer *l, qn_view out)
{
    return q8_target(l, out);
}

uint64_t qn_lower_q8_at(const lowerer *l)
{
    return q8_at(l);
}

/* Does this list's step take 8-bit activations? Every weight of it must be quantised. */
static bool takes_q8(const lowerer *l, const qn_tensor *const *w, int n)
{
    bool all = few(l) && !l->opts->f32_activations;
    for (int i = 0; i < n; i++) {
        all = all && (!w[i] || qn_cuda_is_planes(w[i]));
    }
    return all;
}

int qn_lower_quantise(lowerer *l, qn_view in, uint64_t dst)
{
    enum { WARPS = 8 };
    launch k = {.kernel = "quantise.cu",
                .bare = true,
                .consts = {CONST_SYMBOL("n", in.width), CONST("outputs", qn_lower_outputs(l)),
                           CONST("warps", WARPS), CONST("fine_out", qn_cuda_fine(l->opts->exec, in.width))},
                .n_const = 4,
                .grid = {qn_ceil_div(in.width / 32, WARPS), 1, 1},
                .threads = 32 * WARPS,
                .rows_axis = 1,
                .args = {l->opts->mem->state, qn_lower_at(l, in), qn_lower_stride(l, in), dst},
                .n_arg = 4};
    return qn_lower_launch(l, &k);
}

/* Makes the 8-bit form of `in` where no step before did. */
static int need_q8(lowerer *l, qn_view in)
{
    if (memcmp(&l->q8_view, &in, sizeof in) == 0) {
        return 0;
    }
    if (!q8_target(l, in)) {
        return qn_fail(l->err, "step %s: rows of %d values have no 8-bit form", l->step->name, in.width);
    }
    return qn_lower_quantise(l, in, q8_at(l));
}

/* Shape of a GEMV launch by its knobs: outputs of a block, blocks. */
typedef struct gemv_shape {
    qn_knobs knobs;
    int64_t chunk;
    int rows; /* most outputs of a block */
    uint32_t blocks;
    bool share_groups; /* blocks share groups of `grain` outputs; before shape_of: may they? */
} gemv_shape;

/* Shipped: a warp a row, or as many as it has spans; what these sum up in is the same on every card. */
static qn_knobs shipped_q8(const lowerer *l, int n_in, bool glu, qn_knob_room *room)
{
    enum { SPAN = 128, MAX_STEPS = 5, KEPT = 2, WIDE_WARPS = 12 };
    int most = QN_KNOB_WARPS - (qn_lower_rings(l) ? 1 : 0); /* the ring's writer is one, too */
    int groups = n_in / 32, spans = (groups + SPAN - 1) / SPAN;
    qn_knobs k = {.ahead = 2, .per_sm = 1};
    k.slices =
        (groups + 31) / 32 <= MAX_STEPS ? 1 : spans; /* a little more than a span is still one warp's */
    k.slices = k.slices > most ? most : k.slices;
    if (k.slices == 1 && spans > 1 && !glu && most > WIDE_WARPS) {
        most = WIDE_WARPS; /* five groups a lane: two rows of them take more registers than 16 warps have */
    }
    k.warps = most / k.slices * k.slices;
    int kept = (spans + k.slices - 1) / k.slices;
    *room = (qn_knob_room){.parts = spans, .most_kept = kept > KEPT ? kept : KEPT};
    return k;
}

/* Multiprocessors times the blocks that each is to hold. */
static int places_for(const lowerer *l, const qn_knobs *k)
{
    return (l->opts->multiprocessors > 0 ? l->opts->multiprocessors : 1) * k->per_sm;
}

static bool shape_of(lowerer *l, launch *k, const char *kernel, const qn_step *also, int n_in, int n_out,
                     int grain, gemv_shape *g)
{
    qn_knob_room room;
    const qn_knobs shipped = shipped_q8(l, n_in, l->step->op->id == QN_OP_GLU, &room);
    room.rows = n_out;
    const qn_knobs *chosen = qn_lower_knobs(l, k, QN_KNOBS_Q8, kernel, also, &room, &shipped);
    if (!chosen) {
        return false;
    }
    int tiles = (n_out + grain - 1) / grain, places = places_for(l, chosen);
    g->knobs = *chosen;
    g->rows = (tiles + places - 1) / places * grain;
    g->share_groups = g->share_groups && grain > 1 && qn_lower_shares_groups(l, chosen, n_in, n_out, grain);
    if (g->share_groups) {
        g->rows = (n_out + places - 1) / places;
        g->rows = g->rows < QN_LOWER_LEAST_SHARED ? QN_LOWER_LEAST_SHARED : g->rows;
    }
    g->chunk = g->rows;
    g->blocks = qn_ceil_div(n_out, g->chunk);
    return true;
}

static int lower_embed(lowerer *l)
{
    const qn_step *s = l->step;
    const qn_cuda_mem *m = l->opts->mem;
    uint32_t threads = decode_threads(l, qn_row_threads(s->spec.embed.n_embd / 2));
    uint64_t tokens = l->mode == LOWER_DECODE ? m->state + offsetof(qn_cuda_state, token) : m->tokens;
    launch k = {.kernel = "embed.cu",
                .consts = {CONST("threads", (int)threads)},
                .n_const = 1,
                .threads = threads,
                .rows_axis = 0,
                .args = {m->state, tokens, qn_lower_at(l, s->out[0]), qn_lower_stride(l, s->out[0]),
                         qn_lower_weight(l, s->w[0]), qn_lower_weight(l, s->w[1])},
                .n_arg = 6};
    return qn_lower_launch(l, &k);
}

static int lower_select(lowerer *l)
{
    const qn_step *s = l->step;
    launch k = {.kernel = "select.cu",
                .consts = {CONST("threads", 256)},
                .n_const = 1,
                .threads = 256,
                .rows_axis = 0,
                .args = {l->opts->mem->state, qn_lower_at(l, s->in[0]), qn_lower_stride(l, s->in[0]),
                         qn_lower_at(l, s->out[0]), qn_lower_stride(l, s->out[0])},
                .n_arg = 5};
    return qn_lower_launch(l, &k);
}

/* The step after step s, where it is an RMS norm of what s adds to the stream that can be made
 * here: all who read its result take it in 8 bits. NULL: it is not. */
static const qn_step *norm_of_sum(const lowerer *l, const qn_step *s, bool adds)
{
    const qn_step *end = l->plan->steps + l->plan->n_step, *n = s + 1;
    const qn_spec_norm *sp = &n->spec.norm;
    if (l->opts->no_fuse || n == end || n->op->id != QN_OP_NORM || !adds || !few(l) || sp->residual ||
        sp->kind != QN_NORM_RMS || sp->has_b || sp->groups != 1 || sp->out_scale != 1.0f || sp->n % 32 != 0 ||
        n->rows != s->rows || memcmp(&n->in[0], &s->out[0], sizeof n->in[0]) != 0 ||
        n->out[0].buf == s->out[0].buf) {
        return NULL;
    }
    for (const qn_step *r = n + 1; r < end && r->out[0].buf != n->out[0].buf; r++) {
        const qn_tensor *lin[3] = {r->w[0], r->w[3], r->w[6]};
        bool reads = r->in[0].buf == n->out[0].buf || r->in[1].buf == n->out[0].buf;
        bool served = (r->op->id == QN_OP_LINEAR && takes_q8(l, lin, 3)) ||
                      (r->op->id == QN_OP_GLU && takes_q8(l, lin, 2) && !(r->spec.glu.sparsity_std > 0));
        if (reads && !served) {
            return NULL;
        }
    }
    return n;
}

static int lower_norm(lowerer *l)
{
    const qn_step *s = l->step, *before = l->from_product == s ? s - 1 : NULL;
    const qn_cuda_mem *m = l->opts->mem;
    if (qn_lower_takes_rows(l, s)) {
        return qn_lower_norm_rows(l);
    }
    uint32_t threads = decode_threads(l, qn_row_threads(s->spec.norm.n));
    bool f32 = true, whole = s->spec.norm.groups == 1;
    const qn_step *next = norm_of_sum(l, s, s->spec.norm.residual && whole);
    int32_t next_eps = 0;
    l->q8_view.buf = -1;
    bool q8 = !s->spec.norm.residual && whole && q8_target(l, s->out[0]);
    if (next) {
        q8_target(l, next->out[0]);
        memcpy(&next_eps, &next->spec.norm.eps, sizeof next_eps);
        l->done = next;
    }
    int half = whole ? qn_lower_half_out(l, s->out[0], &f32) : 0;
    /* Of a product: the row is base + product, which others may read too. */
    bool add = before && before->spec.linear.residual;
    bool sum = before && qn_lower_read_later(l, s - 1, s->in[0]);
    qn_view x = before ? before->in[1] : s->in[0];
    launch k = {.kernel = "norm.cu",
                .consts = {CONST("threads", (int)threads), CONST("outputs", qn_lower_outputs(l)),
                           CONST("q8_out", q8), CONST_SYMBOL("product", before != NULL), CONST("add", add),
                           CONST("scaled", before && l->scaled), CONST("sum_out", sum),
                           CONST_SYMBOL("half_out", half), CONST("f32_out", f32),
                           CONST_SYMBOL("next", next != NULL), CONST("next_eps_bits", next_eps),
                           CONST("fine_out", (q8 || next) && qn_cuda_fine(l->opts->exec, s->spec.norm.n))},
                .n_const = 12,
                .grid = {1, (uint32_t)s->spec.norm.groups, 1},
                .threads = threads,
                .shared = threads / 32 * 4,
                .rows_axis = 0,
                .args = {m->state, qn_lower_at(l, x), qn_lower_stride(l, x), qn_lower_at(l, s->in[1]),
                         qn_lower_stride(l, s->in[1]), qn_lower_at(l, s->out[0]),
                         qn_lower_stride(l, s->out[0]), qn_lower_weight(l, s->w[0]),
                         qn_lower_weight(l, s->w[1]), q8_at(l), m->product, m->row_scale, m->a16,
                         qn_lower_at(l, s->in[0]), qn_lower_stride(l, s->in[0]),
                         next ? qn_lower_weight(l, next->w[0]) : 0},
                .n_arg = 16};
    return qn_lower_launch(l, &k);
}

static int lower_rope_kv(lowerer *l)
{
    const qn_step *s = l->step;
    const qn_spec_rope_kv *sp = &s->spec.rope_kv;
    const qn_cuda_mem *m = l->opts->mem;
    bool done;
    if (qn_lower_attention_rope(l, &done) || done) {
        return done ? 0 : -1;
    }
    if (qn_lower_takes_rows(l, s)) {
        return qn_lower_rope_rows(l);
    }
    bool full = sp->qk_norm != QN_NORM_NONE && sp->qk_width == QN_QK_FULL; /* one block norms a whole row */
    int dim = full ? sp->n_head * sp->k_dim : sp->k_dim;
    int units = (full ? 1 : sp->n_head) + (sp->has_kv ? (full ? 1 : sp->n_head_kv) + sp->n_head_kv : 0);
    uint32_t threads = dim <= 64 ? 64 : dim <= 512 ? 128 : qn_lower_rings(l) ? 256 : 512;
    uint32_t turns = sp->n_rot > 1 ? (uint32_t)sp->n_rot / 2 : 1;
    /* Of many rows a warp a unit: blocks of one head would mostly wait for each other. */
    bool by_warp = l->mode == LOWER_PREFILL && !full;
    int teams = by_warp ? 8 : 1;
    threads = by_warp ? 32 * 8 : threads;
    int rows = s->kv >= 0 ? qn_kv_rows(&l->plans->kv[s->kv], l->opts->exec) : 1;
    launch k = {
        .kernel = "rope_kv.cu",
        .consts = {CONST("threads", (int)threads), CONST("kv_rows", rows),
                   CONST_SYMBOL("scaled", l->from_product == s && l->scaled),
                   CONST_SYMBOL("by_warp", by_warp), CONST("k_q8", l->opts->exec->k_type == QN_CACHE_Q8_0),
                   CONST("v_q8", l->opts->exec->v_type == QN_CACHE_Q8_0)},
        .n_const = 6,
        .grid = {1, qn_ceil_div(units, teams), 1},
        .threads = threads,
        .shared = 8 * turns + (uint32_t)(teams * dim) * 4 + (by_warp ? 0 : threads / 32 * 4),
        .rows_axis = 0,
        .args = {m->state, qn_lower_at(l, s->in[0]), qn_lower_stride(l, s->in[0]), qn_lower_at(l, s->in[1]),
                 qn_lower_at(l, s->in[2]), s->kv >= 0 ? m->k[s->kv] : 0, s->kv >= 0 ? m->v[s->kv] : 0,
                 qn_lower_weight(l, s->w[0]), qn_lower_weight(l, s->w[1]),
                 s->table ? m->table(m->user, s->table) : 0, m->row_scale},
        .n_arg = 11};
    return qn_lower_launch(l, &k);
}

/* Constants and argument of a product that reads a begun norm. */
static void add_rms(const lowerer *l, launch *k, const left_norm *left)
{
    bool rms = l->q8_rms && !left->next;
    int32_t bits;
    memcpy(&bits, &l->q8_eps, sizeof bits);
    k->consts[k->n_const++] = (qn_source_const)CONST("rms", rms);
    k->consts[k->n_const++] = (qn_source_const)CONST("rms_eps_bits", rms ? bits : 0);
    k->args[k->n_arg++] = left->next ? left->x : l->opts->mem->squares[l->q8_turn];
}

/* Quantised weights, 8-bit activations. */
static int linear_q8(lowerer *l, bool cols)
{
    const qn_step *s = l->step, *post = cols ? NULL : qn_lower_post_norm(l), *last = post ? post : s;
    const qn_step *next = norm_of_sum(l, last, post || s->spec.linear.residual);
    const qn_spec_linear *sp = &s->spec.linear;
    const qn_tensor *w[3] = {s->w[0], s->w[3], s->w[6]};
    const left_norm in = qn_lower_left(l);
    bool raw = !cols && qn_lower_leave_norm(l, post, next);
    if (raw) {
        post = next = NULL;
    }
    int grain = next || post ? 32 : 1;
    launch site = {0};
    gemv_shape g = {.knobs = {.per_sm = 1}, .chunk = 1, .rows = 1, .blocks = 1, .share_groups = !post};
    if ((!in.next && need_q8(l, s->in[0])) ||
        (!cols && !shape_of(l, &site, post ? "linear_q8 normed" : "linear_q8", next, sp->n_in, sp->n_out,
                            grain, &g))) {
        return -1;
    }
    qn_cuda_share share;
    if (qn_lower_share(sp, w, places_for(l, &g.knobs), &share)) {
        g.chunk = share.chunk;
        g.rows = share.rows;
        g.blocks = share.blocks;
    }
    launch k = {.kernel = "linear_q8.cu",
                .path = "gemv 8-bit",
                .consts = {CONST("warps", g.knobs.warps), CONST("slices", g.knobs.slices),
                           CONST("per_sm", g.knobs.per_sm), CONST("outputs", qn_lower_outputs(l)),
                           CONST("one_row", l->mode == LOWER_DECODE), CONST("row_cost0", share.cost[0]),
                           CONST("row_cost1", share.cost[1]), CONST("row_cost2", share.cost[2]),
                           CONST("fine_in", qn_cuda_fine(l->opts->exec, sp->n_in)),
                           CONST("fine_out", next && qn_cuda_fine(l->opts->exec, sp->n_out))},
                .n_const = 10,
                .site = site.site,
                .grid = {g.blocks, 1, 1},
                .threads = 32 * (uint32_t)g.knobs.warps,
                .shared = 4 * (uint32_t)(g.rows * g.knobs.slices),
                .rows_axis = 1,
                .args = {l->opts->mem->state, in.next ? in.y : q8_at(l), (uint64_t)g.chunk,
                         qn_lower_at(l, last->in[1]), qn_lower_stride(l, last->in[1]),
                         raw ? l->left.y : qn_lower_at(l, last->out[0]), qn_lower_stride(l, last->out[0])},
                .n_arg = 7,
                .resident = post != NULL,
                .rings = !cols};
    if (post && !qn_lower_all_resident(l, &k, g.knobs.per_sm)) {
        l->apart = s;
        return linear_q8(l, cols);
    }
    for (int i = 0; i < 10; i++) {
        k.args[k.n_arg++] = qn_lower_weight(l, s->w[i]);
    }
    add_rms(l, &k, &in);
    k.consts[k.n_const++] = (qn_source_const)CONST_SYMBOL("norm_next", next != NULL);
    bool stale = (post && l->q8_view.buf == post->out[0].buf) ||
                 (raw && (l->q8_view.buf == last->out[0].buf || l->q8_view.buf == l->left.next->out[0].buf));
    if (stale) {
        l->q8_view.buf = -1;
    }
    l->done = post ? post : l->done;
    if (next) {
        q8_target(l, next->out[0]);
        l->q8_rms = true;
        l->q8_eps = next->spec.norm.eps;
        l->done = next;
    }
    k.args[k.n_arg++] = next ? qn_lower_weight(l, next->w[0]) : 0;
    k.args[k.n_arg++] = q8_at(l);
    k.args[k.n_arg++] = l->opts->mem->squares[l->q8_turn];
    if (!cols) {
        k.consts[k.n_const++] = (qn_source_const)CONST("ahead", g.knobs.ahead);
        k.consts[k.n_const++] = (qn_source_const)CONST("share_groups", g.share_groups);
        k.args[k.n_arg++] = l->opts->mem->part_count;
        qn_lower_add_post(l, &k, post);
        k.shared += qn_lower_norm_in(l, &k, &in);
    } else {
        return qn_lower_columns(l, &k, "linear_cols.cu", sp->n_in, sp->n_out, next ? 32 : 16, 1);
    }
    return qn_lower_launch(l, &k);
}

/* Of a short prompt only the last row may be asked for: one row has its own kernel, without columns. */
static int linear_columns(lowerer *l)
{
    if (!qn_lower_outputs(l) || l->step->spec.linear.residual) {
        return linear_q8(l, true);
    }
    if (need_q8(l, l->step->in[0])) {
        return -1;
    }
    l->max_rows = 1;
    int rc = linear_q8(l, false);
    l->max_rows = 0;
    l->min_rows = 2;
    rc = rc ? rc : linear_q8(l, true);
    l->min_rows = 0;
    return rc;
}

static int lower_linear(lowerer *l)
{
    return few(l) ? qn_lower_linear_few(l) : qn_lower_linear_many(l);
}

/* Rows of f32 weights, or with f32 activations: a warp a row. 0: out of memory. */
static int plain_warps(lowerer *l, launch *k, const char *kernel)
{
    static const qn_knobs shipped = {.warps = 4};
    static const qn_knob_room room = {0};
    const qn_knobs *chosen = qn_lower_knobs(l, k, QN_KNOBS_PLAIN, kernel, NULL, &room, &shipped);
    return chosen ? chosen->warps : 0;
}

int qn_lower_linear_few(lowerer *l)
{
    const qn_step *s = l->step;
    const qn_tensor *w[3] = {s->w[0], s->w[3], s->w[6]};
    if (takes_q8(l, w, 3)) {
        return qn_lower_in_columns(l) ? linear_columns(l) : linear_q8(l, false);
    }
    if (qn_lower_takes_half(l, s->in[0], w, 3)) {
        return qn_lower_linear_half(l);
    }
    launch site = {0};
    int warps = plain_warps(l, &site, "linear");
    if (warps == 0) {
        return -1;
    }
    launch k = {.kernel = "linear.cu",
                .path = "gemv",
                .consts = {CONST("warps", warps), CONST("outputs", qn_lower_outputs(l))},
                .n_const = 2,
                .site = site.site,
                .grid = {qn_ceil_div(s->spec.linear.n_out, warps), 1, 1},
                .threads = 32 * (uint32_t)warps,
                .rows_axis = 1,
                .args = {l->opts->mem->state, qn_lower_at(l, s->in[0]), qn_lower_stride(l, s->in[0]),
                         qn_lower_at(l, s->in[1]), qn_lower_stride(l, s->in[1]), qn_lower_at(l, s->out[0]),
                         qn_lower_stride(l, s->out[0])},
                .n_arg = 7};
    for (int i = 0; i < 10; i++) {
        k.args[k.n_arg++] = qn_lower_weight(l, s->w[i]);
    }
    return qn_lower_launch(l, &k);
}

static int glu_q8(lowerer *l)
{
    const qn_step *s = l->step;
    const qn_spec_glu *sp = &s->spec.glu;
    bool cols = qn_lower_in_columns(l);
    launch site = {0};
    gemv_shape g = {.knobs = {.per_sm = 1}, .chunk = 1, .rows = 1, .blocks = 1, .share_groups = true};
    const left_norm in = qn_lower_left(l);
    if ((!in.next && need_q8(l, s->in[0])) ||
        (!cols && !shape_of(l, &site, "glu_q8", NULL, sp->n_in, sp->n_ff, sp->n_ff % 32 == 0 ? 32 : 1, &g))) {
        return -1;
    }
    uint64_t q8 = in.next ? in.y : q8_at(l);
    launch rms = {0};
    add_rms(l, &rms, &in);
    bool q8_out = q8_target(l, s->out[0]);
    launch k = {.kernel = "glu_q8.cu",
                .path = "gemv 8-bit",
                .consts = {CONST("warps", g.knobs.warps), CONST("slices", g.knobs.slices),
                           CONST("per_sm", g.knobs.per_sm), CONST("q8_out", q8_out), rms.consts[0],
                           rms.consts[1], CONST("one_row", l->mode == LOWER_DECODE),
                           CONST("fine_in", qn_cuda_fine(l->opts->exec, sp->n_in)),
                           CONST("fine_out", q8_out && qn_cuda_fine(l->opts->exec, sp->n_ff))},
                .n_const = 9,
                .site = site.site,
                .grid = {g.blocks, 1, 1},
                .threads = 32 * (uint32_t)g.knobs.warps,
                .shared = 8 * (uint32_t)(g.chunk * g.knobs.slices),
                .rows_axis = 1,
                .args = {l->opts->mem->state, q8, (uint64_t)g.chunk, qn_lower_at(l, s->out[0]),
                         qn_lower_stride(l, s->out[0]), q8_at(l)},
                .n_arg = 6,
                .rings = !cols};
    for (int i = 0; i < 6; i++) {
        k.args[k.n_arg++] = qn_lower_weight(l, s->w[i]);
    }
    k.args[k.n_arg++] = rms.args[0];
    if (!cols) {
        k.consts[k.n_const++] = (qn_source_const)CONST("ahead", g.knobs.ahead);
        k.consts[k.n_const++] = (qn_source_const)CONST("share_groups", g.share_groups);
        k.args[k.n_arg++] = l->opts->mem->part_count;
        k.shared += qn_lower_norm_in(l, &k, &in);
    } else {
        return qn_lower_columns(l, &k, "glu_cols.cu", sp->n_in, sp->n_ff, sp->n_ff % 32 == 0 ? 32 : 16, 2);
    }
    return qn_lower_launch(l, &k);
}

static int lower_glu(lowerer *l)
{
    const qn_step *s = l->step;
    const qn_spec_glu *sp = &s->spec.glu;
    const qn_cuda_mem *m = l->opts->mem;
    if (l->mode == LOWER_PREFILL) {
        return qn_lower_glu_many(l);
    }
    const qn_tensor *pair[2] = {s->w[0], s->w[3]};
    int raw = sp->sparsity_std > 0;
    if (!raw && takes_q8(l, pair, 2)) {
        return glu_q8(l);
    }
    l->q8_view.buf = -1;
    if (!raw && qn_lower_takes_half(l, s->in[0], pair, 2)) {
        return qn_lower_glu_half(l);
    }
    launch site = {0};
    int warps = plain_warps(l, &site, "glu");
    if (warps == 0) {
        return -1;
    }
    launch k = {.kernel = "glu.cu",
                .path = "gemv",
                .consts = {CONST("warps", warps), CONST("raw", raw)},
                .n_const = 2,
                .site = site.site,
                .grid = {qn_ceil_div(sp->n_ff, warps), 1, 1},
                .threads = 32 * (uint32_t)warps,
                .rows_axis = 1,
                .args = {m->state, qn_lower_at(l, s->in[0]), qn_lower_stride(l, s->in[0]),
                         raw ? m->product : qn_lower_at(l, s->out[0]),
                         raw ? 2 * (uint64_t)sp->n_ff : qn_lower_stride(l, s->out[0])},
                .n_arg = 5};
    for (int i = 0; i < 6; i++) {
        k.args[k.n_arg++] = qn_lower_weight(l, s->w[i]);
    }
    return qn_lower_launch(l, &k) || (raw && qn_lower_glu_act(l, true)) ? -1 : 0;
}

int qn_lower_repack(lowerer *l, const qn_tensor *t)
{
    uint64_t n_in = t->ne[0], n_rows = t->n_dims > 1 ? t->ne[1] : 1;
    launch k = {.kernel = "repack.cu",
                .bare = true,
                .consts = {CONST_DTYPE("dtype", (int)t->type), CONST("threads", 256)},
                .n_const = 2,
                .grid = {qn_ceil_div((int64_t)(n_in / 32 * n_rows), 256), 1, 1},
                .threads = 256,
                .rows_axis = -1,
                .args = {0, qn_lower_weight(l, t), n_rows, n_in},
                .n_arg = 4};
    if (qn_lower_launch(l, &k)) {
        return -1;
    }
    l->list->actions[l->list->n - 1].repack = t;
    return 0;
}

int (*const qn_lower_ops[QN_OP_COUNT])(lowerer *l) = {
    [QN_OP_EMBED] = lower_embed,
    [QN_OP_SELECT] = lower_select,
    [QN_OP_NORM] = lower_norm,
    [QN_OP_LINEAR] = lower_linear,
    [QN_OP_GLU] = lower_glu,
    [QN_OP_ROPE_KV] = lower_rope_kv,
    [QN_OP_ATTENTION] = qn_lower_attention,
    [QN_OP_MIX] = qn_lower_mix,
    [QN_OP_MUL] = qn_lower_mul,
    [QN_OP_RESCALE] = qn_lower_rescale,
    [QN_OP_ALTUP] = qn_lower_altup,
    [QN_OP_LATENT_KV] = qn_lower_latent_kv,
};
