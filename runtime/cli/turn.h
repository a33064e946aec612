/* turn.h: `quern run --chat`: the prompt as one turn of a user, in the model's chat template. */
#ifndef QN_CLI_TURN_H
#define QN_CLI_TURN_H

#include "cli/template_opts.h"

typedef struct qn_turn_args {
    qn_template_args template;
    const char *system, *system_file;
    bool chat;
} qn_turn_args;

/* Rows of the turn itself; those of the template are qn_template_group(&a->template). */
qn_opt_group qn_turn_group(qn_turn_args *a);
void qn_turn_args_free(qn_turn_args *a);

/* Whether prompts are turns: --chat, a system prompt or a template was given. */
bool qn_turn_wanted(const qn_turn_args *a);

/* Refuses values that no model would make good. -1: go on; else the exit status. */
int qn_turn_check(const qn_turn_args *a, const char *command);

/* The option on the command line that acts on a template where none is applied; NULL: there is none. */
const char *qn_turn_idle_option(const qn_turn_args *a);

typedef struct qn_turn {
    quern_template *template;
    char *system; /* NULL: none */
    size_t n_system;
    char *vars; /* JSON */
} qn_turn;

/* escape: backslash escapes in the system prompt are resolved. 0, or -1 after printing the error. */
int qn_turn_open(qn_turn *t, const qn_turn_args *a, bool escape, const quern_model *m);
void qn_turn_close(qn_turn *t);

/* Ids of the prompt, malloc'ed. show: its spans on stderr. */
int qn_turn_ids(const qn_turn *t, const quern_model *m, const char *text, size_t len, bool show,
                int32_t **ids, size_t *n, qn_err *err);

#endif
