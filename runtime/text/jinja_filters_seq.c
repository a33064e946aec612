/* jinja_filters_seq.c: filters on numbers, sequences and mappings that give a value at once. */
#include "text/jinja_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bool flag(qn_jctx *c, qn_jval v)
{
    return qn_jgiven(v) && qn_jtrue(c, v);
}

qn_jval qn_jignore_case(qn_jctx *c, qn_jval v)
{
    return v.kind == QN_J_STR ? qn_jlower(c, v.s) : v;
}

/* --- attribute paths and sorting --- */

static bool all_digits(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9') {
            return false;
        }
    }
    return n > 0;
}

static qn_jval step(qn_jctx *c, qn_jval v, qn_jval part, qn_jval fallback)
{
    v = qn_jgetitem(c, v, part);
    return v.kind == QN_J_UNDEFINED && qn_jset(fallback) ? fallback : v;
}

qn_jval qn_jattr_path(qn_jctx *c, qn_jval v, qn_jval path, qn_jval fallback)
{
    if (!qn_jset(path)) {
        return v;
    }
    if (path.kind != QN_J_STR) {
        return step(c, v, path, fallback);
    }
    const qn_jstr *s = path.s;
    for (size_t i = 0; i <= s->len;) {
        const char *dot = i < s->len ? memchr(s->p + i, '.', s->len - i) : NULL;
        size_t end = dot != NULL ? (size_t)(dot - s->p) : s->len;
        qn_jval part = qn_jstr_part(c, s, i, end - i);
        int64_t index;
        if (all_digits(part.s->p, part.s->len) && qn_jparse_int(c, part.s, 10, &index)) {
            part = qn_jint(index);
        }
        v = step(c, v, part, fallback);
        i = end + 1;
    }
    return v;
}

/* The attributes that a comma-separated list names. */
static qn_jval multi_attr(qn_jctx *c, qn_jval v, qn_jval paths, bool fold)
{
    qn_jval out = qn_jlist_new(c, 1);
    const qn_jstr *s = qn_jgiven(paths) && paths.kind == QN_J_STR ? paths.s : NULL;
    for (size_t i = 0; s == NULL ? i == 0 : i <= s->len;) {
        const char *comma = s != NULL && i < s->len ? memchr(s->p + i, ',', s->len - i) : NULL;
        size_t end = comma != NULL ? (size_t)(comma - s->p) : s != NULL ? s->len : 0;
        qn_jval path = s != NULL ? qn_jstr_part(c, s, i, end - i) : paths;
        qn_jval one = qn_jattr_path(c, v, path, qn_jnone());
        qn_jlist_push(c, out.l, fold ? qn_jignore_case(c, one) : one);
        i = end + 1;
    }
    return out;
}

static void merge(qn_jctx *c, qn_jval *keys, qn_jval *items, qn_jval *spare, size_t n, bool reverse)
{
    size_t half = n / 2, i = 0, k = half, o = 0;
    if (n < 2) {
        return;
    }
    qn_jenter(c);
    merge(c, keys, items, spare, half, reverse);
    merge(c, keys + half, items + half, spare, n - half, reverse);
    c->depth--;
    while (i < half || k < n) {
        bool right =
            i == half ||
            (k < n && (reverse ? qn_jless(c, keys[i], keys[k], "<") : qn_jless(c, keys[k], keys[i], "<")));
        spare[2 * o] = keys[right ? k : i];
        spare[2 * o + 1] = items[right ? k : i];
        o++;
        i += !right;
        k += right;
    }
    for (o = 0; o < n; o++) {
        keys[o] = spare[2 * o];
        items[o] = spare[2 * o + 1];
    }
}

void qn_jsort(qn_jctx *c, qn_jval *keys, qn_jval *items, size_t n, bool reverse)
{
    merge(c, keys, items, qn_jalloc(c, n, 2 * sizeof *keys), n, reverse);
}

