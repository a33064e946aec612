/* gemm.c: matrix products of prefill through cuBLASLt; each shape is planned once. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/exec.h"

static int lt_fail(const qn_gemm *g, qn_lt_status s, const char *what, qn_err *err)
{
    return qn_fail(err, "cuBLASLt: %s: %s", what,
                   g->lt.api.GetStatusString ? g->lt.api.GetStatusString(s) : "failed");
}

int qn_gemm_open(qn_gemm *g, int driver_major, uint64_t workspace, size_t bytes, qn_err *err)
{
    if (qn_cublaslt_load(&g->lt, driver_major, err)) {
        return -1;
    }
    g->loaded = true;
    g->workspace = workspace;
    g->workspace_bytes = bytes;
    qn_lt_status s = g->lt.api.Create(&g->handle);
    return s == QN_LT_SUCCESS ? 0 : lt_fail(g, s, "create", err);
}

static void free_plan(const qn_gemm *g, qn_gemm_plan *p)
{
    const qn_cublaslt_api *lt = &g->lt.api;
    if (p->desc) {
        lt->MatmulDescDestroy(p->desc);
    }
    if (p->a) {
        lt->MatrixLayoutDestroy(p->a);
    }
    if (p->b) {
        lt->MatrixLayoutDestroy(p->b);
    }
    if (p->c) {
        lt->MatrixLayoutDestroy(p->c);
    }
}

void qn_gemm_close(qn_gemm *g)
{
    for (int i = 0; i < g->n; i++) {
        free_plan(g, &g->plans[i]);
    }
    free(g->plans);
    if (g->handle) {
        g->lt.api.Destroy(g->handle);
    }
    memset(g, 0, sizeof *g);
}

/* The largest power of two up to 256 that divides an address. */
static uint32_t alignment(uint64_t address)
{
    uint32_t a = 256;
    while (address % a != 0) {
        a /= 2;
    }
    return a;
}

/* What addresses may be counted on to be multiples of: the library assumes 256 where it is not told. */
static qn_lt_status prefer_alignment(const qn_cublaslt_api *lt, qn_lt_preference pref,
                                     const uint32_t align[3])
{
    static const unsigned int attributes[4] = {QN_LT_PREF_MIN_ALIGNMENT_A, QN_LT_PREF_MIN_ALIGNMENT_B,
                                               QN_LT_PREF_MIN_ALIGNMENT_C, QN_LT_PREF_MIN_ALIGNMENT_D};
    qn_lt_status s = QN_LT_SUCCESS;
    for (int i = 0; i < 4 && !s; i++) {
        const uint32_t *value = &align[i < 2 ? i : 2];
        s = lt->MatmulPreferenceSetAttribute(pref, attributes[i], value, sizeof *value);
    }
    return s;
}

