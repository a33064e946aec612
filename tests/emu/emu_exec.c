/* emu_exec.c: see emu_exec.h. Memory is laid out as in runtime/cuda/exec_setup.c, but each buffer has bounds
 * of its own. */
#include "emu_exec.h"
#include "emu_operands.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "cuda/exec.h"
#include "emu_source.h"

enum { EMU_HEAD_CHUNK = 2048 }; /* so small that the heads of small models come in pieces */

typedef struct placed {
    const void *key;
    uint64_t address;
} placed;

typedef struct emu_exec {
    qn_exec base;
    emu_exec_opts emu;
    qn_lowered low;
    const emu_program **programs; /* by program of `low` */
    int *launches;                /* by program */
    qn_cuda_mem mem;
    qn_half_cache halves;
    placed *placed;
    int n_placed;
    uint64_t n_launch;
    bool prepared; /* weights are in planes, and what is kept in f16 is there */
} emu_exec;

void emu_put(uint64_t at, const void *from, size_t bytes)
{
    emu_report r;
    emu_written((void *)(uintptr_t)at, bytes, &r);
    memcpy((void *)(uintptr_t)at, from, bytes);
}

static int alloc(uint64_t *out, const char *name, size_t bytes, int flags, qn_err *err)
{
    void *p = emu_alloc(name, bytes ? bytes : 1, flags);
    *out = (uint64_t)(uintptr_t)p;
    return p ? 0 : qn_fail(err, "%s: no emulated memory for %zu bytes", name, bytes);
}

/* Copies data to memory of its own. `tensor`: a weight, which becomes planes where it is quantised
 * (repack_all). */
static int place(emu_exec *x, const void *key, const char *name, const void *data, size_t bytes,
                 const qn_tensor *tensor, qn_err *err)
{
    for (int i = 0; i < x->n_placed; i++) {
        if (x->placed[i].key == key) {
            return 0;
        }
    }
    placed *p = &x->placed[x->n_placed++];
    p->key = key;
    bool planes = tensor && qn_cuda_is_planes(tensor);
    if (alloc(&p->address, name, planes ? qn_cuda_weight_bytes(tensor) : bytes,
              planes ? EMU_UNWRITTEN : EMU_READ_ONLY, err)) {
        return -1;
    }
    if (!planes) {
        memcpy((void *)(uintptr_t)p->address, data, bytes);
    }
    return 0;
}

static int place_plan(emu_exec *x, const qn_plan *plan, qn_err *err)
{
    for (int i = 0; i < plan->n_step; i++) {
        const qn_step *s = &plan->steps[i];
        for (int k = 0; k < QN_STEP_WEIGHTS; k++) {
            const qn_tensor *t = s->w[k];
            if (t && place(x, t, t->name, t->data, t->n_bytes, t, err)) {
                return -1;
            }
        }
        if (s->table && place(x, s->table, "frequencies", s->table,
                              sizeof(float) * (size_t)(s->spec.rope_kv.n_rot / 2), NULL, err)) {
            return -1;
        }
    }
    return 0;
}

static uint64_t address_of(const void *user, const void *key)
{
    const emu_exec *x = user;
    for (int i = 0; i < x->n_placed; i++) {
        if (x->placed[i].key == key) {
            return x->placed[i].address;
        }
    }
    return 0;
}

static uint64_t weight_address(const void *user, const qn_tensor *t)
{
    return address_of(user, t);
}

static uint64_t table_address(const void *user, const float *t)
{
    return address_of(user, t);
}

static uint64_t half_address(const void *user, const qn_tensor *t)
{
    const emu_exec *x = user;
    return qn_half_cache_at(&x->halves, t);
}

static int fp8_of(const void *user, const qn_tensor *t)
{
    const emu_exec *x = user;
    return qn_half_cache_fp8(&x->halves, t);
}

