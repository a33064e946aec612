/* limits.h: measured limits of a device, kept in the folder of the kernel cache. */
#ifndef QN_CLI_LIMITS_H
#define QN_CLI_LIMITS_H

#include "cli/load.h"

/* Of one device with one driver and, on the CPU, one number of threads: what the figures are kept under. */
typedef struct qn_limits {
    char device[192], driver[96];
    int threads;           /* 0: a GPU */
    double read;           /* bytes a second from memory; 0: not measured */
    double f32, int8, f16; /* operations a second; 0: not measured, or no such thing there */
} qn_limits;

/* The key of the CPU with `threads`, or of GPU `device`. 0, or -1 where there is no such GPU. */
int qn_limits_key(qn_limits *l, bool cuda, int device, int threads, qn_err *err);

/* Fills in what is kept under the key of *l; false: nothing. cache: as --cache. */
bool qn_limits_find(qn_limits *l, const char *cache);

/* "NAME: reads 40.0 GB/s, ..." into text. */
enum { QN_LIMITS_TEXT = 512 };
const char *qn_limits_text(const qn_limits *l, char text[QN_LIMITS_TEXT]);

/* `quern bench --device-limits`: measures the backend that the options choose, with each of the thread
 * counts, and keeps the figures. They are results (`json`: in a list of objects), or notes unless `alone`.
 * Returns the exit status. */
int qn_limits_measure(const qn_model_args *a, const int *threads, size_t n, bool json, bool alone);

#endif
