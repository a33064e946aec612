/* bench.h: what `quern bench` measured, and its three ways to print it. */
#ifndef QN_CLI_BENCH_H
#define QN_CLI_BENCH_H

#include "cli/json.h"
#include "engine/engine.h"

typedef struct qn_bench_test {
    int n, depth; /* tokens measured; tokens that are there before them */
    bool gen;     /* generation, not a prompt */
    int repeats;
    double *seconds; /* [repeats] */
} qn_bench_test;

/* "tg128 @ d4096" into text[48]. */
const char *qn_bench_name(const qn_bench_test *t, char text[48]);

/* Mean and standard deviation (n - 1) of tokens per second, or of seconds. */
void qn_bench_statistics(const qn_bench_test *t, bool per_second, double *mean, double *sd);

/* Rows of the tests; header: the first model's. */
void qn_bench_table(const quern_session *s, const qn_bench_test *tests, size_t n, bool header);
void qn_bench_csv(const quern_session *s, const char *path, const qn_bench_test *tests, size_t n,
                  bool header);
/* Appends an object for each to the array; -1: out of memory. */
int qn_bench_json(json_t *array, const quern_session *s, const char *path, const qn_bench_test *tests,
                  size_t n);

#endif
