/* quern tokenize, quern detokenize: text to token ids and back, without the weights. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/opts.h"
#include "cli/tok_cases.h"
#include "cli/tok_open.h"

static const char *const off_on[] = {"off", "on", NULL};

typedef struct tokenize_args {
    const char *model, *configs, *pre, *text, *file, *cases;
    int add_special, parse_special; /* indices in off_on */
    bool pieces, json;
} tokenize_args;

static const qn_opt tokenize_opts[] = {
    {"-m, --model", "FILE", "The GGUF file, where it is not the first argument.", QN_OPT_STR,
     offsetof(tokenize_args, model)},
    {"-p, --prompt", "TEXT", "The text, taken literally: a backslash is a backslash.", QN_OPT_STR,
     offsetof(tokenize_args, text)},
    {"-f, --file", "FILE", "The text is in this file; - is stdin.", QN_OPT_STR,
     offsetof(tokenize_args, file)},
    {"--add-special", "on|off", "Add the tokens that the model wants around a text. Default: on.",
     QN_OPT_CHOICE, offsetof(tokenize_args, add_special), 0, 0, off_on},
    {"--parse-special", "on|off", "Control tokens spelled out in the text become those tokens. Default: on.",
     QN_OPT_CHOICE, offsetof(tokenize_args, parse_special), 0, 0, off_on},
    {"--pieces", NULL, "One token a line: id, type and text.", QN_OPT_FLAG, offsetof(tokenize_args, pieces)},
    {"--json", NULL, "One JSON object: ids, and the text of each (malformed UTF-8 as U+FFFD).", QN_OPT_FLAG,
     offsetof(tokenize_args, json)},
    {"--cases", "FILE",
     "Tokenise each text of a file of expected ids (one JSON object a line: text or bytes_hex, add_special, "
     "parse_special, ids); print each mismatch and 'N of M'. Status 0 only if all match.",
     QN_OPT_STR, offsetof(tokenize_args, cases)},
    {"--pre", "NAME", "Cut text into words as this pre-tokenizer does, whatever the file names.", QN_OPT_STR,
     offsetof(tokenize_args, pre)},
    {"--model-configs", "DIR", "Read model configs from DIR instead of those inside the program.", QN_OPT_STR,
     offsetof(tokenize_args, configs)},
    {0},
};

/* The text to tokenise, malloc'ed. -1: go on, else the exit status. */
static int read_text(const tokenize_args *a, char **text, size_t *len)
{
    if (a->text && a->file) {
        return qn_cli_usage_error("tokenize", "-p and -f exclude each other");
    }
    if (a->text) {
        *text = strdup(a->text);
        *len = strlen(a->text);
        return *text ? -1 : qn_cli_error("out of memory");
    }
    if (!a->file && isatty(STDIN_FILENO)) {
        return qn_cli_usage_error("tokenize", "no text: give -p TEXT, -f FILE, or a pipe");
    }
    return qn_cli_read_file(a->file ? a->file : "-", text, len) ? QN_EXIT_ERROR : -1;
}

static int print_pieces(const qn_tokenizer *t, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *piece = qn_token_piece(t, ids[i], true, &len);
        char *quoted = qn_json_quoted(piece, len);
        if (!quoted) {
            return qn_cli_error("out of memory");
        }
        printf("%7d  %-12s  %s\n", ids[i], qn_token_attr_name(qn_token_get_attr(t, ids[i])), quoted);
        free(quoted);
    }
    return QN_EXIT_OK;
}

static int print_json(const qn_tokenizer *t, const int32_t *ids, size_t n)
{
    json_t *o = json_object();
    int bad = 0;
    bad |= qn_json_set(o, "n", json_integer((json_int_t)n));
    bad |= qn_json_set(o, "ids", qn_json_i32s(ids, n));
    json_t *pieces = json_array();
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *piece = qn_token_piece(t, ids[i], true, &len);
        bad |= json_array_append_new(pieces, qn_json_text(piece, len));
    }
    bad |= qn_json_set(o, "pieces", pieces);
    return qn_json_print(qn_json_whole(o, bad), JSON_COMPACT);
}

static int tokenize(const qn_tokenizer *t, const tokenize_args *a, const char *text, size_t len)
{
    int32_t *ids;
    size_t n;
    qn_err err;
    if (qn_tokenize(t, text, len, a->add_special, a->parse_special, &ids, &n, &err)) {
        return qn_cli_error("%s", err.text);
    }
    int rc = QN_EXIT_OK;
    if (a->json) {
        rc = print_json(t, ids, n);
    } else if (a->pieces) {
        rc = print_pieces(t, ids, n);
    } else {
        qn_print_ids(stdout, "", ids, n);
        putchar('\n');
    }
    free(ids);
    return rc;
}

int qn_cmd_tokenize(int argc, char **argv)
{
    tokenize_args a = {.add_special = 1, .parse_special = 1};
    const qn_opt_group groups[] = {{"Options", tokenize_opts, &a}, qn_common_group};
    const qn_usage usage = {
        "tokenize",
        "MODEL [-p TEXT | -f FILE | --cases FILE] [options]",
        "Prints the token ids of a text on one line. Without -p and -f the text is read from stdin.",
        groups,
        2,
        1};
    const char *model;
    int rc = qn_opts_parse(&usage, argc, argv, &model);
    if (rc >= 0) {
        return rc;
    }
    a.model = a.model ? a.model : model;
    if (!a.model) {
        return qn_cli_usage_error("tokenize", "no model given");
    }
    if (a.cases && (a.text || a.file)) {
        return qn_cli_usage_error("tokenize", "--cases brings its own texts: no -p or -f with it");
    }
    char *text = NULL;
    size_t len = 0;
    if (!a.cases && (rc = read_text(&a, &text, &len)) >= 0) {
        return rc;
    }
    qn_tokenizer *t = qn_tok_open(a.model, a.configs, a.pre);
    rc = QN_EXIT_ERROR;
    if (t) {
        rc = a.cases ? qn_tok_run_cases(t, a.cases) : tokenize(t, &a, text, len);
    }
    qn_tokenizer_free(t);
    free(text);
    return rc;
}

