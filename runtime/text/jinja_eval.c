/* jinja_eval.c: expressions. */
#include "text/jinja_internal.h"

static qn_jval lookup(qn_jctx *c, const qn_jstr *name)
{
    for (const qn_jscope *s = c->scope; s != NULL; s = s->parent) {
        for (size_t i = s->n; i-- > 0;) {
            if (s->var[i].name == name) {
                return s->var[i].value;
            }
        }
    }
    const qn_jval *v = qn_jdict_find_str(c, c->vars, name);
    if (v != NULL) {
        return *v;
    }
    const qn_jfunc *f = qn_jglobal_find(name->p, name->len);
    if (f != NULL) {
        return (qn_jval){.kind = QN_J_FUNC, .func = f};
    }
    return qn_jundefined(c, "'%.*s' is undefined", (int)name->len, name->p);
}

static void push_arg(qn_jctx *c, qn_jargs *a, size_t *cap, qn_jval v)
{
    if (a->n == *cap) {
        *cap = *cap > 0 ? 2 * *cap : 4;
        qn_jval *pos = qn_jalloc(c, *cap, sizeof *pos);
        if (a->n > 0) {
            memcpy(pos, a->pos, a->n * sizeof *pos);
        }
        a->pos = pos;
    }
    a->pos[a->n++] = v;
}

static void add_keywords(qn_jctx *c, qn_jargs *a, qn_jval mapping)
{
    if (mapping.kind != QN_J_DICT) {
        qn_jfail(c, "argument after ** must be a mapping, not %s", qn_jtype(mapping));
    }
    qn_jkw *kw = qn_jalloc(c, a->n_kw + mapping.d->n, sizeof *kw);
    if (a->n_kw > 0) {
        memcpy(kw, a->kw, a->n_kw * sizeof *kw);
    }
    a->kw = kw;
    for (size_t i = 0; i < mapping.d->n; i++) {
        const qn_jentry *e = &mapping.d->entry[i];
        if (e->key.kind != QN_J_STR) {
            qn_jfail(c, "keywords must be strings");
        }
        kw[a->n_kw++] = (qn_jkw){e->key.s, e->value};
    }
}

void qn_jeval_args(qn_jctx *c, const qn_jnode *n, qn_jargs *out)
{
    size_t cap = n->n_kids;
    *out = (qn_jargs){0};
    out->pos = cap > 0 ? qn_jalloc(c, cap, sizeof *out->pos) : NULL;
    for (const qn_jnode *k = n->kids; k != NULL; k = k->next) {
        push_arg(c, out, &cap, qn_jeval(c, k));
    }
    if (n->b != NULL) {
        qn_jval v;
        qn_jiter *it = qn_jiter_of(c, qn_jeval(c, n->b));
        while (qn_jnext(c, it, &v)) {
            push_arg(c, out, &cap, v);
        }
    }
    out->kw = n->n_kw > 0 ? qn_jalloc(c, n->n_kw, sizeof *out->kw) : NULL;
    for (const qn_jnode *k = n->kw; k != NULL; k = k->next) {
        out->kw[out->n_kw++] = (qn_jkw){k->name, qn_jeval(c, k->a)};
    }
    if (n->c != NULL) {
        add_keywords(c, out, qn_jeval(c, n->c));
    }
}

static qn_jval eval_display(qn_jctx *c, const qn_jnode *n)
{
    if (n->kind == QN_N_DICT) {
        qn_jval d = qn_jdict_new(c);
        for (const qn_jnode *k = n->kids; k != NULL; k = k->next->next) {
            qn_jval key = qn_jeval(c, k);
            qn_jdict_set(c, d.d, key, qn_jeval(c, k->next));
        }
        return d;
    }
    qn_jval l = n->kind == QN_N_LIST ? qn_jlist_new(c, n->n_kids) : qn_jtuple_new(c, n->n_kids);
    for (const qn_jnode *k = n->kids; k != NULL; k = k->next) {
        qn_jlist_push(c, l.l, qn_jeval(c, k));
    }
    return l;
}

static qn_jval eval_compare(qn_jctx *c, const qn_jnode *n)
{
    qn_jval left = qn_jeval(c, n->a);
    for (const qn_jnode *o = n->kids; o != NULL; o = o->next) {
        qn_jval right = qn_jeval(c, o->a);
        c->line = n->line;
        if (!qn_jcompare(c, o->op, left, right)) {
            return qn_jbool(false);
        }
        left = right;
    }
    return qn_jbool(true);
}

static qn_jval eval_concat(qn_jctx *c, const qn_jnode *n)
{
    qn_jstr *s = qn_jto_str(c, qn_jeval(c, n->kids));
    for (const qn_jnode *k = n->kids->next; k != NULL; k = k->next) {
        s = qn_jstr_concat(c, s, qn_jto_str(c, qn_jeval(c, k))).s;
    }
    return (qn_jval){.kind = QN_J_STR, .s = s};
}

