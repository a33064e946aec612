// fake_gpu.c: a libcuda.so.1 with memory, streams, modules, captures and launches, but without arithmetic:
// device memory is host memory, a launch counts, and only a choice ("argmax...", "sample_...") has an effect.
// It lets the whole CUDA path of the host run on machines without a card, and fail where it is told to. From
// the environment:
//   FAKE_CUINIT, FAKE_DEVICES, FAKE_CC, FAKE_VERSION   as in fake_cuda.c
//   FAKE_FREE_MB     memory of the card (default 4096); more is refused with 2
//   FAKE_OOM_AT      number of the allocation that is refused
//   FAKE_CAPTURE     result of beginning a capture
//   FAKE_REFUSE      result of loading a cubin; FAKE_REFUSE_N: only of the first N
//   FAKE_LAUNCH_FAIL beginning of a kernel's name: its launch is refused with 719
//   FAKE_TOKEN       the choice (default 5)
//   FAKE_REPORT      file that gets the counters when the process ends
//   FAKE_MS, FAKE_NOISE  what launches take (fake_clock.h)
//   FAKE_SELECT, FAKE_STRAY  one kernel that computes, and writes where it may not (fake_select.h)
// contexts: how often the device's one was made. Use that a driver would not allow (allocating, loading or
// waiting inside a capture) is counted as "misuse".
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda/cuda_api.h"
#include "cuda/lower.h"

#pragma GCC visibility push(default)

#include "fake_clock.h"
#include "fake_select.h"

static atomic_long n_alloc, n_free, live, peak, n_module, n_unload, n_launch, n_graph_launch, n_begin,
    n_instantiate, n_misuse, n_host, n_host_free, n_stream, n_stream_destroy, n_graph_destroy, n_context,
    n_held;
static _Thread_local int capturing;

typedef struct captured {
    int n;
    struct {
        char name[64];
        unsigned int threads;
        uint64_t args[9];
    } launches[4096];
} captured;

struct CUfunc_st {
    char name[128];
    int n_arg;
};
struct CUmod_st {
    struct CUfunc_st function;
};
struct CUstream_st {
    captured *capture;
};

static long number(const char *name, long otherwise)
{
    const char *v = getenv(name);
    return v ? atol(v) : otherwise;
}

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("FAKE_REPORT");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (f) {
        fprintf(f,
                "{\"allocs\": %ld, \"frees\": %ld, \"live\": %ld, \"peak\": %ld, \"modules\": %ld, "
                "\"unloads\": %ld, \"launches\": %ld, \"graph_launches\": %ld, \"captures\": %ld, "
                "\"instantiated\": %ld, \"graphs_destroyed\": %ld, \"misuse\": %ld, \"host\": %ld, "
                "\"streams\": %ld, \"events\": %ld, \"contexts\": %ld, \"held\": %ld}\n",
                n_alloc, n_free, live, peak, n_module, n_unload, n_launch, n_graph_launch, n_begin,
                n_instantiate, n_graph_destroy, n_misuse, n_host - n_host_free, n_stream - n_stream_destroy,
                n_event - n_event_destroy, n_context, n_held);
        fclose(f);
    }
}

// Nothing to do: the stream is always through with its work.
#define SUCCEEDS(name)                                                                                       \
    unsigned int name(void);                                                                                 \
    unsigned int name(void)                                                                                  \
    {                                                                                                        \
        return 0;                                                                                            \
    }
SUCCEEDS(cuStreamQuery)
SUCCEEDS(cuStreamWaitEvent)
SUCCEEDS(cuEventQuery)
SUCCEEDS(cuEventSynchronize)
SUCCEEDS(cuGraphUpload)

qn_cu_result cuDevicePrimaryCtxRelease_v2(qn_cu_device device)
{
    (void)device;
    n_misuse += n_held == 0;
    n_held -= n_held > 0;
    return 0;
}

// Inside a capture a driver refuses what is not part of a graph.
static qn_cu_result outside(void)
{
    n_misuse += capturing;
    return capturing ? 900 : 0;
}

qn_fn_cuInit cuInit;
qn_cu_result cuInit(unsigned int flags)
{
    return flags ? 1 : (unsigned int)number("FAKE_CUINIT", 0);
}

// NVRTC asks for it where a driver is loaded.
qn_cu_result cuGetExportTable(const void **table, const void *id);
qn_cu_result cuGetExportTable(const void **table, const void *id)
{
    (void)id;
    *table = NULL;
    return QN_CU_NOT_FOUND;
}

