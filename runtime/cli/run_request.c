/* run_request.c: prompts of a file, one a line, and what each says of its answer. */
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "cli/run.h"
#include "model/yaml.h"

void qn_request_clear(qn_request *r)
{
    json_decref(r->id);
    free(r->text);
    qn_stops_free(r->stop);
    *r = (qn_request){0};
}

int qn_request_set_stops(qn_request *r, const char *const *items, size_t n, bool escape)
{
    qn_stops_free(r->stop);
    r->stop = qn_stops_copy(items, n, escape);
    r->n_stop = r->stop != NULL ? n : 0;
    return r->stop != NULL ? 0 : -1;
}

/* Members of a line that are numbers or true and false, by the options' names and by those of other programs.
 */
typedef struct member {
    const char *name;
    bool real;
    size_t offset;
    double min, max;
} member;

static const member members[] = {
    {"temp", true, offsetof(qn_request, sampling.temperature), 0, INT_MAX},
    {"temperature", true, offsetof(qn_request, sampling.temperature), 0, INT_MAX},
    {"top_k", false, offsetof(qn_request, sampling.top_k), 0, INT_MAX},
    {"top_p", true, offsetof(qn_request, sampling.top_p), 0, 1},
    {"min_p", true, offsetof(qn_request, sampling.min_p), 0, 1},
    {"repeat_penalty", true, offsetof(qn_request, sampling.repeat_penalty), 0, INT_MAX},
    {"repeat_last_n", false, offsetof(qn_request, sampling.repeat_last_n), -1, INT_MAX},
    {"predict", false, offsetof(qn_request, n_predict), -1, INT_MAX},
    {"n_predict", false, offsetof(qn_request, n_predict), -1, INT_MAX},
    {"max_tokens", false, offsetof(qn_request, n_predict), -1, INT_MAX},
    {"logprobs", false, offsetof(qn_request, n_logprobs), 0, 1000},
    {"ignore_eos", false, offsetof(qn_request, ignore_eos), 0, 1},
    {"special", false, offsetof(qn_request, special), 0, 1},
};

static int set_member(qn_request *r, const member *m, const json_t *v, qn_err *err)
{
    bool flag = m->min == 0 && m->max == 1 && !m->real;
    double number = json_is_boolean(v) ? json_is_true(v) : json_number_value(v);
    if (flag ? !json_is_boolean(v) : m->real ? !json_is_number(v) : !json_is_integer(v)) {
        return qn_fail(err, "\"%s\" is not %s", m->name,
                       flag      ? "true or false"
                       : m->real ? "a number"
                                 : "a whole number");
    }
    if (!(number >= m->min && number <= m->max)) {
        return qn_fail(err, "\"%s\": %g is outside %g to %g", m->name, number, m->min, m->max);
    }
    if (m->real) {
        *(float *)((char *)r + m->offset) = (float)number;
    } else {
        *(int *)((char *)r + m->offset) = (int)number;
    }
    return 0;
}

static int set_seed(qn_request *r, const json_t *v, qn_err *err)
{
    char digits[32];
    const char *text = json_is_string(v) ? json_string_value(v) : digits;
    snprintf(digits, sizeof digits, "%lld", (long long)json_integer_value(v));
    if ((!json_is_string(v) && !json_is_integer(v)) || qn_seed_parse(text, &r->sampling.seed) != 0) {
        return qn_fail(err, "\"seed\" is neither a whole number of 64 bits nor -1");
    }
    return 0;
}

/* A string, or a list of strings; they are taken as they are. */
static int set_stop(qn_request *r, const json_t *v, qn_err *err)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    const char **items = qn_calloc(n + 1, sizeof *items);
    if (items == NULL) {
        return qn_fail(err, "out of memory");
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_string(item) || strlen(json_string_value(item)) != json_string_length(item)) {
            free(items);
            return qn_fail(err, "\"stop\" is neither a text nor a list of texts");
        }
        items[i] = json_string_value(item);
    }
    int rc = qn_request_set_stops(r, items, n, false);
    free(items);
    return rc == 0 ? 0 : qn_fail(err, "out of memory");
}

static int set_prompt(qn_request *r, const json_t *v, qn_err *err)
{
    if (!json_is_string(v)) {
        return qn_fail(err, "\"prompt\" is not a text");
    }
    r->len = json_string_length(v);
    r->text = malloc(r->len + 1);
    if (r->text == NULL) {
        return qn_fail(err, "out of memory");
    }
    memcpy(r->text, json_string_value(v), r->len + 1);
    return 0;
}

