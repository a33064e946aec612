/* emu_ops OP [WORD [VARIANT]] [--added]: the cases of an op (those whose name contains WORD, of one hardware
 * variant: sm75, sm80, sm90a): its kernels under emulation against its reference function in exact
 * arithmetic, through the lists for one row (decode), few rows and many rows (prefill). Prints NMSE and the
 * worst element (of the outputs' root mean square) of the worst cases.
 *
 * With --added only runs that launch a program which stands twice in the table, up to the first that fails
 * (tests/emu/mutate.py).
 *
 * emu_ops --list-is OP...: are these the ops that have cases? (That each template is launched by a case:
 * emu_gen.c.) */
#include "emu_ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "emu_operands.h"

static const ops_way ways[] = {
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
enum { N_WAYS = sizeof ways / sizeof *ways };

enum { SEEN = 64 };
typedef struct runner {
    const char *word;
    bool only_added; /* --added */
    int variant;     /* only cases of this one; 0: all */
    int n_run, n_failed;
    const emu_program *seen[SEEN]; /* launched by the runs of this case so far */
    int n_seen;
    double worst_nmse[N_WAYS], worst_element[N_WAYS];
    char worst_name[N_WAYS][176];
    int runs[N_WAYS];
} runner;

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

/* Has the case this way on its variant? */
static bool has_way(const emu_case *c, const ops_way *w)
{
    const qn_op_id op = c->steps[0].op->id;
    if (c->plans.prefill.n_step == 2 && (op == QN_OP_LINEAR || op == QN_OP_GLU) && !w->prefill) {
        return false; /* its other lists are those of two cases */
    }
    if (w->many) { /* the others do not ask for the sequence of a row */
        return c->plans.n_kv > 0 && c->pos > 0;
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
static bool list_is_new(runner *r, const qn_exec *emu, const qn_cuda_list *list)
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
            r->seen[r->n_seen < SEEN ? r->n_seen++ : SEEN - 1] = p;
        }
        wanted = wanted || (r->only_added && added(p));
    }
    return r->only_added ? wanted : fresh;
}

/* Is the run of an executor worth while? The three lists by themselves always are. */
static bool is_due(runner *r, const ops_way *w, const qn_exec *emu)
{
    const qn_lowered *low = emu_exec_lowered(emu);
    const qn_cuda_list *list = w->decode ? &low->decode : w->prefill ? &low->prefill : &low->few;
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

/* Returns 1 where nothing is to be run. */
static int run_way(runner *r, emu_case *c, int which, ops_error *e, ran *what, qn_err *err)
{
    static int32_t tokens[CASE_ROWS];
    int n_program;
    ops_way with = ways[which], *w = &with;
    w->rows = w->rows ? w->rows : c->few_rows;
    emu_exec_opts eo = {.variant = c->variant,
                        .multiprocessors = w->alone ? 1 : CASE_MULTIPROCESSORS,
                        .seed = 1000u * (uint64_t)which,
                        .product_tokens = w->tokens,
                        .list = w->prefill ? EMU_LIST_PREFILL : EMU_LIST_FEW};
    eo.programs = emu_programs(&n_program);
    eo.n_program = n_program;
    c->exec.f32_activations = w->f32;
    c->exec.prefill = w->route;
    c->exec.weight_cache = w->route == QN_PREFILL_FP8 ? QN_WEIGHT_CACHE_ON : QN_WEIGHT_CACHE_AUTO;
    c->exec.flash_attention = !w->tma;
    c->exec.tma_attention = w->tma && w->tokens == 0;
    c->exec.f32_products = w->f32_products;
    c->exec.no_fuse = w->no_fuse;
    c->exec.n_ubatch = w->rows > CASE_UBATCH ? CASE_ROWS : c->exec.n_ubatch;
    for (int i = 0; i < CASE_ROWS; i++) {
        tokens[i] = i * 37 % CASE_VOCAB % c->model.n_vocab;
    }
    float *logits = malloc(sizeof(float) * (size_t)c->model.n_vocab * CASE_ROWS);
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
        rc = rc || ops_run_reference(c, w, cpu, emu, &run, e, err) ||
                     ops_compare_case(c, w, cpu, emu, e, err) || ops_check_strays(c, emu, w->rows, err)
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

static void note(runner *r, const emu_case *c, int way, const ops_error *e, double tolerance, int rc,
                 const qn_err *err)
{
    r->n_run++;
    r->runs[way]++;
    if (rc || e->bad || !(e->nmse <= tolerance) || e->rows == 0) {
        r->n_failed++;
        printf("FAILED %s, %s %s: %s NMSE %.2e (at most %.0e), worst element %.2e%s\n", c->name,
               ways[way].name, qn_variant_name(c->variant), rc ? err->text : "", e->nmse, tolerance,
               e->element, e->bad ? ", not finite" : "");
    }
    if (e->nmse >= r->worst_nmse[way]) {
        r->worst_nmse[way] = e->nmse;
        r->worst_element[way] = e->element;
        snprintf(r->worst_name[way], sizeof r->worst_name[way], "%s, %s", c->name,
                 qn_variant_name(c->variant));
    }
}

static int run_case(void *user, emu_case *c)
{
    runner *r = user;
    if ((r->word && !strstr(c->name, r->word)) || (r->variant && r->variant != c->variant)) {
        return 0;
    }
    r->n_seen = 0;
    for (int i = 0; i < N_WAYS; i++) {
        if (!has_way(c, &ways[i])) {
            continue;
        }
        ops_error e = {0};
        qn_err err = {""};
        ran what = {false, false};
        int rc = run_way(r, c, i, &e, &what, &err);
        bool exact = ways[i].route == QN_PREFILL_FP8 || (ops_one_rounding(c) && !what.halves) ||
                     qn_cuda_takes_mmq(&c->steps[0], &c->exec);
        double tolerance = (ways[i].prefill && !exact) || what.mma ? c->tol_many : c->tol_few;
        if (exact && ways[i].route >= QN_PREFILL_MMQ) {
            tolerance *= 10; /* a sum of all groups in one register, where decode's lanes share them */
        }
        if (rc != 1) {
            note(r, c, i, &e, tolerance, rc, &err);
        }
        if (r->n_failed && r->only_added) {
            return 1;
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
    if (argc > 1 && strcmp(argv[argc - 1], "--added") == 0) {
        r.only_added = true;
        argc--;
    }
    if (argc < 2) {
        fprintf(stderr, "usage: emu_ops [--traffic] OP [WORD [VARIANT]] [--added]\n");
        return 2;
    }
    r.word = argc > 2 ? argv[2] : NULL;
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
    return r.n_failed || (r.n_run == 0 && !r.only_added);
}