qn_fn_cuDriverGetVersion cuDriverGetVersion;
qn_cu_result cuDriverGetVersion(int *version)
{
    *version = (int)number("FAKE_VERSION", 13000);
    return 0;
}

qn_fn_cuGetErrorName cuGetErrorName;
qn_cu_result cuGetErrorName(qn_cu_result r, const char **name)
{
    *name = r == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : r == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_OTHER";
    return 0;
}

qn_fn_cuGetErrorString cuGetErrorString;
qn_cu_result cuGetErrorString(qn_cu_result r, const char **text)
{
    *text = r == 2 ? "out of memory" : "told to fail";
    return 0;
}

qn_fn_cuDeviceGetCount cuDeviceGetCount;
qn_cu_result cuDeviceGetCount(int *n)
{
    *n = (int)number("FAKE_DEVICES", 1);
    return 0;
}

qn_fn_cuDeviceGet cuDeviceGet;
qn_cu_result cuDeviceGet(qn_cu_device *device, int ordinal)
{
    *device = ordinal;
    return 0;
}

qn_fn_cuDeviceGetName cuDeviceGetName;
qn_cu_result cuDeviceGetName(char *name, int size, qn_cu_device device)
{
    snprintf(name, (size_t)size, "Fake card %d", device);
    return 0;
}

qn_fn_cuDeviceGetAttribute cuDeviceGetAttribute;
qn_cu_result cuDeviceGetAttribute(int *value, unsigned int attribute, qn_cu_device device)
{
    (void)device;
    long cc = number("FAKE_CC", 90);
    *value = attribute == QN_CU_ATTR_CC_MAJOR               ? (int)(cc / 10)
             : attribute == QN_CU_ATTR_CC_MINOR             ? (int)(cc % 10)
             : attribute == QN_CU_ATTR_SMEM_PER_BLOCK_OPTIN ? 227 * 1024
             : attribute == QN_CU_ATTR_MULTIPROCESSORS      ? 132
                                                            : 1 << 20;
    return 0;
}

static size_t card(void)
{
    return (size_t)number("FAKE_FREE_MB", 4096) << 20;
}

qn_fn_cuDeviceTotalMem cuDeviceTotalMem_v2;
qn_cu_result cuDeviceTotalMem_v2(size_t *bytes, qn_cu_device device)
{
    (void)device;
    *bytes = card();
    return 0;
}

qn_fn_cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRetain;
qn_cu_result cuDevicePrimaryCtxRetain(qn_cu_context *ctx, qn_cu_device device)
{
    (void)device;
    n_context += n_held++ == 0;
    *ctx = (qn_cu_context)&live;
    return 0;
}

qn_fn_cuCtxSetCurrent cuCtxSetCurrent;
qn_cu_result cuCtxSetCurrent(qn_cu_context ctx)
{
    return ctx ? 0 : 201;
}

qn_fn_cuCtxGetCurrent cuCtxGetCurrent;
qn_cu_result cuCtxGetCurrent(qn_cu_context *ctx)
{
    *ctx = (qn_cu_context)&live;
    return 0;
}

qn_fn_cuMemGetInfo cuMemGetInfo_v2;
qn_cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    *total = card();
    *free_bytes = *total - (size_t)live;
    return 0;
}

// The size stands in front of a piece.
enum { HEAD = 256 };

qn_fn_cuMemAlloc cuMemAlloc_v2;
qn_cu_result cuMemAlloc_v2(qn_cu_ptr *out, size_t n)
{
    if (outside() || n == 0) {
        return n ? 900 : 1;
    }
    if (++n_alloc == number("FAKE_OOM_AT", 0) || (size_t)live + n > card()) {
        return QN_CU_OUT_OF_MEMORY;
    }
    char *p = calloc(1, n + HEAD);
    if (!p) {
        return QN_CU_OUT_OF_MEMORY;
    }
    memcpy(p, &n, sizeof n);
    live += (long)n;
    if (live > peak) {
        peak = (long)live;
    }
    *out = (qn_cu_ptr)(uintptr_t)(p + HEAD);
    return 0;
}

qn_fn_cuMemFree cuMemFree_v2;
qn_cu_result cuMemFree_v2(qn_cu_ptr p)
{
    size_t n;
    char *whole = (char *)(uintptr_t)p - HEAD;
    memcpy(&n, whole, sizeof n);
    live -= (long)n;
    n_free++;
    free(whole);
    return outside();
}

