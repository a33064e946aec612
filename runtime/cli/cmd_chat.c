/* quern chat: turns of a conversation, each going on from what the session holds. */
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/chat.h"
#include "cli/commands.h"
#include "cli/prompt.h"
#include "cli/signals.h"

const char *const qn_think_names[] = {"on", "off", "hide", NULL};

static const qn_opt chat_opts[] = {
    {"-p, --prompt", "TEXT", "The first message. Escapes \\n \\t \\r \\\\ \\\" \\' \\xHH are resolved.",
     QN_OPT_STR, offsetof(qn_chat, first)},
    {"-sys, --system-prompt", "TEXT", "The system message; escapes as in -p.", QN_OPT_STR,
     offsetof(qn_chat, system)},
    {"-sysf, --system-prompt-file", "FILE", "The system message from a file.", QN_OPT_STR,
     offsetof(qn_chat, system_file)},
    {"--no-escape", NULL, "Backslashes in -p, -sys and --stop stay as they are.", QN_OPT_UNSET,
     offsetof(qn_chat, escape)},
    {"--think", "on|off|hide",
     "Whether a model that can thinks before it answers; hide: thoughts are not shown. Default: as its "
     "template "
     "does by itself.",
     QN_OPT_CHOICE, offsetof(qn_chat, think), 0, 0, qn_think_names},
    {"--think-budget, --reasoning-budget", "N",
     "Tokens a thought may have, then it is ended; -1: any number. Default: -1.", QN_OPT_INT,
     offsetof(qn_chat, think_budget), -1, INT_MAX},
    {"--no-commands", NULL,
     "Every line of input is a message as it stands: no /commands, no \"\"\", no backslash.", QN_OPT_UNSET,
     offsetof(qn_chat, commands)},
    {"--history", "FILE", "Keep the lines typed at a terminal in a file, for the next chat.", QN_OPT_STR,
     offsetof(qn_chat, history)},
    {"--verbose-prompt, --show-prompt", NULL, "Show the ids and pieces of every prompt on stderr.",
     QN_OPT_FLAG, offsetof(qn_chat, show_prompt)},
    {0},
};

static const qn_opt answer_opts[] = {
    {"-n, --predict, --n-predict", "N",
     "At most N tokens an answer; -1: until an end token or the context's end. Default: -1.", QN_OPT_INT,
     offsetof(qn_chat, n_predict), -1, INT_MAX},
    {"--stop, -r, --reverse-prompt", "TEXT",
     "End an answer before this text; may be given several times. Escapes as in -p.", QN_OPT_STRS,
     offsetof(qn_chat, stop)},
    {"--ignore-eos", NULL, "Never sample an end token.", QN_OPT_FLAG, offsetof(qn_chat, ignore_eos)},
    {0},
};

/* The system message of the options. 0, or the exit status. */
static int set_system(qn_chat *c)
{
    char *text = NULL;
    size_t len = 0;
    if (c->system_file != NULL) {
        if (qn_cli_read_file(c->system_file, &text, &len) != 0) {
            return QN_EXIT_ERROR;
        }
        len -= len > 0 && text[len - 1] == '\n';
    } else if (c->system != NULL) {
        text = strdup(c->system);
        if (text == NULL) {
            return qn_cli_error("out of memory");
        }
        len = c->escape ? qn_unescape(text, strlen(text)) : strlen(text);
    }
    int rc = len > 0 ? qn_conversation_set_system(&c->conv, text, len) : 0;
    free(text);
    if (rc == 0 && len > 0 && c->fold_system) {
        qn_cli_note("the template has no place for a system message: it goes in front of the first message");
    }
    return rc == 0 ? QN_EXIT_OK : QN_EXIT_ERROR;
}

/* A user's message; one that was not answered gives way. */
static qn_chat_next say(qn_chat *c, const char *text, size_t len)
{
    size_t n = c->conv.n;
    if (n > 0 && c->conv.turns[n - 1].role == QN_CHAT_USER) {
        qn_conversation_cut(&c->conv, n - 1);
    }
    return qn_conversation_add(&c->conv, QN_CHAT_USER, text, len) == 0 ? qn_chat_answer(c) : QN_CHAT_FAILED;
}

static qn_chat_next say_first(qn_chat *c)
{
    char *text = strdup(c->first);
    if (text == NULL) {
        qn_cli_error("out of memory");
        return QN_CHAT_FAILED;
    }
    size_t len = c->escape ? qn_unescape(text, strlen(text)) : strlen(text);
    if (c->interactive) {
        printf("> %.*s\n", (int)len, text);
    }
    qn_chat_next next = say(c, text, len);
    free(text);
    return next;
}

static bool is_blank(const char *text, size_t len)
{
    return len == strspn(text, " \t\r\n");
}

/* One message or command. *armed: Ctrl-C has come and nothing since, so that another one leaves. */
static qn_chat_next one_turn(qn_chat *c, bool *armed)
{
    char *text;
    size_t len;
    bool is_command, typed;
    if (c->interactive) { /* elsewhere one Ctrl-C is enough, also between an answer and the next line */
        qn_signals_clear();
    }
    qn_line line = qn_chat_read(c, &text, &len, &is_command, &typed);
    if (line == QN_LINE_INTERRUPT && c->interactive) {
        if (*armed && !typed) {
            return QN_CHAT_LEAVE;
        }
        *armed = true;
        qn_cli_note("Ctrl-C once more, Ctrl-D or /exit leaves");
        return QN_CHAT_GO_ON;
    }
    *armed = false;
    if (line != QN_LINE_OK) {
        return line == QN_LINE_END         ? QN_CHAT_LEAVE
               : line == QN_LINE_INTERRUPT ? QN_CHAT_STOPPED
                                           : QN_CHAT_FAILED;
    }
    qn_chat_next next = is_command            ? qn_chat_command(c, text)
                        : is_blank(text, len) ? QN_CHAT_GO_ON
                                              : say(c, text, len);
    free(text);
    return next;
}

