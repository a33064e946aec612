#include "cuda/cublaslt.h"

#define ROW(name)                                                                                            \
    {                                                                                                        \
        "cublasLt" #name, offsetof(qn_cublaslt_api, name), false                                             \
    }
static const qn_symbol symbols[] = {
    ROW(GetVersion),
    ROW(GetStatusString),
    ROW(Create),
    ROW(Destroy),
    ROW(MatmulDescCreate),
    ROW(MatmulDescDestroy),
    ROW(MatmulDescSetAttribute),
    ROW(MatrixLayoutCreate),
    ROW(MatrixLayoutDestroy),
    ROW(MatrixLayoutSetAttribute),
    ROW(MatmulPreferenceCreate),
    ROW(MatmulPreferenceDestroy),
    ROW(MatmulPreferenceSetAttribute),
    ROW(MatmulAlgoGetHeuristic),
    ROW(Matmul),
};

/* A version is major * 10000 + minor * 100 + patch. */
static int accept_lt(void *user, const qn_dynlib *lib, qn_err *err)
{
    qn_cublaslt *lt = user;
    if (qn_dynlib_resolve(lib, &lt->api, symbols, sizeof symbols / sizeof *symbols, err) != 0) {
        return -1;
    }
    lt->version = lt->api.GetVersion();
    return lt->version >= 120000 ? 0 : qn_fail(err, "version %zu, at least 120000 is needed", lt->version);
}

int qn_cublaslt_load(qn_cublaslt *out, int driver_major, qn_err *err)
{
    static const char *const all[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", NULL};
    *out = (qn_cublaslt){0};
    qn_dirs dirs = {0};
    int rc = qn_dirs_cuda(&dirs, err);
    if (rc == 0) {
        rc = qn_dynlib_open(&out->lib, &dirs, driver_major == 12 ? all + 1 : all, accept_lt, out, err);
        if (rc != 0) {
            *out = (qn_cublaslt){0}; /* what a refused library left */
            qn_fail_prefix(
                err, "cuBLASLt is missing (remedy: pip install nvidia-cublas, or nvidia-cublas-cu12 for a "
                     "driver of CUDA 12)");
        }
    }
    qn_dirs_free(&dirs);
    return rc;
}
