/* json.h: what cJSON lacks: strings with any bytes and integers beyond 2^53. */
#ifndef QN_CLI_JSON_H
#define QN_CLI_JSON_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

/* A string of len bytes; malformed UTF-8 becomes U+FFFD, NUL and other controls are escaped. */
void qn_json_text(cJSON *object, const char *key, const char *text, size_t len);
void qn_json_u64(cJSON *object, const char *key, uint64_t value);
void qn_json_i32s(cJSON *object, const char *key, const int32_t *values, size_t n);

/* The quoted, escaped string, malloc'ed; NULL without memory. */
char *qn_json_quote(const char *text, size_t len);

/* Prints with a newline behind and frees the object; returns the exit status. */
int qn_json_print(cJSON *object, int indented);

#endif
