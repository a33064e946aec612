/* op_attention.c: attention in both arithmetics.
 *
 * Exact: one query at a time, scores of all visible keys, softmax, weighted sum, all f32 in a fixed order.
 * Fast: blocks of query rows of one KV head against tiles of keys (fast.h). A single token has too few rows
 * to keep the threads busy, so its keys are split, and the parts are combined. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/kv_type.h"
#include "cpu/cpu.h"

enum { QUERY_BLOCK = 32, MIN_SPLIT_KEYS = 256, MAX_ROWS = 256 };

typedef struct job {
    qn_cpu *c;
    const qn_step *s;
    const qn_cpu_kv *kv;
    int group;   /* query heads a KV head */
    int n_block; /* query blocks a KV head */
    int block;   /* tokens a block */
    int n_split; /* parts of the keys */
} job;

/* ALiBi slope of head h (Press et al., 2022): m0^(h+1) up to the largest power of two, then odd powers of m1.
 */
static float alibi_slope(int h, int n_head, float max_bias)
{
    if (max_bias <= 0) {
        return 0;
    }
    int n2 = 1;
    while (2 * n2 <= n_head) {
        n2 *= 2;
    }
    return h < n2 ? powf(2.0f, -max_bias / (float)n2 * (float)(h + 1))
                  : powf(2.0f, -max_bias / (2.0f * (float)n2) * (float)(2 * (h - n2) + 1));
}

static float dot_exact(const float *a, const float *b, int n)
{
    enum { LANES = 16 };
    float lane[LANES] = {0};
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int k = 0; k < LANES; k++) {
            lane[k] += a[i + k] * b[i + k];
        }
    }
    for (int k = 0; i < n; i++, k++) {
        lane[k] += a[i] * b[i];
    }
    for (int w = LANES / 2; w > 0; w /= 2) {
        for (int k = 0; k < w; k++) {
            lane[k] += lane[k + w];
        }
    }
    return lane[0];
}

static void exact_head(const job *j, int r, int h, float *p)
{
    const qn_spec_attention *sp = &j->s->spec.attention;
    const qn_cpu *c = j->c;
    int pos = qn_cpu_pos(c, r), g = h / j->group;
    int first = sp->window > 0 && pos - sp->window + 1 > 0 ? pos - sp->window + 1 : 0;
    int kw = sp->n_head_kv * sp->k_dim, vw = sp->n_head_kv * sp->v_dim;
    size_t seq_row = (size_t)qn_cpu_seq(c, r) * (size_t)j->kv->rows;
    const float *q = qn_cpu_at(c, j->s->in[0], r) + (size_t)h * sp->k_dim;
    float slope = alibi_slope(h, sp->n_head, sp->alibi_max_bias);
    float top = -INFINITY;
    for (int i = first; i <= pos; i++) {
        const float *k =
            (const float *)j->kv->k + (seq_row + (size_t)(i % j->kv->rows)) * kw + (size_t)g * sp->k_dim;
        float v = dot_exact(q, k, sp->k_dim) * sp->scale;
        v = sp->softcap > 0 ? sp->softcap * tanhf(v / sp->softcap) : v;
        v -= slope * (float)(pos - i);
        p[i - first] = v;
        top = v > top ? v : top;
    }
    float sum = 0;
    for (int i = first; i <= pos; i++) {
        p[i - first] = expf(p[i - first] - top);
        sum += p[i - first];
    }
    float *out = qn_cpu_at(c, j->s->out[0], r) + (size_t)h * sp->v_dim;
    memset(out, 0, sizeof(float) * (size_t)sp->v_dim);
    for (int i = first; i <= pos; i++) {
        const float *v =
            (const float *)j->kv->v + (seq_row + (size_t)(i % j->kv->rows)) * vw + (size_t)g * sp->v_dim;
        float w = p[i - first] / sum;
        for (int d = 0; d < sp->v_dim; d++) {
            out[d] += w * v[d];
        }
    }
}

static void exact_rows(void *arg, int first, int last, int worker)
{
    const job *j = arg;
    int n_head = j->s->spec.attention.n_head;
    for (int i = first; i < last; i++) {
        exact_head(j, i / n_head, i % n_head, qn_cpu_scratch(j->c, worker));
    }
}

/* Scratch of one worker: scaled queries, positions, slopes, m, l, o, then the kernel's own. */
typedef struct piece {
    float *q, *slope, *m, *l, *o, *kernel;
    int *row_pos;
} piece;

