/* cpu.h: inside of the CPU executor: what a reference function sees. */
#ifndef QN_CPU_CPU_H
#define QN_CPU_CPU_H

#include "base/threads.h"
#include "codegen/backend.h"
#include "cpu/fast.h"
#include "cpu/matmul.h"

/* Cache rows of one KV cache: position p lives in row p % rows. Exact: f32; fast: f16. */
typedef struct qn_cpu_kv {
    int rows;    /* of one sequence */
    void *k, *v; /* [sequence][rows][n_head_kv * k_dim], [sequence][rows][n_head_kv * v_dim] */
} qn_cpu_kv;

/* cos and sin (times mscale) of this run's positions for one frequency table. */
typedef struct qn_cpu_rope {
    const float *table;
    int n_rot;
    float mscale;
    float *cs; /* [n_ubatch][n_rot]: cos of pair i at 2i, sin at 2i + 1 */
} qn_cpu_rope;

typedef struct qn_cpu {
    qn_exec base;
    qn_pool *pool;
    qn_mm *mm;
    qn_act act;                  /* input of the current product */
    const qn_fast_kernels *fast; /* NULL in exact arithmetic */
    float **bufs;                /* by buffer index: [rows][width] */
    qn_cpu_kv *kv;
    qn_cpu_rope *ropes;
    int n_rope;
    unsigned char *scratch; /* a piece of scratch_bytes a worker */
    size_t scratch_bytes;
    float *product; /* matrix products of glu and of residual linears, [rows][n_out] */
    float *split;   /* partial results of attention split over keys */
    /* of the current run */
    const int32_t *tokens;
    const int *seqs; /* qn_run.seqs */
    int n_tokens, pos;
    int n_out, first_out; /* output rows are tokens first_out .. first_out + n_out - 1 */
} qn_cpu;

/* The reference function of an op: runs the step on the current rows. */
typedef int (*qn_cpu_op)(qn_cpu *c, const qn_step *s, qn_err *err);

/* By qn_op_id; a test checks that no row is empty. */
extern const qn_cpu_op qn_cpu_ops[QN_OP_COUNT];

int qn_cpu_embed(qn_cpu *c, const qn_step *s, qn_err *err);
int qn_cpu_select(qn_cpu *c, const qn_step *s, qn_err *err);
int qn_cpu_norm(qn_cpu *c, const qn_step *s, qn_err *err);
int qn_cpu_linear(qn_cpu *c, const qn_step *s, qn_err *err);
int qn_cpu_glu(qn_cpu *c, const qn_step *s, qn_err *err);
int qn_cpu_rope_kv(qn_cpu *c, const qn_step *s, qn_err *err);
int qn_cpu_attention(qn_cpu *c, const qn_step *s, qn_err *err);
int qn_cpu_mix(qn_cpu *c, const qn_step *s, qn_err *err);
int qn_cpu_mul(qn_cpu *c, const qn_step *s, qn_err *err);
int qn_cpu_rescale(qn_cpu *c, const qn_step *s, qn_err *err);
int qn_cpu_altup(qn_cpu *c, const qn_step *s, qn_err *err);
int qn_cpu_latent_kv(qn_cpu *c, const qn_step *s, qn_err *err);

/* Position and sequence of a row of the run. */
int qn_cpu_pos(const qn_cpu *c, int row);
int qn_cpu_seq(const qn_cpu *c, int row);
/* Rows a step works on, the address of a view's row, values between rows of a view's buffer. */
int qn_cpu_rows(const qn_cpu *c, const qn_step *s);
float *qn_cpu_at(const qn_cpu *c, qn_view v, int row);
int qn_cpu_stride(const qn_cpu *c, qn_view v);
/* This worker's scratch. */
void *qn_cpu_scratch(const qn_cpu *c, int worker);

/* y = norm(x) * w + b over n values; w, b may be NULL; y may be x. */
void qn_cpu_norm_row(const float *x, float *y, int n, int kind, float eps, const float *w, const float *b);

/* Bytes of scratch a worker needs for a plan, floats of the split buffer; used by the executor's set-up. */
size_t qn_cpu_attention_scratch(const qn_plans *p, const qn_exec_opts *opts);
size_t qn_cpu_split_floats(const qn_plans *p, const qn_exec_opts *opts, int n_threads);

#endif
