/* template.c: where a chat template is from, and what it is given. */
#include "engine/template.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model/embedded.h"

static const char folder[] = "model_configs/templates/", suffix[] = ".jinja";
enum { MAX_BUILTINS = 64, MAX_NAME = 64 };

/* Length of a built-in's name; 0: the file is none. */
static size_t builtin_name(const qn_embedded *f, const char **name)
{
    size_t n = strlen(f->name), prefix = sizeof folder - 1, tail = sizeof suffix - 1;
    if (n <= prefix + tail || strncmp(f->name, folder, prefix) != 0 ||
        strcmp(f->name + n - tail, suffix) != 0) {
        return 0;
    }
    *name = f->name + prefix;
    return n - prefix - tail;
}

static const qn_embedded *find_builtin(const char *name)
{
    const char *known;
    for (const qn_embedded *f = qn_embedded_files; f->name != NULL; f++) {
        size_t n = builtin_name(f, &known);
        if (n > 0 && n == strlen(name) && strncmp(known, name, n) == 0) {
            return f;
        }
    }
    return NULL;
}

/* ", "-separated names of the built-ins. */
static const char *builtin_list(char *text, size_t size)
{
    size_t used = 0;
    const char *name;
    text[0] = 0;
    for (const qn_embedded *f = qn_embedded_files; f->name != NULL && used < size; f++) {
        size_t n = builtin_name(f, &name);
        if (n > 0) {
            used += (size_t)snprintf(text + used, size - used, "%s%.*s", used > 0 ? ", " : "", (int)n, name);
        }
    }
    return text;
}

static char builtin_text[MAX_BUILTINS][MAX_NAME];
static const char *builtins[MAX_BUILTINS + 1];

static void list_builtins(void)
{
    size_t n = 0;
    const char *name;
    for (const qn_embedded *f = qn_embedded_files; f->name != NULL && n < MAX_BUILTINS; f++) {
        size_t len = builtin_name(f, &name);
        if (len > 0 && len < MAX_NAME) {
            memcpy(builtin_text[n], name, len);
            builtins[n] = builtin_text[n];
            n++;
        }
    }
}

const char *const *quern_template_builtins(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, list_builtins);
    return builtins;
}

int qn_template_parse(quern_template **out, const qn_tokenizer *tok, const char *source, size_t len,
                      const char *label, qn_err *err)
{
    *out = NULL;
    quern_template *t = qn_calloc(1, sizeof *t);
    if (t == NULL || (t->label = strdup(label)) == NULL || (t->source = malloc(len + 1)) == NULL) {
        quern_template_free(t);
        return qn_fail(err, "%s: out of memory", label);
    }
    if (len > 0) {
        memcpy(t->source, source, len);
    }
    t->source[len] = 0;
    t->len = len;
    t->tok = tok;
    if (qn_jinja_parse(&t->jinja, label, source, len, err) != 0) {
        quern_template_free(t);
        return -1;
    }
    *out = t;
    return 0;
}

int qn_template_open(quern_template **out, const qn_gguf *g, const qn_tokenizer *tok, const char *name,
                     qn_err *err)
{
    char key[128] = "tokenizer.chat_template", label[128] = "the model's own template", list[1024];
    const char *path = g != NULL ? qn_gguf_path(g) : "no model";
    qn_str text = {0};
    *out = NULL;
    if (name != NULL) {
        snprintf(key, sizeof key, "tokenizer.chat_template.%s", name);
        snprintf(label, sizeof label, "the model's template '%s'", name);
    }
    const qn_kv *kv = g != NULL ? qn_gguf_find(g, key) : NULL;
    if (kv != NULL) {
        if (!qn_kv_str(kv, 0, &text) || kv->type != QN_KV_STRING) {
            return qn_fail(err, "%s: %s is not a text", path, key);
        }
        return qn_template_parse(out, tok, text.data, (size_t)text.len, label, err);
    }
    const qn_embedded *f = name != NULL ? find_builtin(name) : NULL;
    if (f != NULL) {
        snprintf(label, sizeof label, "built-in template '%s'", name);
        return qn_template_parse(out, tok, f->data, f->size, label, err);
    }
    builtin_list(list, sizeof list);
    if (name == NULL) {
        return qn_fail(err, "%s: the model has no chat template; choose one of %s, or give a file", path,
                       list);
    }
    return qn_fail(err, "%s: no chat template '%s' in the file; built in are %s", path, name, list);
}

int quern_template_open(quern_template **out, const quern_model *m, const char *name, quern_error *err)
{
    return qn_template_open(out, m != NULL ? m->model->gguf : NULL, m != NULL ? m->tok : NULL, name,
                            qn_engine_err(err));
}

int quern_template_parse(quern_template **out, const quern_model *m, const char *source, size_t len,
                         const char *label, quern_error *err)
{
    return qn_template_parse(out, m != NULL ? m->tok : NULL, source, len, label, qn_engine_err(err));
}

