/* jinja_filters_text.c: filters that make text. */
#include "text/jinja_internal.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>

#include "text/unicode_case.h"

static qn_jval from_str(const qn_jstr *s)
{
    return (qn_jval){.kind = QN_J_STR, .s = (qn_jstr *)s};
}

/* Jinja's soft_str: text stays what it is, markup too. */
static qn_jstr *soft(qn_jctx *c, qn_jval v)
{
    return v.kind == QN_J_STR ? v.s : qn_jto_str(c, v);
}

static bool flag(qn_jctx *c, qn_jval v)
{
    return qn_jgiven(v) && qn_jtrue(c, v);
}

static qn_jval f_upper(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    return qn_jupper(c, soft(c, self));
}

static qn_jval f_lower(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    return qn_jlower(c, soft(c, self));
}

static qn_jval f_capitalize(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    return qn_jcapitalize(c, soft(c, self));
}

/* Words begin behind white space, '-' and opening brackets; the case of each is its own. */
static qn_jval f_title(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    const qn_jstr *s = soft(c, self);
    qn_jbuf *b = qn_jbuf_new(c, s->len);
    size_t begin = 0;
    for (size_t i = 0, n = 0; i <= s->len; i += n) {
        uint32_t cp = i < s->len ? qn_jchar(s->p + i, s->len - i, &n) : ' ';
        n = i < s->len ? n : 1;
        if (!(qn_jspace(cp) || (cp < 0x80 && cp > 0 && strchr("-({[<", (int)cp) != NULL))) {
            continue;
        }
        if (i > begin) {
            size_t first = qn_jchar_len(s->p + begin, i - begin);
            qn_jbuf_str(c, b, qn_jupper(c, qn_jstr_part(c, s, begin, first).s).s);
            qn_jbuf_str(c, b, qn_jlower(c, qn_jstr_part(c, s, begin + first, i - begin - first).s).s);
        }
        if (i < s->len) {
            qn_jbuf_part(c, b, s, i, n);
        }
        begin = i + n;
    }
    return qn_jbuf_value(c, b);
}

static qn_jval f_trim(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    return qn_jstrip(c, soft(c, self), a->arg[0], 3);
}

static qn_jval f_string(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    return from_str(soft(c, self));
}

static qn_jval f_safe(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    return qn_jstr_mark(c, soft(c, self), true);
}

static qn_jval f_escape(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    return qn_jescape(c, self);
}

static qn_jval f_forceescape(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    return qn_jescape(c, from_str(qn_jto_str(c, self)));
}

static qn_jval f_replace(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    int64_t count = qn_jset(a->arg[2]) ? qn_jneed_int(c, a->arg[2], "replace()") : -1;
    return qn_jreplace(c, qn_jto_str(c, self), qn_jto_str(c, a->arg[0]), qn_jto_str(c, a->arg[1]), count);
}

static qn_jval f_join(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    const qn_jstr *sep = qn_jto_str(c, qn_jgiven(a->arg[0]) ? a->arg[0] : qn_jstr_c(c, ""));
    if (qn_jset(a->arg[1])) {
        qn_jiter *it = qn_jiter_of(c, self);
        qn_jval list = qn_jlist_new(c, 0), v;
        while (qn_jnext(c, it, &v)) {
            qn_jlist_push(c, list.l, qn_jattr_path(c, v, a->arg[1], qn_jnone()));
        }
        self = list;
    }
    return qn_jjoin(c, sep, self, false);
}

static qn_jval f_center(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    int64_t width = qn_jgiven(a->arg[0]) ? qn_jneed_int(c, a->arg[0], "center()") : 80;
    return qn_jpad(c, soft(c, self), width, qn_jstr_c(c, " ").s, 0);
}

static qn_jval f_indent(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    const qn_jstr *s = qn_jneed_str(c, self, "indent()"), *in;
    qn_jstr *one = qn_jstr_c(c, " ").s;
    if (qn_jgiven(a->arg[0]) && a->arg[0].kind == QN_J_STR) {
        in = a->arg[0].s;
    } else {
        int64_t width = qn_jgiven(a->arg[0]) ? qn_jneed_int(c, a->arg[0], "indent()") : 4;
        in = qn_jpad(c, qn_jstr_c(c, "").s, width, one, 1).s;
    }
    bool blank = flag(c, a->arg[2]);
    const qn_jlist *line = qn_jsplitlines(c, qn_jstr_concat(c, s, qn_jstr_c(c, "\n").s).s, false).l;
    qn_jbuf *b = qn_jbuf_new(c, s->len);
    for (size_t i = 0; i < line->n; i++) {
        if (i > 0) {
            qn_jbuf_put(c, b, "\n", 1, QN_ORIGIN_TEMPLATE);
        }
        if (i == 0 ? flag(c, a->arg[1]) : blank || line->item[i].s->len > 0) {
            qn_jbuf_str(c, b, in);
        }
        qn_jbuf_str(c, b, line->item[i].s);
    }
    return qn_jstr_mark(c, qn_jbuf_value(c, b).s, s->markup);
}

