/* jinja_repr.c: values as text and text as numbers, as Python does both. */
#include "text/jinja_internal.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "text/unicode_case.h"

double qn_jstrtod(const char *text, const char **end)
{
    enum { MAX = 400 }; /* longer ones are cut: further digits change nothing that can be seen */
    char copy[MAX + 8];
    const char *point = localeconv()->decimal_point;
    size_t n = 0, dot = SIZE_MAX, n_point = strlen(point);
    for (const char *p = text; *p != 0 && n < MAX; p++) {
        if (*p == '.' && dot == SIZE_MAX && n_point <= 4) {
            dot = n;
            memcpy(copy + n, point, n_point);
            n += n_point;
        } else {
            copy[n++] = *p;
        }
    }
    copy[n] = 0;
    char *stop;
    double v = strtod(copy, &stop);
    if (end != NULL) {
        size_t used = (size_t)(stop - copy);
        *end = text + (dot != SIZE_MAX && used > dot ? used - n_point + 1 : used);
    }
    return v;
}

int qn_jfloat_digits(double f, int precision, char digits[QN_J_FLOAT_TEXT], int *exp)
{
    char text[QN_J_FLOAT_TEXT];
    for (int p = precision < 0 ? 0 : precision;; p++) {
        snprintf(text, sizeof text, "%.*e", p, f);
        if (precision >= 0 || p >= 16 || strtod(text, NULL) == f) {
            break;
        }
    }
    int n = 0;
    const char *t = text;
    for (; *t != 'e' && *t != 0; t++) {
        if (isdigit((unsigned char)*t)) {
            digits[n++] = *t;
        }
    }
    digits[n] = 0;
    *exp = *t == 'e' ? atoi(t + 1) : 0;
    return n;
}

