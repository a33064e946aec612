#include "cli/json.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

void qn_json_add_text(qn_json_out *o, const char *key, const char *text, size_t len)
{
    qn_json_key(o, key);
    qn_json_string(o, text, len);
}

void qn_json_add_str(qn_json_out *o, const char *key, const char *text)
{
    qn_json_add_text(o, key, text, strlen(text));
}

void qn_json_add_int(qn_json_out *o, const char *key, int64_t v)
{
    qn_json_key(o, key);
    qn_json_int(o, v);
}

void qn_json_add_uint(qn_json_out *o, const char *key, uint64_t v)
{
    qn_json_key(o, key);
    qn_json_uint(o, v);
}

void qn_json_add_double(qn_json_out *o, const char *key, double v)
{
    qn_json_key(o, key);
    qn_json_double(o, v);
}

void qn_json_add_bool(qn_json_out *o, const char *key, bool v)
{
    qn_json_key(o, key);
    qn_json_bool(o, v);
}

void qn_json_add_i32s(qn_json_out *o, const char *key, const int32_t *values, size_t n)
{
    qn_json_add_open(o, key, '[');
    for (size_t i = 0; i < n; i++) {
        qn_json_int(o, values[i]);
    }
    qn_json_close(o, ']');
}

void qn_json_add_open(qn_json_out *o, const char *key, char bracket)
{
    qn_json_key(o, key);
    qn_json_open(o, bracket);
}

int qn_json_print(qn_json_out *o)
{
    bool failed = o->failed;
    if (!failed) {
        puts(o->text);
    }
    qn_json_free(o);
    if (failed) {
        return qn_cli_error("out of memory for JSON output");
    }
    return fflush(stdout) == 0 ? QN_EXIT_OK : qn_cli_error("cannot write to stdout");
}
