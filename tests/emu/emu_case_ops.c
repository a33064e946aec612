/* emu_case_ops.c: the factors of each op and their cases. */
#include "emu_cases.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "codegen/kv_type.h"
#include "codegen/nvrtc.h"

enum { N_TYPES = 15 };
static const qn_type types[N_TYPES] = {QN_F32,  QN_F16,  QN_BF16, QN_Q4_0,   QN_Q4_1,
                                       QN_Q5_0, QN_Q5_1, QN_Q8_0, QN_Q2_K,   QN_Q3_K,
                                       QN_Q4_K, QN_Q5_K, QN_Q6_K, QN_IQ4_NL, QN_IQ4_XS};

/* Row length for a type: multiples of its block, none of them of a warp's 256 values where the block allows
 * it. */
static int row_length(qn_type type, int level)
{
    int block = qn_dtype_get(type)->block_values;
    return block == 256  ? 256 * (1 + 2 * level)
           : block == 32 ? 32 + 256 * level + 64 * level
                         : 40 + 281 * level;
}

static const char *type_name(qn_type t)
{
    return qn_dtype_get(t)->name;
}

/* Prefill where operands of both kinds are rounded apart: f16 to 11 bits, bf16 to 8; of rows with few,
 * cancelling values. */
static double product_tolerance(bool bf16)
{
    return bf16 ? 1e-3 : 1e-4;
}

static int make_embed(emu_case *c, const int *f)
{
    qn_type type = types[f[0]], pos_type = f[2] == 2 ? QN_F16 : QN_F32;
    int n = row_length(type, f[1]);
    c->pos = f[2] ? 5 : 0;
    c->steps[0].w[0] = case_tensor(c, type, n, CASE_VOCAB, 1);
    c->steps[0].w[1] = f[2] ? case_tensor(c, pos_type, n, 64, 1) : NULL;
    c->bufs[1].width = n + 8;
    c->steps[0].out[0] = (qn_view){1, 8, n};
    c->steps[0].spec.embed = (qn_spec_embed){
        n, CASE_VOCAB, (int)type, f[2] ? (int)pos_type : -1, f[2] ? 64 : 0, f[3] ? 8.5f : 1.0f};
    snprintf(c->name, sizeof c->name, "embed %s n %d positions %s", type_name(type), n,
             f[2] ? type_name(pos_type) : "none");
    return 0;
}

static int make_select(emu_case *c, const int *f)
{
    static const int sizes[3] = {1, 33, 300};
    int n = sizes[f[0]];
    c->bufs[0].width = n + 3;
    c->bufs[1].width = n;
    c->bufs[1].rows = c->steps[0].rows = QN_ROWS_OUTPUTS;
    c->outputs = f[1] ? QN_OUT_LAST : QN_OUT_ALL;
    case_fill(c, 0, 1);
    c->steps[0].in[0] = (qn_view){0, 3, n};
    c->steps[0].out[0] = (qn_view){1, 0, n};
    c->steps[0].spec.select.n = n;
    snprintf(c->name, sizeof c->name, "select n %d %s", n, f[1] ? "last" : "all");
    return 0;
}

/* Base of a residual step: the output's own view, or another buffer. */
static void residual(emu_case *c, int how, int width, int col, int n)
{
    c->bufs[2].width = width;
    if (how == 1) {
        case_fill(c, 1, 1);
        c->steps[0].in[1] = (qn_view){1, col, n};
    } else if (how == 2) {
        case_fill(c, 2, 1);
        c->steps[0].in[1] = (qn_view){2, col, n};
    }
}