qn_fn_cuMemHostAlloc cuMemHostAlloc;
qn_cu_result cuMemHostAlloc(void **out, size_t n, unsigned int flags)
{
    (void)flags;
    if (outside()) {
        return 900;
    }
    n_host++;
    *out = calloc(1, n ? n : 1);
    return *out ? 0 : QN_CU_OUT_OF_MEMORY;
}

qn_fn_cuMemFreeHost cuMemFreeHost;
qn_cu_result cuMemFreeHost(void *p)
{
    n_host_free++;
    free(p);
    return 0;
}

qn_fn_cuMemHostGetDevicePointer cuMemHostGetDevicePointer_v2;
qn_cu_result cuMemHostGetDevicePointer_v2(qn_cu_ptr *out, void *host, unsigned int flags)
{
    (void)flags;
    *out = (qn_cu_ptr)(uintptr_t)host;
    return 0;
}

qn_fn_cuMemHostRegister cuMemHostRegister_v2;
qn_cu_result cuMemHostRegister_v2(void *p, size_t n, unsigned int flags)
{
    (void)p, (void)n, (void)flags;
    return outside();
}

qn_fn_cuMemHostUnregister cuMemHostUnregister;
qn_cu_result cuMemHostUnregister(void *p)
{
    (void)p;
    return outside();
}

qn_fn_cuMemcpyHtoD cuMemcpyHtoD_v2;
qn_cu_result cuMemcpyHtoD_v2(qn_cu_ptr to, const void *from, size_t n)
{
    memcpy((void *)(uintptr_t)to, from, n);
    return outside();
}

qn_fn_cuMemcpyDtoH cuMemcpyDtoH_v2;
qn_cu_result cuMemcpyDtoH_v2(void *to, qn_cu_ptr from, size_t n)
{
    memcpy(to, (const void *)(uintptr_t)from, n);
    return outside();
}

qn_fn_cuMemcpyHtoDAsync cuMemcpyHtoDAsync_v2;
qn_cu_result cuMemcpyHtoDAsync_v2(qn_cu_ptr to, const void *from, size_t n, qn_cu_stream s)
{
    (void)s;
    return cuMemcpyHtoD_v2(to, from, n);
}

qn_fn_cuMemcpyDtoHAsync cuMemcpyDtoHAsync_v2;
qn_cu_result cuMemcpyDtoHAsync_v2(void *to, qn_cu_ptr from, size_t n, qn_cu_stream s)
{
    (void)s;
    return cuMemcpyDtoH_v2(to, from, n);
}

qn_fn_cuMemcpyDtoDAsync cuMemcpyDtoDAsync_v2;
qn_cu_result cuMemcpyDtoDAsync_v2(qn_cu_ptr to, qn_cu_ptr from, size_t n, qn_cu_stream s)
{
    (void)s;
    memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, n);
    return 0;
}

qn_fn_cuMemsetD8Async cuMemsetD8Async;
qn_cu_result cuMemsetD8Async(qn_cu_ptr p, unsigned char value, size_t n, qn_cu_stream s)
{
    memset((void *)(uintptr_t)p, value, n);
    return s ? 0 : 1; // never on the default stream, beside the kernels
}

qn_fn_cuMemsetD32Async cuMemsetD32Async;
qn_cu_result cuMemsetD32Async(qn_cu_ptr p, unsigned int value, size_t n, qn_cu_stream s)
{
    for (size_t i = 0; i < n; i++) {
        ((unsigned int *)(uintptr_t)p)[i] = value;
    }
    return s ? 0 : 1;
}

qn_fn_cuStreamCreate cuStreamCreate;
qn_cu_result cuStreamCreate(qn_cu_stream *out, unsigned int flags)
{
    (void)flags;
    n_stream++;
    *out = calloc(1, sizeof **out);
    return *out ? 0 : QN_CU_OUT_OF_MEMORY;
}

qn_fn_cuStreamDestroy cuStreamDestroy_v2;
qn_cu_result cuStreamDestroy_v2(qn_cu_stream s)
{
    n_stream_destroy++;
    free(s);
    return 0;
}

qn_fn_cuStreamSynchronize cuStreamSynchronize;
qn_cu_result cuStreamSynchronize(qn_cu_stream s)
{
    (void)s;
    return outside();
}

