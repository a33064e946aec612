/* op_rope_kv.c: QK norm, RoPE, temperature, and the store into the KV cache. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "codegen/kv_type.h"
#include "cpu/cpu.h"

enum { ROW_GRAIN = 4 };

typedef struct job {
    qn_cpu *c;
    const qn_step *s;
    const qn_cpu_rope *rope;
} job;

/* Pair i of the first n_rot dimensions of one head turns by its angle. cs: cos, sin by pair. */
static void rotate(float *x, int n_rot, int style, const float *cs)
{
    int half = n_rot / 2;
    for (int i = 0; i < half; i++) {
        float *a = style == QN_ROPE_NEOX ? x + i : x + 2 * i;
        float *b = style == QN_ROPE_NEOX ? x + i + half : x + 2 * i + 1;
        float c = cs[2 * i], s = cs[2 * i + 1], u = *a, v = *b;
        *a = u * c - v * s;
        *b = u * s + v * c;
    }
}

/* Norm of n_head heads of dim values, or of their whole width; w as qk_weight says. */
static void qk_norm(float *x, int n_head, int dim, const qn_spec_rope_kv *sp, const float *w)
{
    if (sp->qk_width == QN_QK_FULL) {
        qn_cpu_norm_row(x, x, n_head * dim, sp->qk_norm, sp->eps, w, NULL);
        return;
    }
    for (int h = 0; h < n_head; h++) {
        float *head = x + (size_t)h * dim;
        if (sp->qk_weight == QN_QKW_PER_HEAD) {
            qn_cpu_norm_row(head, head, dim, sp->qk_norm, sp->eps, NULL, NULL);
            for (int i = 0; w && i < dim; i++) {
                head[i] *= w[h];
            }
        } else {
            const float *hw = w && sp->qk_weight == QN_QKW_HEAD_CHANNEL ? w + (size_t)h * dim : w;
            qn_cpu_norm_row(head, head, dim, sp->qk_norm, sp->eps, hw, NULL);
        }
    }
}

static void finish_heads(float *x, int n_head, const qn_spec_rope_kv *sp, bool norm, const float *w,
                         const float *cs)
{
    if (norm && sp->qk_order == QN_QK_BEFORE_ROPE) {
        qk_norm(x, n_head, sp->k_dim, sp, w);
    }
    for (int h = 0; cs && h < n_head; h++) {
        rotate(x + (size_t)h * sp->k_dim + sp->rot_at, sp->n_rot, sp->rope_style, cs);
    }
    if (norm && sp->qk_order == QN_QK_AFTER_ROPE) {
        qk_norm(x, n_head, sp->k_dim, sp, w);
    }
}

static void store(const qn_cpu *c, void *cache, qn_cache_type type, int row, int width, const float *x)
{
    if (c->fast && type != QN_CACHE_F16) {
        qn_kv_store(type, x, (uint8_t *)cache + (size_t)row * qn_cache_bytes(type, (size_t)width),
                    (size_t)width);
    } else if (c->fast) {
        c->fast->to_f16(x, (uint16_t *)cache + (size_t)row * width, width);
    } else {
        float *to = (float *)cache + (size_t)row * width;
        memcpy(to, x, sizeof(float) * (size_t)width);
        qn_kv_round(type, to, (size_t)width);
    }
}

static void finish_row(const job *j, int r, int worker)
{
    const qn_cpu *c = j->c;
    const qn_step *s = j->s;
    const qn_spec_rope_kv *sp = &s->spec.rope_kv;
    int pos = qn_cpu_pos(c, r);
    const float *cs = j->rope ? j->rope->cs + (size_t)r * sp->n_rot : NULL;
    const float *qw = s->w[0] ? (const float *)s->w[0]->data : NULL;
    const float *kw = s->w[1] ? (const float *)s->w[1]->data : NULL;
    float *q = qn_cpu_at(c, s->in[0], r);
    finish_heads(q, sp->n_head, sp, sp->q_has_norm, qw, cs);
    if (sp->temp_scale != 0) {
        float t = 1.0f + sp->temp_scale * logf(floorf((float)pos / (float)sp->temp_ctx) + 1.0f);
        for (int i = 0; i < sp->n_head * sp->k_dim; i++) {
            q[i] *= t;
        }
    }
    if (!sp->has_kv) {
        return;
    }
    const qn_cpu_kv *kv = &c->kv[s->kv];
    int nk = sp->n_head_kv * sp->k_dim, nv = sp->n_head_kv * sp->v_dim,
        row = qn_cpu_seq(c, r) * kv->rows + pos % kv->rows;
    float *k = qn_cpu_at(c, s->in[1], r);
    float *v = qn_cpu_scratch(c, worker); /* v may be the raw k, which the k norm must not reach */
    memcpy(v, qn_cpu_at(c, s->in[2], r), sizeof(float) * (size_t)nv);
    for (int h = 0; sp->v_norm != QN_NORM_NONE && h < sp->n_head_kv; h++) {
        float *head = v + (size_t)h * sp->v_dim;
        qn_cpu_norm_row(head, head, sp->v_dim, sp->v_norm, sp->eps, NULL, NULL);
    }
    finish_heads(k, sp->n_head_kv, sp, sp->k_has_norm, kw, cs);
    store(c, kv->k, c->base.opts.k_type, row, nk, k);
    store(c, kv->v, c->base.opts.v_type, row, nv, v);
}

static void finish_rows(void *arg, int first, int last, int worker)
{
    for (int r = first; r < last; r++) {
        finish_row(arg, r, worker);
    }
}

int qn_cpu_rope_kv(qn_cpu *c, const qn_step *s, qn_err *err)
{
    (void)err;
    job j = {c, s, NULL};
    for (int i = 0; i < c->n_rope; i++) {
        const qn_cpu_rope *r = &c->ropes[i];
        if (s->table && r->table == s->table && r->n_rot == s->spec.rope_kv.n_rot &&
            r->mscale == s->spec.rope_kv.mscale) {
            j.rope = r;
        }
    }
    qn_parallel(c->pool, c->n_tokens, ROW_GRAIN, finish_rows, &j);
    return 0;
}
