/* lower.c: what is common to all ops: lists, programs, launches. lower_ops.c has one function an op. */
#include "cuda/lower_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Bytes of a step's weights as 16-bit rows, of those that are made anew for each use. */
static size_t fresh_halves(const qn_step *s, const qn_exec_opts *opts)
{
    const qn_tensor *w[3];
    size_t bytes = 0;
    int n = qn_product_weights(s, w);
    for (int i = 0; i < n; i++) {
        bool kept = opts->weight_cache == QN_WEIGHT_CACHE_ON && qn_half_kept(s, w[i], opts);
        bool direct = w[i]->type == QN_F16 || w[i]->type == QN_BF16;
        bool whole = qn_cuda_takes_mmq(s, opts) || qn_cuda_takes_wgmma(w[i], opts);
        bytes += direct || kept || whole ? 0 : (size_t)(2 * w[i]->ne[0] * w[i]->ne[1]);
    }
    return s->rows == QN_ROWS_OUTPUTS && bytes > QN_CUDA_HEAD_CHUNK ? QN_CUDA_HEAD_CHUNK : bytes;
}

qn_cuda_sizes qn_cuda_scratch_sizes(const qn_plans *p, const qn_exec_opts *opts)
{
    qn_cuda_sizes z = {.n_w16 = opts->weight_cache == QN_WEIGHT_CACHE_OFF ? 2 : 1};
    size_t rows = (size_t)opts->n_ubatch;
    int n_in = 1, n_q8 = 1; /* longest rows: of products, of what goes out in 8 bits */
    for (int i = 0; i < p->prefill.n_step; i++) {
        const qn_step *s = &p->prefill.steps[i];
        const qn_buf of = {.rows = s->rows};
        size_t out = 0, in = 0;
        if (s->op->id == QN_OP_LINEAR) {
            in = (size_t)s->spec.linear.n_in;
            out = (size_t)s->spec.linear.n_out;
        } else if (s->op->id == QN_OP_GLU) {
            in = (size_t)s->spec.glu.n_in;
            out = 2 * (size_t)s->spec.glu.n_ff;
            n_in = max_int(n_in, s->spec.glu.n_ff); /* which the next product takes as 16-bit rows */
        } else if (s->op->id == QN_OP_NORM) {
            z.row_sums = max_size(z.row_sums, ((size_t)s->spec.norm.n / 32 + 2) * sizeof(uint64_t));
            z.stream = max_size(z.stream, (size_t)s->out[0].width * sizeof(float));
        } else if (s->op->id == QN_OP_ATTENTION) {
            const qn_spec_attention *a = &s->spec.attention;
            z.part_count = max_size(z.part_count, rows * (size_t)a->n_head * sizeof(uint32_t));
            if (qn_tma_of(&p->kv[s->kv], opts).keys && qn_cuda_tiles_dim(a->k_dim)) {
                z.q16 = max_size(z.q16,
                                 (rows + 127) / 128 * (size_t)a->n_head * qn_cuda_query_tile_bytes(a->k_dim));
            }
            size_t per = (size_t)a->n_head * (size_t)(a->v_dim + 2) * sizeof(float);
            size_t most = QN_CUDA_FEW * QN_CUDA_MAX_SPLIT;
            z.parts = max_size(z.parts, per * (opts->plain_attention ? max_size(most, rows) : most));
        }
        z.w16 = max_size(z.w16, fresh_halves(s, opts));
        z.product = max_size(z.product, out * (size_t)qn_buf_rows(&of, opts) * sizeof(float));
        n_in = max_int(n_in, (int)in);
        n_q8 = max_int(n_q8, max_int((int)in, s->op->id == QN_OP_LINEAR ? 0 : s->out[0].width));
    }
    for (int i = 0; i < p->n_kv; i++) {
        const qn_kv_cache *kv = &p->kv[i];
        size_t heads = (size_t)qn_n_seq(opts) * (size_t)qn_kv_rows(kv, opts) * (size_t)kv->n_head_kv;
        z.k16 = opts->k_type == QN_CACHE_F16 ? 0 : max_size(z.k16, 2 * heads * (size_t)kv->k_dim);
        z.v16 = opts->v_type == QN_CACHE_F16 ? 0 : max_size(z.v16, 2 * heads * (size_t)kv->v_dim);
    }
    z.squares = ((size_t)n_q8 + 31) / 32 * sizeof(float) * QN_CUDA_FEW;
    z.part_count = max_size(z.part_count, z.squares); /* a counter a group */
    /* Rows as kernel_src/quantise.cuh has them: at most 3 places more than groups, of 48 bytes or 40. */
    z.q8 = (((size_t)n_q8 + 31) / 32 + 3) * 48 * QN_CUDA_FEW;
    z.a16 = (size_t)n_in * rows * 2;
    z.row_scale = rows * sizeof(float);
    qn_cuda_choice_sizes(&z, p->model->n_vocab, opts);
    return z;
}

