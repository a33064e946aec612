#include "base/threads.h"

#include "base/alloc.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A job is published by one store to `ticket`: job number in the high half, next unclaimed index in the low
 * half. Claiming a range is a compare-exchange on that word, so it can only succeed while the job it was read
 * from still has unclaimed work. Before the fields of the next job are written the old ticket is closed
 * (CLOSED as its index): a late worker that read it and then finds the new fields fails in its
 * compare-exchange. Workers need not check in: the caller waits for the claimed ranges alone, never for a
 * worker that is still asleep. */

/* Where a thread that is held up would meet what another does meanwhile: tests make it wait there. */
#ifndef QN_POOL_PAUSE
#define QN_POOL_PAUSE() ((void)0)
#endif

#define CLOSED UINT32_C(0x7fffffff) /* no job has so many indices */

enum {
    SPIN_NS = 40 * 1000, /* longer than the serial stretch between two jobs of a decode step */
    SPIN_BATCH = 32,     /* pauses between two looks at the clock */
};

struct worker {
    qn_pool *pool;
    pthread_t thread;
    int index;
};

struct qn_pool {
    _Alignas(64) _Atomic uint64_t ticket;
    _Alignas(64) _Atomic int done; /* indices of this job that the workers finished */
    _Alignas(64) _Atomic(qn_range_fn) fn;
    _Atomic(void *) arg;
    _Atomic int n, grain;
    _Atomic bool stop;
    _Alignas(64) _Atomic int sleepers;
    _Atomic bool caller_sleeps;
    int size;
    int64_t spin_ns;
    pthread_mutex_t lock;
    pthread_cond_t wake_workers, wake_caller;
    struct worker *workers; /* size - 1 */
};

static uint32_t ticket_job(uint64_t ticket)
{
    return (uint32_t)(ticket >> 32);
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool job_is_new(qn_pool *p, uint32_t seen)
{
    return ticket_job(atomic_load_explicit(&p->ticket, memory_order_acquire)) != seen;
}

static bool job_is_done(qn_pool *p, uint32_t others)
{
    return atomic_load_explicit(&p->done, memory_order_acquire) == (int)others;
}

/* Spins until ready(p, key) or the pool's patience ends; true if ready. */
static bool spin(qn_pool *p, bool (*ready)(qn_pool *, uint32_t), uint32_t key)
{
    int64_t end = 0;
    for (;;) {
        for (int i = 0; i < SPIN_BATCH; i++) {
            if (ready(p, key)) {
                return true;
            }
            relax();
        }
        int64_t t = now_ns();
        if (end == 0) {
            end = t + p->spin_ns;
        }
        if (t >= end) {
            return false;
        }
    }
}

/* Length of the next range: large ones first, small ones at the end, so that a late or slow worker costs
 * little; but never so small that handing out costs more than it saves. */
static int range_len(const qn_pool *p, int n, int left, int grain)
{
    int len = left / (2 * p->size), least = n / (8 * p->size);
    len = (len > least ? len : least) / grain * grain;
    len = len < grain ? grain : len;
    return len < left ? len : left;
}

/* Runs ranges of the current job until none is left. Returns how many indices it did; the job's number in
 * *job. */
static int work(qn_pool *p, int worker, uint32_t *job)
{
    int total = 0;
    uint64_t ticket = atomic_load_explicit(&p->ticket, memory_order_acquire);
    for (;;) {
        QN_POOL_PAUSE();
        /* Acquire: who sees a new field sees the closed ticket too. */
        int n = atomic_load_explicit(&p->n, memory_order_acquire);
        int grain = atomic_load_explicit(&p->grain, memory_order_acquire);
        qn_range_fn fn = atomic_load_explicit(&p->fn, memory_order_acquire);
        void *arg = atomic_load_explicit(&p->arg, memory_order_acquire);
        int first = (int)(uint32_t)ticket;
        if (first >= n || grain < 1) {
            *job = ticket_job(ticket);
            return total;
        }
        int len = range_len(p, n, n - first, grain);
        QN_POOL_PAUSE();
        uint64_t next = (ticket & 0xffffffff00000000u) | (uint32_t)(first + len);
        if (atomic_compare_exchange_strong_explicit(&p->ticket, &ticket, next, memory_order_acq_rel,
                                                    memory_order_acquire)) {
            fn(arg, first, first + len, worker);
            total += len;
            ticket = atomic_load_explicit(&p->ticket, memory_order_acquire);
        }
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    qn_pool *p = w->pool;
    uint32_t seen = 0;
    while (!atomic_load_explicit(&p->stop, memory_order_relaxed)) {
        if (!spin(p, job_is_new, seen)) {
            pthread_mutex_lock(&p->lock);
            atomic_fetch_add(&p->sleepers, 1);
            while (ticket_job(atomic_load(&p->ticket)) == seen) {
                pthread_cond_wait(&p->wake_workers, &p->lock);
            }
            atomic_fetch_sub(&p->sleepers, 1);
            pthread_mutex_unlock(&p->lock);
        }
        int done = work(p, w->index, &seen);
        if (done == 0) {
            continue;
        }
        /* The job cannot have ended before this, so the sum is still that job's. */
        atomic_fetch_add(&p->done, done);
        if (atomic_load(&p->caller_sleeps)) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->wake_caller);
            pthread_mutex_unlock(&p->lock);
        }
    }
    return NULL;
}

