/* op.h: the op table. One row an op: its name, its kernel template, its specialisation fields.
 *
 * A step carries the values of the fields in the member of qn_spec that belongs to its op; the fields' rows
 * (name, kind, offset) let printing, code generation, cache keys and tests treat them as data. The reference
 * function of an op stands in runtime/cpu/ops.c under the same id. */
#ifndef QN_CODEGEN_OP_H
#define QN_CODEGEN_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum qn_op_id {
    QN_OP_EMBED,
    QN_OP_SELECT,
    QN_OP_NORM,
    QN_OP_LINEAR,
    QN_OP_GLU,
    QN_OP_ROPE_KV,
    QN_OP_ATTENTION,
    QN_OP_MIX,
    QN_OP_MUL,
    QN_OP_RESCALE,
    QN_OP_ALTUP,
    QN_OP_LATENT_KV,
    QN_OP_COUNT,
} qn_op_id;

typedef enum qn_field_kind {
    QN_FIELD_INT,
    QN_FIELD_FLOAT,
    QN_FIELD_BOOL,
    QN_FIELD_ENUM,
    QN_FIELD_DTYPE
} qn_field_kind;

typedef struct qn_field {
    const char *name;
    qn_field_kind kind;
    uint16_t offset;          /* in qn_spec; int32_t or float there */
    uint16_t count;           /* array length; 1: scalar */
    const char *const *names; /* ENUM: names of values 0..; NULL otherwise */
} qn_field;

/* out[r] = scale * row(token[r]) (+ pos row(position[r])).
 * w: 0 token embedding [n_embd, n_vocab], 1 position embedding [n_embd, n_pos] or NULL. out: 0. */
typedef struct qn_spec_embed {
    int32_t n_embd, n_vocab, dtype;
    int32_t pos_dtype, n_pos; /* n_pos 0: no learned positions */
    float scale;
} qn_spec_embed;

/* Copies the rows whose logits are asked for: out[i] = in[row of output i]. Rows: OUTPUTS. */
typedef struct qn_spec_select {
    int32_t n;
} qn_spec_select;

/* out = base + out_scale * (norm(x) * w + b), each group of n values on its own; base only where `residual`.
 * RMS: x / sqrt(mean(x^2) + eps). LAYER: (x - mean) / sqrt(var + eps). in: 0 x, 1 base. w: 0 w, 1 b. out: 0
 * (may be base's view). */
typedef struct qn_spec_norm {
    int32_t n, groups, kind;
    int32_t has_w, has_b, residual;
    float eps, out_scale;
} qn_spec_norm;

/* Up to three products of one input, side by side: y_s = act(clamp(scale_s * (W_s x) + b_s)) / div, then
 * * out_scale, soft-capped; then out = base + y where `residual`. in: 0 x, 1 base. out: 0 (may be base's
 * view). w: of segment s: 3s W, 3s+1 b, 3s+2 scale; 9: div [n_out]. */
typedef struct qn_spec_linear {
    int32_t n_in, n_out, n_seg;
    int32_t seg_out[3], seg_dtype[3], seg_bias[3], seg_scale[3];
    int32_t act, has_div, residual;
    float clamp, out_scale, softcap; /* 0: no clamp, no cap */
    float xielu[4];                  /* alpha_n, alpha_p, beta, eps as stored */
} qn_spec_linear;

/* out = act(sparse(scale_g * (Wg x) + bg)) * (scale_u * (Wu x) + bu); fused: Wg is the first n_ff rows of Wu.
 * w: 0 Wg, 1 bg, 2 sg, 3 Wu, 4 bu, 5 su (fused: 0-2 NULL). in: 0 x. out: 0. */
typedef struct qn_spec_glu {
    int32_t n_in, n_ff, act, fused;
    int32_t gate_dtype, up_dtype, has_bias, has_scale;
    float sparsity_std; /* > 0: g = relu(g - (mean + sparsity_std * std)), std with n - 1 */
} qn_spec_glu;

/* Finishes q, k, v of a row: QK norm, RoPE, temperature; writes q back, k and v into the KV cache at the
 * row's position. in: 0 q [n_head * k_dim] (in place), 1 k, 2 v (absent where has_kv is 0: a layer that reads
 * another's cache). v_from_k: v is the raw k. w: 0 q norm, 1 k norm weights. table: freq. kv: cache written.
 */
typedef struct qn_spec_rope_kv {
    int32_t n_head, n_head_kv, k_dim, v_dim, has_kv, v_from_k;
    int32_t qk_norm, q_has_norm, k_has_norm, q_has_w, k_has_w, qk_width, qk_order, qk_weight;
    int32_t v_norm;
    int32_t rope_style, n_rot, rot_at, temp_ctx; /* dimensions rot_at .. rot_at + n_rot of a head turn */
    float eps, mscale, temp_scale;
} qn_spec_rope_kv;