static int alloc_halves(emu_exec *x, qn_err *err)
{
    if (x->base.opts.weight_cache != QN_WEIGHT_CACHE_ON) {
        return 0;
    }
    x->mem.half = half_address;
    x->mem.fp8 = x->base.opts.prefill == QN_PREFILL_FP8 ? fp8_of : NULL;
    return qn_half_cache_make(&x->halves, x->base.plans, &x->base.opts, err) ||
                   alloc(&x->halves.base, "weight cache", x->halves.bytes, EMU_UNWRITTEN, err) ||
                   alloc(&x->mem.fp8_tops, "largest weights", sizeof(float) * (size_t)x->halves.n_fp8, 0, err)
               ? -1
               : 0;
}

/* Tensor maps of the KV caches. */
static int alloc_maps(emu_exec *x, qn_err *err)
{
    const qn_plans *p = x->base.plans;
    qn_cuda_mem *m = &x->mem;
    for (int i = 0; i < p->n_kv; i++) {
        const qn_tma all = qn_tma_of(&p->kv[i], &x->base.opts),
                     few = qn_tma_short_of(&p->kv[i], &x->base.opts);
        for (int v = 0; v < 2 && all.keys; v++) {
            uint64_t *at = v ? &m->v_map[i] : &m->k_map[i], of = v ? m->v[i] : m->k[i];
            if (alloc(at, "tensor maps", 2 * QN_CUDA_MAP_BYTES, EMU_READ_ONLY, err)) {
                return -1;
            }
            emu_put_map(*at, &all, of);
            if (few.keys) {
                emu_put_map(*at + QN_CUDA_MAP_BYTES, &few, of);
            }
        }
    }
    int widths[QN_CUDA_ACT_WIDTHS], n = qn_cuda_act_widths(p, &x->base.opts, widths);
    if (alloc(&m->act_maps, "tensor maps", QN_CUDA_MAP_BYTES * (size_t)n, EMU_READ_ONLY, err)) {
        return -1;
    }
    for (int i = 0; i < n; i++) {
        qn_tma t = qn_act_tma_of(widths[i], &x->base.opts);
        emu_put_map(m->act_maps + QN_CUDA_MAP_BYTES * (uint64_t)i, &t, m->a16);
    }
    return alloc(&m->pairs, "pairs", 8, 0, err);
}

/* Activations as 16-bit rows. Tensor copies fetch rows that nobody has written, whose products nobody reads:
 * there NaN stands. */
static int alloc_a16(emu_exec *x, size_t bytes, qn_err *err)
{
    bool tensor = x->base.opts.prefill == QN_PREFILL_WGMMA;
    if (alloc(&x->mem.a16, "f16 activations", bytes, EMU_UNWRITTEN, err)) {
        return -1;
    }
    uint16_t *nan = tensor && bytes > 0 ? malloc(bytes) : NULL;
    for (size_t i = 0; nan && i < bytes / sizeof *nan; i++) {
        nan[i] = 0x7e01;
    }
    if (nan) {
        emu_put(x->mem.a16, nan, bytes / sizeof *nan * sizeof *nan);
    }
    free(nan);
    return 0;
}

