/* chat_command.c: lines that begin with a slash. What they print goes to stderr, as it is no answer. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/chat.h"
#include "cli/cli.h"
#include "model/yaml.h"

typedef struct command {
    const char *name, *aliases[2], *args, *help;
    qn_chat_next (*run)(qn_chat *c, const char *args); /* blanks around args are gone */
    bool needs_args;
} command;

static qn_chat_next run_help(qn_chat *c, const char *args);

static qn_chat_next run_clear(qn_chat *c, const char *args)
{
    (void)args;
    qn_conversation_cut(&c->conv, qn_conversation_system(&c->conv) != NULL);
    qn_cli_note("a new conversation%s", c->conv.n > 0 ? "; the system message stays" : "");
    return QN_CHAT_GO_ON;
}

static qn_chat_next run_regen(qn_chat *c, const char *args)
{
    (void)args;
    size_t n = c->conv.n;
    while (n > 0 && c->conv.turns[n - 1].role == QN_CHAT_ASSISTANT) {
        n--;
    }
    if (n == 0 || c->conv.turns[n - 1].role != QN_CHAT_USER) {
        qn_cli_error("/regen: there is no message to answer");
        return QN_CHAT_FAILED;
    }
    if (n < c->conv.n) {
        c->sampling.params.seed++; /* the same draws would give the same answer */
        qn_conversation_cut(&c->conv, n);
    }
    return qn_chat_answer(c);
}

static qn_chat_next run_system(qn_chat *c, const char *args)
{
    const qn_turn *now = qn_conversation_system(&c->conv);
    if (*args == 0) {
        fprintf(stderr, "%s\n", now != NULL ? now->content : "(no system message)");
        return QN_CHAT_GO_ON;
    }
    bool none = strcmp(args, "\"\"") == 0;
    if (qn_conversation_set_system(&c->conv, none ? NULL : args, none ? 0 : strlen(args)) != 0) {
        return QN_CHAT_FAILED;
    }
    qn_cli_note(none ? "no system message from here on" : "the system message is set");
    return QN_CHAT_GO_ON;
}

static qn_chat_next run_save(qn_chat *c, const char *args)
{
    if (c->conv.n == 0) {
        qn_cli_error("/save: there are no messages yet");
        return QN_CHAT_FAILED;
    }
    if (qn_conversation_save(&c->conv, args) != 0) {
        return QN_CHAT_FAILED;
    }
    qn_cli_note("%zu messages written to %s", c->conv.n, args);
    return QN_CHAT_GO_ON;
}

static qn_chat_next run_load(qn_chat *c, const char *args)
{
    qn_conversation loaded = {0};
    int rc = qn_conversation_load(&loaded, args);
    size_t n = loaded.n;
    bool open = n > 0 && loaded.turns[n - 1].role == QN_CHAT_USER;
    if (rc == 0 && !open) {
        rc = qn_conversation_add(&loaded, QN_CHAT_USER, "Hi", 2); /* as it will be when it is answered */
    }
    if (rc != 0 || qn_chat_try(c, &loaded) != 0) {
        qn_conversation_free(&loaded);
        return QN_CHAT_FAILED;
    }
    qn_conversation_cut(&loaded, n);
    qn_conversation_free(&c->conv);
    c->conv = loaded;
    qn_cli_note("%zu messages read from %s%s", loaded.n, args, open ? "; /regen answers the last one" : "");
    return QN_CHAT_GO_ON;
}

static qn_chat_next run_exit(qn_chat *c, const char *args)
{
    (void)c;
    (void)args;
    return QN_CHAT_LEAVE;
}

typedef enum kind { FLOAT, INT, SEED, THINK } kind;

typedef struct param {
    const char *name;
    kind kind;
    size_t offset; /* in qn_chat */
    int min;       /* of an INT */
} param;