qn_fn_cuModuleLoadDataEx cuModuleLoadDataEx;
qn_cu_result cuModuleLoadDataEx(qn_cu_module *out, const void *image, unsigned int n, unsigned int *options,
                                void **values)
{
    (void)n, (void)options, (void)values;
    bool cubin = memcmp(image, "\177ELF", 4) == 0;
    long refuse = number("FAKE_REFUSE", 0);
    if (outside()) {
        return 900;
    }
    n_module++;
    if (cubin && refuse && n_module <= number("FAKE_REFUSE_N", 1L << 30)) {
        return (unsigned int)refuse;
    }
    *out = calloc(1, sizeof **out);
    return *out ? 0 : QN_CU_OUT_OF_MEMORY;
}

qn_fn_cuModuleUnload cuModuleUnload;
qn_cu_result cuModuleUnload(qn_cu_module m)
{
    n_unload++;
    free(m);
    return 0;
}

qn_fn_cuModuleGetFunction cuModuleGetFunction;
qn_cu_result cuModuleGetFunction(qn_cu_function *out, qn_cu_module m, const char *name)
{
    snprintf(m->function.name, sizeof m->function.name, "%s", name);
    *out = &m->function;
    return 0;
}

qn_fn_cuModuleGetGlobal cuModuleGetGlobal_v2;
qn_cu_result cuModuleGetGlobal_v2(qn_cu_ptr *p, size_t *n, qn_cu_module m, const char *name)
{
    (void)p, (void)n, (void)m, (void)name;
    return QN_CU_NOT_FOUND;
}

qn_fn_cuFuncGetAttribute cuFuncGetAttribute;
qn_cu_result cuFuncGetAttribute(int *value, unsigned int attribute, qn_cu_function f)
{
    (void)attribute, (void)f;
    *value = 32;
    return 0;
}

qn_fn_cuFuncSetAttribute cuFuncSetAttribute;
qn_cu_result cuFuncSetAttribute(qn_cu_function f, unsigned int attribute, int value)
{
    (void)f, (void)attribute, (void)value;
    return outside();
}

qn_fn_cuOccupancyMaxActiveBlocksPerMultiprocessor cuOccupancyMaxActiveBlocksPerMultiprocessor;
qn_cu_result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, qn_cu_function f, int threads,
                                                         size_t shared)
{
    (void)f, (void)threads, (void)shared;
    *blocks = 2;
    return 0;
}

// What a choice does to the state (kernel_src/sample.cuh): it goes into the ring and becomes the next input.
static void choose(const char *name, const uint64_t *args)
{
    bool full = strncmp(name, "sample_full", 11) == 0;
    qn_cuda_state *st = (qn_cuda_state *)(uintptr_t)args[0];
    int32_t *tokens = (int32_t *)(uintptr_t)args[full ? 6 : 7], token = (int32_t)number("FAKE_TOKEN", 5);
    volatile int32_t *ring = (volatile int32_t *)(uintptr_t)args[full ? 7 : 8];
    bool last = !full || args[8] == QN_CUDA_SAMPLE_PASSES - 1;
    for (int r = 0; r < (st->many ? st->n_rows : 1) && last; r++) {
        int32_t *step = st->many ? &st->rows[r].step : &st->step;
        *(st->many ? &tokens[r] : &st->token) = token;
        *(st->many ? &st->rows[r].pos : &st->pos) += 1;
        ring[(*step)++ % (QN_CUDA_RING / QN_MAX_SEQ) * QN_MAX_SEQ + r] = token;
    }
}

static bool is_choice(const char *name)
{
    return strncmp(name, "argmax", 6) == 0 || strncmp(name, "sample_", 7) == 0;
}

static qn_cu_result launch(qn_cu_function f, unsigned int threads, qn_cu_stream s, void **params)
{
    const char *victim = getenv("FAKE_LAUNCH_FAIL");
    if (!f || !s || (victim && strncmp(f->name, victim, strlen(victim)) == 0)) {
        return QN_CU_LAUNCH_FAILED;
    }
    uint64_t args[9] = {0};
    for (int i = 0; is_choice(f->name) && i < 9; i++)
        memcpy(&args[i], params[i], sizeof args[i]);
    if (s->capture) {
        captured *c = s->capture;
        if (c->n == (int)(sizeof c->launches / sizeof *c->launches)) {
            return QN_CU_OUT_OF_MEMORY;
        }
        snprintf(c->launches[c->n].name, sizeof c->launches[0].name, "%.60s", f->name);
        c->launches[c->n].threads = threads;
        memcpy(c->launches[c->n++].args, args, sizeof args);
        return 0;
    }
    n_launch++;
    clock_launch(f->name, threads);
    compute_select(f->name, params);
    if (is_choice(f->name)) {
        choose(f->name, args);
    }
    return 0;
}

