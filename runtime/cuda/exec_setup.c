/* exec_setup.c: what stands before the first token: device, memory, weights, kernels. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/threads.h"
#include "cuda/exec.h"

double qn_cuda_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { WORKSPACE = 32 << 20, ALIGN = 256, UPLOAD_THREADS = 8 };

static int alloc(qn_cuda_exec *x, size_t bytes, const char *what, uint64_t *out, qn_err *err)
{
    qn_cu_ptr p = 0;
    if (x->n_alloc == (int)(sizeof x->allocs / sizeof *x->allocs)) {
        return qn_fail(err, "too many device allocations");
    }
    bytes = bytes ? bytes : ALIGN;
    qn_cu_result r = x->cuda.api.MemAlloc(&p, bytes);
    if (r) {
        qn_cuda_fail(&x->cuda, r, what, err);
        return qn_fail_prefix(err, "%.1f MiB of device memory", (double)bytes / 1048576.0);
    }
    x->allocs[x->n_alloc++] = p;
    x->device_bytes += bytes;
    *out = p;
    return 0;
}

static int open_device(qn_cuda_exec *x, qn_err *err)
{
    if (qn_cuda_load(&x->cuda, err) || qn_cuda_init(&x->cuda, err) ||
        qn_cuda_device_get(&x->cuda, x->base.opts.device, &x->dev, err)) {
        return -1;
    }
    const qn_cuda_api *cu = &x->cuda.api;
    qn_cu_result r = cu->DevicePrimaryCtxRetain(&x->ctx, x->dev.handle);
    r = r ? r : cu->CtxSetCurrent(x->ctx);
    r = r ? r : cu->StreamCreate(&x->stream, QN_CU_STREAM_NON_BLOCKING);
    return r ? qn_cuda_fail(&x->cuda, r, "opening the device", err) : 0;
}

static uint64_t address_of(const void *user, const void *key)
{
    const qn_cuda_exec *x = user;
    return qn_placed_at(x->placed, x->n_placed, key);
}

static uint64_t weight_address(const void *user, const qn_tensor *t)
{
    return address_of(user, t);
}

static uint64_t table_address(const void *user, const float *t)
{
    return address_of(user, t);
}

static uint64_t half_address(const void *user, const qn_tensor *t)
{
    const qn_cuda_exec *x = user;
    return qn_half_cache_at(&x->halves, t);
}

static int fp8_of(const void *user, const qn_tensor *t)
{
    const qn_cuda_exec *x = user;
    return qn_half_cache_fp8(&x->halves, t);
}

/* 16-bit weights: kept ones, or the areas in which they are made anew and, with two, a stream for that. */
static int alloc_halves(qn_cuda_exec *x, const qn_cuda_sizes *z, qn_err *err)
{
    const qn_exec_opts *o = &x->base.opts;
    const qn_cuda_api *cu = &x->cuda.api;
    if (o->weight_cache == QN_WEIGHT_CACHE_ON &&
        (qn_half_cache_make(&x->halves, x->base.plans, o, err) ||
         alloc(x, x->halves.bytes, "weight cache", &x->halves.base, err))) {
        return -1;
    }
    x->mem.half = o->weight_cache == QN_WEIGHT_CACHE_ON ? half_address : NULL;
    x->mem.fp8 = o->prefill == QN_PREFILL_FP8 ? fp8_of : NULL;
    if (x->halves.n_fp8 > 0) {
        size_t n = (size_t)x->halves.n_fp8;
        x->fp8_up = qn_calloc(n, sizeof *x->fp8_up);
        if (!x->fp8_up) {
            return qn_fail(err, "out of memory");
        }
        if (alloc(x, n * sizeof(uint32_t), "largest weights", &x->mem.fp8_tops, err)) {
            return -1;
        }
    }
    for (int i = 0; i < z->n_w16; i++) {
        if (alloc(x, z->w16, "f16 weights", &x->mem.w16[i], err)) {
            return -1;
        }
    }
    qn_cu_result r = z->n_w16 < 2 ? QN_CU_SUCCESS : cu->StreamCreate(&x->side, QN_CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 2 && x->side && !r; i++) {
        r = cu->EventCreate(&x->w16_made[i], QN_CU_EVENT_DISABLE_TIMING);
        r = r ? r : cu->EventCreate(&x->w16_read[i], QN_CU_EVENT_DISABLE_TIMING);
    }
    return r ? qn_cuda_fail(&x->cuda, r, "a second stream", err) : 0;
}

