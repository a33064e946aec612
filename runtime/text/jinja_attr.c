/* jinja_attr.c: attributes, items and slices, as the sandbox looks them up. */
#include "text/jinja_internal.h"

/* How Jinja calls an object in messages: "dict object". */
static const char *object(qn_jctx *c, qn_jval v)
{
    if (v.kind == QN_J_NONE) {
        return "None";
    }
    const char *module = v.kind == QN_J_NAMESPACE                         ? "jinja2.utils."
                         : v.kind == QN_J_MACRO || v.kind == QN_J_LOOP    ? "jinja2.runtime."
                         : v.kind == QN_J_CYCLER || v.kind == QN_J_JOINER ? "jinja2.utils."
                         : v.kind == QN_J_STR && v.s->markup              ? "markupsafe."
                                                                          : "";
    return qn_jsprintf(c, "%s%s object", module, qn_jtype(v));
}

static qn_jval no_attribute(qn_jctx *c, qn_jval obj, const qn_jstr *name)
{
    return qn_jundefined(c, "'%s' has no attribute '%.*s'", object(c, obj), (int)name->len, name->p);
}

static qn_jval unsafe(qn_jctx *c, qn_jval obj, const qn_jstr *name)
{
    return qn_jundefined(c, "access to attribute '%.*s' of '%s' object is unsafe.", (int)name->len, name->p,
                         qn_jtype(obj));
}

/* Methods that change a list or dict: there, but not for templates. */
static bool mutates(qn_jval obj, const qn_jstr *name)
{
    static const char *const of_list[] = {"append", "reverse", "insert", "sort", "extend", "remove", NULL};
    static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    const char *const *m = obj.kind == QN_J_LIST ? of_list : obj.kind == QN_J_DICT ? of_dict : NULL;
    for (; m != NULL && *m != NULL; m++) {
        if (qn_jstr_is(name, *m)) {
            return true;
        }
    }
    return false;
}

static bool underscored(const qn_jstr *name, size_t n)
{
    return name->len >= n && memcmp(name->p, "__", n) == 0;
}

/* Python's getattr with the sandbox's rules; false: no such attribute. */
static bool attribute(qn_jctx *c, qn_jval obj, const qn_jstr *name, qn_jval *out)
{
    if (obj.kind == QN_J_UNDEFINED) {
        qn_jfail_undefined(c, obj);
    }
    if (obj.kind == QN_J_NAMESPACE) {
        const qn_jval *v = qn_jdict_find_str(c, obj.d, name);
        if (v != NULL) {
            *out = underscored(name, 1) ? unsafe(c, obj, name) : *v;
            return true;
        }
    }
    if (underscored(name, 2) && name->len > 4) { /* every object has __class__ and the like */
        bool dunder = name->p[name->len - 1] == '_' && name->p[name->len - 2] == '_';
        if (dunder) {
            *out = unsafe(c, obj, name);
            return true;
        }
    }
    if (mutates(obj, name)) {
        *out = unsafe(c, obj, name);
        return true;
    }
    return qn_jattribute(c, obj, name, out);
}

/* Python's obj[key]; false: IndexError, KeyError or TypeError. */
static bool item(qn_jctx *c, qn_jval obj, qn_jval key, qn_jval *out)
{
    if (obj.kind == QN_J_UNDEFINED) {
        qn_jfail_undefined(c, obj);
    }
    if (obj.kind == QN_J_DICT) {
        const qn_jval *v = qn_jhashable(c, key) ? qn_jdict_get(c, obj.d, key) : NULL;
        if (v != NULL) {
            *out = *v;
        }
        return v != NULL;
    }
    bool sequence =
        obj.kind == QN_J_LIST || obj.kind == QN_J_TUPLE || obj.kind == QN_J_STR || obj.kind == QN_J_RANGE;
    if (!sequence || !qn_jis_int(key)) {
        return false;
    }
    int64_t n = qn_jlen(obj), i = key.kind == QN_J_BOOL ? key.b : key.i;
    i += i < 0 ? n : 0;
    if (i < 0 || i >= n) {
        return false;
    }
    if (obj.kind == QN_J_STR) {
        size_t at = qn_jstr_at(obj.s, (size_t)i);
        qn_jtick(c, at / 16);
        *out = qn_jstr_part(c, obj.s, at, qn_jchar_len(obj.s->p + at, obj.s->len - at));
    } else if (obj.kind == QN_J_RANGE) {
        *out = qn_jint(obj.range->start + i * obj.range->step);
    } else {
        *out = obj.l->item[i];
    }
    return true;
}

qn_jval qn_jgetattr(qn_jctx *c, qn_jval obj, const qn_jstr *name)
{
    qn_jval out;
    qn_jval key = {.kind = QN_J_STR, .s = (qn_jstr *)name};
    if (attribute(c, obj, name, &out) || item(c, obj, key, &out)) {
        return out;
    }
    return no_attribute(c, obj, name);
}

qn_jval qn_jgetattr_only(qn_jctx *c, qn_jval obj, const qn_jstr *name)
{
    qn_jval out;
    return attribute(c, obj, name, &out) ? out : no_attribute(c, obj, name);
}

