/* jinja_filters_gen.c: filters that give generators, whose work is done when they are walked. */
#include "text/jinja_internal.h"

/* --- map, select, reject and their attr forms --- */

typedef struct mapper {
    qn_jargs args; /* what follows the name */
    const qn_jfunc *func;
    qn_jval attribute, fallback;
    qn_jiter *items; /* NULL: not begun */
    bool by_attribute, select, keep, looks_up;
    const qn_jargs *given;
} mapper;

static const qn_jfunc *function_named(qn_jctx *c, qn_jval name, bool test)
{
    const qn_jstr *s = qn_jneed_str(c, name, test ? "a test's name" : "a filter's name");
    const qn_jfunc *f = test ? qn_jtest_find(s->p, s->len) : qn_jfilter_find(s->p, s->len);
    if (f == NULL) {
        bool known = !test && qn_jfilter_known(s->p, s->len);
        qn_jfail(c,
                 known  ? "the filter '%.*s' is not supported"
                 : test ? "no test named '%.*s'"
                        : "no filter named '%.*s'",
                 (int)s->len, s->p);
    }
    return f;
}

static qn_jargs behind(const qn_jargs *a, size_t n)
{
    qn_jargs out = *a;
    out.pos += n;
    out.n -= n;
    return out;
}

static void begin_map(qn_jctx *c, mapper *m)
{
    const qn_jargs *a = m->given;
    bool by_attribute = false;
    m->fallback = qn_jnone();
    for (size_t i = 0; a->n == 0 && i < a->n_kw; i++) {
        by_attribute |= qn_jstr_is(a->kw[i].name, "attribute");
    }
    if (!by_attribute) {
        if (a->n == 0) {
            qn_jfail(c, "map requires a filter argument");
        }
        m->func = function_named(c, a->pos[0], false);
        m->args = behind(a, 1);
        return;
    }
    m->by_attribute = true;
    for (size_t i = 0; i < a->n_kw; i++) {
        if (qn_jstr_is(a->kw[i].name, "attribute")) {
            m->attribute = a->kw[i].value;
        } else if (qn_jstr_is(a->kw[i].name, "default")) {
            m->fallback = a->kw[i].value;
        } else {
            qn_jfail(c, "Unexpected keyword argument '%.*s'", (int)a->kw[i].name->len, a->kw[i].name->p);
        }
    }
}

static void begin_select(qn_jctx *c, mapper *m)
{
    const qn_jargs *a = m->given;
    size_t off = 0;
    if (m->looks_up) {
        if (a->n == 0) {
            qn_jfail(c, "Missing parameter for attribute name");
        }
        m->attribute = a->pos[0];
        off = 1;
    }
    if (a->n > off) {
        m->func = function_named(c, a->pos[off], true);
        m->args = behind(a, off + 1);
    }
}

static bool selected(qn_jctx *c, const mapper *m, qn_jval v)
{
    v = m->looks_up ? qn_jattr_path(c, v, m->attribute, qn_jnone()) : v;
    bool yes = m->func != NULL ? qn_jtrue(c, qn_jinvoke(c, m->func, v, &m->args)) : qn_jtrue(c, v);
    return yes == m->keep;
}

static bool next_mapped(qn_jctx *c, qn_jiter *it, qn_jval *out)
{
    mapper *m = it->state;
    qn_jval v;
    if (m->items == NULL) {
        if (!qn_jtrue(c, it->source)) { /* anything false is empty, none too */
            return false;
        }
        if (m->select) {
            begin_select(c, m);
        } else {
            begin_map(c, m);
        }
        m->items = qn_jiter_of(c, it->source);
    }
    while (qn_jnext(c, m->items, &v)) {
        if (m->select) {
            if (!selected(c, m, v)) {
                continue;
            }
            *out = v;
        } else if (m->by_attribute) {
            *out = qn_jattr_path(c, v, m->attribute, m->fallback);
        } else {
            *out = qn_jinvoke(c, m->func, v, &m->args);
        }
        return true;
    }
    return false;
}

static qn_jval mapped(qn_jctx *c, qn_jval self, const qn_jargs *args, bool select, bool keep, bool looks_up)
{
    mapper *m = qn_jalloc(c, 1, sizeof *m);
    qn_jargs *given = qn_jalloc(c, 1, sizeof *given);
    *given = *args;
    m->given = given;
    m->select = select;
    m->keep = keep;
    m->looks_up = looks_up;
    return qn_jgenerator(c, next_mapped, self, m);
}

static qn_jval f_map(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return mapped(c, self, a->call, false, false, false);
}

static qn_jval f_select(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return mapped(c, self, a->call, true, true, false);
}

static qn_jval f_reject(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return mapped(c, self, a->call, true, false, false);
}

static qn_jval f_selectattr(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return mapped(c, self, a->call, true, true, true);
}

static qn_jval f_rejectattr(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return mapped(c, self, a->call, true, false, true);
}

/* --- what makes a list when it is first walked --- */

typedef struct deferred {
    qn_jval (*make)(qn_jctx *c, qn_jval source, const qn_jval *arg);
    qn_jval arg[QN_J_MAX_PARAMS];
    const qn_jlist *list;
} deferred;

static bool next_deferred(qn_jctx *c, qn_jiter *it, qn_jval *out)
{
    deferred *d = it->state;
    if (d->list == NULL) {
        d->list = d->make(c, it->source, d->arg).l;
    }
    if (it->at >= d->list->n) {
        return false;
    }
    *out = d->list->item[it->at++];
    return true;
}

