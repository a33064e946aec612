/* emu_case_chains.c: products of prompts and the step that reads them, which come as f16 where the library
 * makes them: a gated pair and what its activation goes to, a plain one, q k v and their RoPE. (A product and
 * a norm: make_chain.) */
#include <math.h>
#include <stdio.h>

#include "codegen/nvrtc.h"
#include "codegen/op.h"
#include "emu_cases.h"

/* The product, of weights of type `second`, that reads the n_in values of a step of weights of type `first`.
 */
static void add_reader(emu_case *c, qn_type first, qn_type second, int n_in, int n_out)
{
    qn_step *s = &c->steps[1];
    s->op = &qn_ops[QN_OP_LINEAR];
    s->out[0] = (qn_view){4, 0, n_out};
    s->w[0] = case_tensor(c, second, n_in, n_out, 0.1f);
    s->spec.linear = (qn_spec_linear){.n_in = n_in,
                                      .n_out = n_out,
                                      .n_seg = 1,
                                      .seg_out = {n_out},
                                      .seg_dtype = {(int)second, -1, -1},
                                      .out_scale = 1};
    c->plans.prefill.n_step = c->plans.decode.n_step = 2;
    c->tol_many = first == QN_BF16 || second == QN_BF16 ? 1e-3 : 1e-5;
}

int emu_make_glu_chain(emu_case *c, const int *f)
{
    static const qn_type firsts[4] = {QN_Q4_K, QN_Q8_0, QN_F32, QN_BF16};
    static const int sizes[3] = {40, 136, 1032};
    const qn_type type = firsts[f[0]], second = f[6] ? QN_BF16 : QN_F16;
    const int n_in = 256, n_ff = sizes[f[1]], n_out = 24, fused = f[2], up_rows = fused ? 2 * n_ff : n_ff;
    c->bufs[0].width = n_in;
    c->bufs[1].width = n_ff;
    c->bufs[4].width = n_out;
    case_fill(c, 0, 2);
    for (int i = 0; i < n_in; i++) { /* a row far larger, and one of zeros */
        c->start[0][n_in + i] *= 1e5f;
        c->start[0][2 * n_in + i] = 0;
    }
    qn_step *s = c->steps;
    s[0].op = &qn_ops[QN_OP_GLU];
    s[0].in[0] = (qn_view){0, 0, n_in};
    s[0].out[0] = s[1].in[0] = (qn_view){1, 0, n_ff};
    s[0].w[3] = case_tensor(c, type, n_in, up_rows, 0.1f);
    s[0].w[4] = f[4] ? case_tensor(c, QN_F32, up_rows, 1, 1) : NULL;
    s[0].w[5] = f[5] ? case_tensor(c, QN_F32, 1, 1, 2) : NULL;
    if (!fused) {
        s[0].w[0] = case_tensor(c, type, n_in, n_ff, 0.1f);
        s[0].w[1] = f[4] ? case_tensor(c, QN_F32, n_ff, 1, 1) : NULL;
        s[0].w[2] = f[5] ? case_tensor(c, QN_F32, 1, 1, 2) : NULL;
    }
    s[0].spec.glu = (qn_spec_glu){.n_in = n_in,
                                  .n_ff = n_ff,
                                  .act = f[3] + 1,
                                  .fused = fused,
                                  .gate_dtype = fused ? -1 : (int)type,
                                  .up_dtype = (int)type,
                                  .has_bias = f[4],
                                  .has_scale = f[5]};
    add_reader(c, type, second, n_ff, n_out);
    snprintf(c->name, sizeof c->name, "glu type %d to %d, n_ff %d fused %d act %d bias %d scale %d",
             (int)type, (int)second, n_ff, fused, f[3] + 1, f[4], f[5]);
    return 0;
}

