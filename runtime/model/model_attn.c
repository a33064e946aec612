/* model_attn.c: the attention branch of a layer: what the config says of it, bound to the file's tensors. */
#include <string.h>

#include "model/model_internal.h"

static uint64_t n_embd(const qn_binder *b)
{
    return (uint64_t)b->m->n_embd;
}

static int check_heads(const qn_binder *b, const qn_attn *a)
{
    const char *file = qn_gguf_path(b->g);
    char origin[192];
    const qn_layer_cfg *c = b->cfg;
    if (a->n_head < 1) {
        qn_config_origin(b->config, c, &c->attention.n_head, origin, sizeof origin);
        return qn_fail(b->err, "%s: layer %d has %d query heads, at least 1 is needed (%s)", file, b->il,
                       a->n_head, origin);
    }
    if (a->kind != QN_ATTN_STANDARD) {
        return 0;
    }
    if (a->n_head_kv < 1 || a->n_head % a->n_head_kv != 0) {
        qn_config_origin(b->config, c, &c->attention.n_head_kv, origin, sizeof origin);
        return qn_fail(b->err,
                       "%s: layer %d has %d query heads and %d key heads; the first must be a multiple of "
                       "the second (%s)",
                       file, b->il, a->n_head, a->n_head_kv, origin);
    }
    return 0;
}

/* Shape of the weight of a q or k norm over `heads` heads. */
static qn_shape qk_shape(const qn_attn *a, int heads)
{
    uint64_t dim = (uint64_t)a->k_dim, n = (uint64_t)heads;
    if (a->qk_width == QN_QK_FULL) {
        return (qn_shape){{dim * n, 1, 1, 1}, true};
    }
    switch (a->qk_weight) {
    case QN_QKW_HEAD_CHANNEL:
        return (qn_shape){{dim, n, 1, 1}, true};
    case QN_QKW_PER_HEAD:
        return (qn_shape){{1, n, 1, 1}, true};
    default:
        return (qn_shape){{dim, 1, 1, 1}, true};
    }
}

static int bind_qk_norm(qn_binder *b, qn_attn *a, bool with_k)
{
    const qn_layer_cfg *c = b->cfg;
    a->qk_norm = (qn_norm_kind)c->attention.qk_norm.kind;
    a->qk_width = (qn_qk_width)c->attention.qk_norm.width;
    a->qk_order = (qn_qk_order)c->attention.qk_norm.order;
    a->qk_weight = (qn_qk_weight)c->attention.qk_norm.weight;
    if (a->qk_norm == QN_NORM_NONE) {
        return 0;
    }
    a->q_norm.kind = a->qk_norm;
    a->q_norm.eps = (float)c->norm.eps;
    if (qn_bind_tensor(b, &a->q_norm.w, &c->attention.qk_norm.q, "weight", qk_shape(a, a->n_head),
                       QN_NEED_YES)) {
        return -1;
    }
    if (!with_k) {
        return 0;
    }
    a->k_norm.kind = a->qk_norm;
    a->k_norm.eps = (float)c->norm.eps;
    return qn_bind_tensor(b, &a->k_norm.w, &c->attention.qk_norm.k, "weight", qk_shape(a, a->n_head_kv),
                          QN_NEED_YES);
}

static bool has(const qn_binder *b, const char *name)
{
    return name && qn_bind_find(b, name, "weight");
}

/* q, k, v in three tensors; of a layer that reads another's cache only q. */
static int bind_split(qn_binder *b, qn_attn *a, bool with_kv)
{
    const qn_layer_cfg *c = b->cfg;
    qn_need bias = (qn_need)c->attention.bias;
    uint64_t q_rows = (uint64_t)a->n_head * (uint64_t)a->k_dim;
    uint64_t k_rows = (uint64_t)a->n_head_kv * (uint64_t)a->k_dim;
    uint64_t v_rows = (uint64_t)a->n_head_kv * (uint64_t)a->v_dim;
    if (qn_bind_linear(b, &a->q, &c->attention.q, n_embd(b), q_rows, bias)) {
        return -1;
    }
    if (!with_kv) {
        return 0;
    }
    a->v_from_k = c->attention.v_from_k == QN_NEED_YES ||
                  (c->attention.v_from_k == QN_NEED_OPTIONAL && !has(b, c->attention.v));
    if (a->v_from_k && a->v_dim != a->k_dim) {
        return qn_fail(b->err,
                       "%s: layer %d takes its values from its keys, but a value is %d wide and a key %d",
                       qn_gguf_path(b->g), b->il, a->v_dim, a->k_dim);
    }
    if (qn_bind_linear(b, &a->k, &c->attention.k, n_embd(b), k_rows, bias)) {
        return -1;
    }
    return a->v_from_k ? 0 : qn_bind_linear(b, &a->v, &c->attention.v, n_embd(b), v_rows, bias);
}

static int bind_standard(qn_binder *b, qn_attn *a, bool with_kv)
{
    const qn_layer_cfg *c = b->cfg;
    uint64_t rows =
        (uint64_t)a->n_head * (uint64_t)a->k_dim + (uint64_t)a->n_head_kv * (uint64_t)(a->k_dim + a->v_dim);
    bool fused = c->attention.fused == QN_FUSED_YES ||
                 (c->attention.fused == QN_FUSED_AUTO && has(b, c->attention.qkv));
    if (fused && !with_kv) {
        return qn_fail(b->err, "%s: layer %d reads another layer's cache, so its %s cannot be fused",
                       qn_gguf_path(b->g), b->il, c->attention.qkv ? c->attention.qkv : "projections");
    }
    if (fused ? qn_bind_linear(b, &a->qkv, &c->attention.qkv, n_embd(b), rows, (qn_need)c->attention.bias)
              : bind_split(b, a, with_kv)) {
        return -1;
    }
    if (with_kv && c->attention.v_norm != QN_NORM_NONE) {
        a->v_norm.kind = (qn_norm_kind)c->attention.v_norm;
        a->v_norm.eps = (float)c->norm.eps;
    }
    return bind_qk_norm(b, a, with_kv);
}

