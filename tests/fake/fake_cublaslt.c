// fake_cublaslt.c: a libcublasLt.so.13 that accepts every product and computes none (see fake_gpu.c). It
// allocates nothing on the device, as quern gives it a workspace; a product without one is refused.
#include <stdlib.h>

#include "cuda/cublaslt_api.h"

#pragma GCC visibility push(default)

static qn_lt_status make(void **out)
{
    *out = malloc(8);
    return *out ? QN_LT_SUCCESS : QN_LT_ALLOC_FAILED;
}

static qn_lt_status drop(void *p)
{
    free(p);
    return QN_LT_SUCCESS;
}

qn_fn_cublasLtGetVersion cublasLtGetVersion;
size_t cublasLtGetVersion(void)
{
    return 130000;
}

qn_fn_cublasLtGetStatusString cublasLtGetStatusString;
const char *cublasLtGetStatusString(qn_lt_status s)
{
    return s ? "told to fail" : "success";
}

qn_fn_cublasLtCreate cublasLtCreate;
qn_lt_status cublasLtCreate(qn_lt_handle *out)
{
    return make((void **)out);
}

qn_fn_cublasLtDestroy cublasLtDestroy;
qn_lt_status cublasLtDestroy(qn_lt_handle h)
{
    return drop(h);
}

qn_fn_cublasLtMatmulDescCreate cublasLtMatmulDescCreate;
qn_lt_status cublasLtMatmulDescCreate(qn_lt_desc *out, unsigned int compute, unsigned int scale_type)
{
    (void)compute, (void)scale_type;
    return make(out);
}

qn_fn_cublasLtMatmulDescDestroy cublasLtMatmulDescDestroy;
qn_lt_status cublasLtMatmulDescDestroy(qn_lt_desc d)
{
    return drop(d);
}

qn_fn_cublasLtMatmulDescSetAttribute cublasLtMatmulDescSetAttribute;
qn_lt_status cublasLtMatmulDescSetAttribute(qn_lt_desc d, unsigned int attribute, const void *value, size_t n)
{
    (void)d, (void)attribute, (void)value, (void)n;
    return QN_LT_SUCCESS;
}

qn_fn_cublasLtMatrixLayoutCreate cublasLtMatrixLayoutCreate;
qn_lt_status cublasLtMatrixLayoutCreate(qn_lt_layout *out, unsigned int type, uint64_t rows, uint64_t cols,
                                        int64_t ld)
{
    (void)type;
    return rows > 0 && cols > 0 && ld >= (int64_t)rows ? make(out) : QN_LT_NOT_SUPPORTED;
}

qn_fn_cublasLtMatrixLayoutDestroy cublasLtMatrixLayoutDestroy;
qn_lt_status cublasLtMatrixLayoutDestroy(qn_lt_layout l)
{
    return drop(l);
}

qn_fn_cublasLtMatrixLayoutSetAttribute cublasLtMatrixLayoutSetAttribute;
qn_lt_status cublasLtMatrixLayoutSetAttribute(qn_lt_layout l, unsigned int attribute, const void *value,
                                              size_t n)
{
    (void)l, (void)attribute, (void)value, (void)n;
    return QN_LT_SUCCESS;
}

qn_fn_cublasLtMatmulPreferenceCreate cublasLtMatmulPreferenceCreate;
qn_lt_status cublasLtMatmulPreferenceCreate(qn_lt_preference *out)
{
    return make(out);
}

qn_fn_cublasLtMatmulPreferenceDestroy cublasLtMatmulPreferenceDestroy;
qn_lt_status cublasLtMatmulPreferenceDestroy(qn_lt_preference p)
{
    return drop(p);
}

qn_fn_cublasLtMatmulPreferenceSetAttribute cublasLtMatmulPreferenceSetAttribute;
qn_lt_status cublasLtMatmulPreferenceSetAttribute(qn_lt_preference p, unsigned int attribute,
                                                  const void *value, size_t n)
{
    (void)p, (void)attribute, (void)value, (void)n;
    return QN_LT_SUCCESS;
}

qn_fn_cublasLtMatmulAlgoGetHeuristic cublasLtMatmulAlgoGetHeuristic;
qn_lt_status cublasLtMatmulAlgoGetHeuristic(qn_lt_handle h, qn_lt_desc d, qn_lt_layout a, qn_lt_layout b,
                                            qn_lt_layout c, qn_lt_layout out, qn_lt_preference p, int n_asked,
                                            qn_lt_heuristic *results, int *n)
{
    (void)h, (void)d, (void)a, (void)b, (void)c, (void)out, (void)p;
    results[0] = (qn_lt_heuristic){.workspace = 1 << 20};
    *n = n_asked > 0;
    return QN_LT_SUCCESS;
}

qn_fn_cublasLtMatmul cublasLtMatmul;
qn_lt_status cublasLtMatmul(qn_lt_handle h, qn_lt_desc d, const void *alpha, const void *a, qn_lt_layout al,
                            const void *b, qn_lt_layout bl, const void *beta, const void *c, qn_lt_layout cl,
                            void *out, qn_lt_layout ol, const qn_lt_algo *algo, void *workspace,
                            size_t workspace_bytes, qn_lt_stream s)
{
    (void)h, (void)d, (void)alpha, (void)al, (void)bl, (void)beta, (void)c, (void)cl, (void)ol, (void)algo;
    return a && b && out && workspace && workspace_bytes >= 1 << 20 && s ? QN_LT_SUCCESS
                                                                         : QN_LT_NOT_SUPPORTED;
}
