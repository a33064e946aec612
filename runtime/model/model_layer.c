/* model_layer.c: what surrounds attention in a layer: feed-forward, residual scalars, per-layer embeddings,
 * AltUp. */
#include <string.h>

#include "model/model_internal.h"

static bool has(const qn_binder *b, const char *name)
{
    return name && qn_bind_find(b, name, "weight");
}

static void ffn_numbers(qn_ffn *f, const qn_layer_cfg *c)
{
    f->act = (qn_activation)c->ffn.activation;
    f->n_ff = c->ffn.n_ff;
    f->input_shared = c->ffn.input_shared;
    f->sparsity_std = (float)c->ffn.sparsity_std;
    f->xielu_alpha_n = (float)c->ffn.xielu_alpha_n;
    f->xielu_alpha_p = (float)c->ffn.xielu_alpha_p;
    f->xielu_beta = (float)c->ffn.xielu_beta;
    f->xielu_eps = (float)c->ffn.xielu_eps;
}

static int bind_ffn_weights(qn_binder *b, qn_ffn *f)
{
    const qn_layer_cfg *c = b->cfg;
    uint64_t e = (uint64_t)b->m->n_embd, n = (uint64_t)f->n_ff;
    qn_need bias = (qn_need)c->ffn.bias;
    f->fused = f->kind == QN_FFN_GATED &&
               (c->ffn.fused == QN_FUSED_YES ||
                (c->ffn.fused == QN_FUSED_AUTO && !has(b, c->ffn.gate) && has(b, c->ffn.up)));
    if (f->kind == QN_FFN_GATED && !f->fused && qn_bind_linear(b, &f->gate, &c->ffn.gate, e, n, bias)) {
        return -1;
    }
    if (qn_bind_linear(b, &f->up, &c->ffn.up, e, f->fused ? 2 * n : n, bias) ||
        qn_bind_linear(b, &f->down, &c->ffn.down, n, e, bias)) {
        return -1;
    }
    bool unclear = b->faults && b->faults->n; /* a tensor may be missing, and that has been said */
    if (unclear) {
        return 0;
    }
    if (!f->up.w || !f->down.w || (f->kind == QN_FFN_GATED && !f->fused && !f->gate.w)) {
        return qn_fail(b->err,
                       "%s: layer %d has a feed-forward branch, but one of ffn.gate, up and down is none",
                       b->m->config_name, b->il);
    }
    return 0;
}

static int bind_ffn(qn_binder *b, qn_layer *l)
{
    const qn_layer_cfg *c = b->cfg;
    qn_ffn *f = &l->ffn;
    uint64_t e = (uint64_t)b->m->n_embd, n = (uint64_t)c->ffn.n_ff;
    f->kind = (qn_ffn_kind)c->ffn.kind;
    if (f->kind == QN_FFN_NONE) {
        return 0;
    }
    if (n < 1) {
        char origin[192];
        qn_config_origin(b->config, c, &c->ffn.n_ff, origin, sizeof origin);
        return qn_fail(b->err, "%s: layer %d: the feed-forward branch is 0 wide (%s)", qn_gguf_path(b->g),
                       b->il, origin);
    }
    ffn_numbers(f, c);
    if (f->input_shared && l->attn.kind == QN_ATTN_NONE) {
        return qn_fail(b->err, "%s: layer %d: ffn.norm is shared with an attention that is none",
                       b->m->config_name, b->il);
    }
    return qn_bind_norm(b, &f->norm, &c->ffn.norm, e) ||
                   qn_bind_norm(b, &f->post_norm, &c->ffn.post_norm, e) ||
                   qn_bind_norm(b, &f->sub_norm, &c->ffn.sub_norm, n) || bind_ffn_weights(b, f) ||
                   qn_bind_tensor(b, &f->act_div, &c->ffn.act_div, "weight", (qn_shape){{n, 1, 1, 1}, true},
                                  QN_NEED_YES)
               ? -1
               : 0;
}