static int make_norm(emu_case *c, const int *f)
{
    static const int sizes[5] = {5, 64, 100, 1000, 4128};
    int n = sizes[f[0]], groups = f[1] ? 3 : 1, col = f[8] ? 8 : 5, width = n * groups + col;
    c->bufs[0].width = c->bufs[1].width = width;
    c->steps[0].rows = f[7] ? QN_ROWS_OUTPUTS : QN_ROWS_TOKENS;
    c->outputs = f[7] && f[1] ? QN_OUT_ALL : QN_OUT_LAST;
    case_fill(c, 0, 3);
    for (int i = 0; i < width * CASE_UBATCH; i++) {
        c->start[0][i] += 1; /* a mean that is not zero */
    }
    residual(c, f[5], width, col, n * groups);
    c->steps[0].in[0] = (qn_view){0, col, n * groups};
    c->steps[0].out[0] = (qn_view){1, col, n * groups};
    c->steps[0].w[0] = f[3] ? case_tensor(c, QN_F32, n, 1, 2) : NULL;
    c->steps[0].w[1] = f[4] ? case_tensor(c, QN_F32, n, 1, 2) : NULL;
    c->steps[0].spec.norm = (qn_spec_norm){.n = n,
                                           .groups = groups,
                                           .kind = f[2] ? QN_NORM_LAYER : QN_NORM_RMS,
                                           .has_w = f[3],
                                           .has_b = f[4],
                                           .residual = f[5] != 0,
                                           .eps = 0.1f,
                                           .out_scale = f[6] ? 0.7f : 1.0f};
    snprintf(c->name, sizeof c->name, "norm n %d groups %d kind %d w %d b %d residual %d rows %d at %d", n,
             groups, f[2], f[3], f[4], f[5], f[7], col);
    return 0;
}

/* Rows of a product's input: one far larger, one of zeros, and some with a single large value. */
static void extreme_rows(emu_case *c)
{
    int n = c->bufs[0].width;
    for (int i = 0; i < n; i++) {
        c->start[0][n + i] *= 1e5f;
        c->start[0][2 * n + i] = 0;
    }
    for (int k = 0; k < 4; k++) { /* in each quarter */
        c->start[0][(3 + k) * n + (2 * k + 1) * n / 8] = 1e6f;
    }
}

static void linear_rows(emu_case *c, int n_in, int n_out, int outputs, int residual_how)
{
    c->bufs[0].width = n_in + 16;
    c->bufs[1].width = n_out + 3;
    c->steps[0].rows = outputs ? QN_ROWS_OUTPUTS : QN_ROWS_TOKENS;
    c->outputs = outputs && n_out % 2 == 0 ? QN_OUT_ALL : QN_OUT_LAST; /* few rows of the head, or many */
    case_fill(c, 0, 2);
    extreme_rows(c);
    residual(c, residual_how, n_out + 3, 3, n_out);
    c->steps[0].in[0] = (qn_view){0, 8, n_in};
    c->steps[0].out[0] = (qn_view){1, 3, n_out};
}

/* All types, in one to three segments of mixed types that a row length suits. */
static int make_linear(emu_case *c, const int *f)
{
    static const int outs[3][3] = {{5, 3, 1}, {33, 8, 9}, {130, 66, 1}};
    qn_type type = types[f[0]];
    int n_in = row_length(type, f[2]), n_seg = f[1] + 1, n_out = 0;
    qn_spec_linear *s = &c->steps[0].spec.linear;
    *s = (qn_spec_linear){
        .n_in = n_in, .n_seg = n_seg, .seg_dtype = {-1, -1, -1}, .out_scale = 1, .residual = f[4] != 0};
    bool bf16 = false;
    for (int k = 0; k < n_seg; k++) {
        qn_type t = k == 0 ? type : types[case_random(c, N_TYPES)];
        while (n_in % qn_dtype_get(t)->block_values != 0) {
            t = types[case_random(c, N_TYPES)];
        }
        s->seg_out[k] = outs[f[3]][k];
        s->seg_dtype[k] = (int)t;
        n_out += s->seg_out[k];
        bf16 = bf16 || t == QN_BF16;
        c->steps[0].w[3 * k] = case_tensor(c, t, n_in, s->seg_out[k], 0.1f);
    }
    s->n_out = n_out;
    linear_rows(c, n_in, n_out, f[5], f[4]);
    c->tol_many = product_tolerance(bf16);
    snprintf(c->name, sizeof c->name, "linear %s %s %s n_in %d n_out %d residual %d rows %d", type_name(type),
             n_seg > 1 ? type_name((qn_type)s->seg_dtype[1]) : "-",
             n_seg > 2 ? type_name((qn_type)s->seg_dtype[2]) : "-", n_in, n_out, f[4], f[5]);
    return 0;
}

/* Long rows: lanes that take 2 or 4 groups each, spans that are whole or end early, several pieces. The
 * longest do not fit beside each other in shared memory, and have outputs of a second type. */
