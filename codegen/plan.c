/* plan.c: building both plans from a resolved model. plan_print.c prints them. */
#include "codegen/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Buffers, in the order of qn_plans.bufs. */
enum { B_X, B_H, B_H2, B_QKV, B_ATT, B_FFN, B_Y, B_SKIP, B_XO, B_HO, B_LOGITS, B_COUNT };

enum { STEPS_PER_LAYER = 16, STEPS_OUTSIDE = 8 };

typedef struct builder {
    qn_plans *p;
    const qn_model *m;
    qn_plan *plan;
    int *kv_of_layer; /* cache index by owning layer */
    bool has_skip;
    qn_err *err;
} builder;

static const qn_view no_view = {-1, 0, 0};

static qn_view view(int buf, int col, int width)
{
    return (qn_view){buf, col, width};
}

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

/* Appends an empty step; the caller fills spec, views and weights. */
static qn_step *add_step(builder *b, qn_op_id op, int layer, qn_rows rows, const char *name)
{
    qn_step *s = &b->plan->steps[b->plan->n_step++];
    s->op = &qn_ops[op];
    s->layer = layer;
    s->rows = rows;
    s->kv = -1;
    for (int i = 0; i < QN_STEP_VIEWS; i++) {
        s->in[i] = s->out[i] = no_view;
    }
    if (layer >= 0) {
        snprintf(s->name, sizeof s->name, "blk.%d.%s", layer, name);
    } else {
        snprintf(s->name, sizeof s->name, "%s", name);
    }
    return s;
}

/* out = [base +] scale * norm(x); base is out's own view. */
static void add_norm(builder *b, const qn_norm *n, int layer, qn_rows rows, const char *name, qn_view in,
                     qn_view out, bool residual, float scale)
{
    qn_step *s = add_step(b, QN_OP_NORM, layer, rows, name);
    s->in[0] = in;
    s->in[1] = residual ? out : no_view;
    s->out[0] = out;
    s->w[0] = n->w;
    s->w[1] = n->b;
    s->spec.norm = (qn_spec_norm){.n = in.width,
                                  .groups = 1,
                                  .kind = n->kind,
                                  .has_w = n->w != NULL,
                                  .has_b = n->b != NULL,
                                  .residual = residual,
                                  .eps = n->eps,
                                  .out_scale = scale};
}

/* Side-by-side products of `in`; segments with w NULL are left out. */
static qn_step *add_linear(builder *b, const qn_linear *const *lins, int n_lin, int layer, qn_rows rows,
                           const char *name, qn_view in, qn_view out)
{
    qn_step *s = add_step(b, QN_OP_LINEAR, layer, rows, name);
    qn_spec_linear *sp = &s->spec.linear;
    *sp = (qn_spec_linear){.n_in = in.width, .n_out = out.width, .out_scale = 1.0f};
    for (int i = 0; i < 3; i++) {
        sp->seg_dtype[i] = -1;
    }
    for (int i = 0; i < n_lin; i++) {
        const qn_linear *l = lins[i];
        if (!l->w) {
            continue;
        }
        int k = sp->n_seg++;
        sp->seg_out[k] = (int32_t)l->w->ne[1];
        sp->seg_dtype[k] = (int32_t)l->w->type;
        sp->seg_bias[k] = l->b != NULL;
        sp->seg_scale[k] = l->scale != NULL;
        s->w[3 * k] = l->w;
        s->w[3 * k + 1] = l->b;
        s->w[3 * k + 2] = l->scale;
    }
    s->in[0] = in;
    s->out[0] = out;
    return s;
}

