/* emu_case_special.c: cases of the ops that only some models have. */
#include <stdio.h>

#include "emu_cases.h"

static const qn_type plain[3] = {QN_F32, QN_F16, QN_BF16};

static void set_linear(emu_case *c, qn_step *s, qn_type type, int n_in, int n_out)
{
    s->w[0] = case_tensor(c, type, n_in, n_out, 0.1f);
    s->spec.linear = (qn_spec_linear){.n_in = n_in,
                                      .n_out = n_out,
                                      .n_seg = 1,
                                      .seg_out = {n_out},
                                      .seg_dtype = {(int)type, -1, -1},
                                      .out_scale = 1};
}

/* A product, the RMS norm of it into the residual stream, the RMS norm of that, and a product or a gated
 * pair: in the list for one row both norms are made by the last step, or (the second one begun) by the first.
 */
int emu_make_post(emu_case *c, const int *f)
{
    static const qn_type firsts[3] = {QN_Q4_0, QN_Q8_0, QN_Q5_1}, seconds[3] = {QN_Q8_0, QN_Q4_1, QN_F16};
    static const int sizes[5] = {32, 864, 2176, 4128, 6272}; /* of the last one, blocks wait for words */
    const int n_in = 96, n = sizes[f[2]], n_out = 20;
    c->bufs[0].width = n_in;
    c->bufs[1].width = c->bufs[2].width = c->bufs[5].width = n;
    c->bufs[4].width = n_out;
    case_fill(c, 0, 2);
    case_fill(c, 2, 1);
    case_small_row(c, 0);
    case_small_row(c, 2);
    qn_step *s = c->steps;
    s[0].in[0] = (qn_view){0, 0, n_in};
    s[0].out[0] = s[1].in[0] = (qn_view){1, 0, n};
    s[1].in[1] = s[1].out[0] = s[2].in[0] = (qn_view){2, 0, n};
    s[2].out[0] = s[3].in[0] = (qn_view){5, 0, n};
    s[3].out[0] = (qn_view){4, 0, n_out};
    set_linear(c, &s[0], firsts[f[0]], n_in, n);
    set_linear(c, &s[3], seconds[f[1]], n, n_out);
    if (f[5]) {
        s[3].op = &qn_ops[QN_OP_GLU];
        s[3].w[3] = case_tensor(c, seconds[f[1]], n, n_out, 0.1f);
        s[3].spec.glu = (qn_spec_glu){.n_in = n,
                                      .n_ff = n_out,
                                      .act = QN_ACT_SILU,
                                      .gate_dtype = (int)seconds[f[1]],
                                      .up_dtype = (int)seconds[f[1]]};
        qn_tensor *gate = case_tensor(c, seconds[f[1]], n, n_out, 0.1f);
        case_gate(gate);
        s[3].w[0] = gate;
    }
    s[0].spec.linear.out_scale = f[4] ? 1.5f : 1;
    s[1].op = s[2].op = &qn_ops[QN_OP_NORM];
    for (int k = 1; k < 3; k++) {
        s[k].w[0] = f[3] ? case_tensor(c, QN_F32, n, 1, 2) : NULL;
        s[k].spec.norm = (qn_spec_norm){
            .n = n, .groups = 1, .kind = QN_NORM_RMS, .has_w = f[3], .eps = 1e-3f, .out_scale = 1};
    }
    s[1].spec.norm.residual = 1;
    s[1].spec.norm.out_scale = f[4] ? 0.6f : 1;
    c->plans.prefill.n_step = c->plans.decode.n_step = 4;
    c->tol_many = f[5] ? 5e-4 : 2e-5;      /* gates of weights of one sign add up, and may lie far below 0 */
    c->tol_few = f[5] ? 1e-9 : c->tol_few; /* of a pair: products of two sums, as of glu */
    snprintf(c->name, sizeof c->name, "linear %s, norm of %d (weight %d, scale %d) and residual, norm, %s %s",
             qn_dtype_get(firsts[f[0]])->name, n, f[3], f[4], f[5] ? "glu" : "linear",
             qn_dtype_get(seconds[f[1]])->name);
    return 0;
}

int emu_make_mul(emu_case *c, const int *f)
{
    int n = f[0] ? 300 : 17;
    c->bufs[0].width = c->bufs[1].width = c->bufs[2].width = n + 1;
    case_fill(c, 0, 1);
    case_fill(c, 2, 1);
    c->steps[0].in[0] = (qn_view){0, 1, n};
    c->steps[0].in[1] = f[1] ? (qn_view){-1, 0, 0} : (qn_view){2, 1, n};
    c->steps[0].out[0] = f[2] ? (qn_view){0, 1, n} : (qn_view){1, 0, n};
    c->steps[0].w[0] = f[1] ? case_tensor(c, QN_F32, n, 1, 2) : NULL;
    c->steps[0].spec.mul = (qn_spec_mul){n, f[1]};
    snprintf(c->name, sizeof c->name, "mul n %d weight %d in place %d", n, f[1], f[2]);
    return 0;
}

