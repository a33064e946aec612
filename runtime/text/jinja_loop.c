/* jinja_loop.c: for, and the loop variable. */
#include "text/jinja_internal.h"

typedef struct qn_jloop {
    const qn_jnode *node;
    qn_jscope *outer;
    qn_jval source;
    qn_jiter *it;
    int64_t index0, length; /* length -1: not known yet */
    int depth0;
    bool has_after;
    qn_jval after, current, before; /* MISSING: none */
    qn_jval changed;                /* what changed() saw last: a tuple or MISSING */
} qn_jloop;

/* A for's own condition, asked before its body sees an item. */
typedef struct filter {
    const qn_jnode *node;
    qn_jscope *outer;
} filter;

static bool next_passing(qn_jctx *c, qn_jiter *it, qn_jval *out)
{
    const filter *f = it->state;
    qn_jscope *scope = c->scope;
    while (qn_jnext(c, it->inner, out)) {
        qn_jscope own = {.parent = f->outer};
        qn_jscope *kept = qn_jalloc(c, 1, sizeof *kept);
        *kept = own;
        c->scope = kept;
        qn_jassign(c, f->node->a, *out);
        bool pass = qn_jtrue(c, qn_jeval(c, f->node->c));
        c->scope = scope;
        if (pass) {
            return true;
        }
    }
    return false;
}

static qn_jval filtered(qn_jctx *c, const qn_jnode *n, qn_jval items)
{
    filter *f = qn_jalloc(c, 1, sizeof *f);
    f->node = n;
    f->outer = c->scope;
    qn_jval v = qn_jgenerator(c, next_passing, items, f);
    v.it->inner = qn_jiter_of(c, items);
    return v;
}

static bool loop_next(qn_jctx *c, qn_jloop *l)
{
    qn_jval v;
    if (l->has_after) {
        v = l->after;
        l->has_after = false;
    } else if (!qn_jnext(c, l->it, &v)) {
        return false;
    }
    l->index0++;
    l->before = l->current;
    l->current = v;
    return true;
}

static bool peek(qn_jctx *c, qn_jloop *l)
{
    if (!l->has_after) {
        l->has_after = qn_jnext(c, l->it, &l->after);
    }
    return l->has_after;
}

int64_t qn_jloop_index0(const qn_jloop *l)
{
    return l->index0;
}

int64_t qn_jloop_length(qn_jctx *c, qn_jloop *l)
{
    if (l->length < 0) {
        l->length = l->source.kind == QN_J_ITER ? -1 : qn_jlen(l->source);
    }
    if (l->length < 0) { /* a generator: walked to its end now */
        qn_jval rest = qn_jto_list(c, (qn_jval){.kind = QN_J_ITER, .it = l->it});
        l->it = qn_jiter_of(c, rest);
        l->length = (int64_t)rest.l->n + l->index0 + 1 + l->has_after;
    }
    return l->length;
}

/* Whether a turn ended by itself. As in Jinja, `else` also follows a loop of which every turn was cut short.
 */
static bool body(qn_jctx *c, qn_jloop *l)
{
    bool ran = false;
    const qn_jnode *n = l->node;
    qn_jscope *scope = NULL;
    qn_jflow flow = QN_FLOW_ON;
    while (flow != QN_FLOW_BREAK && loop_next(c, l)) {
        if (scope == NULL || scope->captured) {
            scope = qn_jalloc(c, 1, sizeof *scope);
            scope->parent = l->outer;
        }
        scope->n = 0;
        c->scope = scope;
        qn_jscope_set(c, scope, c->loop_name, (qn_jval){.kind = QN_J_LOOP, .loop = l});
        c->line = n->line;
        qn_jassign(c, n->a, l->current);
        flow = qn_jexec(c, n->body);
        ran |= flow == QN_FLOW_ON;
    }
    return ran;
}

