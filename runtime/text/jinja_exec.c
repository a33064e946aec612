/* jinja_exec.c: statements, scopes and macros. */
#include "text/jinja_internal.h"

void qn_jscope_set(qn_jctx *c, qn_jscope *s, const qn_jstr *name, qn_jval v)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->var[i].name == name) {
            s->var[i].value = v;
            return;
        }
    }
    if (s->n == s->cap) {
        size_t cap = s->cap > 0 ? 2 * s->cap : 4;
        struct qn_jvar *var = qn_jalloc(c, cap, sizeof *var);
        if (s->n > 0) {
            memcpy(var, s->var, s->n * sizeof *var);
        }
        s->var = var;
        s->cap = cap;
    }
    s->var[s->n++] = (struct qn_jvar){name, v};
}

static qn_jscope *scope_new(qn_jctx *c, qn_jscope *parent)
{
    qn_jscope *s = qn_jalloc(c, 1, sizeof *s);
    s->parent = parent;
    return s;
}

static void unpack(qn_jctx *c, const qn_jnode *target, qn_jval v)
{
    qn_jiter *it = qn_jiter_try(c, v);
    qn_jval one;
    size_t got = 0;
    if (it == NULL) {
        qn_jfail(c, "cannot unpack non-iterable %s object", qn_jtype(v));
    }
    for (const qn_jnode *k = target->kids; k != NULL; k = k->next, got++) {
        if (!qn_jnext(c, it, &one)) {
            qn_jfail(c, "not enough values to unpack (expected %zu, got %zu)", target->n_kids, got);
        }
        qn_jassign(c, k, one);
    }
    if (qn_jnext(c, it, &one)) {
        qn_jfail(c, "too many values to unpack (expected %zu)", target->n_kids);
    }
}

void qn_jassign(qn_jctx *c, const qn_jnode *target, qn_jval v)
{
    if (target->kind == QN_N_TUPLE) {
        unpack(c, target, v);
    } else if (target->kind == QN_N_NAME) {
        qn_jscope_set(c, c->scope, target->name, v);
    } else {
        const qn_jnode name = {.kind = QN_N_NAME, .line = target->line, .name = target->name};
        qn_jval ns = qn_jeval(c, &name);
        if (ns.kind != QN_J_NAMESPACE) {
            qn_jfail(c, "cannot assign attribute on non-namespace object");
        }
        qn_jdict_set(c, ns.d, target->value, v);
    }
}

/* Runs a body in a scope of its own. */
static qn_jflow exec_inner(qn_jctx *c, const qn_jnode *body)
{
    qn_jscope *outer = c->scope;
    c->scope = scope_new(c, outer);
    qn_jflow flow = qn_jexec(c, body);
    c->scope = outer;
    return flow;
}

/* The same with its output caught. */
static qn_jflow capture(qn_jctx *c, const qn_jnode *body, qn_jval *text)
{
    qn_jbuf *out = c->out;
    c->out = qn_jbuf_new(c, 0);
    qn_jflow flow = exec_inner(c, body);
    *text = qn_jbuf_value(c, c->out);
    c->out = out;
    return flow;
}

static void output(qn_jctx *c, qn_jval v)
{
    qn_jput_str(c, c->out, v);
    if (c->out->len > c->limits.output) {
        qn_jfail(c, "the template writes more than %zu bytes", c->limits.output);
    }
}

/* --- macros --- */

static qn_jval macro_value(qn_jctx *c, const qn_jnode *n)
{
    qn_jmacro *m = qn_jalloc(c, 1, sizeof *m);
    m->node = n;
    m->scope = c->scope;
    for (qn_jscope *s = c->scope; s != NULL && !s->captured; s = s->parent) {
        s->captured = true;
    }
    return (qn_jval){.kind = QN_J_MACRO, .macro = m};
}

static const char *macro_name(qn_jctx *c, const qn_jmacro *m)
{
    const qn_jstr *name = m->node->name;
    return name != NULL ? qn_jsprintf(c, "'%.*s'", (int)name->len, name->p) : "None";
}

