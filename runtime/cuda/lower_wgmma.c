/* lower_wgmma.c: products of many rows on sm_90a whose weights become f16 in the registers of those who
 * multiply (product_wgmma.cu). */
#include <string.h>

#include "cuda/lower_internal.h"

bool qn_cuda_takes_wgmma(const qn_tensor *t, const qn_exec_opts *opts)
{
    return opts->prefill == QN_PREFILL_WGMMA &&
           (qn_cuda_is_planes(t) || (t->type == QN_F16 && t->ne[0] % 8 == 0));
}

int qn_cuda_act_widths(const qn_plans *p, const qn_exec_opts *opts, int *widths)
{
    int n = 0;
    for (int i = 0; i < p->prefill.n_step; i++) {
        const qn_tensor *w[3];
        int n_w = qn_product_weights(&p->prefill.steps[i], w), at = 0;
        bool takes = false;
        for (int k = 0; k < n_w; k++) {
            takes = takes || qn_cuda_takes_wgmma(w[k], opts);
        }
        while (takes && at < n && widths[at] != (int)w[0]->ne[0]) {
            at++;
        }
        if (takes && at == n && n == QN_CUDA_ACT_WIDTHS) {
            return n + 1;
        }
        if (takes && at == n) {
            widths[n++] = (int)w[0]->ne[0];
        }
    }
    return n;
}

qn_tma qn_act_tma_of(int n_in, const qn_exec_opts *opts)
{
    const uint64_t row = 2 * (uint64_t)n_in, all = row * (uint64_t)opts->n_ubatch;
    return (qn_tma){.keys = 64,
                    .dims = {(uint64_t)n_in, (uint64_t)opts->n_ubatch, 1, 1},
                    .strides = {row, all, all},
                    .box = {64, 64, 1, 1}};
}

/* Bytes of a stage of product_wgmma.cu: its constants, in the same words. */
static size_t stage_bytes(qn_type type, int groups, int tokens)
{
    enum { PER_STEP = 2 };
    static const struct {
        uint8_t q, h, affine;
    } of[QN_TYPE_COUNT] = {
        [QN_Q4_0] = {16, 0, 1}, [QN_Q4_1] = {16, 0, 2}, [QN_Q5_0] = {16, 4, 1},   [QN_Q5_1] = {16, 4, 2},
        [QN_Q8_0] = {32, 0, 1}, [QN_Q2_K] = {8, 0, 4},  [QN_Q3_K] = {8, 4, 2},    [QN_Q4_K] = {16, 0, 2},
        [QN_Q5_K] = {16, 4, 2}, [QN_Q6_K] = {16, 8, 2}, [QN_IQ4_NL] = {16, 0, 1}, [QN_IQ4_XS] = {16, 0, 1},
        [QN_F16] = {64, 0, 0},
    };
    size_t q = PER_STEP * (size_t)of[type].q, rows = 64 * (size_t)groups;
    size_t a_row =
        q + (of[type].q >= 16 ? 16 : 0) + PER_STEP * ((size_t)of[type].h + 4 * (size_t)of[type].affine);
    return ((size_t)tokens * 128 + rows * a_row + 1023) / 1024 * 1024;
}

/* Tiles by rows of activations: the fewer rows, the narrower, since what is beyond them is multiplied too.
 * Two blocks of the narrowest share a multiprocessor. */
static const struct {
    int tokens, groups, blocks;
} shapes[] = {{64, 1, 2}, {128, 2, 1}, {256, 2, 1}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static int most_rows(const lowerer *l)
{
    const qn_buf of = {.rows = l->step->rows};
    return qn_buf_rows(&of, l->opts->exec);
}

static int launch_shape(lowerer *l, int shape, const qn_tensor *const *w, int n, const qn_cuda_gemm *g)
{
    enum { MOST_STAGES = 8, BARRIERS = 16 * MOST_STAGES, ALIGNMENT = 1024, RESERVED = 1024 };
    const qn_cuda_mem *m = l->opts->mem;
    const int tokens = shapes[shape].tokens, groups = shapes[shape].groups, blocks = shapes[shape].blocks;
    const size_t limit =
        qn_lower_shared_limit(QN_VARIANT_SM90A) / (size_t)blocks - (blocks > 1 ? RESERVED : 0);
    const size_t stage = stage_bytes(w[0]->type, groups, tokens),
                 fit = (limit - ALIGNMENT - BARRIERS) / stage;
    const int stages = fit < MOST_STAGES ? (int)fit : MOST_STAGES;
    int64_t tiles = 0,
            resident = (int64_t)blocks * (l->opts->multiprocessors > 0 ? l->opts->multiprocessors : 1);
    uint64_t n_out[3] = {0};
    for (int i = 0; i < n; i++) {
        n_out[i] = w[i]->ne[1];
        tiles += (int64_t)qn_ceil_div((int64_t)n_out[i], 64 * groups);
    }
    tiles *= (int64_t)qn_ceil_div(most_rows(l), tokens);
    int at = 0;
    int widths[QN_CUDA_ACT_WIDTHS], n_width = qn_cuda_act_widths(l->plans, l->opts->exec, widths);
    while (at < n_width && widths[at] != g->n_in) {
        at++;
    }
    launch k = {.kernel = "product_wgmma.cu",
                .path = "wgmma f16",
                .bare = true,
                .consts = {{"dtype", (int)w[0]->type, true, true},
                           {"tokens", tokens, true, false},
                           {"groups", groups, false, false},
                           {"stages", stages, false, false}},
                .n_const = 4,
                .grid = {(uint32_t)(tiles < resident ? tiles : resident), 1, 1},
                .threads = 128 * ((uint32_t)groups + 1),
                .shared = (uint32_t)((size_t)stages * stage + ALIGNMENT + BARRIERS),
                .rows_axis = -1,
                .args = {qn_lower_row_count(l), m->act_maps + QN_CUDA_MAP_BYTES * (uint64_t)at,
                         qn_lower_weight(l, w[0]), n > 1 ? qn_lower_weight(l, w[1]) : 0,
                         n > 2 ? qn_lower_weight(l, w[2]) : 0, n_out[0], n_out[1], n_out[2],
                         (uint64_t)g->n_in, g->out, (uint64_t)g->ld_out},
                .n_arg = 11};
    return qn_lower_launch(l, &k);
}

int qn_lower_wgmma(lowerer *l, const qn_tensor *const *w, int n, const qn_cuda_gemm *g)
{
    const int least = l->min_rows, most = l->max_rows, forced = l->opts->product_tokens;
    int taken = 1;
    while (taken < n && w[taken]->type == w[0]->type && qn_cuda_takes_wgmma(w[taken], l->opts->exec)) {
        taken++;
    }
    int rc = 0;
    for (int i = 0; i < N_SHAPES && rc == 0; i++) {
        const int first = i == 0 ? 0 : shapes[i - 1].tokens + 1;
        if (forced ? forced != shapes[i].tokens : first > most_rows(l)) {
            continue; /* never so many rows */
        }
        l->min_rows = forced || first < least ? least : first;
        l->max_rows = forced || i == N_SHAPES - 1 ? most : shapes[i].tokens;
        rc = launch_shape(l, i, w, taken, g);
    }
    l->min_rows = least;
    l->max_rows = most;
    return rc ? -1 : taken;
}
