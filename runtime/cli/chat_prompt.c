/* chat_prompt.c: what the model is given: template, messages, ids. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/chat.h"
#include "cli/cli.h"
#include "cli/json.h"

/* Sets a variable that the template reads, unless the options have. */
static int set_switch(const qn_chat *c, json_t *vars, const char *name, json_t *value)
{
    if (!quern_template_reads(c->tmpl, name) || json_object_get(vars, name) != NULL) {
        json_decref(value);
        return 0;
    }
    return qn_json_set(vars, name, value);
}

/* The template's variables, with those that say whether and how long to think; malloc'ed. NULL: out of
 * memory. */
static char *variables(const qn_chat *c)
{
    json_t *o = json_copy(c->vars);
    int bad = o == NULL;
    if (c->think != QN_THINK_DEFAULT && !bad) {
        bad |= set_switch(c, o, "enable_thinking", json_boolean(c->think != QN_THINK_OFF));
        bad |= set_switch(c, o, "thinking", json_boolean(c->think != QN_THINK_OFF));
    }
    if (c->think_budget >= 0 && !bad) {
        bad |= set_switch(c, o, "thinking_budget", json_integer(c->think_budget));
    }
    char *text = bad == 0 ? json_dumps(o, 0) : NULL;
    json_decref(o);
    return text;
}

/* {"reasoning_content": ...}, malloc'ed. */
static char *thought_fields(const qn_turn *t)
{
    json_t *o = json_object();
    int bad = qn_json_set(o, "reasoning_content", qn_json_text(t->thought, t->thought_len));
    char *text = bad == 0 ? json_dumps(o, 0) : NULL;
    json_decref(o);
    return text;
}

/* The messages as the library takes them, and what was made for them. */
typedef struct messages {
    quern_message *items;
    char **owned; /* a text for each, or NULL */
    size_t n;
} messages;

static void free_messages(messages *m)
{
    for (size_t i = 0; m->owned != NULL && i < m->n; i++) {
        free(m->owned[i]);
    }
    free(m->owned);
    free(m->items);
}

/* The first message behind the system's with that in front of it. */
static int fold(messages *m, size_t i, const qn_turn *system, const qn_turn *t)
{
    static const char between[] = "\n\n";
    size_t len = system->len + sizeof between - 1 + t->len;
    char *text = malloc(len + 1);
    if (text == NULL) {
        return -1;
    }
    memcpy(text, system->content, system->len);
    memcpy(text + system->len, between, sizeof between - 1);
    memcpy(text + len - t->len, t->content, t->len);
    text[len] = 0;
    m->owned[i] = text;
    m->items[i].content = text;
    m->items[i].content_len = len;
    return 0;
}

static int list_messages(const qn_chat *c, const qn_conversation *conv, messages *m)
{
    const qn_turn *system = c->fold_system ? qn_conversation_system(conv) : NULL;
    memset(m, 0, sizeof *m);
    m->items = qn_calloc(conv->n + 1, sizeof *m->items);
    m->owned = qn_calloc(conv->n + 1, sizeof *m->owned);
    if (m->items == NULL || m->owned == NULL) {
        return -1;
    }
    for (size_t i = system != NULL; i < conv->n; i++) {
        const qn_turn *t = &conv->turns[i];
        quern_message *to = &m->items[m->n++];
        *to = (quern_message){.role = qn_chat_role_name(t->role),
                              .content = t->content,
                              .content_len = t->len,
                              .ids = t->ids,
                              .n_ids = t->n_ids};
        if (t->thought != NULL) {
            m->owned[m->n - 1] = thought_fields(t);
            to->fields = m->owned[m->n - 1];
            if (to->fields == NULL) {
                return -1;
            }
        }
        if (system != NULL && m->n == 1 && fold(m, 0, system, t) != 0) {
            return -1;
        }
    }
    return 0;
}

