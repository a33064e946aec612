/* emu_ops OP [WORD [VARIANT]]: the cases of an op (those whose name contains WORD): its kernels of a variant
 * (sm75, sm80, sm90a; default sm80) under emulation against its reference function in exact arithmetic,
 * through the lists for one row (decode), few rows and many rows (prefill). Prints NMSE and the worst element
 * (of the outputs' root mean square) of the worst cases.
 *
 * emu_ops --list-is OP...: are these the ops that have cases? (That each template is launched by a case:
 * emu_gen.c.) */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "codegen/kv_type.h"
#include "cpu/cpu.h"
#include "emu_cases.h"
#include "emu_exec.h"
#include "emu_operands.h"
#include "emu_q8.h"
#include "emu_source.h"

/* How a case is run. By default quantised weights take 8-bit activations, and prefill rounds both operands to
 * f16 or bf16: the reference then gets the same operands, so that what is left is the order of sums. */
typedef struct way {
    const char *name;
    int rows;
    bool decode, prefill, f32, rows_attention, no_fuse;
    qn_prefill route;
    bool tma, f32_products;
    int tokens; /* of a tile of product_wgmma.cu */
    bool alone; /* one multiprocessor: blocks that stay take several tiles each */
} way;
static const way ways[] = {
    {.name = "decode", .rows = 1, .decode = true},
    {.name = "few", .rows = 3},
    {.name = "decode f32", .rows = 1, .decode = true, .f32 = true},
    {.name = "few f32", .rows = 3, .f32 = true},
    {.name = "decode rows", .rows = 1, .decode = true, .rows_attention = true},
    {.name = "few rows", .rows = 3, .rows_attention = true},
    {.name = "decode apart", .rows = 1, .decode = true, .no_fuse = true},
    {.name = "prefill", .rows = 13, .prefill = true},
    {.name = "f32 products", .rows = 13, .prefill = true, .f32_products = true},
    {.name = "mma", .rows = 13, .prefill = true, .route = QN_PREFILL_MMA},
    {.name = "mmq", .rows = 13, .prefill = true, .route = QN_PREFILL_MMQ},
    {.name = "tma", .rows = 13, .prefill = true, .tma = true},
    {.name = "fp8", .rows = 13, .prefill = true, .route = QN_PREFILL_FP8},
    {.name = "wgmma", .rows = 13, .prefill = true, .route = QN_PREFILL_WGMMA, .tokens = 64},
    {.name = "wgmma 128", .rows = 13, .prefill = true, .route = QN_PREFILL_WGMMA, .tokens = 128},
    {.name = "wgmma 256", .rows = 13, .prefill = true, .route = QN_PREFILL_WGMMA, .tokens = 256},
    {.name = "wgmma tiles",
     .rows = 75,
     .prefill = true,
     .route = QN_PREFILL_WGMMA,
     .tokens = 64,
     .alone = true},
};
enum { N_WAYS = sizeof ways / sizeof *ways };

typedef struct runner {
    const char *word;
    int variant, n_run, n_failed;
    double worst_nmse[N_WAYS], worst_element[N_WAYS];
    char worst_name[N_WAYS][160];
    int runs[N_WAYS];
} runner;

/* NMSE of the worst row, and the worst element of that row over the row's root mean square. */
typedef struct error_sum {
    double d2, ref2, worst; /* of the current row */
    size_t n;
    double nmse, element;
    int rows;
    bool bad;
} error_sum;

static void compare(error_sum *e, const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        e->bad = e->bad || !isfinite(got[i]) || !isfinite(want[i]);
        e->d2 += d * d;
        e->ref2 += (double)want[i] * (double)want[i];
        e->worst = fabs(d) > e->worst ? fabs(d) : e->worst;
    }
    e->n += n;
}

static void end_row(error_sum *e)
{
    double nmse = e->ref2 > 0 ? e->d2 / e->ref2 : e->d2;
    if (nmse >= e->nmse) {
        e->nmse = nmse;
        e->element = e->ref2 > 0 ? e->worst / sqrt(e->ref2 / (double)e->n) : e->worst;
    }
    e->rows++;
    e->d2 = e->ref2 = e->worst = 0;
    e->n = 0;
}

