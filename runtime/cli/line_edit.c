#include "cli/line_edit.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "cli/signals.h"
#include "text/utf8.h"

enum {
    HISTORY = 1000,     /* lines */
    PASTED = 0x2424,    /* stands on the line for a newline that was pasted */
    ESCAPE_WAIT_MS = 20 /* the rest of an escape sequence comes at once */
};

/* Terminals put these around pasted text once asked to (xterm's "bracketed paste mode"). */
#define PASTE_ON  "\033[?2004h"
#define PASTE_OFF "\033[?2004l"
static const char paste_begin[] = "\033[200~", paste_end[] = "\033[201~";

struct qn_line_edit {
    EditLine *el;
    History *history;
    const char *file; /* of the history; NULL: none */
    FILE *screen;
    const char *prompt;
    struct termios usual; /* of the terminal */
    unsigned char bytes[64];
    size_t n; /* bytes read and not yet decoded */
    bool pasting, pasted_newline;
    bool typed, interrupted, failed;
};

static char *prompt_of(EditLine *el)
{
    qn_line_edit *e = NULL;
    el_get(el, EL_CLIENTDATA, &e);
    return (char *)e->prompt;
}

/* libedit prints through the locale, which must be one of UTF-8. Messages and numbers stay as they are. */
static void use_utf8(void)
{
    if (setlocale(LC_CTYPE, "") == NULL || strcmp(nl_langinfo(CODESET), "UTF-8") != 0) {
        setlocale(LC_CTYPE, "C.UTF-8");
    }
}

/* What a signal asks for while a line is edited. Returns false where the line ends by it. */
static bool handle_signal(qn_line_edit *e, int sig)
{
    switch (sig) {
    case SIGINT:
        e->interrupted = true;
        return false;
    case SIGWINCH:
        el_resize(e->el);
        return true;
    case SIGCONT:
        break;
    default: /* SIGTSTP comes back, the others do not */
        el_set(e->el, EL_PREP_TERM, 0);
        fputs(PASTE_OFF, e->screen);
        fflush(e->screen);
        tcsetattr(STDIN_FILENO, TCSADRAIN, &e->usual);
        qn_signals_raise(sig);
        break;
    }
    el_set(e->el, EL_PREP_TERM, 1);
    fputs(PASTE_ON, e->screen);
    el_set(e->el, EL_REFRESH);
    return true;
}

/* Waits for bytes and adds them. ms: how long, -1: for ever. 1: some came; 0: none, or the end; -1: the line
 * ends by a signal or an error. */
static int read_bytes(qn_line_edit *e, int ms)
{
    struct pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {qn_signals_fd(), POLLIN, 0}};
    for (;;) {
        int ready = poll(fds, 2, ms);
        int sig = qn_signals_take();
        if (sig != 0 && !handle_signal(e, sig)) {
            return -1;
        }
        if (ready == 0) {
            return 0;
        }
        if (ready < 0 || fds[0].revents == 0) {
            continue;
        }
        ssize_t n = read(STDIN_FILENO, e->bytes + e->n, sizeof e->bytes - e->n);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
            continue;
        }
        e->failed = n < 0 && errno != EIO; /* EIO: the terminal is gone, which ends the input */
        e->n += n > 0 ? (size_t)n : 0;
        return n > 0 ? 1 : e->failed ? -1 : 0;
    }
}

static void drop(qn_line_edit *e, size_t n)
{
    e->n -= n;
    memmove(e->bytes, e->bytes + n, e->n);
}

/* Is what was read a mark, or (0 < n < its length, nothing more) the beginning of one? */
static bool begins(const qn_line_edit *e, const char *mark, bool whole)
{
    size_t len = strlen(mark);
    return whole ? e->n >= len && memcmp(e->bytes, mark, len) == 0
                 : e->n < len && memcmp(e->bytes, mark, e->n) == 0;
}

/* Takes a mark of pasting from the front, where there is one; it may take a moment to come whole. */
static int take_mark(qn_line_edit *e)
{
    const char *mark = e->pasting ? paste_end : paste_begin;
    int rc = 1;
    while (rc > 0 && begins(e, mark, false)) {
        rc = read_bytes(e, ESCAPE_WAIT_MS);
    }
    if (begins(e, mark, true)) {
        drop(e, strlen(mark));
        e->pasting = !e->pasting;
    }
    return rc < 0 ? -1 : 0;
}

/* libedit's source of characters: 1, 0 at the end of the input, -1 to give the line up. */
static int get_char(EditLine *el, wchar_t *c)
{
    qn_line_edit *e = NULL;
    el_get(el, EL_CLIENTDATA, &e);
    for (;;) {
        uint32_t cp;
        if (e->n > 0 && e->bytes[0] == paste_begin[0] && take_mark(e) != 0) {
            return -1;
        }
        int len = e->n > 0 ? qn_utf8_next(e->bytes, e->n, &cp) : 0;
        if (len == 0) {
            int rc = read_bytes(e, -1);
            if (rc <= 0) {
                return rc;
            }
            e->typed = true;
            continue;
        }
        cp = len > 0 ? cp : QN_UTF8_REPLACEMENT;
        drop(e, (size_t)(len > 0 ? len : -len));
        if (cp == 0) {
            continue; /* a Ctrl-D that was typed before the prompt; libedit would quote the next key */
        }
        if (e->pasting && (cp == '\r' || cp == '\n')) {
            cp = PASTED;
            e->pasted_newline = true;
        } else if (e->pasting && cp < 0x20) {
            cp = ' '; /* a tab is not a wish for completion */
        }
        *c = (wchar_t)cp;
        return 1;
    }
}