static int make_linear_long(emu_case *c, const int *f)
{
    static const qn_type some[10] = {QN_Q4_0, QN_Q5_1, QN_Q8_0,   QN_Q2_K, QN_Q4_K,
                                     QN_Q6_K, QN_BF16, QN_IQ4_XS, QN_Q3_K, QN_Q5_K};
    static const int of_32[6] = {1088, 2176, 3840, 4096, 4448, 8736},
                     of_256[6] = {1280, 2304, 3840, 4096, 4608, 8448};
    qn_type type = some[f[0]], second = type == QN_Q8_0 ? QN_Q4_0 : QN_Q8_0;
    int n_in = qn_dtype_get(type)->block_values == 256 ? of_256[f[1]] : of_32[f[1]], n_out = 20;
    bool two = f[1] == 5 && type != QN_BF16;
    qn_spec_linear *s = &c->steps[0].spec.linear;
    *s = (qn_spec_linear){.n_in = n_in,
                          .n_out = n_out,
                          .n_seg = 1,
                          .seg_out = {n_out},
                          .seg_dtype = {(int)type, -1, -1},
                          .out_scale = 1};
    c->steps[0].w[0] = case_tensor(c, type, n_in, n_out, 0.1f);
    if (two) {
        s->n_seg = 2;
        s->seg_out[1] = 18;
        s->seg_dtype[1] = (int)second;
        s->n_out = n_out += s->seg_out[1];
        c->steps[0].w[3] = case_tensor(c, second, n_in, s->seg_out[1], 0.1f);
    }
    linear_rows(c, n_in, n_out, 0, 0);
    c->tol_many = product_tolerance(type == QN_BF16);
    snprintf(c->name, sizeof c->name, "linear long %s n_in %d", type_name(type), n_in);
    return 0;
}

/* The epilogue's parts. */
static int make_linear_epilogue(emu_case *c, const int *f)
{
    static const int types_of[2] = {QN_F16, QN_Q8_0};
    int type = types_of[f[9]], n_in = 96, n_seg = f[1] + 1;
    qn_spec_linear *s = &c->steps[0].spec.linear;
    *s = (qn_spec_linear){.n_in = n_in,
                          .n_seg = n_seg,
                          .seg_dtype = {-1, -1, -1},
                          .act = f[0],
                          .has_div = f[4],
                          .residual = f[5] != 0,
                          .clamp = f[6] ? 0.8f : 0,
                          .out_scale = f[7] ? 1.7f : 1,
                          .softcap = f[8] ? 2.0f : 0,
                          .xielu = {0.3f, 0.6f, 0.5f, -1e-6f}};
    for (int k = 0; k < n_seg; k++) {
        s->seg_out[k] = 7 + 10 * k;
        s->seg_dtype[k] = type;
        s->seg_bias[k] = f[2] == 1 || (f[2] == 2 && k == 0);
        s->seg_scale[k] = f[3] == 1 || (f[3] == 2 && k == n_seg - 1);
        s->n_out += s->seg_out[k];
        c->steps[0].w[3 * k] = case_tensor(c, (qn_type)type, n_in, s->seg_out[k], 0.2f);
        c->steps[0].w[3 * k + 1] = s->seg_bias[k] ? case_tensor(c, QN_F32, s->seg_out[k], 1, 1) : NULL;
        c->steps[0].w[3 * k + 2] = s->seg_scale[k] ? case_tensor(c, QN_F32, 1, 1, 3) : NULL;
    }
    if (f[4]) {
        qn_tensor *div = case_tensor(c, QN_F32, s->n_out, 1, 1);
        for (int i = 0; i < s->n_out; i++) {
            ((float *)div->data)[i] += 2.5f;
        }
        c->steps[0].w[9] = div;
    }
    linear_rows(c, n_in, s->n_out, 0, f[5]);
    c->tol_many = product_tolerance(false);
    snprintf(c->name, sizeof c->name,
             "linear epilogue act %d seg %d bias %d scale %d div %d residual %d clamp %d scale %d cap %d",
             f[0], n_seg, f[2], f[3], f[4], f[5], f[6], f[7], f[8]);
    return 0;
}

/* A product into the residual stream, the RMS norm of it, and a product or a gated pair of that: with 8-bit
 * activations the norm is begun in the first product. */