/* The reference's values are rounded as the cache is: what is left is where the two sides of a rounding
 * differ. */
static void compare_cache(error_sum *e, uint64_t at, qn_cache_type type, const float *want, int row,
                          int heads, int dim)
{
    size_t unit = qn_cuda_kv_bytes(type, 1, dim);
    float *got = malloc(sizeof *got * (size_t)dim), *due = malloc(sizeof *due * (size_t)dim);
    uint8_t *raw = malloc(unit);
    for (int i = row * heads; i < (row + 1) * heads; i++) {
        qn_cuda_kv_get(type, (const uint8_t *)(uintptr_t)at + (size_t)i * unit, got, dim);
        qn_cuda_kv_put(type, want + (size_t)i * (size_t)dim, raw, dim);
        qn_cuda_kv_get(type, raw, due, dim);
        compare(e, got, due, (size_t)dim);
    }
    end_row(e);
    free(got);
    free(due);
    free(raw);
}

static void start_values(emu_case *c, qn_exec *cpu, qn_exec *emu)
{
    const qn_cuda_mem *m = emu_exec_mem(emu);
    qn_cpu *x = (qn_cpu *)cpu;
    for (int i = 0; i < CASE_BUFS; i++) {
        int rows = c->exec.n_ubatch == CASE_ROWS ? CASE_ROWS : CASE_UBATCH;
        size_t bytes = sizeof(float) * (size_t)c->bufs[i].width * (size_t)rows;
        if (c->start[i]) {
            memcpy(x->bufs[i], c->start[i], bytes);
            emu_put(m->bufs[i], c->start[i], bytes);
        }
    }
    if (c->k) {
        const qn_kv_cache *kv = &c->kv;
        int rows = qn_kv_rows(kv, &c->exec), heads = kv->n_head_kv;
        memcpy(x->kv[0].k, c->k, sizeof(float) * (size_t)(rows * heads * kv->k_dim));
        memcpy(x->kv[0].v, c->v, sizeof(float) * (size_t)(rows * heads * kv->v_dim));
        emu_put_cache(m->k[0], c->exec.k_type, c->k, rows, heads, kv->k_dim);
        emu_put_cache(m->v[0], c->exec.v_type, c->v, rows, heads, kv->v_dim);
    }
}

static int rows_of(const emu_case *c, int rows)
{
    return c->steps[0].rows == QN_ROWS_TOKENS ? rows : c->outputs == QN_OUT_ALL ? rows : 1;
}

static int compare_view(qn_view v, int rows, qn_exec *cpu, qn_exec *emu, error_sum *e, qn_err *err)
{
    size_t n = (size_t)rows * (size_t)v.width;
    float *got = malloc(n * sizeof(float)), *want = malloc(n * sizeof(float));
    int rc = emu->read(emu, v, 0, rows, got, err) || cpu->read(cpu, v, 0, rows, want, err) ? -1 : 0;
    for (int r = 0; r < rows && rc == 0; r++) {
        compare(e, got + (size_t)r * (size_t)v.width, want + (size_t)r * (size_t)v.width, (size_t)v.width);
        end_row(e);
    }
    free(got);
    free(want);
    return rc;
}

static int compare_case(emu_case *c, qn_exec *cpu, qn_exec *emu, int rows, error_sum *e, qn_err *err)
{
    const qn_step *last = &c->steps[c->plans.prefill.n_step - 1];
    int rc = 0;
    for (int i = 0; i < QN_STEP_VIEWS && rc == 0; i++) {
        rc = last->out[i].buf >= 0 ? compare_view(last->out[i], rows_of(c, rows), cpu, emu, e, err) : 0;
    }
    const qn_step *stores = c->steps[0].op->id == QN_OP_ROPE_KV ? &c->steps[0] : last;
    if (rc == 0 && stores->op->id == QN_OP_ROPE_KV && stores->kv >= 0) {
        const qn_cpu_kv *kv = &((const qn_cpu *)cpu)->kv[0];
        for (int r = 0; r < rows; r++) {
            int at = (c->pos + r) % kv->rows;
            compare_cache(e, emu_exec_mem(emu)->k[0], c->exec.k_type, kv->k, at, c->kv.n_head_kv,
                          c->kv.k_dim);
            compare_cache(e, emu_exec_mem(emu)->v[0], c->exec.v_type, kv->v, at, c->kv.n_head_kv,
                          c->kv.v_dim);
        }
    }
    return rc;
}