static qn_jval f_sort(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    qn_jval list = qn_jto_list(c, self);
    qn_jval *key = qn_jalloc(c, list.l->n, sizeof *key);
    for (size_t i = 0; i < list.l->n; i++) {
        key[i] = multi_attr(c, list.l->item[i], a->arg[2], !flag(c, a->arg[1]));
    }
    qn_jsort(c, key, list.l->item, list.l->n, flag(c, a->arg[0]));
    return list;
}

static qn_jval f_dictsort(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    bool by_value = qn_jgiven(a->arg[1]) && a->arg[1].kind == QN_J_STR && qn_jstr_is(a->arg[1].s, "value");
    if (qn_jgiven(a->arg[1]) && !by_value &&
        !(a->arg[1].kind == QN_J_STR && qn_jstr_is(a->arg[1].s, "key"))) {
        qn_jfail(c, "You can only sort by either \"key\" or \"value\"");
    }
    if (self.kind == QN_J_UNDEFINED) {
        qn_jfail_undefined(c, self);
    }
    if (self.kind != QN_J_DICT) {
        qn_jfail(c, "dictsort: a mapping is needed, got '%s'", qn_jtype(self));
    }
    const qn_jdict *d = self.d;
    qn_jval list = qn_jlist_new(c, d->n);
    qn_jval *key = qn_jalloc(c, d->n, sizeof *key);
    for (size_t i = 0; i < d->n; i++) {
        qn_jlist_push(c, list.l, qn_jtuple2(c, d->entry[i].key, d->entry[i].value));
        key[i] = by_value ? d->entry[i].value : d->entry[i].key;
        key[i] = flag(c, a->arg[0]) ? key[i] : qn_jignore_case(c, key[i]);
    }
    qn_jsort(c, key, list.l->item, d->n, flag(c, a->arg[2]));
    return list;
}

static qn_jval f_groupby(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    static const char *const fields[] = {"grouper", "list", NULL};
    bool fold = !flag(c, a->arg[2]);
    qn_jval list = qn_jto_list(c, self), out = qn_jlist_new(c, 0), group = qn_jnone();
    qn_jval *key = qn_jalloc(c, list.l->n, sizeof *key);
    for (size_t i = 0; i < list.l->n; i++) {
        key[i] = qn_jattr_path(c, list.l->item[i], a->arg[0], a->arg[1]);
        key[i] = fold ? qn_jignore_case(c, key[i]) : key[i];
    }
    qn_jsort(c, key, list.l->item, list.l->n, false);
    for (size_t i = 0; i < list.l->n; i++) {
        if (i == 0 || !qn_jequal(c, key[i], key[i - 1])) {
            group = qn_jlist_new(c, 0);
            qn_jval first = qn_jattr_path(c, list.l->item[i], a->arg[0], a->arg[1]);
            qn_jval pair = qn_jtuple2(c, first, group);
            pair.l->fields = fields;
            qn_jlist_push(c, out.l, pair);
        }
        qn_jlist_push(c, group.l, list.l->item[i]);
    }
    return out;
}

static qn_jval min_or_max(qn_jctx *c, qn_jval self, const qn_jval *arg, bool max)
{
    qn_jiter *it = qn_jiter_of(c, self);
    qn_jval v, best = qn_jnone(), best_key = qn_jnone();
    bool any = false;
    while (qn_jnext(c, it, &v)) {
        qn_jval key = qn_jattr_path(c, v, arg[1], qn_jnone());
        key = flag(c, arg[0]) ? key : qn_jignore_case(c, key);
        if (!any || (max ? qn_jless(c, best_key, key, ">") : qn_jless(c, key, best_key, "<"))) {
            best = v;
            best_key = key;
        }
        any = true;
    }
    return any ? best : qn_jundefined(c, "No aggregated item, sequence was empty.");
}

static qn_jval f_min(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return min_or_max(c, self, a->arg, false);
}

static qn_jval f_max(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return min_or_max(c, self, a->arg, true);
}

