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

enum { OPS_WAYS = 18, OPS_SEEN = 64 };
extern const ops_way ops_ways[OPS_WAYS];

/* emu_ways.c: who runs cases. */
typedef struct ops_runner {
    emu_exec_opts emu; /* where programs come from; multiprocessors: of large cases, 0: as of the others */
    bool only_added;
    const emu_program *seen[OPS_SEEN]; /* launched by the runs of this case so far; n_seen: 0 at its start */
    int n_seen;
} ops_runner;

typedef struct ops_result {
    ops_error error;
    double tolerance;
    int rc; /* -1: err says what is wrong */
    qn_err err;
    bool failed;
} ops_result;

/* Has the case this way on its variant? */
bool ops_has_way(const emu_case *c, int way);
/* Runs a case one way. Returns 1 where there is nothing to run: programs that runs before have launched. */
int ops_run(ops_runner *r, emu_case *c, int way, ops_result *out);

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
/* The same of a large case (emu_case.rows): row by row of its sample, each by a run of the reference for that
 * row alone, with the operands that the kernels had. */
int ops_compare_samples(emu_case *c, qn_exec *cpu, qn_exec *emu, const qn_run *run, ops_error *e,
                        qn_err *err);
/* Keys and values of rows that a step has stored from position `pos` on. */
void ops_compare_stored(emu_case *c, int seq, int pos, qn_exec *cpu, qn_exec *emu, ops_error *e);
/* Row `row` of a view on the device against row `at` of the reference's. */
int ops_compare_row(qn_view v, int row, int at, qn_exec *cpu, qn_exec *emu, ops_error *e, qn_err *err);
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