static int alloc_all(emu_exec *x, qn_err *err)
{
    const qn_plans *p = x->base.plans;
    const qn_exec_opts *o = &x->base.opts;
    qn_cuda_mem *m = &x->mem;
    qn_cuda_sizes z = qn_cuda_scratch_sizes(p, o);
    m->bufs = calloc((size_t)p->n_buf, sizeof *m->bufs);
    m->k = calloc((size_t)p->n_kv + 1, sizeof *m->k);
    m->v = calloc((size_t)p->n_kv + 1, sizeof *m->v);
    m->k_map = calloc((size_t)p->n_kv + 1, sizeof *m->k_map);
    m->v_map = calloc((size_t)p->n_kv + 1, sizeof *m->v_map);
    x->placed =
        calloc((size_t)(p->prefill.n_step + p->decode.n_step) * (QN_STEP_WEIGHTS + 1), sizeof *x->placed);
    if (!m->bufs || !m->k || !m->v || !m->k_map || !m->v_map || !x->placed) {
        return qn_fail(err, "out of memory");
    }
    if (place_plan(x, &p->prefill, err) || place_plan(x, &p->decode, err)) {
        return -1;
    }
    for (int i = 0; i < p->n_kv; i++) { /* zero: rows never written must stay finite */
        const qn_kv_cache *kv = &p->kv[i];
        size_t rows = (size_t)qn_n_seq(o) * (size_t)qn_kv_rows(kv, o);
        if (alloc(&m->k[i], "K cache", rows * qn_cuda_kv_bytes(o->k_type, kv->n_head_kv, kv->k_dim),
                  EMU_SETTLED, err) ||
            alloc(&m->v[i], "V cache", rows * qn_cuda_kv_bytes(o->v_type, kv->n_head_kv, kv->v_dim),
                  EMU_SETTLED, err)) {
            return -1;
        }
    }
    for (int i = 0; i < p->n_buf; i++) {
        size_t bytes = (size_t)p->bufs[i].width * (size_t)qn_buf_rows(&p->bufs[i], o) * sizeof(float);
        if (alloc(&m->bufs[i], p->bufs[i].name, bytes, EMU_UNWRITTEN, err)) {
            return -1;
        }
    }
    m->weight = weight_address;
    m->table = table_address;
    m->user = x;
    return alloc(&m->state, "state", sizeof(qn_cuda_state), EMU_UNWRITTEN | EMU_SETTLED, err) ||
                   alloc(&m->tokens, "tokens", sizeof(int32_t) * (size_t)o->n_ubatch, EMU_UNWRITTEN, err) ||
                   alloc(&m->k16, "keys as f16", z.k16, EMU_UNWRITTEN, err) ||
                   alloc(&m->v16, "values as f16", z.v16, EMU_UNWRITTEN, err) ||
                   alloc(&m->parts, "attention parts", z.parts, EMU_UNWRITTEN, err) ||
                   alloc(&m->w16[0], "f16 weights", z.w16, EMU_UNWRITTEN, err) ||
                   alloc(&m->w16[1], "f16 weights", z.w16, EMU_UNWRITTEN, err) || alloc_halves(x, err) ||
                   alloc_a16(x, z.a16, err) || alloc_maps(x, err) ||
                   alloc(&m->q16, "query tiles", z.q16, 0, err) ||
                   alloc(&m->row_scale, "row factors", z.row_scale, EMU_UNWRITTEN, err) ||
                   alloc(&m->product, "products", z.product, EMU_UNWRITTEN, err) ||
                   alloc(&m->part_count, "part count", z.part_count, 0, err) ||
                   alloc(&m->row_sums, "sums of rows", z.row_sums, 0, err) ||
                   alloc(&m->stream, "residual stream", z.stream, EMU_UNWRITTEN, err) ||
                   alloc(&m->squares[0], "squares", z.squares, EMU_UNWRITTEN, err) ||
                   alloc(&m->squares[1], "squares", z.squares, EMU_UNWRITTEN, err) ||
                   alloc(&m->q8[0], "8-bit activations", z.q8, EMU_UNWRITTEN, err) ||
                   alloc(&m->q8[1], "8-bit activations", z.q8, EMU_UNWRITTEN, err) ||
                   alloc(&m->sampling, "sampling", z.sampling, 0, err) ||
                   alloc(&m->marks, "marks", z.marks, EMU_UNWRITTEN, err) ||
                   alloc(&m->history, "history", z.history, EMU_UNWRITTEN, err) ||
                   alloc(&m->found, "candidates", z.found, EMU_UNWRITTEN, err) ||
                   alloc(&m->arrived, "arrived", z.arrived, 0, err) ||
                   alloc(&m->sample_work, "sampler", z.sample_work, 0, err) ||
                   alloc(&m->ring, "ring", sizeof(int32_t) * QN_CUDA_RING, EMU_UNWRITTEN, err)
               ? -1
               : 0;
}

