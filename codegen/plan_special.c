/* plan_special.c: what only some models have: per-layer embeddings, several residual streams with a low-rank
 * residual, latent attention. */
#include <math.h>

#include "codegen/plan_internal.h"

static const float SQRT_HALF = 0.70710678118654752f;

static void add_mul(qn_planner *b, int layer, const char *name, qn_view in0, qn_view in1, const qn_tensor *w,
                    qn_view out)
{
    qn_step *s = qn_plan_step(b, QN_OP_MUL, layer, QN_ROWS_TOKENS, name);
    s->in[0] = in0;
    s->in[1] = in1;
    s->out[0] = out;
    s->w[0] = w;
    s->spec.mul = (qn_spec_mul){.n = in0.width, .has_w = w != NULL};
}

/* Per-layer inputs, [n_layer][P]: (sqrt(P) row of the table + norm(proj x / sqrt(n_embd))) / sqrt(2). */
void qn_plan_per_layer_inputs(qn_planner *b, qn_view x)
{
    const qn_model *m = b->m;
    int width = (int)m->ple_tok_embd->ne[0];
    qn_view in = qn_view_of(B_PLE, 0, width), y = qn_view_of(B_PLE_Y, 0, width);
    qn_step *s = qn_plan_step(b, QN_OP_EMBED, -1, QN_ROWS_TOKENS, "layer_embed");
    s->out[0] = in;
    s->w[0] = m->ple_tok_embd;
    s->spec.embed = (qn_spec_embed){.n_embd = width,
                                    .n_vocab = m->n_vocab,
                                    .dtype = (int32_t)m->ple_tok_embd->type,
                                    .pos_dtype = -1,
                                    .scale = SQRT_HALF * sqrtf((float)m->ple_width)};
    const qn_linear *proj = &m->ple_proj;
    s = qn_plan_linear(b, &proj, 1, -1, QN_ROWS_TOKENS, "layer_proj", x, y);
    s->spec.linear.out_scale = 1.0f / sqrtf((float)m->n_embd);
    if (m->ple_norm.kind == QN_NORM_NONE) {
        qn_plan_mix(b, -1, "layer_inputs", in, y, in, NULL, NULL)->spec.mix.b = SQRT_HALF;
        return;
    }
    s = qn_plan_norm(b, &m->ple_norm, -1, QN_ROWS_TOKENS, "layer_inputs", y, in, in, SQRT_HALF);
    s->spec.norm.n = m->ple_width;
    s->spec.norm.groups = width / m->ple_width;
}

/* x += norm(proj (gelu(gate x) * input of the layer)); of several streams the first, scaled, is read and the
 * others are written. */
void qn_plan_per_layer(qn_planner *b, int layer)
{
    const qn_model *m = b->m;
    const qn_layer *l = &m->layers[layer];
    int n = m->n_embd, p = m->ple_width;
    bool streams = m->n_stream > 1;
    qn_view x = qn_view_of(B_X, 0, n), from = x, h = qn_view_of(B_PLE_H, 0, p), y = qn_view_of(B_Y, 0, n);
    if (streams) {
        from = qn_view_of(B_H, 0, n);
        add_mul(b, layer, "layer_scaled", qn_view_of(B_STREAMS, 0, n), qn_no_view, l->altup.correct_scale,
                from);
    }
    const qn_linear *gate = &l->ple.gate, *proj = &l->ple.proj;
    qn_step *s = qn_plan_linear(b, &gate, 1, layer, QN_ROWS_TOKENS, "layer_gate", from, h);
    s->spec.linear.act = QN_ACT_GELU;
    add_mul(b, layer, "layer_gated", h, qn_view_of(B_PLE, l->file_index * p, p), NULL, h);
    qn_plan_linear(b, &proj, 1, layer, QN_ROWS_TOKENS, "layer_proj", h, y);
    bool normed = l->ple.post_norm.kind != QN_NORM_NONE;
    if (normed) {
        qn_plan_norm(b, &l->ple.post_norm, layer, QN_ROWS_TOKENS, "layer_post_norm", y,
                     streams ? qn_no_view : x, streams ? y : x, 1.0f);
    }
    if (streams) {
        qn_view others = qn_view_of(B_STREAMS, n, (m->n_stream - 1) * n);
        qn_plan_mix(b, layer, "layer_add", others, y, others, NULL, NULL);
    } else if (!normed) {
        qn_plan_mix(b, layer, "layer_add", x, y, x, NULL, NULL);
    }
}

