/* model.h: a GGUF file read through its model config: every choice resolved, every weight bound and checked.
 *
 * The config (YAML, docs/model-configs.md) says what an architecture is; the file gives numbers and tensors.
 * qn_model_load resolves one against the other, layer by layer, so that nothing after it asks what the
 * architecture is called. Values here are what the file and config say; nothing is a default of quern's own.
 */
#ifndef QN_MODEL_MODEL_H
#define QN_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/error.h"
#include "model/dtype.h"
#include "model/gguf.h"

typedef enum qn_norm_kind { QN_NORM_NONE, QN_NORM_RMS, QN_NORM_LAYER } qn_norm_kind;
typedef enum qn_attn_kind { QN_ATTN_STANDARD, QN_ATTN_LATENT, QN_ATTN_MATRIX, QN_ATTN_NONE } qn_attn_kind;
typedef enum qn_qk_width { QN_QK_HEAD, QN_QK_FULL } qn_qk_width;
typedef enum qn_qk_order { QN_QK_BEFORE_ROPE, QN_QK_AFTER_ROPE } qn_qk_order;
/* Weight of a QK norm: one per channel of a head shared by all heads | one per head and channel | one per
 * head. */
typedef enum qn_qk_weight { QN_QKW_CHANNEL, QN_QKW_HEAD_CHANNEL, QN_QKW_PER_HEAD } qn_qk_weight;
typedef enum qn_rope_style { QN_ROPE_NONE, QN_ROPE_NEOX, QN_ROPE_INTERLEAVED } qn_rope_style;
typedef enum qn_ffn_kind { QN_FFN_GATED, QN_FFN_PLAIN, QN_FFN_NONE } qn_ffn_kind;
typedef enum qn_activation {
    QN_ACT_NONE,
    QN_ACT_SILU,
    QN_ACT_GELU,
    QN_ACT_RELU,
    QN_ACT_RELU2,
    QN_ACT_XIELU
} qn_activation;

/* Normalisation of the residual stream or a branch. kind NONE: absent. w, b: [n] f32, NULL where it has none.
 */
typedef struct qn_norm {
    qn_norm_kind kind;
    float eps;
    const qn_tensor *w, *b;
} qn_norm;

/* y = scale * (W x) + b. w: [n_in, n_out] in GGUF order (n_in contiguous); NULL: absent.
 * b: [n_out] f32 or NULL. scale: [1] f32 or NULL. */
typedef struct qn_linear {
    const qn_tensor *w, *b, *scale;
} qn_linear;

/* Rotary embedding of one layer: pair i of the first n_rot dimensions turns by position * freq[i]; cos and
 * sin are multiplied by mscale. Everything that scales frequencies (base, linear, YaRN, factors, NTK) is
 * inside freq, computed once at load. */
typedef struct qn_rope {
    qn_rope_style style;
    int n_rot;         /* even, <= head_dim; a QN_ROPE_NONE layer has 0 */
    const float *freq; /* [n_rot / 2], owned by the model; equal tables are shared */
    float mscale;
} qn_rope;

typedef struct qn_attn {
    qn_attn_kind kind;
    int n_head, n_head_kv;
    int k_dim, v_dim;  /* of one head */
    qn_norm norm;      /* of the branch's input */
    qn_norm sub_norm;  /* of the heads' concatenated result, before `out`: [n_head * v_dim] */
    qn_norm post_norm; /* of the branch's output, before the residual sum: [n_embd] */
    qn_linear q, k, v; /* w all NULL where qkv.w is set */
    qn_linear qkv;     /* fused: rows in order all q, all k, all v */
    qn_linear out;     /* MATRIX: the whole branch, [n_embd, n_embd] */
    bool v_from_k;     /* v is the raw k projection (before k norm and RoPE) */
    qn_norm_kind qk_norm;
    qn_qk_width qk_width;
    qn_qk_order qk_order;
    qn_qk_weight qk_weight;
    qn_norm q_norm, k_norm; /* kind NONE where that side has none; w NULL where it has no weight */
    qn_norm v_norm;         /* per head, no weight; NONE: absent */
    float clamp;            /* > 0: q, k, v clamped to +-clamp after bias */
    float scale;            /* of q.k */
    float softcap;          /* > 0: s = cap * tanh(s / cap), after scale, before the mask */
    float alibi_max_bias;   /* > 0: ALiBi */
    float temp_scale;       /* != 0: q *= 1 + temp_scale * ln(floor(pos / temp_ctx) + 1), after RoPE */
    int temp_ctx;
    int window;    /* > 0: key j visible to query i iff 0 <= i - j < window */
    int kv_source; /* index in `layers` of the layer whose cache is read; its own index: it owns one */
    qn_rope rope;
    /* LATENT: q = q_b norm(q_a x); kv_a gives [kv_rank | n_rot]; kv_b gives per head [k_nope | v] */
    qn_linear q_a, q_b, kv_a, kv_b;
    qn_norm q_a_norm, kv_a_norm;
    int kv_rank;
} qn_attn;