static int check_report(int rc, const emu_report *r, qn_err *err)
{
    return rc ? qn_fail(err, "%s", r->text) : 0;
}

static int run_gemm(const emu_exec *x, const qn_cuda_gemm *g, int rows, int padded, qn_err *err)
{
    const float *tops = (const float *)(uintptr_t)x->mem.fp8_tops;
    const float up = g->fp8 ? qn_cuda_fp8_up(tops[g->fp8 - 1]) : 1;
    return x->emu.product ? x->emu.product(g, rows, up, err) : emu_product(g, rows, padded, up, err);
}

static int launch_one(emu_exec *x, const qn_cuda_action *a, int rows, qn_err *err)
{
    emu_report r;
    emu_launch l = {.program = x->programs[a->program],
                    .grid = {a->grid[0], a->grid[1], a->grid[2]},
                    .threads = a->threads,
                    .shared = a->shared,
                    .dependent = a->repack == NULL && !a->cooperative,
                    .cooperative = a->cooperative || a->resident,
                    .by_shape = !a->cooperative,
                    .variant = x->emu.variant,
                    .seed = x->emu.seed + x->n_launch++,
                    .args = a->args,
                    .n_arg = a->n_arg};
    if (a->rows_axis >= 0) {
        l.grid[a->rows_axis] = ((uint32_t)rows + a->rows_per - 1) / a->rows_per;
    }
    if (a->rows_share) {
        l.grid[1] = l.grid[1] > (uint32_t)rows ? l.grid[1] / (uint32_t)rows : 1;
    }
    x->launches[a->program]++;
    return check_report(emu_run(&l, &r), &r, err);
}

/* Blocks of quantised weights to planes; every byte of them must come to be written. */
static int repack_all(emu_exec *x, qn_err *err)
{
    emu_report r;
    for (int i = 0; i < x->low.repack.n; i++) {
        qn_cuda_action *a = &x->low.repack.actions[i];
        const qn_tensor *t = a->repack;
        if (alloc(&a->args[0], "blocks", t->n_bytes, EMU_READ_ONLY, err)) {
            return -1;
        }
        memcpy((void *)(uintptr_t)a->args[0], t->data, t->n_bytes);
        void *planes = (void *)(uintptr_t)weight_address(x, t);
        if (launch_one(x, a, 1, err) ||
            check_report(emu_all_written(planes, qn_cuda_weight_bytes(t), &r), &r, err)) {
            return qn_fail_prefix(err, "repacking %s", t->name);
        }
        emu_freeze(planes);
    }
    return 0;
}

/* Phases and counters of the persistent kernel. */
static int place_phases(emu_exec *x, qn_err *err)
{
    qn_lowered *low = &x->low;
    if (low->persistent.n == 0) {
        return 0;
    }
    qn_cuda_action *a = &low->persistent.actions[0];
    size_t phases = (size_t)low->n_phase * sizeof *low->phases;
    qn_cuda_action *steps = &low->persistent_steps.actions[0];
    size_t words = (size_t)low->n_word * sizeof *low->words; /* none: one */
    size_t counters = (size_t)(low->n_phase + 1) * QN_CUDA_COUNTER_BYTES;
    uint64_t at;
    if (alloc(&a->args[0], "phases", phases, EMU_READ_ONLY, err) ||
        alloc(&at, "words", words + sizeof at, EMU_READ_ONLY, err) ||
        alloc(&a->args[2], "counters", counters, 0, err) ||
        alloc(&steps->args[2], "counters", counters, 0, err)) {
        return -1;
    }
    steps->args[0] = a->args[0];
    memcpy((void *)(uintptr_t)a->args[0], low->phases, phases);
    memcpy((void *)(uintptr_t)at, low->words, words);
    a->args[a->n_arg++] = steps->args[steps->n_arg++] = at; /* where an emulated call takes them from */
    return 0;
}

