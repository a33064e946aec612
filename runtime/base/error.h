/* error.h: how every fallible function of quern reports.
 *
 * A fallible function returns 0 on success and -1 on failure and takes a `qn_err *` as its last
 * parameter (never NULL). On failure the text is one line, without a trailing newline, that names
 * the file, key, tensor or option at fault and the values that disagree. */
#ifndef QN_BASE_ERROR_H
#define QN_BASE_ERROR_H

#include <stddef.h>

#define QN_ERR_MAX 1024

typedef struct qn_err {
    char text[QN_ERR_MAX];
} qn_err;

/* Writes a printf-style message (cut to fit; control bytes of file-supplied text become '?') and returns -1.
 */
int qn_fail(qn_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Puts "prefix: " in front of the message already there; returns -1. */
int qn_fail_prefix(qn_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Lets compilers and analysers see that the two return -1, so that they do not take what a failed function
 * has not set for used. */
static inline int qn_minus_one(int failed)
{
    (void)failed;
    return -1;
}
#define qn_fail(...)        qn_minus_one((qn_fail)(__VA_ARGS__))
#define qn_fail_prefix(...) qn_minus_one((qn_fail_prefix)(__VA_ARGS__))

#endif
