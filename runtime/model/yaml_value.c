/* yaml_value.c: what a YAML node means: messages, known keys, typed scalars, nearest names. */
#include "model/yaml.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail_va(const char *file, int line, int column, qn_err *err, const char *fmt, va_list ap)
{
    char text[QN_ERR_MAX];
    vsnprintf(text, sizeof text, fmt, ap);
    return qn_fail(err, "%s:%d:%d: %s", file, line, column, text);
}

int qn_yaml_fail(const qn_yaml_node *at, qn_err *err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fail_va(at->file, at->line, at->column, err, fmt, ap);
    va_end(ap);
    return -1;
}

int qn_yaml_fail_key(const qn_yaml_node *at, qn_err *err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fail_va(at->file, at->key ? at->key_line : at->line, at->key ? at->key_column : at->column, err, fmt, ap);
    va_end(ap);
    return -1;
}

int qn_yaml_check_keys(const qn_yaml_node *map, const char *const *known, size_t n, qn_err *err)
{
    if (map->kind != QN_YAML_MAP) {
        return qn_yaml_fail(map, err, "expected a map (key: value)");
    }
    for (const qn_yaml_node *c = map->child; c; c = c->next) {
        size_t i = 0;
        while (i < n && strcmp(known[i], c->key) != 0) {
            i++;
        }
        if (i == n) {
            char hint[128];
            return qn_yaml_fail_key(c, err, "unknown key \"%.64s\"%s", c->key,
                                    qn_nearest_hint(c->key, known, n, hint, sizeof hint));
        }
    }
    return 0;
}

static const char *shown(const qn_yaml_node *node)
{
    return node->kind == QN_YAML_SCALAR ? node->text : node->kind == QN_YAML_SEQ ? "a list" : "a map";
}

int qn_yaml_text(const qn_yaml_node *node, const char **out, qn_err *err)
{
    if (node->kind != QN_YAML_SCALAR) {
        return qn_yaml_fail(node, err, "expected text, found %s", shown(node));
    }
    *out = node->text;
    return 0;
}

int qn_yaml_bool(const qn_yaml_node *node, bool *out, qn_err *err)
{
    bool yes = node->kind == QN_YAML_SCALAR && node->plain && strcmp(node->text, "true") == 0;
    bool no = node->kind == QN_YAML_SCALAR && node->plain && strcmp(node->text, "false") == 0;
    if (!yes && !no) {
        return qn_yaml_fail(node, err, "expected true or false, found %.64s%s", shown(node),
                            node->kind == QN_YAML_SCALAR && !node->plain ? " in quotes" : "");
    }
    *out = yes;
    return 0;
}

int qn_yaml_i64(const qn_yaml_node *node, int64_t *out, qn_err *err)
{
    bool form = node->kind == QN_YAML_SCALAR && node->plain;
    if (form) {
        const char *digits = node->text + (node->text[0] == '-' || node->text[0] == '+');
        form = *digits && strspn(digits, "0123456789") == strlen(digits);
    }
    if (!form) {
        return qn_yaml_fail(node, err, "expected a whole number, found %.64s", shown(node));
    }
    errno = 0;
    long long v = strtoll(node->text, NULL, 10);
    if (errno) {
        return qn_yaml_fail(node, err, "%.64s does not fit 64 bits", node->text);
    }
    *out = v;
    return 0;
}

/* [sign] digits [. digits] [e [sign] digits], with at least one digit before the exponent. */
static bool is_decimal(const char *s)
{
    s += *s == '-' || *s == '+';
    size_t whole = strspn(s, "0123456789");
    s += whole;
    size_t fraction = 0;
    if (*s == '.') {
        fraction = strspn(s + 1, "0123456789");
        s += 1 + fraction;
    }
    if (whole + fraction == 0) {
        return false;
    }
    if (*s == 'e' || *s == 'E') {
        s++;
        s += *s == '-' || *s == '+';
        size_t n = strspn(s, "0123456789");
        if (n == 0) {
            return false;
        }
        s += n;
    }
    return *s == '\0';
}

int qn_yaml_f64(const qn_yaml_node *node, double *out, qn_err *err)
{
    if (node->kind != QN_YAML_SCALAR || !node->plain || !is_decimal(node->text)) {
        return qn_yaml_fail(node, err, "expected a number, found %.64s", shown(node));
    }
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c) {
        return qn_yaml_fail(node, err, "out of memory");
    }
    double v = strtod_l(node->text, NULL, c);
    freelocale(c);
    if (!isfinite(v)) {
        return qn_yaml_fail(node, err, "%.64s does not fit a double", node->text);
    }
    *out = v;
    return 0;
}

enum { NEAREST_MAX = 64 };

static int min3(int a, int b, int c)
{
    int m = a < b ? a : b;
    return m < c ? m : c;
}

/* Edits (insert, delete, replace, swap of neighbours) between two strings of at most NEAREST_MAX bytes. */
static int distance(const char *a, int n, const char *b, int m)
{
    int rows[3][NEAREST_MAX + 1];
    int *before = rows[0], *prev = rows[1], *cur = rows[2];
    for (int j = 0; j <= m; j++) {
        prev[j] = j;
    }
    for (int i = 1; i <= n; i++) {
        cur[0] = i;
        for (int j = 1; j <= m; j++) {
            cur[j] = min3(prev[j] + 1, cur[j - 1] + 1, prev[j - 1] + (a[i - 1] != b[j - 1]));
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && before[j - 2] + 1 < cur[j]) {
                cur[j] = before[j - 2] + 1;
            }
        }
        int *t = before;
        before = prev;
        prev = cur;
        cur = t;
    }
    return prev[m];
}

const char *qn_nearest(const char *name, const char *const *candidates, size_t n)
{
    size_t len = strlen(name);
    if (len > NEAREST_MAX) {
        return NULL;
    }
    int best = (int)len / 3 > 1 ? (int)len / 3 : 1;
    const char *found = NULL;
    for (size_t i = 0; i < n; i++) {
        size_t m = strlen(candidates[i]);
        if (m > NEAREST_MAX) {
            continue;
        }
        int d = distance(name, (int)len, candidates[i], (int)m);
        if (d < best || (d == best && !found)) {
            best = d;
            found = candidates[i];
        }
    }
    return found;
}

const char *qn_nearest_hint(const char *name, const char *const *candidates, size_t n, char *buf, size_t size)
{
    const char *near = qn_nearest(name, candidates, n);
    buf[0] = '\0';
    if (near) {
        snprintf(buf, size, " (did you mean \"%s\"?)", near);
    }
    return buf;
}
