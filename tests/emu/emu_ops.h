/* emu_ops.h: what the parts of emu_ops share: how a case is run, its error, and the reference's side of it.
 */
#ifndef QN_EMU_OPS_H
#define QN_EMU_OPS_H

#include "emu_cases.h"
#include "emu_exec.h"

/* How a case is run. By default quantised weights take 8-bit activations, and prefill rounds both operands to
 * f16 or bf16: the reference then gets the same operands, so that what is left is the order of sums. */
typedef struct ops_way {
    const char *name;
    int rows; /* 0: few, as the case says */
    bool decode, prefill, f32, no_fuse;
    qn_prefill route;
    bool tma, f32_products;
    int tokens; /* of a tile of product_wgmma.cu */
    bool many;  /* a row of each of CASE_SEQS sequences, at different positions */
    bool alone; /* one multiprocessor: blocks that stay take several tiles each */
} ops_way;

/* NMSE of the worst row, and the worst element of that row over the row's root mean square. */
typedef struct ops_error {
    double d2, ref2, worst; /* of the current row */
    size_t n;
    double nmse, element;
    int rows;
    bool bad;
} ops_error;

/* The sequences of such rows. */
extern const int ops_many_seqs[CASE_SEQS];

/* Puts a case's values into both executors, and says where their sequences stand: the case's own is selected,
 * with its position, the others hold other keys and values and stand elsewhere. */
void ops_start_values(emu_case *c, qn_exec *cpu, qn_exec *emu);
/* Rows that the case's steps have where a run has `rows`. */
int ops_rows_of(const emu_case *c, int rows);

/* Adds the difference between two executors: of a view, and of all that a case's last step (and a step that
 * stores keys and values) gives. */
int ops_compare_view(qn_view v, int rows, qn_exec *cpu, qn_exec *emu, ops_error *e, qn_err *err);
int ops_compare_case(emu_case *c, const ops_way *w, qn_exec *cpu, qn_exec *emu, ops_error *e, qn_err *err);
/* Kernels may write nothing of the buffers but the rows of this run in the columns of the steps' outputs. */
int ops_check_strays(const emu_case *c, const qn_exec *emu, int rows, qn_err *err);

/* Do all products of the case round their input alike? Then the last rounding in memory is the reference's
 * input. */
bool ops_one_rounding(const emu_case *c);
/* Runs the case on the reference with the operands that the kernels of `emu`, which has run, had; compares
 * what those wrote in 8 bits. */
int ops_run_reference(emu_case *c, const ops_way *w, qn_exec *cpu, qn_exec *emu, const qn_run *run,
                      ops_error *e, qn_err *err);

#endif