typedef struct qn_ffn {
    qn_ffn_kind kind;
    qn_activation act;
    int n_ff;
    qn_norm norm;       /* NONE with input_shared false: the raw stream */
    bool input_shared;  /* input is the attention branch's normed input */
    qn_norm sub_norm;   /* [n_ff], before down */
    qn_norm post_norm;  /* [n_embd] */
    qn_linear gate, up; /* gate.w NULL where plain, or where `up` is fused (2 * n_ff rows, gate first) */
    bool fused;
    qn_linear down;
    const qn_tensor *act_div; /* [n_ff] f32 the activation is divided by; NULL: none */
    float sparsity_std;       /* > 0: gate = relu(gate - (mean + sparsity_std * std)) before act */
    float xielu_alpha_n, xielu_alpha_p, xielu_beta, xielu_eps; /* as stored; ACT_XIELU only */
} qn_ffn;

/* Per-layer embedding input of a layer (width P = model->ple_width); gate.w NULL: none. */
typedef struct qn_ple {
    qn_linear gate, proj; /* [n_embd, P], [P, n_embd] */
    qn_norm post_norm;    /* [n_embd] */
} qn_ple;

/* AltUp and LAuReL weights of a layer; used where model->n_stream > 1. */
typedef struct qn_altup {
    qn_linear router, predict, correct; /* [n_embd, S], [S, S*S], [S, S] */
    qn_norm router_norm;
    const qn_tensor *correct_scale; /* [n_embd] */
    qn_linear laurel_l, laurel_r;
    qn_norm laurel_norm;
} qn_altup;

typedef struct qn_layer {
    int file_index;   /* N of "blk.N." */
    int pass;         /* of a looped stack, from 0 */
    const char *kind; /* name of the pattern's kind, "" where there is no pattern */
    bool skip;        /* the layer leaves the stream untouched */
    qn_attn attn;
    qn_ffn ffn;
    bool parallel;              /* x + attn(x) + ffn(x); else one after the other */
    float residual_scale;       /* of each branch's output */
    const qn_tensor *out_scale; /* [1] f32 multiplied into the layer's output; NULL: none */
    const qn_tensor
        *embed_skip; /* [1] f32: x += embed_skip * (normed embedding) after the layer; NULL: none */
    qn_ple ple;
    qn_altup altup;
    bool loop_norm_after; /* the output norm is applied after this layer (between passes of a looped stack) */
} qn_layer;

typedef struct qn_model {
    qn_gguf *gguf;
    const char *arch;        /* general.architecture: for messages and key prefixes only */
    const char *config_name; /* file the config came from */
    int n_layer;             /* entries of `layers`: executed layers, passes unrolled */
    qn_layer *layers;
    int n_embd, n_vocab;
    int n_ctx_train; /* context_length; 0 if absent */
    int n_ctx;       /* of the run: what `when: n_ctx` and long RoPE factors were resolved against */

    const qn_tensor *tok_embd; /* [n_embd, n_vocab] */
    float embd_scale;
    qn_norm embd_norm;
    const qn_tensor *pos_embd; /* [n_embd, n_positions]; NULL: none */

    qn_norm out_norm;
    float out_norm_scale; /* of the final norm's output */
    qn_linear out;        /* w is tok_embd where tied */
    bool tied;
    float logit_scale; /* logits are multiplied by it, then soft-capped */
    float logit_softcap;

    int ple_width; /* P; 0: no per-layer embeddings */
    const qn_tensor *ple_tok_embd;
    qn_linear ple_proj;
    qn_norm ple_norm;

    int n_stream;                                 /* AltUp streams; 1: plain */
    const qn_tensor *stream_proj, *stream_unembd; /* [n_stream - 1] matrices, [n_embd, n_embd] each */

    uint64_t weight_bytes; /* of all bound tensors, each once */
    const char **unused;   /* names of tensors no slot took, for `info` and `check`; NULL-terminated */
    qn_arena arena;
} qn_model;

typedef struct qn_model_opts {
    const char *config_dir;     /* replaces the embedded model_configs; NULL: embedded */
    int n_ctx;                  /* 0: min(n_ctx_train, 4096) (4096 where the file does not say) */
    bool allow_no_vocab_tensor; /* a file without any tensor loads, with n_layer 0 (info, tokenize) */
} qn_model_opts;

/* Opens path, finds the config whose `architecture` names the file's, resolves, binds, checks every shape.
 * Errors name file and key or tensor; unsupported tensor types, MoE and unknown architectures by name. */
int qn_model_load(qn_model **out, const char *path, const qn_model_opts *opts, qn_err *err);
/* Takes ownership of g on success only. */
int qn_model_from_gguf(qn_model **out, qn_gguf *g, const qn_model_opts *opts, qn_err *err);
void qn_model_free(qn_model *m);

/* Bytes of all tensors the plan reads (tied and shared tensors once). */
uint64_t qn_model_weight_bytes(const qn_model *m);

#endif
