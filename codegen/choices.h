/* choices.h: what was chosen by measuring, kept beside the compiled kernels: one text file for everything
 * that a choice holds for (a card, a driver, the libraries; its first line, whose digest names the file),
 * with a line for each choice and a digest of all at its end. A file that is not whole is ignored as a whole.
 */
#ifndef QN_CODEGEN_CHOICES_H
#define QN_CODEGEN_CHOICES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/dynlib.h"
#include "base/error.h"

enum { QN_CHOICES_HEAD = 384, QN_CHOICES_LINE = 512, QN_CHOICES_MOST = 4096 };

typedef struct qn_choice_line {
    char *key, *value;
} qn_choice_line;

typedef struct qn_choices {
    char path[QN_PATH_MAX + 64], head[QN_CHOICES_HEAD];
    qn_choice_line *lines; /* [n] */
    int n;
    qn_err why; /* text: why a file that is there was ignored; "" */
} qn_choices;

/* Reads the choices of a kind ("products", "kernels") that hold for `head`, one line of text. A file that is
 * missing or ignored gives none. -1: out of memory, or a path that is too long. */
int qn_choices_open(qn_choices *c, const char *dir, const char *kind, const char *head, qn_err *err);
void qn_choices_free(qn_choices *c);

/* NULL: there is none. */
const char *qn_choices_get(const qn_choices *c, const char *key);
/* Adds or replaces one. Neither text holds a newline, and the key no ": ". false: out of memory, or too many.
 */
bool qn_choices_put(qn_choices *c, const char *key, const char *value);
/* Writes all of them; readers see the old file or the new one. The folder is made where it is missing. */
int qn_choices_keep(const qn_choices *c, qn_err *err);

/* Every such file of a folder, in the order of their names: fn gets it (c->why says what is wrong with one
 * that is damaged) until it returns non-zero, which is returned. A folder that is not there has none; -1: out
 * of memory. */
int qn_choices_each(const char *dir, int (*fn)(void *user, const qn_choices *c), void *user, qn_err *err);

#endif