static int alloc_device(qn_cuda_exec *x, uint64_t weight_bytes, qn_err *err)
{
    const qn_plans *p = x->base.plans;
    const qn_exec_opts *o = &x->base.opts;
    qn_cuda_mem *m = &x->mem;
    qn_cuda_sizes z = qn_cuda_scratch_sizes(p, o);
    uint64_t weights;
    m->bufs = qn_calloc((size_t)p->n_buf, sizeof *m->bufs);
    m->k = qn_calloc((size_t)p->n_kv + 1, sizeof *m->k);
    m->v = qn_calloc((size_t)p->n_kv + 1, sizeof *m->v);
    m->k_map = qn_calloc((size_t)p->n_kv + 1, sizeof *m->k_map);
    m->v_map = qn_calloc((size_t)p->n_kv + 1, sizeof *m->v_map);
    if (!m->bufs || !m->k || !m->v || !m->k_map || !m->v_map) {
        return qn_fail(err, "out of memory");
    }
    if (alloc(x, weight_bytes, "weights", &weights, err)) {
        return -1;
    }
    for (int i = 0; i < x->n_placed; i++) {
        x->placed[i].address += weights;
    }
    uint64_t total = 0, base;
    for (int pass = 0; pass < 2; pass++) { /* all caches in one allocation: sizes, then addresses */
        uint64_t at = pass ? base : 0;
        for (int i = 0; i < p->n_kv; i++) {
            const qn_kv_cache *kv = &p->kv[i];
            uint64_t rows = (uint64_t)qn_n_seq(o) * (uint64_t)qn_kv_rows(kv, o);
            m->k[i] = at;
            at += (rows * qn_cuda_kv_bytes(o->k_type, kv->n_head_kv, kv->k_dim) + ALIGN - 1) / ALIGN * ALIGN;
            m->v[i] = at;
            at += (rows * qn_cuda_kv_bytes(o->v_type, kv->n_head_kv, kv->v_dim) + ALIGN - 1) / ALIGN * ALIGN;
        }
        total = pass == 0 ? at : total;
        if (pass == 0 && alloc(x, total, "KV cache", &base, err)) {
            return -1;
        }
    }
    for (int i = 0; i < p->n_buf; i++) {
        size_t bytes = (size_t)p->bufs[i].width * (size_t)qn_buf_rows(&p->bufs[i], o) * sizeof(float);
        if (alloc(x, bytes, p->bufs[i].name, &m->bufs[i], err)) {
            return -1;
        }
    }
    if (alloc(x, sizeof(qn_cuda_state), "state", &m->state, err) ||
        alloc(x, sizeof(int32_t) * (size_t)o->n_ubatch, "tokens", &m->tokens, err) ||
        alloc(x, z.k16, "keys as f16", &m->k16, err) || alloc(x, z.v16, "values as f16", &m->v16, err) ||
        alloc(x, z.parts, "attention parts", &m->parts, err) ||
        alloc(x, z.part_count, "attention parts", &m->part_count, err) || alloc_halves(x, &z, err) ||
        alloc(x, z.a16, "f16 activations", &m->a16, err) ||
        alloc(x, z.row_scale, "row factors", &m->row_scale, err) ||
        alloc(x, z.row_sums, "sums of rows", &m->row_sums, err) ||
        alloc(x, z.stream, "residual stream", &m->stream, err) ||
        alloc(x, z.squares, "squares", &m->squares[0], err) ||
        alloc(x, z.squares, "squares", &m->squares[1], err) ||
        alloc(x, z.q8, "8-bit activations", &m->q8[0], err) ||
        alloc(x, z.q8, "8-bit activations", &m->q8[1], err) ||
        alloc(x, z.product, "products", &m->product, err) ||
        alloc(x, z.sampling, "sampling", &m->sampling, err) || alloc(x, z.marks, "marks", &m->marks, err) ||
        alloc(x, z.history, "history", &m->history, err) || alloc(x, z.found, "candidates", &m->found, err) ||
        alloc(x, z.arrived, "choice", &m->arrived, err) ||
        alloc(x, z.sample_work, "sampler", &m->sample_work, err)) {
        return -1;
    }
    qn_cu_result r = x->cuda.api.MemsetD8Async(m->arrived, 0, z.arrived, x->stream);
    r = r ? r : x->cuda.api.MemsetD8Async(m->sampling, 0, z.sampling, x->stream);
    r = r || !z.row_sums ? r : x->cuda.api.MemsetD8Async(m->row_sums, 0, z.row_sums, x->stream);
    r = r ? r : x->cuda.api.MemsetD8Async(m->sample_work, 0, z.sample_work, x->stream);
    if (z.part_count) {
        r = r ? r : x->cuda.api.MemsetD8Async(m->part_count, 0, z.part_count, x->stream);
    }
    r = r ? r
          : x->cuda.api.MemsetD8Async(base, 0, total, x->stream); /* rows never written must stay finite */
    if (!x->cuda.api.TensorMapEncodeTiled && !o->tma_attention) {
        x->base.opts.flash_attention = true;
    }
    if (x->dev.cc >= QN_TMA_CC && !o->flash_attention && !o->plain_attention && !r) {
        uint64_t maps;
        if (alloc(x, qn_cuda_map_bytes(p), "tensor maps", &maps, err) ||
            alloc(x, 8, "attention pairs", &m->pairs, err) || alloc(x, z.q16, "query tiles", &m->q16, err) ||
            qn_cuda_make_maps(x, maps, err)) {
            return -1;
        }
        r = x->cuda.api.MemsetD8Async(m->pairs, 0, 8, x->stream);
        r = r || !z.q16 ? r : x->cuda.api.MemsetD8Async(m->q16, 0, z.q16, x->stream);
    }
    int widths[QN_CUDA_ACT_WIDTHS], n = qn_cuda_act_widths(p, o, widths);
    n = n < QN_CUDA_ACT_WIDTHS ? n : QN_CUDA_ACT_WIDTHS; /* lowering refuses more */
    if (n > 0 && !r &&
        (alloc(x, QN_CUDA_MAP_BYTES * (size_t)n, "tensor maps", &m->act_maps, err) ||
         qn_cuda_make_act_maps(x, m->act_maps, widths, n, err))) {
        return -1;
    }
    m->weight = weight_address;
    m->table = table_address;
    m->user = x;
    return r ? qn_cuda_fail(&x->cuda, r, "clearing memory", err) : 0;
}