/* Gives the reference the rows of a view as they stand in 8 bits, times a factor a row (NULL: 1). */
static void take_q8(qn_cpu *x, qn_view v, uint64_t at, int rows, const float *factor)
{
    for (int r = 0; r < rows; r++) {
        float *row = qn_cpu_at(x, v, r);
        emu_q8_row(at, v.width, r, qn_cuda_fine(&x->base.opts, v.width), row);
        for (int i = 0; factor && i < v.width; i++) {
            row[i] *= factor[r];
        }
    }
}

/* Rows of a view of the emulated run against their 8-bit form. */
static int check_view(qn_exec *emu, qn_view v, uint64_t at, int rows, const float *w, qn_err *err)
{
    float *x = malloc(sizeof(float) * (size_t)rows * (size_t)v.width);
    int rc = emu->read(emu, v, 0, rows, x, err);
    for (int r = 0; r < rows && rc == 0; r++) {
        for (int i = 0; w && i < v.width; i++) {
            x[(size_t)r * (size_t)v.width + (size_t)i] *= w[i];
        }
        rc = emu_q8_check(at, v.width, r, qn_cuda_fine(&emu->opts, v.width), x + (size_t)r * (size_t)v.width,
                          err);
    }
    free(x);
    return rc;
}

/* What kernels wrote in 8 bits beside f32. */
static int check_q8_outputs(const emu_case *c, qn_exec *emu, const qn_cuda_list *list, int rows, qn_err *err)
{
    static const struct {
        const char *kernel;
        int arg;
    } writers[] = {{"norm", 9},          {"glu_q8", 5},         {"glu_cols", 5}, {"attention_decode", 9},
                   {"attention_mma", 9}, {"attention_rope", 14}};
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        const qn_cuda_action *a = emu_find_action(emu, list, writers[i].kernel, 0);
        if (a && strstr(emu_exec_lowered(emu)->programs[a->program].source.text, "q8_out = 1;") &&
            check_view(emu, a->step->out[0], a->args[writers[i].arg], rows_of(c, rows), NULL, err)) {
            return qn_fail_prefix(err, "%s", writers[i].kernel);
        }
    }
    return 0;
}

/* The nth product of 8-bit activations in a list. */
static const qn_cuda_action *find_q8(const qn_exec *emu, const qn_cuda_list *list, int nth)
{
    const qn_cuda_action *a = emu_find_action(emu, list, "linear_q8", nth);
    return a ? a : emu_find_action(emu, list, "linear_cols", nth);
}

static bool has_const(const qn_exec *emu, const qn_cuda_action *a, const char *text)
{
    return strstr(emu_exec_lowered(emu)->programs[a->program].source.text, text) != NULL;
}

/* The second half of a chain: the first norm of two, the other norm's output as the last step got it, then
 * that step. */
static int run_chain(emu_case *c, qn_exec *cpu, qn_exec *emu, const qn_cuda_list *list, int rows,
                     error_sum *e, qn_err *err)
{
    enum { Q8_NEXT = 19 };
    qn_cpu *x = (qn_cpu *)cpu;
    const qn_step *last = &c->steps[c->plans.prefill.n_step - 1], *norm = last - 1;
    const qn_cuda_action *first = find_q8(emu, list, 0);
    bool begun = has_const(emu, first, "norm_next = 1;"), post = norm > &c->steps[1];
    const float *w = norm->w[0] ? (const float *)norm->w[0]->data : NULL;
    float factor[CASE_UBATCH];
    bool inside = post && list == &emu_exec_lowered(emu)->decode;
    if (inside != has_const(emu, first, "post = 1;")) {
        return qn_fail(err, "the norm behind the product is not where it is due");
    }
    if (!inside && compare_view(c->steps[0].out[0], rows, cpu, emu, e, err)) {
        return -1;
    }
    if (post && (qn_cpu_ops[QN_OP_NORM](x, &c->steps[1], err) ||
                 compare_view(c->steps[1].out[0], rows, cpu, emu, e, err))) {
        return -1;
    }
    if (qn_cpu_ops[QN_OP_NORM](x, norm, err)) {
        return -1;
    }
    if (begun) {
        if (check_view(emu, norm->in[0], first->args[Q8_NEXT], rows, w, err)) {
            return qn_fail_prefix(err, "begun norm");
        }
        for (int r = 0; r < rows; r++) {
            double sum = 0;
            for (int i = 0; i < norm->in[0].width; i++) {
                double v = (double)qn_cpu_at(x, norm->in[0], r)[i];
                sum += v * v;
            }
            factor[r] = (float)(1 / sqrt(sum / norm->in[0].width + (double)norm->spec.norm.eps));
        }
        take_q8(x, norm->out[0], first->args[Q8_NEXT], rows, factor);
    } else if (emu_exec_launches(emu, "glu_q8") || emu_exec_launches(emu, "glu_cols") ||
               find_q8(emu, list, 1)) {
        take_q8(x, norm->out[0], emu_find_action(emu, list, "norm", 0)->args[9], rows, NULL);
    }
    return qn_cpu_ops[last->op->id](x, last, err);
}