void quern_template_free(quern_template *t)
{
    if (t != NULL) {
        qn_jinja_free(t->jinja);
        free(t->label);
        free(t->source);
        free(t);
    }
}

const char *quern_template_label(const quern_template *t)
{
    return t->label;
}

const char *quern_template_source(const quern_template *t, size_t *len)
{
    *len = t->len;
    return t->source;
}

bool quern_template_reads(const quern_template *t, const char *variable)
{
    return qn_jinja_reads(t->jinja, variable);
}

/* --- JSON to the interpreter's values --- */

static int list_value(qn_jrender *r, const json_t *j, uint32_t origin, qn_jval *out, qn_err *err)
{
    size_t i;
    const json_t *item;
    qn_jval v;
    if (qn_jvalue_list(r, out, err) != 0) {
        return -1;
    }
    json_array_foreach(j, i, item)
    {
        if (qn_template_value(r, item, origin, &v, err) != 0 || qn_jvalue_append(r, *out, v, err) != 0) {
            return -1;
        }
    }
    return 0;
}

static int dict_value(qn_jrender *r, const json_t *j, uint32_t origin, qn_jval *out, qn_err *err)
{
    const char *key;
    json_t *item;
    qn_jval k, v;
    if (qn_jvalue_dict(r, out, err) != 0) {
        return -1;
    }
    json_object_foreach((json_t *)j, key, item)
    {
        if (qn_jvalue_str(r, key, strlen(key), origin, &k, err) != 0 ||
            qn_template_value(r, item, origin, &v, err) != 0 || qn_jvalue_set(r, *out, k, v, err) != 0) {
            return -1;
        }
    }
    return 0;
}

int qn_template_value(qn_jrender *r, const json_t *j, uint32_t origin, qn_jval *out, qn_err *err)
{
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        return dict_value(r, j, origin, out, err);
    case JSON_ARRAY:
        return list_value(r, j, origin, out, err);
    case JSON_STRING:
        return qn_jvalue_str(r, json_string_value(j), json_string_length(j), origin, out, err);
    case JSON_INTEGER:
        *out = qn_jvalue_int(json_integer_value(j));
        return 0;
    case JSON_REAL:
        *out = qn_jvalue_float(json_real_value(j));
        return 0;
    case JSON_NULL:
        *out = qn_jvalue_none();
        return 0;
    default:
        *out = qn_jvalue_bool(json_is_true(j));
        return 0;
    }
}

/* --- variables --- */

static int token_var(qn_jrender *r, const qn_tokenizer *tok, const char *name, qn_token_role role,
                     bool always, qn_err *err)
{
    size_t len = 0;
    qn_jval v;
    int32_t id = tok != NULL ? qn_tokenizer_role(tok, role) : -1;
    const char *text = id >= 0 ? qn_token_text(tok, id, &len) : NULL;
    if (text == NULL && !always) {
        return 0;
    }
    return qn_jvalue_str(r, text != NULL ? text : "", len, QN_ORIGIN_TEMPLATE, &v, err) != 0
               ? -1
               : qn_jrender_var(r, name, v, err);
}