static int make_halves(emu_exec *x, qn_err *err)
{
    for (int i = 0; i < x->low.tops.n; i++) {
        if (launch_one(x, &x->low.tops.actions[i], 1, err)) {
            return -1;
        }
    }
    for (int i = 0; i < x->low.halves.n; i++) {
        if (launch_one(x, &x->low.halves.actions[i], 1, err)) {
            return -1;
        }
    }
    if (x->halves.bytes) {
        emu_freeze((void *)(uintptr_t)x->halves.base);
    }
    return 0;
}

static bool is_after(const qn_plan *plan, const qn_cuda_action *a, int step)
{
    return step >= 0 && (!a->step || a->step - plan->steps > step);
}

/* Programs of a list up to a step: compiled, where that is not done beforehand, so that launches follow each
 * other. */
static int prepare_list(const emu_exec *x, const qn_plan *plan, const qn_cuda_list *list, int stop_after,
                        qn_err *err)
{
    emu_report r;
    for (int i = 0; i < list->n && !is_after(plan, &list->actions[i], stop_after); i++) {
        const qn_cuda_action *a = &list->actions[i];
        if (!a->is_gemm && check_report(emu_prepare(x->programs[a->program], &r), &r, err)) {
            return -1;
        }
    }
    return 0;
}

static int run_list(emu_exec *x, const qn_plan *plan, const qn_cuda_list *list, int rows, int n_out,
                    int first, int stop_after, qn_err *err)
{
    const int pos = ((const qn_cuda_state *)(uintptr_t)x->mem.state)->pos;
    emu_report report;
    if (prepare_list(x, plan, list, stop_after, err)) {
        return -1;
    }
    for (int i = 0; i < list->n && !is_after(plan, &list->actions[i], stop_after); i++) {
        const qn_cuda_action *a = &list->actions[i];
        if (first > 0 && (!a->step || a->step - plan->steps < first)) {
            continue;
        }
        bool head = a->step && a->step->out[0].buf == plan->logits_buf;
        int n = a->rows == QN_ROWS_OUTPUTS || head ? n_out : rows, padded = n;
        if (x->emu.padded && !(a->rows == QN_ROWS_OUTPUTS || head) && list != &x->low.decode) {
            padded = qn_cuda_bucket(n, x->base.opts.n_ubatch);
        }
        if (n > 0 && qn_cuda_runs(a, n, pos) &&
            (a->is_gemm ? run_gemm(x, &a->gemm, n, padded, err) : launch_one(x, a, padded, err))) {
            return a->step ? qn_fail_prefix(err, "step %s", a->step->name) : -1;
        }
    }
    return check_report(emu_settle(&report), &report, err);
}

static int emu_read(qn_exec *e, qn_view v, int row, int n_rows, float *out, qn_err *err)
{
    const emu_exec *x = (const emu_exec *)e;
    emu_report r;
    for (int i = 0; i < n_rows; i++) {
        const float *at = (const float *)(uintptr_t)x->mem.bufs[v.buf] +
                          (size_t)(row + i) * (size_t)e->plans->bufs[v.buf].width + v.col;
        if (check_report(emu_readable(at, sizeof(float) * (size_t)v.width, &r), &r, err)) {
            return -1;
        }
        memcpy(out + (size_t)i * (size_t)v.width, at, sizeof(float) * (size_t)v.width);
    }
    return 0;
}

