/* plan_layer.c: the steps of one decoder layer. */
#include <stdio.h>
#include <string.h>

#include "codegen/plan_internal.h"

/* The branch's last product, or its post norm: x = base + result. */
static void add_branch_out(qn_planner *b, const qn_linear *l, const qn_norm *post, int layer,
                           const char *name, const char *norm_name, qn_view in, qn_view base)
{
    qn_view x = qn_view_of(B_X, 0, b->m->n_embd);
    float scale = b->m->layers[layer].residual_scale;
    if (post->kind == QN_NORM_NONE) {
        qn_step *s = qn_plan_linear(b, &l, 1, layer, QN_ROWS_TOKENS, name, in, x);
        s->in[1] = base;
        s->spec.linear.residual = 1;
        s->spec.linear.out_scale = scale;
        return;
    }
    qn_view y = qn_view_of(B_Y, 0, b->m->n_embd);
    qn_plan_linear(b, &l, 1, layer, QN_ROWS_TOKENS, name, in, y);
    qn_plan_norm(b, post, layer, QN_ROWS_TOKENS, norm_name, y, base, x, scale);
}

static void add_rope_kv(qn_planner *b, const qn_attn *a, int layer, bool owns)
{
    int nq = a->n_head * a->k_dim, nk = a->n_head_kv * a->k_dim, nv = a->n_head_kv * a->v_dim;
    bool rotates = a->rope.style != QN_ROPE_NONE;
    qn_step *s = qn_plan_step(b, QN_OP_ROPE_KV, layer, QN_ROWS_TOKENS, "rope_kv");
    s->in[0] = s->out[0] = qn_view_of(B_QKV, 0, nq);
    if (owns) {
        s->in[1] = qn_view_of(B_QKV, nq, nk);
        s->in[2] = a->v_from_k ? s->in[1] : qn_view_of(B_QKV, nq + nk, nv);
        s->kv = b->kv_of_layer[layer];
    }
    s->w[0] = a->q_norm.w;
    s->w[1] = owns ? a->k_norm.w : NULL;
    s->table = rotates ? a->rope.freq : NULL;
    s->spec.rope_kv = (qn_spec_rope_kv){
        .n_head = a->n_head,
        .n_head_kv = a->n_head_kv,
        .k_dim = a->k_dim,
        .v_dim = a->v_dim,
        .has_kv = owns,
        .v_from_k = a->v_from_k,
        .qk_norm = a->qk_norm,
        .q_has_norm = a->q_norm.kind != QN_NORM_NONE,
        .k_has_norm = owns && a->k_norm.kind != QN_NORM_NONE,
        .q_has_w = a->q_norm.w != NULL,
        .k_has_w = owns && a->k_norm.w != NULL,
        .qk_width = a->qk_width,
        .qk_order = a->qk_order,
        .qk_weight = a->qk_weight,
        .v_norm = a->v_norm.kind,
        .rope_style = a->rope.style,
        .n_rot = rotates ? a->rope.n_rot : 0,
        .rot_at = a->kind == QN_ATTN_LATENT ? a->k_dim - a->rope.n_rot : 0,
        .temp_ctx = a->temp_ctx,
        .eps = a->q_norm.kind != QN_NORM_NONE   ? a->q_norm.eps
               : a->k_norm.kind != QN_NORM_NONE ? a->k_norm.eps
                                                : a->v_norm.eps,
        .mscale = rotates ? a->rope.mscale : 1.0f,
        .temp_scale = a->temp_scale,
    };
}

/* q, k and v of a row into B_QKV, as far as the layer has its own. */
static int add_projections(qn_planner *b, const qn_attn *a, int layer, bool owns, qn_view in)
{
    int nq = a->n_head * a->k_dim, nk = a->n_head_kv * a->k_dim, nv = a->n_head_kv * a->v_dim;
    int width = owns ? nq + nk + (a->v_from_k ? 0 : nv) : nq;
    qn_step *s;
    if (a->qkv.w) {
        if (!owns || a->v_from_k) {
            return qn_fail(
                b->err, "layer %d: a fused qkv tensor cannot serve a layer without k and v rows of its own",
                layer);
        }
        const qn_linear *one = &a->qkv;
        s = qn_plan_linear(b, &one, 1, layer, QN_ROWS_TOKENS, "qkv", in, qn_view_of(B_QKV, 0, width));
    } else {
        static const qn_linear absent;
        const qn_linear *three[3] = {&a->q, owns ? &a->k : &absent, owns && !a->v_from_k ? &a->v : &absent};
        s = qn_plan_linear(b, three, 3, layer, QN_ROWS_TOKENS, owns ? "qkv" : "q", in,
                           qn_view_of(B_QKV, 0, width));
    }
    s->spec.linear.clamp = a->clamp;
    return 0;
}

