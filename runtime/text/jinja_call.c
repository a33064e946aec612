/* jinja_call.c: binding arguments, calling things, and the global functions. */
#include "text/jinja_internal.h"

#include <stdio.h>
#include <time.h>

const qn_jfunc *qn_jfunc_find(const qn_jfunc *table, const char *name, size_t len)
{
    for (; table->name != NULL; table++) {
        if (strlen(table->name) == len && memcmp(table->name, name, len) == 0) {
            return table;
        }
    }
    return NULL;
}

typedef struct params {
    const char *name[QN_J_MAX_PARAMS];
    size_t len[QN_J_MAX_PARAMS];
    bool optional[QN_J_MAX_PARAMS];
    size_t n, n_positional; /* the latter cannot be given by name */
} params;

static void read_params(const char *spec, params *p)
{
    *p = (params){0};
    while (*spec != 0) {
        size_t len = strcspn(spec, " ");
        if (*spec == '/') {
            p->n_positional = p->n;
        } else {
            p->optional[p->n] = spec[len - 1] == '=';
            p->name[p->n] = spec;
            p->len[p->n] = len - p->optional[p->n];
            p->n++;
        }
        spec += len;
        spec += *spec == ' ';
    }
}

void qn_jbind(qn_jctx *c, const qn_jfunc *f, const qn_jargs *args, qn_jval arg[QN_J_MAX_PARAMS])
{
    params p;
    read_params(f->params, &p);
    if (args->n > p.n) {
        qn_jfail(c, "%s() takes at most %zu argument(s), %zu given", f->name, p.n, args->n);
    }
    for (size_t i = 0; i < QN_J_MAX_PARAMS; i++) {
        arg[i] = i < args->n ? args->pos[i] : (qn_jval){.kind = QN_J_MISSING};
    }
    for (size_t k = 0; k < args->n_kw; k++) {
        const qn_jstr *name = args->kw[k].name;
        size_t i = p.n_positional;
        while (i < p.n && !(p.len[i] == name->len && memcmp(p.name[i], name->p, name->len) == 0)) {
            i++;
        }
        if (i >= p.n) {
            qn_jfail(c, "%s() got an unexpected keyword argument '%.*s'", f->name, (int)name->len, name->p);
        }
        if (qn_jgiven(arg[i])) {
            qn_jfail(c, "%s() got multiple values for argument '%.*s'", f->name, (int)name->len, name->p);
        }
        arg[i] = args->kw[k].value;
    }
    for (size_t i = 0; i < p.n; i++) {
        if (!p.optional[i] && !qn_jgiven(arg[i])) {
            qn_jfail(c, "%s() missing required argument '%.*s'", f->name, (int)p.len[i], p.name[i]);
        }
    }
}

qn_jval qn_jinvoke(qn_jctx *c, const qn_jfunc *f, qn_jval self, const qn_jargs *args)
{
    qn_jbound bound = {.call = args};
    if (self.kind == QN_J_STR) { /* most functions look at all of it, some without making anything */
        qn_jtick(c, self.s->len / 16);
    }
    if (*f->params != '*') {
        qn_jbind(c, f, args, bound.arg);
    }
    return f->call(c, self, &bound);
}

bool qn_jcallable(qn_jval v)
{
    return v.kind == QN_J_UNDEFINED || v.kind == QN_J_MACRO || v.kind == QN_J_FUNC || v.kind == QN_J_METHOD ||
           v.kind == QN_J_LOOP || v.kind == QN_J_JOINER;
}

static qn_jval joiner_next(qn_jctx *c, qn_jcycler *j)
{
    if (j->at++ == 0) {
        return qn_jstr_c(c, "");
    }
    return (qn_jval){.kind = QN_J_STR, .s = (qn_jstr *)j->sep};
}

qn_jval qn_jcall(qn_jctx *c, qn_jval callee, const qn_jargs *args)
{
    static const qn_jfunc loop = {"loop", "iterable", NULL}, joiner = {"joiner", "", NULL};
    qn_jval arg[QN_J_MAX_PARAMS], v;
    switch (callee.kind) {
    case QN_J_UNDEFINED:
        qn_jfail_undefined(c, callee);
    case QN_J_FUNC:
        return qn_jinvoke(c, callee.func, qn_jnone(), args);
    case QN_J_METHOD:
        return qn_jinvoke(c, callee.method->func, callee.method->self, args);
    case QN_J_MACRO:
        qn_jenter(c);
        v = qn_jmacro_call(c, callee.macro, args);
        c->depth--;
        return v;
    case QN_J_LOOP:
        qn_jbind(c, &loop, args, arg);
        return qn_jloop_call(c, callee.loop, arg[0]);
    case QN_J_JOINER:
        qn_jbind(c, &joiner, args, arg);
        return joiner_next(c, callee.cycler);
    default:
        qn_jfail(c, "'%s' object is not callable", qn_jtype(callee));
    }
}

/* --- attributes of built-in types --- */

