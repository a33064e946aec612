/* lower_fp8.c: products of prompts with e4m3 operands (--prefill fp8): weights kept as such rows, one power
 * of two a product, activations rounded before each product, one a row. */
#include <math.h>

#include "cuda/lower_internal.h"

bool qn_cuda_takes_fp8(const qn_step *s, const qn_exec_opts *opts)
{
    enum { GRAIN = 16 }; /* what the library's products of bytes want of both sizes */
    const qn_tensor *w[3];
    int n = qn_product_weights(s, w);
    bool all = opts->prefill == QN_PREFILL_FP8 && n > 0 && s->rows == QN_ROWS_TOKENS;
    for (int i = 0; i < n; i++) {
        all = all && w[i]->ne[0] % GRAIN == 0 && w[i]->ne[1] % GRAIN == 0;
    }
    return all;
}

float qn_cuda_fp8_up(float top)
{
    int e = top > 0 ? ilogbf(top) - 7 : 0;
    return ldexpf(1.0f, e < -100 ? -100 : e > 100 ? 100 : e);
}

int qn_lower_fp8_weight(lowerer *l, const qn_tensor *t, bool find)
{
    enum { THREADS = 256 };
    const qn_cuda_mem *m = l->opts->mem;
    launch k = {.kernel = "dequant_fp8.cu",
                .bare = true,
                .consts = {{"dtype", (int)t->type, true, true},
                           {"find", find, true, false},
                           {"threads", THREADS, false, false}},
                .n_const = 3,
                .grid = {qn_ceil_div((int64_t)(t->ne[0] / 8 * t->ne[1]), THREADS), 1, 1},
                .threads = THREADS,
                .shared = THREADS / 32 * 4,
                .rows_axis = -1,
                .args = {qn_lower_weight(l, t), m->half(m->user, t), t->ne[1], t->ne[0],
                         m->fp8_tops + 4 * (uint64_t)(m->fp8(m->user, t) - 1)},
                .n_arg = 5};
    if (qn_lower_launch(l, &k)) {
        return -1;
    }
    l->list->actions[l->list->n - 1].repack = t;
    return 0;
}

/* Rounds the rows of `in` to e4m3 with a power of two each, in a16, unless they stand so already. */
static int fp8_rows(lowerer *l, qn_view in)
{
    const qn_cuda_mem *m = l->opts->mem;
    uint32_t threads = qn_row_threads(in.width);
    launch k = {.kernel = "to_fp8.cu",
                .bare = true,
                .consts = {{"n", in.width, true, false}, {"threads", (int)threads, false, false}},
                .n_const = 2,
                .threads = threads,
                .shared = threads / 32 * 4,
                .rows_axis = 0,
                .args = {m->state, qn_lower_at(l, in), qn_lower_stride(l, in), m->a16, m->row_scale},
                .n_arg = 5};
    l->h_view.buf = -1; /* no 16-bit form stands there now */
    l->h_made++;
    return qn_lower_launch(l, &k);
}

int qn_lower_products_fp8(lowerer *l, qn_view in, const qn_tensor *const *w, int n, uint64_t out, int ld_out)
{
    const qn_cuda_mem *m = l->opts->mem;
    qn_cuda_gemm g = {.a = m->a16, .n_in = in.width, .ld_out = ld_out, .rows = l->step->rows};
    if (fp8_rows(l, in)) {
        return -1;
    }
    for (int i = 0, taken; i < n; i += taken) { /* weights whose rows follow each other: one product */
        uint64_t end = g.w = m->half(m->user, w[i]);
        g.fp8 = m->fp8(m->user, w[i]);
        g.out = out;
        g.n_out = 0;
        taken = 0;
        do {
            end += w[i + taken]->ne[0] * w[i + taken]->ne[1];
            g.n_out += (int)w[i + taken]->ne[1];
            taken++;
        } while (i + taken < n && m->half(m->user, w[i + taken]) == end &&
                 m->fp8(m->user, w[i + taken]) == g.fp8);
        out += 4 * (uint64_t)g.n_out;
        if (qn_lower_gemm(l, &g)) {
            return -1;
        }
    }
    l->scaled = true;
    return 0;
}