/* The branch's last product: into the residual stream, or through a post norm. */
static void add_branch_out(builder *b, const qn_linear *l, const qn_norm *post, int layer, const char *name,
                           const char *norm_name, qn_view in)
{
    qn_view x = view(B_X, 0, b->m->n_embd);
    float scale = b->m->layers[layer].residual_scale;
    if (post->kind == QN_NORM_NONE) {
        qn_step *s = add_linear(b, &l, 1, layer, QN_ROWS_TOKENS, name, in, x);
        s->in[1] = x;
        s->spec.linear.residual = 1;
        s->spec.linear.out_scale = scale;
        return;
    }
    qn_view y = view(B_Y, 0, b->m->n_embd);
    add_linear(b, &l, 1, layer, QN_ROWS_TOKENS, name, in, y);
    add_norm(b, post, layer, QN_ROWS_TOKENS, norm_name, y, x, true, scale);
}

static void add_rope_kv(builder *b, const qn_attn *a, int layer, bool owns)
{
    int nq = a->n_head * a->k_dim, nk = a->n_head_kv * a->k_dim, nv = a->n_head_kv * a->v_dim;
    bool rotates = a->rope.style != QN_ROPE_NONE;
    qn_step *s = add_step(b, QN_OP_ROPE_KV, layer, QN_ROWS_TOKENS, "rope_kv");
    s->in[0] = s->out[0] = view(B_QKV, 0, nq);
    if (owns) {
        s->in[1] = view(B_QKV, nq, nk);
        s->in[2] = a->v_from_k ? s->in[1] : view(B_QKV, nq + nk, nv);
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
        .temp_ctx = a->temp_ctx,
        .eps = a->q_norm.kind != QN_NORM_NONE   ? a->q_norm.eps
               : a->k_norm.kind != QN_NORM_NONE ? a->k_norm.eps
                                                : a->v_norm.eps,
        .mscale = rotates ? a->rope.mscale : 1.0f,
        .temp_scale = a->temp_scale,
    };
}

static int add_attention(builder *b, const qn_layer *l, int layer, qn_view in)
{
    const qn_attn *a = &l->attn;
    if (a->kind == QN_ATTN_MATRIX) {
        add_branch_out(b, &a->out, &a->post_norm, layer, "attn_out", "attn_post_norm", in);
        return 0;
    }
    bool owns = a->kv_source == layer;
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
        s = add_linear(b, &one, 1, layer, QN_ROWS_TOKENS, "qkv", in, view(B_QKV, 0, width));
    } else {
        static const qn_linear absent;
        const qn_linear *three[3] = {&a->q, owns ? &a->k : &absent, owns && !a->v_from_k ? &a->v : &absent};
        s = add_linear(b, three, 3, layer, QN_ROWS_TOKENS, owns ? "qkv" : "q", in, view(B_QKV, 0, width));
    }
    s->spec.linear.clamp = a->clamp;
    add_rope_kv(b, a, layer, owns);

    s = add_step(b, QN_OP_ATTENTION, layer, QN_ROWS_TOKENS, "attention");
    s->in[0] = view(B_QKV, 0, nq);
    s->out[0] = view(B_ATT, 0, a->n_head * a->v_dim);
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
        add_norm(b, &a->sub_norm, layer, QN_ROWS_TOKENS, "attn_sub_norm", att, att, false, 1.0f);
    }
    add_branch_out(b, &a->out, &a->post_norm, layer, "attn_out", "attn_post_norm", att);
    return 0;
}

static void add_ffn(builder *b, const qn_layer *l, int layer, qn_view in)
{
    const qn_ffn *f = &l->ffn;
    qn_view mid = view(B_FFN, 0, f->n_ff);
    if (f->kind == QN_FFN_GATED) {
        qn_step *s = add_step(b, QN_OP_GLU, layer, QN_ROWS_TOKENS, "ffn_glu");
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
        qn_step *s = add_linear(b, &u, 1, layer, QN_ROWS_TOKENS, "ffn_up", in, mid);
        s->spec.linear.act = f->act;
        s->spec.linear.has_div = f->act_div != NULL;
        s->w[9] = f->act_div;
        if (f->act == QN_ACT_XIELU) {
            float x[4] = {f->xielu_alpha_n, f->xielu_alpha_p, f->xielu_beta, f->xielu_eps};
            memcpy(s->spec.linear.xielu, x, sizeof x);
        }
    }
    if (f->sub_norm.kind != QN_NORM_NONE) {
        add_norm(b, &f->sub_norm, layer, QN_ROWS_TOKENS, "ffn_sub_norm", mid, mid, false, 1.0f);
    }
    add_branch_out(b, &f->down, &f->post_norm, layer, "ffn_down", "ffn_post_norm", mid);
}

