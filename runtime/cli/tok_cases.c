#include "cli/tok_cases.h"

#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "cli/cli.h"
#include "cli/json_nul.h"
#include "cli/tok_open.h"

/* One case. */
struct tok_case {
    char *text; /* malloc'ed */
    size_t len;
    bool add_special, parse_special;
    int32_t *ids; /* malloc'ed */
    size_t n;
};

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Two digits a byte, in place; the number of bytes, or -1. */
static int64_t unhex(char *s)
{
    size_t len = strlen(s);
    for (size_t i = 0; i < len; i += 2) {
        int hi = hex_value(s[i]), lo = hex_value(s[i + 1]); /* of an odd length, the last is the NUL */
        if (hi < 0 || lo < 0) {
            return -1;
        }
        s[i / 2] = (char)(hi * 16 + lo);
    }
    return (int64_t)(len / 2);
}

/* NULL, or what is wrong with the object. */
static const char *read_case(const cJSON *j, int mark, struct tok_case *c)
{
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(j, "text");
    const cJSON *hex = cJSON_GetObjectItemCaseSensitive(j, "bytes_hex");
    const cJSON *add = cJSON_GetObjectItemCaseSensitive(j, "add_special");
    const cJSON *parse = cJSON_GetObjectItemCaseSensitive(j, "parse_special");
    const cJSON *ids = cJSON_GetObjectItemCaseSensitive(j, "ids"), *x;
    const cJSON *given = text ? text : hex;
    if (!cJSON_IsString(given) || (text && hex)) {
        return "needs either \"text\" or \"bytes_hex\", a string";
    }
    if (!cJSON_IsBool(add) || !cJSON_IsBool(parse)) {
        return "needs \"add_special\" and \"parse_special\", true or false";
    }
    if (!cJSON_IsArray(ids)) {
        return "needs \"ids\", a list of numbers";
    }
    c->add_special = cJSON_IsTrue(add);
    c->parse_special = cJSON_IsTrue(parse);
    c->text = strdup(given->valuestring);
    c->ids = malloc(((size_t)cJSON_GetArraySize(ids) + 1) * sizeof *c->ids);
    if (!c->text || !c->ids) {
        return "out of memory";
    }
    int64_t len = text ? (int64_t)qn_json_show_nul(c->text, mark) : unhex(c->text);
    if (len < 0) {
        return "\"bytes_hex\" is not pairs of hex digits";
    }
    c->len = (size_t)len;
    cJSON_ArrayForEach(x, ids)
    {
        if (!cJSON_IsNumber(x)) {
            return "\"ids\" is not a list of numbers";
        }
        c->ids[c->n++] = x->valueint;
    }
    return NULL;
}

/* 1: as expected, 0: not (printed), -1: failed (printed). */
static int check(const qn_tokenizer *t, const struct tok_case *c, const char *path, size_t line)
{
    int32_t *ids;
    size_t n;
    qn_err err;
    if (qn_tokenize(t, c->text, c->len, c->add_special, c->parse_special, &ids, &n, &err)) {
        qn_cli_error("%s:%zu: %s", path, line, err.text);
        return -1;
    }
    int same = n == c->n && memcmp(ids, c->ids, n * sizeof *ids) == 0;
    if (!same) {
        printf("%s:%zu: ", path, line);
        qn_print_json_string(stdout, c->text, c->len);
        printf(" add_special=%s parse_special=%s: expected ", c->add_special ? "true" : "false",
               c->parse_special ? "true" : "false");
        qn_print_ids(stdout, c->ids, c->n);
        printf(", got ");
        qn_print_ids(stdout, ids, n);
        putchar('\n');
    }
    free(ids);
    return same;
}

static int run_line(const qn_tokenizer *t, char *text, const char *path, size_t line)
{
    int mark = qn_json_hide_nul(text);
    cJSON *j = cJSON_Parse(text);
    struct tok_case c = {0};
    const char *wrong = !j || mark < 0 ? "is not a JSON object that can be read" : read_case(j, mark, &c);
    int rc = -1;
    if (wrong) {
        qn_cli_error("%s:%zu: %s", path, line, wrong);
    } else {
        rc = check(t, &c, path, line);
    }
    free(c.text);
    free(c.ids);
    cJSON_Delete(j);
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
