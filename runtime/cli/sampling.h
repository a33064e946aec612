/* sampling.h: the options that say how tokens are drawn. */
#ifndef QN_CLI_SAMPLING_H
#define QN_CLI_SAMPLING_H

#include "cli/opts.h"
#include "engine/quern.h"

typedef struct qn_sampling_args {
    quern_sampler_params params;
    const char *seed; /* as typed; -1: a random one */
} qn_sampling_args;

qn_sampling_args qn_sampling_args_defaults(void);
qn_opt_group qn_sampling_group(qn_sampling_args *a);
/* The same without --temp and --seed. */
qn_opt_group qn_sampling_filters_group(qn_sampling_args *a);

/* A seed as typed: a whole number of 64 bits, or -1 for a random one (of 32 bits, which are easier to
 * retype). 0; 1: it is neither; -1 after printing the error. */
int qn_seed_parse(const char *text, uint64_t *seed);

/* Sets params.seed from `seed`. -1: go on, else the exit status. */
int qn_sampling_finish(qn_sampling_args *a, const char *command);

/* The effective values, into `text`; one line on stderr. */
const char *qn_sampling_text(const quern_sampler_params *p, char text[160]);
void qn_sampling_show(const quern_sampler_params *p);

#endif
