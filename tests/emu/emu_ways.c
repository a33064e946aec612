/* emu_ways.c: the ways in which a case is run, and a run of one (emu_ops.h). */
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "emu_operands.h"
#include "emu_ops.h"

const ops_way ops_ways[OPS_WAYS] = {
    {.name = "decode", .rows = 1, .decode = true},
    {.name = "few"},
    {.name = "many", .rows = CASE_SEQS, .many = true},
    {.name = "decode f32", .rows = 1, .decode = true, .f32 = true},
    {.name = "few f32", .f32 = true},
    {.name = "decode apart", .rows = 1, .decode = true, .no_fuse = true},
    {.name = "prefill", .rows = 13, .prefill = true},
    {.name = "f32 products", .rows = 13, .prefill = true, .f32_products = true},
    {.name = "mma", .rows = 13, .prefill = true, .route = QN_PREFILL_MMA},
    {.name = "mmq", .rows = 13, .prefill = true, .route = QN_PREFILL_MMQ},
    {.name = "tma", .rows = 13, .prefill = true, .tma = true},
    {.name = "tma 64", .rows = 13, .prefill = true, .tma = true, .tokens = 64},
    {.name = "tma tiles", .rows = 75, .prefill = true, .tma = true, .tokens = 64, .alone = true},
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

bool ops_has_way(const emu_case *c, int way)
{
    const ops_way *w = &ops_ways[way];
    const qn_op_id op = c->steps[0].op->id;
    if (c->plans.prefill.n_step == 2 && (op == QN_OP_LINEAR || op == QN_OP_GLU) && !w->prefill) {
        return false; /* its other lists are those of two cases */
    }
    if (w->many) { /* the others do not ask for the sequence of a row */
        return c->plans.n_kv > 0 && c->pos > 0 && qn_n_seq(&c->exec) > 1;
    }
    if (c->rows && (w->alone || w->route == QN_PREFILL_FP8 || w->tokens > 64 || (w->tma && w->tokens > 0))) {
        return false; /* of a large case: the tile that a session takes, and no reference of minutes */
    }
    if (w->route == QN_PREFILL_FP8 && !emu_fp8_serves(c)) {
        return false;
    }
    const emu_route r = {.prefill = w->route,
                         .f32 = w->f32,
                         .no_fuse = w->no_fuse,
                         .tma = w->tma,
                         .f32_products = w->f32_products,
                         .tokens = w->alone ? EMU_FEW_TYPES : w->tokens};
    return emu_case_has_route(&c->plans, c->variant, &r);
}

/* Stands another program with the same key behind this one in the table? */
static bool added(const emu_program *p)
{
    int n;
    const emu_program *table = emu_programs(&n);
    for (const emu_program *q = p + 1; q < table + n; q++) {
        if (q->key == p->key) {
            return true;
        }
    }
    return false;
}

/* Does a list hold a program that no run of this case has launched; with only_added, an added one? */
static bool list_is_new(ops_runner *r, const qn_exec *emu, const qn_cuda_list *list)
{
    bool fresh = false, wanted = false;
    for (int i = 0; i < list->n; i++) {
        if (list->actions[i].is_gemm) {
            continue;
        }
        const emu_program *p = emu_exec_program(emu, list->actions[i].program);
        bool seen = false;
        for (int k = 0; k < r->n_seen; k++) {
            seen = seen || r->seen[k] == p;
        }
        if (!seen) {
            fresh = true;
            r->seen[r->n_seen < OPS_SEEN ? r->n_seen++ : OPS_SEEN - 1] = p;
        }
        wanted = wanted || (r->only_added && added(p));
    }
    return r->only_added ? wanted : fresh;
}

/* Is the run of an executor worth while? The three lists by themselves always are. */
static bool is_due(ops_runner *r, const ops_way *w, const qn_exec *emu)
{
    const qn_lowered *low = emu_exec_lowered(emu);
    const qn_cuda_list *list = w->decode    ? &low->decode
                               : w->prefill ? &low->prefill
                               : w->many    ? &low->each
                                            : &low->few;
    bool plain =
        w->alone || (!w->f32 && !w->no_fuse && !w->tma && !w->f32_products && w->route == QN_PREFILL_AUTO);
    bool always = plain && !r->only_added;
    bool fresh = list_is_new(r, emu, list), repack = list_is_new(r, emu, &low->repack);
    return always || fresh || repack;
}

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
    return emu->run(emu, run, err);
}

/* What ran, where it matters: attention on the tensor cores, products that came as f16. */
typedef struct ran {
    bool mma, halves;
} ran;

/* Ids of a run's rows. */
static void fill_tokens(const emu_case *c, int32_t *tokens, int n)
{
    for (int i = 0; i < n; i++) {
        tokens[i] = c->rows ? (int32_t)((unsigned)i * 2654435761u % (unsigned)c->model.n_vocab)
                            : i * 37 % CASE_VOCAB % c->model.n_vocab;
    }
}

/* What an executor of the case is made with that way; rows of the run are settled. */
static void set_options(emu_case *c, ops_way *w)
{
    const bool large = c->rows > 0 && w->prefill;
    w->rows = large ? c->rows : w->rows ? w->rows : c->few_rows;
    c->exec.f32_activations = w->f32;
    c->exec.prefill = w->route;
    c->exec.weight_cache = w->route == QN_PREFILL_FP8 ? QN_WEIGHT_CACHE_ON : QN_WEIGHT_CACHE_AUTO;
    c->exec.flash_attention = !w->tma;
    c->exec.tma_attention = w->tma && w->tokens == 0 && c->rows == 0;
    c->exec.f32_products = w->f32_products;
    c->exec.no_fuse = w->no_fuse;
    c->exec.n_ubatch = c->rows ? c->rows : w->rows > CASE_UBATCH ? CASE_ROWS : c->exec.n_ubatch;
}