/* Nobody takes anything of the job that has ended any more. */
static void close_ticket(qn_pool *p)
{
    uint64_t job = ticket_job(atomic_load_explicit(&p->ticket, memory_order_relaxed));
    atomic_store(&p->ticket, job << 32 | CLOSED);
}

/* Starts the job whose fields are set; index 0 is the first unclaimed one. */
static void publish(qn_pool *p)
{
    uint64_t job = ticket_job(atomic_load_explicit(&p->ticket, memory_order_relaxed)) + 1u;
    atomic_store(&p->ticket, (uint64_t)(uint32_t)job << 32);
    if (atomic_load(&p->sleepers) > 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake_workers);
        pthread_mutex_unlock(&p->lock);
    }
}

void qn_parallel(qn_pool *p, int n, int grain, qn_range_fn fn, void *arg)
{
    if (n <= 0) {
        return;
    }
    grain = grain < 1 ? 1 : grain;
    if (p->size == 1 || n <= grain) {
        fn(arg, 0, n, 0);
        return;
    }
    close_ticket(p);
    atomic_store_explicit(&p->fn, fn, memory_order_release);
    atomic_store_explicit(&p->arg, arg, memory_order_release);
    atomic_store_explicit(&p->n, n, memory_order_release);
    atomic_store_explicit(&p->grain, grain, memory_order_release);
    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    QN_POOL_PAUSE();
    publish(p);
    uint32_t job;
    int others = n - work(p, 0, &job); /* indices that the workers took */
    if (spin(p, job_is_done, (uint32_t)others)) {
        return;
    }
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_sleeps, true);
    while (atomic_load(&p->done) != others) {
        pthread_cond_wait(&p->wake_caller, &p->lock);
    }
    atomic_store(&p->caller_sleeps, false);
    pthread_mutex_unlock(&p->lock);
}

static void stop_workers(qn_pool *p, int n_started)
{
    atomic_store_explicit(&p->stop, true, memory_order_relaxed);
    close_ticket(p);
    atomic_store_explicit(&p->n, 0, memory_order_release);
    publish(p);
    for (int i = 0; i < n_started; i++) {
        pthread_join(p->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&p->wake_caller);
    pthread_cond_destroy(&p->wake_workers);
    pthread_mutex_destroy(&p->lock);
    free(p->workers);
    free(p);
}

int qn_pool_new(qn_pool **out, int n_threads, qn_err *err)
{
    *out = NULL;
    if (n_threads < 1) {
        return qn_fail(err, "thread count %d: must be at least 1", n_threads);
    }
    qn_pool *p = qn_alloc64(sizeof *p);
    struct worker *workers = qn_calloc((size_t)n_threads, sizeof *workers);
    if (!p || !workers) {
        free(p);
        free(workers);
        return qn_fail(err, "out of memory for %d threads", n_threads);
    }
    memset(p, 0, sizeof *p);
    p->size = n_threads;
    /* With more threads than CPUs a spinning thread holds up one that has work. */
    p->spin_ns = n_threads > qn_cpu_count() ? 0 : SPIN_NS;
    p->workers = workers;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake_workers, NULL);
    pthread_cond_init(&p->wake_caller, NULL);
    for (int i = 0; i < n_threads - 1; i++) {
        p->workers[i] = (struct worker){.pool = p, .index = i + 1};
        int rc = pthread_create(&p->workers[i].thread, NULL, worker_main, &p->workers[i]);
        if (rc != 0) {
            stop_workers(p, i);
            return qn_fail(err, "cannot start thread %d of %d: %s", i + 2, n_threads, strerror(rc));
        }
    }
    *out = p;
    return 0;
}

void qn_pool_free(qn_pool *pool)
{
    if (pool) {
        stop_workers(pool, pool->size - 1);
    }
}

int qn_pool_size(const qn_pool *pool)
{
    return pool->size;
}

int qn_cpu_count(void)
{
    for (int n = CPU_SETSIZE; n <= CPU_SETSIZE * 64; n *= 2) {
        cpu_set_t *set = CPU_ALLOC(n);
        if (!set) {
            break;
        }
        size_t size = CPU_ALLOC_SIZE(n);
        int rc = sched_getaffinity(0, size, set);
        int count = rc == 0 ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (count > 0) {
            return count;
        }
    }
    return 1;
}
