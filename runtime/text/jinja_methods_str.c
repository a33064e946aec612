/* jinja_methods_str.c: methods of strings that look into them or cut them up. */
#include "text/jinja_internal.h"

#include "text/unicode_case.h"
#include "text/unicode_class.h"

/* An argument of a method of a string marked safe is escaped. */
static const qn_jstr *text_arg(qn_jctx *c, const qn_jstr *self, qn_jval v, const char *method)
{
    const qn_jstr *s = qn_jneed_str(c, v, method);
    return self->markup ? qn_jescape(c, v).s : s;
}

/* --- search --- */

/* The part of the string between two optional character positions, clamped as slices are. */
static qn_jstr *between(qn_jctx *c, qn_jstr *s, qn_jval start, qn_jval stop, bool *empty)
{
    int64_t first, by;
    int64_t n = (int64_t)qn_jstr_chars(s);
    size_t len = qn_jslice_bounds(c, (size_t)n, start, stop, qn_jnone(), &first, &by);
    *empty = first > n || (qn_jset(start) && len == 0 && qn_jneed_int(c, start, "start") > n);
    size_t from = qn_jstr_at(s, (size_t)first), to = qn_jstr_at(s, (size_t)first + len);
    return qn_jstr_part(c, s, from, to - from).s;
}

static int64_t find_in(qn_jctx *c, qn_jval self, const qn_jbound *a, bool last)
{
    bool empty;
    const qn_jstr *what = qn_jneed_str(c, a->arg[0], "find()");
    qn_jstr *part = between(c, self.s, a->arg[1], a->arg[2], &empty);
    size_t hit = empty ? SIZE_MAX : qn_jfind(part, what, 0);
    for (size_t at = hit; last && at != SIZE_MAX;
         at = at < part->len ? qn_jfind(part, what, at + 1) : SIZE_MAX) {
        hit = at;
        qn_jtick(c, 1);
    }
    if (hit == SIZE_MAX) {
        return -1;
    }
    size_t bytes = part->off + hit - self.s->off;
    return (int64_t)qn_jstr_chars(qn_jstr_part(c, self.s, 0, bytes).s);
}

static qn_jval m_find(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return qn_jint(find_in(c, self, a, false));
}

static qn_jval m_rfind(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return qn_jint(find_in(c, self, a, true));
}

static qn_jval found(qn_jctx *c, int64_t i)
{
    if (i < 0) {
        qn_jfail(c, "substring not found");
    }
    return qn_jint(i);
}

static qn_jval m_index(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return found(c, find_in(c, self, a, false));
}

static qn_jval m_rindex(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return found(c, find_in(c, self, a, true));
}

static qn_jval m_count(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    bool empty;
    const qn_jstr *what = qn_jneed_str(c, a->arg[0], "count()");
    qn_jstr *part = between(c, self.s, a->arg[1], a->arg[2], &empty);
    int64_t n = 0;
    if (what->len == 0) {
        return qn_jint(empty ? 0 : (int64_t)qn_jstr_chars(part) + 1);
    }
    for (size_t at = qn_jfind(part, what, 0); at != SIZE_MAX; at = qn_jfind(part, what, at + what->len)) {
        n++;
        qn_jtick(c, 1);
    }
    return qn_jint(n);
}

static qn_jval affix(qn_jctx *c, qn_jval self, const qn_jbound *a, bool end)
{
    bool empty, yes = false;
    const qn_jstr *part = between(c, self.s, a->arg[1], a->arg[2], &empty);
    qn_jval one = a->arg[0];
    size_t n = one.kind == QN_J_TUPLE ? one.l->n : 1;
    for (size_t i = 0; i < n; i++) {
        const qn_jstr *s = qn_jneed_str(c, a->arg[0].kind == QN_J_TUPLE ? one.l->item[i] : one,
                                        end ? "endswith()" : "startswith()");
        yes |= !empty && s->len <= part->len &&
               memcmp(end ? part->p + part->len - s->len : part->p, s->p, s->len) == 0;
    }
    return qn_jbool(yes);
}

