/* quern template: what a chat template makes of conversations. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/opts.h"
#include "cli/template_cases.h"
#include "cli/template_opts.h"
#include "cli/tok_open.h"

typedef struct template_args {
    qn_template_args chosen;
    const char *model, *config_dir, *file, *cases, *messages;
    bool no_prompt, spans, ids, list, source;
} template_args;

static const qn_opt opts[] = {
    {"-m, --model", "FILE", "The model; the same as the first argument.", QN_OPT_STR,
     offsetof(template_args, model)},
    {"--file", "T.jinja", "The template of a file; no model is needed then.", QN_OPT_STR,
     offsetof(template_args, file)},
    {"--cases", "FILE",
     "Check every case of a file, one JSON object a line: messages, vars, and expect or error. Prints each "
     "mismatch and 'N of M'; status 0 only if all match.",
     QN_OPT_STR, offsetof(template_args, cases)},
    {"--messages", "FILE",
     "Render a conversation: a JSON list of messages, or an object with it as \"messages\" beside variables "
     "(\"tools\", ...). - is stdin.",
     QN_OPT_STR, offsetof(template_args, messages)},
    {"--no-generation-prompt", NULL, "Without the beginning of the answer at the end.", QN_OPT_FLAG,
     offsetof(template_args, no_prompt)},
    {"--spans", NULL, "Show which parts are the template's words and which are of messages.", QN_OPT_FLAG,
     offsetof(template_args, spans)},
    {"--ids", NULL, "Print the token ids instead of the text (needs a model).", QN_OPT_FLAG,
     offsetof(template_args, ids)},
    {"--list", NULL, "List the built-in templates.", QN_OPT_FLAG, offsetof(template_args, list)},
    {"--model-configs", "DIR", "Read tokenizer data from DIR/tokenizers instead of the built-in ones.",
     QN_OPT_STR, offsetof(template_args, config_dir)},
    {0},
};

static int list_builtins(void)
{
    for (const char *const *n = quern_template_builtins(); *n != NULL; n++) {
        puts(*n);
    }
    return QN_EXIT_OK;
}

/* The conversation of --messages as the input of a template; *all owns it. 0, or -1 after printing. */
static int read_messages(const template_args *a, json_t *vars, json_t **all, qn_template_input *in)
{
    char *data;
    size_t size;
    json_error_t why;
    const char *path = strcmp(a->messages, "-") == 0 ? "stdin" : a->messages;
    if (qn_cli_read_file(a->messages, &data, &size) != 0) {
        return -1;
    }
    *all = json_loadb(data, size, JSON_ALLOW_NUL, &why);
    free(data);
    if (*all == NULL) {
        qn_cli_error("%s:%d:%d: %s", path, why.line, why.column, why.text);
        return -1;
    }
    const json_t *list = json_is_object(*all) ? json_object_get(*all, "messages") : *all;
    if (!json_is_array(list)) {
        qn_cli_error("%s: neither a JSON list of messages nor an object with \"messages\"", path);
        return -1;
    }
    if (json_object_get(vars, "add_generation_prompt") == NULL) {
        json_object_set_new(vars, "add_generation_prompt", json_boolean(!a->no_prompt));
    }
    if (json_is_object(*all) && json_object_update_missing(vars, *all) != 0) {
        qn_cli_error("out of memory");
        return -1;
    }
    json_object_del(vars, "messages");
    *in = (qn_template_input){.vars = vars, .messages = list};
    return 0;
}

static int print_ids(const qn_tokenizer *tok, const quern_rendering *r)
{
    qn_err err;
    int32_t *ids;
    size_t n;
    if (tok == NULL) {
        return qn_cli_error("--ids needs a model with a tokenizer");
    }
    if (qn_rendering_tokens(tok, r, &ids, &n, &err) != 0) {
        return qn_cli_error("%s", err.text);
    }
    qn_print_ids(stdout, "", ids, n);
    putchar('\n');
    free(ids);
    return QN_EXIT_OK;
}

