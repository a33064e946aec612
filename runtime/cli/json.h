/* json.h: members of JSON objects, and their way to stdout. */
#ifndef QN_CLI_JSON_H
#define QN_CLI_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/json.h"

/* A key and its value. Texts: malformed UTF-8 becomes U+FFFD. */
void qn_json_add_text(qn_json_out *o, const char *key, const char *text, size_t len);
void qn_json_add_str(qn_json_out *o, const char *key, const char *text);
void qn_json_add_int(qn_json_out *o, const char *key, int64_t v);
void qn_json_add_uint(qn_json_out *o, const char *key, uint64_t v);
void qn_json_add_double(qn_json_out *o, const char *key, double v);
void qn_json_add_bool(qn_json_out *o, const char *key, bool v);
void qn_json_add_i32s(qn_json_out *o, const char *key, const int32_t *values, size_t n);
/* A key and an opening bracket. */
void qn_json_add_open(qn_json_out *o, const char *key, char bracket);

/* Prints with a newline behind and frees the text; returns the exit status. */
int qn_json_print(qn_json_out *o);

#endif
