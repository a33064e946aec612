/* prompt.h: where a prompt comes from, and what becomes of escapes in it. */
#ifndef QN_CLI_PROMPT_H
#define QN_CLI_PROMPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/opts.h"
#include "engine/engine.h"

typedef struct qn_prompt_args {
    const char *text; /* -p */
    const char *file; /* -f; "-": stdin */
    bool escape;      /* backslash escapes in `text` */
    int special;      /* control tokens spelled out in the prompt become those tokens */
    bool show;        /* ids and pieces on stderr */
} qn_prompt_args;

extern const qn_prompt_args qn_prompt_args_defaults;

qn_opt_group qn_prompt_group(qn_prompt_args *a);

/* The prompt's bytes, malloc'ed: -p, then -f; stdin where neither is given and it is no terminal. -1: go on,
 * else the exit status (`command` for the usage message). */
int qn_prompt_read(const qn_prompt_args *a, const char *command, char **text, size_t *len);

/* Ids of a text, malloc'ed, with what the model wants in front; special: control tokens spelled out become
 * those tokens. An empty prompt needs a begin-of-text token. */
int qn_prompt_ids(const quern_model *m, bool special, const char *text, size_t len, int32_t **ids, size_t *n,
                  qn_err *err);
/* Its ids, malloc'ed, with what the model wants in front. 0, or -1 after printing the error: an empty prompt
 * needs a begin-of-text token. */
int qn_prompt_tokens(const quern_model *m, const qn_prompt_args *a, const char *text, size_t len,
                     int32_t **ids, size_t *n);

/* Ids and pieces, one a line: on stderr where `show`, and for --debug prompt. */
void qn_prompt_show(const quern_model *m, const int32_t *ids, size_t n, bool show);

/* A token's piece, valid UTF-8, with control characters and malformed bytes as \n and \xHH, cut to fit, into
 * text[size]; "" without a tokenizer. Returns text. */
const char *qn_piece_text(const quern_model *m, int32_t id, char *text, size_t size);

/* Resolves \n \t \r \\ \" \' and \xHH (two hex digits) in place; any other backslash stays. Returns the
 * length. */
size_t qn_unescape(char *text, size_t len);

/* Copies of n texts, escapes resolved where `escape`: a malloc'ed list, NULL behind the last. NULL: out of
 * memory. */
char **qn_stops_copy(const char *const *texts, size_t n, bool escape);

/* Copies of --stop's texts; an empty one, which would end every answer, is refused. -1: go on; else the exit
 * status, with *out NULL. */
int qn_stops_of_options(const char *command, const qn_strs *texts, bool escape, char ***out);
void qn_stops_free(char **copies);

#endif
