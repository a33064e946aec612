/* bench.h: what `quern bench` measured, and its ways to print it. */
#ifndef QN_CLI_BENCH_H
#define QN_CLI_BENCH_H

#include "cli/json.h"
#include "cli/limits.h"
#include "engine/engine.h"

enum { QN_BENCH_TABLE, QN_BENCH_MARKDOWN, QN_BENCH_JSON, QN_BENCH_CSV, QN_BENCH_JSONL };

/* One measurement. */
typedef struct qn_bench_test {
    const quern_session *s;
    const char *path;
    const qn_limits *limits; /* of its device; zeros where they were not measured */
    int n_batch;
    int n, depth; /* tokens measured in each sequence; tokens that are there before them */
    int n_seq;    /* sequences at once */
    bool gen;     /* generation, not a prompt */
    const quern_sampler_params *sampler; /* how generated tokens are chosen */
    bool by_device;                      /* the executor chose them; otherwise the host, or nothing did */
    int repeats;
    double *seconds; /* [repeats] */
} qn_bench_test;

/* Whether choosing takes more than the likeliest token's id. */
bool qn_bench_draws(const quern_sampler_params *p);

/* "tg128 x4 @ d4096" into text[48]. */
const char *qn_bench_name(const qn_bench_test *t, char text[48]);

typedef struct qn_bench_numbers {
    double mean, sd, median; /* sd with n - 1; 0 for one run */
} qn_bench_numbers;

/* Of tokens a second (all sequences together), or of seconds. */
void qn_bench_statistics(const qn_bench_test *t, bool per_second, qn_bench_numbers *out);

/* A row of the table or of CSV; header: before the first one. */
void qn_bench_table(const qn_bench_test *t, bool header);
void qn_bench_csv(const qn_bench_test *t, bool header);
/* An object; NULL: out of memory. */
json_t *qn_bench_json(const qn_bench_test *t);

#endif
