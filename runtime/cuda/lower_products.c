/* lower_products.c: matrix products of many rows: 16-bit (or 8-bit) operands, then what follows the product,
 * which is left to the next kernel where that one can do it. */
#include <string.h>

#include "cuda/lower_internal.h"

/* clang-format off */
#define CONST(n, v)        {n, v, false, false}
#define CONST_SYMBOL(n, v) {n, v, true, false}
#define CONST_DTYPE(n, v)  {n, v, true, true}
/* clang-format on */

bool qn_lower_same_view(qn_view a, qn_view b)
{
    return a.buf >= 0 && a.buf == b.buf && a.col == b.col && a.width == b.width;
}

static bool is_16bit(const qn_tensor *t)
{
    return t->type == QN_F16 || t->type == QN_BF16;
}

bool qn_cuda_takes_mmq(const qn_step *s, const qn_exec_opts *opts)
{
    const qn_tensor *w[3];
    int n = qn_product_weights(s, w);
    bool all = opts->prefill == QN_PREFILL_MMQ && n > 0;
    for (int i = 0; i < n; i++) {
        all = all && qn_cuda_is_planes(w[i]);
    }
    return all;
}

/* Does a step read some of a view? */
static bool reads_some(const qn_step *s, qn_view v)
{
    bool reads = false;
    for (int k = 0; k < QN_STEP_VIEWS; k++) {
        qn_view in = s->in[k];
        reads = reads ||
                (in.buf >= 0 && in.buf == v.buf && in.col < v.col + v.width && v.col < in.col + in.width);
    }
    return reads;
}

static bool writes_whole(const qn_step *s, qn_view v)
{
    bool writes = false;
    for (int k = 0; k < QN_STEP_VIEWS; k++) {
        qn_view out = s->out[k];
        writes = writes || (out.buf >= 0 && out.buf == v.buf && out.col <= v.col &&
                            out.col + out.width >= v.col + v.width);
    }
    return writes;
}

bool qn_lower_read_later(const lowerer *l, const qn_step *s, qn_view v)
{
    const qn_step *end = l->plan->steps + l->plan->n_step;
    for (const qn_step *r = s + 1; r < end; r++) {
        if (reads_some(r, v)) {
            return true;
        }
        if (writes_whole(r, v)) {
            return false;
        }
    }
    return v.buf == l->plan->logits_buf;
}

/* Which 16-bit form of view v would step r take as it is: 1 f16, 2 bf16, 0: none. */
static int taken_form(const lowerer *l, const qn_step *r, qn_view v)
{
    const qn_tensor *w[3];
    int n = qn_product_weights(r, w), bf16 = 0;
    for (int i = 0; i < n; i++) {
        bf16 += w[i]->type == QN_BF16;
    }
    bool only =
        n > 0 && r->rows == QN_ROWS_TOKENS && qn_lower_same_view(r->in[0], v) && r->in[1].buf != v.buf;
    return !only || qn_cuda_takes_mmq(r, l->opts->exec) || qn_cuda_takes_fp8(r, l->opts->exec) ||
                   (bf16 != 0 && bf16 != n)
               ? 0
           : bf16 ? 2
                  : 1;
}

/* The readers of v that follow at once: between them and l->step nothing else writes a16. A gated pair writes
 * it itself. Returns the form they take; *end: the step behind them. */
static int form_of_readers(const lowerer *l, qn_view v, const qn_step **end)
{
    const qn_step *last = l->plan->steps + l->plan->n_step, *r = l->step + 1;
    int form = 0;
    bool fuse = l->mode == LOWER_PREFILL && !l->opts->no_fuse && l->step->rows == QN_ROWS_TOKENS;
    for (bool more = fuse; more && r < last && taken_form(l, r, v) && (!form || taken_form(l, r, v) == form);
         r++) {
        form = taken_form(l, r, v);
        more = r->op->id == QN_OP_LINEAR;
    }
    *end = r;
    return form;
}

int qn_lower_half_form(const lowerer *l, qn_view v)
{
    const qn_step *end;
    return form_of_readers(l, v, &end);
}

