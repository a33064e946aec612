#include "cli/opts.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "model/yaml.h"

static struct common {
    bool verbose, quiet, help;
} common;

static const qn_opt common_opts[] = {
    {"-q, --quiet", NULL, "Nothing on stderr but errors.", QN_OPT_FLAG, offsetof(struct common, quiet)},
    {"-v, --verbose", NULL, "More on stderr: memory table, end tokens, effective values.", QN_OPT_FLAG,
     offsetof(struct common, verbose)},
    {"-h, --help", NULL, "Print this help.", QN_OPT_FLAG, offsetof(struct common, help)},
    {0},
};
const qn_opt_group qn_common_group = {"General", common_opts, &common};

/* The next of the names in "-a, --bcd"; *list moves on. */
static bool next_name(const char **list, const char **name, size_t *len)
{
    *list += strspn(*list, ", ");
    *name = *list;
    *len = strcspn(*list, ",");
    *list += *len;
    return *len > 0;
}

static const qn_opt *find(const qn_usage *u, const char *word, size_t word_len, void **base)
{
    for (size_t g = 0; g < u->n_groups; g++) {
        for (const qn_opt *o = u->groups[g].opts; o->names != NULL; o++) {
            const char *list = o->names, *name;
            size_t len;
            while (next_name(&list, &name, &len)) {
                if (len == word_len && memcmp(name, word, len) == 0) {
                    *base = u->groups[g].base;
                    return o;
                }
            }
        }
    }
    return NULL;
}

static int unknown(const qn_usage *u, const char *word, size_t word_len)
{
    char **names = NULL;
    size_t n = 0;
    for (size_t g = 0; g < u->n_groups; g++) {
        for (const qn_opt *o = u->groups[g].opts; o->names != NULL; o++) {
            const char *list = o->names, *name;
            size_t len;
            while (next_name(&list, &name, &len)) {
                char **grown = realloc(names, (n + 1) * sizeof *names);
                names = grown != NULL ? grown : names;
                char *copy = grown != NULL ? strndup(name, len) : NULL;
                if (copy != NULL) {
                    names[n++] = copy;
                }
            }
        }
    }
    char *asked = strndup(word, word_len);
    const char *near = asked != NULL ? qn_nearest(asked, (const char *const *)names, n) : NULL;
    int rc = near != NULL
                 ? qn_cli_usage_error(u->name, "unknown option '%s' (did you mean '%s'?)", asked, near)
                 : qn_cli_usage_error(u->name, "unknown option '%.*s'", (int)word_len, word);
    for (size_t i = 0; i < n; i++) {
        free(names[i]);
    }
    free(names);
    free(asked);
    return rc;
}

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
                                                : "a whole number";
    if (o->min < o->max && o->max >= INT_MAX) {
        return qn_cli_usage_error(u->name, "%s: '%s' is not %s >= %g", name, value, what, o->min);
    }
    if (o->min < o->max) {
        return qn_cli_usage_error(u->name, "%s: '%s' is not %s in %g..%g", name, value, what, o->min, o->max);
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

/* -1: done; otherwise the exit status. */
static int set(const qn_usage *u, const qn_opt *o, const char *name, const char *value, void *dst)
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
    case QN_OPT_FLOAT:
        return set_float(o, value, dst) ? -1 : bad_number(u, o, name, value);
    case QN_OPT_CHOICE:
        return set_choice(u, o, name, value, dst);
    }
    return -1;
}

/* argv[*i] is an option; takes its value too. -1: go on. */
static int option(const qn_usage *u, int argc, char **argv, int *i)
{
    const char *word = argv[*i];
    const char *eq = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
    size_t len = eq != NULL ? (size_t)(eq - word) : strlen(word);
    void *base;
    const qn_opt *o = find(u, word, len, &base);
    if (o == NULL) {
        return unknown(u, word, len);
    }
    const char *value = eq != NULL ? eq + 1 : NULL;
    if (o->arg == NULL && value != NULL) {
        return qn_cli_usage_error(u->name, "%.*s takes no value", (int)len, word);
    }
    if (o->arg != NULL && value == NULL) {
        if (*i + 1 >= argc) {
            return qn_cli_usage_error(u->name, "%s needs a value (%s)", word, o->arg);
        }
        value = argv[++*i];
    }
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)len, word);
    return set(u, o, name, value != NULL ? value : "", (char *)base + o->offset);
}

int qn_opts_parse(const qn_usage *u, int argc, char **argv, const char **positional)
{
    int n = 0;
    bool only_positional = false;
    for (int i = 0; i < u->max_positional; i++) {
        positional[i] = NULL;
    }
    for (int i = 1; i < argc; i++) {
        if (!only_positional && strcmp(argv[i], "--") == 0) {
            only_positional = true;
        } else if (!only_positional && argv[i][0] == '-' && argv[i][1] != 0) {
            int rc = option(u, argc, argv, &i);
            if (rc >= 0) {
                return rc;
            }
        } else if (n == u->max_positional) {
            return qn_cli_usage_error(u->name, "unexpected argument '%s'", argv[i]);
        } else {
            positional[n++] = argv[i];
        }
        if (common.help) {
            qn_opts_help(u);
            return QN_EXIT_OK;
        }
    }
    qn_cli_verbosity = common.verbose ? 1 : common.quiet ? -1 : 0;
    return -1;
}

/* Words of `text` from column `indent` on, the first line already there. */
static void print_wrapped(const char *text, int indent, int width)
{
    int col = indent;
    for (const char *p = text; *p != 0;) {
        int len = (int)strcspn(p, " \n");
        if (col > indent && col + 1 + len > width) {
            printf("\n%*s", indent, "");
            col = indent;
        } else if (col > indent) {
            putchar(' ');
            col++;
        }
        printf("%.*s", len, p);
        col += len;
        p += len;
        if (*p == '\n') {
            printf("\n%*s", indent, "");
            col = indent;
        }
        p += *p != 0;
    }
    putchar('\n');
}

void qn_opts_help(const qn_usage *u)
{
    enum { INDENT = 30, WIDTH = 100 };
    printf("Usage: quern %s %s\n\n", u->name, u->synopsis);
    print_wrapped(u->doc, 0, WIDTH);
    for (size_t g = 0; g < u->n_groups; g++) {
        printf("\n%s:\n", u->groups[g].heading);
        for (const qn_opt *o = u->groups[g].opts; o->names != NULL; o++) {
            int col = printf("  %s%s%s", o->names, o->arg != NULL ? " " : "", o->arg != NULL ? o->arg : "");
            if (col > INDENT - 2) {
                printf("\n%*s", INDENT, "");
            } else {
                printf("%*s", INDENT - col, "");
            }
            print_wrapped(o->help, INDENT, WIDTH);
        }
    }
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

int qn_cli_usage_error(const char *command, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("quern: error: ", stderr);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "; see 'quern %s --help'\n", command);
    va_end(ap);
    return QN_EXIT_USAGE;
}
