/* json_read.c: text to tree, without recursion. */
#include "text/json.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "text/utf8.h"

enum { MAX_DEPTH = 64 };

typedef struct reader {
    const char *text;
    size_t at, len;
    qn_arena *arena;
    locale_t c_locale; /* numbers have a point whatever the user's locale says */
    qn_err *err;
    qn_json *open[MAX_DEPTH]; /* arrays and objects not yet closed */
    qn_json *last[MAX_DEPTH]; /* their last members; NULL: none yet */
    int depth;
} reader;

static int refuse(const reader *r, const char *what)
{
    return qn_fail(r->err, "JSON, byte %zu: %s", r->at, what);
}

static int check_utf8(reader *r)
{
    for (uint32_t cp; r->at < r->len;) {
        int k = qn_utf8_next((const unsigned char *)r->text + r->at, r->len - r->at, &cp);
        if (k <= 0) {
            return refuse(r, "invalid UTF-8");
        }
        r->at += (size_t)k;
    }
    r->at = 0;
    return 0;
}

static char peek(const reader *r)
{
    return r->at < r->len ? r->text[r->at] : '\0';
}

static void skip_blanks(reader *r)
{
    while (r->at < r->len && strchr(" \t\n\r", r->text[r->at]) && r->text[r->at]) {
        r->at++;
    }
}

/* Four hexadecimal digits behind "\u"; -1: none. */
static int32_t hex4(reader *r)
{
    int32_t v = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        char c = peek(r);
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) {
            return -1;
        }
        v = v << 4 | d;
    }
    return v;
}

/* What follows a backslash, decoded to out; returns its length or -1. */
static int escape(reader *r, char *out)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char c = peek(r);
    const char *p = c ? strchr(names, c) : NULL;
    if (p) {
        r->at++;
        *out = values[p - names];
        return 1;
    }
    if (c != 'u') {
        return refuse(r, "unknown escape");
    }
    r->at++;
    int32_t cp = hex4(r);
    if (cp >= 0xd800 && cp < 0xdc00 && r->len - r->at >= 6 && memcmp(r->text + r->at, "\\u", 2) == 0) {
        r->at += 2;
        int32_t low = hex4(r);
        cp = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00) : -2;
    }
    if (cp == -1) {
        return refuse(r, "four hexadecimal digits expected");
    }
    if (cp < 0 || (cp >= 0xd800 && cp < 0xe000)) {
        return refuse(r, "surrogate without its other half");
    }
    return qn_utf8_put((uint32_t)cp, (unsigned char *)out);
}

/* At the opening quote. */
static int string(reader *r, const char **text, size_t *text_len)
{
    size_t end = ++r->at;
    while (end < r->len && r->text[end] != '"') {
        end += r->text[end] == '\\' ? 2 : 1;
    }
    if (end >= r->len) {
        return refuse(r, "string without end");
    }
    char *out =
        qn_arena_alloc(r->arena, end - r->at + 1); /* an escape is never shorter than what it stands for */
    if (!out) {
        return refuse(r, "out of memory");
    }
    size_t n = 0;
    while (r->at < end) {
        unsigned char c = (unsigned char)r->text[r->at];
        if (c < 0x20) {
            return refuse(r, "control character in a string");
        }
        r->at++;
        if (c != '\\') {
            out[n++] = (char)c;
            continue;
        }
        int k = escape(r, out + n);
        if (k < 0) {
            return -1;
        }
        n += (size_t)k;
    }
    r->at++;
    *text = out;
    *text_len = n;
    return 0;
}

static bool digits(reader *r)
{
    size_t first = r->at;
    while (peek(r) >= '0' && peek(r) <= '9') {
        r->at++;
    }
    return r->at > first;
}

static int number(reader *r, qn_json *v)
{
    size_t first = r->at;
    r->at += peek(r) == '-';
    bool zero = peek(r) == '0', ok = digits(r);
    ok = ok && !(zero && r->at - first > (r->text[first] == '-' ? 2u : 1u)); /* no leading zeros */
    v->is_int = true;
    if (ok && peek(r) == '.') {
        r->at++;
        v->is_int = false;
        ok = digits(r);
    }
    if (ok && (peek(r) == 'e' || peek(r) == 'E')) {
        r->at++;
        v->is_int = false;
        r->at += peek(r) == '+' || peek(r) == '-';
        ok = digits(r);
    }
    if (!ok) {
        return refuse(r, "not a number");
    }
    v->kind = QN_JSON_NUMBER;
    char *copy = qn_arena_strndup(r->arena, r->text + first, r->at - first);
    if (!copy) {
        return refuse(r, "out of memory");
    }
    bool fits = v->is_int;
    for (const char *p = copy + (*copy == '-'); fits && *p; p++) {
        int64_t d = *copy == '-' ? '0' - *p : *p - '0';
        fits = !__builtin_mul_overflow(v->integer, 10, &v->integer) &&
               !__builtin_add_overflow(v->integer, d, &v->integer);
    }
    v->is_int = fits;
    v->integer = fits ? v->integer : 0;
    v->number = strtod_l(copy, NULL, r->c_locale); /* beyond double's range: infinity */
    return 0;
}

