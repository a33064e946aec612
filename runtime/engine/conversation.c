/* conversation.c: a conversation of quern.h through a template, and its tokens. */
#include <stdlib.h>
#include <string.h>

#include "engine/template.h"

/* Text of a caller as JSON; NULL with the error set. */
static json_t *parse(const char *text, const char *what, bool list, qn_err *err)
{
    json_error_t why;
    json_t *j = json_loads(text, JSON_ALLOW_NUL, &why);
    if (j == NULL) {
        (void)qn_fail(err, "%s: line %d column %d: %s", what, why.line, why.column, why.text);
        return NULL;
    }
    if (list ? !json_is_array(j) : !json_is_object(j)) {
        (void)qn_fail(err, "%s: not a JSON %s", what, list ? "list" : "object");
        json_decref(j);
        return NULL;
    }
    return j;
}

/* Any bytes: what is malformed is no message that JSON could carry, but a template may be given it. */
static json_t *text_value(const char *text, size_t len)
{
    return json_stringn_nocheck(text, len);
}

static json_t *message(const quern_message *m, size_t i, qn_err *err)
{
    char what[64];
    json_t *o = json_object(), *fields = NULL;
    snprintf(what, sizeof what, "fields of message %zu", i);
    int bad = o == NULL ? -1 : 0;
    if (m->role != NULL) {
        bad |= json_object_set_new_nocheck(o, "role", text_value(m->role, strlen(m->role)));
    }
    if (m->content != NULL) {
        bad |= json_object_set_new_nocheck(o, "content", text_value(m->content, m->content_len));
    }
    if (bad != 0) {
        (void)qn_fail(err, "out of memory");
    }
    if (bad == 0 && m->fields != NULL) {
        fields = parse(m->fields, what, false, err);
        bad = fields == NULL ? -1 : 0;
        if (bad == 0 && ((m->role != NULL && json_object_get(fields, "role") != NULL) ||
                         (m->content != NULL && json_object_get(fields, "content") != NULL))) {
            bad = qn_fail(err, "%s: role or content is given twice", what);
        }
        if (bad == 0 && json_object_update(o, fields) != 0) {
            bad = qn_fail(err, "out of memory");
        }
        json_decref(fields);
    }
    if (bad != 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static json_t *messages(const quern_conversation *c, qn_err *err)
{
    if (c->messages_json != NULL) {
        return parse(c->messages_json, "messages", true, err);
    }
    json_t *list = json_array();
    for (size_t i = 0; list != NULL && i < c->n_messages; i++) {
        json_t *m = message(&c->messages[i], i, err);
        if (m == NULL || json_array_append_new(list, m) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    if (list == NULL) {
        (void)qn_fail(err, "out of memory");
    }
    return list;
}

static json_t *variables(const quern_conversation *c, qn_err *err)
{
    json_t *vars = c->vars_json != NULL ? parse(c->vars_json, "variables", false, err) : json_object();
    if (vars == NULL) {
        return NULL;
    }
    if (json_object_get(vars, "add_generation_prompt") == NULL) {
        json_object_set_new(vars, "add_generation_prompt", json_boolean(c->add_generation_prompt));
    }
    if (c->tools_json != NULL) {
        json_t *tools = parse(c->tools_json, "tools", true, err);
        if (tools == NULL || json_object_set_new(vars, "tools", tools) != 0) {
            json_decref(vars);
            return NULL;
        }
    }
    return vars;
}

int quern_template_render(const quern_template *t, const quern_conversation *c, quern_rendering *out,
                          quern_error *error)
{
    qn_err *err = qn_engine_err(error);
    int rc = -1;
    *out = (quern_rendering){0};
    json_t *list = messages(c, err), *vars = list != NULL ? variables(c, err) : NULL;
    if (vars != NULL) {
        bool given = c->messages_json == NULL;
        const qn_template_input in = {.vars = vars,
                                      .messages = list,
                                      .given = given ? c->messages : NULL,
                                      .n_given = given ? c->n_messages : 0,
                                      .now = c->now};
        rc = qn_template_render(t, &in, out, NULL, err);
    }
    json_decref(list);
    json_decref(vars);
    return rc;
}

/* The token that begins a text is put in front unless the template wrote it. A message cannot have written
 * it: its text is never a control token. */
static int add_begin(const qn_tokenizer *tok, int32_t **ids, size_t *n, qn_err *err)
{
    int32_t bos = qn_tokenizer_role(tok, QN_ROLE_BOS);
    if (!qn_tokenizer_add_bos(tok) || bos < 0 || (*n > 0 && (*ids)[0] == bos)) {
        return 0;
    }
    int32_t *grown = realloc(*ids, (*n + 1) * sizeof *grown);
    if (grown == NULL) {
        return qn_fail(err, "out of memory for %zu tokens", *n + 1);
    }
    memmove(grown + 1, grown, *n * sizeof *grown);
    grown[0] = bos;
    *ids = grown;
    ++*n;
    return 0;
}

int qn_rendering_tokens(const qn_tokenizer *tok, const quern_rendering *r, int32_t **ids, size_t *n,
                        qn_err *err)
{
    *ids = NULL;
    *n = 0;
    qn_span *span = qn_calloc(r->n_spans + 1, sizeof *span);
    if (span == NULL) {
        return qn_fail(err, "out of memory");
    }
    for (size_t i = 0; i < r->n_spans; i++) {
        const quern_span *s = &r->spans[i];
        span[i] = (qn_span){.len = s->len, .trusted = !s->message, .ids = s->ids, .n_ids = s->n_ids};
    }
    int rc = qn_tokenize_spans(tok, r->text, r->len, span, r->n_spans, false, ids, n, err);
    free(span);
    rc = rc == 0 ? add_begin(tok, ids, n, err) : -1;
    if (rc != 0) {
        free(*ids);
        *ids = NULL;
        *n = 0;
    }
    return rc;
}

int quern_rendering_tokens(const quern_model *m, const quern_rendering *r, int32_t **ids, size_t *n,
                           quern_error *error)
{
    qn_err *err = qn_engine_err(error);
    *ids = NULL;
    *n = 0;
    if (m->tok == NULL) {
        return qn_fail(err, "%s: the model has no tokenizer", qn_gguf_path(m->model->gguf));
    }
    return qn_rendering_tokens(m->tok, r, ids, n, err);
}