static int alloc_host(qn_cuda_exec *x, qn_err *err)
{
    const qn_cuda_api *cu = &x->cuda.api;
    const qn_exec_opts *o = &x->base.opts;
    qn_buf outputs = {.rows = QN_ROWS_OUTPUTS};
    size_t logits = sizeof(float) * (size_t)x->base.plans->model->n_vocab * (size_t)qn_buf_rows(&outputs, o);
    void *state, *tokens, *rows, *ring;
    qn_cu_ptr ring_dev = 0;
    qn_cu_result r = cu->MemHostAlloc(&state, sizeof(qn_cuda_state), 0);
    x->host_state = r ? NULL : state;
    r = r ? r : cu->MemHostAlloc(&tokens, sizeof(int32_t) * (size_t)o->n_ubatch, 0);
    x->host_tokens = r ? NULL : tokens;
    r = r ? r : cu->MemHostAlloc(&rows, logits, 0);
    x->host_logits = r ? NULL : rows;
    r = r ? r : cu->MemHostAlloc(&ring, sizeof(int32_t) * QN_CUDA_RING, QN_CU_HOST_ALLOC_MAPPED);
    x->ring = r ? NULL : ring;
    r = r ? r : cu->MemHostGetDevicePointer(&ring_dev, ring, 0);
    x->mem.ring = ring_dev;
    return r ? qn_cuda_fail(&x->cuda, r, "pinned host memory", err) : 0;
}