/* A product with an epilogue, in one segment or two, and the product that reads it. */
int emu_make_act_chain(emu_case *c, const int *f)
{
    static const qn_type firsts[4] = {QN_Q4_K, QN_Q8_0, QN_F32, QN_BF16};
    static const int sizes[3] = {40, 136, 1032},
                     acts[4] = {QN_ACT_NONE, QN_ACT_GELU, QN_ACT_RELU2, QN_ACT_XIELU};
    const qn_type type = firsts[f[0]], second = f[6] ? QN_BF16 : QN_F16;
    const int n_in = 256, n = sizes[f[1]], n_out = 24, more = f[2] ? 16 : 0, width = n + more;
    c->bufs[0].width = n_in;
    c->bufs[1].width = c->bufs[2].width = width;
    c->bufs[4].width = n_out;
    case_fill(c, 0, 2);
    case_fill(c, 2, 1);
    for (int i = 0; i < n_in; i++) { /* a row far larger, and one of zeros */
        c->start[0][n_in + i] *= 1e3f;
        c->start[0][2 * n_in + i] = 0;
    }
    qn_step *s = c->steps;
    s[0].in[0] = (qn_view){0, 0, n_in};
    s[0].in[1] = f[5] ? (qn_view){2, 0, width} : s[0].in[1];
    s[0].out[0] = s[1].in[0] = (qn_view){1, 0, width};
    s[0].spec.linear = (qn_spec_linear){.n_in = n_in,
                                        .n_out = width,
                                        .n_seg = 1 + (more > 0),
                                        .seg_out = {n, more},
                                        .seg_dtype = {(int)type, more ? (int)type : -1, -1},
                                        .seg_bias = {f[4] % 2, f[4] / 2 && more},
                                        .seg_scale = {f[4] / 2, f[4] % 2 && more},
                                        .act = acts[f[3]],
                                        .residual = f[5],
                                        .out_scale = 1,
                                        .xielu = {0.3f, 0.6f, 0.5f, -1e-6f}};
    for (int k = 0; k < s[0].spec.linear.n_seg; k++) {
        const int rows = s[0].spec.linear.seg_out[k];
        s[0].w[3 * k] = case_tensor(c, type, n_in, rows, 0.1f);
        s[0].w[3 * k + 1] = s[0].spec.linear.seg_bias[k] ? case_tensor(c, QN_F32, rows, 1, 1) : NULL;
        s[0].w[3 * k + 2] = s[0].spec.linear.seg_scale[k] ? case_tensor(c, QN_F32, 1, 1, 2) : NULL;
    }
    add_reader(c, type, second, width, n_out);
    c->tol_many *= acts[f[3]] == QN_ACT_RELU2 ? 4 : 1; /* a square has twice the relative error */
    c->tol_many *= acts[f[3]] == QN_ACT_GELU ? 10 : 1; /* and what is left below 0, more */
    snprintf(c->name, sizeof c->name,
             "linear type %d act %d to %d, n %d and %d bias and scale %d residual %d", (int)type, acts[f[3]],
             (int)second, n, more, f[4], f[5]);
    return 0;
}

