/* stop.h: finds the first of several stop strings in text that arrives in pieces.
 *
 * Text that may be the beginning of a stop string is held back, so that a stop string which spans tokens
 * never shows. The stop string that is complete first wins; of several complete at once, the longest. */
#ifndef QN_TEXT_STOP_H
#define QN_TEXT_STOP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

typedef struct qn_stop qn_stop;

/* Copies the n strings; an empty one is an error. n = 0: nothing ever stops. */
int qn_stop_new(qn_stop **out, const char *const *strings, size_t n, qn_err *err);
void qn_stop_free(qn_stop *s);

/* Takes n bytes. *text, *len: the bytes that are certainly not part of a stop string (valid until the next
 * call). *found: index of the stop string met, else -1. Once one was met, all further text is swallowed. */
int qn_stop_feed(qn_stop *s, const void *bytes, size_t n, const char **text, size_t *len, int *found,
                 qn_err *err);

/* The bytes still held back, at the end of the text; nothing after a stop string. */
void qn_stop_flush(qn_stop *s, const char **text, size_t *len);

#endif