/* Weights go up in batches: blocks of quantised ones into a staging area, from which repack.cu makes planes.
 */
typedef struct uploader {
    qn_cuda_exec *x;
    qn_upload_item *items; /* [n_placed] */
    int first, last;       /* the batch */
    uint64_t staging;
    size_t staging_bytes;
    double seconds;
    uint64_t sent, total; /* bytes of the batches before; of all */
    int rc;
    qn_err err;
} uploader;

/* The next batch: as many pieces as the staging area takes. */
static void fill_batch(uploader *u)
{
    const qn_cuda_exec *x = u->x;
    size_t used = 0;
    u->first = u->last;
    while (u->last < x->n_placed) {
        const qn_placed *p = &x->placed[u->last];
        uint64_t dst = p->address;
        if (p->planes) {
            if (used + p->bytes > u->staging_bytes) {
                break;
            }
            dst = u->staging + used;
            used += (p->bytes + ALIGN - 1) / ALIGN * ALIGN;
        }
        u->items[u->last++] = (qn_upload_item){p->src, dst, p->bytes};
    }
}

static void on_sent(void *user, uint64_t bytes)
{
    const uploader *u = user;
    const qn_exec_opts *o = &u->x->base.opts;
    if (o->loading) {
        o->loading(o->loading_user, QN_LOADING_WEIGHTS, u->sent + bytes, u->total);
    }
}

static void *run_upload(void *arg)
{
    uploader *u = arg;
    double seconds = 0;
    int threads = qn_cpu_count() < UPLOAD_THREADS ? qn_cpu_count() : UPLOAD_THREADS;
    u->rc = qn_upload(&u->x->cuda, u->x->ctx, u->items + u->first, u->last - u->first, threads, &seconds,
                      on_sent, u, &u->err);
    u->seconds += seconds;
    for (int i = u->first; i < u->last; i++) {
        u->sent += u->items[i].bytes;
    }
    return NULL;
}

/* Makes planes of the batch that lies in the staging area. */
static int repack_batch(uploader *u, qn_err *err)
{
    qn_cuda_exec *x = u->x;
    for (int i = u->first; i < u->last; i++) {
        for (int k = 0; x->placed[i].planes && k < x->low.repack.n; k++) {
            qn_cuda_action *a = &x->low.repack.actions[k];
            if (a->repack == x->placed[i].key) {
                a->args[0] = u->items[i].dst;
                if (qn_cuda_launch_one(x, a, 1, err)) {
                    return -1;
                }
            }
        }
    }
    qn_cu_result r = x->cuda.api.StreamSynchronize(x->stream);
    return r ? qn_cuda_fail(&x->cuda, r, "repacking weights", err) : 0;
}

