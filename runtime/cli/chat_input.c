/* chat_input.c: lines to messages. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/chat.h"
#include "cli/cli.h"

static const char quotes[] = "\"\"\"";
enum { N_QUOTES = sizeof quotes - 1 };

typedef struct text {
    char *data;
    size_t len;
} text;

/* Adds n bytes; 0, or -1 after printing the error. */
static int add(text *t, const char *data, size_t n)
{
    char *p = realloc(t->data, t->len + n + 1);
    if (p == NULL) {
        qn_cli_error("out of memory for a message of %zu bytes", t->len + n);
        return -1;
    }
    memcpy(p + t->len, data, n);
    t->data = p;
    t->len += n;
    p[t->len] = 0;
    return 0;
}

static bool ends_with_quotes(const char *line, size_t len)
{
    return len >= N_QUOTES && memcmp(line + len - N_QUOTES, quotes, N_QUOTES) == 0;
}

/* Lines up to one that ends with three quotes, which `first` (without its three) may do already. Ctrl-D ends
 * them too. */
static qn_line read_block(qn_chat *c, const char *first, size_t len, text *out, bool *typed)
{
    char *line = NULL;
    qn_line rc = QN_LINE_OK;
    bool begun = len > 0; /* a newline goes before the next line */
    if (ends_with_quotes(first, len)) {
        return add(out, first, len - N_QUOTES) == 0 ? QN_LINE_OK : QN_LINE_ERROR;
    }
    if (add(out, first, len) != 0) {
        return QN_LINE_ERROR;
    }
    for (bool end = false; !end; begun = true) {
        rc = qn_lines_read(c->lines, "... ", &line, &len, typed);
        if (rc != QN_LINE_OK) {
            return rc == QN_LINE_END ? QN_LINE_OK : rc;
        }
        end = ends_with_quotes(line, len);
        len -= end ? N_QUOTES : 0;
        bool bad = begun && !(end && len == 0) && add(out, "\n", 1) != 0;
        bad = bad || add(out, line, len) != 0;
        free(line);
        if (bad) {
            return QN_LINE_ERROR;
        }
    }
    return QN_LINE_OK;
}

/* Does the line end with a backslash that does not follow another one? */
static bool goes_on(const char *line, size_t len)
{
    size_t n = 0;
    while (n < len && line[len - 1 - n] == '\\') {
        n++;
    }
    return n % 2 == 1;
}

/* The line, and those behind it as long as each ends with a backslash. */
static qn_line read_on(qn_chat *c, char *line, size_t len, text *out, bool *typed)
{
    bool more = goes_on(line, len);
    if (add(out, line, len - more) != 0) {
        return QN_LINE_ERROR;
    }
    while (more) {
        qn_line rc = qn_lines_read(c->lines, "... ", &line, &len, typed);
        if (rc != QN_LINE_OK) {
            return rc == QN_LINE_END ? QN_LINE_OK : rc;
        }
        more = goes_on(line, len);
        bool bad = add(out, "\n", 1) != 0 || add(out, line, len - more) != 0;
        free(line);
        if (bad) {
            return QN_LINE_ERROR;
        }
    }
    return QN_LINE_OK;
}

qn_line qn_chat_read(qn_chat *c, char **out, size_t *len, bool *is_command, bool *typed)
{
    char *line;
    size_t n;
    text t = {0};
    *is_command = false;
    *out = NULL;
    *len = 0;
    qn_line rc = qn_lines_read(c->lines, "> ", &line, &n, typed);
    if (rc != QN_LINE_OK) {
        return rc;
    }
    if (!c->commands) {
        rc = add(&t, line, n) == 0 ? QN_LINE_OK : QN_LINE_ERROR;
    } else if (n >= N_QUOTES && memcmp(line, quotes, N_QUOTES) == 0) {
        rc = read_block(c, line + N_QUOTES, n - N_QUOTES, &t, typed);
    } else {
        *is_command = n > 0 && line[0] == '/' && !(n > 1 && line[1] == '/');
        size_t slash = n > 1 && line[0] == '/' && line[1] == '/';
        rc = *is_command ? (add(&t, line, n) == 0 ? QN_LINE_OK : QN_LINE_ERROR)
                         : read_on(c, line + slash, n - slash, &t, typed);
    }
    free(line);
    if (rc != QN_LINE_OK) {
        free(t.data);
        return rc;
    }
    *out = t.data;
    *len = t.len;
    return QN_LINE_OK;
}
