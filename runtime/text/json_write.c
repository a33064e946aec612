/* json_write.c: values to text. */
#include "text/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/utf8.h"

static void put(qn_json_out *o, const char *bytes, size_t n)
{
    if (o->failed) {
        return;
    }
    if (n >= o->cap - o->len) {
        size_t cap = o->cap ? o->cap : 256;
        while (cap - o->len <= n) {
            if (__builtin_mul_overflow(cap, 2, &cap)) {
                o->failed = true;
                return;
            }
        }
        char *grown = realloc(o->text, cap);
        if (!grown) {
            o->failed = true;
            return;
        }
        o->text = grown;
        o->cap = cap;
    }
    memcpy(o->text + o->len, bytes, n);
    o->len += n;
    o->text[o->len] = '\0';
}

static void new_line(qn_json_out *o)
{
    if (o->indented) {
        put(o, "\n", 1);
        for (int i = 0; i < o->depth; i++) {
            put(o, "  ", 2);
        }
    }
}

/* Before a key, or a value without one: the comma that parts it from the one before. */
static void begin(qn_json_out *o)
{
    if (o->comma) {
        put(o, ",", 1);
    }
    if (o->depth > 0 && !o->after_key) {
        new_line(o);
    }
    o->comma = true;
    o->after_key = false;
}

void qn_json_open(qn_json_out *o, char bracket)
{
    begin(o);
    put(o, &bracket, 1);
    o->comma = false;
    o->depth++;
}

void qn_json_close(qn_json_out *o, char bracket)
{
    o->depth--;
    if (o->comma) { /* not empty */
        new_line(o);
    }
    put(o, &bracket, 1);
    o->comma = true;
}

static void quoted(qn_json_out *o, const char *text, size_t len)
{
    static const char plain[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    put(o, "\"", 1);
    for (size_t i = 0, done = 0; i <= len;) {
        uint32_t cp = 0;
        int k = i < len ? qn_utf8_next((const unsigned char *)text + i, len - i, &cp) : 0;
        bool special = k <= 0 || cp < 0x20 || cp == '"' || cp == '\\';
        if (!special) {
            i += (size_t)k;
            continue;
        }
        put(o, text + done, i - done);
        if (i == len) {
            break;
        }
        const char *name = k > 0 && cp ? strchr(plain, (char)cp) : NULL;
        char buf[8];
        if (k <= 0) {
            put(o, "\xef\xbf\xbd", 3);
        } else if (name) {
            put(o, (char[]){'\\', names[name - plain]}, 2);
        } else {
            put(o, buf, (size_t)snprintf(buf, sizeof buf, "\\u%04x", (unsigned)cp));
        }
        i += k > 0 ? (size_t)k : k < 0 ? (size_t)-k : len - i; /* 0: an incomplete code point at the end */
        done = i;
    }
    put(o, "\"", 1);
}

void qn_json_key(qn_json_out *o, const char *key)
{
    begin(o);
    quoted(o, key, strlen(key));
    put(o, ": ", o->indented ? 2 : 1);
    o->comma = false;
    o->after_key = true;
}

void qn_json_string(qn_json_out *o, const char *text, size_t len)
{
    begin(o);
    quoted(o, text, len);
}

void qn_json_int(qn_json_out *o, int64_t v)
{
    char buf[32];
    begin(o);
    put(o, buf, (size_t)snprintf(buf, sizeof buf, "%" PRId64, v));
}

void qn_json_uint(qn_json_out *o, uint64_t v)
{
    char buf[32];
    begin(o);
    put(o, buf, (size_t)snprintf(buf, sizeof buf, "%" PRIu64, v));
}

/* printf writes the locale's decimal point, of one byte or more; JSON wants '.'. */
static size_t point(char *s)
{
    size_t n = 0;
    for (const char *p = s; *p; p++) {
        bool plain = (*p >= '0' && *p <= '9') || strchr("+-e", *p);
        if (plain) {
            s[n++] = *p;
        } else if (n == 0 || s[n - 1] != '.') {
            s[n++] = '.';
        }
    }
    s[n] = '\0';
    return n;
}

/* With the fewest digits from lo to hi that read back to v, as a float or a double. */
static void shortest(qn_json_out *o, double v, int lo, int hi, bool is_float)
{
    char buf[64];
    begin(o);
    if (!isfinite(v)) {
        put(o, "null", 4);
        return;
    }
    for (int digits = lo; digits <= hi; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, v);
        if (is_float ? strtof(buf, NULL) == (float)v : strtod(buf, NULL) == v) {
            break;
        }
    }
    put(o, buf, point(buf));
}

void qn_json_double(qn_json_out *o, double v)
{
    shortest(o, v, 15, 17, false);
}

void qn_json_float(qn_json_out *o, float v)
{
    shortest(o, (double)v, 6, 9, true);
}

void qn_json_bool(qn_json_out *o, bool v)
{
    begin(o);
    put(o, v ? "true" : "false", v ? 4 : 5);
}

void qn_json_null(qn_json_out *o)
{
    begin(o);
    put(o, "null", 4);
}

void qn_json_free(qn_json_out *o)
{
    free(o->text);
    *o = (qn_json_out){0};
}