/* Bytes of the planes of a type: at every place of a row, and of every super-block (kernel_src/planes.cuh).
 */
static const struct {
    uint8_t place, block;
} plane_bytes[QN_TYPE_COUNT] = {
    [QN_Q4_0] = {18, 0},      [QN_Q4_1] = {20, 0},      [QN_Q5_0] = {22, 0},     [QN_Q5_1] = {24, 0},
    [QN_Q8_0] = {34, 0},      [QN_Q2_K] = {8, 16 + 4},  [QN_Q3_K] = {8 + 4, 18}, [QN_Q4_K] = {16, 16},
    [QN_Q5_K] = {16 + 4, 16}, [QN_Q6_K] = {16 + 8, 18}, [QN_IQ4_NL] = {18, 0},   [QN_IQ4_XS] = {16, 8},
};

uint64_t qn_lower_places(uint64_t groups)
{
    enum { SPAN = 128 };
    uint64_t rest = groups % SPAN, steps = rest > 64 ? 4 : rest > 32 ? 2 : 1;
    return groups - rest + (rest + steps - 1) / steps * steps;
}

uint64_t qn_cuda_weight_bytes(const qn_tensor *t)
{
    if (!qn_cuda_is_planes(t)) {
        return t->n_bytes;
    }
    uint64_t groups = t->ne[0] / 32, rows = t->ne[1] * t->ne[2] * t->ne[3], places = qn_lower_places(groups);
    return rows * (places * plane_bytes[t->type].place + groups / 8 * plane_bytes[t->type].block);
}

bool qn_cuda_fine(const qn_exec_opts *opts, int n)
{
    return n < (opts->fine_below > 0 ? opts->fine_below : QN_CUDA_FINE_BELOW);
}

bool qn_cuda_is_planes(const qn_tensor *t)
{
    return t->n_dims > 1 && qn_dtype_get(t->type)->block_values > 1;
}

/* Index of the program with this source; it is added where it is new. Takes the source. */
int qn_lower_program(lowerer *l, const char *name, qn_source *src)
{
    qn_lowered *out = l->out;
    for (int i = 0; i < out->n_program; i++) {
        if (strcmp(out->programs[i].source.text, src->text) == 0) {
            qn_source_free(src);
            out->programs[i].n_use++;
            return i;
        }
    }
    if (out->n_program == out->cap_program) {
        int cap = out->cap_program ? 2 * out->cap_program : 32;
        qn_cuda_program *p = realloc(out->programs, sizeof *p * (size_t)cap);
        if (!p) {
            qn_source_free(src);
            return qn_fail(l->err, "out of memory for programs");
        }
        out->programs = p;
        out->cap_program = cap;
    }
    qn_cuda_program *p = &out->programs[out->n_program];
    memset(p, 0, sizeof *p);
    p->source = *src;
    snprintf(p->name, sizeof p->name, "%s", name);
    p->first = l->step;
    p->n_use = 1;
    return out->n_program++;
}

qn_cuda_action *qn_lower_add(lowerer *l)
{
    qn_cuda_list *list = l->list;
    if (list->n == list->cap) {
        int cap = list->cap ? 2 * list->cap : 128;
        qn_cuda_action *a = realloc(list->actions, sizeof *a * (size_t)cap);
        if (!a) {
            qn_fail(l->err, "out of memory for launches");
            return NULL;
        }
        list->actions = a;
        list->cap = cap;
    }
    qn_cuda_action *a = &list->actions[list->n++];
    memset(a, 0, sizeof *a);
    a->step = l->step;
    a->rows_axis = -1;
    a->rows = l->step ? l->step->rows : QN_ROWS_TOKENS;
    a->w16 = l->w16;
    a->makes_w16 = l->makes_w16;
    a->min_rows = l->min_rows;
    a->max_rows = l->max_rows;
    a->depth = l->depth;
    return a;
}

