#include "cli/tok_cases.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "cli/json.h"
#include "cli/tok_open.h"

/* One case; `bytes` and `ids` are malloc'ed. */
struct tok_case {
    char *bytes;
    size_t len;
    bool add_special, parse_special;
    int32_t *ids;
    size_t n;
};

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Two digits a byte; false where they are not that. */
static bool unhex(const json_t *hex, char *out)
{
    const char *digits = json_string_value(hex);
    for (size_t i = 0; i < json_string_length(hex); i += 2) {
        int hi = hex_value(digits[i]), lo = hex_value(digits[i + 1]); /* there is a NUL behind */
        if (hi < 0 || lo < 0) {
            return false;
        }
        out[i / 2] = (char)(hi * 16 + lo);
    }
    return true;
}

/* NULL, or what is wrong with the member. */
static const char *read_ids(const json_t *ids, struct tok_case *c)
{
    c->n = json_array_size(ids);
    c->ids = qn_calloc(c->n + 1, sizeof *c->ids);
    if (!c->ids) {
        return "out of memory";
    }
    for (size_t i = 0; i < c->n; i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX) {
            return "\"ids\" is not a list of token ids";
        }
        c->ids[i] = (int32_t)json_integer_value(id);
    }
    return NULL;
}

/* NULL, or what is wrong with the object. */
static const char *read_case(const json_t *j, struct tok_case *c)
{
    const json_t *text = json_object_get(j, "text"), *hex = json_object_get(j, "bytes_hex");
    const json_t *add = json_object_get(j, "add_special"), *parse = json_object_get(j, "parse_special");
    const json_t *ids = json_object_get(j, "ids");
    if (!text == !hex || !json_is_string(text ? text : hex)) {
        return "needs either \"text\" or \"bytes_hex\", a string";
    }
    if (!json_is_boolean(add) || !json_is_boolean(parse)) {
        return "needs \"add_special\" and \"parse_special\", true or false";
    }
    if (!json_is_array(ids)) {
        return "needs \"ids\", a list of numbers";
    }
    c->add_special = json_is_true(add);
    c->parse_special = json_is_true(parse);
    size_t len = json_string_length(text ? text : hex);
    c->len = text ? len : len / 2;
    c->bytes = malloc(c->len + 1);
    if (!c->bytes) {
        return "out of memory";
    }
    if (text) {
        memcpy(c->bytes, json_string_value(text), len);
    } else if (!unhex(hex, c->bytes)) {
        return "\"bytes_hex\" is not pairs of hex digits";
    }
    return read_ids(ids, c);
}

/* 1: as expected, 0: not (printed), -1: failed (printed). */
static int check(const qn_tokenizer *t, const struct tok_case *c, const char *path, size_t line)
{
    int32_t *ids;
    size_t n;
    qn_err err;
    if (qn_tokenize(t, c->bytes, c->len, c->add_special, c->parse_special, &ids, &n, &err)) {
        qn_cli_error("%s:%zu: %s", path, line, err.text);
        return -1;
    }
    int same = n == c->n && memcmp(ids, c->ids, n * sizeof *ids) == 0;
    if (!same) {
        printf("%s:%zu: ", path, line);
        char *quoted = qn_json_quoted(c->bytes, c->len);
        fputs(quoted ? quoted : "?", stdout);
        free(quoted);
        printf(" add_special=%s parse_special=%s: expected", c->add_special ? "true" : "false",
               c->parse_special ? "true" : "false");
        qn_print_ids(stdout, " ", c->ids, c->n);
        printf(", got");
        qn_print_ids(stdout, " ", ids, n);
        putchar('\n');
    }
    free(ids);
    return same;
}

static int run_line(const qn_tokenizer *t, const char *text, const char *path, size_t line)
{
    json_error_t why;
    struct tok_case c = {0};
    int rc = -1;
    json_t *j = json_loads(text, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &why);
    const char *wrong = j ? read_case(j, &c) : why.text;
    if (wrong) {
        qn_cli_error("%s:%zu: %s", path, line, wrong);
    } else {
        rc = check(t, &c, path, line);
    }
    json_decref(j);
    free(c.bytes);
    free(c.ids);
    return rc;
}

int qn_tok_run_cases(const qn_tokenizer *t, const char *path)
{
    char *data;
    size_t size;
    if (qn_cli_read_file(path, &data, &size)) {
        return QN_EXIT_ERROR;
    }
    size_t line = 0, n = 0, good = 0;
    int rc = 0;
    char *rest = data, *text;
    while (rc >= 0 && (text = strsep(&rest, "\n"))) {
        line++;
        if (text[strspn(text, " \t\r")]) {
            rc = run_line(t, text, path, line);
            good += rc > 0;
            n++;
        }
    }
    free(data);
    if (rc < 0) {
        return QN_EXIT_ERROR;
    }
    printf("%zu of %zu\n", good, n);
    return n > 0 && good == n ? QN_EXIT_OK : QN_EXIT_ERROR;
}
