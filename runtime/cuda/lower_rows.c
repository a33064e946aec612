/* lower_rows.c: element-wise steps of prompts whose rows 16 bytes fit: norm_rows.cu, glu_rows.cu,
 * rope_rows.cu, and what follows a product, linear_rows.cu. Their products may come as f16. */
#include <string.h>

#include "cuda/lower_internal.h"

/* clang-format off */
#define CONST(n, v)        {n, v, false, false}
#define CONST_SYMBOL(n, v) {n, v, true, false}
/* clang-format on */

enum {
    MOST_THREADS = 1024,
    NORM_PIECES = 4,
    GLU_PIECES = 3,
    MOST_GLU_PIECES = 4,
    ROPE_STEPS = 3,
    LINEAR_PIECES = 3,
    MOST_LINEAR_PIECES = 4
};

/* Whole warps for n pieces, so many a thread. */
static uint32_t threads_for(int n, int each)
{
    uint32_t t = (qn_ceil_div(n, each) + 31) / 32 * 32;
    return t < MOST_THREADS ? t : MOST_THREADS;
}

/* Rows of a view, f32, that begin at multiples of 16 bytes. */
static bool aligned(const lowerer *l, qn_view v)
{
    return v.buf < 0 || (v.col % 4 == 0 && qn_lower_stride(l, v) % 4 == 0);
}

static bool takes_norm(const lowerer *l, const qn_step *s)
{
    const qn_spec_norm *sp = &s->spec.norm;
    bool fits = sp->groups == 1 && sp->n % 4 == 0 && sp->n <= 4 * NORM_PIECES * MOST_THREADS;
    /* The row may be a product of the step before, and what that adds. */
    bool before = s == l->plan->steps || aligned(l, s[-1].in[1]);
    return fits && before && aligned(l, s->in[0]) && aligned(l, s->in[1]) && aligned(l, s->out[0]);
}

static bool takes_glu(const lowerer *l, const qn_step *s)
{
    const qn_spec_glu *sp = &s->spec.glu;
    int values = qn_lower_as_half(l, s) ? 8 : 4;
    return s == l->step && !(sp->sparsity_std > 0) && sp->n_ff % 8 == 0 &&
           sp->n_ff <= values * MOST_GLU_PIECES * MOST_THREADS && aligned(l, s->out[0]) &&
           qn_lower_half_form(l, s->out[0]) != 0;
}

static bool takes_linear(const lowerer *l, const qn_step *s)
{
    const qn_spec_linear *sp = &s->spec.linear;
    int values = qn_lower_as_half(l, s) ? 8 : 4;
    bool whole = sp->n_out % 8 == 0 && sp->n_out <= values * MOST_LINEAR_PIECES * MOST_THREADS;
    for (int i = 0; i < sp->n_seg; i++) {
        whole = whole && sp->seg_out[i] % 8 == 0;
    }
    return whole && s == l->step && s->rows == QN_ROWS_TOKENS && aligned(l, s->in[1]) &&
           aligned(l, s->out[0]);
}

static bool takes_rope(const lowerer *l, const qn_step *s)
{
    const qn_spec_rope_kv *sp = &s->spec.rope_kv;
    const qn_exec_opts *o = l->opts->exec;
    bool full = sp->qk_norm != QN_NORM_NONE && sp->qk_width == QN_QK_FULL, halves = true;
    int eighths = sp->n_rot / 16;
    bool apart = sp->n_rot % 16 == 0 && eighths > 0 && (eighths & (eighths - 1)) == 0;
    if (sp->has_kv) {
        halves = o->k_type == QN_CACHE_F16 && o->v_type == QN_CACHE_F16 && sp->k_dim == sp->v_dim;
    }
    return halves && !full && (sp->k_dim == 64 || sp->k_dim == 128 || sp->k_dim == 256) &&
           (sp->rope_style == QN_ROPE_NONE || sp->rot_at == 0) && (sp->rope_style != QN_ROPE_NEOX || apart) &&
           (uint32_t)(sp->n_head + 2 * sp->n_head_kv) * (uint32_t)(sp->k_dim / 8) <=
               ROPE_STEPS * MOST_THREADS &&
           aligned(l, s->in[0]) && aligned(l, s->in[1]) && aligned(l, s->in[2]);
}

bool qn_lower_takes_rows(const lowerer *l, const qn_step *s)
{
    if (l->mode != LOWER_PREFILL || l->few_rows) {
        return false;
    }
    return s->op->id == QN_OP_NORM      ? takes_norm(l, s)
           : s->op->id == QN_OP_GLU     ? takes_glu(l, s)
           : s->op->id == QN_OP_LINEAR  ? takes_linear(l, s)
           : s->op->id == QN_OP_ROPE_KV ? takes_rope(l, s)
                                        : false;
}

int qn_lower_norm_rows(lowerer *l)
{
    const qn_step *s = l->step, *before = l->from_product == s ? s - 1 : NULL;
    const qn_cuda_mem *m = l->opts->mem;
    uint32_t threads = threads_for(s->spec.norm.n / 4, NORM_PIECES);
    bool f32 = true, add = before && before->spec.linear.residual;
    bool sum = before && qn_lower_read_later(l, before, s->in[0]);
    qn_view x = before ? before->in[1] : s->in[0];
    l->q8_view.buf = -1;
    int half = qn_lower_half_out(l, s->out[0], &f32);
    launch k = {.kernel = "norm_rows.cu",
                .consts = {CONST("threads", (int)threads), CONST("outputs", qn_lower_outputs(l)),
                           CONST_SYMBOL("product", before != NULL), CONST("add", add),
                           CONST("scaled", before && l->scaled), CONST("sum_out", sum),
                           CONST_SYMBOL("half_in", before && l->half_in), CONST_SYMBOL("half_out", half),
                           CONST("f32_out", f32)},
                .n_const = 9,
                .threads = threads,
                .shared = threads / 32 * 8,
                .rows_axis = 0,
                .args = {m->state, qn_lower_at(l, x), qn_lower_stride(l, x), qn_lower_at(l, s->in[1]),
                         qn_lower_stride(l, s->in[1]), qn_lower_at(l, s->out[0]),
                         qn_lower_stride(l, s->out[0]), qn_lower_weight(l, s->w[0]),
                         qn_lower_weight(l, s->w[1]), m->product, m->row_scale, m->a16,
                         qn_lower_at(l, s->in[0]), qn_lower_stride(l, s->in[0])},
                .n_arg = 14};
    return qn_lower_launch(l, &k);
}