static bool word(reader *r, const char *w)
{
    size_t n = strlen(w);
    if (r->len - r->at < n || memcmp(r->text + r->at, w, n) != 0) {
        return false;
    }
    r->at += n;
    return true;
}

/* One value; of an array or object only the bracket. */
static int value(reader *r, qn_json *v)
{
    char c = peek(r);
    if (c == '{' || c == '[') {
        if (r->depth == MAX_DEPTH) {
            return refuse(r, "more than 64 levels");
        }
        v->kind = c == '{' ? QN_JSON_OBJECT : QN_JSON_ARRAY;
        r->open[r->depth] = v;
        r->last[r->depth++] = NULL;
        r->at++;
        return 0;
    }
    if (c == '"') {
        v->kind = QN_JSON_STRING;
        return string(r, &v->text, &v->text_len);
    }
    if (c == '-' || (c >= '0' && c <= '9')) {
        return number(r, v);
    }
    if (word(r, "true")) {
        v->kind = QN_JSON_BOOL;
        v->truth = true;
        return 0;
    }
    if (word(r, "false")) {
        v->kind = QN_JSON_BOOL;
        return 0;
    }
    return word(r, "null") ? 0 : refuse(r, "a value expected");
}

static int key(reader *r, qn_json *v)
{
    if (peek(r) != '"') {
        return refuse(r, "a key in quotes expected");
    }
    size_t n;
    if (string(r, &v->key, &n)) {
        return -1;
    }
    if (strlen(v->key) != n) {
        return refuse(r, "a key with a NUL");
    }
    skip_blanks(r);
    if (!word(r, ":")) {
        return refuse(r, "':' expected");
    }
    skip_blanks(r);
    return 0;
}

/* Closes what ends here, or begins the next member of the innermost open array or object. */
static int step(reader *r)
{
    qn_json *in = r->open[r->depth - 1], *last = r->last[r->depth - 1];
    bool object = in->kind == QN_JSON_OBJECT;
    skip_blanks(r);
    if (word(r, object ? "}" : "]")) {
        r->depth--;
        return 0;
    }
    if (last && !word(r, ",")) {
        return refuse(r, object ? "',' or '}' expected" : "',' or ']' expected");
    }
    skip_blanks(r);
    qn_json *v = qn_arena_alloc(r->arena, sizeof *v);
    if (!v) {
        return refuse(r, "out of memory");
    }
    *(last ? &last->next : &in->child) = v;
    r->last[r->depth - 1] = v;
    in->n_child++;
    return (object && key(r, v)) || value(r, v) ? -1 : 0;
}

static int parse(reader *r, qn_json *root)
{
    if (check_utf8(r)) {
        return -1;
    }
    skip_blanks(r);
    if (value(r, root)) {
        return -1;
    }
    while (r->depth > 0) {
        if (step(r)) {
            return -1;
        }
    }
    skip_blanks(r);
    return r->at == r->len ? 0 : refuse(r, "more text behind the value");
}

int qn_json_parse(const qn_json **out, qn_arena *arena, const char *text, size_t len, qn_err *err)
{
    reader r = {.text = text, .len = len, .arena = arena, .err = err};
    qn_json *root = qn_arena_alloc(arena, sizeof *root);
    r.c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!root || !r.c_locale) {
        return refuse(&r, "out of memory");
    }
    int rc = parse(&r, root);
    freelocale(r.c_locale);
    *out = rc ? NULL : root;
    return rc;
}

const qn_json *qn_json_get(const qn_json *object, const char *key)
{
    if (!object || object->kind != QN_JSON_OBJECT) {
        return NULL;
    }
    const qn_json *v = object->child;
    while (v && strcmp(v->key, key) != 0) {
        v = v->next;
    }
    return v;
}
