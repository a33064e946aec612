#include "cpu/limits.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/threads.h"
#include "cpu/limits_kernels.h"

/* Short passes, many of them: on a machine with other work some fall into a gap of it. */
static const double pass_seconds = 0.005;
enum { PASSES = 100, SLICES = 16, BLOCK = 1 << 18 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct work {
    const qn_limits_kernels *k;
    char *memory;
    double (*multiply)(long rounds, double *ops);
    int first;        /* block of the slice that is read */
    long rounds;      /* of each thread's piece */
    double *ops;      /* [threads] of a piece */
    uint64_t sink[1]; /* what the loops found, so that they cannot be left out */
} work;

static void touch(void *arg, int first, int last, int worker)
{
    const work *w = arg;
    memset(w->memory + (size_t)first * BLOCK, worker + 1, (size_t)(last - first) * BLOCK);
}

static void read_blocks(void *arg, int first, int last, int worker)
{
    work *w = arg;
    (void)worker;
    const char *from = w->memory + (size_t)(w->first + first) * BLOCK;
    uint64_t sum = w->k->read(from, (size_t)(last - first) * BLOCK);
    __atomic_fetch_add(w->sink, sum, __ATOMIC_RELAXED);
}

static void multiply(void *arg, int first, int last, int worker)
{
    work *w = arg;
    (void)worker;
    for (int i = first; i < last; i++) {
        double sum = w->multiply(w->rounds, &w->ops[i]);
        __atomic_fetch_add(w->sink, (uint64_t)(int64_t)sum, __ATOMIC_RELAXED);
    }
}

/* Operations a second of one loop in every thread. */
static double measure_ops(qn_pool *pool, work *w, double (*loop)(long rounds, double *ops))
{
    /* Pieces, so that a thread that is late takes fewer. */
    int n = 16 * qn_pool_size(pool);
    double best = 0;
    w->multiply = loop;
    w->rounds = 1000;
    for (int pass = 0; pass < PASSES;) {
        double start = seconds();
        qn_parallel(pool, n, 1, multiply, w);
        double spent = seconds() - start, ops = 0;
        if (spent < pass_seconds / 2) {
            w->rounds *= 2;
            continue;
        }
        for (int i = 0; i < n; i++) {
            ops += w->ops[i];
        }
        best = ops / spent > best ? ops / spent : best;
        pass++;
    }
    return best;
}

/* Slice after slice: when one's turn comes again, no cache holds it any more. */
static double measure_read(qn_pool *pool, work *w, int n_block)
{
    double best = 0;
    int n = n_block < SLICES ? n_block : n_block / SLICES;
    for (int pass = 0; pass < PASSES; pass++) {
        w->first = pass * n % (n_block - n + 1);
        double start = seconds();
        qn_parallel(pool, n, 1, read_blocks, w);
        double rate = (double)n * BLOCK / (seconds() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

int qn_cpu_limits_measure(qn_cpu_limits *out, int n_threads, qn_isa isa, size_t bytes, qn_err *err)
{
    const qn_limits_kernels *const kernels[QN_ISA_COUNT] = {
        &qn_limits_portable,
#if defined(__x86_64__)
        &qn_limits_avx2,
        &qn_limits_avx512,
#endif
    };
    if (!qn_isa_usable(isa) || kernels[isa] == NULL) {
        return qn_fail(err, "this machine does not run %s", qn_isa_name(isa));
    }
    if (bytes < 1 << 20) {
        return qn_fail(err, "%zu bytes are too few to measure with", bytes);
    }
    qn_pool *pool;
    int n_block = bytes / BLOCK < 1 << 20 ? (int)(bytes / BLOCK) : 1 << 20;
    if (qn_pool_new(&pool, n_threads, err) != 0) {
        return -1;
    }
    work w = {.k = kernels[isa],
              .memory = qn_alloc64((size_t)n_block * BLOCK),
              .ops = qn_calloc(16 * (size_t)n_threads, sizeof(double))};
    int rc = w.memory != NULL && w.ops != NULL
                 ? 0
                 : qn_fail(err, "out of memory for %zu bytes to read", (size_t)n_block * BLOCK);
    if (rc == 0) {
        qn_parallel(pool, n_block, 1, touch, &w);
        out->read = measure_read(pool, &w, n_block);
        out->f32 = measure_ops(pool, &w, w.k->f32);
        out->int8 = measure_ops(pool, &w, w.k->int8);
    }
    free(w.memory);
    free(w.ops);
    qn_pool_free(pool);
    return rc;
}