static int render(const template_args *a, const quern_template *t, const qn_tokenizer *tok, json_t *vars)
{
    qn_err err;
    json_t *all = NULL;
    qn_template_input in;
    quern_rendering r = {0};
    int rc = QN_EXIT_OK;
    if (read_messages(a, vars, &all, &in) != 0) {
        json_decref(all);
        return QN_EXIT_ERROR;
    }
    if (qn_template_render(t, &in, &r, NULL, &err) != 0) {
        rc = qn_cli_error("%s", err.text);
    } else if (a->spans) {
        qn_rendering_show(stdout, &r);
    } else if (!a->ids) {
        fwrite(r.text, 1, r.len, stdout);
        if (isatty(STDOUT_FILENO) && r.len > 0 && r.text[r.len - 1] != '\n') {
            putchar('\n');
        }
    }
    if (rc == QN_EXIT_OK && a->ids) {
        rc = print_ids(tok, &r);
    }
    quern_rendering_free(&r);
    json_decref(all);
    return rc;
}

static int use(const template_args *a, const quern_template *t, const qn_tokenizer *tok)
{
    if (a->cases != NULL) {
        return qn_template_run_cases(t, a->cases);
    }
    if (a->messages == NULL) {
        size_t len;
        const char *source = quern_template_source(t, &len);
        fwrite(source, 1, len, stdout);
        return QN_EXIT_OK;
    }
    json_t *vars = qn_template_vars(&a->chosen);
    int rc = vars != NULL ? render(a, t, tok, vars) : QN_EXIT_ERROR;
    json_decref(vars);
    return rc;
}

static int run(template_args *a)
{
    if (a->cases != NULL && a->model == NULL && a->chosen.name == NULL) {
        return qn_template_run_cases(NULL, a->cases);
    }
    qn_err err;
    qn_gguf *g = NULL;
    qn_tokenizer *tok = NULL;
    quern_template *t = NULL;
    if (a->model != NULL && qn_gguf_open(&g, a->model, &err) != 0) {
        return qn_cli_error("%s", err.text);
    }
    if (g != NULL && qn_tokenizer_present(g) && (tok = qn_tok_open(a->model, a->config_dir, NULL)) == NULL) {
        qn_gguf_close(g);
        return QN_EXIT_ERROR;
    }
    int rc = qn_template_args_open(&a->chosen, g, tok, &t) == 0 ? use(a, t, tok) : QN_EXIT_ERROR;
    quern_template_free(t);
    qn_tokenizer_free(tok);
    qn_gguf_close(g);
    return rc;
}

int qn_cmd_template(int argc, char **argv)
{
    template_args a = {0};
    const qn_opt_group groups[] = {{"Template", opts, &a}, qn_template_group(&a.chosen), qn_common_group};
    const qn_usage usage = {
        "template",
        "MODEL | --file T.jinja [--messages FILE | --cases FILE] [options]",
        "Renders conversations with a chat template. Without --messages and --cases: prints the template.",
        groups,
        sizeof groups / sizeof *groups,
        1};
    const char *positional[1];
    int rc = qn_opts_parse(&usage, argc, argv, positional);
    rc = rc >= 0 ? rc : qn_template_args_check(&a.chosen, "template");
    if (rc < 0) {
        a.model = positional[0] != NULL ? positional[0] : a.model;
        if (a.list) {
            rc = list_builtins();
        } else if (a.file != NULL && a.chosen.name != NULL) {
            rc = qn_cli_usage_error("template", "--file together with --chat-template");
        } else if (a.model == NULL && a.file == NULL && a.chosen.name == NULL && a.cases == NULL) {
            rc = qn_cli_usage_error("template", "no template: give a model, --file or --chat-template");
        } else if (a.cases != NULL && a.messages != NULL) {
            rc = qn_cli_usage_error("template", "--cases together with --messages");
        } else {
            char *path = NULL; /* --file is a file, whatever it is called */
            if (a.file != NULL && strpbrk(a.file, "/.") == NULL && strcmp(a.file, "-") != 0) {
                path = malloc(strlen(a.file) + 3);
                if (path != NULL) {
                    sprintf(path, "./%s", a.file);
                }
            }
            a.chosen.name = path != NULL ? path : a.file != NULL ? a.file : a.chosen.name;
            rc = run(&a);
            free(path);
        }
    }
    qn_template_args_free(&a.chosen);
    return rc;
}