static qn_jval cycler_next(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    (void)c;
    qn_jcycler *y = self.cycler;
    qn_jval v = y->item[y->at];
    y->at = (y->at + 1) % y->n;
    return v;
}

static qn_jval cycler_reset(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    (void)c;
    self.cycler->at = 0;
    return qn_jnone();
}

static const qn_jfunc cycler_methods[] = {{"next", "", cycler_next}, {"reset", "", cycler_reset}, {0}};

static bool macro_attr(qn_jctx *c, const qn_jmacro *m, const qn_jstr *name, qn_jval *out)
{
    static const char *const flags[] = {"catch_varargs", "catch_kwargs", "caller"};
    if (qn_jstr_is(name, "name")) {
        *out =
            m->node->name != NULL ? (qn_jval){.kind = QN_J_STR, .s = (qn_jstr *)m->node->name} : qn_jnone();
        return true;
    }
    if (qn_jstr_is(name, "arguments")) {
        *out = qn_jtuple_new(c, m->node->n_kids);
        for (const qn_jnode *k = m->node->kids; k != NULL; k = k->next) {
            qn_jlist_push(c, out->l, (qn_jval){.kind = QN_J_STR, .s = (qn_jstr *)k->name});
        }
        return true;
    }
    for (int i = 0; i < 3; i++) {
        if (qn_jstr_is(name, flags[i])) {
            *out = qn_jbool(m->node->uses[i]);
            return true;
        }
    }
    return false;
}

static bool method(qn_jctx *c, qn_jval obj, const qn_jfunc *table, const qn_jstr *name, qn_jval *out)
{
    const qn_jfunc *f = qn_jfunc_find(table, name->p, name->len);
    if (f == NULL) {
        return false;
    }
    if (f->call == NULL) {
        qn_jfail(c, "the method '%s' of a %s is not supported", f->name, qn_jtype(obj));
    }
    if (*f->params == '.') { /* no method: its value */
        *out = f->call(c, obj, NULL);
        return true;
    }
    qn_jmethod *m = qn_jalloc(c, 1, sizeof *m);
    m->self = obj;
    m->func = f;
    *out = (qn_jval){.kind = QN_J_METHOD, .method = m};
    return true;
}

bool qn_jattribute(qn_jctx *c, qn_jval obj, const qn_jstr *name, qn_jval *out)
{
    bool found;
    switch (obj.kind) {
    case QN_J_STR:
        return method(c, obj, qn_jstr_methods, name, out) || method(c, obj, qn_jstr_case_methods, name, out);
    case QN_J_LIST:
        return method(c, obj, qn_jlist_methods, name, out);
    case QN_J_TUPLE:
        for (size_t i = 0; obj.l->fields != NULL && obj.l->fields[i] != NULL; i++) {
            if (qn_jstr_is(name, obj.l->fields[i])) {
                *out = obj.l->item[i];
                return true;
            }
        }
        return method(c, obj, qn_jtuple_methods, name, out);
    case QN_J_DICT:
        return method(c, obj, qn_jdict_methods, name, out);
    case QN_J_RANGE:
        return method(c, obj, qn_jrange_methods, name, out);
    case QN_J_BOOL:
    case QN_J_INT:
        return method(c, obj, qn_jint_methods, name, out);
    case QN_J_FLOAT:
        return method(c, obj, qn_jfloat_methods, name, out);
    case QN_J_LOOP:
        *out = qn_jloop_attr(c, obj.loop, name, &found);
        return found;
    case QN_J_MACRO:
        return macro_attr(c, obj.macro, name, out);
    case QN_J_CYCLER:
        if (qn_jstr_is(name, "current")) {
            *out = obj.cycler->item[obj.cycler->at];
            return true;
        }
        return method(c, obj, cycler_methods, name, out);
    default:
        return false;
    }
}

/* --- global functions --- */

enum { MAX_RANGE = 100000 };

static qn_jval range(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)self;
    int64_t start = 0, stop = qn_jneed_int(c, a->arg[0], "range()"), step = 1;
    if (qn_jgiven(a->arg[1])) {
        start = stop;
        stop = qn_jneed_int(c, a->arg[1], "range()");
        step = qn_jgiven(a->arg[2]) ? qn_jneed_int(c, a->arg[2], "range()") : 1;
    }
    if (step == 0) {
        qn_jfail(c, "range() arg 3 must not be zero");
    }
    uint64_t span = 0, by = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    if (step > 0 ? start < stop : start > stop) {
        span = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    }
    uint64_t n = span / by + (span % by != 0);
    if (n > MAX_RANGE) {
        qn_jfail(c, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", MAX_RANGE);
    }
    qn_jval v = {.kind = QN_J_RANGE, .range = qn_jalloc(c, 1, sizeof *v.range)};
    *v.range = (qn_jrange){.start = start, .step = step, .stop = stop, .n = (size_t)n};
    return v;
}