static int bind_per_layer(qn_binder *b, qn_layer *l)
{
    const qn_layer_cfg *c = b->cfg;
    uint64_t e = (uint64_t)b->m->n_embd, p = (uint64_t)b->m->ple_width;
    if (p == 0) {
        return 0;
    }
    if (!c->per_layer.gate || !c->per_layer.proj) {
        return qn_fail(b->err, "%s: per-layer embeddings need per_layer.gate and per_layer.proj",
                       b->m->config_name);
    }
    return qn_bind_linear(b, &l->ple.gate, &c->per_layer.gate, e, p, QN_NEED_NO) ||
                   qn_bind_linear(b, &l->ple.proj, &c->per_layer.proj, p, e, QN_NEED_NO) ||
                   qn_bind_rms(b, &l->ple.post_norm, &c->per_layer.post_norm, e)
               ? -1
               : 0;
}

/* Rank of the low-rank residual: rows of its first matrix. */
static uint64_t laurel_rank(const qn_binder *b)
{
    const char *name = b->cfg->altup.laurel_l;
    const qn_tensor *t = name ? qn_bind_find(b, name, "weight") : NULL;
    return t ? t->ne[1] : 0;
}

static int bind_altup(qn_binder *b, qn_layer *l)
{
    const qn_layer_cfg *c = b->cfg;
    qn_altup *a = &l->altup;
    uint64_t e = (uint64_t)b->m->n_embd, s = (uint64_t)b->m->n_stream, rank = laurel_rank(b);
    if (s < 2) {
        return 0;
    }
    if (!c->altup.router || !c->altup.router_norm || !c->altup.predict || !c->altup.correct ||
        !c->altup.correct_scale) {
        return qn_fail(b->err,
                       "%s: altup.streams needs router, router_norm, predict, correct and correct_scale",
                       b->m->config_name);
    }
    return qn_bind_linear(b, &a->router, &c->altup.router, e, s, QN_NEED_NO) ||
                   qn_bind_rms(b, &a->router_norm, &c->altup.router_norm, e) ||
                   qn_bind_linear(b, &a->predict, &c->altup.predict, s, s * s, QN_NEED_NO) ||
                   qn_bind_linear(b, &a->correct, &c->altup.correct, s, s, QN_NEED_NO) ||
                   qn_bind_tensor(b, &a->correct_scale, &c->altup.correct_scale, "weight",
                                  (qn_shape){{e, 1, 1, 1}, true}, QN_NEED_YES) ||
                   qn_bind_linear(b, &a->laurel_l, &c->altup.laurel_l, e, rank, QN_NEED_NO) ||
                   qn_bind_linear(b, &a->laurel_r, &c->altup.laurel_r, rank, e, QN_NEED_NO) ||
                   qn_bind_rms(b, &a->laurel_norm, &c->altup.laurel_norm, e)
               ? -1
               : 0;
}

int qn_bind_layer(qn_binder *b, qn_layer *l)
{
    const qn_layer_cfg *c = b->cfg;
    qn_shape scalar = {{1, 1, 1, 1}, true};
    l->file_index = b->il;
    l->parallel = c->residual.parallel;
    l->residual_scale = (float)c->residual.scale;
    l->skip = c->residual.skip_layer;
    l->attn.kind = QN_ATTN_NONE;
    l->ffn.kind = QN_FFN_NONE;
    if (l->skip) {
        return 0;
    }
    return qn_bind_attn(b, l) || bind_ffn(b, l) ||
                   qn_bind_tensor(b, &l->out_scale, &c->residual.layer_scale, "weight", scalar,
                                  QN_NEED_YES) ||
                   qn_bind_tensor(b, &l->embed_skip, &c->residual.embed_skip, "weight", scalar,
                                  QN_NEED_YES) ||
                   bind_per_layer(b, l) || bind_altup(b, l)
               ? -1
               : 0;
}