static const param params[] = {
    {"temp", FLOAT, offsetof(qn_chat, sampling.params.temperature), 0},
    {"top-k", INT, offsetof(qn_chat, sampling.params.top_k), 0},
    {"top-p", FLOAT, offsetof(qn_chat, sampling.params.top_p), 0},
    {"min-p", FLOAT, offsetof(qn_chat, sampling.params.min_p), 0},
    {"repeat-penalty", FLOAT, offsetof(qn_chat, sampling.params.repeat_penalty), 0},
    {"repeat-last-n", INT, offsetof(qn_chat, sampling.params.repeat_last_n), -1},
    {"seed", SEED, offsetof(qn_chat, sampling.params.seed), 0},
    {"predict", INT, offsetof(qn_chat, n_predict), -1},
    {"think", THINK, offsetof(qn_chat, think), 0},
    {"think-budget", INT, offsetof(qn_chat, think_budget), -1},
};
enum { N_PARAMS = sizeof params / sizeof *params };

static void print_param(const qn_chat *c, const param *p)
{
    const void *at = (const char *)c + p->offset;
    switch (p->kind) {
    case FLOAT:
        fprintf(stderr, "  %-15s %g\n", p->name, (double)*(const float *)at);
        break;
    case INT:
        fprintf(stderr, "  %-15s %d\n", p->name, *(const int *)at);
        break;
    case SEED:
        fprintf(stderr, "  %-15s %" PRIu64 "\n", p->name, *(const uint64_t *)at);
        break;
    case THINK: {
        int think = *(const int *)at;
        fprintf(stderr, "  %-15s %s\n", p->name, think < 0 ? "(the template's own)" : qn_think_names[think]);
        break;
    }
    }
}

/* 0, or -1 where the value is none that the parameter takes; what it may be is left to who uses it. */
static int parse_param(const param *p, const char *value, void *at)
{
    char *end;
    switch (p->kind) {
    case FLOAT: {
        float v = strtof(value, &end);
        if (*value == 0 || *end != 0 || !isfinite(v)) {
            return -1;
        }
        *(float *)at = v;
        return 0;
    }
    case INT: {
        long v = strtol(value, &end, 10);
        if (*value == 0 || *end != 0 || v < p->min || v > INT_MAX) {
            return -1;
        }
        *(int *)at = (int)v;
        return 0;
    }
    case SEED:
        return qn_seed_parse(value, at) == 0 ? 0 : -1;
    case THINK:
        for (int i = 0; qn_think_names[i] != NULL; i++) {
            if (strcmp(value, qn_think_names[i]) == 0) {
                *(int *)at = i;
                return 0;
            }
        }
        return -1;
    }
    return -1;
}

static const param *find_param(char *name)
{
    const char *names[N_PARAMS];
    for (char *p = name; *p != 0; p++) {
        *p = *p == '_' ? '-' : *p;
    }
    for (size_t i = 0; i < N_PARAMS; i++) {
        names[i] = params[i].name;
        if (strcmp(name, params[i].name) == 0) {
            return &params[i];
        }
    }
    const char *near = qn_nearest(name, names, N_PARAMS);
    qn_cli_error("/params: there is no '%s'%s%s%s; /params alone lists them", name,
                 near != NULL ? " (did you mean '" : "", near != NULL ? near : "", near != NULL ? "'?)" : "");
    return NULL;
}

/* Pairs of name and value; all of them are set, or none. */
static qn_chat_next set_params(qn_chat *c, char *text)
{
    static const char between[] = " \t=";
    quern_error err;
    quern_sampler *probe;
    qn_chat changed = *c; /* only what `params` points into is taken over */
    char *rest;
    for (char *name = strtok_r(text, between, &rest); name != NULL; name = strtok_r(NULL, between, &rest)) {
        const param *p = find_param(name);
        char *value = strtok_r(NULL, between, &rest);
        if (p == NULL) {
            return QN_CHAT_FAILED;
        }
        if (value == NULL || parse_param(p, value, (char *)&changed + p->offset) != 0) {
            qn_cli_error(value == NULL ? "/params: %s needs a value" : "/params: %s: '%s' is no value of it",
                         p->name, value);
            return QN_CHAT_FAILED;
        }
    }
    if (quern_sampler_new(&probe, &changed.sampling.params, &err) != 0) {
        qn_cli_error("/params: %s", err.text);
        return QN_CHAT_FAILED;
    }
    quern_sampler_free(probe);
    c->sampling.params = changed.sampling.params;
    c->n_predict = changed.n_predict;
    c->think = changed.think;
    c->think_budget = changed.think_budget;
    return QN_CHAT_GO_ON;
}

