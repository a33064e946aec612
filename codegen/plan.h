/* plan.h: what a model does with a token, as two flat lists of steps: prefill (many tokens) and decode (one).
 *
 * A step is {op, specialisation constants, buffer views, logical weights}. Buffers are f32 rows, one row a
 * token (or one row an output position); a view is a range of columns. How a backend stores a weight, a KV
 * cache or a buffer is that backend's own annotation. The CPU executor and the CUDA executor walk the same
 * list. Fused steps are chosen while planning; nothing rewrites the list afterwards. */
#ifndef QN_CODEGEN_PLAN_H
#define QN_CODEGEN_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "codegen/op.h"
#include "model/model.h"

enum { QN_STEP_VIEWS = 3, QN_STEP_WEIGHTS = 10 };

typedef enum qn_rows { QN_ROWS_TOKENS, QN_ROWS_OUTPUTS } qn_rows;

typedef struct qn_buf {
    const char *name;
    int width; /* f32 values a row */
    qn_rows rows;
} qn_buf;

/* Columns [col, col + width) of every row of buffer `buf`; buf < 0: no view. */
typedef struct qn_view {
    int buf, col, width;
} qn_view;

/* One KV cache: rows of n_head_kv * k_dim and n_head_kv * v_dim, position-major ([pos][head][dim]). */
typedef struct qn_kv_cache {
    int layer; /* owning layer */
    int n_head_kv, k_dim, v_dim;
    int window; /* > 0: only the last `window` positions are ever read: a ring of window + ubatch rows serves
                 */
} qn_kv_cache;

typedef struct qn_step {
    const qn_op *op;
    char name[40]; /* "blk.3.qkv": unique in its plan */
    int layer;     /* executed layer, -1 outside */
    qn_rows rows;  /* how many rows it works on */
    qn_view in[QN_STEP_VIEWS], out[QN_STEP_VIEWS];
    const qn_tensor *w[QN_STEP_WEIGHTS]; /* roles: op.h; NULL: absent */
    const float *table;                  /* RoPE frequencies [n_rot / 2]; NULL: none */
    int kv;                              /* index of the KV cache written or read; -1: none */
    qn_spec spec;
} qn_step;

typedef enum qn_phase { QN_PHASE_PREFILL, QN_PHASE_DECODE } qn_phase;

typedef struct qn_plan {
    qn_phase phase;
    int n_step;
    qn_step *steps;
    int logits_buf; /* buffer that holds the logits when the last step is done */
} qn_plan;

typedef struct qn_plans {
    const qn_model *model;
    int n_buf;
    qn_buf *bufs; /* shared by both plans */
    int n_kv;
    qn_kv_cache *kv;
    qn_plan prefill, decode;
    qn_arena arena;
} qn_plans;

/* Builds both plans. The model must outlive them. What the ops cannot serve is an error that names layer and
 * choice. */
int qn_plans_build(qn_plans **out, const qn_model *model, qn_err *err);
void qn_plans_free(qn_plans *p);

/* Index of the step of that name; -1: none. */
int qn_plan_find(const qn_plan *p, const char *name);

/* Bytes of weights a step reads (each tensor once; an embedding gather counts one row). */
uint64_t qn_step_weight_bytes(const qn_step *s);

/* One line a step: index, name, op and constants, views, weights with their types, bytes. */
void qn_plan_print(const qn_plans *p, qn_phase phase, FILE *f);
/* The same of one step, without the newline. */
void qn_step_print(const qn_plans *p, const qn_step *s, FILE *f);

#endif