static qn_jval optional(qn_jctx *c, const qn_jnode *n)
{
    return n != NULL ? qn_jeval(c, n) : qn_jnone();
}

static qn_jval eval_item(qn_jctx *c, const qn_jnode *n)
{
    qn_jval obj = qn_jeval(c, n->a);
    if (n->b->kind == QN_N_SLICE) {
        qn_jval start = optional(c, n->b->a), stop = optional(c, n->b->b), step = optional(c, n->b->c);
        c->line = n->line;
        return qn_jslice(c, obj, start, stop, step);
    }
    qn_jval key = qn_jeval(c, n->b);
    c->line = n->line;
    return qn_jgetitem(c, obj, key);
}

static qn_jval eval_call(qn_jctx *c, const qn_jnode *n)
{
    qn_jargs args;
    qn_jval callee = qn_jeval(c, n->a);
    qn_jeval_args(c, n, &args);
    c->line = n->line;
    return qn_jcall(c, callee, &args);
}

qn_jval qn_jfilter_apply(qn_jctx *c, const qn_jnode *n, qn_jval value)
{
    qn_jargs args;
    if (n->a != NULL) {
        qn_jenter(c); /* a chain of filters is a nesting: x|a|b is b(a(x)) */
        value = n->a->kind == QN_N_FILTER ? qn_jfilter_apply(c, n->a, value) : qn_jeval(c, n->a);
        c->depth--;
    }
    c->line = n->line;
    if (n->func == NULL) {
        qn_jfail(c,
                 qn_jfilter_known(n->name->p, n->name->len) ? "the filter '%.*s' is not supported"
                                                            : "no filter named '%.*s'",
                 (int)n->name->len, n->name->p);
    }
    qn_jeval_args(c, n, &args);
    c->line = n->line;
    return qn_jinvoke(c, n->func, value, &args);
}

static qn_jval eval_test(qn_jctx *c, const qn_jnode *n)
{
    qn_jargs args;
    if (n->func == NULL) {
        qn_jfail(c, "no test named '%.*s'", (int)n->name->len, n->name->p);
    }
    qn_jval value = qn_jeval(c, n->a);
    qn_jeval_args(c, n, &args);
    c->line = n->line;
    return qn_jinvoke(c, n->func, value, &args);
}

static qn_jval eval_cond(qn_jctx *c, const qn_jnode *n)
{
    if (qn_jtrue(c, qn_jeval(c, n->b))) {
        return qn_jeval(c, n->a);
    }
    if (n->c != NULL) {
        return qn_jeval(c, n->c);
    }
    return qn_jundefined(c,
                         "the inline if-expression on line %d evaluated to false and no else section was "
                         "defined.",
                         n->line);
}

static qn_jval eval_operator(qn_jctx *c, const qn_jnode *n)
{
    qn_jval a = qn_jeval(c, n->a), b;
    switch (n->kind) {
    case QN_N_NOT:
        return qn_jbool(!qn_jtrue(c, a));
    case QN_N_OR:
        return qn_jtrue(c, a) ? a : qn_jeval(c, n->b);
    case QN_N_AND:
        return qn_jtrue(c, a) ? qn_jeval(c, n->b) : a;
    case QN_N_UNARY:
        c->line = n->line;
        return qn_junary(c, n->op, a);
    case QN_N_GETATTR:
        c->line = n->line;
        return qn_jgetattr(c, a, n->name);
    default:
        b = qn_jeval(c, n->b);
        c->line = n->line;
        return qn_jbinary(c, n->op, a, b);
    }
}

static qn_jval eval(qn_jctx *c, const qn_jnode *n)
{
    switch (n->kind) {
    case QN_N_CONST:
        return n->value;
    case QN_N_NAME:
        return lookup(c, n->name);
    case QN_N_TUPLE:
    case QN_N_LIST:
    case QN_N_DICT:
        return eval_display(c, n);
    case QN_N_COND:
        return eval_cond(c, n);
    case QN_N_COMPARE:
        return eval_compare(c, n);
    case QN_N_CONCAT:
        return eval_concat(c, n);
    case QN_N_GETITEM:
        return eval_item(c, n);
    case QN_N_CALL:
        return eval_call(c, n);
    case QN_N_FILTER:
        return qn_jfilter_apply(c, n, qn_jnone());
    case QN_N_TEST:
        return eval_test(c, n);
    case QN_N_SLICE: /* in a tuple of subscripts, which nothing here takes */
        qn_jfail(c, "a slice among several subscripts is not supported");
    default:
        return eval_operator(c, n);
    }
}

qn_jval qn_jeval(qn_jctx *c, const qn_jnode *n)
{
    c->line = n->line;
    qn_jtick(c, 1);
    qn_jenter(c);
    qn_jval v = eval(c, n);
    c->depth--;
    return v;
}
