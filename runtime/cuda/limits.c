#include "cuda/limits.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/exec.h"

/* The read's grid does not depend on the device: enough blocks for any. */
enum { THREADS = 256, BLOCKS = 8192, PASSES = 12, WORKSPACE = 32 << 20, MIB = 1 << 20 };

typedef struct probe {
    qn_cuda cuda;
    qn_cuda_device dev;
    qn_cu_context ctx;
    qn_cu_stream stream;
    qn_cu_event start, end;
    qn_nvrtc nvrtc;
    qn_jit *jit;
    qn_source source;
    qn_cu_module module;
    qn_cu_function read;
    qn_gemm gemm;
    qn_cu_ptr memory[4];
    int n_memory;
} probe;

static int fail(const probe *p, qn_cu_result r, const char *what, qn_err *err)
{
    return r ? qn_cuda_fail(&p->cuda, r, what, err) : 0;
}

static int alloc(probe *p, size_t bytes, qn_cu_ptr *out, qn_err *err)
{
    qn_cu_result r = p->cuda.api.MemAlloc(out, bytes);
    if (r) {
        qn_cuda_fail(&p->cuda, r, "memory to measure with", err);
        return qn_fail_prefix(err, "%.1f MiB of device memory", (double)bytes / MIB);
    }
    p->memory[p->n_memory++] = *out;
    return 0;
}

static void free_memory(probe *p)
{
    while (p->n_memory > 0) {
        p->cuda.api.MemFree(p->memory[--p->n_memory]);
    }
}

static int open_device(probe *p, int device, qn_err *err)
{
    if (qn_cuda_load(&p->cuda, err) || qn_cuda_init(&p->cuda, err) ||
        qn_cuda_device_get(&p->cuda, device, &p->dev, err)) {
        return -1;
    }
    const qn_cuda_api *cu = &p->cuda.api;
    qn_cu_result r = cu->DevicePrimaryCtxRetain(&p->ctx, p->dev.handle);
    r = r ? r : cu->CtxSetCurrent(p->ctx);
    r = r ? r : cu->StreamCreate(&p->stream, QN_CU_STREAM_NON_BLOCKING);
    r = r ? r : cu->EventCreate(&p->start, QN_CU_EVENT_DEFAULT);
    r = r ? r : cu->EventCreate(&p->end, QN_CU_EVENT_DEFAULT);
    return fail(p, r, "opening the device", err);
}

int qn_cuda_limits_source(qn_source *out, int variant, qn_err *err)
{
    const qn_source_const threads = {"threads", THREADS, true, false};
    const qn_source_request r = {.name = "read_limit",
                                 .kernel = "read_limit.cu",
                                 .variant = variant,
                                 .consts = &threads,
                                 .n_const = 1};
    return qn_source_make(out, &r, err);
}

static int build(probe *p, const char *cache, const char *kernel_src, qn_err *err)
{
    qn_arch arch;
    static char place[QN_PATH_MAX];
    const char *why;
    if (qn_nvrtc_load(&p->nvrtc, p->cuda.version / 1000, err) ||
        qn_arch_for_device(&arch, &p->nvrtc, p->dev.cc, err) ||
        qn_cuda_limits_source(&p->source, arch.variant, err)) {
        return -1;
    }
    bool kept = qn_cache_place(place, sizeof place, cache, &why);
    const qn_jit_opts o = {
        .nvrtc = &p->nvrtc, .arch = arch, .cache_dir = kept ? place : NULL, .kernel_src = kernel_src};
    const qn_jit_program program = {"read_limit", p->source.spec, p->source.text, p->source.symbol};
    const qn_kernel *k;
    if (qn_jit_new(&p->jit, &o, err) || qn_jit_compile_all(p->jit, &program, 1, &k, err)) {
        return -1;
    }
    const qn_blob *image = k->cubin.size ? &k->cubin : &k->ptx;
    qn_cu_result r = p->cuda.api.ModuleLoadDataEx(&p->module, image->data, 0, NULL, NULL);
    r = r ? r : p->cuda.api.ModuleGetFunction(&p->read, p->module, p->source.symbol);
    return fail(p, r, k->name, err);
}

/* Best time of `run`, seconds, after one that does not count. */
static int best_time(probe *p, int (*run)(probe *p, void *what, qn_err *err), void *what, double *best,
                     qn_err *err)
{
    const qn_cuda_api *cu = &p->cuda.api;
    *best = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        float ms = 0;
        qn_cu_result r = cu->EventRecord(p->start, p->stream);
        if (fail(p, r, "events", err) || run(p, what, err)) {
            return -1;
        }
        r = cu->EventRecord(p->end, p->stream);
        r = r ? r : cu->StreamSynchronize(p->stream);
        r = r ? r : cu->EventElapsedTime(&ms, p->start, p->end);
        if (fail(p, r, "measuring", err)) {
            return -1;
        }
        if (pass > 0 && (*best == 0 || 1e-3 * (double)ms < *best)) {
            *best = 1e-3 * (double)ms;
        }
    }
    return *best > 0 ? 0 : qn_fail(err, "a measurement took no time");
}