void qn_jfloat_repr(double f, char out[QN_J_FLOAT_TEXT])
{
    char digits[QN_J_FLOAT_TEXT];
    int exp, o = 0;
    if (!isfinite(f)) {
        strcpy(out, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    int n = qn_jfloat_digits(fabs(f), -1, digits, &exp);
    if (signbit(f)) {
        out[o++] = '-';
    }
    if (exp < -4 || exp >= 16) {
        out[o++] = digits[0];
        if (n > 1) {
            out[o++] = '.';
        }
        memcpy(out + o, digits + 1, (size_t)n - 1);
        o += n - 1;
        snprintf(out + o, 8, "e%c%02d", exp < 0 ? '-' : '+', abs(exp) % 1000);
        return;
    }
    if (exp < 0) {
        out[o++] = '0';
        out[o++] = '.';
        for (int i = -1; i > exp; i--) {
            out[o++] = '0';
        }
        strcpy(out + o, digits);
        return;
    }
    for (int i = 0; i < n || i <= exp; i++) {
        if (i == exp + 1) {
            out[o++] = '.';
        }
        out[o++] = i < n ? digits[i] : '0';
    }
    out[o] = 0;
    if (n <= exp + 1) {
        strcpy(out + o, ".0");
    }
}

/* --- str() and repr() --- */

static void put(qn_jctx *c, qn_jbuf *b, const char *text)
{
    qn_jbuf_put(c, b, text, strlen(text), QN_ORIGIN_TEMPLATE);
}

static void repr_char(qn_jctx *c, qn_jbuf *b, uint32_t cp, char quote, uint32_t origin)
{
    char text[16];
    if (cp == '\\' || cp == (uint32_t)quote) {
        snprintf(text, sizeof text, "\\%c", (int)cp);
    } else if (cp == '\n' || cp == '\r' || cp == '\t') {
        snprintf(text, sizeof text, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
    } else if (qn_jprintable(cp)) {
        qn_jbuf_char(c, b, cp, origin);
        return;
    } else {
        snprintf(text, sizeof text, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
    }
    qn_jbuf_put(c, b, text, strlen(text), origin);
}

static void repr_str(qn_jctx *c, qn_jbuf *b, const qn_jstr *s)
{
    char quote = s->len > 0 && memchr(s->p, '\'', s->len) && !memchr(s->p, '"', s->len) ? '"' : '\'';
    if (s->markup) {
        put(c, b, "Markup(");
    }
    qn_jbuf_put(c, b, &quote, 1, QN_ORIGIN_TEMPLATE);
    for (size_t i = 0, n; i < s->len; i += n) {
        uint32_t cp = qn_jchar(s->p + i, s->len - i, &n);
        repr_char(c, b, cp, quote, qn_jstr_origin_at(s, i));
    }
    qn_jbuf_put(c, b, &quote, 1, QN_ORIGIN_TEMPLATE);
    if (s->markup) {
        put(c, b, ")");
    }
}

static void repr_list(qn_jctx *c, qn_jbuf *b, const qn_jlist *l, const char *open, const char *close)
{
    put(c, b, open);
    for (size_t i = 0; i < l->n; i++) {
        put(c, b, i > 0 ? ", " : "");
        qn_jput_repr(c, b, l->item[i]);
    }
    put(c, b, close);
}

static void repr_dict(qn_jctx *c, qn_jbuf *b, const qn_jdict *d)
{
    put(c, b, "{");
    for (size_t i = 0; i < d->n; i++) {
        put(c, b, i > 0 ? ", " : "");
        qn_jput_repr(c, b, d->entry[i].key);
        put(c, b, ": ");
        qn_jput_repr(c, b, d->entry[i].value);
    }
    put(c, b, "}");
}

static void repr_number(qn_jctx *c, qn_jbuf *b, qn_jval v)
{
    char text[QN_J_FLOAT_TEXT];
    if (v.kind == QN_J_FLOAT) {
        qn_jfloat_repr(v.f, text);
    } else {
        snprintf(text, sizeof text, "%lld", (long long)v.i);
    }
    put(c, b, text);
}

static void repr_range(qn_jctx *c, qn_jbuf *b, const qn_jrange *r)
{
    char text[96];
    snprintf(text, sizeof text, r->step != 1 ? "range(%lld, %lld, %lld)" : "range(%lld, %lld)",
             (long long)r->start, (long long)r->stop, (long long)r->step);
    put(c, b, text);
}

static void repr_other(qn_jctx *c, qn_jbuf *b, qn_jval v)
{
    switch (v.kind) {
    case QN_J_RANGE:
        repr_range(c, b, v.range);
        break;
    case QN_J_NAMESPACE:
        put(c, b, "<Namespace ");
        repr_dict(c, b, v.d);
        put(c, b, ">");
        break;
    case QN_J_VIEW:
        put(c, b, qn_jtype(v));
        put(c, b, "(");
        repr_list(c, b, qn_jto_list(c, v).l, "[", "]");
        put(c, b, ")");
        break;
    case QN_J_MACRO:
        put(c, b, "<Macro ");
        if (v.macro->node->name != NULL) {
            repr_str(c, b, v.macro->node->name);
        } else {
            put(c, b, "anonymous");
        }
        put(c, b, ">");
        break;
    case QN_J_LOOP:
        put(c, b,
            qn_jsprintf(c, "<LoopContext %lld/%lld>", (long long)qn_jloop_index0(v.loop) + 1,
                        (long long)qn_jloop_length(c, v.loop)));
        break;
    default: /* Python shows an address */
        qn_jfail(c, "a value of type '%s' has no text", qn_jtype(v));
    }
}

void qn_jput_repr(qn_jctx *c, qn_jbuf *b, qn_jval v)
{
    qn_jenter(c);
    qn_jtick(c, 1);
    switch (v.kind) {
    case QN_J_UNDEFINED:
        put(c, b, "Undefined");
        break;
    case QN_J_NONE:
        put(c, b, "None");
        break;
    case QN_J_BOOL:
        put(c, b, v.b ? "True" : "False");
        break;
    case QN_J_INT:
    case QN_J_FLOAT:
        repr_number(c, b, v);
        break;
    case QN_J_STR:
        repr_str(c, b, v.s);
        break;
    case QN_J_LIST:
        repr_list(c, b, v.l, "[", "]");
        break;
    case QN_J_TUPLE:
        repr_list(c, b, v.l, "(", v.l->n == 1 ? ",)" : ")");
        break;
    case QN_J_DICT:
        repr_dict(c, b, v.d);
        break;
    default:
        repr_other(c, b, v);
    }
    c->depth--;
}

void qn_jput_str(qn_jctx *c, qn_jbuf *b, qn_jval v)
{
    if (v.kind == QN_J_STR) {
        qn_jbuf_str(c, b, v.s);
    } else if (v.kind == QN_J_CYCLER || v.kind == QN_J_JOINER) {
        qn_jfail(c, "a value of type '%s' has no text", qn_jtype(v));
    } else if (v.kind != QN_J_UNDEFINED) {
        qn_jput_repr(c, b, v);
    }
}

qn_jstr *qn_jto_str(qn_jctx *c, qn_jval v)
{
    if (v.kind == QN_J_STR) {
        return v.s->markup ? qn_jstr_mark(c, v.s, false).s : v.s;
    }
    qn_jbuf *b = qn_jbuf_new(c, 0);
    qn_jput_str(c, b, v);
    return qn_jbuf_value(c, b).s;
}

const char *qn_jrepr_c(qn_jctx *c, qn_jval v)
{
    qn_jbuf *b = qn_jbuf_new(c, 0);
    qn_jput_repr(c, b, v);
    return qn_jsprintf(c, "%.*s", b->len < 200 ? (int)b->len : 200, b->data);
}

qn_jval qn_jescape(qn_jctx *c, qn_jval v)
{
    static const struct {
        char ch;
        const char *text;
    } rows[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&#34;"}, {'\'', "&#39;"}};
    if (v.kind == QN_J_STR && v.s->markup) {
        return v;
    }
    const qn_jstr *s = qn_jto_str(c, v);
    qn_jbuf *b = qn_jbuf_new(c, s->len);
    for (size_t i = 0; i < s->len; i++) {
        const char *text = NULL;
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            text = s->p[i] == rows[r].ch ? rows[r].text : text;
        }
        if (text != NULL) {
            qn_jbuf_put(c, b, text, strlen(text), qn_jstr_origin_at(s, i));
        } else {
            qn_jbuf_part(c, b, s, i, 1);
        }
    }
    return qn_jstr_mark(c, qn_jbuf_value(c, b).s, true);
}

/* --- numbers from text --- */

/* The text between white space with its digits as ASCII and single underscores between digits gone; NULL:
 * not that. */
static char *number_text(qn_jctx *c, const qn_jstr *s)
{
    char *out = qn_jalloc(c, s->len + 1, 1);
    size_t n = 0, begin = 0, end = s->len, k;
    while (begin < end && qn_jspace(qn_jchar(s->p + begin, end - begin, &k))) {
        begin += k;
    }
    bool digit_before = false, space = false;
    for (size_t i = begin; i < end; i += k) {
        uint32_t cp = qn_jchar(s->p + i, end - i, &k);
        int d = cp < 0x80 ? -1 : qn_unicode_digit(cp);
        if (qn_jspace(cp)) {
            space = true;
            continue;
        }
        if (space || (cp >= 0x80 && d < 0) || cp == 0) {
            return NULL;
        }
        char ch = d >= 0 ? (char)('0' + d) : (char)cp;
        if (ch == '_') {
            size_t next = i + k, skip;
            uint32_t after = next < end ? qn_jchar(s->p + next, end - next, &skip) : 0;
            if (!digit_before || !(after < 0x80 ? isalnum((int)after) : qn_unicode_digit(after) >= 0)) {
                return NULL;
            }
            continue;
        }
        digit_before = isalnum((unsigned char)ch) != 0;
        out[n++] = ch;
    }
    return n > 0 ? out : NULL;
}

bool qn_jparse_int(qn_jctx *c, const qn_jstr *s, int base, int64_t *out)
{
    const char *p = number_text(c, s);
    if (p == NULL) {
        return false;
    }
    bool negative = *p == '-';
    p += *p == '-' || *p == '+';
    char kind = *p == '0' ? (char)tolower((unsigned char)p[1]) : 0;
    int prefix = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (prefix != 0 && (base == prefix || base == 0)) {
        p += 2;
        base = prefix;
    } else if (base == 0) {
        bool zeros = p[strspn(p, "0")] == 0;
        if (*p == '0' && !zeros) {
            return false;
        }
        base = 10;
    }
    int64_t v = 0;
    bool any = false;
    for (; *p != 0; p++, any = true) {
        int d = isdigit((unsigned char)*p)   ? *p - '0'
                : isalpha((unsigned char)*p) ? tolower((unsigned char)*p) - 'a' + 10
                                             : 99;
        if (d >= base) {
            return false;
        }
        if (__builtin_mul_overflow(v, base, &v) || __builtin_sub_overflow(v, d, &v)) {
            qn_jfail(c, "the number '%.*s' does not fit 64 bits", s->len < 60 ? (int)s->len : 60, s->p);
        }
    }
    if (!negative && v == INT64_MIN) {
        qn_jfail(c, "the number '%.*s' does not fit 64 bits", s->len < 60 ? (int)s->len : 60, s->p);
    }
    *out = negative ? v : -v;
    return any;
}

bool qn_jparse_float(qn_jctx *c, const qn_jstr *s, double *out)
{
    const char *p = number_text(c, s), *end;
    if (p == NULL) {
        return false;
    }
    const char *word = p + (*p == '-' || *p == '+');
    static const char *const words[] = {"inf", "infinity", "nan"};
    for (size_t i = 0; i < 3; i++) {
        size_t k = 0;
        while (word[k] != 0 && tolower((unsigned char)word[k]) == words[i][k]) {
            k++;
        }
        if (word[k] == 0 && words[i][k] == 0) {
            double v = i == 2 ? (double)NAN : (double)INFINITY;
            *out = *p == '-' ? -v : v;
            return true;
        }
    }
    if (p[strspn(p, "+-.0123456789eE")] != 0) { /* no hexadecimal floats */
        return false;
    }
    *out = qn_jstrtod(p, &end);
    return *end == 0 || strlen(p) > 400;
}
