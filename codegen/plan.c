/* plan.c: building both plans from a resolved model. plan_print.c prints them. */
#include "codegen/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/plan_internal.h"

enum { STEPS_PER_LAYER = 40, STEPS_OUTSIDE = 64 };

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

/* Appends an empty step; the caller fills spec, views and weights. */
qn_step *qn_plan_step(qn_planner *b, qn_op_id op, int layer, qn_rows rows, const char *name)
{
    qn_step *s = &b->plan->steps[b->plan->n_step++];
    s->op = &qn_ops[op];
    s->layer = layer;
    s->rows = rows;
    s->kv = -1;
    for (int i = 0; i < QN_STEP_VIEWS; i++) {
        s->in[i] = s->out[i] = qn_no_view;
    }
    if (layer >= 0) {
        snprintf(s->name, sizeof s->name, "blk.%d.%s", layer, name);
    } else {
        snprintf(s->name, sizeof s->name, "%s", name);
    }
    return s;
}

qn_step *qn_plan_norm(qn_planner *b, const qn_norm *n, int layer, qn_rows rows, const char *name, qn_view in,
                      qn_view base, qn_view out, float scale)
{
    qn_step *s = qn_plan_step(b, QN_OP_NORM, layer, rows, name);
    s->in[0] = in;
    s->in[1] = base;
    s->out[0] = out;
    s->w[0] = n->w;
    s->w[1] = n->b;
    s->spec.norm = (qn_spec_norm){.n = in.width,
                                  .groups = 1,
                                  .kind = n->kind,
                                  .has_w = n->w != NULL,
                                  .has_b = n->b != NULL,
                                  .residual = base.buf >= 0,
                                  .eps = n->eps,
                                  .out_scale = scale};
    return s;
}

/* Side-by-side products of `in`; segments with w NULL are left out. */
qn_step *qn_plan_linear(qn_planner *b, const qn_linear *const *lins, int n_lin, int layer, qn_rows rows,
                        const char *name, qn_view in, qn_view out)
{
    qn_step *s = qn_plan_step(b, QN_OP_LINEAR, layer, rows, name);
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

qn_step *qn_plan_mix(qn_planner *b, int layer, const char *name, qn_view in0, qn_view in1, qn_view out,
                     const qn_tensor *s0, const qn_tensor *s1)
{
    qn_step *s = qn_plan_step(b, QN_OP_MIX, layer, QN_ROWS_TOKENS, name);
    s->in[0] = in0;
    s->in[1] = in1;
    s->out[0] = out;
    s->w[0] = s0;
    s->w[1] = s1;
    s->spec.mix = (qn_spec_mix){
        .n = in0.width, .n_in1 = in1.buf >= 0 ? in1.width : 0, .a = 1.0f, .b = in1.buf >= 0 ? 1.0f : 0.0f};
    return s;
}

static void add_embed(qn_planner *b)
{
    const qn_model *m = b->m;
    qn_view x = qn_view_of(m->n_stream > 1 ? B_STREAMS : B_X, 0, m->n_embd);
    qn_step *s = qn_plan_step(b, QN_OP_EMBED, -1, QN_ROWS_TOKENS, "embed");
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
        qn_plan_norm(b, &m->embd_norm, -1, QN_ROWS_TOKENS, "embed_norm", x, qn_no_view, x, 1.0f);
    }
    if (b->has_skip) {
        qn_plan_mix(b, -1, "embed_keep", x, qn_no_view, qn_view_of(B_SKIP, 0, m->n_embd), NULL, NULL);
    }
    if (m->ple_width > 0) {
        qn_plan_per_layer_inputs(b, x);
    }
    if (m->n_stream > 1) {
        qn_plan_streams_begin(b);
    }
}