static int emu_kv_rows(qn_exec *e, int kv, int pos, int n, float *k, float *v, bool store, qn_err *err)
{
    const emu_exec *x = (const emu_exec *)e;
    const qn_kv_cache *p = &e->plans->kv[kv];
    const uint8_t *cache[2] = {(const uint8_t *)(uintptr_t)x->mem.k[kv],
                               (const uint8_t *)(uintptr_t)x->mem.v[kv]};
    const qn_cache_type types[2] = {e->opts.k_type, e->opts.v_type};
    float *out[2] = {k, v};
    if (store || qn_exec_check_kv(e, kv, pos, n, err)) {
        return store ? qn_fail(err, "the emulated cache is read only") : -1;
    }
    for (int c = 0; c < 2; c++) {
        int dim = c ? p->v_dim : p->k_dim;
        size_t unit = qn_cuda_kv_bytes(types[c], 1, dim);
        for (int i = 0; i < n * p->n_head_kv; i++) {
            int rows = qn_kv_rows(p, &e->opts), row = e->seq * rows + (pos + i / p->n_head_kv) % rows;
            qn_cuda_kv_get(types[c], cache[c] + unit * (size_t)(row * p->n_head_kv + i % p->n_head_kv),
                           out[c] + (size_t)i * (size_t)dim, dim);
        }
    }
    return 0;
}

static qn_arith emu_arith(const qn_exec *e, const qn_run *r, const qn_step *s)
{
    emu_list list = ((const emu_exec *)e)->emu.list;
    bool prefill = r->phase == QN_PHASE_PREFILL && list != EMU_LIST_FEW;
    qn_run as = *r;
    if (r->phase == QN_PHASE_PREFILL && list != EMU_LIST_AUTO) {
        as.n = list == EMU_LIST_FEW ? 1 : QN_CUDA_FEW + 1;
    }
    if (s->op->id == QN_OP_ATTENTION) {
        bool rows = e->opts.rows_attention || ((const emu_exec *)e)->emu.variant < QN_VARIANT_SM80;
        return prefill || !rows ? QN_ARITH_F16 : QN_ARITH_F32;
    }
    return qn_cuda_arith(e, &as, s);
}

static int emu_exec_run(qn_exec *e, const qn_run *r, qn_err *err)
{
    emu_exec *x = (emu_exec *)e;
    int n_out = r->outputs == QN_OUT_ALL ? r->n : r->outputs == QN_OUT_LAST ? 1 : 0;
    bool decode = r->phase == QN_PHASE_DECODE;
    const qn_plan *plan = decode ? &e->plans->decode : &e->plans->prefill;
    qn_cuda_state s = {
        .pos = r->pos, .n_rows = r->n, .n_out = n_out, .first_out = r->n - n_out, .token = r->tokens[0]};
    s.seq = r->seqs ? r->seqs[0] : e->seq;
    s.many = r->seqs && r->n > 1;
    for (int i = 0; r->seqs && i < r->n; i++) {
        s.rows[i].pos = qn_exec_length(e, r->seqs[i]);
        s.rows[i].seq = r->seqs[i];
        s.pos = s.rows[0].pos;
    }
    if (!x->prepared && (repack_all(x, err) || make_halves(x, err))) {
        return -1;
    }
    x->prepared = true;
    emu_put(x->mem.state, &s, sizeof s);
    if (!decode) {
        emu_put(x->mem.tokens, r->tokens, sizeof(int32_t) * (size_t)r->n);
    }
    bool few = x->emu.list == EMU_LIST_FEW || (x->emu.list == EMU_LIST_AUTO && r->n <= QN_CUDA_FEW);
    bool each = r->seqs && r->n > 1;
    bool whole = r->first_step == 0 && r->stop_after < 0;
    const qn_cuda_list *list = !decode ? (few ? (each ? &x->low.each : &x->low.few) : &x->low.prefill)
                               : x->low.persistent.n && whole ? &x->low.persistent
                                                              : &x->low.decode;
    if (run_list(x, plan, list, r->n, n_out, r->first_step, r->stop_after, err)) {
        return -1;
    }
    qn_exec_advance(e, r);
    qn_view logits = {plan->logits_buf, 0, e->plans->model->n_vocab};
    return n_out > 0 && r->stop_after < 0 ? emu_read(e, logits, 0, n_out, r->logits, err) : 0;
}

