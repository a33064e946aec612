#include "cli/opts.h"

#include <argp.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "cli/foreign.h"
#include "cli/opts_internal.h"
#include "model/yaml.h"

static struct common {
    int verbosity;
    const char *log_file, *debug;
    bool help;
} common;

static const qn_opt common_opts[] = {
    {"-q, --quiet", NULL, "Nothing on stderr but errors.", QN_OPT_SET, offsetof(struct common, verbosity),
     -1},
    {"-v, --verbose", NULL, "More on stderr: memory table, end tokens, effective values.", QN_OPT_SET,
     offsetof(struct common, verbosity), 1},
    {"--log-file", "FILE",
     "Append what goes to stderr, and what -v would add, to a file too; -q leaves it there.", QN_OPT_STR,
     offsetof(struct common, log_file)},
    {"--debug", "LIST",
     "Topics behind commas: options (what was set, and where), engine (details of the library), prompt (ids "
     "and "
     "pieces), chunks (of the prompt, with times), tokens (each with its time); all.",
     QN_OPT_STR, offsetof(struct common, debug)},
    {"-h, --help", NULL, "Print this help.", QN_OPT_FLAG, offsetof(struct common, help)},
    {0},
};
const qn_opt_group qn_common_group = {"General", common_opts, &common};

/* While qn_opts_visit runs: who gets the tables instead of a parse. */
static struct visitor {
    void (*fn)(void *user, const qn_usage *u);
    void *user;
} visitor;

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
    qn_given *given; /* room for each name */
    size_t n_given;
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
    p->given = qn_arena_alloc(&p->arena, n * sizeof *p->given);
    if (p->names == NULL || p->options == NULL || p->given == NULL) {
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
    const char *instead = qn_foreign_option(word, len);
    if (instead != NULL) {
        return qn_cli_usage_error(p->u->name, "option '%.*s' is not supported: %s", (int)len, word, instead);
    }
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

static void note_given(parse *p, const void *dst, const char *name, const char *value)
{
    size_t i = 0;
    while (i < p->n_given && p->given[i].dst != dst) {
        i++;
    }
    p->n_given += i == p->n_given;
    p->given[i] = (qn_given){dst, name, value};
}

/* An option and its value. argp also takes unique beginnings of long names, and the rest of a word as a
 * letter's value; here both are more likely another program's option ("-ngl"), so what has a value or a long
 * name is spelt out. */
static int option(parse *p, const opt_name *name, const char *value, const struct argp_state *state)
{
    /* Within a group of letters argp has not yet moved on. */
    int at = state->next > p->done ? state->next - 1 : state->next;
    if (value != NULL && value == state->argv[at]) {
        at--;
    }
    const char *word = state->argv[at];
    bool flag_letter = value == NULL && is_letter(name->text);
    /* Letters that share a word may spell another program's option ("-hf"). */
    if (flag_letter ? word[2] != '\0' && qn_foreign_option(word, strcspn(word, "=")) != NULL
                    : !spells(word, name)) {
        return unknown(p, word);
    }
    void *dst = (char *)name->base + name->opt->offset;
    value = value != NULL ? value : "";
    note_given(p, dst, name->text, value);
    return qn_opts_set(p->u, name->opt, name->text, value, dst);
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

/* What every command does once its options are set. -1: go on. */
static int start(const parse *p)
{
    qn_cli_verbosity = common.verbosity;
    int rc = qn_cli_log_open(common.log_file);
    rc = rc >= 0 ? rc : qn_cli_debug_set(p->u->name, common.debug);
    if (rc < 0) {
        qn_opts_show(p->u, p->given, p->n_given);
        if (qn_cli_wants(1)) {
            qn_opts_check_env();
        }
    }
    return rc;
}

int qn_opts_parse(const qn_usage *u, int argc, char **argv, const char **positional)
{
    if (visitor.fn != NULL) {
        visitor.fn(visitor.user, u);
        return QN_EXIT_OK;
    }
    parse p = {.u = u, .positional = positional, .done = 1, .rc = -1};
    common = (struct common){0};
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
    if (err != 0 && p.rc < 0) {
        p.rc = qn_cli_error("%s", strerror(err));
    }
    p.rc = p.rc >= 0 ? p.rc : qn_opts_from_env(u, p.given, p.n_given);
    p.rc = p.rc >= 0 ? p.rc : start(&p);
    qn_arena_free(&p.arena);
    return p.rc;
}

void qn_opts_visit(const qn_command *c, void (*fn)(void *user, const qn_usage *u), void *user)
{
    char name[32];
    char *argv[] = {name, NULL};
    snprintf(name, sizeof name, "%s", c->name);
    visitor = (struct visitor){fn, user};
    c->run(1, argv);
    visitor.fn = NULL;
}

int qn_cli_usage_error(const char *command, const char *fmt, ...)
{
    char *text;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) >= 0) {
        qn_cli_error("%s; see 'quern %s --help'", text, command);
        free(text);
    }
    va_end(ap);
    return QN_EXIT_USAGE;
}