static int make_chain(emu_case *c, const int *f)
{
    static const qn_type firsts[3] = {QN_Q4_0, QN_Q8_0, QN_Q5_1};
    static const qn_type seconds[4] = {QN_Q8_0, QN_Q4_K, QN_Q6_K, QN_F16};
    qn_type a = firsts[f[0]], b = seconds[f[1]];
    static const int sizes[3] = {256, 512, 1792}; /* of the stream */
    int n_in = 96, n = sizes[f[2]], n_out = 70;
    c->bufs[0].width = n_in;
    c->bufs[1].width = c->bufs[2].width = n;
    c->bufs[4].width = n_out;
    case_fill(c, 0, 2);
    case_fill(c, 1, 1);
    case_small_row(c, 0);
    case_small_row(c, 1);
    qn_step *s = c->steps;
    s[0].in[0] = (qn_view){0, 0, n_in};
    s[0].in[1] = s[0].out[0] = s[1].in[0] = (qn_view){1, 0, n};
    s[0].w[0] = case_tensor(c, a, n_in, n, 0.1f);
    s[0].spec.linear = (qn_spec_linear){.n_in = n_in,
                                        .n_out = n,
                                        .n_seg = 1,
                                        .seg_out = {n},
                                        .seg_dtype = {(int)a, -1, -1},
                                        .out_scale = 1,
                                        .residual = 1};
    s[1].op = &qn_ops[QN_OP_NORM];
    s[1].out[0] = s[2].in[0] = (qn_view){2, 0, n};
    s[1].w[0] = f[4] ? case_tensor(c, QN_F32, n, 1, 2) : NULL;
    s[1].spec.norm =
        (qn_spec_norm){.n = n, .groups = 1, .kind = QN_NORM_RMS, .has_w = f[4], .eps = 1e-3f, .out_scale = 1};
    s[2].out[0] = (qn_view){4, 0, n_out};
    if (f[3]) {
        s[2].op = &qn_ops[QN_OP_GLU];
        qn_tensor *gate = case_tensor(c, b, n, n_out, 0.1f);
        case_gate(gate);
        s[2].w[0] = gate;
        s[2].w[3] = case_tensor(c, b, n, n_out, 0.1f);
        s[2].spec.glu = (qn_spec_glu){
            .n_in = n, .n_ff = n_out, .act = QN_ACT_SILU, .gate_dtype = (int)b, .up_dtype = (int)b};
    } else {
        s[2].w[0] = case_tensor(c, b, n, n_out, 0.1f);
        s[2].spec.linear = (qn_spec_linear){.n_in = n,
                                            .n_out = n_out,
                                            .n_seg = 1,
                                            .seg_out = {n_out},
                                            .seg_dtype = {(int)b, -1, -1},
                                            .out_scale = 1};
    }
    c->plans.prefill.n_step = c->plans.decode.n_step = 3;
    c->tol_many = 1e-5;
    snprintf(c->name, sizeof c->name, "linear %s, norm of %d (weight %d), %s %s", type_name(a), n, f[4],
             f[3] ? "glu" : "linear", type_name(b));
    return 0;
}

