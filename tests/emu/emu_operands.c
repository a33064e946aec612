/* emu_operands.c: see emu_operands.h. */
#include "emu_operands.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "cpu/cpu.h"

enum { LARGEST = 0x7e }; /* code of 448; the next is no number */

const int emu_weight_roles[3] = {0, 3, 6};

void emu_put_map(uint64_t at, const qn_tma *t, uint64_t base)
{
    emu_report r;
    emu_tensor_map map = {.base = base};
    memcpy(map.dims, t->dims, sizeof map.dims);
    memcpy(map.strides, t->strides, sizeof map.strides);
    memcpy(map.box, t->box, sizeof map.box);
    emu_write_map((void *)(uintptr_t)at, &map, &r);
}

void emu_round_weights(qn_step *s, emu_rounded *r)
{
    int n = s->op->id == QN_OP_LINEAR ? 3 : 2;
    for (r->n = 0; r->n < n; r->n++) {
        const qn_tensor *t = r->w[r->n] = s->w[emu_weight_roles[r->n]];
        r->data[r->n] = NULL;
        if (!t || t->type == QN_F16 || t->type == QN_BF16) {
            continue;
        }
        size_t values = (size_t)(t->ne[0] * t->ne[1]);
        float *f = malloc(values * sizeof *f);
        uint16_t *h = r->data[r->n] = malloc(values * sizeof *h);
        qn_dtype_get(t->type)->decode(t->data, f, (int64_t)values);
        for (size_t i = 0; i < values; i++) {
            h[i] = qn_f32_to_f16(f[i]);
        }
        free(f);
        r->tensors[r->n] = *t;
        r->tensors[r->n].type = QN_F16;
        r->tensors[r->n].n_bytes = 2 * values;
        r->tensors[r->n].data = (uint8_t *)h;
        s->w[emu_weight_roles[r->n]] = &r->tensors[r->n];
    }
}

void emu_restore_weights(qn_step *s, emu_rounded *r)
{
    for (int i = 0; i < r->n; i++) {
        s->w[emu_weight_roles[i]] = r->w[i];
        free(r->data[i]);
    }
}

bool emu_fp8_serves(const emu_case *c)
{
    qn_exec_opts o = c->exec;
    o.prefill = QN_PREFILL_FP8;
    return c->plans.prefill.n_step == 1 && qn_cuda_takes_fp8(&c->steps[0], &o);
}

float emu_e4m3_value(uint8_t code)
{
    int exponent = code >> 3 & 15, mantissa = code & 7;
    float v = exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
    return code & 0x80 ? -v : v;
}

float emu_e4m3_round(float x)
{
    int best = 0;
    for (int code = 1; code <= LARGEST; code++) {
        float off = fabsf(emu_e4m3_value((uint8_t)code) - fabsf(x)),
              least = fabsf(emu_e4m3_value((uint8_t)best) - fabsf(x));
        best = off < least || (off == least && code % 2 == 0) ? code : best;
    }
    return copysignf(emu_e4m3_value((uint8_t)best), x);
}

static int take_rows(qn_cpu *x, qn_view v, const qn_cuda_mem *m, int rows, qn_err *err)
{
    for (int r = 0; r < rows; r++) {
        float *row = qn_cpu_at(x, v, r), up = ((const float *)(uintptr_t)m->row_scale)[r], top = 0;
        const uint8_t *codes = (const uint8_t *)(uintptr_t)m->a16 + (size_t)r * (size_t)v.width;
        for (int i = 0; i < v.width; i++) {
            top = fmaxf(top, fabsf(row[i]));
        }
        if (top > 0 ? !(top / up >= 128 && top / up < 256) : up != 1) {
            return qn_fail(err, "row %d: the largest value, %g, was divided by %g", r, (double)top,
                           (double)up);
        }
        for (int i = 0; i < v.width; i++) {
            float want = emu_e4m3_round(row[i] / up), got = emu_e4m3_value(codes[i]);
            if (got != want) {
                return qn_fail(err, "row %d, value %d: %g was rounded to %g, not %g", r, i,
                               (double)(row[i] / up), (double)got, (double)want);
            }
            row[i] = got * up;
        }
    }
    return 0;
}

