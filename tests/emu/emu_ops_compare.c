/* emu_ops_compare.c: see emu_ops.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "emu_ops.h"

static void compare(ops_error *e, const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        e->bad = e->bad || !isfinite(got[i]) || !isfinite(want[i]);
        e->d2 += d * d;
        e->ref2 += (double)want[i] * (double)want[i];
        e->worst = fabs(d) > e->worst ? fabs(d) : e->worst;
    }
    e->n += n;
}

static void end_row(ops_error *e)
{
    double nmse = e->ref2 > 0 ? e->d2 / e->ref2 : e->d2;
    if (nmse >= e->nmse) {
        e->nmse = nmse;
        e->element = e->ref2 > 0 ? e->worst / sqrt(e->ref2 / (double)e->n) : e->worst;
    }
    e->rows++;
    e->d2 = e->ref2 = e->worst = 0;
    e->n = 0;
}

/* The reference's values are rounded as the cache is: what is left is where the two sides of a rounding
 * differ. */
static void compare_cache(ops_error *e, uint64_t at, qn_cache_type type, const float *want, int row,
                          int heads, int dim)
{
    size_t unit = qn_cuda_kv_bytes(type, 1, dim);
    float *got = malloc(sizeof *got * (size_t)dim), *due = malloc(sizeof *due * (size_t)dim);
    uint8_t *raw = malloc(unit);
    emu_report r;
    emu_readable((const uint8_t *)(uintptr_t)at + (size_t)(row * heads) * unit, unit * (size_t)heads, &r);
    for (int i = row * heads; i < (row + 1) * heads; i++) {
        qn_cuda_kv_get(type, (const uint8_t *)(uintptr_t)at + (size_t)i * unit, got, dim);
        qn_cuda_kv_put(type, want + (size_t)i * (size_t)dim, raw, dim);
        qn_cuda_kv_get(type, raw, due, dim);
        compare(e, got, due, (size_t)dim);
    }
    end_row(e);
    free(got);
    free(due);
    free(raw);
}

const int ops_many_seqs[CASE_SEQS] = {1, 0};

/* Positions that a sequence holds before the run. */
static int length_of(const emu_case *c, int seq)
{
    return seq == c->seq ? c->pos : c->pos / 2;
}

static void start_cache(const emu_case *c, qn_cpu *x, const qn_cuda_mem *m, int seq)
{
    const qn_kv_cache *kv = &c->kv;
    int rows = qn_kv_rows(kv, &c->exec), heads = kv->n_head_kv;
    size_t nk = (size_t)(rows * heads * kv->k_dim), nv = (size_t)(rows * heads * kv->v_dim);
    float *k = x->kv[0].k, *v = x->kv[0].v, factor = seq == c->seq ? 1 : -0.5f;
    k += nk * (size_t)seq;
    v += nv * (size_t)seq;
    /* Rows that only a longer run reads are filled as nobody may read them: with it they are as the others.
     */
    const int few = c->pos + CASE_UBATCH, end = c->exec.n_ubatch == CASE_ROWS ? c->pos + CASE_ROWS : few;
    for (size_t i = 0; i < nk; i++) {
        int row = (int)i / (heads * kv->k_dim);
        k[i] = (row >= few && row < end ? factor / 256 : factor) * c->k[i];
    }
    for (size_t i = 0; i < nv; i++) {
        int row = (int)i / (heads * kv->v_dim);
        v[i] = (row >= few && row < end ? factor / 256 : factor) * c->v[i];
    }
    size_t k_bytes = (size_t)rows * qn_cuda_kv_bytes(c->exec.k_type, heads, kv->k_dim);
    size_t v_bytes = (size_t)rows * qn_cuda_kv_bytes(c->exec.v_type, heads, kv->v_dim);
    emu_put_cache(m->k[0] + k_bytes * (size_t)seq, c->exec.k_type, k, rows, heads, kv->k_dim);
    emu_put_cache(m->v[0] + v_bytes * (size_t)seq, c->exec.v_type, v, rows, heads, kv->v_dim);
}

void ops_start_values(emu_case *c, qn_exec *cpu, qn_exec *emu)
{
    const qn_cuda_mem *m = emu_exec_mem(emu);
    qn_cpu *x = (qn_cpu *)cpu;
    for (int i = 0; i < CASE_BUFS; i++) {
        int rows = c->rows ? c->rows : c->exec.n_ubatch == CASE_ROWS ? CASE_ROWS : CASE_UBATCH;
        size_t bytes = sizeof(float) * (size_t)c->bufs[i].width * (size_t)rows;
        if (c->start[i]) {
            memcpy(x->bufs[i], c->start[i], bytes);
            emu_put(m->bufs[i], c->start[i], bytes);
        }
    }
    for (int i = 0; i < qn_n_seq(&c->exec); i++) {
        if (c->k) {
            start_cache(c, x, m, i);
        }
        qn_exec_set_length(cpu, i, length_of(c, i), length_of(c, i));
        qn_exec_set_length(emu, i, length_of(c, i), length_of(c, i));
    }
    qn_err err;
    if (qn_exec_select(cpu, c->seq, &err) || qn_exec_select(emu, c->seq, &err)) {
        abort();
    }
}