static qn_jval f_truncate(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    if (self.kind == QN_J_UNDEFINED) { /* of length 0 */
        return self;
    }
    qn_jstr *s = qn_jneed_str(c, self, "truncate()");
    int64_t length = qn_jgiven(a->arg[0]) ? qn_jneed_int(c, a->arg[0], "truncate()") : 255;
    int64_t leeway = qn_jset(a->arg[3]) ? qn_jneed_int(c, a->arg[3], "truncate()") : 5;
    qn_jstr *end = qn_jgiven(a->arg[2]) ? qn_jneed_str(c, a->arg[2], "truncate()") : qn_jstr_c(c, "...").s;
    int64_t n_end = (int64_t)qn_jstr_chars(end);
    if (length < n_end || leeway < 0) {
        qn_jfail(c, "truncate(): expected length >= %lld and leeway >= 0, got %lld and %lld",
                 (long long)n_end, (long long)length, (long long)leeway);
    }
    int64_t n = (int64_t)qn_jstr_chars(s);
    if (n <= length || n - length <= leeway) {
        return self;
    }
    size_t cut = qn_jstr_at(s, (size_t)(length - n_end)), space = cut;
    while (space > 0 && s->p[space - 1] != ' ') {
        space--;
    }
    cut = !flag(c, a->arg[1]) && space > 0 ? space - 1 : cut;
    return qn_jstr_concat(c, qn_jstr_part(c, s, 0, cut).s, end);
}

static qn_jval f_wordcount(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    const qn_jstr *s = soft(c, self);
    int64_t words = 0;
    bool inside = false;
    for (size_t i = 0, n; i < s->len; i += n) {
        uint32_t cp = qn_jchar(s->p + i, s->len - i, &n);
        bool word = cp == '_' || qn_jalpha(cp) || qn_jnumeric(cp);
        words += word && !inside;
        inside = word;
    }
    return qn_jint(words);
}

static qn_jval f_format(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    if (a->call->n > 0 && a->call->n_kw > 0) {
        qn_jfail(c, "can't handle positional and keyword arguments at the same time");
    }
    qn_jval with = a->call->n_kw > 0 ? qn_jdict_new(c) : qn_jtuple_new(c, a->call->n);
    for (size_t i = 0; i < a->call->n_kw; i++) {
        qn_jdict_set(c, with.d, from_str(a->call->kw[i].name), a->call->kw[i].value);
    }
    for (size_t i = 0; i < a->call->n; i++) {
        qn_jlist_push(c, with.l, a->call->pos[i]);
    }
    return qn_jformat_percent(c, soft(c, self), with);
}

/* --- JSON, URLs, XML, sizes --- */

static const qn_jstr *json_indent(qn_jctx *c, qn_jval v)
{
    if (!qn_jset(v)) {
        return NULL;
    }
    if (v.kind == QN_J_STR) {
        return v.s;
    }
    return qn_jpad(c, qn_jstr_c(c, "").s, qn_jneed_int(c, v, "tojson()"), qn_jstr_c(c, " ").s, 1).s;
}

static qn_jval f_tojson(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    qn_jjson o = {
        .ascii = flag(c, a->arg[0]), .sort = flag(c, a->arg[3]), .indent = json_indent(c, a->arg[1])};
    o.item_sep = qn_jstr_c(c, o.indent != NULL ? "," : ", ").s;
    o.key_sep = qn_jstr_c(c, ": ").s;
    if (qn_jset(a->arg[2])) {
        const qn_jlist *l = qn_jto_list(c, a->arg[2]).l;
        if (l->n != 2) {
            qn_jfail(c, "tojson(): separators are two strings, got %zu", l->n);
        }
        o.item_sep = qn_jneed_str(c, l->item[0], "tojson()");
        o.key_sep = qn_jneed_str(c, l->item[1], "tojson()");
    }
    qn_jbuf *b = qn_jbuf_new(c, 64);
    qn_jput_json(c, b, self, &o);
    return qn_jbuf_value(c, b);
}

static void quote_url(qn_jctx *c, qn_jbuf *b, qn_jval v, bool query)
{
    const qn_jstr *s = qn_jto_str(c, v);
    for (size_t i = 0; i < s->len; i++) {
        unsigned char ch = (unsigned char)s->p[i];
        char text[4];
        if ((ch < 0x80 && isalnum(ch)) || (ch != 0 && strchr(query ? "_.-~" : "_.-~/", ch) != NULL)) {
            qn_jbuf_part(c, b, s, i, 1);
            continue;
        }
        snprintf(text, sizeof text, query && ch == ' ' ? "+" : "%%%02X", ch);
        qn_jbuf_put(c, b, text, strlen(text), qn_jstr_origin_at(s, i));
    }
}

