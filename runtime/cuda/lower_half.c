/* lower_half.c: products of few rows with f16 or bf16 weights of one type. */
#include "cuda/lower_internal.h"

enum { COLS = 8, PIECE = 512 };

bool qn_lower_takes_half(const lowerer *l, qn_view in, const qn_tensor *const *w, int n)
{
    const qn_tensor *first = NULL;
    bool all =
        !l->opts->exec->plain_gemv && in.width % 8 == 0 && in.col % 4 == 0 && qn_lower_stride(l, in) % 4 == 0;
    for (int i = 0; i < n && all; i++) {
        first = first ? first : w[i];
        all = !w[i] || ((w[i]->type == QN_F16 || w[i]->type == QN_BF16) && w[i]->type == first->type);
    }
    return all && first;
}

enum { MAX_SUMS = 48 * 1024 / 8 }; /* of a block's pairs, columns and slices */

static int chunk_of(int slices, int blocks, int pairs, int cols)
{
    int chunk = (int)qn_ceil_div(pairs, blocks), most = MAX_SUMS / (cols * slices);
    return chunk > most ? most : chunk;
}

/* Shipped: as many warps share a pair of rows as make the fewest turns on a nominal card: the sums' order
 * hangs on them, so they are the same on every card. */
static qn_knobs shipped_half(int pieces, int pairs, int cols, int warps)
{
    qn_knobs k = {.warps = warps, .slices = 1, .ahead = 2, .per_sm = 1};
    int64_t least = INT64_MAX;
    for (int slices = 1; warps % slices == 0 && slices <= pieces; slices *= 2) {
        int chunk = chunk_of(slices, QN_LOWER_NOMINAL, pairs, cols);
        int64_t turns = (int64_t)qn_ceil_div(qn_ceil_div(pairs, chunk), QN_LOWER_NOMINAL) *
                        qn_ceil_div(chunk, warps / slices) * qn_ceil_div(pieces, slices);
        if (turns < least) {
            least = turns;
            k.slices = slices;
        }
    }
    return k;
}

/* What both ops share; `pairs`: of rows in all. n_const 0: out of memory. */
static launch half_launch(lowerer *l, const char *kernel, qn_view in, qn_type type, int pairs)
{
    int cols = l->mode == LOWER_DECODE || l->opts->exec->rows_apart ? 1 : COLS;
    int pieces = (in.width + PIECE - 1) / PIECE;
    const qn_knobs shipped =
        shipped_half(pieces, pairs, cols, qn_lower_rings(l) ? QN_KNOB_WARPS / 2 : QN_KNOB_WARPS);
    const qn_knob_room room = {.parts = pieces, .rows = pairs, .sums = MAX_SUMS / cols};
    launch k = {.kernel = kernel};
    const qn_knobs *c = qn_lower_knobs(l, &k, QN_KNOBS_HALF, kernel, NULL, &room, &shipped);
    if (!c) {
        return k;
    }
    int sms = l->opts->multiprocessors > 0 ? l->opts->multiprocessors : 1;
    int chunk = chunk_of(c->slices, sms * c->per_sm, pairs, cols);
    return (launch){
        .kernel = kernel,
        .path = type == QN_BF16 ? "gemv bf16" : "gemv f16",
        .consts = {{"warps", c->warps, false, false},
                   {"slices", c->slices, false, false},
                   {"ahead", c->ahead, false, false},
                   {"per_sm", c->per_sm, false, false},
                   {"outputs", qn_lower_outputs(l), false, false},
                   {"cols", cols, false, false},
                   {"bf16", type == QN_BF16, false, false}},
        .n_const = 7,
        .site = k.site,
        .grid = {qn_ceil_div(pairs, chunk), 1, 1},
        .threads = 32 * (uint32_t)c->warps,
        .shared = 8 * (uint32_t)(chunk * cols * c->slices),
        .rows_axis = 1,
        .rows_per = (uint32_t)cols,
        .args = {l->opts->mem->state, qn_lower_at(l, in), qn_lower_stride(l, in), (uint64_t)chunk},
        .n_arg = 4};
}

int qn_lower_linear_half(lowerer *l)
{
    const qn_step *s = l->step;
    launch k = half_launch(l, "linear_half.cu", s->in[0], s->w[0]->type, (s->spec.linear.n_out + 1) / 2);
    k.args[k.n_arg++] = qn_lower_at(l, s->in[1]);
    k.args[k.n_arg++] = qn_lower_stride(l, s->in[1]);
    k.args[k.n_arg++] = qn_lower_at(l, s->out[0]);
    k.args[k.n_arg++] = qn_lower_stride(l, s->out[0]);
    for (int i = 0; i < 10; i++) {
        k.args[k.n_arg++] = qn_lower_weight(l, s->w[i]);
    }
    return k.n_const ? qn_lower_launch(l, &k) : -1;
}

int qn_lower_glu_half(lowerer *l)
{
    const qn_step *s = l->step;
    launch k = half_launch(l, "glu_half.cu", s->in[0], s->w[3]->type, s->spec.glu.n_ff);
    k.args[k.n_arg++] = qn_lower_at(l, s->out[0]);
    k.args[k.n_arg++] = qn_lower_stride(l, s->out[0]);
    for (int i = 0; i < 6; i++) {
        k.args[k.n_arg++] = qn_lower_weight(l, s->w[i]);
    }
    return k.n_const ? qn_lower_launch(l, &k) : -1;
}