/* The keyword argument called `name`, which is marked as taken; MISSING: none. */
static qn_jval take_kw(const qn_jargs *args, bool *taken, const qn_jstr *name)
{
    for (size_t i = 0; i < args->n_kw; i++) {
        if (!taken[i] && qn_jstr_eq(args->kw[i].name, name)) {
            taken[i] = true;
            return args->kw[i].value;
        }
    }
    return (qn_jval){.kind = QN_J_MISSING};
}

/* All names are the macro's own from the start: a default that reads one which is not there yet gets an
 * undefined value, not what is outside. */
static void bind_params(qn_jctx *c, const qn_jmacro *m, const qn_jargs *args, bool *taken, bool special[3])
{
    const qn_jstr *const names[3] = {c->varargs_name, c->kwargs_name, c->caller_name};
    qn_jval *given = qn_jalloc(c, m->node->n_kids, sizeof *given);
    size_t i = 0;
    for (const qn_jnode *p = m->node->kids; p != NULL; p = p->next, i++) {
        given[i] = i < args->n ? args->pos[i] : take_kw(args, taken, p->name);
        for (int k = 0; k < 3; k++) {
            special[k] &= p->name != names[k];
        }
        qn_jval v = qn_jgiven(given[i])
                        ? given[i]
                        : qn_jundefined(c, "'%.*s' is undefined", (int)p->name->len, p->name->p);
        qn_jscope_set(c, c->scope, p->name, v);
    }
    i = 0;
    for (const qn_jnode *p = m->node->kids; p != NULL; p = p->next, i++) {
        if (!qn_jgiven(given[i])) {
            qn_jval v = p->a != NULL ? qn_jeval(c, p->a)
                                     : qn_jundefined(c, "parameter '%.*s' was not provided",
                                                     (int)p->name->len, p->name->p);
            qn_jscope_set(c, c->scope, p->name, v);
        }
    }
}

static void bind_rest(qn_jctx *c, const qn_jmacro *m, const qn_jargs *args, bool *taken,
                      const bool special[3])
{
    size_t n_params = m->node->n_kids;
    if (special[2]) {
        qn_jval caller = take_kw(args, taken, c->caller_name);
        if (!qn_jset(caller)) {
            caller = qn_jundefined(c, "No caller defined");
        }
        qn_jscope_set(c, c->scope, c->caller_name, caller);
    }
    qn_jval rest = qn_jdict_new(c);
    for (size_t i = 0; i < args->n_kw; i++) {
        const qn_jstr *name = args->kw[i].name;
        if (taken[i]) {
            continue;
        }
        if (!special[1]) {
            qn_jfail(c,
                     qn_jstr_eq(name, c->caller_name)
                         ? "macro %s was invoked with two values for the special %.*s argument"
                         : "macro %s takes no keyword argument '%.*s'",
                     macro_name(c, m), (int)name->len, name->p);
        }
        qn_jdict_set(c, rest.d, (qn_jval){.kind = QN_J_STR, .s = (qn_jstr *)name}, args->kw[i].value);
    }
    if (special[1]) {
        qn_jscope_set(c, c->scope, c->kwargs_name, rest);
    }
    if (special[0]) {
        qn_jval more = qn_jtuple_new(c, 0);
        for (size_t i = n_params; i < args->n; i++) {
            qn_jlist_push(c, more.l, args->pos[i]);
        }
        qn_jscope_set(c, c->scope, c->varargs_name, more);
    } else if (args->n > n_params) {
        qn_jfail(c, "macro %s takes not more than %zu argument(s)", macro_name(c, m), n_params);
    }
}

qn_jval qn_jmacro_call(qn_jctx *c, const qn_jmacro *m, const qn_jargs *args)
{
    qn_jscope *outer = c->scope;
    qn_jbuf *out = c->out;
    bool *taken = qn_jalloc(c, args->n_kw, sizeof *taken);
    bool special[3] = {m->node->uses[0], m->node->uses[1], m->node->uses[2]};
    c->scope = scope_new(c, m->scope);
    bind_params(c, m, args, taken, special);
    bind_rest(c, m, args, taken, special);
    c->out = qn_jbuf_new(c, 0);
    (void)qn_jexec(c, m->node->body);
    qn_jval text = qn_jbuf_value(c, c->out);
    c->out = out;
    c->scope = outer;
    return text;
}

