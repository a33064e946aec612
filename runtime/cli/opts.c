#include "cli/opts.h"

#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
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

/* One spelling of an option; argp's key of it is its letter, else LONG_KEY + its index. */
typedef struct opt_name {
    char *text; /* "-n", "-ub", "--predict" */
    const qn_opt *opt;
    void *base;
} opt_name;

enum { LONG_KEY = 0x100 };

typedef struct parse {
    const qn_usage *u;
    qn_arena arena;
    opt_name *names;
    struct argp_option *options; /* as names, ended by an empty one */
    size_t n_names;
    const char **positional;
    int n_positional;
    int done; /* argv before this index is dealt with */
    int rc;   /* -1: go on */
} parse;

static bool is_letter(const char *name)
{
    return name[1] != '-' && name[2] == '\0';
}

static const char *without_dashes(const char *name)
{
    return name + (name[1] == '-' ? 2 : 1);
}

/* Adds the names of a row; `list` is the arena's copy of "-n, --predict". */
static void add_names(parse *p, char *list, const qn_opt *o, void *base)
{
    char *rest;
    for (char *text = strtok_r(list, ", ", &rest); text != NULL; text = strtok_r(NULL, ", ", &rest)) {
        size_t i = p->n_names++;
        p->names[i] = (opt_name){text, o, base};
        bool letter = is_letter(text);
        p->options[i] = (struct argp_option){
            .name = letter ? NULL : without_dashes(text),
            .key = letter ? (unsigned char)text[1] : LONG_KEY + (int)i,
            .arg = o->arg,
        };
    }
}

/* Fills names and options from the tables; false: out of memory. */
static bool list_names(parse *p)
{
    size_t n = 0;
    for (size_t g = 0; g < p->u->n_groups; g++) {
        for (const qn_opt *o = p->u->groups[g].opts; o->names != NULL; o++) {
            n++;
            for (const char *c = o->names; *c != '\0'; c++) {
                n += *c == ',';
            }
        }
    }
    p->names = qn_arena_alloc(&p->arena, n * sizeof *p->names);
    p->options = qn_arena_alloc(&p->arena, (n + 1) * sizeof *p->options);
    if (p->names == NULL || p->options == NULL) {
        return false;
    }
    for (size_t g = 0; g < p->u->n_groups; g++) {
        for (const qn_opt *o = p->u->groups[g].opts; o->names != NULL; o++) {
            char *list = qn_arena_strndup(&p->arena, o->names, strlen(o->names));
            if (list == NULL) {
                return false;
            }
            add_names(p, list, o, p->u->groups[g].base);
        }
    }
    return true;
}

static int unknown(const parse *p, const char *word)
{
    size_t len = strcspn(word, "=");
    len = len > 2 ? len : strlen(word); /* no value follows a letter and "=" */
    const char **all = qn_calloc(p->n_names, sizeof *all);
    char *asked = strndup(word, len);
    const char *near = NULL;
    if (all != NULL && asked != NULL) {
        for (size_t i = 0; i < p->n_names; i++) {
            all[i] = p->names[i].text;
        }
        near = qn_nearest(asked, all, p->n_names);
    }
    int rc = near != NULL ? qn_cli_usage_error(p->u->name, "unknown option '%.*s' (did you mean '%s'?)",
                                               (int)len, word, near)
                          : qn_cli_usage_error(p->u->name, "unknown option '%.*s'", (int)len, word);
    free(asked);
    free(all);
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

/* Whether `word`, up to an "=", spells the name, with one dash or two. */
static bool spells(const char *word, const opt_name *name)
{
    const char *bare = without_dashes(name->text);
    size_t len = strlen(bare);
    word = without_dashes(word);
    return strncmp(word, bare, len) == 0 &&
           (word[len] == '\0' || (word[len] == '=' && !is_letter(name->text)));
}

/* The option that argp does not take from argv. */
static int refused(const parse *p, const struct argp_state *state)
{
    /* Within a group of letters argp has not yet moved on. */
    const char *word = state->argv[state->next > p->done ? state->next - 1 : state->next];
    size_t len = strcspn(word, "=");
    for (size_t i = 0; i < p->n_names; i++) {
        if (!spells(word, &p->names[i])) {
            continue;
        }
        const char *arg = p->names[i].opt->arg;
        return arg == NULL ? qn_cli_usage_error(p->u->name, "%.*s takes no value", (int)len, word)
                           : qn_cli_usage_error(p->u->name, "%s needs a value (%s)", word, arg);
    }
    return unknown(p, word);
}

/* An option and its value. argp also takes unique beginnings of long names, and the rest of a word as a
 * letter's value; here both are more likely another program's option ("-ngl"), so what has a value or a long
 * name is spelt out. */
static int option(const parse *p, const opt_name *name, char *value, const struct argp_state *state)
{
    int at = state->next - 1;
    if (value != NULL && value == state->argv[at]) {
        at--;
    }
    const char *word = state->argv[at];
    bool flag_letter = value == NULL && is_letter(name->text);
    if (!flag_letter && !spells(word, name)) {
        return unknown(p, word);
    }
    return set(p->u, name->opt, name->text, value != NULL ? value : "",
               (char *)name->base + name->opt->offset);
}

static error_t on_key(int key, char *arg, struct argp_state *state)
{
    parse *p = state->input;
    if (key == ARGP_KEY_ARG) {
        if (p->n_positional == p->u->max_positional) {
            p->rc = qn_cli_usage_error(p->u->name, "unexpected argument '%s'", arg);
        } else {
            p->positional[p->n_positional++] = arg;
        }
    } else if (key == ARGP_KEY_ERROR) {
        p->rc = p->rc >= 0 ? p->rc : refused(p, state);
    } else {
        size_t i = 0;
        while (i < p->n_names && p->options[i].key != key) {
            i++;
        }
        if (i == p->n_names) {
            return ARGP_ERR_UNKNOWN;
        }
        p->rc = option(p, &p->names[i], arg, state);
        if (p->rc < 0 && common.help) {
            qn_opts_help(p->u);
            p->rc = QN_EXIT_OK;
        }
    }
    p->done = state->next;
    return p->rc < 0 ? 0 : EINVAL;
}

int qn_opts_parse(const qn_usage *u, int argc, char **argv, const char **positional)
{
    parse p = {.u = u, .positional = positional, .done = 1, .rc = -1};
    for (int i = 0; i < u->max_positional; i++) {
        positional[i] = NULL;
    }
    if (!list_names(&p)) {
        qn_arena_free(&p.arena);
        return qn_cli_error("out of memory");
    }
    const struct argp argp = {.options = p.options, .parser = on_key};
    error_t err =
        argp_parse(&argp, argc, argv,
                   ARGP_LONG_ONLY | ARGP_IN_ORDER | ARGP_NO_ERRS | ARGP_NO_HELP | ARGP_NO_EXIT, NULL, &p);
    qn_arena_free(&p.arena);
    if (err != 0 && p.rc < 0) {
        return qn_cli_error("%s", strerror(err));
    }
    qn_cli_verbosity = common.verbose ? 1 : common.quiet ? -1 : 0;
    return p.rc;
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
