/* opts_internal.h: what the files of the option tables share. */
#ifndef QN_CLI_OPTS_INTERNAL_H
#define QN_CLI_OPTS_INTERNAL_H

#include "cli/opts.h"

/* Sets the destination from the value; `name` is the option, or the variable, as messages call it. -1: done,
 * else the exit status. */
int qn_opts_set(const qn_usage *u, const qn_opt *o, const char *name, const char *value, void *dst);

/* One option that the command line has set: the last value of a destination. */
typedef struct qn_given {
    const void *dst;
    const char *name, *value; /* value: "" where it takes none */
} qn_given;

/* Sets what the environment says of options whose destination is not in given[0..n). -1: done, else the exit
 * status. */
int qn_opts_from_env(const qn_usage *u, const qn_given *given, size_t n);

/* --debug options: what was given and what the environment said. */
void qn_opts_show(const qn_usage *u, const qn_given *given, size_t n);

/* Names under -v the QUERN_ variables that no option of any command reads. */
void qn_opts_check_env(void);

#endif