static qn_jval defer(qn_jctx *c, qn_jval self, const qn_jval *arg,
                     qn_jval (*make)(qn_jctx *, qn_jval, const qn_jval *))
{
    deferred *d = qn_jalloc(c, 1, sizeof *d);
    d->make = make;
    memcpy(d->arg, arg, sizeof d->arg);
    return qn_jgenerator(c, next_deferred, self, d);
}

static qn_jval make_items(qn_jctx *c, qn_jval source, const qn_jval *arg)
{
    (void)arg;
    qn_jval out = qn_jlist_new(c, 0);
    if (source.kind == QN_J_UNDEFINED) {
        return out;
    }
    if (source.kind != QN_J_DICT) {
        qn_jfail(c, "Can only get item pairs from a mapping.");
    }
    for (size_t i = 0; i < source.d->n; i++) {
        qn_jlist_push(c, out.l, qn_jtuple2(c, source.d->entry[i].key, source.d->entry[i].value));
    }
    return out;
}

static qn_jval make_unique(qn_jctx *c, qn_jval source, const qn_jval *arg)
{
    bool fold = !(qn_jgiven(arg[0]) && qn_jtrue(c, arg[0]));
    qn_jdict *seen = qn_jdict_new(c).d;
    qn_jval out = qn_jlist_new(c, 0), v;
    qn_jiter *it = qn_jiter_of(c, source);
    while (qn_jnext(c, it, &v)) {
        qn_jval key = qn_jattr_path(c, v, arg[1], qn_jnone());
        size_t n = seen->n;
        qn_jdict_set(c, seen, fold ? qn_jignore_case(c, key) : key, qn_jnone());
        if (seen->n > n) {
            qn_jlist_push(c, out.l, v);
        }
    }
    return out;
}

static qn_jval make_batch(qn_jctx *c, qn_jval source, const qn_jval *arg)
{
    int64_t size = qn_jneed_int(c, arg[0], "batch()");
    qn_jval out = qn_jlist_new(c, 0), row = qn_jlist_new(c, 0), v;
    qn_jiter *it = qn_jiter_of(c, source);
    while (qn_jnext(c, it, &v)) {
        if ((int64_t)row.l->n == size) {
            qn_jlist_push(c, out.l, row);
            row = qn_jlist_new(c, 0);
        }
        qn_jlist_push(c, row.l, v);
    }
    while (qn_jset(arg[1]) && row.l->n > 0 && (int64_t)row.l->n < size) {
        qn_jlist_push(c, row.l, arg[1]);
        qn_jtick(c, 1);
    }
    if (row.l->n > 0) {
        qn_jlist_push(c, out.l, row);
    }
    return out;
}

static qn_jval make_slice(qn_jctx *c, qn_jval source, const qn_jval *arg)
{
    const qn_jlist *l = qn_jto_list(c, source).l;
    int64_t slices = qn_jneed_int(c, arg[0], "slice()");
    qn_jval out = qn_jlist_new(c, 0);
    if (slices == 0) {
        qn_jfail(c, "integer division or modulo by zero");
    }
    size_t n = slices > 0 ? (size_t)slices : 0, each = n > 0 ? l->n / n : 0, longer = n > 0 ? l->n % n : 0,
           at = 0;
    for (size_t i = 0; i < n; i++) {
        qn_jval row = qn_jlist_new(c, each + 1);
        for (size_t k = 0; k < each + (i < longer); k++) {
            qn_jlist_push(c, row.l, l->item[at++]);
        }
        if (qn_jset(arg[1]) && i >= longer) {
            qn_jlist_push(c, row.l, arg[1]);
        }
        qn_jtick(c, 1);
        qn_jlist_push(c, out.l, row);
    }
    return out;
}

static qn_jval f_items(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return defer(c, self, a->arg, make_items);
}

static qn_jval f_unique(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return defer(c, self, a->arg, make_unique);
}

static qn_jval f_batch(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return defer(c, self, a->arg, make_batch);
}

static qn_jval f_slice(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return defer(c, self, a->arg, make_slice);
}

const qn_jfunc qn_jfilters_gen[] = {
    {"batch", "linecount fill_with=", f_batch},
    {"items", "", f_items},
    {"map", "*", f_map},
    {"reject", "*", f_reject},
    {"rejectattr", "*", f_rejectattr},
    {"select", "*", f_select},
    {"selectattr", "*", f_selectattr},
    {"slice", "slices fill_with=", f_slice},
    {"unique", "case_sensitive= attribute=", f_unique},
    {0},
};

const qn_jfunc *qn_jfilter_find(const char *name, size_t len)
{
    const qn_jfunc *f = qn_jfunc_find(qn_jfilters_text, name, len);
    f = f != NULL ? f : qn_jfunc_find(qn_jfilters_seq, name, len);
    return f != NULL ? f : qn_jfunc_find(qn_jfilters_gen, name, len);
}

bool qn_jfilter_known(const char *name, size_t len)
{
    static const char *const missing[] = {"pprint", "random", "striptags", "urlize", "wordwrap"};
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++) {
        if (strlen(missing[i]) == len && memcmp(missing[i], name, len) == 0) {
            return true;
        }
    }
    return false;
}
