/* check.h: --check of `run` and `logits`. */
#ifndef QN_CLI_CHECK_H
#define QN_CLI_CHECK_H

#include "cli/load.h"
#include "engine/check.h"

/* A loaded session's executor beside the CPU's exact one. */
typedef struct qn_checker {
    qn_exec *reference;
    qn_check *check;
    const quern_session *s;
} qn_checker;

/* The session must be empty. 0, or -1 after printing the error. */
int qn_checker_open(qn_checker *c, const quern_session *s);
void qn_checker_close(qn_checker *c);

/* Checks n tokens in runs of at most `chunk`, as qn_check_run does. 0, or -1 after printing the error. */
int qn_checker_tokens(qn_checker *c, const int32_t *ids, size_t n, int chunk, qn_phase phase, float *logits);

/* The table of all steps so far on stdout, and the first failure as an error; returns the exit status. */
int qn_checker_report(const qn_checker *c, bool json);

#endif