/* Former runs' lines. A file that is not there yet is made, readable by its owner alone. */
static int load_history(qn_line_edit *e)
{
    HistEvent ev;
    struct stat st;
    if (e->file == NULL) {
        return 0;
    }
    int fd = open(e->file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int bad = fd < 0 || fstat(fd, &st) != 0;
    if (!bad && !S_ISREG(st.st_mode)) {
        errno = EINVAL;
        bad = 1;
    }
    if (bad) {
        qn_cli_error("--history %s: %s", e->file, strerror(errno));
    } else if (st.st_size > 0 && history(e->history, &ev, H_LOAD, e->file) < 0) {
        qn_cli_error("--history %s: not a file of lines that this option wrote", e->file);
        bad = 1;
    }
    if (fd >= 0) {
        close(fd);
    }
    return bad ? -1 : 0;
}

int qn_line_edit_open(qn_line_edit **out, FILE *screen, const char *file)
{
    HistEvent ev;
    qn_line_edit *e = qn_calloc(1, sizeof *e);
    if (e == NULL) {
        qn_cli_error("out of memory");
        return -1;
    }
    e->screen = screen;
    e->prompt = "";
    use_utf8();
    if (tcgetattr(STDIN_FILENO, &e->usual) != 0) {
        qn_cli_error("stdin: %s", strerror(errno));
        free(e);
        return -1;
    }
    e->el = el_init("quern", stdin, screen, stderr);
    e->history = history_init();
    if (e->el == NULL || e->history == NULL) {
        qn_cli_error("the line editor does not start");
        qn_line_edit_close(e);
        return -1;
    }
    el_set(e->el, EL_CLIENTDATA, e);
    el_set(e->el, EL_PROMPT, prompt_of);
    el_set(e->el, EL_EDITOR, "emacs");
    el_set(e->el, EL_HIST, history, e->history);
    history(e->history, &ev, H_SETSIZE, HISTORY);
    history(e->history, &ev, H_SETUNIQUE, 1);
    e->file = file;
    if (load_history(e) != 0) {
        e->file = NULL; /* what is not ours stays as it is */
        qn_line_edit_close(e);
        return -1;
    }
    el_set(e->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(e->el, NULL); /* the user's .editrc, if there is one */
    el_set(e->el, EL_GETCFN, get_char);
    *out = e;
    return 0;
}

void qn_line_edit_close(qn_line_edit *e)
{
    HistEvent ev;
    if (e == NULL) {
        return;
    }
    if (e->file != NULL && history(e->history, &ev, H_SAVE, e->file) < 0) {
        qn_cli_note("the history was not written to %s: %s", e->file, strerror(errno));
    }
    if (e->history != NULL) {
        history_end(e->history);
    }
    if (e->el != NULL) {
        el_end(e->el);
    }
    tcsetattr(STDIN_FILENO, TCSADRAIN, &e->usual);
    free(e);
}

/* n characters as UTF-8; newlines that were pasted come back. */
static char *encode(const qn_line_edit *e, const wchar_t *line, int n, size_t *len)
{
    char *text = malloc(4 * (size_t)n + 1);
    if (text == NULL) {
        qn_cli_error("out of memory for a line");
        return NULL;
    }
    *len = 0;
    for (int i = 0; i < n; i++) {
        uint32_t cp = (uint32_t)line[i];
        cp = cp == PASTED && e->pasted_newline ? '\n' : cp;
        *len += (size_t)qn_utf8_put(cp, (unsigned char *)text + *len);
    }
    text[*len] = 0;
    return text;
}

qn_line qn_line_edit_read(qn_line_edit *e, const char *prompt, char **text, size_t *len, bool *typed)
{
    int n = 0;
    HistEvent ev;
    e->prompt = prompt;
    e->typed = e->interrupted = e->failed = e->pasted_newline = e->pasting = false;
    qn_signals_hold(true);
    el_set(e->el, EL_PREP_TERM,
           1); /* before the prompt shows, so that keys pressed by then are read as keys */
    fputs(PASTE_ON, e->screen);
    const wchar_t *line = el_wgets(e->el, &n);
    fputs(PASTE_OFF, e->screen);
    if (line == NULL && !e->failed) {
        fputs(e->interrupted ? "^C\n" : "\n", e->screen);
    }
    fflush(e->screen);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &e->usual); /* libedit's idea of the usual mode is its own */
    qn_signals_hold(false);
    *typed = e->typed;
    if (line == NULL || n <= 0) {
        if (e->failed) {
            qn_cli_error("cannot read from the terminal");
        }
        return e->interrupted ? QN_LINE_INTERRUPT : e->failed ? QN_LINE_ERROR : QN_LINE_END;
    }
    n -= line[n - 1] == L'\n' || line[n - 1] == L'\r';
    *text = encode(e, line, n, len);
    if (*text == NULL) {
        return QN_LINE_ERROR;
    }
    if (*len > 0) {
        history(e->history, &ev, H_ENTER, *text);
    }
    return QN_LINE_OK;
}
