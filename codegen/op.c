#include "codegen/op.h"

#include <string.h>

const char *const qn_names_arith[] = {"f32", "f16", "8-bit", "fp8", NULL};
const char *const qn_names_norm[] = {"none", "rms", "layer", NULL};
const char *const qn_names_act[] = {"none", "silu", "gelu", "relu", "relu2", "xielu", NULL};
const char *const qn_names_rope[] = {"none", "neox", "interleaved", NULL};
const char *const qn_names_qk_width[] = {"head", "full", NULL};
const char *const qn_names_qk_order[] = {"before_rope", "after_rope", NULL};
const char *const qn_names_qk_weight[] = {"channel", "head_channel", "per_head", NULL};

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))
#define F(op, member, kind_, n, names_)                                                                      \
    {                                                                                                        \
#member, kind_, (uint16_t)offsetof(qn_spec, op.member), n, names_                                    \
    }
#define F_INT(op, m)     F(op, m, QN_FIELD_INT, 1, NULL)
#define F_FLOAT(op, m)   F(op, m, QN_FIELD_FLOAT, 1, NULL)
#define F_BOOL(op, m)    F(op, m, QN_FIELD_BOOL, 1, NULL)
#define F_DTYPE(op, m)   F(op, m, QN_FIELD_DTYPE, 1, NULL)
#define F_ENUM(op, m, e) F(op, m, QN_FIELD_ENUM, 1, e)

static const qn_field embed_fields[] = {
    F_INT(embed, n_embd),      F_INT(embed, n_vocab), F_DTYPE(embed, dtype),
    F_DTYPE(embed, pos_dtype), F_INT(embed, n_pos),   F_FLOAT(embed, scale),
};
static const qn_field select_fields[] = {F_INT(select, n)};
static const qn_field norm_fields[] = {
    F_INT(norm, n),      F_INT(norm, groups),      F_ENUM(norm, kind, qn_names_norm),
    F_BOOL(norm, has_w), F_BOOL(norm, has_b),      F_BOOL(norm, residual),
    F_FLOAT(norm, eps),  F_FLOAT(norm, out_scale),
};
static const qn_field linear_fields[] = {
    F_INT(linear, n_in),
    F_INT(linear, n_out),
    F_INT(linear, n_seg),
    F(linear, seg_out, QN_FIELD_INT, 3, NULL),
    F(linear, seg_dtype, QN_FIELD_DTYPE, 3, NULL),
    F(linear, seg_bias, QN_FIELD_BOOL, 3, NULL),
    F(linear, seg_scale, QN_FIELD_BOOL, 3, NULL),
    F_ENUM(linear, act, qn_names_act),
    F_BOOL(linear, has_div),
    F_BOOL(linear, residual),
    F_FLOAT(linear, clamp),
    F_FLOAT(linear, out_scale),
    F_FLOAT(linear, softcap),
    F(linear, xielu, QN_FIELD_FLOAT, 4, NULL),
};
static const qn_field glu_fields[] = {
    F_INT(glu, n_in),      F_INT(glu, n_ff),         F_ENUM(glu, act, qn_names_act),
    F_BOOL(glu, fused),    F_DTYPE(glu, gate_dtype), F_DTYPE(glu, up_dtype),
    F_BOOL(glu, has_bias), F_BOOL(glu, has_scale),   F_FLOAT(glu, sparsity_std),
};
static const qn_field rope_kv_fields[] = {
    F_INT(rope_kv, n_head),
    F_INT(rope_kv, n_head_kv),
    F_INT(rope_kv, k_dim),
    F_INT(rope_kv, v_dim),
    F_BOOL(rope_kv, has_kv),
    F_BOOL(rope_kv, v_from_k),
    F_ENUM(rope_kv, qk_norm, qn_names_norm),
    F_BOOL(rope_kv, q_has_norm),
    F_BOOL(rope_kv, k_has_norm),
    F_BOOL(rope_kv, q_has_w),
    F_BOOL(rope_kv, k_has_w),
    F_ENUM(rope_kv, qk_width, qn_names_qk_width),
    F_ENUM(rope_kv, qk_order, qn_names_qk_order),
    F_ENUM(rope_kv, qk_weight, qn_names_qk_weight),
    F_ENUM(rope_kv, v_norm, qn_names_norm),
    F_ENUM(rope_kv, rope_style, qn_names_rope),
    F_INT(rope_kv, n_rot),
    F_INT(rope_kv, rot_at),
    F_INT(rope_kv, temp_ctx),
    F_FLOAT(rope_kv, eps),
    F_FLOAT(rope_kv, mscale),
    F_FLOAT(rope_kv, temp_scale),
};
static const qn_field attention_fields[] = {
    F_INT(attention, n_head),    F_INT(attention, n_head_kv),        F_INT(attention, k_dim),
    F_INT(attention, v_dim),     F_INT(attention, window),           F_FLOAT(attention, scale),
    F_FLOAT(attention, softcap), F_FLOAT(attention, alibi_max_bias),
};
static const qn_field mix_fields[] = {F_INT(mix, n), F_INT(mix, n_in1), F_FLOAT(mix, a), F_FLOAT(mix, b)};
static const qn_field mul_fields[] = {F_INT(mul, n), F_BOOL(mul, has_w)};
static const qn_field rescale_fields[] = {F_INT(rescale, n), F_INT(rescale, groups),
                                          F_BOOL(rescale, average)};