static qn_chat_next run_params(qn_chat *c, const char *args)
{
    qn_chat_next next = QN_CHAT_GO_ON;
    if (*args != 0) {
        char *text = strdup(args);
        if (text == NULL) {
            qn_cli_error("out of memory");
            return QN_CHAT_FAILED;
        }
        next = set_params(c, text);
        free(text);
    }
    for (size_t i = 0; i < N_PARAMS && next == QN_CHAT_GO_ON; i++) {
        print_param(c, &params[i]);
    }
    return next;
}

static const command commands[] = {
    {"/clear", {0}, "", "begin a new conversation; the system message stays", run_clear, false},
    {"/regen", {0}, "", "answer the last message once more", run_regen, false},
    {"/system", {0}, "[TEXT]", "show or set the system message; \"\" removes it", run_system, false},
    {"/save", {0}, "FILE", "write the conversation as JSON", run_save, true},
    {"/load", {0}, "FILE", "go on with a conversation that was written", run_load, true},
    {"/params", {0}, "[NAME VALUE ...]", "show or set how tokens are drawn", run_params, false},
    {"/help", {"/?"}, "", "this list", run_help, false},
    {"/exit", {"/quit", "/bye"}, "", "leave, as does Ctrl-D", run_exit, false},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static qn_chat_next run_help(qn_chat *c, const char *args)
{
    (void)c;
    (void)args;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        int n = fprintf(stderr, "  %s %s", commands[i].name, commands[i].args);
        fprintf(stderr, "%*s%s\n", 28 - n, "", commands[i].help);
    }
    fputs(
        "  \"\"\"                       a message of several lines begins, another \"\"\" ends it; a "
        "backslash at\n"
        "                            the end of a line joins the next one; // begins a message with /\n"
        "  Ctrl-C                    stops an answer, which is kept so far; at the prompt clears the line,\n"
        "                            once more leaves\n",
        stderr);
    return QN_CHAT_GO_ON;
}

static bool is_called(const command *c, const char *name, size_t len)
{
    const char *names[] = {c->name, c->aliases[0], c->aliases[1]};
    for (size_t i = 0; i < 3; i++) {
        if (names[i] != NULL && strlen(names[i]) == len && memcmp(names[i], name, len) == 0) {
            return true;
        }
    }
    return false;
}

static qn_chat_next unknown(const char *line, size_t len)
{
    const char *names[N_COMMANDS];
    char *asked = strndup(line, len);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i].name;
    }
    const char *near = asked != NULL ? qn_nearest(asked, names, N_COMMANDS) : NULL;
    qn_cli_error("there is no command %.*s%s%s%s; /help lists them, and // begins a message with a slash",
                 (int)len, line, near != NULL ? " (did you mean " : "", near != NULL ? near : "",
                 near != NULL ? "?)" : "");
    free(asked);
    return QN_CHAT_FAILED;
}

qn_chat_next qn_chat_command(qn_chat *c, const char *line)
{
    static const char blanks[] = " \t\r\n";
    size_t len = strcspn(line, blanks);
    const char *args = line + len + strspn(line + len, blanks);
    size_t n = strlen(args);
    while (n > 0 && strchr(blanks, args[n - 1]) != NULL) {
        n--;
    }
    for (size_t i = 0; i < N_COMMANDS; i++) {
        const command *k = &commands[i];
        if (!is_called(k, line, len)) {
            continue;
        }
        if ((n == 0 && k->needs_args) || (n > 0 && k->args[0] == 0)) {
            qn_cli_error(n == 0 ? "%s needs a file's name" : "%s takes no argument", k->name);
            return QN_CHAT_FAILED;
        }
        char *copy = strndup(args, n);
        if (copy == NULL) {
            qn_cli_error("out of memory");
            return QN_CHAT_FAILED;
        }
        qn_chat_next next = k->run(c, copy);
        free(copy);
        return next;
    }
    return unknown(line, len);
}