static int open_staging(uploader *u, qn_err *err)
{
    qn_cuda_exec *x = u->x;
    size_t all = 0, largest = 0, free_bytes = 0, total = 0;
    for (int i = 0; i < x->n_placed; i++) {
        size_t b = x->placed[i].planes ? (x->placed[i].bytes + ALIGN - 1) / ALIGN * ALIGN : 0;
        all += b;
        largest = b > largest ? b : largest;
    }
    qn_cu_result r = x->cuda.api.MemGetInfo(&free_bytes, &total);
    u->staging_bytes = all <= free_bytes / 2 ? all : largest > free_bytes / 2 ? largest : free_bytes / 2;
    u->staging_bytes = u->staging_bytes ? u->staging_bytes : ALIGN;
    qn_cu_ptr p = 0;
    r = r ? r : x->cuda.api.MemAlloc(&p, u->staging_bytes);
    u->staging = p;
    u->items = qn_calloc((size_t)x->n_placed + 1, sizeof *u->items);
    if (r) {
        qn_cuda_fail(&x->cuda, r, "staging area for weights", err);
        return qn_fail_prefix(err, "%.1f MiB of device memory", (double)u->staging_bytes / 1048576.0);
    }
    return u->items ? 0 : qn_fail(err, "out of memory");
}

/* Phases and counters of the persistent kernel. */
static int place_phases(qn_cuda_exec *x, qn_err *err)
{
    qn_lowered *low = &x->low;
    if (low->persistent.n == 0) {
        return 0;
    }
    qn_cuda_action *a = &low->persistent.actions[0];
    size_t phases = (size_t)low->n_phase * sizeof *low->phases;
    size_t counters = (size_t)(low->n_phase + 1) * QN_CUDA_COUNTER_BYTES;
    if (!x->dev.cooperative_launch || !x->cuda.api.LaunchKernelEx) {
        return qn_fail(err, "--persistent: this card or driver has no cooperative launches");
    }
    qn_cuda_action *steps = &low->persistent_steps.actions[0];
    if (alloc(x, phases, "phases", &a->args[0], err) || alloc(x, counters, "counters", &a->args[2], err) ||
        alloc(x, counters, "counters", &steps->args[2], err)) {
        return -1;
    }
    steps->args[0] = a->args[0];
    qn_cu_result r = x->cuda.api.MemcpyHtoDAsync(a->args[0], low->phases, phases, x->stream);
    r = r ? r : x->cuda.api.MemsetD8Async(a->args[2], 0, counters, x->stream);
    r = r ? r : x->cuda.api.MemsetD8Async(steps->args[2], 0, counters, x->stream);
    r = r ? r : x->cuda.api.StreamSynchronize(x->stream);
    return r ? qn_cuda_fail(&x->cuda, r, "sending phases", err) : 0;
}

/* Uploads beside the compilation, then repacks; more batches follow where the staging area is small. */
static int load_planes(qn_cuda_exec *x, uploader *u, qn_err *err)
{
    pthread_t thread;
    fill_batch(u);
    bool beside = pthread_create(&thread, NULL, run_upload, u) == 0;
    int rc = qn_cuda_build_kernels(x, err);
    if (beside) {
        pthread_join(thread, NULL);
    } else {
        run_upload(u);
    }
    while (rc == 0) {
        if (u->rc) {
            *err = u->err;
            return -1;
        }
        rc = repack_batch(u, err);
        if (u->last == x->n_placed) {
            return rc;
        }
        fill_batch(u);
        run_upload(u);
    }
    return rc;
}

/* Times the library's algorithms for whole chunks, where the result can be kept. */
static void tune_products(qn_cuda_exec *x)
{
    const qn_exec_opts *o = &x->base.opts;
    char place[QN_PATH_MAX];
    const char *why;
    if (o->no_tune || !x->gemm.loaded || !qn_cache_place(place, sizeof place, o->cache, &why)) {
        return;
    }
    double start = qn_cuda_seconds();
    const qn_tuning t = {.cu = &x->cuda.api,
                         .stream = x->stream,
                         .dir = place,
                         .card = x->dev.name,
                         .driver = x->cuda.version,
                         .list = &x->low.prefill,
                         .rows = o->n_ubatch,
                         .budget = 0.4,
                         .log = qn_cuda_log,
                         .user = x};
    qn_tuned n = qn_gemm_tune(&x->gemm, &t);
    if (n.timed > 0) {
        char line[96];
        snprintf(line, sizeof line, "products: timed %d of %d, %.0f ms, remembered for next time", n.timed,
                 n.timed + n.found, 1e3 * (qn_cuda_seconds() - start));
        qn_cuda_log(x, 0, line);
    }
}

