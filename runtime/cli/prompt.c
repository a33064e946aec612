#include "cli/prompt.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "text/utf8.h"

const qn_prompt_args qn_prompt_args_defaults = {.escape = true, .special = 1};

static const char *const off_on[] = {"off", "on", NULL};

static const qn_opt prompt_opts[] = {
    {"-p, --prompt", "TEXT", "The prompt. Escapes \\n \\t \\r \\\\ \\\" \\' \\xHH are resolved.", QN_OPT_STR,
     offsetof(qn_prompt_args, text)},
    {"-f, --file", "FILE",
     "A file with the prompt, put behind -p; - is stdin. One newline at its end is dropped. Without -p and "
     "-f the "
     "prompt is read from stdin, unless that is a terminal.",
     QN_OPT_STR, offsetof(qn_prompt_args, file)},
    {"--no-escape", NULL, "Backslashes in -p and --stop stay as they are.", QN_OPT_UNSET,
     offsetof(qn_prompt_args, escape)},
    {"--special", "on|off",
     "Whether control tokens spelled out in the prompt become those tokens. Default: on; turn it off for "
     "text you "
     "do not trust.",
     QN_OPT_CHOICE, offsetof(qn_prompt_args, special), 0, 0, off_on},
    {"--verbose-prompt, --show-prompt", NULL, "Show the prompt's ids and pieces on stderr.", QN_OPT_FLAG,
     offsetof(qn_prompt_args, show)},
    {0},
};