static qn_jflow run(qn_jctx *c, const qn_jnode *n, qn_jscope *outer, qn_jval items, int depth0)
{
    qn_jscope *scope = c->scope;
    qn_jloop *l = qn_jalloc(c, 1, sizeof *l);
    c->scope = outer;
    items = n->c != NULL ? filtered(c, n, items) : items;
    *l = (qn_jloop){.node = n, .outer = outer, .source = items, .index0 = -1, .length = -1, .depth0 = depth0};
    l->it = qn_jiter_of(c, items);
    qn_jflow flow = QN_FLOW_ON;
    if (!body(c, l) && n->orelse != NULL) {
        c->scope = qn_jalloc(c, 1, sizeof *c->scope);
        c->scope->parent = outer;
        flow = qn_jexec(c, n->orelse);
    }
    c->scope = scope;
    return flow;
}

qn_jflow qn_jexec_for(qn_jctx *c, const qn_jnode *n)
{
    qn_jval items = qn_jeval(c, n->b);
    c->line = n->line;
    return run(c, n, c->scope, items, 0);
}

qn_jval qn_jloop_call(qn_jctx *c, qn_jloop *l, qn_jval items)
{
    if (!l->node->flag) {
        qn_jfail(c, "The loop must have the 'recursive' marker to be called recursively.");
    }
    qn_jbuf *out = c->out;
    c->out = qn_jbuf_new(c, 0);
    qn_jenter(c);
    (void)run(c, l->node, l->outer, items, l->depth0 + 1);
    c->depth--;
    qn_jval text = qn_jbuf_value(c, c->out);
    c->out = out;
    return text;
}

/* --- attributes --- */

static qn_jval cycle(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    if (a->call->n == 0) {
        qn_jfail(c, "no items for cycling given");
    }
    return a->call->pos[self.loop->index0 % (int64_t)a->call->n];
}

static qn_jval changed(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    qn_jval now = qn_jtuple_new(c, a->call->n);
    for (size_t i = 0; i < a->call->n; i++) {
        qn_jlist_push(c, now.l, a->call->pos[i]);
    }
    bool differs = !qn_jgiven(self.loop->changed) || !qn_jequal(c, self.loop->changed, now);
    self.loop->changed = now;
    return qn_jbool(differs);
}

static const qn_jfunc loop_methods[] = {{"cycle", "*", cycle}, {"changed", "*", changed}, {0}};

qn_jval qn_jloop_attr(qn_jctx *c, qn_jloop *l, const qn_jstr *name, bool *found)
{
    static const char *const names[] = {"index",  "index0", "revindex", "revindex0", "first",    "last",
                                        "length", "depth",  "depth0",   "previtem",  "nextitem", NULL};
    int i = 0;
    *found = true;
    while (names[i] != NULL && !qn_jstr_is(name, names[i])) {
        i++;
    }
    switch (i) {
    case 0:
        return qn_jint(l->index0 + 1);
    case 1:
        return qn_jint(l->index0);
    case 2:
        return qn_jint(qn_jloop_length(c, l) - l->index0);
    case 3:
        return qn_jint(qn_jloop_length(c, l) - l->index0 - 1);
    case 4:
        return qn_jbool(l->index0 == 0);
    case 5:
        return qn_jbool(!peek(c, l));
    case 6:
        return qn_jint(qn_jloop_length(c, l));
    case 7:
    case 8:
        return qn_jint(l->depth0 + (i == 7));
    case 9:
        return l->index0 == 0 ? qn_jundefined(c, "there is no previous item") : l->before;
    case 10:
        return peek(c, l) ? l->after : qn_jundefined(c, "there is no next item");
    default:
        break;
    }
    const qn_jfunc *f = qn_jfunc_find(loop_methods, name->p, name->len);
    *found = f != NULL;
    if (f == NULL) {
        return qn_jnone();
    }
    qn_jmethod *m = qn_jalloc(c, 1, sizeof *m);
    m->self = (qn_jval){.kind = QN_J_LOOP, .loop = l};
    m->func = f;
    return (qn_jval){.kind = QN_J_METHOD, .method = m};
}