/* What Hugging Face's tokenizers call them. A file without a begin- or end-of-text token has empty ones. */
static int token_vars(qn_jrender *r, const qn_tokenizer *tok, qn_err *err)
{
    static const struct {
        const char *name;
        qn_token_role role;
        bool always;
    } rows[] = {
        {"bos_token", QN_ROLE_BOS, true},  {"eos_token", QN_ROLE_EOS, true},
        {"unk_token", QN_ROLE_UNK, false}, {"sep_token", QN_ROLE_SEP, false},
        {"pad_token", QN_ROLE_PAD, false}, {"mask_token", QN_ROLE_MASK, false},
    };
    for (size_t i = 0; tok != NULL && i < sizeof rows / sizeof *rows; i++) {
        if (token_var(r, tok, rows[i].name, rows[i].role, rows[i].always, err) != 0) {
            return -1;
        }
    }
    return 0;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

static int json_vars(qn_jrender *r, const json_t *vars, qn_err *err)
{
    const char *key;
    json_t *item;
    qn_jval v;
    json_object_foreach((json_t *)vars, key, item)
    {
        bool token = json_is_string(item) && ends_with(key, "_token");
        uint32_t origin = token ? QN_ORIGIN_TEMPLATE : QN_ORIGIN_MESSAGE;
        if (qn_template_value(r, item, origin, &v, err) != 0 || qn_jrender_var(r, key, v, err) != 0) {
            return -1;
        }
    }
    return 0;
}

/* A role of letters, digits, '_' and '-' can do no harm, and templates make tags of it. */
static bool plain_word(const json_t *j)
{
    const char *s = json_string_value(j);
    size_t n = json_string_length(j);
    return n > 0 && n <= 32 && n == strlen(s) &&
           n == strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
}

static int message_value(qn_jrender *r, const json_t *message, uint32_t content, qn_jval *out, qn_err *err)
{
    const char *key;
    json_t *item;
    qn_jval k, v;
    if (!json_is_object(message)) {
        return qn_template_value(r, message, QN_ORIGIN_MESSAGE, out, err);
    }
    if (qn_jvalue_dict(r, out, err) != 0) {
        return -1;
    }
    json_object_foreach((json_t *)message, key, item)
    {
        bool role = json_is_string(item) && strcmp(key, "role") == 0 && plain_word(item);
        uint32_t origin = role                                                  ? (uint32_t)QN_ORIGIN_TEMPLATE
                          : strcmp(key, "content") == 0 && json_is_string(item) ? content
                                                                                : (uint32_t)QN_ORIGIN_MESSAGE;
        if (qn_jvalue_str(r, key, strlen(key), QN_ORIGIN_MESSAGE, &k, err) != 0 ||
            qn_template_value(r, item, origin, &v, err) != 0 || qn_jvalue_set(r, *out, k, v, err) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Content of message i has the origin FIRST_CONTENT + i. */
enum { FIRST_CONTENT = QN_ORIGIN_MESSAGE + 1 };

static int message_vars(qn_jrender *r, const json_t *messages, qn_err *err)
{
    size_t i;
    const json_t *item;
    qn_jval list, v;
    if (qn_jvalue_list(r, &list, err) != 0) {
        return -1;
    }
    json_array_foreach(messages, i, item)
    {
        if (message_value(r, item, (uint32_t)(FIRST_CONTENT + i), &v, err) != 0 ||
            qn_jvalue_append(r, list, v, err) != 0) {
            return -1;
        }
    }
    return qn_jrender_var(r, "messages", list, err);
}

/* --- what comes out --- */

/* Whether the message's ids are the tokens of its content. */
static bool ids_fit(const quern_template *t, const quern_message *m)
{
    size_t at = 0, n;
    if (t->tok == NULL || m->ids == NULL || m->content == NULL || m->content_len == 0) {
        return false;
    }
    for (size_t i = 0; i < m->n_ids; i++) {
        const char *piece = qn_token_piece(t->tok, m->ids[i], true, &n);
        if (n > m->content_len - at || memcmp(m->content + at, piece, n) != 0) {
            return false;
        }
        at += n;
    }
    return at == m->content_len;
}

static int take(const quern_template *t, const qn_template_input *in, const qn_jinja_text *from,
                quern_rendering *out, qn_err *err)
{
    out->text = malloc(from->len + 1);
    out->spans = qn_calloc(from->n_spans + 1, sizeof *out->spans);
    if (out->text == NULL || out->spans == NULL) {
        quern_rendering_free(out);
        return qn_fail(err, "%s: out of memory for %zu bytes of text", t->label, from->len);
    }
    if (from->len > 0) {
        memcpy(out->text, from->text, from->len);
    }
    out->text[from->len] = 0;
    out->len = from->len;
    size_t at = 0;
    for (size_t i = 0; i < from->n_spans; at += from->spans[i].len, i++) {
        const qn_jspan *s = &from->spans[i];
        bool message = s->origin != QN_ORIGIN_TEMPLATE;
        size_t k = s->origin - FIRST_CONTENT;
        const quern_message *m = s->origin >= FIRST_CONTENT && k < in->n_given ? &in->given[k] : NULL;
        bool whole = m != NULL && s->len == m->content_len && memcmp(out->text + at, m->content, s->len) == 0;
        quern_span *last = out->n_spans > 0 ? &out->spans[out->n_spans - 1] : NULL;
        if (whole && ids_fit(t, m)) {
            out->spans[out->n_spans++] = (quern_span){s->len, true, m->ids, m->n_ids};
        } else if (last != NULL && last->ids == NULL && last->message == message) {
            last->len += s->len;
        } else {
            out->spans[out->n_spans++] = (quern_span){.len = s->len, .message = message};
        }
    }
    return 0;
}

int qn_template_render(const quern_template *t, const qn_template_input *in, quern_rendering *out,
                       char **raised, qn_err *err)
{
    qn_jinja_text text;
    *out = (quern_rendering){0};
    if (raised != NULL) {
        *raised = NULL;
    }
    qn_jrender *r = qn_jrender_new(t->jinja, NULL, in->now != 0 ? in->now : (int64_t)time(NULL));
    if (r == NULL) {
        return qn_fail(err, "%s: out of memory", t->label);
    }
    int rc = token_vars(r, t->tok, err);
    rc = rc == 0 && in->messages != NULL ? message_vars(r, in->messages, err) : rc;
    rc = rc == 0 && in->vars != NULL ? json_vars(r, in->vars, err) : rc;
    if (rc == 0) {
        rc = qn_jrender_run(r, &text, err);
        if (rc != 0 && raised != NULL && text.raised != NULL) {
            *raised = strdup(text.raised);
        }
    }
    rc = rc == 0 ? take(t, in, &text, out, err) : -1;
    qn_jrender_free(r);
    return rc;
}

void quern_rendering_free(quern_rendering *r)
{
    free(r->text);
    free(r->spans);
    *r = (quern_rendering){0};
}