typedef struct read_args {
    qn_cu_ptr words;
    int64_t n;
    qn_cu_ptr sums;
} read_args;

static int run_read(probe *p, void *what, qn_err *err)
{
    read_args *a = what;
    void *params[] = {&a->words, &a->n, &a->sums};
    qn_cu_result r =
        p->cuda.api.LaunchKernel(p->read, BLOCKS, 1, 1, THREADS, 1, 1, 0, p->stream, params, NULL);
    return fail(p, r, "reading", err);
}

/* Half of what is free, at most 4 GiB: far more than any cache. */
static int measure_read(probe *p, double *rate, qn_err *err)
{
    size_t free_bytes = 0, total = 0;
    read_args a;
    double best;
    if (fail(p, p->cuda.api.MemGetInfo(&free_bytes, &total), "free memory", err)) {
        return -1;
    }
    size_t bytes = free_bytes / 2 < (size_t)4096 * MIB ? free_bytes / 2 / MIB * MIB : (size_t)4096 * MIB;
    a.n = (int64_t)(bytes / 16);
    if (alloc(p, bytes, &a.words, err) || alloc(p, sizeof(uint32_t) * BLOCKS, &a.sums, err) ||
        fail(p, p->cuda.api.MemsetD8Async(a.words, 1, bytes, p->stream), "clearing memory", err) ||
        best_time(p, run_read, &a, &best, err)) {
        return -1;
    }
    *rate = (double)bytes / best;
    free_memory(p);
    return 0;
}

static int run_product(probe *p, void *what, qn_err *err)
{
    const qn_cuda_gemm *q = what;
    return qn_gemm_run(&p->gemm, q, q->n_out, p->stream, err);
}

/* f16 values of both signs: a product of zeros takes less power, and runs faster, than a real one. */
static int fill_halfs(probe *p, qn_cu_ptr dst, size_t n, qn_err *err)
{
    uint16_t *values = malloc(n * sizeof *values);
    uint32_t x = 1;
    if (!values) {
        return qn_fail(err, "out of memory for %zu values", n);
    }
    for (size_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        values[i] = (uint16_t)((x >> 16 & 0x8000) | 0x3400 | (x >> 8 & 0x7ff)); /* 0.25 to 0.5 */
    }
    qn_cu_result r = p->cuda.api.MemcpyHtoD(dst, values, n * sizeof *values);
    free(values);
    return fail(p, r, "sending values", err);
}

static int measure_product(probe *p, qn_cuda_limits *out, qn_err *err)
{
    size_t free_bytes = 0, total = 0;
    qn_cu_ptr workspace, a, w, product;
    qn_cuda_gemm q = {.rows = QN_ROWS_TOKENS};
    double best;
    if (fail(p, p->cuda.api.MemGetInfo(&free_bytes, &total), "free memory", err)) {
        return -1;
    }
    int n = free_bytes > (size_t)1024 * MIB ? 8192 : 2048;
    size_t values = (size_t)n * (size_t)n;
    q.n_in = q.n_out = q.ld_out = n;
    if (alloc(p, 2 * values, &a, err) || alloc(p, 2 * values, &w, err) ||
        alloc(p, 4 * values, &product, err) || alloc(p, WORKSPACE, &workspace, err) ||
        fill_halfs(p, a, values, err) || fill_halfs(p, w, values, err)) {
        return -1;
    }
    q.a = a;
    q.w = w;
    q.out = product;
    /* No cuBLASLt is a stated limitation; the other limit stands without it. */
    if (qn_gemm_open(&p->gemm, p->cuda.version / 1000, workspace, WORKSPACE, &out->why)) {
        return 0;
    }
    if (best_time(p, run_product, &q, &best, err)) {
        return -1;
    }
    out->f16 = 2.0 * (double)n * (double)values / best;
    return 0;
}

static void close_probe(probe *p)
{
    const qn_cuda_api *cu = &p->cuda.api;
    if (p->gemm.loaded) {
        qn_gemm_close(&p->gemm);
    }
    qn_jit_free(p->jit);
    qn_source_free(&p->source);
    if (!p->ctx) {
        return;
    }
    free_memory(p);
    if (p->module) {
        cu->ModuleUnload(p->module);
    }
    if (p->start) {
        cu->EventDestroy(p->start);
    }
    if (p->end) {
        cu->EventDestroy(p->end);
    }
    if (p->stream) {
        cu->StreamDestroy(p->stream);
    }
    cu->DevicePrimaryCtxRelease(p->dev.handle);
}

int qn_cuda_limits_measure(qn_cuda_limits *out, int device, const char *cache, const char *kernel_src,
                           qn_err *err)
{
    probe *p = qn_calloc(1, sizeof *p);
    if (!p) {
        return qn_fail(err, "out of memory");
    }
    memset(out, 0, sizeof *out);
    int rc = open_device(p, device, err) || build(p, cache, kernel_src, err) ||
             measure_read(p, &out->read, err) || measure_product(p, out, err);
    close_probe(p);
    free(p);
    return rc ? -1 : 0;
}
