/* threads.h: a pool that runs one function over index ranges; the caller is worker 0. */
#ifndef QN_BASE_THREADS_H
#define QN_BASE_THREADS_H

#include "base/error.h"

typedef struct qn_pool qn_pool;

/* Creates n_threads - 1 workers (n_threads >= 1). Workers spin briefly between jobs, then sleep. */
int qn_pool_new(qn_pool **out, int n_threads, qn_err *err);
void qn_pool_free(qn_pool *pool);
int qn_pool_size(const qn_pool *pool);

/* fn(arg, first, last, worker) is called for disjoint ranges that cover [0, n); ranges are multiples of
 * `grain` except at the end. Returns when all are done. Ranges are handed out dynamically, so fn must not
 * depend on which worker gets which. One call at a time. */
typedef void (*qn_range_fn)(void *arg, int first, int last, int worker);
void qn_parallel(qn_pool *pool, int n, int grain, qn_range_fn fn, void *arg);

/* CPUs this process may run on (affinity and cgroup respected as far as sched_getaffinity shows). */
int qn_cpu_count(void);

#endif