static int unknown_member(const char *key, qn_err *err)
{
    const char *names[sizeof members / sizeof *members + 4] = {"prompt", "id", "seed", "stop"};
    char hint[96];
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        names[4 + i] = members[i].name;
    }
    qn_nearest_hint(key, names, sizeof names / sizeof *names, hint, sizeof hint);
    return qn_fail(err, "unknown member \"%s\"%s", key, hint);
}

static int set_any(qn_request *r, const char *key, json_t *v, qn_err *err)
{
    if (strcmp(key, "id") == 0) {
        if (!json_is_string(v) && !json_is_integer(v)) {
            return qn_fail(err, "\"id\" is neither a text nor a whole number");
        }
        json_decref(r->id);
        r->id = json_incref(v);
        return 0;
    }
    if (strcmp(key, "prompt") == 0) {
        return set_prompt(r, v, err);
    }
    if (strcmp(key, "seed") == 0) {
        return set_seed(r, v, err);
    }
    if (strcmp(key, "stop") == 0) {
        return set_stop(r, v, err);
    }
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        if (strcmp(members[i].name, key) == 0) {
            return set_member(r, &members[i], v, err);
        }
    }
    return unknown_member(key, err);
}

/* The id first, so that a fault of the rest is told under it. */
static int read_object(qn_request *r, const char *line, size_t len, qn_err *err)
{
    json_error_t e;
    json_t *o = json_loadb(line, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
    if (o == NULL) {
        return qn_fail(err, "not JSON: column %d: %s", e.column, e.text);
    }
    json_t *id = json_object_get(o, "id"), *v;
    const char *key;
    int rc = !json_is_object(o) ? qn_fail(err, "not a JSON object")
             : id != NULL       ? set_any(r, "id", id, err)
                                : 0;
    json_object_foreach(o, key, v)
    {
        rc = rc != 0 || v == id ? rc : set_any(r, key, v, err);
    }
    if (rc == 0 && r->text == NULL) {
        rc = qn_fail(err, "no \"prompt\"");
    }
    json_decref(o);
    return rc;
}

static int read_text(qn_request *r, const char *line, size_t len, bool escape, qn_err *err)
{
    r->text = malloc(len + 1);
    if (r->text == NULL) {
        return qn_fail(err, "out of memory");
    }
    memcpy(r->text, line, len);
    r->len = escape ? qn_unescape(r->text, len) : len;
    r->text[r->len] = '\0';
    return 0;
}

static int read_line(qn_request *r, const qn_request *like, size_t number, const char *line, size_t len,
                     bool json, bool escape)
{
    qn_err err;
    *r = *like;
    r->text = NULL;
    r->stop = NULL;
    r->n_stop = 0;
    r->id = json_integer((json_int_t)number);
    if (r->id == NULL || qn_request_set_stops(r, (const char *const *)like->stop, like->n_stop, false) != 0) {
        return -1;
    }
    if ((json ? read_object(r, line, len, &err) : read_text(r, line, len, escape, &err)) != 0) {
        free(r->text);
        r->text = NULL;
        r->fault = err;
    }
    return 0;
}

/* Every line that is not empty. */
static int read_lines(const char *data, size_t size, const qn_request *like, bool escape, qn_request **out,
                      size_t *n)
{
    size_t start = size >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0, cap = 0, line = 0;
    int json = -1;
    for (size_t end; start < size; start = end + 1) {
        const char *nl = memchr(data + start, '\n', size - start);
        end = nl != NULL ? (size_t)(nl - data) : size;
        size_t len = end - start;
        line++;
        len -= len > 0 && data[start + len - 1] == '\r';
        if (len == 0) {
            continue;
        }
        json = json >= 0 ? json : data[start] == '{';
        if (*n == cap) {
            cap = 2 * cap + 16;
            qn_request *grown = realloc(*out, cap * sizeof *grown);
            if (grown == NULL) {
                return -1;
            }
            *out = grown;
        }
        qn_request *r = &(*out)[(*n)++];
        if (read_line(r, like, *n, data + start, len, json == 1, escape) != 0) {
            return -1;
        }
        r->line = line;
    }
    return 0;
}

int qn_requests_read(const char *path, const qn_request *like, bool escape, qn_request **out, size_t *n)
{
    char *data;
    size_t size;
    *out = NULL;
    *n = 0;
    if (qn_cli_read_file(path, &data, &size) != 0) {
        return QN_EXIT_ERROR;
    }
    int rc = read_lines(data, size, like, escape, out, n);
    free(data);
    return rc != 0   ? qn_cli_error("out of memory for the prompts of %s", path)
           : *n == 0 ? qn_cli_error("--prompts %s: no line with a prompt", path)
                     : -1;
}