int emu_make_rope_chain(emu_case *c, const int *f)
{
    static const int heads[3][2] = {{6, 2}, {9, 3}, {8, 1}}, dims[3] = {64, 128, 256};
    static const qn_type types[3] = {QN_Q8_0, QN_Q4_0, QN_F32};
    const int n_head = heads[f[0]][0], n_kv = heads[f[0]][1], dim = dims[f[1]], n_in = 64;
    const int nq = n_head * dim, nk = n_kv * dim, style = f[2], norm = f[3], weight = f[5] - 1;
    const int n_rot = style == QN_ROPE_NONE ? 0 : f[6] ? dim / 2 : dim;
    const qn_type type = types[f[7]];
    qn_step *s = c->steps;
    c->pos = f[10] ? 37 : 0;
    c->exec.n_ctx = 256;
    c->kv = (qn_kv_cache){0, n_kv, dim, dim, 0};
    c->plans.n_kv = 1;
    c->bufs[0].width = n_in;
    c->bufs[1].width = 8 + nq + 2 * nk;
    case_fill(c, 0, 2);
    s[0].op = &qn_ops[QN_OP_LINEAR];
    s[0].in[0] = (qn_view){0, 0, n_in};
    s[0].out[0] = (qn_view){1, 8, nq + 2 * nk};
    for (int i = 0; i < 3; i++) {
        s[0].w[3 * i] = case_tensor(c, type, n_in, i ? nk : nq, 0.1f);
    }
    s[0].spec.linear = (qn_spec_linear){.n_in = n_in,
                                        .n_out = nq + 2 * nk,
                                        .n_seg = 3,
                                        .seg_out = {nq, nk, nk},
                                        .seg_dtype = {(int)type, (int)type, (int)type},
                                        .out_scale = 1};
    s[1].op = &qn_ops[QN_OP_ROPE_KV];
    s[1].kv = 0;
    s[1].in[0] = s[1].out[0] = (qn_view){1, 8, nq};
    s[1].in[1] = (qn_view){1, 8 + nq, nk};
    s[1].in[2] = (qn_view){1, 8 + nq + nk, nk};
    if (norm && f[5]) {
        const int per_head = weight == QN_QKW_PER_HEAD, channel = weight == QN_QKW_CHANNEL;
        s[1].w[0] = case_tensor(c, QN_F32, per_head ? n_head : channel ? dim : nq, 1, 2);
        s[1].w[1] = case_tensor(c, QN_F32, per_head ? n_kv : channel ? dim : nk, 1, 2);
    }
    s[1].spec.rope_kv = (qn_spec_rope_kv){.n_head = n_head,
                                          .n_head_kv = n_kv,
                                          .k_dim = dim,
                                          .v_dim = dim,
                                          .has_kv = 1,
                                          .qk_norm = norm,
                                          .q_has_norm = norm != 0,
                                          .k_has_norm = norm != 0,
                                          .q_has_w = norm && f[5],
                                          .k_has_w = norm && f[5],
                                          .qk_width = QN_QK_HEAD,
                                          .qk_order = f[4],
                                          .qk_weight = f[5] ? weight : 0,
                                          .v_norm = f[8],
                                          .rope_style = style,
                                          .n_rot = n_rot,
                                          .temp_ctx = 16,
                                          .eps = 0.1f,
                                          .mscale = style ? 1.25f : 1.0f,
                                          .temp_scale = f[9] ? 0.3f : 0};
    if (style) {
        float *freq = case_alloc(c, sizeof(float) * (size_t)n_rot);
        for (int i = 0; i < n_rot / 2; i++) {
            freq[i] = powf(10000.0f, -2.0f * (float)i / (float)n_rot);
        }
        s[1].table = freq;
    }
    c->plans.prefill.n_step = c->plans.decode.n_step = 2;
    c->tol_many = 1e-5;
    snprintf(c->name, sizeof c->name,
             "type %d, rope_kv heads %d/%d dim %d style %d n_rot %d norm %d order %d weight %d v %d temp %d "
             "pos %d",
             (int)type, n_head, n_kv, dim, style, n_rot, norm, f[4], f[5], f[8], f[9], c->pos);
    return 0;
}

int emu_make_tile_attention(emu_case *c, const int *f)
{
    static const int dim[3] = {0, 4, 3};
    const int g[14] = {(f[0] + f[1] + f[3]) % 4,
                       dim[f[0]],
                       f[1],
                       f[2],
                       f[3],
                       2 * (f[4] % 2),
                       0,
                       f[2],
                       f[4],
                       0,
                       f[3],
                       0,
                       f[4]};
    c->variant = QN_VARIANT_SM90A;
    if (emu_make_rope_attention(c, g)) {
        return 1;
    }
    c->steps[1].spec.attention.scale = 12.8f / (float)c->steps[1].spec.attention.k_dim;
    return 0;
}