static qn_jval f_sum(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    qn_jiter *it = qn_jiter_of(c, self);
    qn_jval v, total = qn_jgiven(a->arg[1]) ? a->arg[1] : qn_jint(0);
    if (total.kind == QN_J_STR) {
        qn_jfail(c, "sum() can't sum strings [use ''.join(seq) instead]");
    }
    while (qn_jnext(c, it, &v)) {
        total = qn_jbinary(c, QN_OP_ADD, total, qn_jattr_path(c, v, a->arg[0], qn_jnone()));
    }
    return total;
}

/* --- ends and size --- */

static qn_jval f_length(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    int64_t n = self.kind == QN_J_LOOP ? qn_jloop_length(c, self.loop) : qn_jlen(self);
    if (n < 0) {
        qn_jfail(c, "object of type '%s' has no len()", qn_jtype(self));
    }
    return qn_jint(n);
}

static qn_jval f_first(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    qn_jval v;
    return qn_jnext(c, qn_jiter_of(c, self), &v) ? v : qn_jundefined(c, "No first item, sequence was empty.");
}

static qn_jval f_last(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    qn_jval v;
    if (self.kind != QN_J_UNDEFINED && qn_jnext(c, qn_jreversed(c, self).it, &v)) {
        return v;
    }
    return qn_jundefined(c, "No last item, sequence was empty.");
}

static qn_jval f_list(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    return qn_jto_list(c, self);
}

static qn_jval f_reverse(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    if (self.kind == QN_J_STR) {
        return qn_jslice(c, self, qn_jnone(), qn_jnone(), qn_jint(-1));
    }
    if (qn_jcan_reverse(self)) {
        return qn_jreversed(c, self);
    }
    if (qn_jiter_try(c, self) == NULL) {
        qn_jfail(c, "argument must be iterable");
    }
    return qn_jslice(c, qn_jto_list(c, self), qn_jnone(), qn_jnone(), qn_jint(-1));
}

static qn_jval f_default(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    if (self.kind == QN_J_UNDEFINED || (flag(c, a->arg[1]) && !qn_jtrue(c, self))) {
        return qn_jgiven(a->arg[0]) ? a->arg[0] : qn_jstr_c(c, "");
    }
    return self;
}

static qn_jval f_attr(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return qn_jgetattr_only(c, self, qn_jto_str(c, a->arg[0]));
}

/* --- numbers --- */

static qn_jval f_abs(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    if (self.kind == QN_J_FLOAT) {
        return qn_jfloat(fabs(self.f));
    }
    int64_t i = qn_jneed_int(c, self, "abs()");
    return i < 0 ? qn_junary(c, QN_OP_SUB, qn_jint(i)) : qn_jint(i);
}

static qn_jval truncated(qn_jctx *c, double f)
{
    if (!isfinite(f)) {
        qn_jfail(c, "cannot convert float %s to integer", isnan(f) ? "NaN" : "infinity");
    }
    if (fabs(f) >= 9.2e18) {
        qn_jfail(c, "integer overflow: a result does not fit 64 bits");
    }
    return qn_jint((int64_t)f);
}

static qn_jval f_int(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    int64_t i, base = qn_jgiven(a->arg[1]) ? qn_jneed_int(c, a->arg[1], "int()") : 10;
    double f;
    if (self.kind == QN_J_UNDEFINED) {
        qn_jfail_undefined(c, self);
    }
    if (qn_jis_int(self)) {
        return qn_jint(qn_jneed_int(c, self, "int()"));
    }
    if (self.kind == QN_J_FLOAT && isfinite(self.f)) {
        return truncated(c, self.f);
    }
    if (self.kind == QN_J_FLOAT && isinf(self.f)) {
        (void)truncated(c, self.f);
    }
    if (self.kind == QN_J_STR && (base == 0 || (base >= 2 && base <= 36)) &&
        qn_jparse_int(c, self.s, (int)base, &i)) {
        return qn_jint(i);
    }
    if (self.kind == QN_J_STR && qn_jparse_float(c, self.s, &f) && !isnan(f)) {
        return truncated(c, f);
    }
    return qn_jgiven(a->arg[0]) ? a->arg[0] : qn_jint(0);
}