/* out[h] = softmax(mask(cap(scale * q[h] . k[g]) + alibi)) v[g], g = h / (n_head / n_head_kv), causal, keys
 * 0 <= i - j < window (window 0: all). in: 0 q. out: 0 [n_head * v_dim]. kv: cache read. */
typedef struct qn_spec_attention {
    int32_t n_head, n_head_kv, k_dim, v_dim, window;
    float scale, softcap, alibi_max_bias;
} qn_spec_attention;

/* out = in0 * s0 + in1 * s1, s from 1-element tensors w0, w1 where present, else from a, b. in: 0, 1
 * (n_in1 values, repeated over the row; 0: absent). */
typedef struct qn_spec_mix {
    int32_t n, n_in1;
    float a, b;
} qn_spec_mix;

/* out = in0 * in1, element by element; with has_w, w [n] stands for in1. in: 0, 1. w: 0. out: 0 (may be in0's
 * view). */
typedef struct qn_spec_mul {
    int32_t n, has_w;
} qn_spec_mul;

/* Each of `groups` groups x of n values is given the length of the reference r: y = x |r| / |x| (0 where x is
 * 0), |x| the root of the sum of squares. out: all y; with `average`: (r + sum of y) / (groups + 1), [n].
 * in: 0 [groups * n], 1 r [n]. out: 0 (may be in0's view where it is as wide). */
typedef struct qn_spec_rescale {
    int32_t n, groups, average;
} qn_spec_rescale;

/* Alternating updates of n_stream residual streams x_s of n values ("AltUp": Baykal et al. 2023, with the
 * router of the MatFormer models). m = tanh(R (rms(y) * norm / n)), S values.
 * Prediction: y = x_0; out_o = x_o + sum_j (P m)[S o + j] x_j.
 * Correction: y = z;   out_o = x_o + (z - x_0) (1 + (C m)[o]).
 * in: 0 x [S * n], 1 z [n] (correction only). out: 0 [S * n], another buffer. w: 0 norm [n], 1 R [n, S], 2 P
 * [S, S * S] or C [S, S]; R, P, C of types f32, f16, bf16. */
typedef struct qn_spec_altup {
    int32_t n, n_stream, correct, router_dtype, coef_dtype;
    float eps;
} qn_spec_altup;

/* Keys and values of latent attention where standard attention has them: k_h = [k without rope of head h |
 * shared rope key], v_h. in: 0 [n_head][nope + v_dim], 1 shared key [n_rot]. out: 0 k [n_head * (nope +
 * n_rot)], 1 v [n_head * v_dim]. */
typedef struct qn_spec_latent_kv {
    int32_t n_head, nope, n_rot, v_dim;
} qn_spec_latent_kv;

typedef union qn_spec {
    qn_spec_embed embed;
    qn_spec_select select;
    qn_spec_norm norm;
    qn_spec_linear linear;
    qn_spec_glu glu;
    qn_spec_rope_kv rope_kv;
    qn_spec_attention attention;
    qn_spec_mix mix;
    qn_spec_mul mul;
    qn_spec_rescale rescale;
    qn_spec_altup altup;
    qn_spec_latent_kv latent_kv;
} qn_spec;

/* What a step's result is computed in. */
typedef enum qn_arith {
    QN_ARITH_F32,  /* f32 operands and sums */
    QN_ARITH_F16,  /* operands rounded to f16 or bf16, f32 sums; or a result stored as f16 */
    QN_ARITH_8BIT, /* activations as 8-bit integers with a scale a block */
    QN_ARITH_FP8,  /* operands rounded to e4m3 (3 bits behind the point), f32 sums */
    QN_ARITH_COUNT,
} qn_arith;

typedef struct qn_op {
    qn_op_id id;
    const char *name;   /* "linear" */
    const char *kernel; /* template in kernel_src/: "linear.cu" */
    const char *doc;    /* one line */
    const qn_field *fields;
    int n_field;
    const char *const *weight_roles;  /* names of w[0..], NULL-terminated */
    double tolerance[QN_ARITH_COUNT]; /* largest NMSE against the exact reference function on equal inputs */
} qn_op;

extern const qn_op qn_ops[QN_OP_COUNT];

/* Row by name; NULL: none. */
const qn_op *qn_op_find(const char *name);

/* Names of the enumerations the specialisation fields use (value 0 first, NULL-terminated). */
extern const char *const qn_names_arith[];
extern const char *const qn_names_norm[];
extern const char *const qn_names_act[];
extern const char *const qn_names_rope[];
extern const char *const qn_names_qk_width[];
extern const char *const qn_names_qk_order[];
extern const char *const qn_names_qk_weight[];

#endif