typedef struct detokenize_args {
    const char *model, *configs, *file;
    int special; /* index in off_on */
    bool keep_prefix, json;
} detokenize_args;

static const qn_opt detokenize_opts[] = {
    {"-m, --model", "FILE", "The GGUF file, where it is not the first argument.", QN_OPT_STR,
     offsetof(detokenize_args, model)},
    {"-f, --file", "FILE",
     "The ids are in this file (decimal numbers, anything else between them); - is stdin.", QN_OPT_STR,
     offsetof(detokenize_args, file)},
    {"--special", "on|off", "Print the text of control tokens. Default: off.", QN_OPT_CHOICE,
     offsetof(detokenize_args, special), 0, 0, off_on},
    {"--keep-prefix", NULL, "Keep the space that some models put before a text.", QN_OPT_FLAG,
     offsetof(detokenize_args, keep_prefix)},
    {"--json", NULL, "One JSON object with the text (malformed UTF-8 as U+FFFD).", QN_OPT_FLAG,
     offsetof(detokenize_args, json)},
    {"--model-configs", "DIR", "Read model configs from DIR instead of those inside the program.", QN_OPT_STR,
     offsetof(detokenize_args, configs)},
    {0},
};

/* A growing list of ids. */
struct id_list {
    int32_t *id;
    size_t n, size;
};

/* The numbers of a text, with blanks, commas and brackets between them. */
static int parse_ids(struct id_list *l, const char *text)
{
    for (const char *p = text + strspn(text, " \t\r\n,[]"); *p; p += strspn(p, " \t\r\n,[]")) {
        char *end;
        errno = 0;
        long v = strtol(p, &end, 10);
        if (end == p || errno || v < 0 || v > INT32_MAX || (*end && !strchr(" \t\r\n,[]", *end))) {
            qn_cli_error("'%.*s' is not a token id", (int)strcspn(p, " \t\r\n,[]"), p);
            return -1;
        }
        if (l->n == l->size) {
            l->size = l->size * 2 + 64;
            int32_t *id = realloc(l->id, l->size * sizeof *id);
            if (!id) {
                qn_cli_error("out of memory");
                return -1;
            }
            l->id = id;
        }
        l->id[l->n++] = (int32_t)v;
        p = end;
    }
    return 0;
}

static int read_ids(const detokenize_args *a, const char *const *arg, struct id_list *l)
{
    for (size_t i = 0; arg[i]; i++) {
        if (parse_ids(l, arg[i])) {
            return -1;
        }
    }
    if (arg[0] && !a->file) {
        return 0;
    }
    char *data;
    size_t size;
    if (qn_cli_read_file(a->file ? a->file : "-", &data, &size)) {
        return -1;
    }
    int rc = parse_ids(l, data);
    free(data);
    return rc;
}

static int detokenize(const qn_tokenizer *t, const detokenize_args *a, const struct id_list *l)
{
    char *text;
    size_t len;
    qn_err err;
    unsigned flags = (a->special ? QN_DETOK_SPECIAL : 0) | (a->keep_prefix ? QN_DETOK_KEEP_PREFIX : 0);
    if (qn_detokenize(t, l->id, l->n, flags, &text, &len, &err)) {
        return qn_cli_error("%s", err.text);
    }
    int rc = QN_EXIT_OK;
    if (a->json) {
        json_t *o = json_object();
        int bad = qn_json_set(o, "text", qn_json_text(text, len));
        rc = qn_json_print(qn_json_whole(o, bad), JSON_COMPACT);
    } else {
        fwrite(text, 1, len, stdout);
    }
    free(text);
    return rc;
}

int qn_cmd_detokenize(int argc, char **argv)
{
    detokenize_args a = {0};
    const qn_opt_group groups[] = {{"Options", detokenize_opts, &a}, qn_common_group};
    const qn_usage usage = {
        "detokenize",
        "MODEL [ID...] [options]",
        "Writes the bytes of a sequence of token ids to stdout, and nothing else. Without ids and "
        "-f they are read from stdin.",
        groups,
        2,
        argc};
    const char **arg = calloc((size_t)argc + 1, sizeof *arg);
    if (!arg) {
        return qn_cli_error("out of memory");
    }
    int rc = qn_opts_parse(&usage, argc, argv, arg);
    struct id_list l = {0};
    if (rc < 0) {
        const char *const *ids = (const char *const *)arg + (a.model ? 0 : 1);
        a.model = a.model ? a.model : arg[0];
        qn_tokenizer *t = NULL;
        if (!a.model) {
            rc = qn_cli_usage_error("detokenize", "no model given");
        } else if (!ids[0] && !a.file && isatty(STDIN_FILENO)) {
            rc = qn_cli_usage_error("detokenize", "no ids: give them as arguments, -f FILE, or a pipe");
        } else if (read_ids(&a, ids, &l) || !(t = qn_tok_open(a.model, a.configs, NULL))) {
            rc = QN_EXIT_ERROR;
        } else {
            rc = detokenize(t, &a, &l);
        }
        qn_tokenizer_free(t);
    }
    free(l.id);
    free(arg);
    return rc;
}