static void add_rescale(qn_planner *b, qn_rows rows, const char *name, qn_view in, qn_view ref, qn_view out,
                        bool average)
{
    qn_step *s = qn_plan_step(b, QN_OP_RESCALE, -1, rows, name);
    s->in[0] = in;
    s->in[1] = ref;
    s->out[0] = out;
    s->spec.rescale = (qn_spec_rescale){.n = ref.width, .groups = in.width / ref.width, .average = average};
}

/* Products of stream 0 (or of each stream) with the matrices of streams 1 and up. */
static void stream_products(qn_planner *b, qn_rows rows, const char *name, const qn_tensor *w, int in_buf,
                            bool each, int out_buf, int out_first)
{
    int n = b->m->n_embd;
    for (int i = 1; i < b->m->n_stream; i++) {
        qn_linear one = {.w = &w[i - 1]};
        const qn_linear *lin = &one;
        char text[24];
        snprintf(text, sizeof text, "%s.%d", name, i);
        qn_plan_linear(b, &lin, 1, -1, rows, text, qn_view_of(in_buf, each ? i * n : 0, n),
                       qn_view_of(out_buf, (out_first + i - 1) * n, n));
    }
}

void qn_plan_streams_begin(qn_planner *b)
{
    int n = b->m->n_embd, s = b->m->n_stream;
    qn_view first = qn_view_of(B_STREAMS, 0, n), others = qn_view_of(B_STREAMS, n, (s - 1) * n);
    stream_products(b, QN_ROWS_TOKENS, "stream", b->m->stream_proj, B_STREAMS, false, B_STREAMS, 1);
    add_rescale(b, QN_ROWS_TOKENS, "stream_scale", others, first, others, false);
}

qn_view qn_plan_streams_end(qn_planner *b, qn_rows rows, qn_view streams)
{
    int n = b->m->n_embd;
    qn_view out = qn_view_of(B_XO, 0, n), others = qn_view_of(B_XM, 0, (b->m->n_stream - 1) * n);
    stream_products(b, rows, "unstream", b->m->stream_unembd, streams.buf, true, B_XM, 0);
    add_rescale(b, rows, "stream_mean", others, qn_view_of(streams.buf, 0, n), out, true);
    return out;
}

static void add_altup(qn_planner *b, int layer, const char *name, bool correct, qn_view in, qn_view z,
                      qn_view out)
{
    const qn_altup *a = &b->m->layers[layer].altup;
    const qn_linear *coef = correct ? &a->correct : &a->predict;
    qn_step *s = qn_plan_step(b, QN_OP_ALTUP, layer, QN_ROWS_TOKENS, name);
    s->in[0] = in;
    s->in[1] = z;
    s->out[0] = out;
    s->w[0] = a->router_norm.w;
    s->w[1] = a->router.w;
    s->w[2] = coef->w;
    s->spec.altup = (qn_spec_altup){.n = b->m->n_embd,
                                    .n_stream = b->m->n_stream,
                                    .correct = correct,
                                    .router_dtype = (int32_t)a->router.w->type,
                                    .coef_dtype = (int32_t)coef->w->type,
                                    .eps = a->router_norm.eps};
}

void qn_plan_predict(qn_planner *b, int layer)
{
    int all = b->m->n_stream * b->m->n_embd;
    add_altup(b, layer, "predict", false, qn_view_of(B_STREAMS, 0, all), qn_no_view,
              qn_view_of(B_PREDICT, 0, all));
}

void qn_plan_correct(qn_planner *b, int layer)
{
    int all = b->m->n_stream * b->m->n_embd;
    add_altup(b, layer, "correct", true, qn_view_of(B_PREDICT, 0, all), qn_view_of(B_X, 0, b->m->n_embd),
              qn_view_of(B_STREAMS, 0, all));
}

void qn_plan_laurel(qn_planner *b, int layer, qn_view in)
{
    const qn_altup *a = &b->m->layers[layer].altup;
    const qn_linear *left = &a->laurel_l, *right = &a->laurel_r;
    qn_view low = qn_view_of(B_LOW, 0, (int)left->w->ne[1]), y = qn_view_of(B_Y, 0, b->m->n_embd);
    qn_view out = qn_view_of(B_H2, 0, b->m->n_embd);
    qn_plan_linear(b, &left, 1, layer, QN_ROWS_TOKENS, "laurel_l", in, low);
    qn_plan_linear(b, &right, 1, layer, QN_ROWS_TOKENS, "laurel_r", low, y);
    if (a->laurel_norm.kind == QN_NORM_NONE) {
        qn_plan_mix(b, layer, "laurel", in, y, out, NULL, NULL);
    } else {
        qn_plan_norm(b, &a->laurel_norm, layer, QN_ROWS_TOKENS, "laurel", y, in, out, 1.0f);
    }
}

