/* tok_open.h: a model file's tokenizer without its weights, for the commands about text. */
#ifndef QN_CLI_TOK_OPEN_H
#define QN_CLI_TOK_OPEN_H

#include <stdio.h>

#include "text/tokenizer.h"

/* configs: directory that replaces the embedded model_configs/, or NULL. pre: pre-tokenizer that replaces the
 * file's, or NULL. NULL after printing the error. What was odd about the file is noted on stderr. */
qn_tokenizer *qn_tok_open(const char *path, const char *configs, const char *pre);

/* The ids with a blank between two of them; `before` stands before the first. */
void qn_print_ids(FILE *f, const char *before, const int32_t *ids, size_t n);

#endif
