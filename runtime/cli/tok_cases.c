#include "cli/tok_cases.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/tok_open.h"
#include "text/json.h"

/* One case; all of it in an arena. */
struct tok_case {
    const char *text;
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
static bool unhex(const qn_json *hex, char *out)
{
    for (size_t i = 0; i < hex->text_len; i += 2) {
        int hi = hex_value(hex->text[i]), lo = hex_value(hex->text[i + 1]); /* there is a NUL behind */
        if (hi < 0 || lo < 0) {
            return false;
        }
        out[i / 2] = (char)(hi * 16 + lo);
    }
    return true;
}

static bool is_kind(const qn_json *j, qn_json_kind kind)
{
    return j && j->kind == kind;
}

/* NULL, or what is wrong with the object. */
static const char *read_case(const qn_json *j, qn_arena *arena, struct tok_case *c)
{
    const qn_json *text = qn_json_get(j, "text"), *hex = qn_json_get(j, "bytes_hex");
    const qn_json *add = qn_json_get(j, "add_special"), *parse = qn_json_get(j, "parse_special");
    const qn_json *ids = qn_json_get(j, "ids");
    if (!text == !hex || !is_kind(text ? text : hex, QN_JSON_STRING)) {
        return "needs either \"text\" or \"bytes_hex\", a string";
    }
    if (!is_kind(add, QN_JSON_BOOL) || !is_kind(parse, QN_JSON_BOOL)) {
        return "needs \"add_special\" and \"parse_special\", true or false";
    }
    if (!is_kind(ids, QN_JSON_ARRAY)) {
        return "needs \"ids\", a list of numbers";
    }
    c->add_special = add->truth;
    c->parse_special = parse->truth;
    c->ids = qn_arena_alloc(arena, ids->n_child * sizeof *c->ids);
    char *bytes = hex ? qn_arena_alloc(arena, hex->text_len / 2 + 1) : NULL;
    if (!c->ids || (hex && !bytes)) {
        return "out of memory";
    }
    if (hex && !unhex(hex, bytes)) {
        return "\"bytes_hex\" is not pairs of hex digits";
    }
    c->text = text ? text->text : bytes;
    c->len = text ? text->text_len : hex->text_len / 2;
    for (const qn_json *x = ids->child; x; x = x->next) {
        if (!is_kind(x, QN_JSON_NUMBER) || !x->is_int || x->integer < 0 || x->integer > INT32_MAX) {
            return "\"ids\" is not a list of token ids";
        }
        c->ids[c->n++] = (int32_t)x->integer;
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
        qn_json_out o = {0};
        qn_json_string(&o, c->text, c->len);
        fputs(o.text ? o.text : "?", stdout);
        qn_json_free(&o);
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
    qn_arena arena = {0};
    qn_err err;
    const qn_json *j;
    struct tok_case c = {0};
    const char *wrong = NULL;
    int rc = -1;
    if (qn_json_parse(&j, &arena, text, strlen(text), &err)) {
        wrong = err.text;
    } else {
        wrong = read_case(j, &arena, &c);
    }
    if (wrong) {
        qn_cli_error("%s:%zu: %s", path, line, wrong);
    } else {
        rc = check(t, &c, path, line);
    }
    qn_arena_free(&arena);
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