static int add_attention(qn_planner *b, const qn_layer *l, int layer, qn_view in, qn_view base)
{
    const qn_attn *a = &l->attn;
    if (a->kind == QN_ATTN_MATRIX) {
        add_branch_out(b, &a->out, &a->post_norm, layer, "attn_out", "attn_post_norm", in, base);
        return 0;
    }
    bool owns = a->kv_source == layer;
    if (a->kind == QN_ATTN_LATENT) {
        qn_plan_latent(b, layer, in);
    } else if (add_projections(b, a, layer, owns, in)) {
        return -1;
    }
    add_rope_kv(b, a, layer, owns);

    qn_step *s = qn_plan_step(b, QN_OP_ATTENTION, layer, QN_ROWS_TOKENS, "attention");
    s->in[0] = qn_view_of(B_QKV, 0, a->n_head * a->k_dim);
    s->out[0] = qn_view_of(B_ATT, 0, a->n_head * a->v_dim);
    s->kv = b->kv_of_layer[a->kv_source];
    s->spec.attention = (qn_spec_attention){.n_head = a->n_head,
                                            .n_head_kv = a->n_head_kv,
                                            .k_dim = a->k_dim,
                                            .v_dim = a->v_dim,
                                            .window = a->window,
                                            .scale = a->scale,
                                            .softcap = a->softcap,
                                            .alibi_max_bias = a->alibi_max_bias};
    qn_view att = s->out[0];
    if (a->sub_norm.kind != QN_NORM_NONE) {
        qn_plan_norm(b, &a->sub_norm, layer, QN_ROWS_TOKENS, "attn_sub_norm", att, qn_no_view, att, 1.0f);
    }
    add_branch_out(b, &a->out, &a->post_norm, layer, "attn_out", "attn_post_norm", att, base);
    return 0;
}

static void add_ffn(qn_planner *b, const qn_layer *l, int layer, qn_view in)
{
    const qn_ffn *f = &l->ffn;
    qn_view mid = qn_view_of(B_FFN, 0, f->n_ff);
    if (f->kind == QN_FFN_GATED) {
        qn_step *s = qn_plan_step(b, QN_OP_GLU, layer, QN_ROWS_TOKENS, "ffn_glu");
        s->in[0] = in;
        s->out[0] = mid;
        const qn_linear *g = &f->gate, *u = &f->up;
        const qn_tensor *w[6] = {g->w, g->b, g->scale, u->w, u->b, u->scale};
        memcpy(s->w, w, sizeof w);
        s->spec.glu = (qn_spec_glu){.n_in = in.width,
                                    .n_ff = f->n_ff,
                                    .act = f->act,
                                    .fused = f->fused,
                                    .gate_dtype = f->fused ? -1 : (int32_t)g->w->type,
                                    .up_dtype = (int32_t)u->w->type,
                                    .has_bias = u->b != NULL,
                                    .has_scale = u->scale != NULL,
                                    .sparsity_std = f->sparsity_std};
    } else {
        const qn_linear *u = &f->up;
        qn_step *s = qn_plan_linear(b, &u, 1, layer, QN_ROWS_TOKENS, "ffn_up", in, mid);
        s->spec.linear.act = f->act;
        s->spec.linear.has_div = f->act_div != NULL;
        s->w[9] = f->act_div;
        if (f->act == QN_ACT_XIELU) {
            float x[4] = {f->xielu_alpha_n, f->xielu_alpha_p, f->xielu_beta, f->xielu_eps};
            memcpy(s->spec.linear.xielu, x, sizeof x);
        }
    }
    if (f->sub_norm.kind != QN_NORM_NONE) {
        qn_plan_norm(b, &f->sub_norm, layer, QN_ROWS_TOKENS, "ffn_sub_norm", mid, qn_no_view, mid, 1.0f);
    }
    add_branch_out(b, &f->down, &f->post_norm, layer, "ffn_down", "ffn_post_norm", mid,
                   qn_view_of(B_X, 0, b->m->n_embd));
}

