/* opts.h: options of the commands as tables: parsing (with argp), --help and suggestions all read the same
 * rows.
 *
 * Names may have several letters behind one dash, as llama.cpp has them ("-ub"); a value follows as the next
 * argument or, after a name of several letters, behind "=". Whatever follows an option that takes a value is
 * its value, so "-s -1" works. Letters without value may share a dash ("-vq"). Names are never shortened.
 * "--" ends the options.
 *
 * Options that are not given take their value from the environment: QUERN_ and the first long name in
 * capitals, "-" as "_" (--top-k: QUERN_TOP_K). An option without value is switched on by 1, yes, on or true;
 * an empty variable is none. */
#ifndef QN_CLI_OPTS_H
#define QN_CLI_OPTS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum qn_opt_kind {
    QN_OPT_FLAG,   /* bool: set to true */
    QN_OPT_UNSET,  /* bool: set to false */
    QN_OPT_SET,    /* int: set to `min`; takes no value */
    QN_OPT_STR,    /* const char * */
    QN_OPT_STRS,   /* qn_strs: each use adds one */
    QN_OPT_INT,    /* int */
    QN_OPT_INTS,   /* qn_ints: "512,1024" replaces the list */
    QN_OPT_RANGES, /* qn_ints: as INTS, also "0-64+16" and "1-64*2"; each use adds */
    QN_OPT_FLOAT,  /* float */
    QN_OPT_CHOICE, /* int: index in `choices` */
} qn_opt_kind;

typedef struct qn_strs {
    const char **items;
    size_t n;
} qn_strs;

typedef struct qn_ints {
    int *items;
    size_t n;
} qn_ints;

typedef struct qn_opt {
    const char *names; /* "-n, --predict": separated by comma and blank */
    const char *arg;   /* "N", as help shows it; NULL where no value follows */
    const char *help;  /* one or two sentences, with the default */
    qn_opt_kind kind;
    size_t offset;              /* of the destination in the group's base */
    double min, max;            /* of numbers; equal: any */
    const char *const *choices; /* CHOICE: NULL-terminated */
} qn_opt;

/* Rows of one heading of the help; `opts` ends with a row without names. */
typedef struct qn_opt_group {
    const char *heading;
    const qn_opt *opts;
    void *base;
} qn_opt_group;

typedef struct qn_usage {
    const char *name;     /* "run" */
    const char *synopsis; /* "MODEL [options]" */
    const char *doc;      /* paragraphs under the usage line */
    const qn_opt_group *groups;
    size_t n_groups;
    int max_positional;
} qn_usage;

/* Parses argv[1..]. Returns -1 to go on, else the exit status: QN_EXIT_OK after --help, QN_EXIT_USAGE after a
 * message. positional: room for max_positional, filled from the front, the rest NULL. */
int qn_opts_parse(const qn_usage *u, int argc, char **argv, const char **positional);

void qn_opts_help(const qn_usage *u);

/* Calls fn with the tables of a command, which does nothing else. */
typedef struct qn_command qn_command;
void qn_opts_visit(const qn_command *c, void (*fn)(void *user, const qn_usage *u), void *user);

/* Name of the variable that an option is read from, into text[size]; false: none. */
bool qn_opt_env_name(const qn_opt *o, char *text, size_t size);
/* Whether the value of an option of kind STR came from there. */
bool qn_opt_from_env(const char *value);

void qn_strs_free(qn_strs *s);
void qn_ints_free(qn_ints *s);

/* "quern: error: ..." on stderr with a pointer to the command's help; returns QN_EXIT_USAGE. */
int qn_cli_usage_error(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* -q, -v, --log-file, --debug, -h; in every command's table. */
extern const qn_opt_group qn_common_group;

#endif