static const qn_field altup_fields[] = {
    F_INT(altup, n),
    F_INT(altup, n_stream),
    F_BOOL(altup, correct),
    F_DTYPE(altup, router_dtype),
    F_DTYPE(altup, coef_dtype),
    F_FLOAT(altup, eps),
};
static const qn_field latent_kv_fields[] = {F_INT(latent_kv, n_head), F_INT(latent_kv, nope),
                                            F_INT(latent_kv, n_rot), F_INT(latent_kv, v_dim)};

static const char *const no_roles[] = {NULL};
static const char *const embed_roles[] = {"tokens", "positions", NULL};
static const char *const norm_roles[] = {"weight", "bias", NULL};
static const char *const linear_roles[] = {"w0", "b0", "s0", "w1", "b1", "s1", "w2", "b2", "s2", "div", NULL};
static const char *const glu_roles[] = {"gate", "gate_b", "gate_s", "up", "up_b", "up_s", NULL};
static const char *const rope_kv_roles[] = {"q_norm", "k_norm", NULL};
static const char *const mix_roles[] = {"s0", "s1", NULL};
static const char *const mul_roles[] = {"weight", NULL};
static const char *const altup_roles[] = {"router_norm", "router", "coef", NULL};

/* Tolerances: f32 rounds each operand and sum to 2^-24, f16 to 2^-11 (NMSE 8e-8 an operand), 8 bits of a
 * block of 32 with one scale to about 3e-5; where a product's terms cancel, real models show thirty times
 * that. A copy is equal. e4m3 rounds to about 7e-4 an operand: twenty times what 8 bits of a block do. */
#define ROW(id_, name_, doc_, f32_, f16_, int8_)                                                             \
    [id_] = {id_,                                                                                            \
             #name_,                                                                                         \
             #name_ ".cu",                                                                                   \
             doc_,                                                                                           \
             name_##_fields,                                                                                 \
             COUNT(name_##_fields),                                                                          \
             name_##_roles,                                                                                  \
             {f32_, f16_, int8_, 20 * (int8_)}}
#define select_roles    no_roles
#define attention_roles no_roles
#define rescale_roles   no_roles
#define latent_kv_roles no_roles

const qn_op qn_ops[QN_OP_COUNT] = {
    ROW(QN_OP_EMBED, embed, "gathers and scales token embeddings, adds learned positions", 1e-13, 2e-7, 2e-7),
    ROW(QN_OP_SELECT, select, "copies the rows whose logits are asked for", 0, 0, 0),
    ROW(QN_OP_NORM, norm, "RMS or layer norm, optionally added to the residual stream", 1e-11, 1e-6, 1e-6),
    ROW(QN_OP_LINEAR, linear, "up to three matrix products of one input with bias, activation, residual sum",
        1e-10, 1e-5, 2e-3),
    ROW(QN_OP_GLU, glu, "gate and up products and the gated activation", 1e-10, 2e-5, 3e-3),
    ROW(QN_OP_ROPE_KV, rope_kv, "QK norm, RoPE, and the store into the KV cache", 1e-11, 2e-7, 2e-7),
    ROW(QN_OP_ATTENTION, attention, "causal softmax attention over the KV cache", 1e-10, 2e-6, 2e-6),
    ROW(QN_OP_MIX, mix, "weighted sum of two rows", 1e-13, 2e-7, 2e-7),
    ROW(QN_OP_MUL, mul, "product of two rows, element by element", 1e-13, 2e-7, 2e-7),
    ROW(QN_OP_RESCALE, rescale, "gives rows another row's length, or averages them", 1e-11, 1e-6, 1e-6),
    ROW(QN_OP_ALTUP, altup, "predicts or corrects parallel residual streams", 1e-10, 1e-5, 1e-5),
    ROW(QN_OP_LATENT_KV, latent_kv, "puts keys and values of latent attention together", 0, 0, 0),
};

const qn_op *qn_op_find(const char *name)
{
    for (int i = 0; i < QN_OP_COUNT; i++) {
        if (strcmp(qn_ops[i].name, name) == 0) {
            return &qn_ops[i];
        }
    }
    return NULL;
}
