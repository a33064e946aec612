/* tok_open.h: a model file's tokenizer without its weights, for the commands about text. */
#ifndef QN_CLI_TOK_OPEN_H
#define QN_CLI_TOK_OPEN_H

#include <stdio.h>

#include "text/tokenizer.h"

/* configs: directory that replaces the embedded model_configs/, or NULL. NULL after printing the error. What
 * was odd about the file is noted on stderr. */
qn_tokenizer *qn_tok_open(const char *path, const char *configs);

/* A JSON string of any bytes: malformed UTF-8 becomes U+FFFD, control characters are escaped. */
void qn_print_json_string(FILE *f, const char *s, size_t len);
/* [1, 2, 3] */
void qn_print_ids(FILE *f, const int32_t *ids, size_t n);

#endif