static size_t piece_bytes(const qn_spec_attention *sp, int max_row)
{
    size_t floats =
        (size_t)max_row * (size_t)(sp->k_dim + sp->v_dim + 4) + qn_attn_scratch(sp->k_dim, sp->v_dim);
    return floats * sizeof(float) + 64;
}

static piece piece_of(void *scratch, const qn_spec_attention *sp, int n_row)
{
    piece w;
    size_t n = (size_t)n_row;
    w.q = scratch;
    w.o = w.q + n * (size_t)sp->k_dim;
    w.slope = w.o + n * (size_t)sp->v_dim;
    w.m = w.slope + n;
    w.l = w.m + n;
    w.row_pos = (int *)(w.l + n);
    w.kernel = (float *)(w.row_pos + n);
    return w;
}

static int block_tokens(int group)
{
    int t = MAX_ROWS / group;
    t = t > QUERY_BLOCK ? QUERY_BLOCK : t;
    return t < 1 ? 1 : t;
}

static void write_rows(const job *j, const qn_attn_block *b, int g, int t0, int split)
{
    const qn_spec_attention *sp = &j->s->spec.attention;
    for (int i = 0; i < b->n_row; i++) {
        int t = t0 + i / j->group, h = g * j->group + i % j->group;
        const float *o = b->o + (size_t)i * sp->v_dim;
        if (j->n_split == 1) {
            float *out = qn_cpu_at(j->c, j->s->out[0], t) + (size_t)h * sp->v_dim;
            float inv = 1.0f / b->l[i];
            for (int d = 0; d < sp->v_dim; d++) {
                out[d] = o[d] * inv;
            }
        } else {
            float *out = j->c->split + ((size_t)h * j->n_split + split) * (size_t)(sp->v_dim + 2);
            out[0] = b->m[i];
            out[1] = b->l[i];
            memcpy(out + 2, o, sizeof(float) * (size_t)sp->v_dim);
        }
    }
}

/* Where the block's keys and values stand: KV head g, the sequence's first row. */
static void take_cache(qn_attn_block *b, const job *j, size_t g, size_t seq_row)
{
    const qn_spec_attention *sp = &j->s->spec.attention;
    const qn_exec_opts *o = &j->c->base.opts;
    size_t heads = (size_t)sp->n_head_kv, at = seq_row * heads + g, kd = (size_t)sp->k_dim,
           vd = (size_t)sp->v_dim;
    if (o->k_type == QN_CACHE_Q8_0) {
        b->k_q8 = (const uint8_t *)j->kv->k + qn_cache_bytes(o->k_type, at * kd);
        b->k_q8_stride = qn_cache_bytes(o->k_type, heads * kd);
    } else {
        b->k = (const uint16_t *)j->kv->k + at * kd;
        b->k_stride = heads * kd;
    }
    if (o->v_type == QN_CACHE_Q8_0) {
        b->v_q8 = (const uint8_t *)j->kv->v + qn_cache_bytes(o->v_type, at * vd);
        b->v_q8_stride = qn_cache_bytes(o->v_type, heads * vd);
    } else {
        b->v = (const uint16_t *)j->kv->v + at * vd;
        b->v_stride = heads * vd;
    }
}

static void fast_unit(const job *j, int unit, int worker)
{
    const qn_spec_attention *sp = &j->s->spec.attention;
    const qn_cpu *c = j->c;
    int split = unit % j->n_split, g = unit / j->n_split % sp->n_head_kv,
        blk = unit / j->n_split / sp->n_head_kv;
    int t0 = blk * j->block, t1 = t0 + j->block < c->n_tokens ? t0 + j->block : c->n_tokens;
    int n_row = (t1 - t0) * j->group;
    piece w = piece_of(qn_cpu_scratch(c, worker), sp, n_row);
    for (int i = 0; i < n_row; i++) {
        int t = t0 + i / j->group, h = g * j->group + i % j->group;
        const float *q = qn_cpu_at(c, j->s->in[0], t) + (size_t)h * sp->k_dim;
        for (int d = 0; d < sp->k_dim; d++) {
            w.q[(size_t)i * sp->k_dim + d] = q[d] * sp->scale;
        }
        w.row_pos[i] = qn_cpu_pos(c, t);
        w.slope[i] = alibi_slope(h, sp->n_head, sp->alibi_max_bias);
    }
    int first_pos = qn_cpu_pos(c, t0);
    int lo = sp->window > 0 ? first_pos - sp->window + 1 : 0, hi = first_pos + t1 - t0;
    size_t seq_row = (size_t)qn_cpu_seq(c, t0) * (size_t)j->kv->rows;
    lo = lo > 0 ? lo : 0;
    int part = (hi - lo + j->n_split - 1) / j->n_split;
    int first = lo + split * part < hi ? lo + split * part : hi, last = first + part < hi ? first + part : hi;
    qn_attn_block b = {
        .n_row = n_row,
        .q = w.q,
        .row_pos = w.row_pos,
        .slope = w.slope,
        .k_dim = sp->k_dim,
        .v_dim = sp->v_dim,
        .key_first = first,
        .key_last = last,
        .window = sp->window,
        .softcap = sp->softcap,
        .cache_rows = j->kv->rows,
        .m = w.m,
        .l = w.l,
        .o = w.o,
        .scratch = w.kernel,
    };
    take_cache(&b, j, (size_t)g, seq_row);
    c->fast->attention(&b);
    write_rows(j, &b, g, t0, split);
}

