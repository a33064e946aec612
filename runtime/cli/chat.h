/* chat.h: the state of `quern chat`, for the files that make it up. */
#ifndef QN_CLI_CHAT_H
#define QN_CLI_CHAT_H

#include "cli/conversation.h"
#include "cli/lines.h"
#include "cli/load.h"
#include "cli/sampling.h"
#include "cli/template_opts.h"

/* --think; not given: as the template does by itself, and thoughts are shown. */
typedef enum qn_think_mode { QN_THINK_DEFAULT = -1, QN_THINK_ON, QN_THINK_OFF, QN_THINK_HIDE } qn_think_mode;
extern const char *const qn_think_names[];

enum { QN_CHAT_MAX_CONTROL = 16 };

typedef struct qn_chat {
    /* options */
    qn_model_args model;
    qn_sampling_args sampling;
    qn_template_args chosen;
    int n_predict;
    qn_strs stop;
    char **stops; /* its texts, escapes resolved */
    bool ignore_eos;
    const char *first, *system, *system_file, *history;
    bool escape, show_prompt, commands;
    int think, think_budget; /* -1: as many tokens as the model wants */
    /* state */
    qn_loaded l;
    quern_template *tmpl;
    json_t *vars;               /* that the options give the template */
    bool has_tags, fold_system; /* fold: the template takes no system message */
    quern_tags tags;
    int32_t control[QN_CHAT_MAX_CONTROL]; /* control tokens in the tags */
    size_t n_control;
    qn_conversation conv; /* may end with a message that was not answered */
    qn_lines *lines;
    bool interactive, colour;
} qn_chat;

/* What became of a line or a command. */
typedef enum qn_chat_next {
    QN_CHAT_GO_ON,
    QN_CHAT_LEAVE,
    QN_CHAT_FAILED, /* said; somebody at a terminal may try something else */
    QN_CHAT_STOPPED /* by Ctrl-C */
} qn_chat_next;

/* Opens the template and finds out what it can do. 0, or -1 after printing the error. */
int qn_chat_open_template(qn_chat *c);
/* Would the template render the conversation, with a message to answer at its end? -1 after printing why not.
 */
int qn_chat_try(const qn_chat *c, const qn_conversation *conv);
/* Ids of the conversation and of what comes before an answer, malloc'ed. *thinks: an answer begins within a
 * thought. */
int qn_chat_prompt(const qn_chat *c, const qn_conversation *conv, int32_t **ids, size_t *n, bool *thinks);

/* Answers the last message, a user's, and adds the answer. */
qn_chat_next qn_chat_answer(qn_chat *c);

/* The next message or command, malloc'ed; lines of one message are joined. */
qn_line qn_chat_read(qn_chat *c, char **text, size_t *len, bool *is_command, bool *typed);

/* Carries out "/name arguments". */
qn_chat_next qn_chat_command(qn_chat *c, const char *line);

#endif
