#include "cli/turn.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/prompt.h"

static const qn_opt turn_opts[] = {
    {"--chat, -st, --single-turn", NULL,
     "The prompt is a turn of a user: the chat template is put around it. One answer, then the end. The two "
     "options "
     "below and --chat-template ask for it too.",
     QN_OPT_FLAG, offsetof(qn_turn_args, chat)},
    {"-sys, --system-prompt", "TEXT", "What the system says before it; escapes as in -p.", QN_OPT_STR,
     offsetof(qn_turn_args, system)},
    {"-sysf, --system-prompt-file", "FILE", "The same from a file. One newline at its end is dropped.",
     QN_OPT_STR, offsetof(qn_turn_args, system_file)},
    {0},
};

qn_opt_group qn_turn_group(qn_turn_args *a)
{
    return (qn_opt_group){"Chat turn", turn_opts, a};
}

void qn_turn_args_free(qn_turn_args *a)
{
    qn_template_args_free(&a->template);
}

bool qn_turn_wanted(const qn_turn_args *a)
{
    /* A variable that chooses the template of chats does not make one of every run. */
    bool asked = a->template.name != NULL && !qn_opt_from_env(a->template.name);
    return a->chat || a->system != NULL || a->system_file != NULL || asked;
}

const char *qn_turn_idle_option(const qn_turn_args *a)
{
    const qn_template_args *t = &a->template;
    if (qn_turn_wanted(a)) {
        return NULL;
    }
    for (size_t i = 0; i < t->vars.n; i++) {
        if (!qn_opt_from_env(t->vars.items[i])) {
            return "--var";
        }
    }
    return t->kwargs != NULL && !qn_opt_from_env(t->kwargs) ? "--chat-template-kwargs" : NULL;
}

int qn_turn_check(const qn_turn_args *a, const char *command)
{
    if (a->system != NULL && a->system_file != NULL) {
        return qn_cli_usage_error(command, "-sys and -sysf: one of them");
    }
    return qn_turn_wanted(a) ? qn_template_args_check(&a->template, command) : -1;
}

static int read_system(qn_turn *t, const qn_turn_args *a, bool escape)
{
    if (a->system_file != NULL) {
        if (qn_cli_read_file(a->system_file, &t->system, &t->n_system) != 0) {
            return -1;
        }
        t->n_system -= t->n_system > 0 && t->system[t->n_system - 1] == '\n';
    } else if (a->system != NULL) {
        t->system = strdup(a->system);
        if (t->system == NULL) {
            qn_cli_error("out of memory");
            return -1;
        }
        t->n_system = strlen(t->system);
        t->n_system = escape ? qn_unescape(t->system, t->n_system) : t->n_system;
    }
    return 0;
}

int qn_turn_open(qn_turn *t, const qn_turn_args *a, bool escape, const quern_model *m)
{
    *t = (qn_turn){0};
    json_t *vars = qn_template_vars(&a->template);
    t->vars = vars != NULL ? json_dumps(vars, 0) : NULL;
    if (vars != NULL && t->vars == NULL) {
        qn_cli_error("out of memory");
    }
    json_decref(vars);
    if (t->vars == NULL || read_system(t, a, escape) != 0 ||
        qn_template_args_open(&a->template, m->model->gguf, m->tok, &t->template) != 0) {
        qn_turn_close(t);
        return -1;
    }
    qn_cli_detail("chat template: %s", quern_template_label(t->template));
    return 0;
}

void qn_turn_close(qn_turn *t)
{
    quern_template_free(t->template);
    free(t->system);
    free(t->vars);
    *t = (qn_turn){0};
}

int qn_turn_ids(const qn_turn *t, const quern_model *m, const char *text, size_t len, bool show,
                int32_t **ids, size_t *n, qn_err *err)
{
    quern_message message[2] = {{.role = "system", .content = t->system, .content_len = t->n_system},
                                {.role = "user", .content = text, .content_len = len}};
    size_t skip = t->system == NULL;
    const quern_conversation c = {.messages = message + skip,
                                  .n_messages = 2 - skip,
                                  .vars_json = t->vars,
                                  .add_generation_prompt = true};
    quern_rendering r;
    *ids = NULL;
    *n = 0;
    if (quern_template_render(t->template, &c, &r, qn_public_err(err)) != 0) {
        return -1;
    }
    if (show) {
        qn_rendering_show(stderr, &r);
    }
    int rc = quern_rendering_tokens(m, &r, ids, n, qn_public_err(err));
    quern_rendering_free(&r);
    if (rc == 0 && *n == 0) {
        free(*ids);
        *ids = NULL;
        rc = qn_fail(err,
                     "empty prompt: the template writes nothing and the model has no begin-of-text token");
    }
    return rc;
}