int qn_lower_half_out(lowerer *l, qn_view v, bool *f32)
{
    const qn_step *end;
    int form = form_of_readers(l, v, &end);
    *f32 = true;
    if (form) {
        *f32 = qn_lower_read_later(l, end - 1, v);
        l->h_view = v;
        l->h_bf16 = form == 2;
        l->h_q8 = false;
        l->h_made++;
        if (!*f32) {
            l->no_f32 = v;
        }
    }
    return form;
}

/* Rows [first, first + n) of a weight as 16-bit rows at `dst`. */
static int make_half(lowerer *l, const qn_tensor *t, uint64_t first, uint64_t n, uint64_t dst)
{
    uint64_t n_in = t->ne[0];
    launch k = {.kernel = "dequant.cu",
                .bare = true,
                .consts = {CONST_DTYPE("dtype", (int)t->type), CONST("threads", 256)},
                .n_const = 2,
                .grid = {qn_ceil_div((int64_t)((n_in + 7) / 8 * n), 256), 1, 1},
                .threads = 256,
                .rows_axis = -1,
                .args = {qn_lower_weight(l, t), dst, t->ne[1], n_in, first, n},
                .n_arg = 6};
    return qn_lower_launch(l, &k);
}

int qn_lower_half(lowerer *l, const qn_tensor *t)
{
    const qn_cuda_mem *m = l->opts->mem;
    if (m->fp8 && m->fp8(m->user, t)) {
        return qn_lower_fp8_weight(l, t, false);
    }
    if (make_half(l, t, 0, t->ne[1], m->half(m->user, t))) {
        return -1;
    }
    l->list->actions[l->list->n - 1].repack = t;
    return 0;
}

/* Rounds the rows of `in` to f16 with a power of two each, or to bf16, unless they stand so already. */
static int half_rows(lowerer *l, qn_view in, bool bf16)
{
    const qn_cuda_mem *m = l->opts->mem;
    uint32_t threads = qn_row_threads(in.width);
    if (qn_lower_same_view(l->h_view, in) && !l->h_q8 && l->h_bf16 == bf16) {
        return 0;
    }
    if (qn_lower_same_view(l->no_f32, in)) {
        return qn_fail(l->err, "step %s: its input was written in 16 bits only", l->step->name);
    }
    launch k = {.kernel = "to_half.cu",
                .bare = true,
                .consts = {CONST_SYMBOL("n", in.width), CONST_SYMBOL("bf16", bf16),
                           CONST("outputs", qn_lower_outputs(l)), CONST("threads", (int)threads)},
                .n_const = 4,
                .threads = threads,
                .shared = threads / 32 * 4,
                .rows_axis = 0,
                .args = {m->state, qn_lower_at(l, in), qn_lower_stride(l, in), m->a16, m->row_scale},
                .n_arg = 5};
    l->h_view = in;
    l->h_bf16 = bf16;
    l->h_q8 = false;
    l->h_made++;
    return qn_lower_launch(l, &k);
}

/* The head's weight piece by piece: as 16-bit rows the whole would be larger than any layer's. */
static int pieces(lowerer *l, const qn_tensor *t, qn_cuda_gemm g)
{
    size_t most = l->opts->head_chunk ? l->opts->head_chunk : QN_CUDA_HEAD_CHUNK,
           per_row = 2 * (size_t)t->ne[0];
    uint64_t n = t->ne[1],
             step = most / per_row / 64 * 64; /* outputs of a piece begin at multiples of 256 bytes */
    step = step ? step : 64;
    for (uint64_t first = 0; first < n; first += step) {
        uint64_t rows = n - first < step ? n - first : step;
        qn_cuda_gemm part = g;
        part.w = l->opts->mem->w16[0];
        part.n_out = (int)rows;
        part.out += 4 * first;
        l->w16 = 1;
        l->makes_w16 = true;
        int rc = make_half(l, t, first, rows, part.w);
        l->makes_w16 = false;
        rc = rc ? rc : qn_lower_gemm(l, &part);
        l->w16 = 0;
        if (rc) {
            return -1;
        }
    }
    return 0;
}

