/* line_edit.h: a line typed at a terminal, edited by libedit. */
#ifndef QN_CLI_LINE_EDIT_H
#define QN_CLI_LINE_EDIT_H

#include <stdio.h>

#include "cli/lines.h"

typedef struct qn_line_edit qn_line_edit;

/* Reads from stdin, shows on `screen`. Returns and parameters: as in lines.h; file: of the history. */
int qn_line_edit_open(qn_line_edit **out, FILE *screen, const char *file);
void qn_line_edit_close(qn_line_edit *e);
qn_line qn_line_edit_read(qn_line_edit *e, const char *prompt, char **text, size_t *len, bool *typed);

#endif