static int render(const qn_chat *c, const qn_conversation *conv, messages *m, quern_rendering *out,
                  quern_error *err)
{
    bool bad = list_messages(c, conv, m) != 0;
    char *vars = bad ? NULL : variables(c);
    if (vars == NULL) {
        snprintf(err->text, sizeof err->text, "out of memory for the prompt");
        return -1;
    }
    quern_conversation q = {
        .messages = m->items, .n_messages = m->n, .vars_json = vars, .add_generation_prompt = true};
    int rc = quern_template_render(c->tmpl, &q, out, err);
    free(vars);
    return rc;
}

int qn_chat_try(const qn_chat *c, const qn_conversation *conv)
{
    messages m;
    quern_rendering r = {0};
    quern_error err;
    int rc = render(c, conv, &m, &r, &err);
    if (rc != 0) {
        qn_cli_error("%s", err.text);
    }
    quern_rendering_free(&r);
    free_messages(&m);
    return rc;
}

int qn_chat_prompt(const qn_chat *c, const qn_conversation *conv, int32_t **ids, size_t *n, bool *thinks)
{
    messages m;
    quern_rendering r = {0};
    quern_error err;
    *ids = NULL;
    *n = 0;
    int rc = render(c, conv, &m, &r, &err);
    rc = rc == 0 ? quern_rendering_tokens(c->l.model, &r, ids, n, &err) : rc;
    if (rc == 0 && *n == 0) {
        free(*ids);
        *ids = NULL;
        snprintf(err.text, sizeof err.text, "the template makes an empty prompt of this conversation");
        rc = -1;
    }
    *thinks = rc == 0 && c->has_tags && quern_rendering_thinks(&r, &c->tags);
    if (rc != 0) {
        qn_cli_error("%s", err.text);
    }
    quern_rendering_free(&r);
    free_messages(&m);
    return rc;
}

/* Does a system message come through? */
static bool takes_system(const qn_chat *c)
{
    static const char needle[] = "words of the system";
    qn_conversation conv = {0};
    messages m = {0};
    quern_rendering r = {0};
    quern_error err;
    bool found = false;
    if (qn_conversation_add(&conv, QN_CHAT_SYSTEM, needle, sizeof needle - 1) == 0 &&
        qn_conversation_add(&conv, QN_CHAT_USER, "Hi", 2) == 0) {
        found =
            render(c, &conv, &m, &r, &err) == 0 && memmem(r.text, r.len, needle, sizeof needle - 1) != NULL;
        quern_rendering_free(&r);
        free_messages(&m);
    }
    qn_conversation_free(&conv);
    return found;
}

int qn_chat_open_template(qn_chat *c)
{
    c->vars = qn_template_vars(&c->chosen);
    if (c->vars == NULL ||
        qn_template_args_open(&c->chosen, c->l.model->model->gguf, c->l.model->tok, &c->tmpl) != 0) {
        return -1;
    }
    c->has_tags = quern_thinking_tags(c->tmpl, c->l.model, &c->tags);
    if (c->has_tags) {
        c->n_control = quern_tags_control(c->l.model, &c->tags, c->control, QN_CHAT_MAX_CONTROL);
    }
    bool has_switch = quern_template_reads(c->tmpl, "enable_thinking") ||
                      quern_template_reads(c->tmpl, "thinking") ||
                      quern_template_reads(c->tmpl, "thinking_budget");
    if (!c->has_tags && !has_switch && (c->think == QN_THINK_ON || c->think_budget >= 0)) {
        qn_cli_note("neither the template nor the vocabulary knows thoughts: --think and --think-budget have "
                    "no effect");
    }
    if (c->think == QN_THINK_OFF && c->has_tags) {
        if (!has_switch) {
            qn_cli_note("the template has no switch for thoughts: they are ended as soon as they begin");
        }
        c->think_budget = 0;
    }
    c->fold_system = !takes_system(c);
    qn_conversation probe = {0};
    int rc = qn_conversation_add(&probe, QN_CHAT_USER, "Hi", 2);
    rc = rc == 0 ? qn_chat_try(c, &probe) : rc;
    qn_conversation_free(&probe);
    return rc;
}