/* Do all products of the case round their input alike? Then the last rounding in memory is the reference's
 * input. */
static bool one_rounding(const emu_case *c)
{
    const qn_step *s = &c->steps[0];
    bool product = s->op->id == QN_OP_LINEAR || s->op->id == QN_OP_GLU;
    int bf16 = 0, other = 0;
    for (int i = 0; product && i < (s->op->id == QN_OP_LINEAR ? 3 : 2); i++) {
        const qn_tensor *t = s->w[emu_weight_roles[i]];
        bf16 += t && t->type == QN_BF16;
        other += t && t->type != QN_BF16;
    }
    return product && c->plans.prefill.n_step == 1 && (bf16 == 0 || other == 0);
}

/* Does a prompt's head run as in decode? */
static bool few_head(const emu_case *c, const way *w)
{
    return w->prefill && c->steps[0].op->id == QN_OP_LINEAR && c->steps[0].rows == QN_ROWS_OUTPUTS &&
           rows_of(c, w->rows) <= QN_CUDA_HEAD_FEW;
}

/* Is the way one of its own for this case? sm90a's products are sm80's. */
static bool differs(const emu_case *c, const way *w, int variant)
{
    const qn_op_id op = c->steps[0].op->id;
    const qn_tensor *t = c->steps[0].w[0];
    if (w->tma) { /* attention, or RoPE and attention: queries as tiles between them */
        return c->steps[c->plans.prefill.n_step - 1].op->id == QN_OP_ATTENTION && variant == QN_VARIANT_SM90A;
    }
    bool product = op == QN_OP_LINEAR || op == QN_OP_GLU;
    if (w->f32_products || (product && c->plans.prefill.n_step == 2)) { /* a product and what reads it */
        return product && w->prefill && w->route == QN_PREFILL_AUTO && c->plans.prefill.n_step > 1 &&
               variant == QN_VARIANT_SM80;
    }
    if (w->route == QN_PREFILL_AUTO) {
        return !product || variant != QN_VARIANT_SM90A;
    }
    if (w->route == QN_PREFILL_FP8) {
        return op == QN_OP_LINEAR && variant == QN_VARIANT_SM80 && emu_fp8_serves(c);
    }
    if (w->route == QN_PREFILL_WGMMA) { /* as emu_gen.c adds them */
        bool some = op == QN_OP_LINEAR && c->plans.prefill.n_step == 1;
        some = some && (t->type == QN_Q4_K || t->type == QN_Q6_K || t->type == QN_Q2_K || t->type == QN_F16);
        return product && variant == QN_VARIANT_SM90A && (some || (w->tokens == 64 && !w->alone));
    }
    product = product && variant != QN_VARIANT_SM90A;
    if (variant == QN_VARIANT_SM75) { /* as emu_gen.c adds them */
        product = op == QN_OP_LINEAR && (t->type == QN_F16 || t->type == QN_BF16 || t->type == QN_Q8_0 ||
                                         t->type == QN_Q4_K || t->type == QN_Q6_K || t->type == QN_Q2_K);
    }
    bool chain = c->plans.prefill.n_step > 1; /* what reads a product is the same in all variants but one */
    return product && (!chain || (w->route == QN_PREFILL_MMA && variant == QN_VARIANT_SM80));
}

