#include "cli/sampling.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "cli/cli.h"

enum { N_OF_DRAW = 2 }; /* options before the filters */
static const qn_opt sampling_opts[] = {
    {"--temp", "T", "Temperature; 0: always the likeliest token. Default: 0.8.", QN_OPT_FLOAT,
     offsetof(qn_sampling_args, params.temperature), 0, INT_MAX},
    {"-s, --seed", "N", "Seed of the draws; -1: a random one, printed. Default: -1.", QN_OPT_STR,
     offsetof(qn_sampling_args, seed)},
    {"--top-k", "N", "Keep the N likeliest tokens; 0: all. Default: 40.", QN_OPT_INT,
     offsetof(qn_sampling_args, params.top_k), 0, INT_MAX},
    {"--top-p", "P", "Keep the likeliest tokens that make up P; 1: all. Default: 0.95.", QN_OPT_FLOAT,
     offsetof(qn_sampling_args, params.top_p), 0, 1},
    {"--min-p", "P", "Keep tokens at least P times as likely as the likeliest; 0: all. Default: 0.05.",
     QN_OPT_FLOAT, offsetof(qn_sampling_args, params.min_p), 0, 1},
    {"--repeat-penalty", "X", "Penalise tokens already seen; 1: off. Default: 1.", QN_OPT_FLOAT,
     offsetof(qn_sampling_args, params.repeat_penalty)},
    {"--repeat-last-n", "N", "Tokens the penalty looks back; 0: off, -1: whole context. Default: 64.",
     QN_OPT_INT, offsetof(qn_sampling_args, params.repeat_last_n), -1, INT_MAX},
    {0},
};

qn_sampling_args qn_sampling_args_defaults(void)
{
    return (qn_sampling_args){.params = quern_sampler_defaults(), .seed = "-1"};
}

qn_opt_group qn_sampling_group(qn_sampling_args *a)
{
    return (qn_opt_group){"Sampling", sampling_opts, a};
}

qn_opt_group qn_sampling_filters_group(qn_sampling_args *a)
{
    return (qn_opt_group){"Sampling", sampling_opts + N_OF_DRAW, a};
}

int qn_seed_parse(const char *text, uint64_t *seed)
{
    uint32_t random;
    if (strcmp(text, "-1") == 0) {
        if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) {
            qn_cli_error("no random seed: %s", strerror(errno));
            return -1;
        }
        *seed = random;
        return 0;
    }
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != 0 || errno != 0) {
        return 1;
    }
    *seed = v;
    return 0;
}

int qn_sampling_finish(qn_sampling_args *a, const char *command)
{
    int rc = qn_seed_parse(a->seed, &a->params.seed);
    if (rc > 0) {
        return qn_cli_usage_error(command, "--seed: '%s' is neither a whole number of 64 bits nor -1",
                                  a->seed);
    }
    if (rc < 0) {
        return QN_EXIT_ERROR;
    }
    if (!(a->params.repeat_penalty > 0) || !isfinite(a->params.repeat_penalty)) {
        return qn_cli_usage_error(command, "--repeat-penalty: %g is not a finite number > 0 (1 turns it off)",
                                  (double)a->params.repeat_penalty);
    }
    return -1;
}

const char *qn_sampling_text(const quern_sampler_params *p, char text[160])
{
    snprintf(text, 160, "temp %g, top-k %d, top-p %g, min-p %g, repeat-penalty %g over %d",
             (double)p->temperature, p->top_k, (double)p->top_p, (double)p->min_p, (double)p->repeat_penalty,
             p->repeat_last_n);
    return text;
}

void qn_sampling_show(const quern_sampler_params *p)
{
    char text[160];
    qn_cli_note("sampling: %s", qn_sampling_text(p, text));
}
