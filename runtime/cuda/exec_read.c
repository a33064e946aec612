/* exec_read.c: looking into buffers and KV caches, and putting values there. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/exec.h"

/* Rows of a view, to `out` or (out NULL) from `in`; whole rows in one copy. */
static int copy_view(qn_exec *e, qn_view v, int row, int n_rows, float *out, const float *in, qn_err *err)
{
    qn_cuda_exec *x = (qn_cuda_exec *)e;
    const qn_cuda_api *cu = &x->cuda.api;
    if (qn_exec_check_view(e, v, row, n_rows, err)) {
        return -1;
    }
    cu->CtxSetCurrent(x->ctx);
    size_t width = (size_t)e->plans->bufs[v.buf].width, n = (size_t)v.width;
    int pieces = n == width ? 1 : n_rows;
    size_t per = n == width ? n * (size_t)n_rows : n;
    for (int i = 0; i < pieces && per > 0; i++) {
        uint64_t at = x->mem.bufs[v.buf] + sizeof(float) * ((size_t)(row + i) * width + (size_t)v.col);
        qn_cu_result r = out ? cu->MemcpyDtoH(out + (size_t)i * n, at, sizeof(float) * per)
                             : cu->MemcpyHtoDAsync(at, in + (size_t)i * n, sizeof(float) * per, x->stream);
        r = r || out ? r : cu->StreamSynchronize(x->stream);
        if (r) {
            return qn_cuda_fail(&x->cuda, r, "copying a buffer", err);
        }
    }
    return 0;
}

int qn_cuda_read(qn_exec *e, qn_view v, int row, int n_rows, float *out, qn_err *err)
{
    return copy_view(e, v, row, n_rows, out, NULL, err);
}

int qn_cuda_write(qn_exec *e, qn_view v, int row, int n_rows, const float *in, qn_err *err)
{
    return copy_view(e, v, row, n_rows, NULL, in, err);
}

/* n rows of a cache of `heads` heads of `dim` values, the first of them row `row`. raw: room for them. */
static int copy_rows(qn_cuda_exec *x, uint64_t base, qn_cache_type type, int row, int n, int heads, int dim,
                     float *f, bool store, uint8_t *raw, qn_err *err)
{
    const qn_cuda_api *cu = &x->cuda.api;
    size_t unit = qn_cuda_kv_bytes(type, 1, dim), bytes = unit * (size_t)heads * (size_t)n;
    uint64_t at = base + unit * (size_t)heads * (size_t)row;
    for (size_t i = 0; store && i < (size_t)heads * (size_t)n; i++) {
        qn_cuda_kv_put(type, f + i * (size_t)dim, raw + i * unit, dim);
    }
    qn_cu_result r = store ? cu->MemcpyHtoDAsync(at, raw, bytes, x->stream) : cu->MemcpyDtoH(raw, at, bytes);
    r = r || !store ? r : cu->StreamSynchronize(x->stream);
    for (size_t i = 0; !r && !store && i < (size_t)heads * (size_t)n; i++) {
        qn_cuda_kv_get(type, raw + i * unit, f + i * (size_t)dim, dim);
    }
    return r ? qn_cuda_fail(&x->cuda, r, "copying rows of a KV cache", err) : 0;
}

int qn_cuda_kv_rows(qn_exec *e, int kv, int pos, int n, float *k, float *v, bool store, qn_err *err)
{
    qn_cuda_exec *x = (qn_cuda_exec *)e;
    if (qn_exec_check_kv(e, kv, pos, n, err)) {
        return -1;
    }
    x->cuda.api.CtxSetCurrent(x->ctx);
    const qn_kv_cache *p = &e->plans->kv[kv];
    int rows = qn_kv_rows(p, &e->opts), heads = p->n_head_kv;
    size_t nk = (size_t)heads * (size_t)p->k_dim, nv = (size_t)heads * (size_t)p->v_dim;
    uint8_t *raw = malloc(2 * (nk > nv ? nk : nv) * (size_t)n + 1);
    int rc = raw ? 0 : qn_fail(err, "out of memory");
    for (int done = 0; rc == 0 && done < n;) {
        int row = (pos + done) % rows, m = n - done < rows - row ? n - done : rows - row,
            at = e->seq * rows + row;
        rc = copy_rows(x, x->mem.k[kv], e->opts.k_type, at, m, heads, p->k_dim, k + (size_t)done * nk, store,
                       raw, err) ||
                     copy_rows(x, x->mem.v[kv], e->opts.v_type, at, m, heads, p->v_dim, v + (size_t)done * nv,
                               store, raw, err)
                 ? -1
                 : 0;
        done += m;
    }
    free(raw);
    return rc;
}

/* Attention: f16 operands on the tensor cores, f32 by attention_decode.cu. */
static qn_arith attention_arith(const qn_cuda_exec *x, const qn_run *r, const qn_step *s)
{
    const qn_cuda_list *list = qn_cuda_list_of(x, r);
    for (int i = 0; i < list->n; i++) {
        const qn_cuda_action *a = &list->actions[i];
        if (a->step == s && strcmp(x->low.programs[a->program].name, "attention_decode") != 0) {
            return QN_ARITH_F16;
        }
    }
    return QN_ARITH_F32;
}

qn_arith qn_cuda_arith(const qn_exec *e, const qn_run *r, const qn_step *s)
{
    if (s->op->id == QN_OP_ATTENTION) {
        return attention_arith((const qn_cuda_exec *)e, r, s);
    }
    bool linear = s->op->id == QN_OP_LINEAR, glu = s->op->id == QN_OP_GLU;
    if (!linear && !glu) {
        return QN_ARITH_F32;
    }
    int n_out = r->outputs == QN_OUT_ALL ? r->n : 1; /* the head of few outputs runs as in decode */
    if (r->phase == QN_PHASE_PREFILL && r->n > QN_CUDA_FEW &&
        !(s->rows == QN_ROWS_OUTPUTS && n_out <= QN_CUDA_HEAD_FEW && linear)) {
        return qn_cuda_takes_mmq(s, &e->opts)   ? QN_ARITH_8BIT
               : qn_cuda_takes_fp8(s, &e->opts) ? QN_ARITH_FP8
                                                : QN_ARITH_F16;
    }
    bool eight = !e->opts.f32_activations && !(glu && s->spec.glu.sparsity_std > 0);
    for (int i = 0; i < (linear ? 9 : 6);
         i += 3) { /* every weight quantised: 8-bit activations (lower_ops.c) */
        eight = eight && (!s->w[i] || qn_cuda_is_planes(s->w[i]));
    }
    return eight ? QN_ARITH_8BIT : QN_ARITH_F32;
}

bool qn_cuda_round_input(const qn_exec *e, const qn_step *s, float *x, int rows, int n)
{
    const int group = qn_cuda_fine(&e->opts, n) ? 16 : 32;
    (void)s;
    for (float *g = x, *end = x + (size_t)rows * (size_t)n; g < end; g += group) {
        float top = 0;
        for (int i = 0; i < group; i++) {
            top = fmaxf(top, fabsf(g[i]));
        }
        float d = top * (1.0f / 127.0f), up = top > 0 ? 127.0f / top : 0;
        for (int i = 0; i < group; i++) {
            g[i] = d * rintf(g[i] * up);
        }
    }
    return true;
}
