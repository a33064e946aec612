/* tok_cases.h: `quern tokenize --cases`. */
#ifndef QN_CLI_TOK_CASES_H
#define QN_CLI_TOK_CASES_H

#include "text/tokenizer.h"

/* Tokenises every case of a file, one JSON object a line:
 *
 *     {"text": "...", "add_special": true, "parse_special": true, "ids": [1, 2]}      or "bytes_hex" for
 * "text"
 *
 * Prints each mismatch and "N of M" on stdout. Returns the exit status: QN_EXIT_OK only if all match. */
int qn_tok_run_cases(const qn_tokenizer *t, const char *path);

#endif