/* Sizes that products of e4m3 take; two weights share a power of two. */
int emu_make_fp8(emu_case *c, const int *f)
{
    static const qn_type types[15] = {QN_F32,  QN_F16,  QN_BF16, QN_Q4_0,   QN_Q4_1,
                                      QN_Q5_0, QN_Q5_1, QN_Q8_0, QN_Q2_K,   QN_Q3_K,
                                      QN_Q4_K, QN_Q5_K, QN_Q6_K, QN_IQ4_NL, QN_IQ4_XS};
    const qn_type type = types[f[0]];
    const int n_in = 256, n_out = 48, more = 16;
    c->steps[0].w[0] = case_tensor(c, type, n_in, n_out, 0.1f);
    c->steps[0].w[3] = case_tensor(c, QN_F32, n_in, more, 0.01f);
    c->bufs[0].width = n_in;
    c->bufs[1].width = n_out + more;
    case_fill(c, 0, 2);
    for (int i = 0; i < n_in; i++) { /* a row of zeros, one far larger, one whose values mostly underflow */
        c->start[0][i] = 0;
        c->start[0][n_in + i] *= 1e5f;
        c->start[0][2 * n_in + i] *= i % 64 ? 1e-5f : 1.0f;
    }
    c->steps[0].in[0] = (qn_view){0, 0, n_in};
    c->steps[0].out[0] = (qn_view){1, 0, n_out + more};
    c->steps[0].spec.linear = (qn_spec_linear){.n_in = n_in,
                                               .n_out = n_out + more,
                                               .n_seg = 2,
                                               .seg_out = {n_out, more},
                                               .seg_dtype = {(int)type, QN_F32, -1},
                                               .out_scale = 1};
    c->tol_many = type == QN_BF16 ? 1e-3 : 1e-5;
    snprintf(c->name, sizeof c->name, "linear of 16s %s", qn_dtype_get(type)->name);
    return 0;
}

int emu_make_rescale(emu_case *c, const int *f)
{
    static const int sizes[3] = {5, 100, 2100}, counts[3] = {1, 3, 7};
    int n = sizes[f[0]], groups = counts[f[1]];
    c->bufs[0].width = c->bufs[1].width = n * groups + 3;
    c->bufs[2].width = n + 1;
    c->steps[0].rows = f[3] ? QN_ROWS_OUTPUTS : QN_ROWS_TOKENS;
    c->outputs = f[3] && f[2] ? QN_OUT_ALL : QN_OUT_LAST;
    case_fill(c, 0, 1);
    case_fill(c, 2, 3);
    c->steps[0].in[0] = (qn_view){0, 3, n * groups};
    c->steps[0].in[1] = (qn_view){2, 1, n};
    c->steps[0].out[0] = f[2] ? (qn_view){1, 0, n} : (qn_view){0, 3, n * groups};
    c->steps[0].spec.rescale = (qn_spec_rescale){n, groups, f[2]};
    snprintf(c->name, sizeof c->name, "rescale n %d groups %d average %d outputs %d", n, groups, f[2], f[3]);
    return 0;
}

int emu_make_altup(emu_case *c, const int *f)
{
    static const int sizes[3] = {24, 100, 2100}, counts[3] = {2, 4, 7};
    int n = sizes[f[0]], s = counts[f[1]], correct = f[2];
    c->bufs[0].width = c->bufs[1].width = n * s + 3;
    c->bufs[2].width = n + 1;
    case_fill(c, 0, 2);
    case_fill(c, 2, 3);
    c->steps[0].in[0] = (qn_view){0, 3, n * s};
    c->steps[0].in[1] = correct ? (qn_view){2, 1, n} : (qn_view){-1, 0, 0};
    c->steps[0].out[0] = (qn_view){1, 0, n * s};
    c->steps[0].w[0] = case_tensor(c, QN_F32, n, 1, 30);
    c->steps[0].w[1] = case_tensor(c, plain[f[3]], n, s, 2);
    c->steps[0].w[2] = case_tensor(c, plain[f[4]], s, correct ? s : s * s, 1);
    c->steps[0].spec.altup = (qn_spec_altup){.n = n,
                                             .n_stream = s,
                                             .correct = correct,
                                             .router_dtype = (int)plain[f[3]],
                                             .coef_dtype = (int)plain[f[4]],
                                             .eps = 1e-6f};
    snprintf(c->name, sizeof c->name, "altup n %d streams %d correct %d types %d %d", n, s, correct, f[3],
             f[4]);
    return 0;
}

int emu_make_latent_kv(emu_case *c, const int *f)
{
    static const int heads[3] = {1, 5, 12}, dims[3][3] = {{64, 32, 64}, {8, 4, 24}, {128, 64, 128}};
    const int *d = dims[f[1]];
    int n_head = heads[f[0]], nk = n_head * (d[0] + d[1]), nv = n_head * d[2];
    c->bufs[0].width = n_head * (d[0] + d[2]) + 8;
    c->bufs[1].width = nk + nv + 3;
    c->bufs[2].width = d[1] + 5;
    case_fill(c, 0, 1);
    case_fill(c, 2, 1);
    c->steps[0].in[0] = (qn_view){0, 8, n_head * (d[0] + d[2])};
    c->steps[0].in[1] = (qn_view){2, 5, d[1]};
    c->steps[0].out[0] = (qn_view){1, 3, nk};
    c->steps[0].out[1] = (qn_view){1, 3 + nk, nv};
    c->steps[0].spec.latent_kv = (qn_spec_latent_kv){n_head, d[0], d[1], d[2]};
    snprintf(c->name, sizeof c->name, "latent_kv heads %d dims %d + %d, %d", n_head, d[0], d[1], d[2]);
    return 0;
}
