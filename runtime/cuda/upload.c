/* upload.c: weights from the file's map to the device: reader threads copy chunks into pinned buffers and
 * send each on a stream of their own, so that page-cache reads and transfers overlap. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda/exec.h"

enum { CHUNK = 4 << 20, BUFFERS = 2 };

typedef struct chunk {
    const char *src;
    uint64_t dst;
    size_t bytes;
    uint64_t before; /* bytes of the chunks before it */
} chunk;

typedef struct job {
    const qn_cuda *cuda;
    qn_cu_context ctx;
    chunk *chunks;
    int n;
    atomic_int next;
    atomic_uint failed; /* qn_cu_result of the first failure */
    void (*sent)(void *user, uint64_t bytes);
    void *user;
    pthread_t caller; /* the one thread that calls it */
} job;

typedef struct reader {
    qn_cu_stream stream;
    void *buffer[BUFFERS];
    qn_cu_event sent[BUFFERS];
} reader;

static qn_cu_result reader_open(const qn_cuda_api *cu, reader *r)
{
    qn_cu_result s = cu->StreamCreate(&r->stream, QN_CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < BUFFERS && !s; i++) {
        s = cu->MemHostAlloc(&r->buffer[i], CHUNK, QN_CU_HOST_ALLOC_PORTABLE);
        s = s ? s : cu->EventCreate(&r->sent[i], QN_CU_EVENT_DISABLE_TIMING);
    }
    return s;
}

static void reader_close(const qn_cuda_api *cu, reader *r)
{
    for (int i = 0; i < BUFFERS; i++) {
        if (r->buffer[i]) {
            cu->MemFreeHost(r->buffer[i]);
        }
        if (r->sent[i]) {
            cu->EventDestroy(r->sent[i]);
        }
    }
    if (r->stream) {
        cu->StreamDestroy(r->stream);
    }
}

static void *read_chunks(void *arg)
{
    job *j = arg;
    const qn_cuda_api *cu = &j->cuda->api;
    reader r = {0};
    qn_cu_result s = cu->CtxSetCurrent(j->ctx);
    s = s ? s : reader_open(cu, &r);
    for (int turn = 0; !s && !atomic_load(&j->failed); turn++) {
        int i = atomic_fetch_add(&j->next, 1), b = turn % BUFFERS;
        if (i >= j->n) {
            break;
        }
        if (turn >= BUFFERS) {
            s = cu->EventSynchronize(r.sent[b]);
        }
        if (!s) {
            memcpy(r.buffer[b], j->chunks[i].src, j->chunks[i].bytes);
            s = cu->MemcpyHtoDAsync(j->chunks[i].dst, r.buffer[b], j->chunks[i].bytes, r.stream);
        }
        s = s ? s : cu->EventRecord(r.sent[b], r.stream);
        if (!s && j->sent && pthread_equal(pthread_self(), j->caller)) {
            j->sent(j->user, j->chunks[i].before + j->chunks[i].bytes);
        }
    }
    if (r.stream) {
        qn_cu_result done = cu->StreamSynchronize(r.stream);
        s = s ? s : done;
    }
    reader_close(cu, &r);
    unsigned int none = 0;
    if (s) {
        atomic_compare_exchange_strong(&j->failed, &none, s);
    }
    return NULL;
}

static chunk *make_chunks(const qn_upload_item *items, int n, int *n_chunk)
{
    size_t total = 0;
    for (int i = 0; i < n; i++) {
        total += (items[i].bytes + CHUNK - 1) / CHUNK;
    }
    chunk *c = malloc(sizeof *c * (total + 1));
    int k = 0;
    uint64_t before = 0;
    for (int i = 0; c && i < n; i++) {
        for (size_t at = 0; at < items[i].bytes; at += CHUNK) {
            size_t left = items[i].bytes - at;
            size_t bytes = left < CHUNK ? left : CHUNK;
            c[k++] = (chunk){(const char *)items[i].src + at, items[i].dst + at, bytes, before};
            before += bytes;
        }
    }
    *n_chunk = k;
    return c;
}

int qn_upload(const qn_cuda *cuda, qn_cu_context ctx, const qn_upload_item *items, int n, int n_threads,
              double *seconds, void (*sent)(void *user, uint64_t bytes), void *user, qn_err *err)
{
    enum { MAX_READERS = 16 };
    struct timespec t0, t1;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    job j = {.cuda = cuda, .ctx = ctx, .sent = sent, .user = user, .caller = pthread_self()};
    j.chunks = make_chunks(items, n, &j.n);
    if (!j.chunks) {
        return qn_fail(err, "out of memory for the upload");
    }
    pthread_t readers[MAX_READERS];
    int started = 0, want = n_threads < 1 ? 1 : n_threads > MAX_READERS ? MAX_READERS : n_threads;
    want = want > j.n ? j.n : want;
    while (started < want - 1 && pthread_create(&readers[started], NULL, read_chunks, &j) == 0) {
        started++;
    }
    read_chunks(&j);
    for (int i = 0; i < started; i++) {
        pthread_join(readers[i], NULL);
    }
    free(j.chunks);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    if (seconds) {
        *seconds = (double)(t1.tv_sec - t0.tv_sec) + 1e-9 * (double)(t1.tv_nsec - t0.tv_nsec);
    }
    qn_cu_result s = atomic_load(&j.failed);
    return s ? qn_cuda_fail(cuda, s, "uploading weights", err) : 0;
}
