/* model_check.h: a config against a file, with everything that does not fit. */
#ifndef QN_MODEL_MODEL_CHECK_H
#define QN_MODEL_MODEL_CHECK_H

#include "model/config.h"

/* Called for each finding, in order; what several layers have in common is one finding. fault: the model
 * cannot load; otherwise a hint (a tensor that nothing takes, a key that no value reads). */
typedef void (*qn_check_report)(void *user, bool fault, const char *text);

/* Reads and checks a config from a file. */
int qn_config_load(qn_config **out, const char *path, qn_err *err);

/* Resolves c for every layer of g and binds every tensor. n_ctx as in qn_model_opts. Returns the number of
 * faults; -1: the file is no decoder at all, or out of memory (err). *n_bound: tensors taken. */
int qn_model_check(const qn_config *c, qn_gguf *g, int n_ctx, qn_check_report report, void *user,
                   int *n_bound, qn_err *err);

/* The model itself, by the config in hand. g stays the caller's: set (*out)->gguf to NULL before freeing. */
int qn_model_bind_config(qn_model **out, qn_gguf *g, const qn_config *c, const qn_model_opts *opts,
                         qn_err *err);

#endif