static qn_jval m_startswith(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return affix(c, self, a, false);
}

static qn_jval m_endswith(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return affix(c, self, a, true);
}

/* --- cutting --- */

static qn_jval m_strip(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return qn_jstrip(c, self.s, a->arg[0], 3);
}

static qn_jval m_lstrip(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return qn_jstrip(c, self.s, a->arg[0], 1);
}

static qn_jval m_rstrip(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return qn_jstrip(c, self.s, a->arg[0], 2);
}

static qn_jval m_removeprefix(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    const qn_jstr *s = self.s, *x = qn_jneed_str(c, a->arg[0], "removeprefix()");
    bool has = x->len <= s->len && memcmp(s->p, x->p, x->len) == 0;
    return has ? qn_jstr_part(c, s, x->len, s->len - x->len) : self;
}

static qn_jval m_removesuffix(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    const qn_jstr *s = self.s, *x = qn_jneed_str(c, a->arg[0], "removesuffix()");
    bool has = x->len <= s->len && memcmp(s->p + s->len - x->len, x->p, x->len) == 0;
    return has ? qn_jstr_part(c, s, 0, s->len - x->len) : self;
}

static qn_jval reversed_list(qn_jctx *c, qn_jval list)
{
    return qn_jslice(c, list, qn_jnone(), qn_jnone(), qn_jint(-1));
}

static void push_part(qn_jctx *c, qn_jval list, const qn_jstr *s, size_t begin, size_t end)
{
    qn_jlist_push(c, list.l, qn_jstr_part(c, s, begin, end - begin));
    qn_jtick(c, 1);
}

/* At white space; max < 0: everywhere. */
static qn_jval split_space(qn_jctx *c, const qn_jstr *s, int64_t max)
{
    qn_jval out = qn_jlist_new(c, 0);
    size_t i = 0, n = 0;
    for (;;) {
        while (i < s->len && qn_jspace(qn_jchar(s->p + i, s->len - i, &n))) {
            i += n;
        }
        if (i == s->len) {
            return out;
        }
        if (max >= 0 && (int64_t)out.l->n == max) {
            push_part(c, out, s, i, s->len);
            return out;
        }
        size_t begin = i;
        while (i < s->len && !qn_jspace(qn_jchar(s->p + i, s->len - i, &n))) {
            i += n;
        }
        push_part(c, out, s, begin, i);
    }
}

/* The same from the end: words are found from the front, then those that are not to be split stay one text,
 * with the white space before it. */
static qn_jval rsplit_space(qn_jctx *c, const qn_jstr *s, int64_t max)
{
    qn_jval words = split_space(c, s, -1), out = qn_jlist_new(c, 0);
    if (max < 0 || (int64_t)words.l->n <= max) {
        return words;
    }
    size_t keep = words.l->n - (size_t)max;
    const qn_jstr *last = words.l->item[keep - 1].s;
    push_part(c, out, s, 0, last->off + last->len - s->off);
    for (size_t i = keep; i < words.l->n; i++) {
        qn_jlist_push(c, out.l, words.l->item[i]);
    }
    return out;
}

static qn_jval split_text(qn_jctx *c, const qn_jstr *s, const qn_jstr *sep, int64_t max)
{
    qn_jval out = qn_jlist_new(c, 0);
    size_t begin = 0;
    while (max < 0 || (int64_t)out.l->n < max) {
        size_t hit = qn_jfind(s, sep, begin);
        if (hit == SIZE_MAX) {
            break;
        }
        push_part(c, out, s, begin, hit);
        begin = hit + sep->len;
    }
    push_part(c, out, s, begin, s->len);
    return out;
}