static void add_mix(builder *b, int layer, const char *name, qn_view in0, qn_view in1, qn_view out,
                    const qn_tensor *s0, const qn_tensor *s1)
{
    qn_step *s = add_step(b, QN_OP_MIX, layer, QN_ROWS_TOKENS, name);
    s->in[0] = in0;
    s->in[1] = in1;
    s->out[0] = out;
    s->w[0] = s0;
    s->w[1] = s1;
    s->spec.mix =
        (qn_spec_mix){.n = in0.width, .has_in1 = in1.buf >= 0, .a = 1.0f, .b = in1.buf >= 0 ? 1.0f : 0.0f};
}

/* What the ops of this version cannot serve is refused here, by layer and choice. */
static int check_served(builder *b, const qn_layer *l, int layer)
{
    const qn_model *m = b->m;
    const char *what = NULL;
    if (l->attn.kind == QN_ATTN_LATENT) {
        what = "attention.kind: latent";
    } else if (l->ple.gate.w || m->ple_width > 0) {
        what = "embedding.per_layer";
    } else if (m->n_stream > 1) {
        what = "altup.streams";
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

static int add_layer(builder *b, int layer)
{
    const qn_layer *l = &b->m->layers[layer];
    if (check_served(b, l, layer)) {
        return -1;
    }
    if (l->skip) {
        return 0;
    }
    int n = b->m->n_embd;
    qn_view x = view(B_X, 0, n), h = view(B_H, 0, n), h2 = view(B_H2, 0, n);
    qn_view attn_in = x, ffn_in = x;
    bool has_attn = l->attn.kind != QN_ATTN_NONE;
    if (has_attn && l->attn.norm.kind != QN_NORM_NONE) {
        add_norm(b, &l->attn.norm, layer, QN_ROWS_TOKENS, "attn_norm", x, h, false, 1.0f);
        attn_in = h;
    }
    if (l->ffn.input_shared) {
        ffn_in = attn_in;
    } else if (l->parallel && l->ffn.norm.kind != QN_NORM_NONE) {
        /* Both branches read the stream as it was: this norm comes before the attention's residual sum. */
        add_norm(b, &l->ffn.norm, layer, QN_ROWS_TOKENS, "ffn_norm", x, h2, false, 1.0f);
        ffn_in = h2;
    } else if (l->parallel) {
        add_mix(b, layer, "ffn_input", x, no_view, h2, NULL, NULL);
        ffn_in = h2;
    }
    if (has_attn && add_attention(b, l, layer, attn_in)) {
        return -1;
    }
    if (l->ffn.kind != QN_FFN_NONE) {
        if (!l->parallel && !l->ffn.input_shared && l->ffn.norm.kind != QN_NORM_NONE) {
            add_norm(b, &l->ffn.norm, layer, QN_ROWS_TOKENS, "ffn_norm", x, h, false, 1.0f);
            ffn_in = h;
        }
        add_ffn(b, l, layer, ffn_in);
    }
    if (l->out_scale) {
        add_mix(b, layer, "layer_scale", x, no_view, x, l->out_scale, NULL);
    }
    if (l->embed_skip) {
        add_mix(b, layer, "embed_skip", x, view(B_SKIP, 0, n), x, NULL, l->embed_skip);
    }
    if (l->loop_norm_after) {
        add_norm(b, &b->m->out_norm, layer, QN_ROWS_TOKENS, "loop_norm", x, x, false, b->m->out_norm_scale);
    }
    return 0;
}

static void add_embed(builder *b)
{
    const qn_model *m = b->m;
    qn_view x = view(B_X, 0, m->n_embd);
    qn_step *s = add_step(b, QN_OP_EMBED, -1, QN_ROWS_TOKENS, "embed");
    s->out[0] = x;
    s->w[0] = m->tok_embd;
    s->w[1] = m->pos_embd;
    s->spec.embed = (qn_spec_embed){.n_embd = m->n_embd,
                                    .n_vocab = m->n_vocab,
                                    .dtype = (int32_t)m->tok_embd->type,
                                    .pos_dtype = m->pos_embd ? (int32_t)m->pos_embd->type : -1,
                                    .n_pos = m->pos_embd ? (int32_t)m->pos_embd->ne[1] : 0,
                                    .scale = m->embd_scale};
    if (m->embd_norm.kind != QN_NORM_NONE) {
        add_norm(b, &m->embd_norm, -1, QN_ROWS_TOKENS, "embed_norm", x, x, false, 1.0f);
    }
    if (b->has_skip) {
        add_mix(b, -1, "embed_keep", x, no_view, view(B_SKIP, 0, m->n_embd), NULL, NULL);
    }
}

static void add_output(builder *b)
{
    const qn_model *m = b->m;
    qn_rows rows = QN_ROWS_TOKENS;
    qn_view x = view(B_X, 0, m->n_embd), h = view(B_HO, 0, m->n_embd);
    if (b->plan->phase == QN_PHASE_PREFILL) {
        rows = QN_ROWS_OUTPUTS;
        qn_step *s = add_step(b, QN_OP_SELECT, -1, rows, "select");
        s->in[0] = x;
        x = s->out[0] = view(B_XO, 0, m->n_embd);
        s->spec.select.n = m->n_embd;
    }
    if (m->out_norm.kind == QN_NORM_NONE) {
        h = x;
    } else {
        add_norm(b, &m->out_norm, -1, rows, "output_norm", x, h, false, m->out_norm_scale);
    }
    const qn_linear *out = &m->out;
    qn_step *s = add_linear(b, &out, 1, -1, rows, "output", h, view(B_LOGITS, 0, m->n_vocab));
    s->spec.linear.out_scale = m->logit_scale;
    s->spec.linear.softcap = m->logit_softcap;
    b->plan->logits_buf = B_LOGITS;
}

static int build_phase(builder *b, qn_plan *plan, qn_phase phase)
{
    plan->phase = phase;
    plan->n_step = 0;
    plan->steps = qn_arena_alloc(&b->p->arena,
                                 sizeof(qn_step) * (size_t)(b->m->n_layer * STEPS_PER_LAYER + STEPS_OUTSIDE));
    if (!plan->steps) {
        return qn_fail(b->err, "out of memory for the plan");
    }
    b->plan = plan;
    add_embed(b);
    for (int i = 0; i < b->m->n_layer; i++) {
        if (add_layer(b, i)) {
            return -1;
        }
    }
    add_output(b);
    return 0;
}

static void build_bufs(qn_plans *p, const qn_model *m)
{
    int qkv = 0, att = 0, ffn = 0;
    for (int i = 0; i < m->n_layer; i++) {
        const qn_attn *a = &m->layers[i].attn;
        if (a->kind == QN_ATTN_STANDARD) {
            qkv = max_int(qkv, a->n_head * a->k_dim + a->n_head_kv * (a->k_dim + a->v_dim));
            att = max_int(att, a->n_head * a->v_dim);
        }
        ffn = max_int(ffn, m->layers[i].ffn.n_ff);
    }
    const qn_buf bufs[B_COUNT] = {
        [B_X] = {"x", m->n_embd, QN_ROWS_TOKENS},
        [B_H] = {"h", m->n_embd, QN_ROWS_TOKENS},
        [B_H2] = {"h2", m->n_embd, QN_ROWS_TOKENS},
        [B_QKV] = {"qkv", qkv, QN_ROWS_TOKENS},
        [B_ATT] = {"att", att, QN_ROWS_TOKENS},
        [B_FFN] = {"ffn", ffn, QN_ROWS_TOKENS},
        [B_Y] = {"y", m->n_embd, QN_ROWS_TOKENS},
        [B_SKIP] = {"skip", m->n_embd, QN_ROWS_TOKENS},
        [B_XO] = {"xo", m->n_embd, QN_ROWS_OUTPUTS},
        [B_HO] = {"ho", m->n_embd, QN_ROWS_OUTPUTS},
        [B_LOGITS] = {"logits", m->n_vocab, QN_ROWS_OUTPUTS},
    };
    memcpy(p->bufs, bufs, sizeof bufs);
    p->n_buf = B_COUNT;
}

/* A buffer no step names takes no memory. */
static void drop_unused_bufs(qn_plans *p)
{
    bool used[B_COUNT] = {false};
    const qn_plan *plans[2] = {&p->prefill, &p->decode};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < plans[k]->n_step; i++) {
            const qn_step *s = &plans[k]->steps[i];
            for (int v = 0; v < QN_STEP_VIEWS; v++) {
                if (s->in[v].buf >= 0) {
                    used[s->in[v].buf] = true;
                }
                if (s->out[v].buf >= 0) {
                    used[s->out[v].buf] = true;
                }
            }
        }
    }
    for (int i = 0; i < B_COUNT; i++) {
        if (!used[i]) {
            p->bufs[i].width = 0;
        }
    }
}

