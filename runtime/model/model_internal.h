/* model_internal.h: what the model*.c files share: the state of one load. */
#ifndef QN_MODEL_MODEL_INTERNAL_H
#define QN_MODEL_MODEL_INTERNAL_H

#include "model/config.h"
#include "model/model.h"

/* One rotary table, kept to be shared by layers with equal ones. */
typedef struct qn_rope_table {
    const float *freq;
    int n;
} qn_rope_table;

/* Where faults go when all are wanted and not the first alone (model_check.c). */
typedef struct qn_faults {
    void (*report)(void *user, const char *text);
    void *user;
    int n;
} qn_faults;

typedef struct qn_binder {
    qn_model *m;
    const qn_gguf *g;
    const qn_config *config;
    const qn_layer_cfg *cfg; /* of the layer being bound; layer 0's for the model */
    int il;                  /* its number; -1: tensors of the whole model, without "blk.N." */
    const qn_tensor **used;  /* every tensor bound so far, with repeats */
    size_t n_used, cap_used;
    qn_rope_table *table;
    int n_tables, cap_tables;
    qn_faults *faults; /* NULL: the first fault ends the load */
    qn_err *err;
} qn_binder;

/* What a tensor must be. Unused dimensions are 1. */
typedef struct qn_shape {
    uint64_t ne[4];
    bool f32; /* norms, biases and other vectors: only f32 */
} qn_shape;

/* model.c: qn_model_from_gguf with a config in hand instead of the one that the architecture's name finds. */
int qn_model_with_config(qn_model **out, qn_gguf *g, const qn_config *config, const qn_model_opts *opts,
                         qn_err *err);

/* The same for a check: every fault is reported, and *out is a model to look at only, where slots may be
 * empty (NULL: nothing could be bound). -1: the file is no such model at all, or out of memory. */
int qn_model_with_faults(qn_model **out, qn_gguf *g, const qn_config *config, const qn_model_opts *opts,
                         qn_faults *faults, qn_err *err);
/* b->err has a fault: -1, or 0 after reporting it. */
int qn_bind_fault(qn_binder *b);

/* config_resolve.c: qn_config_resolve; with `faults`, all leaves that have no value are reported before it
 * fails. */
int qn_config_resolve_all(const qn_config *c, const qn_gguf *g, int il, int n_ctx, qn_layer_cfg *out,
                          const char **kind, qn_faults *faults, qn_err *err);

/* model_refuse.c: files that are no dense decoder are refused by what they are. */
int qn_model_refuse(const qn_gguf *g, const char *arch, qn_err *err);

/* model_bind.c. `leaf` is the address of the name in b->cfg (for messages); a name that is NULL binds
 * nothing. */
/* "blk.N.NAME.SUFFIX", or without the suffix where the file spells it so ("" : without anyway). */
const qn_tensor *qn_bind_find(const qn_binder *b, const char *name, const char *suffix);
/* Checks and takes a tensor; missing is an error where need is yes. `leaf`: any member of b->cfg, for
 * messages. */
int qn_bind_named(qn_binder *b, const qn_tensor **out, const char *name, const char *suffix, qn_shape shape,
                  qn_need need, const void *leaf);
/* The same where the leaf is the name. */
int qn_bind_tensor(qn_binder *b, const qn_tensor **out, const char *const *leaf, const char *suffix,
                   qn_shape shape, qn_need need);
/* weight [n_in, n_out], bias [n_out] as needed, scale [1] as weights.scale says. */
int qn_bind_linear(qn_binder *b, qn_linear *out, const char *const *leaf, uint64_t n_in, uint64_t n_out,
                   qn_need bias);
/* A norm of the stream of n channels, as norm.kind, norm.weight and norm.bias say. */
int qn_bind_norm(qn_binder *b, qn_norm *out, const char *const *leaf, uint64_t n);
/* An RMS norm with a weight [n] and no bias, whatever norms of the stream are. */
int qn_bind_rms(qn_binder *b, qn_norm *out, const char *const *leaf, uint64_t n);

/* model_attn.c, model_layer.c, model_rope.c */
int qn_bind_attn(qn_binder *b, qn_layer *l);
int qn_bind_layer(qn_binder *b, qn_layer *l);
/* Frequencies of b->cfg's rope into out (style, n_rot and table). */
int qn_bind_rope(qn_binder *b, qn_rope *out);
/* The table itself: n_rot / 2 frequencies (doubles) and the factor of cos and sin, without divisors of the
 * file. Pure arithmetic: for tests. */
void qn_rope_frequencies(const qn_layer_cfg *cfg, double *freq, double *mscale);

#endif