/* Weight i of n and those behind it whose 16-bit rows follow its own, kept or made here: one product.
 * Returns how many were taken; -1: error. */
static int one_product(lowerer *l, const qn_tensor *const *w, int i, int n, qn_cuda_gemm g)
{
    const qn_cuda_mem *m = l->opts->mem;
    bool plain = is_16bit(w[i]), overlap = l->opts->exec->weight_cache == QN_WEIGHT_CACHE_OFF;
    uint64_t kept = plain ? qn_lower_weight(l, w[i]) : m->half ? m->half(m->user, w[i]) : 0;
    int turn = overlap ? (l->w16_turn ^= 1) : 0, k = i;
    uint64_t end = g.w = kept ? kept : m->w16[turn];
    g.bf16 = w[i]->type == QN_BF16;
    g.n_out = 0;
    l->w16 = kept ? 0 : turn + 1;
    do {
        l->makes_w16 = true;
        int rc = kept ? 0 : make_half(l, w[k], 0, w[k]->ne[1], end);
        l->makes_w16 = false;
        if (rc) {
            return -1;
        }
        end += 2 * w[k]->ne[0] * w[k]->ne[1];
        g.n_out += (int)w[k]->ne[1];
        k++;
    } while (k < n && (plain  ? w[k]->type == w[i]->type && qn_lower_weight(l, w[k]) == end
                       : kept ? m->half(m->user, w[k]) == end
                              : !is_16bit(w[k]) && !(m->half && m->half(m->user, w[k])) &&
                                    !qn_cuda_takes_wgmma(w[k], l->opts->exec)));
    int rc = qn_lower_gemm(l, &g);
    l->w16 = 0;
    return rc ? -1 : k - i;
}

/* Where 16-bit weights of a file lie is known on the device only, so of those it is one. */
bool qn_lower_as_half(const lowerer *l, const qn_step *s)
{
    const qn_tensor *w[3];
    const qn_cuda_mem *m = l->opts->mem;
    const qn_exec_opts *o = l->opts->exec;
    int n = qn_product_weights(s, w);
    bool library = o->prefill == QN_PREFILL_AUTO || o->prefill == QN_PREFILL_CUBLASLT;
    bool one = library && !o->f32_products && s->rows == QN_ROWS_TOKENS && w[0]->type != QN_BF16;
    uint64_t kept = m->half ? m->half(m->user, w[0]) : 0, end = kept, n_out = 0;
    for (int k = 0; k < n; k++) {
        uint64_t at = m->half ? m->half(m->user, w[k]) : 0;
        one = one && (n == 1 || !is_16bit(w[k])) && at == (kept ? end : 0);
        end += 2 * w[k]->ne[0] * w[k]->ne[1];
        n_out += w[k]->ne[1];
    }
    return one && n_out % 8 == 0;
}

/* Products of one input with n weights side by side at `out`, rows ld_out apart. A bf16 weight needs bf16
 * activations. */
static int products(lowerer *l, qn_view in, const qn_tensor *const *w, int n, uint64_t out, int ld_out)
{
    size_t most = l->opts->head_chunk ? l->opts->head_chunk : QN_CUDA_HEAD_CHUNK;
    for (int i = 0, taken; i < n; i += taken) {
        bool bf16 = w[i]->type == QN_BF16;
        qn_cuda_gemm g = {.a = l->opts->mem->a16,
                          .out = out,
                          .n_in = in.width,
                          .n_out = (int)w[i]->ne[1],
                          .ld_out = ld_out,
                          .bf16 = bf16,
                          .half_out = l->half_in,
                          .rows = l->step->rows};
        if (half_rows(l, in, bf16)) {
            return -1;
        }
        bool large = l->step->rows == QN_ROWS_OUTPUTS && !is_16bit(w[i]);
        if (qn_cuda_takes_wgmma(w[i], l->opts->exec)) {
            taken = qn_lower_wgmma(l, w + i, n - i, &g);
        } else if (large && (n > 1 || 2 * w[i]->ne[0] * w[i]->ne[1] > most)) {
            taken = pieces(l, w[i], g) ? -1 : 1;
        } else {
            taken = one_product(l, w, i, n, g);
        }
        if (taken < 0) {
            return -1;
        }
        for (int k = i; k < i + taken; k++) {
            out += 4 * w[k]->ne[1];
        }
    }
    l->scaled = true;
    return 0;
}

