// rooms: room_base
#include "base/threads.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct cover {
    int n, grain, n_workers;
    unsigned char *hits;
    _Atomic int bad;
};

static void cover_range(void *arg, int first, int last, int worker)
{
    struct cover *c = arg;
    if (first < 0 || last > c->n || first >= last || worker < 0 || worker >= c->n_workers ||
        first % c->grain != 0 || (last % c->grain != 0 && last != c->n)) {
        atomic_fetch_add(&c->bad, 1);
        return;
    }
    for (int i = first; i < last; i++) {
        c->hits[i]++;
    }
}

static void check_cover(qn_pool *pool, int n, int grain)
{
    struct cover c = {.n = n, .grain = grain, .n_workers = qn_pool_size(pool)};
    c.hits = calloc((size_t)n + 1, 1);
    qn_parallel(pool, n, grain, cover_range, &c);
    assert_int_equal(c.bad, 0);
    for (int i = 0; i < n; i++) {
        assert_int_equal(c.hits[i], 1);
    }
    free(c.hits);
}

static qn_pool *pool_of(int n)
{
    qn_err err;
    qn_pool *pool = NULL;
    assert_int_equal(qn_pool_new(&pool, n, &err), 0);
    assert_int_equal(qn_pool_size(pool), n);
    return pool;
}

static void covers_every_index_once(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 9}, counts[] = {0, 1, 2, 7, 64, 1000, 4097},
                     grains[] = {1, 3, 16, 5000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        qn_pool *pool = pool_of(sizes[s]);
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            for (size_t g = 0; g < sizeof grains / sizeof *grains; g++) {
                check_cover(pool, counts[k], grains[g]);
            }
        }
        qn_pool_free(pool);
    }
}

struct shift {
    const int *in;
    int *out;
    int by;
};

static void shift_range(void *arg, int first, int last, int worker)
{
    (void)worker;
    struct shift *s = arg;
    for (int i = first; i < last; i++) {
        s->out[i] = s->in[i] + s->by;
    }
}

/* Each job reads what the one before wrote; plain memory, so a missing happens-before shows under TSan. */
static void jobs_in_a_row_see_each_other(void **state)
{
    (void)state;
    enum { N = 257, JOBS = 20000 };
    static int a[N], b[N];
    static const int sizes[] = {2, 5};
    for (int s = 0; s < 2; s++) {
        memset(a, 0, sizeof a);
        qn_pool *pool = pool_of(sizes[s]);
        for (int j = 0; j < JOBS / sizes[s]; j++) {
            struct shift there = {a, b, 1}, back = {b, a, 2};
            qn_parallel(pool, N, 8, shift_range, &there);
            qn_parallel(pool, N, 16, shift_range, &back);
        }
        for (int i = 0; i < N; i++) {
            assert_int_equal(a[i], 3 * (JOBS / sizes[s]));
        }
        qn_pool_free(pool);
    }
}

static void works_after_a_pause(void **state)
{
    (void)state;
    qn_pool *pool = pool_of(3);
    for (int k = 0; k < 5; k++) {
        check_cover(pool, 300, 2);
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    qn_pool_free(pool);
}

struct slow {
    _Atomic int others; /* done */
    _Atomic int waited; /* for that many others */
};

/* The range of the first index lasts until all others are done, by whoever is left; ten minutes at most. */
static void slow_range(void *arg, int first, int last, int worker)
{
    struct slow *s = arg;
    (void)worker;
    if (first > 0) {
        atomic_fetch_add(&s->others, last - first);
        return;
    }
    for (int ms = 0; s->others < 64 - last && ms < 600000; ms++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    s->waited = 64 - last;
}

/* Whoever gets the slow range must not hold the others, and the caller must outwait it. */
static void idle_workers_take_over(void **state)
{
    (void)state;
    qn_pool *pool = pool_of(2);
    struct slow s = {0};
    qn_parallel(pool, 64, 1, slow_range, &s);
    assert_in_range(s.waited, 1, 63);
    assert_int_equal(s.others, s.waited);
    qn_pool_free(pool);
}

static void refuses_no_threads(void **state)
{
    (void)state;
    qn_err err;
    qn_pool *pool = NULL;
    assert_int_equal(qn_pool_new(&pool, 0, &err), -1);
    assert_null(pool);
    assert_non_null(strstr(err.text, "0"));
    qn_pool_free(NULL);
}

static void counts_the_affinity_mask(void **state)
{
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_int_equal(qn_cpu_count(), CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &all)) {
            CPU_SET(i, &one);
            break;
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(qn_cpu_count(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(covers_every_index_once), cmocka_unit_test(jobs_in_a_row_see_each_other),
        cmocka_unit_test(works_after_a_pause),     cmocka_unit_test(idle_workers_take_over),
        cmocka_unit_test(refuses_no_threads),      cmocka_unit_test(counts_the_affinity_mask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