/* What the ops of this version cannot serve is refused here, by layer and choice. */
static int check_served(qn_planner *b, const qn_layer *l, int layer)
{
    const qn_model *m = b->m;
    const char *what = NULL;
    if (l->skip) {
        return 0;
    }
    what = qn_plan_unserved(b, layer);
    if (what) {
        /* said by its part */
    } else if (l->ffn.kind == QN_FFN_GATED && l->ffn.act_div) {
        what = "ffn.act_div with a gated feed-forward";
    } else if (l->ffn.kind == QN_FFN_GATED && l->ffn.act == QN_ACT_XIELU) {
        what = "ffn.activation: xielu with a gated feed-forward";
    } else if (l->attn.q_norm.b || l->attn.k_norm.b) {
        what = "attention.qk_norm with a bias";
    }
    if (what) {
        return qn_fail(b->err, "%s: layer %d: no op serves '%s' yet", m->config_name, layer, what);
    }
    return 0;
}

/* What follows the two branches. */
static void add_layer_end(qn_planner *b, const qn_layer *l, int layer)
{
    int n = b->m->n_embd;
    qn_view x = qn_view_of(B_X, 0, n);
    if (b->m->n_stream > 1) {
        qn_plan_correct(b, layer);
    }
    if (l->ple.gate.w) {
        qn_plan_per_layer(b, layer);
    }
    if (l->out_scale) {
        qn_plan_mix(b, layer, "layer_scale", x, qn_no_view, x, l->out_scale, NULL);
    }
    if (l->embed_skip) {
        qn_plan_mix(b, layer, "embed_skip", x, qn_view_of(B_SKIP, 0, n), x, NULL, l->embed_skip);
    }
    if (l->loop_norm_after) {
        qn_plan_norm(b, &b->m->out_norm, layer, QN_ROWS_TOKENS, "loop_norm", x, qn_no_view, x,
                     b->m->out_norm_scale);
    }
}

int qn_plan_layer(qn_planner *b, int layer)
{
    const qn_layer *l = &b->m->layers[layer];
    if (check_served(b, l, layer)) {
        return -1;
    }
    if (l->skip) {
        return 0;
    }
    int n = b->m->n_embd;
    qn_view x = qn_view_of(B_X, 0, n), h = qn_view_of(B_H, 0, n), h2 = qn_view_of(B_H2, 0, n);
    qn_view start = x;
    bool has_attn = l->attn.kind != QN_ATTN_NONE, laurel = l->altup.laurel_l.w != NULL;
    if (b->m->n_stream > 1) {
        qn_plan_predict(b, layer);
        start = qn_view_of(B_PREDICT, 0, n);
    }
    qn_view attn_in = start, ffn_in = start;
    if (has_attn && l->attn.norm.kind != QN_NORM_NONE) {
        qn_plan_norm(b, &l->attn.norm, layer, QN_ROWS_TOKENS, "attn_norm", start, qn_no_view, h, 1.0f);
        attn_in = h;
    }
    if (laurel) {
        qn_plan_laurel(b, layer, attn_in);
    }
    if (l->ffn.input_shared) {
        ffn_in = attn_in;
    } else if (l->parallel && l->ffn.norm.kind != QN_NORM_NONE) {
        /* Both branches read the stream as it was: this norm comes before the attention's residual sum. */
        qn_plan_norm(b, &l->ffn.norm, layer, QN_ROWS_TOKENS, "ffn_norm", x, qn_no_view, h2, 1.0f);
        ffn_in = h2;
    } else if (l->parallel) {
        qn_plan_mix(b, layer, "ffn_input", x, qn_no_view, h2, NULL, NULL);
        ffn_in = h2;
    } else {
        ffn_in = x;
    }
    if (has_attn && add_attention(b, l, layer, attn_in, start)) {
        return -1;
    }
    if (laurel) {
        qn_plan_laurel_join(b, layer);
    }
    if (l->ffn.kind != QN_FFN_NONE) {
        if (!l->parallel && !l->ffn.input_shared && l->ffn.norm.kind != QN_NORM_NONE) {
            qn_plan_norm(b, &l->ffn.norm, layer, QN_ROWS_TOKENS, "ffn_norm", x, qn_no_view, h, 1.0f);
            ffn_in = h;
        }
        add_ffn(b, l, layer, ffn_in);
    }
    add_layer_end(b, l, layer);
    return 0;
}
