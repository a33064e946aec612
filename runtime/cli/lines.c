#include "cli/lines.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "cli/line_edit.h"
#include "cli/signals.h"

struct qn_lines {
    qn_line_edit *edit; /* NULL: lines as they come */
    bool interactive;
    char *data; /* read and not yet handed out: [at, n) */
    size_t at, n, cap;
    bool ended;
};

bool qn_terminal_is_dumb(void)
{
    const char *term = getenv("TERM");
    return term == NULL || *term == 0 || strcmp(term, "dumb") == 0;
}

int qn_lines_open(qn_lines **out, const char *history)
{
    qn_lines *l = qn_calloc(1, sizeof *l);
    if (l == NULL) {
        qn_cli_error("out of memory");
        return -1;
    }
    FILE *screen = isatty(STDOUT_FILENO) ? stdout : isatty(STDERR_FILENO) ? stderr : NULL;
    bool dumb = qn_terminal_is_dumb() || screen == NULL;
    l->interactive = isatty(STDIN_FILENO);
    if (l->interactive && !dumb && qn_line_edit_open(&l->edit, screen, history) != 0) {
        qn_lines_close(l);
        return -1;
    }
    *out = l;
    return 0;
}

void qn_lines_close(qn_lines *l)
{
    if (l != NULL) {
        qn_line_edit_close(l->edit);
        free(l->data);
        free(l);
    }
}

bool qn_lines_interactive(const qn_lines *l)
{
    return l->interactive;
}

/* The line up to `end`, and past the newline there. Of the two characters that end a line in other systems'
 * files the first goes, too. */
static qn_line hand_out(qn_lines *l, size_t end, char **text, size_t *len)
{
    *len = end - l->at;
    *len -= end<l->n && * len> 0 && l->data[end - 1] == '\r';
    *text = malloc(*len + 1);
    if (*text == NULL) {
        qn_cli_error("out of memory for a line of %zu bytes", *len);
        return QN_LINE_ERROR;
    }
    if (*len > 0) {
        memcpy(*text, l->data + l->at, *len);
    }
    (*text)[*len] = 0;
    l->at = end < l->n ? end + 1 : end;
    return QN_LINE_OK;
}

/* Room for another piece of input. */
static int make_room(qn_lines *l)
{
    enum { PIECE = 1 << 16 };
    if (l->at > 0) {
        memmove(l->data, l->data + l->at, l->n - l->at);
        l->n -= l->at;
        l->at = 0;
    }
    if (l->cap - l->n < PIECE) {
        size_t cap = 2 * l->n + PIECE;
        char *data = realloc(l->data, cap);
        if (data == NULL) {
            qn_cli_error("out of memory for a line of more than %zu bytes", l->n);
            return -1;
        }
        l->data = data;
        l->cap = cap;
    }
    return 0;
}

/* Waits for input or Ctrl-C. */
static qn_line more(qn_lines *l)
{
    struct pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {qn_signals_fd(), POLLIN, 0}};
    if (make_room(l) != 0) {
        return QN_LINE_ERROR;
    }
    for (;;) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR) {
            qn_cli_error("stdin: %s", strerror(errno));
            return QN_LINE_ERROR;
        }
        if (qn_signals_take() == SIGINT) {
            return QN_LINE_INTERRUPT;
        }
        if (fds[0].revents == 0) {
            continue;
        }
        ssize_t n = read(STDIN_FILENO, l->data + l->n, l->cap - l->n);
        if (n >= 0) {
            l->n += (size_t)n;
            l->ended = n == 0;
            return QN_LINE_OK;
        }
        if (errno != EINTR && errno != EAGAIN) {
            qn_cli_error("stdin: %s", strerror(errno));
            return QN_LINE_ERROR;
        }
    }
}

qn_line qn_lines_read(qn_lines *l, const char *prompt, char **text, size_t *len, bool *typed)
{
    bool unused;
    *text = NULL;
    *len = 0;
    typed = typed != NULL ? typed : &unused;
    *typed = false;
    if (l->edit != NULL) {
        return qn_line_edit_read(l->edit, prompt, text, len, typed);
    }
    if (l->interactive) {
        fputs(prompt, stderr);
    }
    l->ended = l->ended && !l->interactive; /* a terminal goes on after Ctrl-D */
    for (size_t seen = l->at;;) {
        const char *end = l->n > seen ? memchr(l->data + seen, '\n', l->n - seen) : NULL;
        if (end != NULL) {
            return hand_out(l, (size_t)(end - l->data), text, len);
        }
        if (l->ended) {
            return l->n > l->at ? hand_out(l, l->n, text, len) : QN_LINE_END;
        }
        seen = l->n - l->at; /* from the front, where make_room puts them */
        qn_line rc = more(l);
        if (rc != QN_LINE_OK) {
            return rc;
        }
    }
}