int qn_lower_launch(lowerer *l, const launch *k)
{
    qn_source src;
    char name[40];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(k->kernel, "."), k->kernel);
    qn_source_request r = {.name = name,
                           .kernel = k->kernel,
                           .op = k->bare ? NULL : l->step->op,
                           .spec = k->bare ? NULL : &l->step->spec,
                           .also = k->also ? k->also->op : NULL,
                           .also_spec = k->also ? &k->also->spec : NULL,
                           .variant = l->opts->variant,
                           .consts = k->consts,
                           .n_const = k->n_const};
    if (qn_source_make(&src, &r, l->err)) {
        return l->step ? qn_fail_prefix(l->err, "step %s", l->step->name) : -1;
    }
    int program = qn_lower_program(l, name, &src);
    qn_cuda_action *a = program < 0 ? NULL : qn_lower_add(l);
    if (!a) {
        return -1;
    }
    a->program = program;
    a->path = k->path ? k->path : "";
    a->grid[0] = k->grid[0] ? k->grid[0] : 1;
    a->grid[1] = k->grid[1] ? k->grid[1] : 1;
    a->grid[2] = k->grid[2] ? k->grid[2] : 1;
    a->threads = k->threads;
    a->shared = k->shared;
    a->rows_axis = k->rows_axis;
    a->rows_share = k->rows_share;
    a->rows_per = k->rows_per ? k->rows_per : 1;
    a->n_arg = k->n_arg;
    memcpy(a->args, k->args, sizeof a->args);
    a->site = k->site;
    a->resident = k->resident;
    a->rings = k->rings;
    return 0;
}

/* The product as a kernel of quern's own (product.cu). */
static int own_gemm(lowerer *l, const qn_cuda_gemm *g)
{
    enum { TILE = 128, STAGE_BYTES = 20480 };
    int stages = l->opts->variant >= QN_VARIANT_SM80 ? 4 : 1;
    launch k = {.kernel = "product.cu",
                .path = g->bf16 ? "mma bf16" : "mma f16",
                .bare = true,
                .consts = {{"bf16", g->bf16, true, false},
                           {"whole", g->n_in % 8 == 0, true, false},
                           {"stages", stages, false, false}},
                .n_const = 3,
                .grid = {qn_ceil_div(g->n_out, TILE), 1, 1},
                .threads = 256,
                .shared = (uint32_t)(stages * STAGE_BYTES),
                .rows_axis = 1,
                .rows_per = TILE,
                .args = {qn_lower_row_count(l), g->a, g->w, g->out, (uint64_t)g->n_in, (uint64_t)g->n_out,
                         (uint64_t)g->ld_out},
                .n_arg = 7};
    return qn_lower_launch(l, &k);
}

int qn_lower_gemm(lowerer *l, const qn_cuda_gemm *g)
{
    qn_prefill route = l->opts->exec->prefill;
    if (route == QN_PREFILL_MMA || route == QN_PREFILL_MMQ || route == QN_PREFILL_WGMMA) {
        return own_gemm(l, g);
    }
    qn_cuda_action *a = qn_lower_add(l);
    if (!a) {
        return -1;
    }
    a->is_gemm = true;
    a->path = g->fp8        ? "cuBLASLt fp8"
              : g->bf16     ? "cuBLASLt bf16"
              : g->half_out ? "cuBLASLt f16, as f16"
                            : "cuBLASLt f16";
    a->gemm = *g;
    return 0;
}

bool qn_cuda_runs(const qn_cuda_action *a, int rows, int pos)
{
    bool there = a->depth == QN_DEPTH_ANY || (a->depth == QN_DEPTH_DEEP) == (pos > QN_CUDA_SHALLOW);
    return there && rows >= a->min_rows && (a->max_rows == 0 || rows <= a->max_rows);
}

uint64_t qn_lower_at(const lowerer *l, qn_view v)
{
    if (v.buf < 0) {
        return 0;
    }
    return (v.buf == l->stream_buf ? l->stream_at : l->opts->mem->bufs[v.buf]) + 4 * (uint64_t)v.col;
}

uint64_t qn_lower_row_count(const lowerer *l)
{
    return l->opts->mem->state +
           (qn_lower_outputs(l) ? offsetof(qn_cuda_state, n_out) : offsetof(qn_cuda_state, n_rows));
}

uint64_t qn_lower_stride(const lowerer *l, qn_view v)
{
    return v.buf < 0 ? 0 : (uint64_t)l->plans->bufs[v.buf].width;
}

uint64_t qn_lower_weight(const lowerer *l, const qn_tensor *t)
{
    return t ? l->opts->mem->weight(l->opts->mem->user, t) : 0;
}

/* Forms of a buffer beside f32 that a step has made stale by writing the buffer. */
static void forget_forms(lowerer *l, bool q8_is_new, bool h_is_new)
{
    for (int k = 0; k < QN_STEP_VIEWS; k++) {
        int buf = l->step->out[k].buf;
        if (buf >= 0 && buf == l->q8_view.buf && !q8_is_new) {
            l->q8_view.buf = -1;
        }
        if (buf >= 0 && buf == l->h_view.buf && !h_is_new) {
            l->h_view.buf = -1;
        }
        if (buf >= 0 && buf == l->no_f32.buf && !h_is_new) {
            l->no_f32.buf = -1;
        }
    }
}

