/* json.h: what the commands add to jansson: texts that may be malformed, numbers that JSON cannot say, and
 * the way to stdout. Every function that returns a json_t gives a new reference; NULL: out of memory. What
 * adds a value to another takes NULL too and returns -1, so that the calls can be written in a row, `bad |=`
 * before each. */
#ifndef QN_CLI_JSON_H
#define QN_CLI_JSON_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

/* A string of any bytes, NUL too: each malformed piece of UTF-8 becomes U+FFFD. */
json_t *qn_json_text(const char *text, size_t len);
json_t *qn_json_str(const char *text);
/* NaN and infinities become null. */
json_t *qn_json_real(double v);
json_t *qn_json_i32s(const int32_t *values, size_t n);

/* Adds or replaces a member; takes `value`. The key may be malformed too. Returns 0; or -1, also where
 * `value` is NULL. */
int qn_json_set(json_t *object, const char *key, json_t *value);

/* The value; where `bad` is not 0, NULL, and the value is freed. */
json_t *qn_json_whole(json_t *value, int bad);

/* Prints `value` with a newline behind (flags: jansson's, of layout) and takes it; NULL is an error. Reals
 * have 17 digits, enough to read the same double back. Returns the exit status. */
int qn_json_print(json_t *value, size_t flags);

/* A text in quotes as JSON writes it, malloc'ed; NULL: out of memory. */
char *qn_json_quoted(const char *text, size_t len);

#endif
