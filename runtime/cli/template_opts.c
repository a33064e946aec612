#include "cli/template_opts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "engine/template.h"

static const qn_opt template_opts[] = {
    {"--chat-template, --chat-template-file", "FILE|NAME",
     "Chat template: a file of Jinja (a name with / or . in it), a named one of the model's, or a built-in; "
     "'quern "
     "template --list' shows these. Default: the model's own.",
     QN_OPT_STR, offsetof(qn_template_args, name)},
    {"--var", "NAME=VALUE",
     "A variable of the template: JSON where it is that, else text; may be given several times. "
     "--var enable_thinking=false is what many thinking models look at.",
     QN_OPT_STRS, offsetof(qn_template_args, vars)},
    {"--chat-template-kwargs", "JSON", "Variables of the template as one JSON object.", QN_OPT_STR,
     offsetof(qn_template_args, kwargs)},
    {0},
};

qn_opt_group qn_template_group(qn_template_args *a)
{
    return (qn_opt_group){"Chat template", template_opts, a};
}

void qn_template_args_free(qn_template_args *a)
{
    qn_strs_free(&a->vars);
}

static int add_var(json_t *vars, const char *item, qn_err *err)
{
    const char *equal = strchr(item, '=');
    if (equal == NULL || equal == item) {
        return qn_fail(err, "--var: '%s' is not NAME=VALUE", item);
    }
    char *name = strndup(item, (size_t)(equal - item));
    json_t *value = json_loads(equal + 1, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    value = value != NULL ? value : json_string(equal + 1);
    int bad = name == NULL || value == NULL || json_object_set_new(vars, name, value) != 0;
    free(name);
    return bad ? qn_fail(err, "--var: '%s' is not UTF-8, or memory is short", item) : 0;
}

static json_t *read_vars(const qn_template_args *a, qn_err *err)
{
    json_error_t why;
    json_t *vars = a->kwargs != NULL ? json_loads(a->kwargs, JSON_ALLOW_NUL, &why) : json_object();
    int rc = json_is_object(vars)
                 ? 0
                 : qn_fail(err, "--chat-template-kwargs: %s", vars != NULL ? "not a JSON object" : why.text);
    for (size_t i = 0; i < a->vars.n && rc == 0; i++) {
        rc = add_var(vars, a->vars.items[i], err);
    }
    if (rc != 0) {
        json_decref(vars);
        return NULL;
    }
    return vars;
}

int qn_template_args_check(const qn_template_args *a, const char *command)
{
    qn_err err;
    json_t *vars = read_vars(a, &err);
    json_decref(vars);
    return vars != NULL ? -1 : qn_cli_usage_error(command, "%s", err.text);
}

json_t *qn_template_vars(const qn_template_args *a)
{
    qn_err err;
    json_t *vars = read_vars(a, &err);
    if (vars == NULL) {
        qn_cli_error("%s", err.text);
    }
    return vars;
}

int qn_template_args_open(const qn_template_args *a, const qn_gguf *g, const qn_tokenizer *tok,
                          quern_template **out)
{
    qn_err err;
    char *data;
    size_t size;
    *out = NULL;
    if (a->name == NULL || (strpbrk(a->name, "/.") == NULL && strcmp(a->name, "-") != 0)) {
        if (qn_template_open(out, g, tok, a->name, &err) != 0) {
            qn_cli_error("%s", err.text);
        }
        return *out != NULL ? 0 : -1;
    }
    if (qn_cli_read_file(a->name, &data, &size) != 0) {
        return -1;
    }
    if (qn_template_parse(out, tok, data, size, a->name, &err) != 0) {
        qn_cli_error("%s", err.text);
    }
    free(data);
    return *out != NULL ? 0 : -1;
}

static void put_escaped(FILE *f, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char ch = (unsigned char)text[i];
        if (ch == '\n' || ch == '\t' || ch == '\r' || ch == '\\') {
            fprintf(f, "\\%c", ch == '\n' ? 'n' : ch == '\t' ? 't' : ch == '\r' ? 'r' : '\\');
        } else if (ch < 0x20 || ch == 0x7f) {
            fprintf(f, "\\x%02x", ch);
        } else {
            fputc(ch, f);
        }
    }
}

void qn_rendering_show(FILE *f, const quern_rendering *r)
{
    size_t at = 0;
    for (size_t i = 0; i < r->n_spans; at += r->spans[i++].len) {
        fprintf(f, "%s '", r->spans[i].message ? "message " : "template");
        put_escaped(f, r->text + at, r->spans[i].len);
        fputs("'\n", f);
    }
}