qn_jval qn_jgetitem(qn_jctx *c, qn_jval obj, qn_jval key)
{
    qn_jval out;
    if (item(c, obj, key, &out) || (key.kind == QN_J_STR && attribute(c, obj, key.s, &out))) {
        return out;
    }
    if (key.kind == QN_J_STR) {
        return no_attribute(c, obj, key.s);
    }
    return qn_jundefined(c, "%s has no element %s", object(c, obj), qn_jrepr_c(c, key));
}

/* --- slices --- */

static int64_t bound(qn_jctx *c, qn_jval v, int64_t n, int64_t low, int64_t high, int64_t otherwise)
{
    if (v.kind == QN_J_NONE || v.kind == QN_J_MISSING) {
        return otherwise;
    }
    if (v.kind == QN_J_UNDEFINED || !qn_jis_int(v)) {
        qn_jfail(c, "slice indices must be integers or None or have an __index__ method");
    }
    int64_t i = v.kind == QN_J_BOOL ? v.b : v.i;
    i += i < 0 ? n : 0;
    return i < low ? low : i > high ? high : i;
}

size_t qn_jslice_bounds(qn_jctx *c, size_t n_items, qn_jval start, qn_jval stop, qn_jval step, int64_t *first,
                        int64_t *by)
{
    int64_t n = (int64_t)n_items;
    int64_t k = bound(c, step, 0, -INT64_MAX, INT64_MAX, 1);
    if (k == 0) {
        qn_jfail(c, "slice step cannot be zero");
    }
    int64_t low = k > 0 ? 0 : -1, high = k > 0 ? n : n - 1;
    int64_t from = bound(c, start, n, low, high, k > 0 ? 0 : n - 1);
    int64_t to = bound(c, stop, n, low, high, k > 0 ? n : -1);
    *first = from;
    *by = k;
    if (k > 0) {
        return from < to ? (size_t)((uint64_t)(to - from - 1) / (uint64_t)k + 1) : 0;
    }
    return from > to ? (size_t)((uint64_t)(from - to - 1) / (uint64_t)-k + 1) : 0;
}

static qn_jval slice_str(qn_jctx *c, qn_jstr *s, int64_t first, int64_t by, size_t n)
{
    size_t chars = qn_jstr_chars(s);
    qn_jtick(c, s->len / 16);
    if (by == 1 || n == 0) {
        size_t from = n > 0 ? qn_jstr_at(s, (size_t)first) : 0;
        size_t to = n > 0 ? qn_jstr_at(s, (size_t)first + n) : 0;
        return qn_jstr_part(c, s, from, to - from);
    }
    size_t *at = NULL; /* where each character begins */
    if (chars != s->len) {
        at = qn_jalloc(c, chars + 1, sizeof *at);
        for (size_t i = 0, k = 0; i < chars; i++) {
            at[i] = k;
            k += qn_jchar_len(s->p + k, s->len - k);
        }
        at[chars] = s->len;
    }
    qn_jbuf *b = qn_jbuf_new(c, n);
    for (size_t i = 0; i < n; i++) {
        size_t k = (size_t)(first + (int64_t)i * by);
        size_t from = at != NULL ? at[k] : k, to = at != NULL ? at[k + 1] : k + 1;
        qn_jbuf_part(c, b, s, from, to - from);
        qn_jtick(c, 1);
    }
    return qn_jstr_mark(c, qn_jbuf_value(c, b).s, s->markup);
}

qn_jval qn_jslice(qn_jctx *c, qn_jval obj, qn_jval start, qn_jval stop, qn_jval step)
{
    int64_t first, by;
    size_t n;
    qn_jval out;
    switch (obj.kind) {
    case QN_J_STR:
        n = qn_jslice_bounds(c, qn_jstr_chars(obj.s), start, stop, step, &first, &by);
        return slice_str(c, obj.s, first, by, n);
    case QN_J_LIST:
    case QN_J_TUPLE:
        n = qn_jslice_bounds(c, obj.l->n, start, stop, step, &first, &by);
        out = obj.kind == QN_J_LIST ? qn_jlist_new(c, n) : qn_jtuple_new(c, n);
        qn_jtick(c, n);
        for (size_t i = 0; i < n; i++) {
            qn_jlist_push(c, out.l, obj.l->item[first + (int64_t)i * by]);
        }
        return out;
    case QN_J_RANGE:
        n = qn_jslice_bounds(c, obj.range->n, start, stop, step, &first, &by);
        out = (qn_jval){.kind = QN_J_RANGE, .range = qn_jalloc(c, 1, sizeof *out.range)};
        out.range->n = n;
        out.range->start = n > 0 ? obj.range->start + first * obj.range->step : 0;
        out.range->step = n > 1 ? obj.range->step * by : 1;
        out.range->stop = n > 0 ? out.range->start + (int64_t)(n - 1) * out.range->step + 1 : 0;
        return out;
    case QN_J_UNDEFINED:
        qn_jfail_undefined(c, obj);
    case QN_J_DICT:
        qn_jfail(c, "unhashable type: 'slice'");
    default:
        qn_jfail(c, "'%s' object is not subscriptable", qn_jtype(obj));
    }
}