static int run_rounded(emu_case *c, qn_exec *cpu, qn_exec *emu, const qn_run *run, int rows, qn_err *err)
{
    const qn_cuda_mem *m = emu_exec_mem(emu);
    qn_view v = c->steps[0].in[0];
    bool bf16 = c->steps[0].w[0] ? c->steps[0].w[0]->type == QN_BF16 : c->steps[0].w[3]->type == QN_BF16;
    for (int r = 0; r < rows; r++) {
        float *row = qn_cpu_at((qn_cpu *)cpu, v, r), scale = ((const float *)(uintptr_t)m->row_scale)[r];
        const uint16_t *a = (const uint16_t *)(uintptr_t)m->a16 + (size_t)r * (size_t)v.width;
        for (int i = 0; i < v.width; i++) {
            float x = (bf16 ? qn_bf16_to_f32(a[i]) : qn_f16_to_f32(a[i])) * scale;
            double off = fabs((double)x - (double)row[i]);
            if (!(off <= fabs((double)row[i]) * (bf16 ? 0x1p-8 : 0x1p-11) ||
                  off <= 0x1p-24 * (double)scale)) {
                return qn_fail(err, "row %d, value %d: %g was rounded to %g", r, i, (double)row[i],
                               (double)x);
            }
            row[i] = x;
        }
    }
    emu_rounded w;
    emu_round_weights(&c->steps[0], &w);
    int rc = cpu->run(cpu, run, err);
    emu_restore_weights(&c->steps[0], &w);
    return rc;
}

static int run_reference(emu_case *c, const way *w, qn_exec *cpu, qn_exec *emu, const qn_run *run,
                         error_sum *e, qn_err *err)
{
    const qn_lowered *low = emu_exec_lowered(emu);
    const qn_cuda_list *list = w->decode ? &low->decode : w->prefill ? &low->prefill : &low->few;
    const qn_cuda_action *q = emu_find_action(emu, list, "quantise", 0);
    qn_run first = *run;
    int n = rows_of(c, w->rows);
    if (w->route == QN_PREFILL_FP8) {
        return emu_fp8_reference(c, cpu, emu, run, n, err);
    }
    bool mmq = w->prefill && qn_cuda_takes_mmq(&c->steps[0], &c->exec);
    if (w->prefill && one_rounding(c) && !few_head(c, w) && !mmq) {
        return run_rounded(c, cpu, emu, run, n, err);
    }
    if (q && !qn_cuda_runs(q, n)) { /* the head's other number of rows */
        q = emu_find_action(emu, list, "quantise", 1);
    }
    if (q) {
        if (check_view(emu, c->steps[0].in[0], q->args[3], n, NULL, err)) {
            return -1;
        }
        take_q8((qn_cpu *)cpu, c->steps[0].in[0], q->args[3], n, NULL);
        first.stop_after = 0;
    }
    return cpu->run(cpu, &first, err) || check_q8_outputs(c, emu, list, w->rows, err) ||
                   (q && c->plans.prefill.n_step >= 3 && run_chain(c, cpu, emu, list, n, e, err))
               ? -1
               : 0;
}

/* The greedy choice, and what it leaves behind for the next token. */
static int check_choice(const emu_case *c, const qn_exec *emu, const float *logits, qn_err *err)
{
    const qn_cuda_mem *m = emu_exec_mem(emu);
    const qn_cuda_state *s = (const qn_cuda_state *)(uintptr_t)m->state;
    int best = 0, id = *(const int32_t *)(uintptr_t)m->ring;
    for (int i = 1; i < c->model.n_vocab; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    if (id != best || s->token != best || s->pos != c->pos + 1 || s->step != 1 ||
        *(const uint32_t *)(uintptr_t)m->arrived != 0) {
        return qn_fail(err, "chose %d (token %d, position %d, step %d), the largest logit is %d", id,
                       s->token, s->pos, s->step, best);
    }
    return 0;
}

/* What ran, where it matters: products with 8-bit activations, attention on the tensor cores. */
typedef struct ran {
    bool q8, mma, fused, halves; /* fused: with RoPE and the store; halves: products came as f16 */
} ran;

/* A run from other inputs. */
static int start_others(const emu_case *c, qn_exec *emu, const qn_run *run, qn_err *err)
{
    size_t n = (size_t)c->bufs[0].width * CASE_UBATCH;
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        x[i] = 7 * c->start[0][i];
    }
    emu_put(emu_exec_mem(emu)->bufs[0], x, n * sizeof *x);
    free(x);
    emu->length = c->pos;
    return emu->run(emu, run, err);
}