static void emu_exec_free(qn_exec *e)
{
    emu_exec *x = (emu_exec *)e;
    qn_lowered_free(&x->low);
    free(x->programs);
    free(x->launches);
    free(x->placed);
    qn_half_cache_free(&x->halves);
    free(x->mem.bufs);
    free(x->mem.k);
    free(x->mem.v);
    free(x->mem.k_map);
    free(x->mem.v_map);
    free(x);
    emu_reset();
}

static int find_programs(emu_exec *x, qn_err *err)
{
    int n = x->low.n_program;
    x->programs = calloc((size_t)n + 1, sizeof *x->programs);
    x->launches = calloc((size_t)n + 1, sizeof *x->launches);
    if (!x->programs || !x->launches) {
        return qn_fail(err, "out of memory");
    }
    for (int i = 0; i < n; i++) {
        const qn_source *s = &x->low.programs[i].source;
        x->programs[i] = x->emu.find ? x->emu.find(&x->low.programs[i])
                                     : emu_source_find(x->emu.programs, x->emu.n_program, s->text);
        if (!x->programs[i]) {
            return qn_fail(err, "%s was not built: emu_gen does not know this program:\n%s", s->symbol,
                           s->text);
        }
    }
    return 0;
}

int emu_exec_new(qn_exec **out, const qn_plans *plans, const qn_exec_opts *opts, const emu_exec_opts *emu,
                 qn_err *err)
{
    emu_exec *x = calloc(1, sizeof *x);
    if (!x) {
        return qn_fail(err, "out of memory");
    }
    x->base = (qn_exec){.name = "emulated",
                        .plans = plans,
                        .opts = *opts,
                        .run = emu_exec_run,
                        .read = emu_read,
                        .kv_rows = emu_kv_rows,
                        .arith = emu_arith,
                        .round_input = qn_cuda_round_input,
                        .free = emu_exec_free};
    x->emu = *emu;
    qn_lower_opts lo = {.exec = &x->base.opts,
                        .mem = &x->mem,
                        .variant = emu->variant,
                        .multiprocessors = emu->multiprocessors,
                        .f32_activations = opts->f32_activations,
                        .no_fuse = opts->no_fuse,
                        .persistent = opts->persistent,
                        .product_tokens = emu->product_tokens,
                        .knobs = emu->knobs,
                        .knobs_user = emu->knobs_user,
                        .share_from = emu->as_sessions ? 0 : emu_share_from(emu->variant),
                        .head_chunk = emu->as_sessions ? 0 : EMU_HEAD_CHUNK};
    if (alloc_all(x, err) || qn_lower(&x->low, plans, &lo, err) || find_programs(x, err) ||
        place_phases(x, err)) {
        emu_exec_free(&x->base);
        return -1;
    }
    *out = &x->base;
    return 0;
}

int emu_exec_choose(qn_exec *e, qn_cuda_choice how, int rows, qn_err *err)
{
    emu_exec *x = (emu_exec *)e;
    return run_list(x, &e->plans->decode, &x->low.choose[how], rows, rows, 0, -1, err);
}

void emu_exec_set_list(qn_exec *e, emu_list list)
{
    ((emu_exec *)e)->emu.list = list;
}

const qn_cuda_mem *emu_exec_mem(const qn_exec *e)
{
    return &((const emu_exec *)e)->mem;
}

const qn_lowered *emu_exec_lowered(const qn_exec *e)
{
    return &((const emu_exec *)e)->low;
}

int emu_exec_launches(const qn_exec *e, const char *name)
{
    const emu_exec *x = (const emu_exec *)e;
    int n = 0;
    for (int i = 0; i < x->low.n_program; i++) {
        n += strcmp(x->low.programs[i].name, name) == 0 ? x->launches[i] : 0;
    }
    return n;
}

const emu_program *emu_exec_program(const qn_exec *e, int program)
{
    return ((const emu_exec *)e)->programs[program];
}
