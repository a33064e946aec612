/* jinja_render.c: one rendering: its variables, its limits, and what comes out. */
#include "text/jinja_internal.h"

#include <stdlib.h>

/* A conversation of a megabyte with tools, a few hundred messages and several passes over all of it stays
 * well below these. */
const qn_jinja_limits qn_jinja_limits_default = {
    .steps = 200000000,
    .memory = (size_t)512 << 20,
    .output = (size_t)64 << 20,
    .depth = 1000,
};

qn_jrender *qn_jrender_new(const qn_jinja *t, const qn_jinja_limits *limits, int64_t now)
{
    qn_jrender *r = qn_calloc(1, sizeof *r);
    if (r != NULL) {
        r->t = t;
        r->label = t->label;
        r->line = 1;
        r->limits = limits != NULL ? *limits : qn_jinja_limits_default;
        r->now = now;
        r->loop_name = t->loop_name;
        r->caller_name = t->caller_name;
        r->varargs_name = t->varargs_name;
        r->kwargs_name = t->kwargs_name;
        r->vars = qn_arena_alloc(&r->arena, sizeof *r->vars);
        if (r->vars == NULL) {
            qn_jrender_free(r);
            r = NULL;
        }
    }
    return r;
}

void qn_jrender_free(qn_jrender *r)
{
    if (r != NULL) {
        qn_arena_free(&r->arena);
        free(r);
    }
}

/* The functions below come from outside, where nothing catches a failure yet. */

qn_jval qn_jvalue_none(void)
{
    return qn_jnone();
}

qn_jval qn_jvalue_bool(bool b)
{
    return qn_jbool(b);
}

qn_jval qn_jvalue_int(int64_t i)
{
    return qn_jint(i);
}

qn_jval qn_jvalue_float(double f)
{
    return qn_jfloat(f);
}

int qn_jvalue_str(qn_jrender *r, const char *text, size_t len, uint32_t origin, qn_jval *out, qn_err *err)
{
    r->err = err;
    if (setjmp(r->fail) != 0) {
        return -1;
    }
    *out = qn_jstr_new(r, text, len, origin);
    return 0;
}

int qn_jvalue_list(qn_jrender *r, qn_jval *out, qn_err *err)
{
    r->err = err;
    if (setjmp(r->fail) != 0) {
        return -1;
    }
    *out = qn_jlist_new(r, 0);
    return 0;
}

int qn_jvalue_dict(qn_jrender *r, qn_jval *out, qn_err *err)
{
    r->err = err;
    if (setjmp(r->fail) != 0) {
        return -1;
    }
    *out = qn_jdict_new(r);
    return 0;
}

int qn_jvalue_append(qn_jrender *r, qn_jval list, qn_jval item, qn_err *err)
{
    r->err = err;
    if (setjmp(r->fail) != 0) {
        return -1;
    }
    qn_jlist_push(r, list.l, item);
    return 0;
}

int qn_jvalue_set(qn_jrender *r, qn_jval dict, qn_jval key, qn_jval value, qn_err *err)
{
    r->err = err;
    if (setjmp(r->fail) != 0) {
        return -1;
    }
    qn_jdict_set(r, dict.d, key, value);
    return 0;
}

int qn_jrender_var(qn_jrender *r, const char *name, qn_jval value, qn_err *err)
{
    r->err = err;
    if (setjmp(r->fail) != 0) {
        return -1;
    }
    qn_jdict_set(r, r->vars, qn_jstr_c(r, name), value);
    return 0;
}

int qn_jrender_run(qn_jrender *r, qn_jinja_text *out, qn_err *err)
{
    *out = (qn_jinja_text){0};
    r->err = err;
    if (setjmp(r->fail) != 0) {
        out->raised = r->raised;
        return -1;
    }
    r->out = qn_jbuf_new(r, 0);
    r->scope = qn_jalloc(r, 1, sizeof *r->scope);
    (void)qn_jexec(r, r->t->body);
    const qn_jbuf *b = r->out;
    qn_jspan *span = qn_jalloc(r, b->n_runs, sizeof *span);
    for (size_t i = 0; i < b->n_runs; i++) {
        size_t end = i + 1 < b->n_runs ? b->run[i + 1].start : b->len;
        span[i] = (qn_jspan){.len = end - b->run[i].start, .origin = b->run[i].origin};
    }
    *out = (qn_jinja_text){.text = b->data, .len = b->len, .spans = span, .n_spans = b->n_runs};
    return 0;
}