static int run_way(const runner *r, emu_case *c, const way *w, error_sum *e, ran *what, qn_err *err)
{
    static int32_t tokens[CASE_ROWS];
    int n_program;
    emu_exec_opts eo = {.variant = r->variant,
                        .multiprocessors = w->alone ? 1 : CASE_MULTIPROCESSORS,
                        .seed = 1000u * (uint64_t)(w - ways),
                        .product_tokens = w->tokens,
                        .list = w->prefill ? EMU_LIST_PREFILL : EMU_LIST_FEW};
    eo.programs = emu_programs(&n_program);
    eo.n_program = n_program;
    c->exec.f32_activations = w->f32;
    c->exec.prefill = w->route;
    c->exec.weight_cache = w->route == QN_PREFILL_FP8 ? QN_WEIGHT_CACHE_ON : QN_WEIGHT_CACHE_AUTO;
    c->exec.flash_attention = !w->tma;
    c->exec.f32_products = w->f32_products;
    c->exec.rows_attention = w->rows_attention;
    c->exec.no_fuse = w->no_fuse;
    c->exec.n_ubatch = w->rows > CASE_UBATCH ? CASE_ROWS : c->exec.n_ubatch;
    for (int i = 0; i < CASE_ROWS; i++) {
        tokens[i] = i * 37 % CASE_VOCAB % c->model.n_vocab;
    }
    float *logits = malloc(sizeof(float) * (size_t)c->model.n_vocab * CASE_ROWS);
    qn_exec *cpu = NULL, *emu = NULL;
    int rc =
        qn_cpu_exec_new(&cpu, &c->plans, &c->exec, err) || emu_exec_new(&emu, &c->plans, &c->exec, &eo, err)
            ? -1
            : 0;
    if (rc == 0) {
        start_values(c, cpu, emu);
        qn_run run = {.tokens = tokens, .n = w->rows, .pos = c->pos, .outputs = c->outputs, .logits = logits};
        run.phase = w->decode ? QN_PHASE_DECODE : QN_PHASE_PREFILL;
        run.stop_after = c->argmax && w->decode ? -1 : c->plans.prefill.n_step - 1;
        if (w->decode && c->plans.decode.n_step == 4) { /* what a launch left with other sums */
            rc = start_others(c, emu, &run, err);
            start_values(c, cpu, emu);
        }
        cpu->length = emu->length = c->pos;
        rc = rc ? rc : emu->run(emu, &run, err);
        what->q8 = emu_exec_launches(emu, "linear_q8") + emu_exec_launches(emu, "glu_q8") +
                       emu_exec_launches(emu, "linear_cols") + emu_exec_launches(emu, "glu_cols") >
                   0;
        what->fused = emu_exec_launches(emu, "attention_rope") > 0;
        what->mma = what->fused || emu_exec_launches(emu, "attention_mma") > 0;
        what->halves = w->prefill && emu_half_products(&emu_exec_lowered(emu)->prefill);
        rc = rc || run_reference(c, w, cpu, emu, &run, e, err) || compare_case(c, cpu, emu, w->rows, e, err)
                 ? -1
                 : 0;
        if (rc == 0 && run.stop_after < 0) {
            rc = emu->read(emu, (qn_view){3, 0, c->model.n_vocab}, 0, 1, logits, err) ||
                         check_choice(c, emu, logits, err)
                     ? -1
                     : 0;
        }
    }
    if (emu) {
        emu->free(emu);
    }
    if (cpu) {
        cpu->free(cpu);
    }
    free(logits);
    return rc;
}