static void fast_units(void *arg, int first, int last, int worker)
{
    for (int i = first; i < last; i++) {
        fast_unit(arg, i, worker);
    }
}

/* Sums the parts of one token's heads: each part has its own maximum. */
static void combine(const job *j)
{
    const qn_spec_attention *sp = &j->s->spec.attention;
    size_t part = (size_t)(sp->v_dim + 2);
    for (int h = 0; h < sp->n_head; h++) {
        const float *in = j->c->split + (size_t)h * j->n_split * part;
        float *out = qn_cpu_at(j->c, j->s->out[0], 0) + (size_t)h * sp->v_dim;
        float top = -INFINITY, sum = 0;
        for (int k = 0; k < j->n_split; k++) {
            top = in[k * part] > top ? in[k * part] : top;
        }
        memset(out, 0, sizeof(float) * (size_t)sp->v_dim);
        for (int k = 0; k < j->n_split; k++) {
            const float *p = in + k * part;
            float w = p[0] == -INFINITY ? 0 : expf(p[0] - top);
            sum += w * p[1];
            for (int d = 0; d < sp->v_dim; d++) {
                out[d] += w * p[2 + d];
            }
        }
        for (int d = 0; d < sp->v_dim; d++) {
            out[d] /= sum;
        }
    }
}

int qn_cpu_attention(qn_cpu *c, const qn_step *s, qn_err *err)
{
    (void)err;
    const qn_spec_attention *sp = &s->spec.attention;
    job j = {.c = c, .s = s, .kv = &c->kv[s->kv], .group = sp->n_head / sp->n_head_kv, .n_split = 1};
    if (!c->fast) {
        qn_parallel(c->pool, c->n_tokens * sp->n_head, 1, exact_rows, &j);
        return 0;
    }
    j.block = c->seqs ? 1 : block_tokens(j.group); /* a block reads one sequence */
    j.n_block = (c->n_tokens + j.block - 1) / j.block;
    int n_thread = qn_pool_size(c->pool);
    if (c->n_tokens == 1 && n_thread > 1) {
        int keys = qn_cpu_pos(c, 0) + 1;
        keys = sp->window > 0 && sp->window < keys ? sp->window : keys;
        int most = keys / MIN_SPLIT_KEYS;
        j.n_split = most < 1 ? 1 : most < n_thread ? most : n_thread;
    }
    qn_parallel(c->pool, j.n_block * sp->n_head_kv * j.n_split, 1, fast_units, &j);
    if (j.n_split > 1) {
        combine(&j);
    }
    return 0;
}

size_t qn_cpu_attention_scratch(const qn_plans *p, const qn_exec_opts *opts)
{
    size_t most = sizeof(float) * ((size_t)opts->n_ctx + 1); /* exact: the scores of one query */
    for (int i = 0; i < p->prefill.n_step && !opts->exact; i++) {
        const qn_step *s = &p->prefill.steps[i];
        if (s->op->id == QN_OP_ATTENTION) {
            const qn_spec_attention *sp = &s->spec.attention;
            int group = sp->n_head / sp->n_head_kv;
            size_t b = piece_bytes(sp, block_tokens(group) * group);
            most = b > most ? b : most;
        }
    }
    return most;
}

size_t qn_cpu_split_floats(const qn_plans *p, const qn_exec_opts *opts, int n_threads)
{
    size_t most = 1;
    for (int i = 0; i < p->decode.n_step && !opts->exact; i++) {
        const qn_step *s = &p->decode.steps[i];
        if (s->op->id == QN_OP_ATTENTION) {
            size_t n =
                (size_t)s->spec.attention.n_head * (size_t)(s->spec.attention.v_dim + 2) * (size_t)n_threads;
            most = n > most ? n : most;
        }
    }
    return most;
}
