/* cli.h: what the commands share. A command is one file, cmd_<name>.c, and one row of the table in
 * commands.c. */
#ifndef QN_CLI_CLI_H
#define QN_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { QN_EXIT_OK = 0, QN_EXIT_ERROR = 1, QN_EXIT_USAGE = 2, QN_EXIT_INTERRUPT = 130 };

typedef struct qn_command qn_command;
struct qn_command {
    const char *name;
    /* argv[0] is the name; returns the exit status. Does nothing before qn_opts_parse, which may be asked for
     * the tables only (qn_opts_visit). */
    int (*run)(int argc, char **argv);
    const char *summary; /* one line of `quern --help` */
    const char *group;   /* heading there: "Generate", "Look inside", "Text", "Measure" */
};

extern const qn_command qn_commands[]; /* ends with name NULL */

/* A command line, argv[0] the program's name; returns the exit status, stdout flushed. One after the other,
 * as often as one likes: nothing of a command stays for the next. */
int qn_cli_main(int argc, char **argv);

/* "quern: error: ..." on stderr; returns QN_EXIT_ERROR. */
int qn_cli_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* "quern: ..." on stderr unless quiet. */
void qn_cli_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same under -v, and always into the log file. */
void qn_cli_detail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Whether a line of that level (0: note, 1: detail) goes anywhere. */
bool qn_cli_wants(int level);
extern int qn_cli_verbosity; /* -q: -1, default 0, -v: 1 */

/* Topics of --debug LIST. */
typedef enum qn_debug {
    QN_DEBUG_OPTIONS, /* what was set, and where */
    QN_DEBUG_ENGINE,  /* the library's details, as under -v */
    QN_DEBUG_PROMPT,  /* ids and pieces of each prompt */
    QN_DEBUG_CHUNKS,  /* pieces in which a prompt is processed, with times */
    QN_DEBUG_TOKENS,  /* every token chosen, with its time */
    QN_DEBUG_COUNT,
} qn_debug;
bool qn_cli_debugs(qn_debug topic);
/* "quern: [topic] ..." on stderr unless quiet, where the topic was asked for. */
void qn_cli_debug(qn_debug topic, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Every line for stderr goes into `path` too, with the time before it, whatever -q says; appended. topics:
 * names of --debug behind commas, or "all". NULL: none. -1: go on, else the exit status (`command`: for the
 * message). */
int qn_cli_log_open(const char *path);

/* At the end of the command; false: something could not be written there, which was said. */
bool qn_cli_log_close(void);
int qn_cli_debug_set(const char *command, const char *topics);

/* Before a command: nothing is asked for yet. */
void qn_cli_log_reset(void);

/* A line of progress that the next one, or any other line, replaces: on a terminal only. */
void qn_cli_progress(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void qn_cli_progress_end(void);
bool qn_cli_on_terminal(void); /* stderr is one, and not quiet */

/* Whole file, or stdin for "-", malloc'ed with a NUL behind it; -1 after printing the error. */
int qn_cli_read_file(const char *path, char **data, size_t *size);

#endif
