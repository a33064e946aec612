/* template_opts.h: the options that choose a chat template and its variables; for run, chat and template. */
#ifndef QN_CLI_TEMPLATE_OPTS_H
#define QN_CLI_TEMPLATE_OPTS_H

#include <jansson.h>

#include "cli/opts.h"
#include "engine/engine.h"

typedef struct qn_template_args {
    const char *name; /* --chat-template: a file, a variant of the model's or a built-in; NULL: the model's */
    const char *kwargs; /* a JSON object of variables */
    qn_strs vars;       /* NAME=VALUE */
} qn_template_args;

qn_opt_group qn_template_group(qn_template_args *a);
void qn_template_args_free(qn_template_args *a);

/* Refuses variables that are none. -1: go on; else the exit status. */
int qn_template_args_check(const qn_template_args *a, const char *command);

/* The variables as an object; later ones win. NULL after printing the error. VALUE is JSON where it is that
 * (false, 3, "3", ["a"]), else text. */
json_t *qn_template_vars(const qn_template_args *a);

/* The chosen template: of a file where the name has a '/' or '.', else as quern_template_open has it. Either
 * of g and tok may be NULL. 0, or -1 after printing the error. */
int qn_template_args_open(const qn_template_args *a, const qn_gguf *g, const qn_tokenizer *tok,
                          quern_template **out);

/* The rendering on f: each span on a line of its own, headed "template" or "message", with control bytes
 * escaped. */
void qn_rendering_show(FILE *f, const quern_rendering *r);

#endif