/* Bytes of shared memory that a stage of product_q8.cu takes: its constants, in the same words. */
static size_t q8_stage_bytes(int type, bool fine, int outs)
{
    enum { ROWS = 64, CHUNK = 8 };
    static const struct {
        uint8_t q, h, affine;
    } of[QN_TYPE_COUNT] = {
        [QN_Q4_0] = {16, 0, 2}, [QN_Q4_1] = {16, 0, 2}, [QN_Q5_0] = {16, 4, 2},   [QN_Q5_1] = {16, 4, 2},
        [QN_Q8_0] = {32, 0, 1}, [QN_Q2_K] = {8, 0, 4},  [QN_Q3_K] = {8, 4, 2},    [QN_Q4_K] = {16, 0, 2},
        [QN_Q5_K] = {16, 4, 2}, [QN_Q6_K] = {16, 8, 2}, [QN_IQ4_NL] = {16, 0, 1}, [QN_IQ4_XS] = {16, 0, 1},
    };
    size_t q = CHUNK * (size_t)of[type].q + 16, h = of[type].h ? CHUNK * (size_t)of[type].h + 8 : 0;
    size_t affine = CHUNK * (size_t)of[type].affine + (of[type].affine == 4 ? 4 : of[type].affine);
    size_t sums = CHUNK * ((type == QN_Q2_K ? 3 : 2) + (fine ? 1 : 0)) + 2;
    return (ROWS * (CHUNK * 32 + 16 + 4 * sums) + (size_t)outs * (q + h + 4 * affine) + 15) / 16 * 16;
}

/* Rows of `in` in 8 bits, in a16; unless they stand so already. */
static int q8_rows(lowerer *l, qn_view in)
{
    if (qn_lower_same_view(l->h_view, in) && l->h_q8) {
        return 0;
    }
    l->h_view = in;
    l->h_q8 = true;
    l->h_made++;
    return qn_lower_quantise(l, in, l->opts->mem->a16);
}

/* As products(), of quantised weights with 8-bit activations. */
static int products_q8(lowerer *l, qn_view in, const qn_tensor *const *w, int n, uint64_t out, int ld_out)
{
    size_t limit = 1024 * (size_t)(l->opts->variant < QN_VARIANT_SM80    ? 64
                                   : l->opts->variant < QN_VARIANT_SM90A ? 99
                                                                         : 227);
    int stages = l->opts->variant < QN_VARIANT_SM80 ? 1 : 2;
    bool fine = qn_cuda_fine(l->opts->exec, in.width);
    if (q8_rows(l, in)) {
        return -1;
    }
    for (int i = 0; i < n; i++) {
        size_t large = (size_t)stages * q8_stage_bytes((int)w[i]->type, fine, 128);
        int outs = large <= limit && w[i]->ne[1] > 64 ? 128 : 64;
        launch k = {.kernel = "product_q8.cu",
                    .path = "mmq 8-bit",
                    .bare = true,
                    .consts = {CONST_DTYPE("dtype", (int)w[i]->type), CONST_SYMBOL("outs", outs),
                               CONST("outputs", qn_lower_outputs(l)), CONST("whole", in.width % 4096 == 0),
                               CONST("stages", stages), CONST("fine_in", fine)},
                    .n_const = 6,
                    .grid = {qn_ceil_div((int64_t)w[i]->ne[1], outs), 1, 1},
                    .threads = 256,
                    .shared = (uint32_t)((size_t)stages * q8_stage_bytes((int)w[i]->type, fine, outs)),
                    .rows_axis = 1,
                    .rows_per = 64,
                    .args = {qn_lower_row_count(l), l->opts->mem->a16, qn_lower_weight(l, w[i]), out,
                             (uint64_t)in.width, w[i]->ne[1], (uint64_t)ld_out},
                    .n_arg = 7};
        if (qn_lower_launch(l, &k)) {
            return -1;
        }
        out += 4 * w[i]->ne[1];
    }
    l->scaled = false;
    return 0;
}