int ops_rows_of(const emu_case *c, int rows)
{
    return c->steps[0].rows == QN_ROWS_TOKENS ? rows : c->outputs == QN_OUT_ALL ? rows : 1;
}

int ops_compare_row(qn_view v, int row, int at, qn_exec *cpu, qn_exec *emu, ops_error *e, qn_err *err)
{
    size_t n = (size_t)v.width;
    float *got = malloc(n * sizeof(float)), *want = malloc(n * sizeof(float));
    int rc = emu->read(emu, v, row, 1, got, err) || cpu->read(cpu, v, at, 1, want, err) ? -1 : 0;
    if (rc == 0) {
        compare(e, got, want, n);
        end_row(e);
    }
    free(got);
    free(want);
    return rc;
}

int ops_compare_view(qn_view v, int rows, qn_exec *cpu, qn_exec *emu, ops_error *e, qn_err *err)
{
    int rc = 0;
    for (int r = 0; r < rows && rc == 0; r++) {
        rc = ops_compare_row(v, r, r, cpu, emu, e, err);
    }
    return rc;
}

void ops_compare_stored(emu_case *c, int seq, int pos, qn_exec *cpu, qn_exec *emu, ops_error *e)
{
    const qn_cpu_kv *kv = &((const qn_cpu *)cpu)->kv[0];
    const int at = seq * kv->rows + pos % kv->rows;
    compare_cache(e, emu_exec_mem(emu)->k[0], c->exec.k_type, kv->k, at, c->kv.n_head_kv, c->kv.k_dim);
    compare_cache(e, emu_exec_mem(emu)->v[0], c->exec.v_type, kv->v, at, c->kv.n_head_kv, c->kv.v_dim);
}

/* Is byte `at` of a row of a buffer part of what a step writes? */
static bool is_output(const emu_case *c, int buf, size_t at)
{
    for (int i = 0; i < c->plans.prefill.n_step; i++) {
        for (int k = 0; k < QN_STEP_VIEWS; k++) {
            qn_view v = c->steps[i].out[k];
            if (v.buf == buf && at / sizeof(float) >= (size_t)v.col &&
                at / sizeof(float) < (size_t)(v.col + v.width)) {
                return true;
            }
        }
    }
    return false;
}

int ops_check_strays(const emu_case *c, const qn_exec *emu, int rows, qn_err *err)
{
    for (int i = 0; i < CASE_BUFS; i++) {
        size_t width = sizeof(float) * (size_t)c->bufs[i].width;
        int held = qn_buf_rows(&c->bufs[i], &c->exec);
        held = held < CASE_UBATCH ? held : CASE_UBATCH;
        for (int r = 0; r < held; r++) {
            const char *row = (const char *)(uintptr_t)emu_exec_mem(emu)->bufs[i] + (size_t)r * width;
            for (size_t at = 0; (at += emu_first_stored(row + at, width - at)) < width; at++) {
                if (r >= rows || !is_output(c, i, at)) {
                    return qn_fail(err, "a kernel wrote row %d, value %zu of '%s', which is no output", r,
                                   at / sizeof(float), c->bufs[i].name);
                }
            }
        }
    }
    return 0;
}

int ops_compare_case(emu_case *c, const ops_way *w, qn_exec *cpu, qn_exec *emu, ops_error *e, qn_err *err)
{
    const qn_step *last = &c->steps[c->plans.prefill.n_step - 1];
    int rc = 0, rows = ops_rows_of(c, w->rows);
    for (int i = 0; i < QN_STEP_VIEWS && rc == 0; i++) {
        rc = last->out[i].buf >= 0 ? ops_compare_view(last->out[i], rows, cpu, emu, e, err) : 0;
    }
    const qn_step *stores = c->steps[0].op->id == QN_OP_ROPE_KV ? &c->steps[0] : last;
    if (rc == 0 && stores->op->id == QN_OP_ROPE_KV && stores->kv >= 0) {
        for (int r = 0; r < w->rows; r++) {
            int seq = w->many ? ops_many_seqs[r] : c->seq;
            ops_compare_stored(c, seq, length_of(c, seq) + (w->many ? 0 : r), cpu, emu, e);
        }
    }
    return rc;
}