static void call_block(qn_jctx *c, const qn_jnode *n)
{
    qn_jargs args;
    qn_jval callee = qn_jeval(c, n->a->a);
    qn_jeval_args(c, n->a, &args);
    qn_jkw *kw = qn_jalloc(c, args.n_kw + 1, sizeof *kw);
    if (args.n_kw > 0) {
        memcpy(kw, args.kw, args.n_kw * sizeof *kw);
    }
    kw[args.n_kw++] = (qn_jkw){c->caller_name, macro_value(c, n)};
    args.kw = kw;
    c->line = n->line;
    output(c, qn_jcall(c, callee, &args));
}

/* --- the rest --- */

static qn_jflow exec_if(qn_jctx *c, const qn_jnode *n)
{
    for (; n != NULL; n = n->c) {
        if (n->a == NULL || qn_jtrue(c, qn_jeval(c, n->a))) {
            return qn_jexec(c, n->body);
        }
    }
    return QN_FLOW_ON;
}

static qn_jflow exec_with(qn_jctx *c, const qn_jnode *n)
{
    qn_jscope *outer = c->scope, *inner = scope_new(c, outer);
    for (const qn_jnode *k = n->kids; k != NULL; k = k->next) {
        qn_jval v = qn_jeval(c, k->a); /* all values are of the scope outside */
        c->scope = inner;
        qn_jassign(c, k->b, v);
        c->scope = outer;
    }
    c->scope = inner;
    qn_jflow flow = qn_jexec(c, n->body);
    c->scope = outer;
    return flow;
}

static qn_jflow exec_captured(qn_jctx *c, const qn_jnode *n)
{
    qn_jval text;
    qn_jflow flow = capture(c, n->body, &text);
    if (flow != QN_FLOW_ON) {
        return flow;
    }
    text = n->b != NULL ? qn_jfilter_apply(c, n->b, text) : text;
    if (n->kind == QN_N_SETBLOCK) {
        qn_jassign(c, n->a, text);
    } else {
        output(c, text);
    }
    return QN_FLOW_ON;
}

static qn_jflow exec(qn_jctx *c, const qn_jnode *n)
{
    switch (n->kind) {
    case QN_N_OUTPUT:
        for (const qn_jnode *k = n->kids; k != NULL; k = k->next) {
            output(c, k->kind == QN_N_CONST ? k->value : qn_jeval(c, k));
        }
        return QN_FLOW_ON;
    case QN_N_IF:
        return exec_if(c, n);
    case QN_N_FOR:
        return qn_jexec_for(c, n);
    case QN_N_SET:
        qn_jassign(c, n->a, qn_jeval(c, n->b));
        return QN_FLOW_ON;
    case QN_N_SETBLOCK:
    case QN_N_FILTERBLOCK:
        return exec_captured(c, n);
    case QN_N_MACRO:
        qn_jscope_set(c, c->scope, n->name, macro_value(c, n));
        return QN_FLOW_ON;
    case QN_N_CALLBLOCK:
        call_block(c, n);
        return QN_FLOW_ON;
    case QN_N_WITH:
        return exec_with(c, n);
    case QN_N_SCOPE:
        return exec_inner(c, n->body);
    default:
        return n->kind == QN_N_BREAK ? QN_FLOW_BREAK : QN_FLOW_CONTINUE;
    }
}

qn_jflow qn_jexec(qn_jctx *c, const qn_jnode *list)
{
    qn_jflow flow = QN_FLOW_ON;
    qn_jenter(c);
    for (; list != NULL && flow == QN_FLOW_ON; list = list->next) {
        c->line = list->line;
        qn_jtick(c, 1);
        flow = exec(c, list);
    }
    c->depth--;
    return flow;
}
