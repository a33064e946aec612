/* emu_check MODEL.gguf: every step of a golden model through the lowered lists under emulation, by the
 * machinery of
 * --check: prefill list, few rows, decode, with chunks that cross windows and ring ends. */
#include <stdio.h>
#include <stdlib.h>

#include "emu_exec.h"
#include "emu_models.h"
#include "engine/check.h"

/* Negative: by the prefill list; 1: a decode step; 0: the end. */
static const int chunks[] = {-11, 1, 1, 6, -9, 1, 0};

static int check(qn_exec *tested, qn_exec *reference, qn_err *err)
{
    qn_check *c;
    if (qn_check_new(&c, tested, reference, err)) {
        return -1;
    }
    int n_vocab = tested->plans->model->n_vocab, rc = 0;
    for (const int *k = chunks; *k && rc == 0; k++) {
        int32_t ids[EMU_MODEL_UBATCH];
        int n = abs(*k);
        for (int i = 0; i < n; i++) {
            ids[i] = (int32_t)(((unsigned)(tested->length + i) * 2654435761u >> 9) % (unsigned)n_vocab);
        }
        emu_exec_set_list(tested, *k < 0 ? EMU_LIST_PREFILL : EMU_LIST_FEW);
        rc = qn_check_run(c, ids, n, n == 1 ? QN_PHASE_DECODE : QN_PHASE_PREFILL, NULL, err);
    }
    int n_row;
    const qn_check_row *r = qn_check_rows(c, &n_row);
    for (int i = 0; i < n_row; i++) {
        printf("%-10s %-8s %-4s%s %4d steps, worst NMSE %.2e of %.0e (%s)\n", r[i].op->name,
               r[i].phase == QN_PHASE_DECODE ? "decode" : "prefill", qn_names_arith[r[i].arith],
               r[i].kv ? " KV" : "", r[i].n, r[i].worst, r[i].tolerance, r[i].worst_step);
    }
    if (rc == 0 && qn_check_failure(c)) {
        rc = qn_fail(err, "%s", qn_check_failure(c));
    }
    qn_check_free(c);
    return rc;
}

int main(int argc, char **argv)
{
    qn_err err;
    qn_model *m;
    qn_plans *p = NULL;
    qn_exec *tested = NULL, *reference = NULL;
    const qn_model_opts mo = {.n_ctx = EMU_MODEL_CTX};
    qn_exec_opts o = {.n_ctx = EMU_MODEL_CTX, .n_ubatch = EMU_MODEL_UBATCH, .n_threads = 1, .no_fuse = true};
    emu_exec_opts eo = {.variant = QN_VARIANT_SM80, .multiprocessors = EMU_MULTIPROCESSORS, .seed = 1};
    eo.programs = emu_programs(&eo.n_program);
    if (argc != 2) {
        fprintf(stderr, "usage: emu_check MODEL.gguf\n");
        return 2;
    }
    int rc = qn_model_load(&m, argv[1], &mo, &err);
    if (rc == 0) {
        rc = qn_plans_build(&p, m, &err) || emu_exec_new(&tested, p, &o, &eo, &err) ? -1 : 0;
        o.exact = true;
        rc = rc || qn_cpu_exec_new(&reference, p, &o, &err) || check(tested, reference, &err) ? -1 : 0;
    }
    if (rc) {
        fprintf(stderr, "emu_check: %s\n", err.text);
    }
    if (tested) {
        tested->free(tested);
    }
    if (reference) {
        reference->free(reference);
    }
    qn_plans_free(p);
    return rc ? 1 : 0;
}