/* What dict() and namespace() take: a mapping or pairs, and keywords. */
static qn_jdict *dict_of(qn_jctx *c, const qn_jargs *args, const char *name)
{
    qn_jdict *d = qn_jdict_new(c).d;
    qn_jval pair;
    if (args->n > 1) {
        qn_jfail(c, "%s expected at most 1 argument, got %zu", name, args->n);
    }
    if (args->n == 1 && args->pos[0].kind == QN_J_DICT) {
        const qn_jdict *from = args->pos[0].d;
        for (size_t i = 0; i < from->n; i++) {
            qn_jdict_set(c, d, from->entry[i].key, from->entry[i].value);
        }
    } else if (args->n == 1) {
        qn_jiter *it = qn_jiter_of(c, args->pos[0]);
        while (qn_jnext(c, it, &pair)) {
            const qn_jlist *l = qn_jto_list(c, pair).l;
            if (l->n != 2) {
                qn_jfail(c, "an element of a dictionary update sequence has length %zu; 2 is required", l->n);
            }
            qn_jdict_set(c, d, l->item[0], l->item[1]);
        }
    }
    for (size_t i = 0; i < args->n_kw; i++) {
        qn_jdict_set(c, d, (qn_jval){.kind = QN_J_STR, .s = (qn_jstr *)args->kw[i].name}, args->kw[i].value);
    }
    return d;
}

static qn_jval dict(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)self;
    return (qn_jval){.kind = QN_J_DICT, .d = dict_of(c, a->call, "dict")};
}

static qn_jval namespace_(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)self;
    return (qn_jval){.kind = QN_J_NAMESPACE, .d = dict_of(c, a->call, "namespace")};
}

static qn_jval cycler(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)self;
    if (a->call->n == 0 || a->call->n_kw > 0) {
        qn_jfail(c, "cycler() takes items, and at least one");
    }
    qn_jval v = {.kind = QN_J_CYCLER, .cycler = qn_jalloc(c, 1, sizeof *v.cycler)};
    v.cycler->item = a->call->pos;
    v.cycler->n = a->call->n;
    return v;
}

static qn_jval joiner(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)self;
    qn_jval v = {.kind = QN_J_JOINER, .cycler = qn_jalloc(c, 1, sizeof *v.cycler)};
    v.cycler->sep = qn_jgiven(a->arg[0]) ? qn_jto_str(c, a->arg[0]) : qn_jstr_c(c, ", ").s;
    return v;
}

static qn_jval raise_exception(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)self;
    c->raised = qn_jstr_cstr(c, qn_jto_str(c, a->arg[0]));
    qn_jfail(c, "%s", c->raised);
}

/*
 * The format for the C library, with a blank behind it: an empty result could not be told from one that is
 * too long. As for Python's times without zone, %z, %:z and %Z are nothing; %f is the microseconds, which the
 * clock here does not have.
 */
static char *naive_format(qn_jctx *c, const qn_jstr *format)
{
    char *f = qn_jalloc(c, format->len * 3 + 2, 1);
    size_t n = 0;
    for (size_t i = 0; i < format->len; i++) {
        char next = format->p[i] == '%' && i + 1 < format->len ? format->p[i + 1] : 0;
        bool colon = next == ':' && i + 2 < format->len && format->p[i + 2] == 'z';
        if (next == 'z' || next == 'Z' || colon) {
            i += colon ? 2 : 1;
        } else if (next == 'f') {
            memcpy(f + n, "000000", 6);
            n += 6;
            i++;
        } else {
            f[n++] = format->p[i];
            if (next != 0) {
                f[n++] = next;
                i++;
            }
        }
    }
    f[n] = ' ';
    f[n + 1] = 0;
    return f;
}

static qn_jval strftime_now(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)self;
    const qn_jstr *format = qn_jneed_str(c, a->arg[0], "strftime_now()");
    time_t now = (time_t)c->now;
    struct tm tm;
    if (localtime_r(&now, &tm) == NULL) {
        qn_jfail(c, "strftime_now(): the time %lld has no date", (long long)c->now);
    }
    char out[512];
    char *f = naive_format(c, format);
    size_t n = strftime(out, sizeof out, f, &tm);
    if (n == 0) {
        qn_jfail(c, "strftime_now(): the result is longer than %zu bytes", sizeof out);
    }
    return qn_jstr_new(c, out, n - 1, QN_ORIGIN_TEMPLATE);
}

static qn_jval lipsum(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    (void)self;
    qn_jfail(c, "the function 'lipsum' is not supported");
}

const qn_jfunc *qn_jglobal_find(const char *name, size_t len)
{
    static const qn_jfunc table[] = {
        {"range", "start stop= step= /", range},
        {"dict", "*", dict},
        {"namespace", "*", namespace_},
        {"cycler", "*", cycler},
        {"joiner", "sep=", joiner},
        {"raise_exception", "message", raise_exception},
        {"strftime_now", "format", strftime_now},
        {"lipsum", "*", lipsum},
        {0},
    };
    return qn_jfunc_find(table, name, len);
}