void qn_plan_laurel_join(qn_planner *b, int layer)
{
    qn_view x = qn_view_of(B_X, 0, b->m->n_embd), laurel = qn_view_of(B_H2, 0, b->m->n_embd);
    qn_step *s = qn_plan_mix(b, layer, "laurel_join", x, laurel, x, NULL, NULL);
    s->spec.mix.a = s->spec.mix.b = SQRT_HALF;
}

/* q = q_b norm(q_a in); kv_a gives [kv_rank | shared rope key]; kv_b gives per head [k without rope | v]. */
void qn_plan_latent(qn_planner *b, int layer, qn_view in)
{
    const qn_attn *a = &b->m->layers[layer].attn;
    int rot = a->rope.n_rot, q_rank = a->q_a.w ? (int)a->q_a.w->ne[1] : 0;
    int nq = a->n_head * a->k_dim, nv = a->n_head * a->v_dim;
    qn_view q = qn_view_of(B_QKV, 0, nq), q_low = qn_view_of(B_LATENT, 0, q_rank);
    qn_view kv_low = qn_view_of(B_LATENT, q_rank, a->kv_rank);
    qn_view both = qn_view_of(B_LATENT, 0, q_rank + a->kv_rank + rot);
    const qn_linear *down[2] = {&a->q_a, &a->kv_a}, *q_up = q_rank ? &a->q_b : &a->q, *kv_up = &a->kv_b;
    qn_plan_linear(b, down, 2, layer, QN_ROWS_TOKENS, "latent", in, both);
    if (a->q_a_norm.kind != QN_NORM_NONE) {
        qn_plan_norm(b, &a->q_a_norm, layer, QN_ROWS_TOKENS, "q_norm", q_low, qn_no_view, q_low, 1.0f);
    }
    qn_plan_linear(b, &q_up, 1, layer, QN_ROWS_TOKENS, "q", q_rank ? q_low : in, q);
    if (a->kv_a_norm.kind != QN_NORM_NONE) {
        qn_plan_norm(b, &a->kv_a_norm, layer, QN_ROWS_TOKENS, "kv_norm", kv_low, qn_no_view, kv_low, 1.0f);
    }
    qn_view kv = qn_view_of(B_KVB, 0, nq - a->n_head * rot + nv);
    qn_plan_linear(b, &kv_up, 1, layer, QN_ROWS_TOKENS, "kv", kv_low, kv);
    qn_step *s = qn_plan_step(b, QN_OP_LATENT_KV, layer, QN_ROWS_TOKENS, "latent_kv");
    s->in[0] = kv;
    s->in[1] = qn_view_of(B_LATENT, q_rank + a->kv_rank, rot);
    s->out[0] = qn_view_of(B_QKV, nq, nq);
    s->out[1] = qn_view_of(B_QKV, 2 * nq, nv);
    s->spec.latent_kv =
        (qn_spec_latent_kv){.n_head = a->n_head, .nope = a->k_dim - rot, .n_rot = rot, .v_dim = a->v_dim};
}

static bool is_plain(const qn_tensor *t)
{
    return t->type == QN_F32 || t->type == QN_F16 || t->type == QN_BF16;
}

const char *qn_plan_unserved(const qn_planner *b, int layer)
{
    const qn_model *m = b->m;
    const qn_layer *l = &m->layers[layer];
    const qn_altup *a = &l->altup;
    if (m->n_stream > 1) {
        bool plain = is_plain(a->router.w) && is_plain(a->predict.w) && is_plain(a->correct.w);
        return !plain               ? "altup.router, predict or correct of a quantised type"
               : l->parallel        ? "altup.streams with residual.parallel"
               : l->embed_skip      ? "altup.streams with residual.embed_skip"
               : l->out_scale       ? "altup.streams with residual.layer_scale"
               : l->loop_norm_after ? "altup.streams with layers.loop_norm"
               : l->attn.kind != QN_ATTN_STANDARD
                   ? "altup.streams with attention of another kind than standard"
               : l->ffn.kind == QN_FFN_NONE                         ? "altup.streams without a feed-forward"
               : l->attn.norm.kind == QN_NORM_NONE                  ? "altup.streams without attention.norm"
               : (a->laurel_l.w != NULL) != (a->laurel_r.w != NULL) ? "altup.laurel_l without laurel_r"
               : b->has_skip                                        ? "altup.streams with residual.embed_skip"
                                                                    : NULL;
    }
    if (l->attn.kind == QN_ATTN_LATENT) {
        return l->attn.rope.style == QN_ROPE_NONE ? "attention.kind: latent with rope.style: none"
               : l->attn.clamp > 0                ? "attention.kind: latent with attention.clamp"
                                                  : NULL;
    }
    return NULL;
}