/* A launch with a block a row of n values, `each` pieces of 16 bytes a thread; half, f32: qn_lower_half_out.
 */
static launch launch_of_rows(const lowerer *l, const char *kernel, int n, int each, int half, bool f32)
{
    uint32_t threads = threads_for(n / (l->half_in ? 8 : 4), each);
    return (launch){.kernel = kernel,
                    .consts = {CONST("threads", (int)threads), CONST("scaled", l->scaled),
                               CONST_SYMBOL("half_in", l->half_in), CONST_SYMBOL("half_out", half),
                               CONST("f32_out", f32)},
                    .n_const = 5,
                    .threads = threads,
                    .shared = threads / 32 * 4,
                    .rows_axis = 0};
}

int qn_lower_glu_rows(lowerer *l, int half, bool f32)
{
    const qn_step *s = l->step;
    const qn_cuda_mem *m = l->opts->mem;
    launch k = launch_of_rows(l, "glu_rows.cu", s->spec.glu.n_ff, GLU_PIECES, half, f32);
    const uint64_t args[] = {m->state,
                             m->product,
                             m->row_scale,
                             qn_lower_at(l, s->out[0]),
                             qn_lower_stride(l, s->out[0]),
                             qn_lower_weight(l, s->w[1]),
                             qn_lower_weight(l, s->w[2]),
                             qn_lower_weight(l, s->w[4]),
                             qn_lower_weight(l, s->w[5]),
                             m->a16};
    k.n_arg = sizeof args / sizeof *args;
    memcpy(k.args, args, sizeof args);
    return qn_lower_launch(l, &k);
}

int qn_lower_linear_rows(lowerer *l)
{
    const qn_step *s = l->step;
    const qn_cuda_mem *m = l->opts->mem;
    bool f32 = true;
    int half = qn_lower_half_out(l, s->out[0], &f32);
    launch k = launch_of_rows(l, "linear_rows.cu", s->spec.linear.n_out, LINEAR_PIECES, half, f32);
    const uint64_t args[] = {m->state,
                             m->product,
                             m->row_scale,
                             qn_lower_at(l, s->in[1]),
                             qn_lower_stride(l, s->in[1]),
                             qn_lower_at(l, s->out[0]),
                             qn_lower_stride(l, s->out[0])};
    static const int roles[7] = {1, 2, 4, 5, 7, 8, 9};
    k.n_arg = sizeof args / sizeof *args;
    memcpy(k.args, args, sizeof args);
    for (int i = 0; i < 7; i++) {
        k.args[k.n_arg++] = qn_lower_weight(l, s->w[roles[i]]);
    }
    k.args[k.n_arg++] = m->a16;
    return qn_lower_launch(l, &k);
}

int qn_lower_rope_rows(lowerer *l)
{
    const qn_step *s = l->step;
    const qn_spec_rope_kv *sp = &s->spec.rope_kv;
    const qn_cuda_mem *m = l->opts->mem;
    bool fused = l->from_product == s, half = fused && l->half_in;
    int units = sp->n_head + (sp->has_kv ? 2 * sp->n_head_kv : 0);
    uint32_t threads = threads_for(units * (sp->k_dim / 8), ROPE_STEPS);
    uint32_t turns = sp->n_rot > 1 ? (uint32_t)sp->n_rot / 2 : 1;
    uint64_t at[3], stride = half ? (uint64_t)s[-1].spec.linear.n_out : qn_lower_stride(l, s->in[0]);
    for (int i = 0; i < 3; i++) {
        at[i] = half && s->in[i].buf >= 0 ? m->product + 2 * (uint64_t)(s->in[i].col - s[-1].out[0].col)
                                          : qn_lower_at(l, s->in[i]);
    }
    launch k = {.kernel = "rope_rows.cu",
                .consts = {CONST("threads", (int)threads),
                           CONST("kv_rows", s->kv >= 0 ? qn_kv_rows(&l->plans->kv[s->kv], l->opts->exec) : 1),
                           CONST_SYMBOL("scaled", fused && l->scaled), CONST_SYMBOL("half_in", half),
                           CONST("q_tiles", qn_lower_query_tiles(l, s))},
                .n_const = 5,
                .threads = threads,
                .shared = 8 * turns,
                .rows_axis = 0,
                .args = {m->state, at[0], at[1], at[2], stride, qn_lower_at(l, s->in[0]),
                         qn_lower_stride(l, s->in[0]), m->q16, s->kv >= 0 ? m->k[s->kv] : 0,
                         s->kv >= 0 ? m->v[s->kv] : 0, qn_lower_weight(l, s->w[0]),
                         qn_lower_weight(l, s->w[1]), s->table ? m->table(m->user, s->table) : 0,
                         m->row_scale},
                .n_arg = 14};
    return qn_lower_launch(l, &k);
}
