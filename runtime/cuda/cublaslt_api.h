/* cublaslt_api.h: own declarations of the cuBLASLt entry points and types that quern uses.
 * tests/cuda_headers.c holds them against the real header where a toolkit exists. */
#ifndef QN_CUDA_CUBLASLT_API_H
#define QN_CUDA_CUBLASLT_API_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned int qn_lt_status; /* cublasStatus_t */
enum { QN_LT_SUCCESS = 0, QN_LT_NOT_INITIALIZED = 1, QN_LT_ALLOC_FAILED = 3, QN_LT_NOT_SUPPORTED = 15 };

typedef struct cublasLtContext *qn_lt_handle;
typedef struct CUstream_st *qn_lt_stream;
/* Descriptors are opaque structs of the library; it allocates them. */
typedef void *qn_lt_desc, *qn_lt_layout, *qn_lt_preference;

enum {
    QN_LT_R_32F = 0,
    QN_LT_R_16F = 2,
    QN_LT_R_8I = 3,
    QN_LT_R_32I = 10,
    QN_LT_R_16BF = 14,
    QN_LT_R_8F_E4M3 = 28
};
enum { QN_LT_COMPUTE_32F = 68, QN_LT_COMPUTE_32I = 72 };
enum { QN_LT_OP_N = 0, QN_LT_OP_T = 1 };
enum {
    QN_LT_DESC_SCALE_TYPE = 1,
    QN_LT_DESC_TRANSA = 3,
    QN_LT_DESC_TRANSB = 4,
    QN_LT_DESC_EPILOGUE = 7,
    QN_LT_DESC_BIAS_POINTER = 8,
    QN_LT_DESC_BIAS_TYPE = 26,
};
enum { QN_LT_EPILOGUE_DEFAULT = 1, QN_LT_EPILOGUE_BIAS = 4 };
enum { QN_LT_LAYOUT_ORDER = 1, QN_LT_LAYOUT_BATCH_COUNT = 5, QN_LT_LAYOUT_BATCH_STRIDE = 6 };
enum { QN_LT_ORDER_COL = 0, QN_LT_ORDER_ROW = 1 };
enum {
    QN_LT_PREF_MAX_WORKSPACE = 1,
    QN_LT_PREF_REDUCTION_MASK = 3,
    QN_LT_PREF_MIN_ALIGNMENT_A = 5,
    QN_LT_PREF_MIN_ALIGNMENT_B = 6,
    QN_LT_PREF_MIN_ALIGNMENT_C = 7,
    QN_LT_PREF_MIN_ALIGNMENT_D = 8
};

typedef struct qn_lt_algo {
    uint64_t data[8];
} qn_lt_algo;

typedef struct qn_lt_heuristic {
    qn_lt_algo algo;
    size_t workspace; /* bytes it needs */
    qn_lt_status state;
    float waves;
    int reserved[4];
} qn_lt_heuristic;

typedef size_t qn_fn_cublasLtGetVersion(void);
typedef const char *qn_fn_cublasLtGetStatusString(qn_lt_status);
typedef qn_lt_status qn_fn_cublasLtCreate(qn_lt_handle *);
typedef qn_lt_status qn_fn_cublasLtDestroy(qn_lt_handle);
typedef qn_lt_status qn_fn_cublasLtMatmulDescCreate(qn_lt_desc *, unsigned int compute,
                                                    unsigned int scale_type);
typedef qn_lt_status qn_fn_cublasLtMatmulDescDestroy(qn_lt_desc);
typedef qn_lt_status qn_fn_cublasLtMatmulDescSetAttribute(qn_lt_desc, unsigned int, const void *, size_t);
typedef qn_lt_status qn_fn_cublasLtMatrixLayoutCreate(qn_lt_layout *, unsigned int type, uint64_t rows,
                                                      uint64_t cols, int64_t ld);
typedef qn_lt_status qn_fn_cublasLtMatrixLayoutDestroy(qn_lt_layout);
typedef qn_lt_status qn_fn_cublasLtMatrixLayoutSetAttribute(qn_lt_layout, unsigned int, const void *, size_t);
typedef qn_lt_status qn_fn_cublasLtMatmulPreferenceCreate(qn_lt_preference *);
typedef qn_lt_status qn_fn_cublasLtMatmulPreferenceDestroy(qn_lt_preference);
typedef qn_lt_status qn_fn_cublasLtMatmulPreferenceSetAttribute(qn_lt_preference, unsigned int, const void *,
                                                                size_t);
typedef qn_lt_status qn_fn_cublasLtMatmulAlgoGetHeuristic(qn_lt_handle, qn_lt_desc, qn_lt_layout a,
                                                          qn_lt_layout b, qn_lt_layout c, qn_lt_layout d,
                                                          qn_lt_preference, int n_asked,
                                                          qn_lt_heuristic *results, int *n);
typedef qn_lt_status qn_fn_cublasLtMatmul(qn_lt_handle, qn_lt_desc, const void *alpha, const void *a,
                                          qn_lt_layout a_layout, const void *b, qn_lt_layout b_layout,
                                          const void *beta, const void *c, qn_lt_layout c_layout, void *d,
                                          qn_lt_layout d_layout, const qn_lt_algo *, void *workspace,
                                          size_t workspace_bytes, qn_lt_stream);

typedef struct qn_cublaslt_api {
    qn_fn_cublasLtGetVersion *GetVersion;
    qn_fn_cublasLtGetStatusString *GetStatusString;
    qn_fn_cublasLtCreate *Create;
    qn_fn_cublasLtDestroy *Destroy;
    qn_fn_cublasLtMatmulDescCreate *MatmulDescCreate;
    qn_fn_cublasLtMatmulDescDestroy *MatmulDescDestroy;
    qn_fn_cublasLtMatmulDescSetAttribute *MatmulDescSetAttribute;
    qn_fn_cublasLtMatrixLayoutCreate *MatrixLayoutCreate;
    qn_fn_cublasLtMatrixLayoutDestroy *MatrixLayoutDestroy;
    qn_fn_cublasLtMatrixLayoutSetAttribute *MatrixLayoutSetAttribute;
    qn_fn_cublasLtMatmulPreferenceCreate *MatmulPreferenceCreate;
    qn_fn_cublasLtMatmulPreferenceDestroy *MatmulPreferenceDestroy;
    qn_fn_cublasLtMatmulPreferenceSetAttribute *MatmulPreferenceSetAttribute;
    qn_fn_cublasLtMatmulAlgoGetHeuristic *MatmulAlgoGetHeuristic;
    qn_fn_cublasLtMatmul *Matmul;
} qn_cublaslt_api;

#endif
