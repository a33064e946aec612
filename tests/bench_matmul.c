/* bench_matmul [THREADS [TYPE]]: speed of the CPU matrix products, every weight type and instruction set.
 *
 * decode: one row of x against 8 MB of weights, the next 8 of 96 MB each time, so that they come from memory:
 * GB/s of weights read. prefill: 256 rows of x against a 1024 x 1024 weight: GFLOP/s. Best of several short
 * runs, which is what a busy machine still measures fairly. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu/matmul.h"

enum { N_IN = 1024, PREFILL_OUT = 1024, PREFILL_TOKENS = 256, BYTES = 96 << 20, WINDOWS = 12, REPEATS = 24 };

static clockid_t timer = CLOCK_MONOTONIC;

static double now(void)
{
    struct timespec t;
    clock_gettime(timer, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double best_time(qn_mm *mm, qn_act *act, const float *x, int n_tokens, size_t step, qn_product p)
{
    double best = 1e9;
    const unsigned char *w = p.w;
    for (int i = 0; i < REPEATS; i++) {
        qn_act_set(act, x, N_IN, N_IN, n_tokens);
        p.w = w + step * (size_t)(i % WINDOWS);
        double t = now();
        qn_mm_run(mm, act, &p, 1);
        t = now() - t;
        best = t < best ? t : best;
    }
    return best;
}

static void bench_type(qn_pool *pool, qn_isa isa, bool exact, qn_type type, const unsigned char *w,
                       const float *x, float *y)
{
    const qn_dtype *t = qn_dtype_get(type);
    qn_err err;
    qn_mm *mm;
    qn_act act;
    if (qn_mm_new(&mm, pool, isa, exact, N_IN, &err) ||
        qn_act_init(&act, exact, N_IN, PREFILL_TOKENS, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    size_t row = (size_t)(N_IN / t->block_values) * t->block_bytes;
    int rows = (int)(BYTES / WINDOWS / row);
    double decode = best_time(mm, &act, x, 1, row * (size_t)rows, (qn_product){type, w, rows, y, rows});
    double prefill =
        best_time(mm, &act, x, PREFILL_TOKENS, 0, (qn_product){type, w, PREFILL_OUT, y, PREFILL_OUT});
    printf("%-7s %-8s %-5s %8.1f %10.1f\n", t->name, qn_isa_name(isa), exact ? "exact" : "fast",
           (double)row * rows / decode / 1e9, 2.0 * N_IN * PREFILL_OUT * PREFILL_TOKENS / prefill / 1e9);
    fflush(stdout);
    qn_act_free(&act);
    qn_mm_free(mm);
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : qn_cpu_count();
    timer = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    qn_err err;
    qn_pool *pool;
    if (qn_pool_new(&pool, threads, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    unsigned char *w = malloc(BYTES);
    float *x = malloc(sizeof *x * N_IN * PREFILL_TOKENS), *y = malloc(sizeof *y * N_IN * PREFILL_TOKENS);
    if (!w || !x || !y) {
        return 1;
    }
    for (int i = 0; i < BYTES; i++) { /* no f16 or f32 in it is NaN, Inf or subnormal */
        w[i] = (unsigned char)(((unsigned)i * 2654435761u >> 13) & 0x3b) | 0x04;
    }
    for (int i = 0; i < N_IN * PREFILL_TOKENS; i++) {
        x[i] = sinf((float)i);
    }
    printf("%d threads\ntype    isa      arith     GB/s   GFLOP/s\n", threads);
    for (uint32_t t = 0; t < QN_TYPE_COUNT; t++) {
        const qn_dtype *row = qn_dtype_get(t);
        if (!row || !row->decode || (argc > 2 && strcmp(argv[2], row->name) != 0)) {
            continue;
        }
        for (int isa = 0; isa < QN_ISA_COUNT; isa++) {
            if (qn_isa_usable((qn_isa)isa)) {
                bench_type(pool, (qn_isa)isa, false, (qn_type)t, w, x, y);
            }
        }
        bench_type(pool, qn_isa_best(), true, (qn_type)t, w, x, y);
    }
    free(w);
    free(x);
    free(y);
    qn_pool_free(pool);
    return 0;
}