qn_opt_group qn_prompt_group(qn_prompt_args *a)
{
    return (qn_opt_group){"Prompt", prompt_opts, a};
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

size_t qn_unescape(char *text, size_t len)
{
    static const char from[] = "ntr\\\"'", to[] = "\n\t\r\\\"'";
    size_t out = 0;
    for (size_t i = 0; i < len; i++) {
        const char *known =
            text[i] == '\\' && i + 1 < len && text[i + 1] != 0 ? strchr(from, text[i + 1]) : NULL;
        if (known != NULL) {
            text[out++] = to[known - from];
            i++;
        } else if (text[i] == '\\' && i + 3 < len && text[i + 1] == 'x' && hex_digit(text[i + 2]) >= 0 &&
                   hex_digit(text[i + 3]) >= 0) {
            text[out++] = (char)(hex_digit(text[i + 2]) * 16 + hex_digit(text[i + 3]));
            i += 3;
        } else {
            text[out++] = text[i];
        }
    }
    return out;
}

int qn_prompt_read(const qn_prompt_args *a, const char *command, char **text, size_t *len)
{
    const char *file = a->file;
    *text = NULL;
    *len = 0;
    if (a->text == NULL && file == NULL) {
        if (isatty(STDIN_FILENO)) {
            return qn_cli_usage_error(command, "no prompt: give -p TEXT, -f FILE, or pipe one in");
        }
        file = "-";
    }
    char *head = strdup(a->text != NULL ? a->text : ""), *tail = NULL;
    if (head == NULL) {
        return qn_cli_error("out of memory for the prompt");
    }
    size_t n_head = strlen(head), n_tail = 0;
    n_head = a->escape ? qn_unescape(head, n_head) : n_head;
    if (file != NULL) {
        if (qn_cli_read_file(file, &tail, &n_tail) != 0) {
            free(head);
            return QN_EXIT_ERROR;
        }
        n_tail -= n_tail > 0 && tail[n_tail - 1] == '\n';
    }
    char *joined = realloc(head, n_head + n_tail + 1);
    if (joined == NULL) {
        free(head);
        free(tail);
        return qn_cli_error("out of memory for the prompt");
    }
    if (n_tail > 0) {
        memcpy(joined + n_head, tail, n_tail);
    }
    joined[n_head + n_tail] = 0;
    free(tail);
    *text = joined;
    *len = n_head + n_tail;
    return -1;
}

int qn_prompt_ids(const quern_model *m, bool special, const char *text, size_t len, int32_t **ids, size_t *n,
                  qn_err *err)
{
    if (quern_tokenize(m, text, len, true, special, ids, n, qn_public_err(err)) != 0) {
        return -1;
    }
    /* Some models want an end token behind a text; a text that is to go on has none. */
    if (len > 0 && *n > 0 && qn_tokenizer_add_eos(m->tok) &&
        (*ids)[*n - 1] == qn_tokenizer_role(m->tok, QN_ROLE_EOS)) {
        --*n;
    }
    if (*n == 0) {
        free(*ids);
        *ids = NULL;
        return qn_fail(err, "empty prompt: the model has no begin-of-text token to start from");
    }
    return 0;
}

int qn_prompt_tokens(const quern_model *m, const qn_prompt_args *a, const char *text, size_t len,
                     int32_t **ids, size_t *n)
{
    qn_err err;
    if (qn_prompt_ids(m, a->special != 0, text, len, ids, n, &err) != 0) {
        qn_cli_error("%s", err.text);
        return -1;
    }
    return 0;
}

const char *qn_piece_text(const quern_model *m, int32_t id, char *text, size_t size)
{
    size_t len = 0, n = 0;
    const char *piece = m->tok != NULL ? qn_token_piece(m->tok, id, true, &len) : NULL;
    text[0] = '\0';
    for (size_t k = 0; k < len && n + 5 < size;) {
        uint32_t cp;
        int whole = qn_utf8_next((const unsigned char *)piece + k, len - k, &cp);
        unsigned char c = (unsigned char)piece[k];
        if (c == '\n') {
            n += (size_t)snprintf(text + n, size - n, "\\n");
        } else if (whole < 1 || c < 0x20 || c == 0x7f || (cp >= 0x80 && cp < 0xa0)) {
            n += (size_t)snprintf(text + n, size - n, "\\x%02x", c);
            whole = 1;
        } else {
            n += (size_t)snprintf(text + n, size - n, "%.*s", whole, piece + k);
        }
        k += (size_t)(whole > 0 ? whole : 1);
    }
    return text;
}

void qn_prompt_show(const quern_model *m, const int32_t *ids, size_t n, bool show)
{
    char text[512];
    if (show) {
        fprintf(stderr, "quern: prompt: %zu tokens\n", n);
    }
    qn_cli_debug(QN_DEBUG_PROMPT, "%zu tokens", n);
    for (size_t i = 0; i < n; i++) {
        qn_piece_text(m, ids[i], text, sizeof text);
        if (show) {
            fprintf(stderr, "%8d  '%s'\n", ids[i], text);
        }
        qn_cli_debug(QN_DEBUG_PROMPT, "%d '%s'", ids[i], text);
    }
}

char **qn_stops_copy(const char *const *texts, size_t n, bool escape)
{
    char **copies = calloc(n + 1, sizeof *copies);
    for (size_t i = 0; copies != NULL && i < n; i++) {
        char *s = strdup(texts[i]);
        if (s == NULL) {
            qn_stops_free(copies);
            return NULL;
        }
        copies[i] = s;
        if (escape) {
            s[qn_unescape(s, strlen(s))] = 0;
        }
    }
    return copies;
}

int qn_stops_of_options(const char *command, const qn_strs *texts, bool escape, char ***out)
{
    *out = qn_stops_copy(texts->items, texts->n, escape);
    if (*out == NULL) {
        return qn_cli_error("out of memory");
    }
    for (size_t i = 0; i < texts->n; i++) {
        if ((*out)[i][0] == 0) {
            qn_stops_free(*out);
            *out = NULL;
            return qn_cli_usage_error(command, "--stop: an empty text would end every answer");
        }
    }
    return -1;
}

void qn_stops_free(char **copies)
{
    for (size_t i = 0; copies != NULL && copies[i] != NULL; i++) {
        free(copies[i]);
    }
    free(copies);
}