typedef int products_fn(lowerer *l, qn_view in, const qn_tensor *const *w, int n, uint64_t out, int ld_out);

static products_fn *products_of(const lowerer *l)
{
    const qn_exec_opts *o = l->opts->exec;
    return qn_cuda_takes_mmq(l->step, o)   ? products_q8
           : qn_cuda_takes_fp8(l->step, o) ? qn_lower_products_fp8
                                           : products;
}

/* Is there nothing between the product and its residual? */
static bool bare_product(const qn_spec_linear *sp)
{
    bool bare =
        sp->act == QN_ACT_NONE && !sp->has_div && sp->clamp <= 0 && sp->out_scale == 1.0f && sp->softcap <= 0;
    for (int i = 0; i < sp->n_seg; i++) {
        bare = bare && !sp->seg_bias[i] && !sp->seg_scale[i];
    }
    return bare;
}

/* Is the next step rope_kv, and takes all of what this one makes, and nobody else does? */
static bool feeds_rope(const lowerer *l, const qn_step *next)
{
    const qn_step *s = l->step;
    int width = 0;
    for (int k = 0; k < QN_STEP_VIEWS; k++) {
        qn_view v = next->in[k];
        bool within = v.buf == s->out[0].buf && v.col >= s->out[0].col &&
                      v.col + v.width <= s->out[0].col + s->out[0].width;
        if (v.buf >= 0 && !within) {
            return false;
        }
        bool again = k > 0 && qn_lower_same_view(v, next->in[k - 1]); /* values that are the keys */
        width += v.buf >= 0 && !again ? v.width : 0;
    }
    if (next->op->id != QN_OP_ROPE_KV || s->spec.linear.residual || width != s->out[0].width) {
        return false;
    }
    /* Only the queries are written back. */
    const qn_step *end = l->plan->steps + l->plan->n_step;
    for (const qn_step *r = next + 1; r < end && !writes_whole(r, s->out[0]); r++) {
        for (int k = 0; k < QN_STEP_VIEWS; k++) {
            qn_view v = r->in[k], q = next->in[0];
            if (v.buf == q.buf && (v.col < q.col || v.col + v.width > q.col + q.width)) {
                return false;
            }
        }
    }
    return true;
}

/* Can the next step, a norm of what this one makes, read the product itself? */
static bool feeds_norm(const lowerer *l, const qn_step *next)
{
    return next->op->id == QN_OP_NORM && next->spec.norm.groups == 1 && next->rows == l->step->rows &&
           qn_lower_same_view(next->in[0], l->step->out[0]) &&
           !(next->spec.norm.residual && next->in[1].buf == l->step->out[0].buf); /* its base is read first */
}

static int linear_post(lowerer *l)
{
    const qn_step *s = l->step;
    const qn_cuda_mem *m = l->opts->mem;
    launch k = {
        .kernel = "linear_post.cu",
        .consts = {CONST("threads", 256), CONST("outputs", qn_lower_outputs(l)), CONST("scaled", l->scaled)},
        .n_const = 3,
        .grid = {qn_ceil_div(s->spec.linear.n_out, 256), 1, 1},
        .threads = 256,
        .rows_axis = 1,
        .args = {m->state, m->product, m->row_scale, qn_lower_at(l, s->in[1]), qn_lower_stride(l, s->in[1]),
                 qn_lower_at(l, s->out[0]), qn_lower_stride(l, s->out[0])},
        .n_arg = 7};
    static const int roles[7] = {1, 2, 4, 5, 7, 8, 9};
    for (int i = 0; i < 7; i++) {
        k.args[k.n_arg++] = qn_lower_weight(l, s->w[roles[i]]);
    }
    return qn_lower_launch(l, &k);
}