/* Without somebody at a terminal the first failure ends the chat, and so does Ctrl-C. */
static int converse(qn_chat *c)
{
    bool armed = false;
    qn_chat_next next = c->first != NULL ? say_first(c) : QN_CHAT_GO_ON;
    while (next != QN_CHAT_LEAVE && (c->interactive || next == QN_CHAT_GO_ON)) {
        if (ferror(stdout)) {
            return QN_EXIT_ERROR;
        }
        next = one_turn(c, &armed);
    }
    return next == QN_CHAT_LEAVE ? QN_EXIT_OK : next == QN_CHAT_STOPPED ? QN_EXIT_INTERRUPT : QN_EXIT_ERROR;
}

static void greet(const qn_chat *c)
{
    if (c->sampling.params.temperature > 0) {
        qn_cli_note("seed %" PRIu64, c->sampling.params.seed);
    }
    char values[160];
    qn_cli_detail("sampling: %s", qn_sampling_text(&c->sampling.params, values));
    qn_cli_detail("chat template: %s", quern_template_label(c->tmpl));
    const char *open = c->has_tags ? c->tags.open : "none known";
    qn_cli_detail("thoughts: %.*s%s%s", (int)strcspn(open, "\n"), open, c->has_tags ? " ... " : "",
                  c->has_tags ? c->tags.close : "");
    if (c->interactive) {
        qn_cli_note("/help lists the commands; Ctrl-C stops an answer, Ctrl-D leaves");
    }
}

/* Before there is a chat to keep, Ctrl-C ends the command. */
static void on_early_interrupt(int sig)
{
    (void)sig;
    _exit(QN_EXIT_INTERRUPT);
}

static int run(qn_chat *c)
{
    const struct sigaction act = {.sa_handler = on_early_interrupt};
    sigaction(SIGINT, &act, NULL);
    if (qn_cli_load(&c->l, &c->model, QN_LOAD_SESSION | QN_LOAD_TEXT) != 0) {
        return QN_EXIT_ERROR;
    }
    if (!quern_model_has_tokenizer(c->l.model)) {
        return qn_cli_error("%s: the model has no tokenizer, so there is nothing to chat with",
                            c->model.path);
    }
    if (qn_chat_open_template(c) != 0 || set_system(c) != QN_EXIT_OK || qn_signals_start() != 0 ||
        qn_lines_open(&c->lines, c->history) != 0) {
        return QN_EXIT_ERROR;
    }
    c->interactive = qn_lines_interactive(c->lines);
    const char *plain = getenv("NO_COLOR"); /* a convention: https://no-color.org */
    c->colour = isatty(STDOUT_FILENO) && !qn_terminal_is_dumb() && (plain == NULL || *plain == 0);
    greet(c);
    return converse(c);
}

int qn_cmd_chat(int argc, char **argv)
{
    qn_chat c = {.model = qn_model_args_defaults,
                 .sampling = qn_sampling_args_defaults(),
                 .n_predict = -1,
                 .escape = true,
                 .commands = true,
                 .think = QN_THINK_DEFAULT,
                 .think_budget = -1};
    const qn_opt_group groups[] = {
        {"Chat", chat_opts, &c},
        {"Answer", answer_opts, &c},
        qn_sampling_group(&c.sampling),
        qn_template_group(&c.chosen),
        qn_load_group(&c.model),
        qn_backend_group(&c.model),
        qn_common_group,
    };
    const qn_usage usage = {
        "chat",
        "MODEL [options]",
        "A conversation by the model's own chat template. On a terminal lines are edited and /help lists "
        "the commands; elsewhere each line of stdin is a message, and only the answers go to stdout.",
        groups,
        sizeof groups / sizeof *groups,
        1};
    const char *positional[1];
    int rc = qn_opts_parse(&usage, argc, argv, positional);
    rc = rc >= 0 ? rc : qn_model_args_finish(&c.model, "chat", positional[0]);
    rc = rc >= 0 ? rc : qn_sampling_finish(&c.sampling, "chat");
    if (rc < 0 && c.system != NULL && c.system_file != NULL) {
        rc = qn_cli_usage_error("chat", "-sys and -sysf: one of them");
    }
    rc = rc >= 0 ? rc : qn_template_args_check(&c.chosen, "chat");
    rc = rc >= 0 ? rc : qn_stops_of_options("chat", &c.stop, c.escape, &c.stops);
    rc = rc >= 0 ? rc : run(&c);
    qn_lines_close(c.lines);
    qn_conversation_free(&c.conv);
    quern_template_free(c.tmpl);
    json_decref(c.vars);
    qn_template_args_free(&c.chosen);
    qn_loaded_free(&c.l);
    qn_stops_free(c.stops);
    qn_strs_free(&c.stop);
    qn_ints_free(&c.model.end_tokens);
    return rc;
}
