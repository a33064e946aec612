/* op_linear.c: linear and glu: matrix products and what follows each of them. */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"

enum { ROW_GRAIN = 4 };

typedef struct job {
    qn_cpu *c;
    const qn_step *s;
    float *tmp; /* products, [rows][tmp_stride] */
    int tmp_stride;
} job;

static const float *f32_data(const qn_tensor *t)
{
    return t ? (const float *)t->data : NULL;
}

/* y = y * scale + b; NULL: absent. */
static void scale_bias(float *y, int n, const float *scale, const float *b)
{
    if (scale) {
        for (int i = 0; i < n; i++) {
            y[i] *= *scale;
        }
    }
    if (b) {
        for (int i = 0; i < n; i++) {
            y[i] += b[i];
        }
    }
}

static float gelu_exact(float x)
{
    return 0.5f * x * (1.0f + tanhf(0.79788456080286535588f * x * (1.0f + 0.044715f * x * x)));
}

static float silu_exact(float x)
{
    return x / (1.0f + expf(-x));
}

/* an = beta + softplus(alpha_n), ap = softplus(alpha_p) (Huang and Schlag, 2024, in the form that files
 * store). */
static void xielu(float *x, int n, const float p[4])
{
    float ap = log1pf(expf(p[1])), an = p[2] + log1pf(expf(p[0]));
    for (int i = 0; i < n; i++) {
        float v = x[i];
        x[i] = v > 0 ? ap * v * v + p[2] * v : (expm1f(fminf(v, p[3])) - v) * an + p[2] * v;
    }
}

static void activate(const qn_cpu *c, float *x, int n, int act, const float xielu_p[4])
{
    if (act == QN_ACT_XIELU) {
        xielu(x, n, xielu_p);
    } else if (act == QN_ACT_SILU && c->fast) {
        c->fast->silu(x, n);
    } else if (act == QN_ACT_GELU && c->fast) {
        c->fast->gelu(x, n);
    } else if (act != QN_ACT_NONE) {
        for (int i = 0; i < n; i++) {
            float v = x[i], r = v > 0 ? v : 0;
            x[i] = act == QN_ACT_SILU   ? silu_exact(v)
                   : act == QN_ACT_GELU ? gelu_exact(v)
                   : act == QN_ACT_RELU ? r
                                        : r * r;
        }
    }
}

static void clamp_row(float *y, int n, float limit)
{
    for (int i = 0; i < n; i++) {
        y[i] = y[i] > limit ? limit : y[i] < -limit ? -limit : y[i];
    }
}

static void linear_rows(void *arg, int first, int last, int worker)
{
    (void)worker;
    const job *j = arg;
    const qn_step *s = j->s;
    const qn_spec_linear *sp = &s->spec.linear;
    const float *div = sp->has_div ? f32_data(s->w[9]) : NULL;
    int n = sp->n_out;
    for (int r = first; r < last; r++) {
        float *y = j->tmp + (size_t)r * (size_t)j->tmp_stride;
        for (int k = 0, at = 0; k < sp->n_seg; at += sp->seg_out[k++]) {
            scale_bias(y + at, sp->seg_out[k], f32_data(s->w[3 * k + 2]), f32_data(s->w[3 * k + 1]));
        }
        if (sp->clamp > 0) {
            clamp_row(y, n, sp->clamp);
        }
        activate(j->c, y, n, sp->act, sp->xielu);
        for (int i = 0; div && i < n; i++) {
            y[i] /= div[i];
        }
        for (int i = 0; sp->out_scale != 1.0f && i < n; i++) {
            y[i] *= sp->out_scale;
        }
        for (int i = 0; sp->softcap > 0 && i < n; i++) {
            y[i] = sp->softcap * tanhf(y[i] / sp->softcap);
        }
        if (sp->residual) {
            const float *base = qn_cpu_at(j->c, s->in[1], r);
            float *out = qn_cpu_at(j->c, s->out[0], r);
            for (int i = 0; i < n; i++) {
                out[i] = base[i] + y[i];
            }
        }
    }
}

static bool has_epilogue(const qn_spec_linear *sp)
{
    return sp->residual || sp->seg_bias[0] || sp->seg_bias[1] || sp->seg_bias[2] || sp->seg_scale[0] ||
           sp->seg_scale[1] || sp->seg_scale[2] || sp->clamp > 0 || sp->act != QN_ACT_NONE || sp->has_div ||
           sp->out_scale != 1.0f || sp->softcap > 0;
}

