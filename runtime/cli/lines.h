/* lines.h: lines that a user types, with editing and history on a terminal; elsewhere lines as they come, and
 * nothing is written. */
#ifndef QN_CLI_LINES_H
#define QN_CLI_LINES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct qn_lines qn_lines;

typedef enum qn_line {
    QN_LINE_OK,
    QN_LINE_END,       /* end of the input; Ctrl-D */
    QN_LINE_INTERRUPT, /* Ctrl-C, the line is forgotten */
    QN_LINE_ERROR,     /* printed */
} qn_line;

/* Needs qn_signals_start. history: file that lines of former runs are read from and these are written to, or
 * NULL. 0, or -1 after printing the error. */
int qn_lines_open(qn_lines **out, const char *history);
/* Puts the terminal back as it was found; writes the history. */
void qn_lines_close(qn_lines *l);

/* Is there somebody at a terminal? */
bool qn_lines_interactive(const qn_lines *l);

/* Does the terminal do no more than show characters (TERM is "dumb" or not set)? */
bool qn_terminal_is_dumb(void);

/* One line without its newline, malloc'ed with a NUL behind; it has newlines within only where they were
 * pasted. *typed (may be NULL): whether anything was typed before this ended. A last line without newline is
 * a line. */
qn_line qn_lines_read(qn_lines *l, const char *prompt, char **text, size_t *len, bool *typed);

#endif
