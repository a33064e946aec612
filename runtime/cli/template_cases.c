#include "cli/template_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/json.h"

static int64_t case_time(void)
{
    struct tm tm = {
        .tm_year = 126, .tm_mon = 1, .tm_mday = 3, .tm_hour = 4, .tm_min = 5, .tm_sec = 6, .tm_isdst = -1};
    return (int64_t)mktime(&tm);
}

static void print_quoted(const char *before, const char *text, size_t len)
{
    char *quoted = qn_json_quoted(text, len);
    printf("%s%s\n", before, quoted != NULL ? quoted : "?");
    free(quoted);
}

/* Both texts from a little before their first difference on. */
static void print_difference(const char *want, size_t n_want, const char *got, size_t n_got)
{
    enum { BEFORE = 40, AFTER = 120 };
    size_t at = 0;
    while (at < n_want && at < n_got && want[at] == got[at]) {
        at++;
    }
    size_t from = at > BEFORE ? at - BEFORE : 0;
    printf("the texts differ at byte %zu (%zu bytes expected, %zu got)\n", at, n_want, n_got);
    print_quoted("  expected ", want + from, n_want - from < AFTER ? n_want - from : AFTER);
    print_quoted("  got      ", got + from, n_got - from < AFTER ? n_got - from : AFTER);
}

/* 1: as expected; 0: not, which is printed behind `where`. */
static int judge(const json_t *expect, const json_t *error, const quern_rendering *r, bool failed,
                 const char *raised, const char *message, const char *where)
{
    static const char own[] = "TemplateError: ";
    if (expect != NULL) {
        size_t n = json_string_length(expect);
        if (!failed && r->len == n && memcmp(r->text, json_string_value(expect), n) == 0) {
            return 1;
        }
        fputs(where, stdout);
        if (failed) {
            printf("refused: %s\n", message);
        } else {
            print_difference(json_string_value(expect), n, r->text, r->len);
        }
        return 0;
    }
    const char *want = json_string_value(error);
    bool must_raise = strncmp(want, own, sizeof own - 1) == 0;
    if (failed && (!must_raise || (raised != NULL && strcmp(raised, want + sizeof own - 1) == 0))) {
        return 1;
    }
    printf("%sexpected the refusal \"%s\", got %s%s\n", where, want, failed ? "" : "a text",
           failed ? message : "");
    return 0;
}

/* The case's own template, or that of all. A template that does not parse is a refusal. */
static int render(const quern_template *t, const json_t *own, const qn_template_input *in, quern_rendering *r,
                  char **raised, qn_err *err)
{
    quern_template *mine = NULL;
    *r = (quern_rendering){0};
    if (own != NULL && qn_template_parse(&mine, NULL, json_string_value(own), json_string_length(own),
                                         "template", err) != 0) {
        return -1;
    }
    int rc = qn_template_render(own != NULL ? mine : t, in, r, raised, err);
    quern_template_free(mine);
    return rc;
}

/* 1: as expected, 0: not, -1: not a case (printed). */
static int run_case(const quern_template *t, const json_t *j, const char *path, size_t line)
{
    const json_t *expect = json_object_get(j, "expect"), *error = json_object_get(j, "error");
    const json_t *vars = json_object_get(j, "vars"), *messages = json_object_get(j, "messages");
    const char *name = json_string_value(json_object_get(j, "case"));
    if (!expect == !error || !json_is_string(expect ? expect : error)) {
        qn_cli_error("%s:%zu: needs either \"expect\" or \"error\", a string", path, line);
        return -1;
    }
    const json_t *own = json_object_get(j, "template");
    if (own != NULL ? !json_is_string(own) : t == NULL) {
        qn_cli_error("%s:%zu: needs \"template\", a string, where none is given for all", path, line);
        return -1;
    }
    if ((messages != NULL && !json_is_array(messages)) || (vars != NULL && !json_is_object(vars))) {
        qn_cli_error("%s:%zu: \"messages\" is a list and \"vars\" an object", path, line);
        return -1;
    }
    qn_err err = {""};
    char *raised = NULL, where[512];
    quern_rendering r;
    const qn_template_input in = {.vars = vars, .messages = messages, .now = case_time()};
    bool failed = render(t, own, &in, &r, &raised, &err) != 0;
    snprintf(where, sizeof where, "%s:%zu: %s%s", path, line, name != NULL ? name : "",
             name != NULL ? ": " : "");
    int rc = judge(expect, error, &r, failed, raised, err.text, where);
    quern_rendering_free(&r);
    free(raised);
    return rc;
}

int qn_template_run_cases(const quern_template *t, const char *path)
{
    char *data, *text;
    size_t size, line = 0, n = 0, good = 0;
    if (qn_cli_read_file(path, &data, &size) != 0) {
        return QN_EXIT_ERROR;
    }
    int rc = 0;
    char *rest = data;
    while (rc >= 0 && (text = strsep(&rest, "\n")) != NULL) {
        json_error_t why;
        line++;
        if (text[strspn(text, " \t\r")] == 0) {
            continue;
        }
        json_t *j = json_loads(text, JSON_ALLOW_NUL, &why);
        if (j == NULL) {
            qn_cli_error("%s:%zu: %s", path, line, why.text);
        }
        rc = j != NULL ? run_case(t, j, path, line) : -1;
        good += rc > 0;
        n++;
        json_decref(j);
    }
    free(data);
    if (rc < 0) {
        return QN_EXIT_ERROR;
    }
    printf("%zu of %zu\n", good, n);
    return n > 0 && good == n ? QN_EXIT_OK : QN_EXIT_ERROR;
}
