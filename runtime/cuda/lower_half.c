/* lower_half.c: products of few rows with f16 or bf16 weights of one type. */
#include "cuda/lower_internal.h"

enum { WARPS = 16, COLS = 8, PIECE = 512 };

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

/* Pairs of rows a block does, and warps that share a pair. */
typedef struct half_shape {
    int chunk, slices;
} half_shape;

/* The fewest turns on a card of NOMINAL multiprocessors. The sums' order hangs on the warps that share, so
 * these are the same on every card. */
static half_shape shape_of(const lowerer *l, int n_in, int pairs, int cols, int warps)
{
    enum { NOMINAL = 132, MAX_SUMS = 48 * 1024 / 8 }; /* of a column and slice */
    int sms = l->opts->multiprocessors > 0 ? l->opts->multiprocessors : 1;
    int pieces = (n_in + PIECE - 1) / PIECE;
    int64_t least = INT64_MAX;
    half_shape best = {1, 1};
    for (int slices = 1; warps % slices == 0 && slices <= pieces; slices *= 2) {
        int chunk = (int)qn_ceil_div(pairs, NOMINAL), most = MAX_SUMS / (cols * slices);
        chunk = chunk > most ? most : chunk;
        int64_t turns = (int64_t)qn_ceil_div(qn_ceil_div(pairs, chunk), NOMINAL) *
                        qn_ceil_div(chunk, warps / slices) * qn_ceil_div(pieces, slices);
        if (turns < least) {
            least = turns;
            best.slices = slices;
        }
    }
    int most = MAX_SUMS / (cols * best.slices);
    best.chunk = (int)qn_ceil_div(pairs, sms);
    best.chunk = best.chunk > most ? most : best.chunk;
    return best;
}

/* What both ops share; `pairs`: of rows in all. */
static launch half_launch(const lowerer *l, const char *kernel, qn_view in, qn_type type, int pairs)
{
    int cols = l->mode == LOWER_DECODE || l->opts->exec->rows_apart ? 1 : COLS;
    /* A phase of the persistent kernel has fewer warps. */
    int warps = l->opts->persistent && l->mode == LOWER_DECODE ? QN_LOWER_PHASE_WARPS : WARPS;
    half_shape s = shape_of(l, in.width, pairs, cols, warps);
    return (launch){.kernel = kernel,
                    .path = type == QN_BF16 ? "gemv bf16" : "gemv f16",
                    .consts = {{"warps", warps, false, false},
                               {"outputs", qn_lower_outputs(l), false, false},
                               {"cols", cols, false, false},
                               {"bf16", type == QN_BF16, false, false}},
                    .n_const = 4,
                    .grid = {qn_ceil_div(pairs, s.chunk), 1, 1},
                    .threads = 32 * (uint32_t)warps,
                    .shared = 8 * (uint32_t)(s.chunk * cols * s.slices),
                    .rows_axis = 1,
                    .rows_per = (uint32_t)cols,
                    .args = {l->opts->mem->state, qn_lower_at(l, in), qn_lower_stride(l, in),
                             (uint64_t)s.chunk, (uint64_t)s.slices},
                    .n_arg = 5};
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
    return qn_lower_launch(l, &k);
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
    return qn_lower_launch(l, &k);
}