static void add_output(qn_planner *b)
{
    const qn_model *m = b->m;
    bool streams = m->n_stream > 1;
    qn_rows rows = QN_ROWS_TOKENS;
    qn_view x = qn_view_of(streams ? B_STREAMS : B_X, 0, m->n_stream * m->n_embd);
    qn_view h = qn_view_of(B_HO, 0, m->n_embd);
    if (b->plan->phase == QN_PHASE_PREFILL) {
        rows = QN_ROWS_OUTPUTS;
        qn_step *s = qn_plan_step(b, QN_OP_SELECT, -1, rows, "select");
        s->in[0] = x;
        x = s->out[0] = qn_view_of(streams ? B_XS : B_XO, 0, x.width);
        s->spec.select.n = x.width;
    }
    if (streams) {
        x = qn_plan_streams_end(b, rows, x);
    }
    if (m->out_norm.kind == QN_NORM_NONE) {
        h = x;
    } else {
        qn_plan_norm(b, &m->out_norm, -1, rows, "output_norm", x, qn_no_view, h, m->out_norm_scale);
    }
    const qn_linear *out = &m->out;
    qn_step *s = qn_plan_linear(b, &out, 1, -1, rows, "output", h, qn_view_of(B_LOGITS, 0, m->n_vocab));
    s->spec.linear.out_scale = m->logit_scale;
    s->spec.linear.softcap = m->logit_softcap;
    b->plan->logits_buf = B_LOGITS;
}

static int build_phase(qn_planner *b, qn_plan *plan, qn_phase phase)
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
        if (qn_plan_layer(b, i)) {
            return -1;
        }
    }
    add_output(b);
    return 0;
}

static bool has_cache(const qn_attn *a)
{
    return a->kind == QN_ATTN_STANDARD || a->kind == QN_ATTN_LATENT;
}

static void build_bufs(qn_plans *p, const qn_model *m)
{
    int qkv = 0, att = 0, ffn = 0, latent = 0, kvb = 0, low = 0;
    for (int i = 0; i < m->n_layer; i++) {
        const qn_attn *a = &m->layers[i].attn;
        if (has_cache(a)) {
            qkv = max_int(qkv, a->n_head * a->k_dim + a->n_head_kv * (a->k_dim + a->v_dim));
            att = max_int(att, a->n_head * a->v_dim);
        }
        if (a->kind == QN_ATTN_LATENT) {
            int q_rank = a->q_a.w ? (int)a->q_a.w->ne[1] : 0;
            latent = max_int(latent, q_rank + a->kv_rank + a->rope.n_rot);
            kvb = max_int(kvb, a->n_head * (a->k_dim - a->rope.n_rot + a->v_dim));
        }
        const qn_tensor *laurel = m->layers[i].altup.laurel_l.w;
        low = max_int(low, laurel ? (int)laurel->ne[1] : 0);
        ffn = max_int(ffn, m->layers[i].ffn.n_ff);
    }
    int all = m->n_stream * m->n_embd, ple = m->ple_tok_embd ? (int)m->ple_tok_embd->ne[0] : 0;
    const qn_buf bufs[B_COUNT] = {
        [B_X] = {"x", m->n_embd, QN_ROWS_TOKENS},
        [B_H] = {"h", m->n_embd, QN_ROWS_TOKENS},
        [B_H2] = {"h2", m->n_embd, QN_ROWS_TOKENS},
        [B_QKV] = {"qkv", qkv, QN_ROWS_TOKENS},
        [B_LATENT] = {"latent", latent, QN_ROWS_TOKENS},
        [B_KVB] = {"kvb", kvb, QN_ROWS_TOKENS},
        [B_ATT] = {"att", att, QN_ROWS_TOKENS},
        [B_FFN] = {"ffn", ffn, QN_ROWS_TOKENS},
        [B_Y] = {"y", m->n_embd, QN_ROWS_TOKENS},
        [B_SKIP] = {"skip", m->n_embd, QN_ROWS_TOKENS},
        [B_PLE] = {"ple", ple, QN_ROWS_TOKENS},
        [B_PLE_Y] = {"ple_y", ple, QN_ROWS_TOKENS},
        [B_PLE_H] = {"ple_h", m->ple_width, QN_ROWS_TOKENS},
        [B_LOW] = {"low", low, QN_ROWS_TOKENS},
        [B_STREAMS] = {"streams", all, QN_ROWS_TOKENS},
        [B_PREDICT] = {"predict", all, QN_ROWS_TOKENS},
        [B_XS] = {"xs", all, QN_ROWS_OUTPUTS},
        [B_XM] = {"xm", all, QN_ROWS_OUTPUTS},
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

static void build_kv(qn_planner *b)
{
    const qn_model *m = b->m;
    for (int i = 0; i < m->n_layer; i++) {
        const qn_attn *a = &m->layers[i].attn;
        b->kv_of_layer[i] = -1;
        if (!m->layers[i].skip && has_cache(a) && a->kv_source == i) {
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
    qn_planner b = {.p = p, .m = model, .err = err};
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