static size_t find_last(const qn_jstr *s, const qn_jstr *what, size_t end)
{
    for (size_t at = end >= what->len ? end - what->len + 1 : 0; at-- > 0;) {
        if (memcmp(s->p + at, what->p, what->len) == 0) {
            return at;
        }
    }
    return SIZE_MAX;
}

static qn_jval rsplit_text(qn_jctx *c, const qn_jstr *s, const qn_jstr *sep, int64_t max)
{
    qn_jval out = qn_jlist_new(c, 0);
    size_t end = s->len;
    while (max < 0 || (int64_t)out.l->n < max) {
        size_t hit = find_last(s, sep, end);
        if (hit == SIZE_MAX) {
            break;
        }
        push_part(c, out, s, hit + sep->len, end);
        end = hit;
    }
    push_part(c, out, s, 0, end);
    return reversed_list(c, out);
}

static qn_jval split(qn_jctx *c, qn_jval self, const qn_jbound *a, bool from_end)
{
    int64_t max = qn_jgiven(a->arg[1]) ? qn_jneed_int(c, a->arg[1], "split()") : -1;
    qn_jtick(c, self.s->len / 16);
    if (!qn_jset(a->arg[0])) {
        return from_end ? rsplit_space(c, self.s, max) : split_space(c, self.s, max);
    }
    const qn_jstr *sep = qn_jneed_str(c, a->arg[0], "split()");
    if (sep->len == 0) {
        qn_jfail(c, "empty separator");
    }
    return from_end ? rsplit_text(c, self.s, sep, max) : split_text(c, self.s, sep, max);
}

static qn_jval m_split(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return split(c, self, a, false);
}

static qn_jval m_rsplit(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return split(c, self, a, true);
}

static qn_jval partition(qn_jctx *c, qn_jval self, const qn_jbound *a, bool last)
{
    const qn_jstr *s = self.s, *sep = qn_jneed_str(c, a->arg[0], "partition()");
    qn_jval out = qn_jtuple_new(c, 3);
    if (sep->len == 0) {
        qn_jfail(c, "empty separator");
    }
    size_t hit = last ? find_last(s, sep, s->len) : qn_jfind(s, sep, 0);
    if (hit == SIZE_MAX) {
        for (int i = 0; i < 3; i++) {
            qn_jlist_push(c, out.l, i == (last ? 2 : 0) ? self : qn_jstr_c(c, ""));
        }
        return out;
    }
    push_part(c, out, s, 0, hit);
    push_part(c, out, s, hit, hit + sep->len);
    push_part(c, out, s, hit + sep->len, s->len);
    return out;
}

static qn_jval m_partition(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return partition(c, self, a, false);
}

static qn_jval m_rpartition(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return partition(c, self, a, true);
}

static qn_jval m_splitlines(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return qn_jsplitlines(c, self.s, qn_jgiven(a->arg[0]) && qn_jtrue(c, a->arg[0]));
}

static qn_jval m_replace(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    int64_t count = qn_jgiven(a->arg[2]) ? qn_jneed_int(c, a->arg[2], "replace()") : -1;
    const qn_jstr *old = text_arg(c, self.s, a->arg[0], "replace()");
    return qn_jreplace(c, self.s, old, text_arg(c, self.s, a->arg[1], "replace()"), count);
}

static qn_jval m_join(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return qn_jjoin(c, self.s, a->arg[0], true);
}

static qn_jval m_format(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return qn_jformat_braces(c, self.s, a->call);
}

static qn_jval m_format_map(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    if (a->arg[0].kind != QN_J_DICT) {
        qn_jfail(c, "format_map(): a mapping is needed, got '%s'", qn_jtype(a->arg[0]));
    }
    const qn_jdict *d = a->arg[0].d;
    qn_jargs args = {.kw = qn_jalloc(c, d->n, sizeof(qn_jkw))};
    for (size_t i = 0; i < d->n; i++) {
        if (d->entry[i].key.kind == QN_J_STR) {
            args.kw[args.n_kw++] = (qn_jkw){d->entry[i].key.s, d->entry[i].value};
        }
    }
    return qn_jformat_braces(c, self.s, &args);
}