static int run_case(void *user, emu_case *c)
{
    runner *r = user;
    bool q8 = false, mma = false, fused = false;
    bool q8_cache = c->exec.k_type != QN_CACHE_F16 || c->exec.v_type != QN_CACHE_F16;
    if ((r->word && !strstr(c->name, r->word)) || (q8_cache && r->variant < QN_VARIANT_SM80)) {
        return 0;
    }
    for (int i = 0; i < N_WAYS; i++) {
        if ((ways[i].f32 && !q8) || (ways[i].rows_attention && (!mma || q8_cache)) ||
            (ways[i].no_fuse && !fused)) {
            continue; /* the same kernels again */
        }
        if (!differs(c, &ways[i], r->variant)) {
            continue;
        }
        error_sum e = {0};
        qn_err err = {""};
        ran what = {false, false, false, false};
        int rc = run_way(r, c, &ways[i], &e, &what, &err);
        bool exact = ways[i].route == QN_PREFILL_FP8 || (one_rounding(c) && !what.halves) ||
                     qn_cuda_takes_mmq(&c->steps[0], &c->exec);
        double tolerance = (ways[i].prefill && !exact) || what.mma ? c->tol_many : c->tol_few;
        if (exact && ways[i].route >= QN_PREFILL_MMQ) {
            tolerance *= 10; /* a sum of all groups in one register, where decode's lanes share them */
        }
        q8 = q8 || what.q8;
        mma = mma || what.mma;
        fused = fused || what.fused;
        r->n_run++;
        r->runs[i]++;
        if (rc || e.bad || !(e.nmse <= tolerance) || e.rows == 0) {
            r->n_failed++;
            printf("FAILED %s, %s: %s NMSE %.2e (at most %.0e), worst element %.2e%s\n", c->name,
                   ways[i].name, err.text, e.nmse, tolerance, e.element, e.bad ? ", not finite" : "");
        }
        if (e.nmse >= r->worst_nmse[i]) {
            r->worst_nmse[i] = e.nmse;
            r->worst_element[i] = e.element;
            snprintf(r->worst_name[i], sizeof r->worst_name[i], "%s", c->name);
        }
    }
    return 0;
}

static int list_is(int n, char **names)
{
    int found = 0, due = 0, rc = 0;
    for (const char *const *op = emu_case_ops(); *op; op++, due++) {
        bool there = false;
        for (int i = 0; i < n; i++) {
            there = there || strcmp(names[i], *op) == 0;
        }
        found += there;
        if (!there) {
            printf("FAILED: no test runs the cases of '%s' (tests/emu.cmake)\n", *op);
            rc = 1;
        }
    }
    return rc || found != n || found != due;
}

int main(int argc, char **argv)
{
    static runner r;
    if (argc > 1 && strcmp(argv[1], "--list-is") == 0) {
        return list_is(argc - 2, argv + 2);
    }
    const bool traffic = argc > 1 && strcmp(argv[1], "--traffic") == 0;
    if (traffic) {
        emu_traffic_on();
        argv++;
        argc--;
    }
    if (argc < 2) {
        fprintf(stderr, "usage: emu_ops [--traffic] OP [WORD [VARIANT]]\n");
        return 2;
    }
    r.word = argc > 2 ? argv[2] : NULL;
    r.variant = QN_VARIANT_SM80;
    const qn_arch any = {.name = "sm_90a", .cc = 90, .variant = QN_VARIANT_SM90A};
    qn_err err;
    if (argc > 3 && qn_variant_by_name(&r.variant, &any, argv[3], &err)) {
        fprintf(stderr, "emu_ops: %s\n", err.text);
        return 2;
    }
    emu_cases(argv[1], run_case, &r);
    for (int i = 0; i < N_WAYS; i++) {
        printf("%-12s %4d runs, worst NMSE %.2e, its worst element %.2e: %s\n", ways[i].name, r.runs[i],
               r.worst_nmse[i], r.worst_element[i], r.worst_name[i]);
    }
    if (traffic) {
        emu_traffic_print();
    }
    emu_counts n = emu_totals();
    printf("%s: %d runs, %d failed; %llu launches, %llu blocks, %llu threads, %.1f M accesses checked\n",
           argv[1], r.n_run, r.n_failed, (unsigned long long)n.launches, (unsigned long long)n.blocks,
           (unsigned long long)n.threads, 1e-6 * (double)n.accesses);
    return r.n_failed || r.n_run == 0;
}
