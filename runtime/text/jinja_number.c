/* jinja_number.c: numbers and strings in a field: the part that "%5.2f" and "{:5.2f}" have in common. */
#include "text/jinja_internal.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>

#include "text/jinja_format.h"

/* Three digits (or four) and a separator, from the end of the whole part. width: zeros fill up to it. */
static void put_grouped(qn_jctx *c, qn_jbuf *b, const char *digits, size_t n, char sep, int each,
                        size_t zeros)
{
    size_t total = n + zeros;
    for (size_t i = 0; i < total; i++) {
        char ch = i < zeros ? '0' : digits[i - zeros];
        if (sep != 0 && i > 0 && (total - i) % (size_t)each == 0) {
            qn_jbuf_put(c, b, &sep, 1, QN_ORIGIN_TEMPLATE);
        }
        qn_jbuf_put(c, b, &ch, 1, QN_ORIGIN_TEMPLATE);
    }
}

static size_t grouped_len(size_t n, char sep, int each)
{
    return n + (sep != 0 && n > 0 ? (n - 1) / (size_t)each : 0);
}

static void put_fill(qn_jctx *c, qn_jbuf *b, const qn_jfield *f, int64_t n)
{
    for (; n > 0; n--) {
        qn_jbuf_char(c, b, f->fill, QN_ORIGIN_TEMPLATE);
        qn_jtick(c, 1);
    }
}

/* sign and prefix, the digits of the whole part, and what follows them. */
static void put_number(qn_jctx *c, qn_jbuf *b, const qn_jfield *f, const char *sign, const char *whole,
                       const char *rest)
{
    int each = f->type == 'b' || f->type == 'o' || f->type == 'x' || f->type == 'X' ? 4 : 3;
    size_t n = strlen(whole), zeros = 0, around = strlen(sign) + strlen(rest);
    char align = f->align != 0 ? f->align : '>';
    int64_t width = f->width;
    if (width > QN_J_MAX_FIELD) {
        qn_jfail(c, "a field of %lld characters is too wide", (long long)width);
    }
    if (align == '=' && f->fill == '0' && isalnum((unsigned char)*whole)) {
        while ((int64_t)(around + grouped_len(n + zeros, f->group, each)) < width) {
            zeros++;
        }
    }
    int64_t pad = width - (int64_t)(around + grouped_len(n + zeros, f->group, each));
    pad = pad > 0 ? pad : 0;
    int64_t left = align == '<' ? 0 : align == '^' ? pad / 2 : pad;
    if (align != '=') {
        put_fill(c, b, f, left);
    }
    qn_jbuf_put(c, b, sign, strlen(sign), QN_ORIGIN_TEMPLATE);
    if (align == '=') {
        put_fill(c, b, f, left);
    }
    put_grouped(c, b, whole, n, f->group, each, zeros);
    qn_jbuf_put(c, b, rest, strlen(rest), QN_ORIGIN_TEMPLATE);
    put_fill(c, b, f, pad - left);
}

void qn_jfield_int(qn_jctx *c, qn_jbuf *b, const qn_jfield *f, int64_t v)
{
    char digits[72], sign[4] = "";
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    unsigned base = f->type == 'b' ? 2 : f->type == 'o' ? 8 : f->type == 'x' || f->type == 'X' ? 16 : 10;
    size_t at = sizeof digits - 1;
    digits[at] = 0;
    do {
        digits[--at] = (f->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[u % base];
        u /= base;
    } while (u != 0);
    for (; f->min_digits > (int)(sizeof digits - 1 - at) && at > 0; at--) {
        digits[at - 1] = '0';
    }
    snprintf(sign, sizeof sign, "%s%s%c",
             v < 0            ? "-"
             : f->sign == '+' ? "+"
             : f->sign == ' ' ? " "
                              : "",
             f->alt && base != 10 ? "0" : "", f->alt && base != 10 ? f->type : 0);
    put_number(c, b, f, sign, digits + at, "");
}

/* |v| by C's conversion, with '.' as the point. */
static void c_float(qn_jctx *c, char *out, size_t size, double v, char type, int precision, bool alt)
{
    char fmt[8];
    snprintf(fmt, sizeof fmt, alt ? "%%#.*%c" : "%%.*%c", type);
    int n = snprintf(out, size, fmt, precision, v);
    if (n < 0 || (size_t)n >= size) {
        qn_jfail(c, "a number of %d characters is too long", n);
    }
    for (char *p = out; *p != 0; p++) { /* whatever the locale's point is */
        if (!isalnum((unsigned char)*p) && *p != '+' && *p != '-') {
            char *end = p;
            while (*end != 0 && !isalnum((unsigned char)*end)) {
                end++;
            }
            *p = '.';
            memmove(p + 1, end, strlen(end) + 1);
            break;
        }
    }
}

void qn_jfield_float(qn_jctx *c, qn_jbuf *b, const qn_jfield *f, double v)
{
    enum { SIZE = 1500, MAX_PRECISION = 1000 };
    char *text = qn_jalloc(c, SIZE, 1), *whole = qn_jalloc(c, SIZE, 1);
    const char *sign = signbit(v) && !isnan(v) ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "";
    char type = f->type == 'n' ? 'g' : f->type;
    int precision = f->precision < 0 ? 6 : f->precision;
    double shown = fabs(type == '%' ? v * 100 : v);
    if (precision > MAX_PRECISION) {
        qn_jfail(c, "a precision of %d is too much", precision);
    }
    if (!isfinite(v)) {
        bool upper = type == 'E' || type == 'F' || type == 'G';
        const char *word = isnan(v) ? (upper ? "NAN" : "nan") : upper ? "INF" : "inf";
        put_number(c, b, f, sign, word, type == '%' ? "%" : "");
        return;
    }
    if (type == 0 && f->precision < 0) {
        qn_jfloat_repr(shown, text);
    } else if (type == 0) { /* as 'g', but never without a digit behind the point */
        c_float(c, text, SIZE, shown, 'g', precision, false);
        if (strpbrk(text, ".e") == NULL) {
            strcat(text, ".0");
        }
    } else {
        c_float(c, text, SIZE, shown, type == '%' ? 'f' : type, precision, f->alt);
    }
    if (type == '%') {
        strcat(text, "%");
    }
    size_t n = strspn(text, "0123456789");
    memcpy(whole, text, n);
    put_number(c, b, f, sign, whole, text + n);
}

void qn_jfield_text(qn_jctx *c, qn_jbuf *b, const qn_jfield *f, qn_jstr *s)
{
    if (f->precision >= 0 && (size_t)f->precision < qn_jstr_chars(s)) {
        s = qn_jstr_part(c, s, 0, qn_jstr_at(s, (size_t)f->precision)).s;
    }
    if (f->width > QN_J_MAX_FIELD) {
        qn_jfail(c, "a field of %lld characters is too wide", (long long)f->width);
    }
    int64_t pad = f->width - (int64_t)qn_jstr_chars(s);
    pad = pad > 0 ? pad : 0;
    int64_t left = f->align == '>' || f->align == '=' ? pad : f->align == '^' ? pad / 2 : 0;
    put_fill(c, b, f, left);
    qn_jbuf_str(c, b, s);
    put_fill(c, b, f, pad - left);
}