static qn_jval pad(qn_jctx *c, qn_jval self, const qn_jbound *a, int where)
{
    const qn_jstr *fill = qn_jgiven(a->arg[1]) ? qn_jneed_str(c, a->arg[1], "fill") : qn_jstr_c(c, " ").s;
    if (qn_jstr_chars((qn_jstr *)fill) != 1) {
        qn_jfail(c, "The fill character must be exactly one character long");
    }
    return qn_jpad(c, self.s, qn_jneed_int(c, a->arg[0], "width"), fill, where);
}

static qn_jval m_center(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return pad(c, self, a, 0);
}

static qn_jval m_ljust(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return pad(c, self, a, -1);
}

static qn_jval m_rjust(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return pad(c, self, a, 1);
}

static qn_jval m_zfill(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    int64_t width = qn_jneed_int(c, a->arg[0], "zfill()");
    qn_jstr *s = self.s;
    size_t sign = s->len > 0 && (s->p[0] == '+' || s->p[0] == '-');
    qn_jstr *rest = qn_jstr_part(c, s, sign, s->len - sign).s;
    qn_jval out = qn_jpad(c, rest, width - (int64_t)sign, qn_jstr_c(c, "0").s, 1);
    return sign ? qn_jstr_concat(c, qn_jstr_part(c, s, 0, 1).s, out.s) : out;
}

static qn_jval m_expandtabs(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    int64_t size = qn_jgiven(a->arg[0]) ? qn_jneed_int(c, a->arg[0], "expandtabs()") : 8, column = 0;
    const qn_jstr *s = self.s;
    qn_jbuf *b = qn_jbuf_new(c, s->len);
    for (size_t i = 0, n; i < s->len; i += n) {
        n = qn_jchar_len(s->p + i, s->len - i);
        if (s->p[i] != '\t') {
            qn_jbuf_part(c, b, s, i, n);
            column = s->p[i] == '\n' || s->p[i] == '\r' ? 0 : column + 1;
            continue;
        }
        for (int64_t k = size > 0 ? size - column % size : 0; k > 0; k--, column++) {
            qn_jbuf_put(c, b, " ", 1, qn_jstr_origin_at(s, i));
            qn_jtick(c, 1);
        }
    }
    return qn_jbuf_value(c, b);
}

const qn_jfunc qn_jstr_methods[] = {
    {"center", "width fillchar= /", m_center},
    {"count", "sub start= end= /", m_count},
    {"endswith", "suffix start= end= /", m_endswith},
    {"expandtabs", "tabsize=", m_expandtabs},
    {"find", "sub start= end= /", m_find},
    {"format", "*", m_format},
    {"format_map", "mapping /", m_format_map},
    {"index", "sub start= end= /", m_index},
    {"join", "iterable /", m_join},
    {"ljust", "width fillchar= /", m_ljust},
    {"lstrip", "chars= /", m_lstrip},
    {"partition", "sep /", m_partition},
    {"removeprefix", "prefix /", m_removeprefix},
    {"removesuffix", "suffix /", m_removesuffix},
    {"replace", "old new count= /", m_replace},
    {"rfind", "sub start= end= /", m_rfind},
    {"rindex", "sub start= end= /", m_rindex},
    {"rjust", "width fillchar= /", m_rjust},
    {"rpartition", "sep /", m_rpartition},
    {"rsplit", "sep= maxsplit=", m_rsplit},
    {"rstrip", "chars= /", m_rstrip},
    {"split", "sep= maxsplit=", m_split},
    {"splitlines", "keepends=", m_splitlines},
    {"startswith", "prefix start= end= /", m_startswith},
    {"strip", "chars= /", m_strip},
    {"zfill", "width /", m_zfill},
    {"encode", "*", NULL},
    {"maketrans", "*", NULL},
    {"translate", "*", NULL},
    {0},
};