static int lower_plan(lowerer *l, const qn_plan *plan, qn_cuda_list *list, lower_mode mode)
{
    l->list = list;
    l->mode = mode;
    l->q8_view.buf = l->h_view.buf = l->no_f32.buf = -1;
    l->done = l->apart = l->from_product = NULL;
    l->left = (left_norm){0};
    l->stream_buf = -1;
    for (int i = 0; i < plan->n_step; i++) {
        l->step = &plan->steps[i];
        l->plan = plan;
        if (l->done && l->step <= l->done) {
            continue; /* norms of the product before them; attention that finished its queries */
        }
        int q8_made = l->q8_made, h_made = l->h_made;
        if (qn_lower_ops[l->step->op->id](l)) {
            return -1;
        }
        forget_forms(l, q8_made != l->q8_made, h_made != l->h_made);
    }
    l->step = NULL;
    return 0;
}

static int lower_each(lowerer *l, const qn_plan *plan)
{
    l->each = true;
    int rc = lower_plan(l, plan, &l->out->each, LOWER_FEW);
    l->each = false;
    return rc;
}

/* Largest values of the weights kept as e4m3. */
static int lower_tops(lowerer *l, qn_cuda_list *list)
{
    const qn_plan *p = &l->plans->prefill;
    const qn_cuda_mem *m = l->opts->mem;
    l->list = list;
    for (int i = 0; m->fp8 && i < p->n_step * QN_STEP_WEIGHTS; i++) {
        const qn_tensor *t = p->steps[i / QN_STEP_WEIGHTS].w[i % QN_STEP_WEIGHTS];
        bool done = !t || !m->fp8(m->user, t);
        for (int j = 0; j < list->n && !done; j++) {
            done = list->actions[j].repack == t;
        }
        if (!done && qn_lower_fp8_weight(l, t, true)) {
            return -1;
        }
    }
    return 0;
}

/* Every quantised weight once, every weight kept as 16-bit rows once. */
static int lower_weights(lowerer *l, qn_cuda_list *list, bool halves)
{
    const qn_plan *plans[2] = {&l->plans->prefill, &l->plans->decode};
    const qn_cuda_mem *m = l->opts->mem;
    l->list = list;
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < plans[k]->n_step; i++) {
            for (int w = 0; w < QN_STEP_WEIGHTS; w++) {
                const qn_tensor *t = plans[k]->steps[i].w[w];
                bool known = !t || (halves ? !m->half || m->half(m->user, t) == 0 : !qn_cuda_is_planes(t));
                for (int j = 0; j < list->n && !known; j++) {
                    known = list->actions[j].repack == t;
                }
                if (!known && (halves ? qn_lower_half(l, t) : qn_lower_repack(l, t))) {
                    return -1;
                }
            }
        }
    }
    return 0;
}

int qn_lower(qn_lowered *out, const qn_plans *plans, const qn_lower_opts *opts, qn_err *err)
{
    memset(out, 0, sizeof *out);
    lowerer l = {.out = out, .plans = plans, .opts = opts, .err = err};
    if (opts->exec->prefill == QN_PREFILL_WGMMA && opts->variant < QN_VARIANT_SM90A) {
        return qn_fail(err, "--prefill wgmma is for sm_90a; the kernels here are of variant %s",
                       qn_variant_name(opts->variant));
    }
    int widths[QN_CUDA_ACT_WIDTHS];
    if (qn_cuda_act_widths(plans, opts->exec, widths) > QN_CUDA_ACT_WIDTHS) {
        return qn_fail(err, "--prefill wgmma: products of more than %d different widths", QN_CUDA_ACT_WIDTHS);
    }
    if (lower_plan(&l, &plans->decode, &out->decode, LOWER_DECODE) || qn_lower_choices(&l, &plans->decode) ||
        (opts->persistent && qn_lower_persistent(&l)) ||
        lower_plan(&l, &plans->prefill, &out->few, LOWER_FEW) || lower_each(&l, &plans->prefill) ||
        lower_plan(&l, &plans->prefill, &out->prefill, LOWER_PREFILL) ||
        lower_weights(&l, &out->repack, false) || lower_tops(&l, &out->tops) ||
        lower_weights(&l, &out->halves, true)) {
        qn_lowered_free(out);
        return -1;
    }
    return 0;
}

void qn_lowered_free(qn_lowered *l)
{
    for (int i = 0; i < l->n_program; i++) {
        qn_source_free(&l->programs[i].source);
    }
    free(l->programs);
    free(l->sites);
    free(l->decode.actions);
    free(l->few.actions);
    free(l->each.actions);
    free(l->prefill.actions);
    for (int i = 0; i < QN_CHOOSE_COUNT; i++) {
        free(l->choose[i].actions);
    }
    free(l->repack.actions);
    free(l->persistent.actions);
    free(l->persistent_steps.actions);
    free(l->phases);
    free(l->words);
    free(l->halves.actions);
    free(l->tops.actions);
    memset(l, 0, sizeof *l);
}
