/* backend.h: what an executor offers the engine. Implemented by runtime/cpu and runtime/cuda. */
#ifndef QN_CODEGEN_BACKEND_H
#define QN_CODEGEN_BACKEND_H

#include "base/error.h"
#include "codegen/plan.h"

typedef enum qn_outputs { QN_OUT_NONE, QN_OUT_LAST, QN_OUT_ALL } qn_outputs;

typedef struct qn_exec_opts {
    int n_ctx;     /* positions the KV caches hold */
    int n_ubatch;  /* most tokens of one run call */
    int n_threads; /* CPU; 0: all CPUs of this process */
    bool exact;    /* CPU: f32 throughout */
    int device;    /* CUDA */
} qn_exec_opts;

typedef struct qn_run {
    const int32_t *tokens; /* n ids, each in [0, n_vocab) (checked) */
    int n;                 /* 1..n_ubatch */
    int pos;               /* position of tokens[0]; must equal the executor's length */
    qn_phase phase;        /* DECODE only with n = 1 */
    qn_outputs outputs;
    float *logits;  /* [outputs][n_vocab] host memory; NULL with QN_OUT_NONE */
    int stop_after; /* index of the last step to run; -1: all */
} qn_run;

/* Where memory goes, before anything is allocated (bytes). */
typedef struct qn_memory {
    uint64_t weights; /* file bytes read in place or uploaded */
    uint64_t kv, activations, other;
} qn_memory;

typedef struct qn_exec qn_exec;

struct qn_exec {
    const char *name; /* "cpu", "cuda" */
    const qn_plans *plans;
    qn_exec_opts opts;
    int length; /* positions held: the next token's position */
    /* Runs one chunk and advances length by n. NaN or Inf in the logits is an error. */
    int (*run)(qn_exec *e, const qn_run *r, qn_err *err);
    /* Forgets positions >= length. Fails (length unchanged) where a ring no longer holds what is needed. */
    int (*truncate)(qn_exec *e, int length, qn_err *err);
    /* Copies rows of a view of the last run's buffers to out [rows][width] (debugging, --check). */
    int (*read)(qn_exec *e, qn_view v, int row, int n_rows, float *out, qn_err *err);
    void (*free)(qn_exec *e);
};

/* runtime/cpu */
int qn_cpu_exec_new(qn_exec **out, const qn_plans *plans, const qn_exec_opts *opts, qn_err *err);
void qn_cpu_memory(const qn_plans *plans, const qn_exec_opts *opts, qn_memory *out);

/* Rows a KV cache needs for these options: n_ctx, or window + n_ubatch where that is less. */
int qn_kv_rows(const qn_kv_cache *kv, const qn_exec_opts *opts);

#endif