static int make_glu(emu_case *c, const int *f)
{
    static const int sizes[4] = {5, 36, 130, 160};
    qn_type up = types[f[0]], gate = f[2] ? up : types[case_random(c, N_TYPES)];
    int n_in = row_length(up, 1), n_ff = sizes[f[1]];
    while (n_in % qn_dtype_get(gate)->block_values != 0) {
        gate = types[case_random(c, N_TYPES)];
    }
    bool fused = f[2] == 2;
    c->bufs[0].width = n_in + 8;
    c->bufs[1].width = n_ff + 1;
    case_fill(c, 0, 2);
    extreme_rows(c);
    c->steps[0].in[0] = (qn_view){0, 8, n_in};
    c->steps[0].out[0] = (qn_view){1, 1, n_ff};
    int up_rows = fused ? 2 * n_ff : n_ff;
    c->steps[0].w[3] = case_tensor(c, up, n_in, up_rows, 0.1f);
    c->steps[0].w[4] = f[4] ? case_tensor(c, QN_F32, up_rows, 1, 1) : NULL;
    c->steps[0].w[5] = f[5] ? case_tensor(c, QN_F32, 1, 1, 2) : NULL;
    if (!fused) {
        c->steps[0].w[0] = case_tensor(c, gate, n_in, n_ff, 0.1f);
        c->steps[0].w[1] = f[4] ? case_tensor(c, QN_F32, n_ff, 1, 1) : NULL;
        c->steps[0].w[2] = f[5] ? case_tensor(c, QN_F32, 1, 1, 2) : NULL;
    }
    c->steps[0].spec.glu = (qn_spec_glu){.n_in = n_in,
                                         .n_ff = n_ff,
                                         .act = f[3] + 1,
                                         .fused = fused,
                                         .gate_dtype = fused ? -1 : (int)gate,
                                         .up_dtype = (int)up,
                                         .has_bias = f[4],
                                         .has_scale = f[5],
                                         .sparsity_std = f[6] ? 0.4f : 0};
    c->tol_few = 1e-9; /* products of two sums, each with its own cancellation */
    c->tol_many = product_tolerance(up == QN_BF16 || gate == QN_BF16);
    snprintf(c->name, sizeof c->name, "glu %s %s n_in %d n_ff %d fused %d act %d bias %d scale %d sparse %d",
             type_name(gate), type_name(up), n_in, n_ff, fused, f[3] + 1, f[4], f[5], f[6]);
    return 0;
}

static int make_mix(emu_case *c, const int *f)
{
    int n = f[0] ? 300 : 18;
    c->bufs[0].width = c->bufs[1].width = c->bufs[2].width = n + 1;
    case_fill(c, 0, 1);
    case_fill(c, 2, 1);
    c->steps[0].in[0] = (qn_view){0, 1, n};
    int n_in1 = f[1] == 0 ? 0 : f[1] == 1 ? n : n / 3;
    c->steps[0].in[1] = n_in1 ? (qn_view){2, 0, n_in1} : (qn_view){-1, 0, 0};
    c->steps[0].out[0] = f[4] ? (qn_view){0, 1, n} : (qn_view){1, 1, n};
    c->steps[0].w[0] = f[2] ? case_tensor(c, QN_F32, 1, 1, 2) : NULL;
    c->steps[0].w[1] = f[1] && f[3] ? case_tensor(c, QN_F32, 1, 1, 2) : NULL;
    c->steps[0].spec.mix = (qn_spec_mix){n, n_in1, 1.5f, f[1] ? -0.5f : 0};
    snprintf(c->name, sizeof c->name, "mix n %d in1 %d s0 %d s1 %d in place %d", n, n_in1, f[2], f[3], f[4]);
    return 0;
}

/* Heads and KV heads; groups from 1 to 16. */
static const int heads[6][2] = {{1, 1}, {4, 4}, {6, 2}, {8, 1}, {16, 1}, {9, 3}};

void case_attention_cache(emu_case *c, int n_kv, int k_dim, int v_dim, int window)
{
    c->kv = (qn_kv_cache){0, n_kv, k_dim, v_dim, window};
    c->plans.n_kv = 1;
    c->steps[0].kv = 0;
}

