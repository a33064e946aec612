#include "cli/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "text/utf8.h"

/* The text as valid UTF-8, malloc'ed; its length in *out_len. */
static char *valid_utf8(const char *text, size_t len, size_t *out_len)
{
    if (len > SIZE_MAX / 3 - 4) {
        return NULL;
    }
    char *out = malloc(QN_UTF8_OUT(len) + 1);
    if (out == NULL) {
        return NULL;
    }
    qn_utf8_stream s = {0};
    size_t n = qn_utf8_feed(&s, text, len, out);
    n += qn_utf8_flush(&s, out + n);
    out[n] = '\0';
    *out_len = n;
    return out;
}

json_t *qn_json_text(const char *text, size_t len)
{
    size_t n;
    char *valid = valid_utf8(text, len, &n);
    json_t *j = valid != NULL ? json_stringn_nocheck(valid, n) : NULL;
    free(valid);
    return j;
}

json_t *qn_json_str(const char *text)
{
    return qn_json_text(text, strlen(text));
}

json_t *qn_json_real(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

json_t *qn_json_i32s(const int32_t *values, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++) {
        if (json_array_append_new(a, json_integer(values[i])) != 0) {
            json_decref(a);
            return NULL;
        }
    }
    return a;
}

int qn_json_set(json_t *object, const char *key, json_t *value)
{
    size_t n;
    char *valid = valid_utf8(key, strlen(key), &n);
    if (valid == NULL) {
        json_decref(value);
        return -1;
    }
    int rc = json_object_set_new_nocheck(object, valid, value);
    free(valid);
    return rc;
}

json_t *qn_json_whole(json_t *value, int bad)
{
    if (bad != 0) {
        json_decref(value);
        return NULL;
    }
    return value;
}

int qn_json_print(json_t *value, size_t flags)
{
    char *text = json_dumps(value, flags | JSON_REAL_PRECISION(17));
    json_decref(value);
    if (text == NULL) {
        return qn_cli_error("out of memory for JSON output");
    }
    puts(text);
    free(text);
    return fflush(stdout) == 0 && !ferror(stdout) ? QN_EXIT_OK : qn_cli_error("cannot write to stdout");
}

char *qn_json_quoted(const char *text, size_t len)
{
    json_t *j = qn_json_text(text, len);
    char *quoted = json_dumps(j, JSON_ENCODE_ANY);
    json_decref(j);
    return quoted;
}
