/* op_special.c: element-wise product, rescaling, AltUp, keys and values of latent attention. */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"

enum { ROW_GRAIN = 4, MAX_STREAMS = 16 };

typedef struct job {
    qn_cpu *c;
    const qn_step *s;
} job;

static int run_rows(qn_cpu *c, const qn_step *s, qn_range_fn fn)
{
    job j = {c, s};
    qn_parallel(c->pool, qn_cpu_rows(c, s), ROW_GRAIN, fn, &j);
    return 0;
}

static void mul_rows(void *arg, int first, int last, int worker)
{
    (void)worker;
    const job *j = arg;
    const qn_spec_mul *sp = &j->s->spec.mul;
    for (int r = first; r < last; r++) {
        const float *x = qn_cpu_at(j->c, j->s->in[0], r);
        const float *y = sp->has_w ? (const float *)j->s->w[0]->data : qn_cpu_at(j->c, j->s->in[1], r);
        float *out = qn_cpu_at(j->c, j->s->out[0], r);
        for (int i = 0; i < sp->n; i++) {
            out[i] = x[i] * y[i];
        }
    }
}

int qn_cpu_mul(qn_cpu *c, const qn_step *s, qn_err *err)
{
    (void)err;
    return run_rows(c, s, mul_rows);
}

static double length_of(const float *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    return sqrt(sum);
}

static void rescale_rows(void *arg, int first, int last, int worker)
{
    (void)worker;
    const job *j = arg;
    const qn_spec_rescale *sp = &j->s->spec.rescale;
    for (int r = first; r < last; r++) {
        const float *x = qn_cpu_at(j->c, j->s->in[0], r), *ref = qn_cpu_at(j->c, j->s->in[1], r);
        float *out = qn_cpu_at(j->c, j->s->out[0], r);
        double due = length_of(ref, sp->n);
        if (sp->average) {
            memcpy(out, ref, sizeof(float) * (size_t)sp->n);
        }
        for (int g = 0; g < sp->groups; g++) {
            const float *xg = x + (size_t)g * sp->n;
            double is = length_of(xg, sp->n);
            float f = is > 0 ? (float)(due / is) : 0;
            float *o = sp->average ? out : out + (size_t)g * sp->n;
            for (int i = 0; i < sp->n; i++) {
                o[i] = sp->average ? o[i] + f * xg[i] : f * xg[i];
            }
        }
        for (int i = 0; sp->average && i < sp->n; i++) {
            out[i] /= (float)(sp->groups + 1);
        }
    }
}

int qn_cpu_rescale(qn_cpu *c, const qn_step *s, qn_err *err)
{
    (void)err;
    return run_rows(c, s, rescale_rows);
}

/* m = tanh(R (rms(y) * norm / n)); scratch: 2 n floats. */
static void modalities(const qn_step *s, const float *y, float *scratch, double *m)
{
    const qn_spec_altup *sp = &s->spec.altup;
    const qn_dtype *d = qn_dtype_get(s->w[1]->type);
    float *normed = scratch, *row = scratch + sp->n;
    qn_cpu_norm_row(y, normed, sp->n, QN_NORM_RMS, sp->eps, (const float *)s->w[0]->data, NULL);
    for (int k = 0; k < sp->n_stream; k++) {
        double dot = 0;
        d->decode(s->w[1]->data + (size_t)k * (size_t)(s->w[1]->n_bytes / s->w[1]->ne[1]), row, sp->n);
        for (int i = 0; i < sp->n; i++) {
            dot += (double)normed[i] * (double)row[i];
        }
        m[k] = tanh(dot / sp->n);
    }
}

/* Row `row` of the coefficients times m. */
static double coefficient(const qn_step *s, int row, const double *m)
{
    const qn_tensor *t = s->w[2];
    float v[MAX_STREAMS];
    int n = s->spec.altup.n_stream;
    double sum = 0;
    qn_dtype_get(t->type)->decode(t->data + (size_t)row * (size_t)(t->n_bytes / t->ne[1]), v, n);
    for (int k = 0; k < n; k++) {
        sum += (double)v[k] * m[k];
    }
    return sum;
}

static void altup_rows(void *arg, int first, int last, int worker)
{
    const job *j = arg;
    const qn_step *s = j->s;
    const qn_spec_altup *sp = &s->spec.altup;
    double m[MAX_STREAMS];
    for (int r = first; r < last; r++) {
        const float *x = qn_cpu_at(j->c, s->in[0], r);
        const float *z = sp->correct ? qn_cpu_at(j->c, s->in[1], r) : x;
        float *out = qn_cpu_at(j->c, s->out[0], r);
        modalities(s, z, qn_cpu_scratch(j->c, worker), m);
        for (int o = 0; o < sp->n_stream; o++) {
            const float *xo = x + (size_t)o * sp->n;
            float *to = out + (size_t)o * sp->n;
            if (sp->correct) {
                float f = (float)(1 + coefficient(s, o, m));
                for (int i = 0; i < sp->n; i++) {
                    to[i] = xo[i] + (z[i] - x[i]) * f;
                }
                continue;
            }
            memcpy(to, xo, sizeof(float) * (size_t)sp->n);
            for (int k = 0; k < sp->n_stream; k++) {
                float f = (float)coefficient(s, o * sp->n_stream + k, m);
                const float *xk = x + (size_t)k * sp->n;
                for (int i = 0; i < sp->n; i++) {
                    to[i] += f * xk[i];
                }
            }
        }
    }
}

int qn_cpu_altup(qn_cpu *c, const qn_step *s, qn_err *err)
{
    if (s->spec.altup.n_stream > MAX_STREAMS) {
        return qn_fail(err, "%d streams (at most %d)", s->spec.altup.n_stream, MAX_STREAMS);
    }
    return run_rows(c, s, altup_rows);
}

static void latent_rows(void *arg, int first, int last, int worker)
{
    (void)worker;
    const job *j = arg;
    const qn_spec_latent_kv *sp = &j->s->spec.latent_kv;
    int in_dim = sp->nope + sp->v_dim, k_dim = sp->nope + sp->n_rot;
    for (int r = first; r < last; r++) {
        const float *kv = qn_cpu_at(j->c, j->s->in[0], r), *rope = qn_cpu_at(j->c, j->s->in[1], r);
        float *k = qn_cpu_at(j->c, j->s->out[0], r), *v = qn_cpu_at(j->c, j->s->out[1], r);
        for (int h = 0; h < sp->n_head; h++) {
            const float *from = kv + (size_t)h * in_dim;
            memcpy(k + (size_t)h * k_dim, from, sizeof(float) * (size_t)sp->nope);
            memcpy(k + (size_t)h * k_dim + sp->nope, rope, sizeof(float) * (size_t)sp->n_rot);
            memcpy(v + (size_t)h * sp->v_dim, from + sp->nope, sizeof(float) * (size_t)sp->v_dim);
        }
    }
}

int qn_cpu_latent_kv(qn_cpu *c, const qn_step *s, qn_err *err)
{
    (void)err;
    return run_rows(c, s, latent_rows);
}
