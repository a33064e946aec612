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
#include "cpu/cpu.h"
#include "emu_cases.h"
#include "emu_exec.h"
#include "emu_source.h"

enum { LIST_DECODE, LIST_FEW, LIST_MANY, LIST_COUNT };
static const char *const list_names[LIST_COUNT] = {"decode", "few", "prefill"};
static const int list_rows[LIST_COUNT] = {1, 3, 13};

typedef struct runner {
    const char *word;
    int variant, n_run, n_failed;
    double worst_nmse[LIST_COUNT], worst_element[LIST_COUNT];
    char worst_name[LIST_COUNT][160];
} runner;

typedef struct error_sum {
    double d2, ref2, worst;
    size_t n;
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

/* Rows of a cache that the step wrote, or that it reads. f16 on the device. */
static void put_cache(uint64_t at, const float *from, size_t n)
{
    uint16_t *h = malloc(2 * n);
    for (size_t i = 0; i < n; i++) {
        h[i] = qn_f32_to_f16(from[i]);
    }
    emu_put(at, h, 2 * n);
    free(h);
}

/* The reference's values are rounded as the cache is: what is left is where the two sides of a rounding
 * differ. */
static void compare_cache(error_sum *e, uint64_t at, const float *want, int row, int width)
{
    const uint16_t *h = (const uint16_t *)(uintptr_t)at + (size_t)row * (size_t)width;
    for (int i = 0; i < width; i++) {
        float got = qn_f16_to_f32(h[i]),
              due = qn_f16_to_f32(qn_f32_to_f16(want[(size_t)row * (size_t)width + (size_t)i]));
        compare(e, &got, &due, 1);
    }
}

static void start_values(emu_case *c, qn_exec *cpu, qn_exec *emu)
{
    const qn_cuda_mem *m = emu_exec_mem(emu);
    qn_cpu *x = (qn_cpu *)cpu;
    for (int i = 0; i < 4; i++) {
        size_t bytes = sizeof(float) * (size_t)c->bufs[i].width * CASE_UBATCH;
        if (c->start[i]) {
            memcpy(x->bufs[i], c->start[i], bytes);
            emu_put(m->bufs[i], c->start[i], bytes);
        }
    }
    if (c->k) {
        int rows = qn_kv_rows(&c->kv, &c->exec);
        size_t nk = (size_t)(rows * c->kv.n_head_kv * c->kv.k_dim),
               nv = (size_t)(rows * c->kv.n_head_kv * c->kv.v_dim);
        memcpy(x->kv[0].k, c->k, nk * sizeof(float));
        memcpy(x->kv[0].v, c->v, nv * sizeof(float));
        put_cache(m->k[0], c->k, nk);
        put_cache(m->v[0], c->v, nv);
    }
}

static int compare_view(const emu_case *c, qn_exec *cpu, qn_exec *emu, qn_view v, int rows, error_sum *e,
                        qn_err *err)
{
    int n_out = c->step.rows == QN_ROWS_TOKENS ? rows : c->outputs == QN_OUT_ALL ? rows : 1;
    size_t n = (size_t)n_out * (size_t)v.width;
    float *got = malloc(n * sizeof(float)), *want = malloc(n * sizeof(float));
    int rc = emu->read(emu, v, 0, n_out, got, err) || cpu->read(cpu, v, 0, n_out, want, err) ? -1 : 0;
    if (rc == 0) {
        compare(e, got, want, n);
    }
    free(got);
    free(want);
    return rc;
}

static int compare_case(emu_case *c, qn_exec *cpu, qn_exec *emu, int rows, error_sum *e, qn_err *err)
{
    int rc = 0;
    for (int i = 0; i < QN_STEP_VIEWS && rc == 0; i++) {
        rc = c->step.out[i].buf >= 0 ? compare_view(c, cpu, emu, c->step.out[i], rows, e, err) : 0;
    }
    if (rc == 0 && c->step.op->id == QN_OP_ROPE_KV && c->step.kv >= 0) {
        const qn_cpu_kv *kv = &((const qn_cpu *)cpu)->kv[0];
        for (int r = 0; r < rows; r++) {
            int at = (c->pos + r) % kv->rows;
            compare_cache(e, emu_exec_mem(emu)->k[0], kv->k, at, c->kv.n_head_kv * c->kv.k_dim);
            compare_cache(e, emu_exec_mem(emu)->v[0], kv->v, at, c->kv.n_head_kv * c->kv.v_dim);
        }
    }
    return rc;
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

static int run_list(const runner *r, emu_case *c, int list, error_sum *e, qn_err *err)
{
    static int32_t tokens[CASE_UBATCH];
    int n_program, rows = list_rows[list];
    emu_exec_opts eo = {.variant = r->variant,
                        .multiprocessors = CASE_MULTIPROCESSORS,
                        .seed = 1000u * (uint64_t)list,
                        .list = list == LIST_MANY ? EMU_LIST_PREFILL : EMU_LIST_FEW};
    eo.programs = emu_programs(&n_program);
    eo.n_program = n_program;
    for (int i = 0; i < CASE_UBATCH; i++) {
        tokens[i] = i * 37 % CASE_VOCAB % c->model.n_vocab;
    }
    float *logits = malloc(sizeof(float) * (size_t)c->model.n_vocab * CASE_UBATCH);
    qn_exec *cpu = NULL, *emu = NULL;
    int rc =
        qn_cpu_exec_new(&cpu, &c->plans, &c->exec, err) || emu_exec_new(&emu, &c->plans, &c->exec, &eo, err)
            ? -1
            : 0;
    if (rc == 0) {
        start_values(c, cpu, emu);
        qn_run run = {.tokens = tokens, .n = rows, .pos = c->pos, .outputs = c->outputs, .logits = logits};
        run.phase = list == LIST_DECODE ? QN_PHASE_DECODE : QN_PHASE_PREFILL;
        run.stop_after = c->argmax && list == LIST_DECODE ? -1 : 0;
        cpu->length = emu->length = c->pos;
        rc = cpu->run(cpu, &run, err) || emu->run(emu, &run, err) || compare_case(c, cpu, emu, rows, e, err)
                 ? -1
                 : 0;
        if (rc == 0 && run.stop_after < 0) {
            rc = check_choice(c, emu, logits, err);
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
    if (r->word && !strstr(c->name, r->word)) {
        return 0;
    }
    for (int list = 0; list < LIST_COUNT; list++) {
        error_sum e = {0};
        qn_err err = {""};
        double tolerance = list == LIST_MANY ? c->tol_many : c->tol_few;
        int rc = run_list(r, c, list, &e, &err);
        double nmse = e.ref2 > 0 ? e.d2 / e.ref2 : e.d2,
               element = e.worst / sqrt(e.ref2 / (double)(e.n ? e.n : 1) + 1e-300);
        r->n_run++;
        if (rc || e.bad || !(nmse <= tolerance) || e.n == 0) {
            r->n_failed++;
            printf("FAILED %s, %s: %s NMSE %.2e (at most %.0e), worst element %.2e%s\n", c->name,
                   list_names[list], err.text, nmse, tolerance, element, e.bad ? ", not finite" : "");
        }
        if (nmse >= r->worst_nmse[list]) {
            r->worst_nmse[list] = nmse;
            r->worst_element[list] = element;
            snprintf(r->worst_name[list], sizeof r->worst_name[list], "%s", c->name);
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
    if (argc < 2) {
        fprintf(stderr, "usage: emu_ops OP [WORD [VARIANT]]\n");
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
    for (int i = 0; i < LIST_COUNT; i++) {
        printf("%-8s worst NMSE %.2e, its worst element %.2e: %s\n", list_names[i], r.worst_nmse[i],
               r.worst_element[i], r.worst_name[i]);
    }
    emu_counts n = emu_totals();
    printf("%s: %d runs, %d failed; %llu launches, %llu blocks, %llu threads, %.1f M accesses checked\n",
           argv[1], r.n_run, r.n_failed, (unsigned long long)n.launches, (unsigned long long)n.blocks,
           (unsigned long long)n.threads, 1e-6 * (double)n.accesses);
    return r.n_failed || r.n_run == 0;
}
