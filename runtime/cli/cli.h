/* cli.h: what the commands share. A command is one file, cmd_<name>.c, and one row of the table in main.c. */
#ifndef QN_CLI_CLI_H
#define QN_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { QN_EXIT_OK = 0, QN_EXIT_ERROR = 1, QN_EXIT_USAGE = 2, QN_EXIT_INTERRUPT = 130 };

typedef struct qn_command {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the name; returns the exit status */
    const char *summary;               /* one line of `quern --help` */
    const char *group;                 /* heading there: "Generate", "Look inside", "Text", "Measure" */
} qn_command;

extern const qn_command qn_commands[]; /* ends with name NULL */

/* "quern: error: ..." on stderr; returns QN_EXIT_ERROR. */
int qn_cli_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* "quern: ..." on stderr unless quiet. */
void qn_cli_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
extern int qn_cli_verbosity; /* -q: -1, default 0, -v: 1 */

/* Whole file, or stdin for "-", malloc'ed with a NUL behind it; -1 after printing the error. */
int qn_cli_read_file(const char *path, char **data, size_t *size);

#endif