static int bind_latent(qn_binder *b, qn_attn *a)
{
    const qn_layer_cfg *c = b->cfg;
    uint64_t q_rank = (uint64_t)c->latent.q_rank, kv_rank = (uint64_t)c->latent.kv_rank, e = n_embd(b);
    uint64_t q_rows = (uint64_t)a->n_head * (uint64_t)a->k_dim, rot = (uint64_t)a->rope.n_rot;
    if (kv_rank < 1 || !c->latent.kv_a || !c->latent.kv_b) {
        return qn_fail(b->err, "%s: latent attention needs latent.kv_rank, kv_a and kv_b", b->m->config_name);
    }
    if (rot >= (uint64_t)a->k_dim) {
        return qn_fail(b->err, "%s: layer %d: rope.dim %d leaves nothing of a head of %d", qn_gguf_path(b->g),
                       b->il, a->rope.n_rot, a->k_dim);
    }
    a->kv_rank = c->latent.kv_rank;
    a->n_head_kv = a->n_head;
    uint64_t kv_rows = (uint64_t)a->n_head * ((uint64_t)a->k_dim - rot + (uint64_t)a->v_dim);
    int rc = q_rank ? qn_bind_linear(b, &a->q_a, &c->latent.q_a, e, q_rank, QN_NEED_NO) ||
                          qn_bind_rms(b, &a->q_a_norm, &c->latent.q_a_norm, q_rank) ||
                          qn_bind_linear(b, &a->q_b, &c->latent.q_b, q_rank, q_rows, QN_NEED_NO)
                    : qn_bind_linear(b, &a->q, &c->attention.q, e, q_rows, (qn_need)c->attention.bias);
    if (!rc && q_rank && !(b->faults && b->faults->n) && (!a->q_a.w || !a->q_b.w)) {
        return qn_fail(b->err, "%s: latent.q_rank needs latent.q_a and q_b", b->m->config_name);
    }
    return rc || qn_bind_linear(b, &a->kv_a, &c->latent.kv_a, e, kv_rank + rot, QN_NEED_NO) ||
                   qn_bind_rms(b, &a->kv_a_norm, &c->latent.kv_a_norm, kv_rank) ||
                   qn_bind_linear(b, &a->kv_b, &c->latent.kv_b, kv_rank, kv_rows, QN_NEED_NO)
               ? -1
               : 0;
}

static void copy_numbers(qn_attn *a, const qn_layer_cfg *c)
{
    a->clamp = (float)c->attention.clamp;
    a->scale = (float)c->attention.scale;
    a->softcap = (float)c->attention.softcap;
    a->alibi_max_bias = (float)c->attention.alibi;
    a->temp_scale = (float)c->attention.temperature;
    a->temp_ctx = c->attention.temperature_ctx;
    a->window = c->attention.window;
}

/* A projection that the branch cannot do without, but whose name is `none`. */
static int need_names(const qn_binder *b, const qn_attn *a)
{
    const qn_layer_cfg *c = b->cfg;
    bool split = a->kind == QN_ATTN_STANDARD && !a->qkv.w;
    if (!c->attention.out || (split && !a->q.w) || (split && a->kv_source == b->il && !a->k.w) ||
        (split && a->kv_source == b->il && !a->v.w && !a->v_from_k)) {
        return qn_fail(b->err, "%s: layer %d has attention, but one of attention.q, k, v and out is none",
                       b->m->config_name, b->il);
    }
    return 0;
}

int qn_bind_attn(qn_binder *b, qn_layer *l)
{
    const qn_layer_cfg *c = b->cfg;
    qn_attn *a = &l->attn;
    uint64_t e = n_embd(b), out_width = e;
    a->kind = (qn_attn_kind)c->attention.kind;
    if (a->kind == QN_ATTN_NONE) {
        return 0;
    }
    if (qn_bind_norm(b, &a->norm, &c->attention.norm, e) ||
        qn_bind_norm(b, &a->post_norm, &c->attention.post_norm, e)) {
        return -1;
    }
    if (a->kind != QN_ATTN_MATRIX) {
        a->n_head = c->attention.n_head;
        a->n_head_kv = c->attention.n_head_kv;
        a->k_dim = c->attention.head_dim;
        a->v_dim = c->attention.value_dim;
        copy_numbers(a, c);
        if (check_heads(b, a)) {
            return -1;
        }
        if (a->temp_scale != 0 && a->temp_ctx < 1) {
            return qn_fail(b->err, "%s: attention.temperature needs attention.temperature_ctx",
                           b->m->config_name);
        }
        out_width = (uint64_t)a->n_head * (uint64_t)a->v_dim;
        bool latent = a->kind == QN_ATTN_LATENT;
        if (qn_bind_rope(b, &a->rope) ||
            (latent ? bind_latent(b, a) : bind_standard(b, a, a->kv_source == b->il)) ||
            qn_bind_norm(b, &a->sub_norm, &c->attention.sub_norm, out_width)) {
            return -1;
        }
    }
    if (qn_bind_linear(b, &a->out, &c->attention.out, out_width, e, (qn_need)c->attention.out_bias)) {
        return -1;
    }
    return b->faults && b->faults->n ? 0 : need_names(b, a);
}
