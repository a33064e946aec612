/* jinja_iter.c: walking over values. */
#include "text/jinja_internal.h"

static bool next_item(qn_jctx *c, qn_jiter *it, qn_jval *out)
{
    (void)c;
    const qn_jlist *l = it->source.l; /* a list may have become shorter */
    if (it->at >= l->n) {
        return false;
    }
    *out = l->item[it->at++];
    return true;
}

static bool next_item_back(qn_jctx *c, qn_jiter *it, qn_jval *out)
{
    (void)c;
    if (it->at == 0 || it->at > it->source.l->n) {
        it->at = 0;
        return false;
    }
    *out = it->source.l->item[--it->at];
    return true;
}

static bool next_char(qn_jctx *c, qn_jiter *it, qn_jval *out)
{
    const qn_jstr *s = it->source.s;
    if (it->at >= s->len) {
        return false;
    }
    size_t n = qn_jchar_len(s->p + it->at, s->len - it->at);
    *out = qn_jstr_part(c, s, it->at, n);
    out->s->markup = false;
    it->at += n;
    return true;
}

static qn_jval entry(qn_jctx *c, const qn_jentry *e, qn_jviewkind what)
{
    return what == QN_J_KEYS ? e->key : what == QN_J_VALUES ? e->value : qn_jtuple2(c, e->key, e->value);
}

static bool next_key(qn_jctx *c, qn_jiter *it, qn_jval *out)
{
    (void)c;
    if (it->at >= it->source.d->n) {
        return false;
    }
    *out = it->source.d->entry[it->at++].key;
    return true;
}

static bool next_view(qn_jctx *c, qn_jiter *it, qn_jval *out)
{
    const qn_jview *v = it->source.view;
    if (it->at >= v->dict->n) {
        return false;
    }
    *out = entry(c, &v->dict->entry[it->at++], v->what);
    return true;
}

static bool next_view_back(qn_jctx *c, qn_jiter *it, qn_jval *out)
{
    const qn_jview *v = it->source.view;
    if (it->at == 0) {
        return false;
    }
    *out = entry(c, &v->dict->entry[--it->at], v->what);
    return true;
}

static bool next_number(qn_jctx *c, qn_jiter *it, qn_jval *out)
{
    (void)c;
    const qn_jrange *r = it->source.range;
    if (it->at >= r->n) {
        return false;
    }
    *out = qn_jint(r->start + (int64_t)it->at++ * r->step);
    return true;
}

static bool next_number_back(qn_jctx *c, qn_jiter *it, qn_jval *out)
{
    (void)c;
    const qn_jrange *r = it->source.range;
    if (it->at == 0) {
        return false;
    }
    *out = qn_jint(r->start + (int64_t)--it->at * r->step);
    return true;
}

static bool next_none(qn_jctx *c, qn_jiter *it, qn_jval *out)
{
    (void)c;
    (void)it;
    (void)out;
    return false;
}

static qn_jiter *iter_new(qn_jctx *c, bool (*next)(qn_jctx *, qn_jiter *, qn_jval *), qn_jval source,
                          const char *type)
{
    qn_jiter *it = qn_jalloc(c, 1, sizeof *it);
    it->next = next;
    it->source = source;
    it->type = type;
    return it;
}

qn_jiter *qn_jiter_try(qn_jctx *c, qn_jval v)
{
    switch (v.kind) {
    case QN_J_LIST:
        return iter_new(c, next_item, v, "list_iterator");
    case QN_J_TUPLE:
        return iter_new(c, next_item, v, "tuple_iterator");
    case QN_J_STR:
        return iter_new(c, next_char, v, "str_iterator");
    case QN_J_DICT:
        return iter_new(c, next_key, v, "dict_keyiterator");
    case QN_J_VIEW:
        return iter_new(c, next_view, v, "dict_iterator");
    case QN_J_RANGE:
        return iter_new(c, next_number, v, "range_iterator");
    case QN_J_UNDEFINED:
        return iter_new(c, next_none, v, "generator");
    case QN_J_ITER:
        return v.it;
    default:
        return NULL;
    }
}

qn_jiter *qn_jiter_of(qn_jctx *c, qn_jval v)
{
    qn_jiter *it = qn_jiter_try(c, v);
    if (it == NULL) {
        qn_jfail(c, "'%s' object is not iterable", qn_jtype(v));
    }
    return it;
}

bool qn_jnext(qn_jctx *c, qn_jiter *it, qn_jval *out)
{
    qn_jtick(c, 1);
    qn_jenter(c); /* generators stand on generators */
    bool more = it->next(c, it, out);
    c->depth--;
    return more;
}

qn_jval qn_jgenerator(qn_jctx *c, bool (*next)(qn_jctx *, qn_jiter *, qn_jval *), qn_jval source, void *state)
{
    qn_jiter *it = iter_new(c, next, source, "generator");
    it->state = state;
    return (qn_jval){.kind = QN_J_ITER, .it = it};
}

qn_jval qn_jto_list(qn_jctx *c, qn_jval v)
{
    qn_jiter *it = qn_jiter_of(c, v);
    int64_t n = v.kind == QN_J_STR ? 0 : qn_jlen(v);
    qn_jval out = qn_jlist_new(c, n > 0 ? (size_t)n : 0), one;
    while (qn_jnext(c, it, &one)) {
        qn_jlist_push(c, out.l, one);
    }
    return out;
}

bool qn_jcan_reverse(qn_jval v)
{
    return v.kind == QN_J_LIST || v.kind == QN_J_TUPLE || v.kind == QN_J_STR || v.kind == QN_J_DICT ||
           v.kind == QN_J_VIEW || v.kind == QN_J_RANGE;
}

qn_jval qn_jreversed(qn_jctx *c, qn_jval v)
{
    qn_jiter *it;
    switch (v.kind) {
    case QN_J_LIST:
    case QN_J_TUPLE:
        it = iter_new(c, next_item_back, v, v.kind == QN_J_LIST ? "list_reverseiterator" : "reversed");
        it->at = v.l->n;
        break;
    case QN_J_STR:
        v = qn_jto_list(c, v);
        it = iter_new(c, next_item_back, v, "reversed");
        it->at = v.l->n;
        break;
    case QN_J_DICT:
    case QN_J_VIEW:
        if (v.kind == QN_J_DICT) {
            qn_jview *view = qn_jalloc(c, 1, sizeof *view);
            view->dict = v.d;
            view->what = QN_J_KEYS;
            v = (qn_jval){.kind = QN_J_VIEW, .view = view};
        }
        it = iter_new(c, next_view_back, v, "dict_reversekeyiterator");
        it->at = v.view->dict->n;
        break;
    case QN_J_RANGE:
        it = iter_new(c, next_number_back, v, "range_iterator");
        it->at = v.range->n;
        break;
    default:
        qn_jfail(c, "'%s' object is not reversible", qn_jtype(v));
    }
    return (qn_jval){.kind = QN_J_ITER, .it = it};
}