static int compare_run(emu_case *c, const ops_way *w, qn_exec *cpu, qn_exec *emu, qn_run *run, ops_error *e,
                       qn_err *err)
{
    int rc = c->rows > 0 && w->prefill ? ops_compare_samples(c, cpu, emu, run, e, err)
             : ops_run_reference(c, w, cpu, emu, run, e, err) || ops_compare_case(c, w, cpu, emu, e, err) ? -1
                                                                                                          : 0;
    rc = rc || ops_check_strays(c, emu, w->rows, err) ? -1 : 0;
    if (rc == 0 && run->stop_after < 0) {
        rc = emu->read(emu, (qn_view){3, 0, c->model.n_vocab}, 0, 1, run->logits, err) ||
                     check_choice(c, emu, run->logits, err)
                 ? -1
                 : 0;
    }
    return rc;
}

/* Returns 1 where nothing is to be run. */
static int run_way(ops_runner *r, emu_case *c, int which, ops_error *e, ran *what, qn_err *err)
{
    ops_way with = ops_ways[which], *w = &with;
    set_options(c, w);
    emu_exec_opts eo = r->emu;
    eo.variant = c->variant;
    eo.multiprocessors = w->alone                        ? 1
                         : c->rows && eo.multiprocessors ? eo.multiprocessors
                                                         : CASE_MULTIPROCESSORS;
    eo.seed = 1000u * (uint64_t)which;
    eo.product_tokens = c->rows ? 0 : w->tokens;
    eo.as_sessions = c->rows > 0;
    eo.list = w->prefill ? EMU_LIST_PREFILL : EMU_LIST_FEW;
    const int held = c->rows > CASE_ROWS ? c->rows : CASE_ROWS;
    int32_t *tokens = malloc(sizeof *tokens * (size_t)held);
    float *logits = malloc(sizeof(float) * (size_t)c->model.n_vocab * CASE_ROWS);
    fill_tokens(c, tokens, held);
    qn_exec *cpu = NULL, *emu = NULL;
    int rc = emu_exec_new(&emu, &c->plans, &c->exec, &eo, err);
    if (rc == 0 && !is_due(r, w, emu)) {
        rc = 1;
    }
    rc = rc ? rc : qn_cpu_exec_new(&cpu, &c->plans, &c->exec, err);
    if (rc == 0) {
        ops_start_values(c, cpu, emu);
        qn_run run = {.tokens = tokens, .n = w->rows, .pos = c->pos, .outputs = c->outputs, .logits = logits};
        run.seqs = w->many ? ops_many_seqs : NULL;
        run.phase = w->decode ? QN_PHASE_DECODE : QN_PHASE_PREFILL;
        run.stop_after = c->argmax && w->decode ? -1 : c->plans.prefill.n_step - 1;
        if (w->decode && c->plans.decode.n_step == 4) { /* what a launch left with other sums */
            rc = start_others(c, emu, &run, err);
            ops_start_values(c, cpu, emu);
        }
        rc = rc ? rc : emu->run(emu, &run, err);
        what->mma = emu_exec_launches(emu, "attention_rope") + emu_exec_launches(emu, "attention_mma") > 0;
        what->halves = w->prefill && emu_half_products(&emu_exec_lowered(emu)->prefill);
        rc = rc ? rc : compare_run(c, w, cpu, emu, &run, e, err);
    }
    if (emu) {
        emu->free(emu);
    }
    if (cpu) {
        cpu->free(cpu);
    }
    free(tokens);
    free(logits);
    return rc;
}

int ops_run(ops_runner *r, emu_case *c, int way, ops_result *out)
{
    ran what = {false, false};
    memset(out, 0, sizeof *out);
    out->rc = run_way(r, c, way, &out->error, &what, &out->err);
    const ops_way *w = &ops_ways[way];
    bool exact = w->route == QN_PREFILL_FP8 || (ops_one_rounding(c) && !what.halves) ||
                 qn_cuda_takes_mmq(&c->steps[0], &c->exec);
    out->tolerance = (w->prefill && !exact) || what.mma ? c->tol_many : c->tol_few;
    if (exact && w->route >= QN_PREFILL_MMQ) {
        out->tolerance *= 10; /* a sum of all groups in one register, where decode's lanes share them */
    }
    const bool glu = c->steps[0].op->id == QN_OP_GLU;
    if (r->emu.find && exact && w->prefill && !qn_cuda_takes_mmq(&c->steps[0], &c->exec)) {
        /* A card's tensor cores cut off what they shift out when they add, products of e4m3 sooner, steps of
         * 8 values (sm75) twice as often as steps of 16; what an activation leaves of gates below 0 magnifies
         * it. */
        out->tolerance *= w->route == QN_PREFILL_FP8 || (glu && w->route != QN_PREFILL_WGMMA) ? 100 : 10;
        out->tolerance *= c->variant < QN_VARIANT_SM80 ? 2 : 1;
    }
    const ops_error *e = &out->error;
    out->failed = out->rc != 1 && (out->rc || e->bad || !(e->nmse <= out->tolerance) || e->rows == 0);
    return out->rc == 1;
}
