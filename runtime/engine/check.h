/* check.h: every step of an executor against the exact reference function on the step's real inputs.
 *
 * For each step the tested executor's inputs are copied to the reference executor (the CPU's exact
 * arithmetic), both run that one step, and the outputs are compared. What the tested executor stored in a KV
 * cache is copied too, once compared. So an error is the step's own, and does not grow along the plan. */
#ifndef QN_ENGINE_CHECK_H
#define QN_ENGINE_CHECK_H

#include "codegen/backend.h"

/* Results of one op in one arithmetic and phase. */
typedef struct qn_check_row {
    const qn_op *op;
    qn_arith arith;
    qn_phase phase;
    bool kv;          /* what was stored in the KV cache, not the output view */
    int n, n_failed;  /* steps compared; those beyond the tolerance */
    double worst;     /* largest NMSE; infinite where a value was not finite */
    double tolerance; /* of the op's row */
    char worst_step[40];
} qn_check_row;

typedef struct qn_check qn_check;

/* Both executors are borrowed, have the same plans, n_ctx, n_ubatch and n_outputs, and hold nothing yet. */
int qn_check_new(qn_check **out, qn_exec *tested, qn_exec *reference, qn_err *err);
void qn_check_free(qn_check *c);

/* Runs n tokens (at most n_ubatch; one in decode) step by step on both; the executors' lengths grow by n. A
 * step beyond its tolerance is no error of the call: it is recorded. The last token's logits of the tested
 * executor go to logits [n_vocab] (may be NULL). */
int qn_check_run(qn_check *c, const int32_t *tokens, int n, qn_phase phase, float *logits, qn_err *err);

/* Rows in order of first appearance. */
const qn_check_row *qn_check_rows(const qn_check *c, int *n);

/* The first step that failed: "step blk.0.qkv (linear, prefill of 17 tokens, f16): NMSE ... beyond ...";
 * NULL: none has. */
const char *qn_check_failure(const qn_check *c);

/* Largest NMSE of a row: sum (a - b)^2 / sum b^2, the denominator at least a thousandth of the rows' mean, so
 * that a row that is nearly zero does not count alone; 0 where all are equal; infinite where a value of `a`
 * is not finite. a, b: [rows][width]. */
double qn_check_nmse(const float *a, const float *b, int rows, int width);

#endif