static qn_jval f_float(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    double f;
    if (self.kind == QN_J_UNDEFINED) {
        qn_jfail_undefined(c, self);
    }
    if (self.kind == QN_J_STR ? qn_jparse_float(c, self.s, &f) : qn_jnumber(self, &f)) {
        return qn_jfloat(f);
    }
    return qn_jgiven(a->arg[0]) ? a->arg[0] : qn_jfloat(0);
}

/* To the nearest, of two equally near ones the even one. */
static double round_float(double f, int64_t digits)
{
    if (!isfinite(f) || digits > 300) {
        return f;
    }
    if (digits < 0) {
        double unit = digits < -308 ? (double)INFINITY : pow(10, (double)-digits);
        return isinf(unit) ? copysign(0, f) : nearbyint(f / unit) * unit;
    }
    char text[700];
    snprintf(text, sizeof text, "%.*f", (int)digits, f);
    return strtod(text, NULL);
}

static qn_jval round_int(qn_jctx *c, int64_t i, int64_t digits)
{
    if (digits >= 0 || i == 0) {
        return qn_jint(i);
    }
    if (digits < -18) {
        return qn_jint(0);
    }
    int64_t unit = 1;
    for (; digits < 0; digits++) {
        unit *= 10;
    }
    int64_t rest = i % unit, down = i - rest, twice = rest < 0 ? -rest : rest;
    bool odd = (down / unit) % 2 != 0;
    if (twice > unit - twice || (twice == unit - twice && odd)) {
        return qn_jbinary(c, QN_OP_ADD, qn_jint(down), qn_jint(i < 0 ? -unit : unit));
    }
    return qn_jint(down);
}

static qn_jval f_round(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    const qn_jstr *how = qn_jgiven(a->arg[1]) ? qn_jneed_str(c, a->arg[1], "round()") : NULL;
    int64_t digits = qn_jgiven(a->arg[0]) ? qn_jneed_int(c, a->arg[0], "round()") : 0;
    double f;
    if (how != NULL && !qn_jstr_is(how, "common") && !qn_jstr_is(how, "ceil") && !qn_jstr_is(how, "floor")) {
        qn_jfail(c, "method must be common, ceil or floor");
    }
    if (self.kind == QN_J_UNDEFINED) {
        qn_jfail_undefined(c, self);
    }
    if (!qn_jnumber(self, &f)) {
        qn_jfail(c, "type %s doesn't define __round__ method", qn_jtype(self));
    }
    if (how == NULL || qn_jstr_is(how, "common")) {
        return self.kind == QN_J_FLOAT ? qn_jfloat(round_float(f, digits))
                                       : round_int(c, qn_jneed_int(c, self, "round()"), digits);
    }
    double unit = pow(10, (double)digits), scaled = f * unit;
    return qn_jfloat((qn_jstr_is(how, "ceil") ? ceil(scaled) : floor(scaled)) / unit);
}

const qn_jfunc qn_jfilters_seq[] = {
    {"abs", "", f_abs},
    {"attr", "name", f_attr},
    {"count", "", f_length},
    {"d", "default_value= boolean=", f_default},
    {"default", "default_value= boolean=", f_default},
    {"dictsort", "case_sensitive= by= reverse=", f_dictsort},
    {"first", "", f_first},
    {"float", "default=", f_float},
    {"groupby", "attribute default= case_sensitive=", f_groupby},
    {"int", "default= base=", f_int},
    {"last", "", f_last},
    {"length", "", f_length},
    {"list", "", f_list},
    {"max", "case_sensitive= attribute=", f_max},
    {"min", "case_sensitive= attribute=", f_min},
    {"reverse", "", f_reverse},
    {"round", "precision= method=", f_round},
    {"sort", "reverse= case_sensitive= attribute=", f_sort},
    {"sum", "attribute= start=", f_sum},
    {0},
};