static int make_rope_kv(emu_case *c, const int *f)
{
    static const int dims[8][2] = {{32, 32},   {64, 64},   {80, 80},   {96, 40},
                                   {128, 128}, {256, 256}, {512, 512}, {100, 100}};
    int n_head = heads[f[0]][0], n_kv = heads[f[0]][1], kd = dims[f[1]][0], vd = dims[f[1]][1];
    int style = f[2], norm = f[4], has_kv = f[5] != 1, v_from_k = f[5] == 2 && kd == vd;
    int full = norm && f[6], weight = full ? QN_QKW_CHANNEL : f[8] - 1;
    int n_rot = style == 0 ? 0 : f[3] == 0 ? kd : f[3] == 1 ? kd / 2 : 20;
    int rot_at = style != 0 && f[3] == 3 ? kd - n_rot : 0;
    int nq = n_head * kd, nk = n_kv * kd, nv = n_kv * vd;
    qn_spec_rope_kv *s = &c->steps[0].spec.rope_kv;
    *s = (qn_spec_rope_kv){.n_head = n_head,
                           .n_head_kv = n_kv,
                           .k_dim = kd,
                           .v_dim = vd,
                           .has_kv = has_kv,
                           .v_from_k = v_from_k,
                           .qk_norm = norm,
                           .q_has_norm = norm != 0,
                           .k_has_norm = norm && has_kv,
                           .q_has_w = norm && f[8],
                           .k_has_w = norm && f[8] && has_kv,
                           .qk_width = full ? QN_QK_FULL : QN_QK_HEAD,
                           .qk_order = f[7],
                           .qk_weight = f[8] ? weight : 0,
                           .v_norm = f[9],
                           .rope_style = style,
                           .n_rot = n_rot,
                           .rot_at = rot_at,
                           .temp_ctx = 16,
                           .eps = 0.1f,
                           .mscale = style ? 1.25f : 1.0f,
                           .temp_scale = f[10] ? 0.3f : 0};
    c->tol_few = c->tol_many =
        has_kv ? 5e-8 : 1e-10; /* k and v as f16: a value on the edge, in a row of 40 */
    c->pos = f[11] == 0 ? 0 : f[11] == 1 ? 37 : 100000;
    c->exec.n_ctx = f[11] == 2 ? 100100 : 256;
    case_attention_cache(c, n_kv, kd, vd, f[11] ? 24 : 0);
    c->steps[0].kv = has_kv ? 0 : -1;
    c->bufs[0].width = nq + nk + nv;
    case_fill(c, 0, 2);
    c->steps[0].in[0] = c->steps[0].out[0] = (qn_view){0, 0, nq};
    if (has_kv) {
        c->steps[0].in[1] = (qn_view){0, nq, nk};
        c->steps[0].in[2] = v_from_k ? c->steps[0].in[1] : (qn_view){0, nq + nk, nv};
    }
    if (s->q_has_w) {
        int per_head = weight == QN_QKW_PER_HEAD, channel = weight == QN_QKW_CHANNEL && !full;
        c->steps[0].w[0] = case_tensor(c, QN_F32, per_head ? n_head : channel ? kd : nq, 1, 2);
        c->steps[0].w[1] = has_kv ? case_tensor(c, QN_F32, per_head ? n_kv : channel ? kd : nk, 1, 2) : NULL;
    }
    if (style) {
        float *freq = case_alloc(c, sizeof(float) * (size_t)n_rot);
        for (int i = 0; i < n_rot / 2; i++) {
            freq[i] = powf(10000.0f, -2.0f * (float)i / (float)n_rot);
        }
        c->steps[0].table = freq;
    }
    snprintf(c->name, sizeof c->name,
             "rope_kv heads %d/%d dims %d/%d style %d n_rot %d at %d norm %d full %d order %d weight %d v %d "
             "kv %d "
             "temp %d pos %d",
             n_head, n_kv, kd, vd, style, n_rot, rot_at, norm, full, f[7], f[8], f[9], f[5], f[10], c->pos);
    return 0;
}

/* Types of keys and values, where the heads allow them. */
static void set_types(emu_case *c, int level)
{
    bool q8 = c->variant >= QN_VARIANT_SM80; /* 8-bit caches are not served before */
    c->exec.k_type = q8 && level % 2 && c->kv.k_dim % 32 == 0 ? QN_CACHE_Q8_0 : QN_CACHE_F16;
    c->exec.v_type = q8 && level / 2 && c->kv.v_dim % 32 == 0 ? QN_CACHE_Q8_0 : QN_CACHE_F16;
}

/* Keys and values that the cache holds, up to position `last`; what no query may see would be seen. */
static void fill_cache(emu_case *c, int last)
{
    int rows = qn_kv_rows(&c->kv, &c->exec), nk = c->kv.n_head_kv * c->kv.k_dim,
        nv = c->kv.n_head_kv * c->kv.v_dim;
    c->k = case_alloc(c, sizeof(float) * (size_t)(rows * nk));
    c->v = case_alloc(c, sizeof(float) * (size_t)(rows * nv));
    for (int r = 0; r < rows && !case_is_empty(); r++) {
        float scale = r < last ? 1.5f : 500.0f;
        for (int i = 0; i < nk; i++) {
            c->k[r * nk + i] = qn_f16_to_f32(qn_f32_to_f16(scale * case_uniform(c)));
        }
        for (int i = 0; i < nv; i++) {
            c->v[r * nv + i] = qn_f16_to_f32(qn_f32_to_f16(scale * case_uniform(c)));
        }
    }
    if (case_is_empty()) {
        return;
    }
    qn_kv_round(c->exec.k_type, c->k, (size_t)(rows * nk));
    qn_kv_round(c->exec.v_type, c->v, (size_t)(rows * nv));
}

