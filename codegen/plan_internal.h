/* plan_internal.h: between plan.c (buffers, caches, the two lists), plan_layer.c (a decoder layer) and
 * plan_special.c (what only some models have: per-layer embeddings, streams, latent attention). */
#ifndef QN_CODEGEN_PLAN_INTERNAL_H
#define QN_CODEGEN_PLAN_INTERNAL_H

#include "codegen/plan.h"

/* Buffers, in the order of qn_plans.bufs. */
enum {
    B_X,       /* residual stream; of several: what a layer's branches add to stream 0 */
    B_H,       /* normed input of a branch */
    B_H2,      /* of the other, where both run side by side */
    B_QKV,     /* queries, keys, values */
    B_LATENT,  /* compressed queries, keys and values, shared rope key */
    B_KVB,     /* keys and values out of the compressed ones */
    B_ATT,     /* the heads' results */
    B_FFN,     /* feed-forward, between its products */
    B_Y,       /* a branch's output, before its norm */
    B_SKIP,    /* the embedding, where layers add it again */
    B_PLE,     /* per-layer inputs, [n_layer][P] */
    B_PLE_Y,   /* projections of the embedding for them */
    B_PLE_H,   /* one layer's gated input, [P] */
    B_LOW,     /* low-rank residual, between its products */
    B_STREAMS, /* all streams, [n_stream][n_embd] */
    B_PREDICT, /* what they are predicted to be after the layer */
    B_XS,      /* streams of output rows */
    B_XM,      /* streams projected back */
    B_XO,      /* residual stream of output rows */
    B_HO,      /* normed */
    B_LOGITS,
    B_COUNT
};

typedef struct qn_planner {
    qn_plans *p;
    const qn_model *m;
    qn_plan *plan;
    int *kv_of_layer; /* cache index by owning layer */
    bool has_skip;
    qn_err *err;
} qn_planner;

static const qn_view qn_no_view = {-1, 0, 0};

static inline qn_view qn_view_of(int buf, int col, int width)
{
    return (qn_view){buf, col, width};
}

/* Appends an empty step; the caller fills spec, views and weights. */
qn_step *qn_plan_step(qn_planner *b, qn_op_id op, int layer, qn_rows rows, const char *name);
/* out = [base +] scale * norm(in), each group of `n` values on its own; base qn_no_view: none. */
qn_step *qn_plan_norm(qn_planner *b, const qn_norm *n, int layer, qn_rows rows, const char *name, qn_view in,
                      qn_view base, qn_view out, float scale);
/* Side-by-side products of `in`; those with w NULL are left out. */
qn_step *qn_plan_linear(qn_planner *b, const qn_linear *const *lins, int n_lin, int layer, qn_rows rows,
                        const char *name, qn_view in, qn_view out);
/* out = a * in0 + b * in1; in1 narrower than in0 repeats. s0, s1: one-element tensors in place of a and b. */
qn_step *qn_plan_mix(qn_planner *b, int layer, const char *name, qn_view in0, qn_view in1, qn_view out,
                     const qn_tensor *s0, const qn_tensor *s1);

/* plan_layer.c: one decoder layer. */
int qn_plan_layer(qn_planner *b, int layer);

/* plan_special.c. Inputs of all layers from the token and its embedding in `x`; then one layer's part. */
void qn_plan_per_layer_inputs(qn_planner *b, qn_view x);
void qn_plan_per_layer(qn_planner *b, int layer);
/* The other streams from the first, which holds the embedding; all of them into one row, which is returned.
 */
void qn_plan_streams_begin(qn_planner *b);
qn_view qn_plan_streams_end(qn_planner *b, qn_rows rows, qn_view streams);
/* A layer's prediction of all streams, and the correction by its result in B_X. */
void qn_plan_predict(qn_planner *b, int layer);
void qn_plan_correct(qn_planner *b, int layer);
/* Low-rank residual of the normed input `in`, into B_H2; then averaged with the stream B_X. */
void qn_plan_laurel(qn_planner *b, int layer, qn_view in);
void qn_plan_laurel_join(qn_planner *b, int layer);
/* Queries, keys and values of latent attention where standard attention has them. */
void qn_plan_latent(qn_planner *b, int layer, qn_view in);
/* What these steps cannot serve: a choice's name; NULL: all is served. */
const char *qn_plan_unserved(const qn_planner *b, int layer);

#endif