/* Planes, then the 16-bit rows that are kept of them. */
static int load_weights(qn_cuda_exec *x, uploader *u, qn_err *err)
{
    if (load_planes(x, u, err) || qn_cuda_find_fp8_scales(x, err)) {
        return -1;
    }
    for (int i = 0; i < x->low.halves.n; i++) {
        if (qn_cuda_launch_one(x, &x->low.halves.actions[i], 1, err)) {
            return -1;
        }
    }
    qn_cu_result r = x->cuda.api.StreamSynchronize(x->stream);
    return r ? qn_cuda_fail(&x->cuda, r, "making the weight cache", err) : 0;
}

/* cuBLASLt where it is to multiply. Where it is missing and nobody asked for it, quern's own kernel serves.
 */
static int open_library(qn_cuda_exec *x, qn_err *err)
{
    qn_exec_opts *o = &x->base.opts;
    uint64_t workspace;
    bool asked = o->prefill == QN_PREFILL_CUBLASLT || o->prefill == QN_PREFILL_FP8;
    if (o->prefill != QN_PREFILL_AUTO && !asked) {
        return 0;
    }
    if (o->prefill == QN_PREFILL_FP8 && x->dev.cc < QN_FP8_CC) {
        return qn_fail(
            err,
            "--prefill fp8 needs a card with fp8 products, compute capability 8.9 or newer; %s has %d.%d",
            x->dev.name, x->dev.cc / 10, x->dev.cc % 10);
    }
    if (alloc(x, WORKSPACE, "cuBLASLt workspace", &workspace, err)) {
        return -1;
    }
    qn_err why;
    if (qn_gemm_open(&x->gemm, x->cuda.version / 1000, workspace, WORKSPACE, &why) == 0) {
        return 0;
    }
    if (asked) {
        *err = why;
        return qn_fail_prefix(err, "--prefill %s", o->prefill == QN_PREFILL_FP8 ? "fp8" : "cublaslt");
    }
    char line[640];
    snprintf(line, sizeof line,
             "products of prompts by quern's own kernel, slower than the library's: %.500s", why.text);
    qn_cuda_log(x, 0, line);
    qn_gemm_close(&x->gemm);
    o->prefill = QN_PREFILL_MMA;
    return 0;
}

int qn_cuda_setup(qn_cuda_exec *x, qn_err *err)
{
    uint64_t weight_bytes;
    if (open_device(x, err) || qn_cuda_place(&x->placed, &x->n_placed, x->base.plans, &weight_bytes, err) ||
        alloc_device(x, weight_bytes, err) || alloc_host(x, err) || open_library(x, err)) {
        return -1;
    }
    uploader u = {.x = x};
    for (int i = 0; i < x->n_placed; i++) {
        u.total += x->placed[i].bytes;
    }
    int rc = open_staging(&u, err);
    rc = rc ? rc : load_weights(x, &u, err);
    if (u.staging) {
        x->cuda.api.MemFree(u.staging);
    }
    free(u.items);
    rc = rc ? rc : place_phases(x, err);
    if (rc == 0) {
        tune_products(x);
        rc = qn_cuda_tune_at_load(x, err);
    }
    if (rc == 0) {
        qn_jit_seal(x->jit);
        x->base.stats.n_compiled = qn_jit_compiles(x->jit);
    }
    x->base.stats.device_bytes = x->device_bytes;
    x->base.stats.upload_bytes = weight_bytes;
    x->base.stats.upload = u.seconds;
    return rc;
}