void case_fill_cache(emu_case *c)
{
    fill_cache(c, c->pos + (c->rows ? c->rows : CASE_UBATCH)); /* the queries' own keys are in the cache */
}

/* A case of rope_kv and the attention that follows: one kernel in the list for decode. */
int emu_make_rope_attention(emu_case *c, const int *f)
{
    static const int positions[4] = {0, 15, 100, 297}, head[4] = {1, 2, 4, 5}, dim[5] = {1, 2, 3, 5, 4};
    int g[MAX_FACTORS];
    memcpy(g, f, sizeof g);
    g[0] = head[f[0]];
    g[1] = dim[f[1]];
    make_rope_kv(c, g);
    const qn_spec_rope_kv *r = &c->steps[0].spec.rope_kv;
    qn_step *s = &c->steps[1];
    if (f[11] == 0) {
        c->pos = positions[f[12]];
        c->exec.n_ctx = c->pos > 200 ? 512 : 256;
    }
    set_types(c, f[13]);
    fill_cache(c, c->pos + (r->has_kv ? 0 : CASE_UBATCH));
    c->steps[0].op = &qn_ops[QN_OP_ROPE_KV];
    c->plans.prefill.n_step = c->plans.decode.n_step = 2;
    c->bufs[1].width = r->n_head * r->v_dim;
    s->kv = 0;
    s->in[0] = c->steps[0].out[0];
    s->out[0] = (qn_view){1, 0, c->bufs[1].width};
    s->spec.attention = (qn_spec_attention){.n_head = r->n_head,
                                            .n_head_kv = r->n_head_kv,
                                            .k_dim = r->k_dim,
                                            .v_dim = r->v_dim,
                                            .window = c->kv.window,
                                            .scale = 0.2f,
                                            .softcap = f[10] ? 5.0f : 0};
    bool q8 = c->exec.k_type != QN_CACHE_F16 || c->exec.v_type != QN_CACHE_F16;
    c->tol_few = c->tol_many = q8 ? 1e-5 : 1e-6; /* all operands as f16; 8-bit codes on the edge */
    char name[160];
    snprintf(name, sizeof name, "types %d %d attention of %.130s", c->exec.k_type, c->exec.v_type, c->name);
    memcpy(c->name, name, sizeof name);
    return 0;
}

static int make_attention(emu_case *c, const int *f)
{
    static const int dims[9][2] = {{32, 32},   {64, 64},   {80, 80},   {96, 40},  {128, 128},
                                   {192, 128}, {256, 256}, {512, 512}, {100, 100}};
    static const int windows[3] = {0, 7, 40},
                     positions[9] = {0, 3, 37, 130, 297, 52, 68, 84, 116}; /* 13 rows on: one key of a tile */
    int n_head = heads[f[0]][0], n_kv = heads[f[0]][1], kd = dims[f[1]][0], vd = dims[f[1]][1];
    int nq = n_head * kd, nv = n_head * vd;
    c->pos = positions[f[3]];
    c->exec.n_ctx = c->pos > 200 ? 512 : 256;
    c->exec.n_ubatch = f[6] ? 20000 / n_head + 1 : CASE_UBATCH; /* prefill picks its launch shape by it */
    case_attention_cache(c, n_kv, kd, vd, windows[f[2]]);
    set_types(c, f[7]);
    fill_cache(c, c->pos + CASE_UBATCH); /* the queries' own keys are in the cache */
    c->bufs[0].width = nq + 8;
    c->bufs[1].width = nv + 1;
    case_fill(c, 0, 1);
    c->steps[0].in[0] = (qn_view){0, 8, nq};
    c->steps[0].out[0] = (qn_view){1, 1, nv};
    bool q8 = c->exec.k_type != QN_CACHE_F16 || c->exec.v_type != QN_CACHE_F16;
    c->tol_many = q8 ? 3e-6 : 2e-6; /* queries and weights as f16; 8-bit keys and values too */
    c->steps[0].spec.attention =
        (qn_spec_attention){n_head, n_kv, kd, vd, windows[f[2]], 0.3f, f[4] ? 3.0f : 0, f[5] ? 8.0f : 0};
    snprintf(c->name, sizeof c->name,
             "attention heads %d/%d dims %d/%d window %d pos %d cap %d alibi %d ubatch %d types %d %d",
             n_head, n_kv, kd, vd, windows[f[2]], c->pos, f[4], f[5], c->exec.n_ubatch, c->exec.k_type,
             c->exec.v_type);
    return 0;
}