/* Column-major: C (n_out x rows) = W^T (n_in x n_out) * A (n_in x rows). */
static int make_plan(qn_gemm *g, qn_gemm_plan *p, qn_err *err)
{
    const qn_cublaslt_api *lt = &g->lt.api;
    unsigned int in = p->fp8 ? QN_LT_R_8F_E4M3 : p->bf16 ? QN_LT_R_16BF : QN_LT_R_16F;
    int op = QN_LT_OP_T;
    qn_lt_preference pref = NULL;
    qn_lt_heuristic found[QN_GEMM_ALGOS];
    int n = 0;
    qn_lt_status s = lt->MatmulDescCreate(&p->desc, QN_LT_COMPUTE_32F, QN_LT_R_32F);
    s = s ? s : lt->MatmulDescSetAttribute(p->desc, QN_LT_DESC_TRANSA, &op, sizeof op);
    s = s ? s : lt->MatrixLayoutCreate(&p->a, in, (uint64_t)p->n_in, (uint64_t)p->n_out, p->n_in);
    s = s ? s : lt->MatrixLayoutCreate(&p->b, in, (uint64_t)p->n_in, (uint64_t)p->rows, p->n_in);
    s = s ? s
          : lt->MatrixLayoutCreate(&p->c, p->half_out ? QN_LT_R_16F : QN_LT_R_32F, (uint64_t)p->n_out,
                                   (uint64_t)p->rows, p->ld_out);
    s = s ? s : lt->MatmulPreferenceCreate(&pref);
    s = s ? s
          : lt->MatmulPreferenceSetAttribute(pref, QN_LT_PREF_MAX_WORKSPACE, &g->workspace_bytes,
                                             sizeof g->workspace_bytes);
    s = s ? s : prefer_alignment(lt, pref, p->align);
    s = s ? s
          : lt->MatmulAlgoGetHeuristic(g->handle, p->desc, p->a, p->b, p->c, p->c, pref, QN_GEMM_ALGOS, found,
                                       &n);
    if (pref) {
        lt->MatmulPreferenceDestroy(pref);
    }
    for (int i = 0; !s && i < n && i < QN_GEMM_ALGOS; i++) {
        if (found[i].state == QN_LT_SUCCESS && found[i].workspace <= g->workspace_bytes) {
            p->algos[p->n_algo++] = found[i].algo;
        }
    }
    if (s || p->n_algo < 1) {
        free_plan(g, p);
        return lt_fail(g, s ? s : QN_LT_NOT_SUPPORTED, "no algorithm for a product", err);
    }
    return 0;
}

qn_gemm_plan *qn_gemm_find(qn_gemm *g, const qn_cuda_gemm *q, int rows, qn_err *err)
{
    const uint32_t align[3] = {alignment(q->w), alignment(q->a), alignment(q->out)};
    for (int i = 0; i < g->n; i++) {
        qn_gemm_plan *p = &g->plans[i];
        if (p->n_in == q->n_in && p->n_out == q->n_out && p->ld_out == q->ld_out && p->bf16 == q->bf16 &&
            p->fp8 == (q->fp8 > 0) && p->half_out == q->half_out && p->rows == rows &&
            memcmp(p->align, align, sizeof align) == 0) {
            return p;
        }
    }
    if (g->n == g->cap) {
        int cap = g->cap ? 2 * g->cap : 16;
        qn_gemm_plan *p = realloc(g->plans, sizeof *p * (size_t)cap);
        if (!p) {
            qn_fail(err, "out of memory for products");
            return NULL;
        }
        g->plans = p;
        g->cap = cap;
    }
    qn_gemm_plan *p = &g->plans[g->n];
    *p = (qn_gemm_plan){.n_in = q->n_in,
                        .n_out = q->n_out,
                        .ld_out = q->ld_out,
                        .rows = rows,
                        .bf16 = q->bf16,
                        .fp8 = q->fp8 > 0,
                        .half_out = q->half_out};
    memcpy(p->align, align, sizeof align);
    if (make_plan(g, p, err)) {
        qn_fail_prefix(err, "%d x %d by %d rows", q->n_out, q->n_in, rows);
        return NULL;
    }
    g->n++;
    return p;
}

int qn_gemm_run(qn_gemm *g, const qn_cuda_gemm *q, int rows, qn_cu_stream stream, qn_err *err)
{
    const qn_gemm_plan *p = qn_gemm_find(g, q, rows, err);
    if (!p) {
        return -1;
    }
    const float down = ldexpf(1.0f, -QN_CUDA_PRODUCT_SHIFT), zero = 0.0f;
    const float up = q->fp8 ? g->fp8_up[q->fp8 - 1] : q->half_out ? down : 1.0f;
    void *out = (void *)(uintptr_t)q->out;
    qn_lt_status s = g->lt.api.Matmul(g->handle, p->desc, &up, (const void *)(uintptr_t)q->w, p->a,
                                      (const void *)(uintptr_t)q->a, p->b, &zero, out, p->c, out, p->c,
                                      &p->algos[p->chosen], (void *)(uintptr_t)g->workspace,
                                      g->workspace_bytes, (qn_lt_stream)stream);
    return s == QN_LT_SUCCESS ? 0 : lt_fail(g, s, "matmul", err);
}