/* Few rows of logits: as decode has them. More: pieces of the weight as 16-bit rows. */
static int head_many(lowerer *l)
{
    l->max_rows = QN_CUDA_HEAD_FEW;
    l->few_rows = true;
    int rc = qn_lower_linear_few(l);
    l->few_rows = false;
    l->max_rows = 0;
    l->min_rows = QN_CUDA_HEAD_FEW + 1;
    l->q8_view.buf = -1;
    return rc;
}

int qn_lower_linear_many(lowerer *l)
{
    const qn_step *s = l->step, *next = s + 1;
    const qn_spec_linear *sp = &s->spec.linear;
    const qn_cuda_mem *m = l->opts->mem;
    const qn_tensor *w[3];
    int n = qn_product_weights(s, w);
    bool last = next == l->plan->steps + l->plan->n_step;
    bool fuse = !l->opts->no_fuse && !last && s->rows == QN_ROWS_TOKENS && bare_product(sp);
    bool rope = fuse && feeds_rope(l, next), norm = fuse && !rope && feeds_norm(l, next);
    bool rows = qn_lower_takes_rows(l, rope || norm ? next : s);
    l->half_in = rows && qn_lower_as_half(l, s);
    bool in_place = rope && !l->half_in; /* f32 products, which q takes the place of */
    if (s->rows == QN_ROWS_OUTPUTS && head_many(l)) {
        return -1;
    }
    int rc = products_of(l)(l, s->in[0], w, n, in_place ? qn_lower_at(l, s->out[0]) : m->product,
                            in_place ? (int)qn_lower_stride(l, s->out[0]) : sp->n_out);
    if (rope || norm) {
        l->from_product = next;
    } else if (rc == 0) {
        rc = rows ? qn_lower_linear_rows(l) : linear_post(l);
    }
    if (s->rows == QN_ROWS_OUTPUTS) {
        l->h_view.buf = -1; /* made for many rows only */
        l->min_rows = 0;
    }
    return rc;
}

/* The activation over [gate | up] rows in m->product; raw: biases and factors are done. */
int qn_lower_glu_act(lowerer *l, bool raw)
{
    enum { MOST_THREADS_VALUES = 32 }; /* that a thread keeps of its row */
    const qn_step *s = l->step;
    const qn_cuda_mem *m = l->opts->mem;
    uint32_t threads = qn_row_threads(s->spec.glu.n_ff);
    bool f32 = true, fits = s->spec.glu.n_ff <= MOST_THREADS_VALUES * (int)threads;
    bool rows = !raw && qn_lower_takes_rows(l, s);
    int half = fits || rows ? qn_lower_half_out(l, s->out[0], &f32) : 0;
    if (rows) {
        return qn_lower_glu_rows(l, half, f32);
    }
    launch k = {
        .kernel = "glu_act.cu",
        .consts = {CONST("threads", (int)threads), CONST("raw", raw), CONST("scaled", !raw && l->scaled),
                   CONST("half_out", half), CONST("f32_out", f32)},
        .n_const = 5,
        .threads = threads,
        .shared = threads / 32 * 4,
        .rows_axis = 0,
        .args = {m->state, m->product, m->row_scale, qn_lower_at(l, s->out[0]), qn_lower_stride(l, s->out[0]),
                 qn_lower_weight(l, s->w[1]), qn_lower_weight(l, s->w[2]), qn_lower_weight(l, s->w[4]),
                 qn_lower_weight(l, s->w[5]), m->a16},
        .n_arg = 10};
    return qn_lower_launch(l, &k);
}

int qn_lower_glu_many(lowerer *l)
{
    const qn_step *s = l->step;
    const qn_tensor *w[3];
    int n = qn_product_weights(s, w);
    l->half_in = qn_lower_takes_rows(l, s) && qn_lower_as_half(l, s);
    return products_of(l)(l, s->in[0], w, n, l->opts->mem->product, 2 * s->spec.glu.n_ff) ||
                   qn_lower_glu_act(l, false)
               ? -1
               : 0;
}
