/* opts_value.c: the text behind an option to the value it stands for. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/opts_internal.h"

/* A whole number in [lo, hi] up to `end`; false otherwise. */
static bool parse_int(const char *text, const char *end, long lo, long hi, int *out)
{
    char *stop;
    errno = 0;
    long v = strtol(text, &stop, 10);
    if (text == end || stop != end || errno != 0 || v < lo || v > hi) {
        return false;
    }
    *out = (int)v;
    return true;
}

static int bad_number(const qn_usage *u, const qn_opt *o, const char *name, const char *value)
{
    const char *what = o->kind == QN_OPT_FLOAT  ? "a number"
                       : o->kind == QN_OPT_INTS ? "a list of whole numbers"
                       : o->kind == QN_OPT_RANGES
                           ? "a list of whole numbers and ranges (1,2,4 or 0-64+16 or 1-64*2)"
                           : "a whole number";
    char *stop;
    double v = strtod(value, &stop), most = o->min < o->max ? o->max : INT_MAX;
    bool alone = o->kind == QN_OPT_INT || o->kind == QN_OPT_FLOAT;
    if (alone && *value != 0 && *stop == 0 && v > most && most >= INT_MAX && isfinite(v)) {
        return qn_cli_usage_error(u->name, "%s: %s is too large, the most is %.10g", name, value, most);
    }
    if (o->min < o->max && o->max >= INT_MAX) {
        return qn_cli_usage_error(u->name, "%s: '%s' is not %s >= %.10g", name, value, what, o->min);
    }
    if (o->min < o->max) {
        return qn_cli_usage_error(u->name, "%s: '%s' is not %s in %.10g..%.10g", name, value, what, o->min,
                                  o->max);
    }
    return qn_cli_usage_error(u->name, "%s: '%s' is not %s", name, value, what);
}

static bool set_float(const qn_opt *o, const char *value, float *out)
{
    char *stop;
    double v = strtod(value, &stop);
    if (*value == 0 || *stop != 0 || !isfinite(v) || (o->min < o->max && !(v >= o->min && v <= o->max))) {
        return false;
    }
    *out = (float)v;
    return true;
}

static bool set_ints(const char *value, long lo, long hi, qn_ints *out)
{
    qn_ints_free(out);
    for (const char *p = value;; p++) {
        const char *end = p + strcspn(p, ",");
        int v;
        int *items = realloc(out->items, (out->n + 1) * sizeof *items);
        if (items == NULL) {
            return false;
        }
        out->items = items;
        if (!parse_int(p, end, lo, hi, &v)) {
            return false;
        }
        out->items[out->n++] = v;
        if (*end == 0) {
            return true;
        }
        p = end;
    }
}

/* Adds a number; false where there are too many. */
static bool add_int(qn_ints *out, long v)
{
    enum { MOST = 4096 };
    int *items = out->n < MOST ? realloc(out->items, (out->n + 1) * sizeof *items) : NULL;
    if (items != NULL) {
        out->items = items;
        out->items[out->n++] = (int)v;
    }
    return items != NULL;
}

/* "first-last", "first-last+step" or "first-last*factor" between `p` and `end`. */
static bool add_range(const char *p, const char *end, long lo, long hi, qn_ints *out)
{
    const char *dash = memchr(p + (p < end), '-', (size_t)(end - p - (p < end))); /* a sign may come first */
    int first, last, step = 1;
    if (dash == NULL) {
        return parse_int(p, end, lo, hi, &first) && add_int(out, first);
    }
    const char *last_end = dash + 1 + strcspn(dash + 1, ",+*");
    bool times = *last_end == '*';
    if (!parse_int(p, dash, lo, hi, &first) || !parse_int(dash + 1, last_end, lo, hi, &last) ||
        last < first || (last_end < end && !parse_int(last_end + 1, end, times ? 2 : 1, INT_MAX, &step)) ||
        (times && first < 1)) {
        return false;
    }
    for (long v = first; v <= last; v = times ? v * step : v + step) {
        if (!add_int(out, v)) {
            return false;
        }
    }
    return true;
}

static bool add_ranges(const char *value, long lo, long hi, qn_ints *out)
{
    for (const char *p = value;; p++) {
        const char *end = p + strcspn(p, ",");
        if (!add_range(p, end, lo, hi, out)) {
            return false;
        }
        if (*end == 0) {
            return true;
        }
        p = end;
    }
}

static int set_choice(const qn_usage *u, const qn_opt *o, const char *name, const char *value, int *out)
{
    char all[256] = "";
    size_t n = 0;
    for (; o->choices[n] != NULL; n++) {
        if (strcmp(o->choices[n], value) == 0) {
            *out = (int)n;
            return -1;
        }
        size_t len = strlen(all);
        snprintf(all + len, sizeof all - len, "%s%s", n > 0 ? ", " : "", o->choices[n]);
    }
    return qn_cli_usage_error(u->name, "%s: '%s' is none of %s", name, value, all);
}

int qn_opts_set(const qn_usage *u, const qn_opt *o, const char *name, const char *value, void *dst)
{
    bool ranged = o->min < o->max;
    long lo = ranged ? (long)o->min : INT_MIN, hi = ranged ? (long)o->max : INT_MAX;
    switch (o->kind) {
    case QN_OPT_FLAG:
        *(bool *)dst = true;
        return -1;
    case QN_OPT_UNSET:
        *(bool *)dst = false;
        return -1;
    case QN_OPT_SET:
        *(int *)dst = (int)o->min;
        return -1;
    case QN_OPT_STR:
        *(const char **)dst = value;
        return -1;
    case QN_OPT_STRS: {
        qn_strs *s = dst;
        const char **items = realloc(s->items, (s->n + 1) * sizeof *items);
        if (items == NULL) {
            return qn_cli_error("out of memory");
        }
        s->items = items;
        s->items[s->n++] = value;
        return -1;
    }
    case QN_OPT_INT:
        return parse_int(value, value + strlen(value), lo, hi, dst) ? -1 : bad_number(u, o, name, value);
    case QN_OPT_INTS:
        return set_ints(value, lo, hi, dst) ? -1 : bad_number(u, o, name, value);
    case QN_OPT_RANGES:
        return add_ranges(value, lo, hi, dst) ? -1 : bad_number(u, o, name, value);
    case QN_OPT_FLOAT:
        return set_float(o, value, dst) ? -1 : bad_number(u, o, name, value);
    case QN_OPT_CHOICE:
        return set_choice(u, o, name, value, dst);
    }
    return -1;
}

void qn_strs_free(qn_strs *s)
{
    free(s->items);
    *s = (qn_strs){0};
}

void qn_ints_free(qn_ints *s)
{
    free(s->items);
    *s = (qn_ints){0};
}