int qn_cpu_linear(qn_cpu *c, const qn_step *s, qn_err *err)
{
    (void)err;
    const qn_spec_linear *sp = &s->spec.linear;
    int rows = qn_cpu_rows(c, s);
    if (rows == 0) {
        return 0;
    }
    /* A residual base must survive the product, so that goes to a buffer of its own. */
    job j = {c, s, sp->residual ? c->product : qn_cpu_at(c, s->out[0], 0),
             sp->residual ? sp->n_out : qn_cpu_stride(c, s->out[0])};
    qn_product p[3];
    int at = 0;
    for (int k = 0; k < sp->n_seg; k++) {
        p[k] = (qn_product){s->w[3 * k]->type, s->w[3 * k]->data, sp->seg_out[k], j.tmp + at, j.tmp_stride};
        at += sp->seg_out[k];
    }
    qn_act_set(&c->act, qn_cpu_at(c, s->in[0], 0), qn_cpu_stride(c, s->in[0]), sp->n_in, rows);
    qn_mm_run(c->mm, &c->act, p, sp->n_seg);
    if (has_epilogue(sp)) {
        qn_parallel(c->pool, rows, ROW_GRAIN, linear_rows, &j);
    }
    return 0;
}

/* g = relu(g - (mean + k * std)), std with n - 1. */
static void sparsify(float *g, int n, float k)
{
    double sum = 0, sq = 0;
    for (int i = 0; i < n; i++) {
        sum += (double)g[i];
    }
    double mean = sum / n;
    for (int i = 0; i < n; i++) {
        sq += ((double)g[i] - mean) * ((double)g[i] - mean);
    }
    float cut = (float)(mean + (double)k * sqrt(sq / (n - 1)));
    for (int i = 0; i < n; i++) {
        g[i] = g[i] > cut ? g[i] - cut : 0;
    }
}

static void glu_rows(void *arg, int first, int last, int worker)
{
    (void)worker;
    const job *j = arg;
    const qn_step *s = j->s;
    const qn_spec_glu *sp = &s->spec.glu;
    const qn_cpu *c = j->c;
    int n = sp->n_ff;
    for (int r = first; r < last; r++) {
        float *g = j->tmp + (size_t)r * (size_t)j->tmp_stride, *u = g + n;
        float *out = qn_cpu_at(c, s->out[0], r);
        if (sp->fused) {
            scale_bias(g, 2 * n, f32_data(s->w[5]), f32_data(s->w[4]));
        } else {
            scale_bias(g, n, f32_data(s->w[2]), f32_data(s->w[1]));
            scale_bias(u, n, f32_data(s->w[5]), f32_data(s->w[4]));
        }
        if (sp->sparsity_std > 0) {
            sparsify(g, n, sp->sparsity_std);
        }
        if (sp->act == QN_ACT_SILU && c->fast) {
            c->fast->silu_mul(g, u, out, n);
        } else if (sp->act == QN_ACT_GELU && c->fast) {
            c->fast->gelu_mul(g, u, out, n);
        } else {
            activate(c, g, n, sp->act, NULL);
            for (int i = 0; i < n; i++) {
                out[i] = g[i] * u[i];
            }
        }
    }
}

int qn_cpu_glu(qn_cpu *c, const qn_step *s, qn_err *err)
{
    (void)err;
    const qn_spec_glu *sp = &s->spec.glu;
    int n = sp->n_ff, rows = qn_cpu_rows(c, s);
    job j = {c, s, c->product, 2 * n};
    qn_product p[2];
    int n_product = 1;
    if (sp->fused) {
        p[0] = (qn_product){s->w[3]->type, s->w[3]->data, 2 * n, c->product, 2 * n};
    } else {
        p[0] = (qn_product){s->w[0]->type, s->w[0]->data, n, c->product, 2 * n};
        p[1] = (qn_product){s->w[3]->type, s->w[3]->data, n, c->product + n, 2 * n};
        n_product = 2;
    }
    qn_act_set(&c->act, qn_cpu_at(c, s->in[0], 0), qn_cpu_stride(c, s->in[0]), sp->n_in, rows);
    qn_mm_run(c->mm, &c->act, p, n_product);
    qn_parallel(c->pool, rows, ROW_GRAIN, glu_rows, &j);
    return 0;
}
