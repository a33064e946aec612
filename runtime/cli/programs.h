/* programs.h: what the commands that look at a model's CUDA programs share (ptx, plan, cache warm). */
#ifndef QN_CLI_PROGRAMS_H
#define QN_CLI_PROGRAMS_H

#include "cli/load.h"
#include "cuda/programs.h"

/* Options that decide the programs of a run; for groups of rows over `a`. */
typedef struct qn_target_args {
    qn_model_args model;
    const char *arch;
} qn_target_args;

extern const qn_target_args qn_target_args_defaults;

/* The site of a launch that runs a program; NULL: it has none. */
const qn_site *qn_program_site(const qn_lowered *low, int program);

/* Rows --arch, --variant, --device, -ub, --cache, -t. */
qn_opt_group qn_target_group(qn_target_args *a);

/* Loads the model without tokenizer or session, finds the target, and fills the options that a CUDA session
 * with these arguments has. 0, or -1 after printing the error. */
int qn_target_load(const qn_target_args *a, bool need_nvrtc, qn_loaded *l, qn_exec_opts *opts,
                   qn_cuda_target *target);

/* "sm_90a (NVIDIA H200)", into text[192]. */
const char *qn_target_text(const qn_cuda_target *t, char text[192]);

/* `quern plan --kernels`: the launches of one list ("decode", "few", "prefill"), with a note on what they
 * read. */
void qn_print_launches(const qn_plans *plans, const qn_lowered *low, const qn_cuda_list *list);

/* `quern cache warm`: compiles all programs of a model into the cache; returns the exit status. */
int qn_cache_warm(const qn_target_args *a);

#endif