static void build_kv(builder *b)
{
    const qn_model *m = b->m;
    for (int i = 0; i < m->n_layer; i++) {
        const qn_attn *a = &m->layers[i].attn;
        b->kv_of_layer[i] = -1;
        if (!m->layers[i].skip && a->kind == QN_ATTN_STANDARD && a->kv_source == i) {
            b->kv_of_layer[i] = b->p->n_kv;
            b->p->kv[b->p->n_kv++] = (qn_kv_cache){i, a->n_head_kv, a->k_dim, a->v_dim, a->window};
        }
    }
}

int qn_plans_build(qn_plans **out, const qn_model *model, qn_err *err)
{
    qn_plans *p = qn_calloc(1, sizeof *p);
    if (!p) {
        return qn_fail(err, "out of memory for the plan");
    }
    builder b = {.p = p, .m = model, .err = err};
    size_t n = (size_t)model->n_layer;
    p->model = model;
    p->bufs = qn_arena_alloc(&p->arena, sizeof(qn_buf) * B_COUNT);
    p->kv = qn_arena_alloc(&p->arena, sizeof(qn_kv_cache) * (n + 1));
    b.kv_of_layer = qn_arena_alloc(&p->arena, sizeof(int) * (n + 1));
    if (!p->bufs || !p->kv || !b.kv_of_layer) {
        qn_plans_free(p);
        return qn_fail(err, "out of memory for the plan");
    }
    for (int i = 0; i < model->n_layer; i++) {
        b.has_skip |= model->layers[i].embed_skip != NULL;
    }
    build_bufs(p, model);
    build_kv(&b);
    if (build_phase(&b, &p->prefill, QN_PHASE_PREFILL) || build_phase(&b, &p->decode, QN_PHASE_DECODE)) {
        qn_plans_free(p);
        return -1;
    }
    drop_unused_bufs(p);
    *out = p;
    return 0;
}

void qn_plans_free(qn_plans *p)
{
    if (p) {
        qn_arena_free(&p->arena);
        free(p);
    }
}

int qn_plan_find(const qn_plan *p, const char *name)
{
    for (int i = 0; i < p->n_step; i++) {
        if (strcmp(p->steps[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

uint64_t qn_step_weight_bytes(const qn_step *s)
{
    uint64_t sum = 0;
    for (int i = 0; i < QN_STEP_WEIGHTS; i++) {
        const qn_tensor *t = s->w[i];
        if (t) {
            sum += s->op->id == QN_OP_EMBED ? t->n_bytes / t->ne[1] : t->n_bytes;
        }
    }
    return sum;
}