static qn_jval f_urlencode(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    (void)a;
    qn_jbuf *b = qn_jbuf_new(c, 0);
    qn_jval pair;
    qn_jiter *it = self.kind == QN_J_STR || self.kind == QN_J_DICT ? NULL : qn_jiter_try(c, self);
    if (self.kind == QN_J_DICT) {
        qn_jval list = qn_jlist_new(c, self.d->n);
        for (size_t i = 0; i < self.d->n; i++) {
            qn_jlist_push(c, list.l, qn_jtuple2(c, self.d->entry[i].key, self.d->entry[i].value));
        }
        it = qn_jiter_of(c, list);
    }
    if (it == NULL) {
        quote_url(c, b, self, false);
        return qn_jbuf_value(c, b);
    }
    for (size_t i = 0; qn_jnext(c, it, &pair); i++) {
        const qn_jlist *l = qn_jto_list(c, pair).l;
        if (l->n != 2) {
            qn_jfail(c, "urlencode: pairs are needed, got %zu values", l->n);
        }
        qn_jbuf_put(c, b, "&", i > 0, QN_ORIGIN_TEMPLATE);
        quote_url(c, b, l->item[0], true);
        qn_jbuf_put(c, b, "=", 1, QN_ORIGIN_TEMPLATE);
        quote_url(c, b, l->item[1], true);
    }
    return qn_jbuf_value(c, b);
}

static qn_jval f_xmlattr(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    if (self.kind != QN_J_DICT) {
        qn_jfail(c, "xmlattr: a mapping is needed, got '%s'", qn_jtype(self));
    }
    bool space = !qn_jgiven(a->arg[0]) || qn_jtrue(c, a->arg[0]);
    qn_jbuf *b = qn_jbuf_new(c, 0);
    for (size_t i = 0; i < self.d->n; i++) {
        const qn_jentry *e = &self.d->entry[i];
        if (e->value.kind == QN_J_NONE || e->value.kind == QN_J_UNDEFINED) {
            continue;
        }
        qn_jbuf_put(c, b, " ", b->len > 0 || space, QN_ORIGIN_TEMPLATE);
        qn_jbuf_str(c, b, qn_jescape(c, e->key).s);
        qn_jbuf_put(c, b, "=\"", 2, QN_ORIGIN_TEMPLATE);
        qn_jbuf_str(c, b, qn_jescape(c, e->value).s);
        qn_jbuf_put(c, b, "\"", 1, QN_ORIGIN_TEMPLATE);
    }
    return qn_jbuf_value(c, b);
}

static qn_jval f_filesizeformat(qn_jctx *c, qn_jval self, const qn_jbound *a)
{
    static const char letter[] = "kMGTPEZY";
    bool binary = flag(c, a->arg[0]);
    double v, base = binary ? 1024 : 1000;
    if (self.kind == QN_J_STR ? !qn_jparse_float(c, self.s, &v) : !qn_jnumber(self, &v)) {
        qn_jfail(c, "filesizeformat: %s is not a number", qn_jrepr_c(c, self));
    }
    if (v == 1) {
        return qn_jstr_c(c, "1 Byte");
    }
    if (v < base) {
        return qn_jstr_c(c, qn_jsprintf(c, "%lld Bytes", v > -9e18 ? (long long)v : 0));
    }
    double unit = base * base;
    int i = 0;
    while (v >= unit && letter[i + 1] != 0) {
        unit *= base;
        i++;
    }
    int prefix = binary ? toupper((unsigned char)letter[i]) : letter[i];
    return qn_jstr_c(c, qn_jsprintf(c, "%.1f %c%sB", base * v / unit, prefix, binary ? "i" : ""));
}

const qn_jfunc qn_jfilters_text[] = {
    {"capitalize", "", f_capitalize},
    {"center", "width=", f_center},
    {"e", "", f_escape},
    {"escape", "", f_escape},
    {"filesizeformat", "binary=", f_filesizeformat},
    {"forceescape", "", f_forceescape},
    {"format", "*", f_format},
    {"indent", "width= first= blank=", f_indent},
    {"join", "d= attribute=", f_join},
    {"lower", "", f_lower},
    {"replace", "old new count=", f_replace},
    {"safe", "", f_safe},
    {"string", "", f_string},
    {"title", "", f_title},
    {"tojson", "ensure_ascii= indent= separators= sort_keys=", f_tojson},
    {"trim", "chars=", f_trim},
    {"truncate", "length= killwords= end= leeway=", f_truncate},
    {"upper", "", f_upper},
    {"urlencode", "", f_urlencode},
    {"wordcount", "", f_wordcount},
    {"xmlattr", "autospace=", f_xmlattr},
    {0},
};