int emu_fp8_reference(emu_case *c, qn_exec *cpu, qn_exec *emu, const qn_run *run, int rows, qn_err *err)
{
    qn_step *s = &c->steps[0];
    const qn_tensor *had[3] = {NULL};
    qn_tensor made[3];
    float *data[3] = {NULL}, top = 0;
    for (int k = 0; k < 3; k++) {
        const qn_tensor *t = had[k] = s->w[emu_weight_roles[k]];
        if (t) {
            size_t n = (size_t)(t->ne[0] * t->ne[1]);
            data[k] = malloc(n * sizeof *data[k]);
            qn_dtype_get(t->type)->decode(t->data, data[k], (int64_t)n);
            for (size_t i = 0; i < n; i++) {
                top = fmaxf(top, fabsf(data[k][i]));
            }
        }
    }
    float up = ldexpf(1.0f, (int)floor(log2((double)top)) - 7);
    for (int k = 0; k < 3; k++) {
        if (had[k]) {
            size_t n = (size_t)(had[k]->ne[0] * had[k]->ne[1]);
            for (size_t i = 0; i < n; i++) {
                data[k][i] = emu_e4m3_round(data[k][i] / up) * up;
            }
            made[k] = *had[k];
            made[k].type = QN_F32;
            made[k].n_bytes = n * sizeof *data[k];
            made[k].data = (uint8_t *)data[k];
            s->w[emu_weight_roles[k]] = &made[k];
        }
    }
    int rc = take_rows((qn_cpu *)cpu, s->in[0], emu_exec_mem(emu), rows, err);
    rc = rc ? rc : cpu->run(cpu, run, err);
    for (int k = 0; k < 3; k++) {
        s->w[emu_weight_roles[k]] = had[k];
        free(data[k]);
    }
    return rc;
}

/* Value i of operands at `at`. */
static double operand(const qn_cuda_gemm *g, uint64_t at, size_t i)
{
    const uint16_t *half = (const uint16_t *)(uintptr_t)at;
    return g->fp8    ? (double)emu_e4m3_value(((const uint8_t *)(uintptr_t)at)[i])
           : g->bf16 ? (double)qn_bf16_to_f32(half[i])
                     : (double)qn_f16_to_f32(half[i]);
}

static int check_report(int rc, const emu_report *r, qn_err *err)
{
    return rc ? qn_fail(err, "%s", r->text) : 0;
}

int emu_product(const qn_cuda_gemm *g, int rows, int padded, float up, qn_err *err)
{
    emu_report r;
    float *out = (float *)(uintptr_t)g->out;
    const size_t unit = g->fp8 ? 1 : 2, n_in = (size_t)g->n_in;
    if (check_report(emu_readable((const void *)(uintptr_t)g->a, unit * (size_t)rows * n_in, &r), &r, err) ||
        check_report(emu_readable((const void *)(uintptr_t)g->w, unit * (size_t)g->n_out * n_in, &r), &r,
                     err)) {
        return -1;
    }
    for (int i = 0; i < padded; i++) {
        const size_t at = (size_t)i * (size_t)g->ld_out, size = g->half_out ? 2 : 4;
        if (check_report(emu_written((char *)out + size * at, size * (size_t)g->n_out, &r), &r, err)) {
            return -1;
        }
        for (int o = 0; o < g->n_out; o++) {
            double sum = i < rows ? 0 : (double)NAN;
            for (size_t k = 0; i < rows && k < n_in; k++) {
                sum += operand(g, g->a, (size_t)i * n_in + k) * operand(g, g->w, (size_t)o * n_in + k);
            }
            if (g->half_out) {
                ((uint16_t *)out)[at + (size_t)o] = qn_f32_to_f16((float)ldexp(sum, -QN_CUDA_PRODUCT_SHIFT));
            } else {
                out[at + (size_t)o] = (float)((double)up * sum);
            }
        }
    }
    return 0;
}

bool emu_half_products(const qn_cuda_list *list)
{
    for (int i = 0; i < list->n; i++) {
        if (list->actions[i].is_gemm && list->actions[i].gemm.half_out) {
            return true;
        }
    }
    return false;
}

void emu_put_cache(uint64_t at, qn_cache_type type, const float *from, int rows, int heads, int dim)
{
    size_t unit = qn_cuda_kv_bytes(type, 1, dim), n = (size_t)rows * (size_t)heads;
    uint8_t *raw = malloc(unit * n);
    for (size_t i = 0; i < n; i++) {
        qn_cuda_kv_put(type, from + i * (size_t)dim, raw + i * unit, dim);
    }
    emu_put(at, raw, unit * n);
    free(raw);
}
