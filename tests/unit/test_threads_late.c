// rooms: room_base
// The pool with threads held up at the worst places, so that late workers are the rule.
#include <sched.h>
#include <stdint.h>
#include <time.h>

static void hold_up(void)
{
    static _Thread_local uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    if (state >> 24 < 16) {
        nanosleep(&(struct timespec){.tv_nsec = (long)(state >> 12 & 0x3fff)}, NULL);
    } else if (state >> 24 < 96) {
        sched_yield();
    }
}

#define QN_POOL_PAUSE() hold_up()
#define qn_pool_new     late_pool_new
#define qn_pool_free    late_pool_free
#define qn_pool_size    late_pool_size
#define qn_parallel     late_parallel
#define qn_cpu_count    late_cpu_count
#include "base/threads.c"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

struct tally {
    _Atomic int did, beyond;
    int n;
};

static void tally_range(void *arg, int first, int last, int worker)
{
    (void)worker;
    struct tally *t = arg;
    atomic_fetch_add(&t->did, last - first);
    if (first < 0 || last > t->n) {
        atomic_fetch_add(&t->beyond, 1);
    }
}

/* A worker that looks at a job which has ended, while the next and longer one is being set up, takes nothing
 * of it. */
static void a_late_worker_takes_nothing(void **state)
{
    (void)state;
    qn_err err;
    qn_pool *pool;
    assert_int_equal(qn_pool_new(&pool, 4, &err), 0);
    for (int j = 0; j < 4000; j++) {
        struct tally t = {.n = j % 2 ? 500 : 3};
        qn_parallel(pool, t.n, 1, tally_range, &t);
        assert_int_equal(t.did, t.n);
        assert_int_equal(t.beyond, 0);
    }
    qn_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_late_worker_takes_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
