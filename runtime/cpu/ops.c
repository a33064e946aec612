/* ops.c: the table of reference functions and the small ops: embed, select, norm, mix. */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"

const qn_cpu_op qn_cpu_ops[QN_OP_COUNT] = {
    [QN_OP_EMBED] = qn_cpu_embed,
    [QN_OP_SELECT] = qn_cpu_select,
    [QN_OP_NORM] = qn_cpu_norm,
    [QN_OP_LINEAR] = qn_cpu_linear,
    [QN_OP_GLU] = qn_cpu_glu,
    [QN_OP_ROPE_KV] = qn_cpu_rope_kv,
    [QN_OP_ATTENTION] = qn_cpu_attention,
    [QN_OP_MIX] = qn_cpu_mix,
    [QN_OP_MUL] = qn_cpu_mul,
    [QN_OP_RESCALE] = qn_cpu_rescale,
    [QN_OP_ALTUP] = qn_cpu_altup,
    [QN_OP_LATENT_KV] = qn_cpu_latent_kv,
};

enum { ROW_GRAIN = 4 };

int qn_cpu_rows(const qn_cpu *c, const qn_step *s)
{
    return s->rows == QN_ROWS_OUTPUTS ? c->n_out : c->n_tokens;
}

int qn_cpu_stride(const qn_cpu *c, qn_view v)
{
    return c->base.plans->bufs[v.buf].width;
}

float *qn_cpu_at(const qn_cpu *c, qn_view v, int row)
{
    return c->bufs[v.buf] + (size_t)row * (size_t)c->base.plans->bufs[v.buf].width + v.col;
}

void *qn_cpu_scratch(const qn_cpu *c, int worker)
{
    return c->scratch + (size_t)worker * c->scratch_bytes;
}

typedef struct job {
    qn_cpu *c;
    const qn_step *s;
} job;

static void run_rows(qn_cpu *c, const qn_step *s, qn_range_fn fn)
{
    job j = {c, s};
    qn_parallel(c->pool, qn_cpu_rows(c, s), ROW_GRAIN, fn, &j);
}

/* out += or = scale * row of a table of any type, decoded in pieces of whole blocks. */
static void add_table_row(const qn_tensor *t, int64_t row, float scale, bool add, float *out)
{
    const qn_dtype *d = qn_dtype_get(t->type);
    enum { PIECE = 256 };
    float piece[PIECE];
    int64_t n = (int64_t)t->ne[0];
    const uint8_t *at = t->data + (size_t)row * (size_t)(t->n_bytes / t->ne[1]);
    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t k = n - i < PIECE ? n - i : PIECE;
        d->decode(at, piece, k);
        at += (size_t)(k / d->block_values) * d->block_bytes;
        for (int64_t j = 0; j < k; j++) {
            out[i + j] = add ? out[i + j] + scale * piece[j] : scale * piece[j];
        }
    }
}

static void embed_rows(void *arg, int first, int last, int worker)
{
    (void)worker;
    const job *j = arg;
    for (int r = first; r < last; r++) {
        float *out = qn_cpu_at(j->c, j->s->out[0], r);
        add_table_row(j->s->w[0], j->c->tokens[r], j->s->spec.embed.scale, false, out);
        if (j->s->spec.embed.n_pos > 0) {
            add_table_row(j->s->w[1], qn_cpu_pos(j->c, r), 1.0f, true, out);
        }
    }
}

int qn_cpu_embed(qn_cpu *c, const qn_step *s, qn_err *err)
{
    const qn_spec_embed *sp = &s->spec.embed;
    for (int r = 0; sp->n_pos > 0 && r < c->n_tokens; r++) {
        if (qn_cpu_pos(c, r) >= sp->n_pos) {
            return qn_fail(err, "position %d: the model has learned positions for %d tokens only",
                           qn_cpu_pos(c, r), sp->n_pos);
        }
    }
    run_rows(c, s, embed_rows);
    return 0;
}

int qn_cpu_select(qn_cpu *c, const qn_step *s, qn_err *err)
{
    (void)err;
    for (int r = 0; r < c->n_out; r++) {
        memcpy(qn_cpu_at(c, s->out[0], r), qn_cpu_at(c, s->in[0], c->first_out + r),
               sizeof(float) * (size_t)s->spec.select.n);
    }
    return 0;
}

/* Sum over (x - mean)^p, p = 1 with mean 0 or p = 2, in 8 partial sums. */
static double sum_of(const float *x, int n, double mean, bool square)
{
    double lane[8] = {0};
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int k = 0; k < 8; k++) {
            double d = (double)x[i + k] - mean;
            lane[k] += square ? d * d : d;
        }
    }
    for (int k = 0; i < n; i++, k++) {
        double d = (double)x[i] - mean;
        lane[k] += square ? d * d : d;
    }
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

void qn_cpu_norm_row(const float *x, float *y, int n, int kind, float eps, const float *w, const float *b)
{
    double mean = kind == QN_NORM_LAYER ? sum_of(x, n, 0, false) / n : 0;
    float m = (float)mean;
    float scale = (float)(1.0 / sqrt(sum_of(x, n, mean, true) / n + (double)eps));
    for (int i = 0; i < n; i++) {
        float v = (x[i] - m) * scale;
        v = w ? v * w[i] : v;
        y[i] = b ? v + b[i] : v;
    }
}

static void norm_rows(void *arg, int first, int last, int worker)
{
    const job *j = arg;
    const qn_spec_norm *sp = &j->s->spec.norm;
    const float *w = j->s->w[0] ? (const float *)j->s->w[0]->data : NULL;
    const float *b = j->s->w[1] ? (const float *)j->s->w[1]->data : NULL;
    float *y = qn_cpu_scratch(j->c, worker);
    for (int r = first; r < last; r++) {
        const float *x = qn_cpu_at(j->c, j->s->in[0], r);
        float *out = qn_cpu_at(j->c, j->s->out[0], r);
        for (int g = 0; g < sp->groups; g++) {
            qn_cpu_norm_row(x + (size_t)g * sp->n, y, sp->n, sp->kind, sp->eps, w, b);
            float *o = out + (size_t)g * sp->n;
            const float *base = sp->residual ? qn_cpu_at(j->c, j->s->in[1], r) + (size_t)g * sp->n : NULL;
            for (int i = 0; i < sp->n; i++) {
                o[i] = base ? base[i] + sp->out_scale * y[i] : sp->out_scale * y[i];
            }
        }
    }
}

int qn_cpu_norm(qn_cpu *c, const qn_step *s, qn_err *err)
{
    (void)err;
    run_rows(c, s, norm_rows);
    return 0;
}

static void mix_rows(void *arg, int first, int last, int worker)
{
    (void)worker;
    const job *j = arg;
    const qn_spec_mix *sp = &j->s->spec.mix;
    float a = j->s->w[0] ? *(const float *)j->s->w[0]->data : sp->a;
    float b = j->s->w[1] ? *(const float *)j->s->w[1]->data : sp->b;
    for (int r = first; r < last; r++) {
        const float *x = qn_cpu_at(j->c, j->s->in[0], r);
        const float *y = sp->n_in1 ? qn_cpu_at(j->c, j->s->in[1], r) : NULL;
        float *out = qn_cpu_at(j->c, j->s->out[0], r);
        for (int i = 0; i < sp->n; i++) {
            out[i] = y ? a * x[i] + b * y[i % sp->n_in1] : a * x[i];
        }
    }
}

int qn_cpu_mix(qn_cpu *c, const qn_step *s, qn_err *err)
{
    (void)err;
    run_rows(c, s, mix_rows);
    return 0;
}