/* A product of one-hot weights gives logits; ties, and rows that the last block does not fill. */
static int make_argmax(emu_case *c, const int *f)
{
    static const int sizes[4] = {40, 1000, 17001, 151936};
    int n = sizes[f[0]];
    c->argmax = true;
    c->outputs = QN_OUT_ALL;
    c->tol_many = product_tolerance(false);
    c->model.n_vocab = n;
    c->bufs[0].width = 8;
    c->bufs[3].width = n;
    case_fill(c, 0, 1);
    qn_tensor *w = case_tensor(c, QN_F32, 8, n, 1);
    for (int i = 0; f[1] && i < 3; i++) { /* three equal rows that win: the lowest id is due */
        for (int k = 0; k < 8; k++) {
            ((float *)w->data)[8 * (n - 1 - i * (n / 4)) + k] = 4 * c->start[0][k];
        }
    }
    c->steps[0].w[0] = w;
    c->steps[0].in[0] = (qn_view){0, 0, 8};
    c->steps[0].out[0] = (qn_view){3, 0, n};
    c->steps[0].spec.linear = (qn_spec_linear){
        .n_in = 8, .n_out = n, .n_seg = 1, .seg_out = {n}, .seg_dtype = {QN_F32, -1, -1}, .out_scale = 1};
    snprintf(c->name, sizeof c->name, "argmax n_vocab %d ties %d", n, f[1]);
    return 0;
}

const emu_factors emu_all_factors[] = {
    {"embed", 4, {N_TYPES, 2, 3, 2}, make_embed, true},
    {"select", 2, {3, 2}, make_select, true},
    {"norm", 9, {5, 2, 2, 2, 2, 3, 2, 2, 2}, make_norm, true},
    {"linear", 6, {N_TYPES, 3, 2, 3, 3, 2}, make_linear, false},
    {"linear", 10, {6, 3, 3, 3, 2, 3, 2, 2, 2, 2}, make_linear_epilogue, false},
    {"linear", 5, {3, 4, 3, 2, 2}, make_chain, false},
    {"linear", 6, {3, 3, 5, 2, 2, 2}, emu_make_post, true},
    {"linear", 2, {10, 6}, make_linear_long, false},
    {"linear", 1, {N_TYPES}, emu_make_fp8, true},
    {"linear", 7, {4, 3, 2, 4, 4, 2, 2}, emu_make_act_chain, true},
    {"glu", 7, {N_TYPES, 4, 3, 4, 2, 2, 2}, make_glu, false},
    {"rope_kv", 12, {6, 8, 3, 4, 3, 3, 2, 2, 4, 3, 2, 3}, make_rope_kv, false},
    {"glu", 7, {4, 3, 2, 4, 2, 2, 2}, emu_make_glu_chain, true},
    {"rope_kv", 11, {3, 3, 3, 3, 2, 4, 2, 3, 3, 2, 2}, emu_make_rope_chain, true},
    {"attention", 8, {6, 9, 3, 9, 2, 2, 2, 4}, make_attention, false},
    {"attention", 14, {4, 4, 3, 4, 3, 3, 2, 2, 4, 3, 2, 3, 4, 4}, emu_make_rope_attention, false},
    {"attention", 5, {3, 3, 2, 3, 4}, emu_make_tile_attention, true},
    {"mix", 5, {2, 3, 2, 2, 2}, make_mix, true},
    {"mul", 3, {2, 2, 2}, emu_make_mul, true},
    {"rescale", 4, {3, 3, 2, 2}, emu_make_rescale, true},
    {"altup", 5, {3, 3, 2, 3, 3}, emu_make_altup, true},
    {"latent_kv", 2, {3, 3}, emu_make_latent_kv, true},
    {"argmax", 2, {4, 2}, make_argmax, true},
    {NULL, 0, {0}, NULL, false},
};