qn_fn_cuLaunchKernel cuLaunchKernel;
qn_cu_result cuLaunchKernel(qn_cu_function f, unsigned int gx, unsigned int gy, unsigned int gz,
                            unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                            qn_cu_stream s, void **params, void **extra)
{
    (void)extra;
    bool legal = gx && gy && gz && bx && by && bz && bx * by * bz <= 1024 && gy < 65536 && gz < 65536 &&
                 shared <= 227 * 1024;
    return legal ? launch(f, bx * by * bz, s, params) : QN_CU_INVALID_VALUE;
}

qn_fn_cuLaunchKernelEx cuLaunchKernelEx;
qn_cu_result cuLaunchKernelEx(const qn_cu_launch_config *c, qn_cu_function f, void **params, void **extra)
{
    return cuLaunchKernel(f, c->grid_x, c->grid_y, c->grid_z, c->block_x, c->block_y, c->block_z,
                          c->shared_bytes, c->stream, params, extra);
}

qn_fn_cuStreamBeginCapture cuStreamBeginCapture_v2;
qn_cu_result cuStreamBeginCapture_v2(qn_cu_stream s, unsigned int mode)
{
    (void)mode;
    n_begin++;
    long refuse = number("FAKE_CAPTURE", 0);
    if (refuse) {
        return (unsigned int)refuse;
    }
    s->capture = calloc(1, sizeof *s->capture);
    capturing = s->capture != NULL;
    return capturing ? 0 : QN_CU_OUT_OF_MEMORY;
}

qn_fn_cuStreamEndCapture cuStreamEndCapture;
qn_cu_result cuStreamEndCapture(qn_cu_stream s, qn_cu_graph *out)
{
    *out = (qn_cu_graph)s->capture;
    s->capture = NULL;
    capturing = 0;
    return 0;
}

qn_fn_cuGraphGetNodes cuGraphGetNodes;
qn_cu_result cuGraphGetNodes(qn_cu_graph g, qn_cu_graph_node *nodes, size_t *n)
{
    (void)nodes;
    *n = (size_t)((captured *)g)->n;
    return 0;
}

qn_fn_cuGraphInstantiateWithFlags cuGraphInstantiateWithFlags;
qn_cu_result cuGraphInstantiateWithFlags(qn_cu_graph_exec *out, qn_cu_graph g, unsigned long long flags)
{
    (void)flags;
    captured *copy = malloc(sizeof *copy);
    if (!copy) {
        return QN_CU_OUT_OF_MEMORY;
    }
    *copy = *(captured *)g;
    *out = (qn_cu_graph_exec)copy;
    n_instantiate++;
    return outside();
}

qn_fn_cuGraphLaunch cuGraphLaunch;
qn_cu_result cuGraphLaunch(qn_cu_graph_exec g, qn_cu_stream s)
{
    (void)s;
    const captured *c = (const captured *)g;
    n_graph_launch++;
    for (int i = 0; i < c->n; i++) {
        clock_launch(c->launches[i].name, c->launches[i].threads);
        if (is_choice(c->launches[i].name)) {
            choose(c->launches[i].name, c->launches[i].args);
        }
    }
    return 0;
}

qn_fn_cuGraphExecDestroy cuGraphExecDestroy;
qn_cu_result cuGraphExecDestroy(qn_cu_graph_exec g)
{
    n_graph_destroy++;
    free(g);
    return 0;
}

qn_fn_cuGraphDestroy cuGraphDestroy;
qn_cu_result cuGraphDestroy(qn_cu_graph g)
{
    free(g);
    return 0;
}

qn_fn_cuTensorMapEncodeTiled cuTensorMapEncodeTiled;
qn_cu_result cuTensorMapEncodeTiled(qn_cu_tensor_map *out, unsigned int type, unsigned int rank, void *base,
                                    const uint64_t *dims, const uint64_t *strides, const unsigned int *box,
                                    const unsigned int *element_strides, unsigned int interleave,
                                    unsigned int swizzle, unsigned int l2_promotion, unsigned int oob)
{
    (void)type, (void)rank, (void)base, (void)dims, (void)strides, (void)box, (void)element_strides,
        (void)interleave;
    (void)swizzle, (void)l2_promotion, (void)oob;
    memset(out, 0, 64);
    return 0;
}
