/* chat_turn.c: one answer, from the prompt to the message that is kept. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/chat.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/prompt.h"
#include "cli/signals.h"

#define DIM    "\033[2m"
#define BRIGHT "\033[0m"

typedef struct bytes {
    char *data;
    size_t len, cap;
} bytes;

typedef struct answer {
    qn_chat *c;
    quern_splitter *splitter;
    bytes part[2];   /* by quern_part */
    bool shown[2];   /* some of it is on the screen */
    char last;       /* character written */
    int n_thought;   /* tokens of the thought; one less where the model opened it, for the tag */
    int budget;      /* that it may have; -1: any number */
    bool over, lost; /* the budget is spent; memory or output failed, which was said */
    int32_t *ids;    /* generated so far, without end token */
    size_t n_ids;
    size_t n_prompt, n_processed, n_generated; /* tokens */
    double prompt_seconds, decode_seconds;
    quern_stop stop;
    bool closed; /* ids hold tokens that were put in to end the thought */
} answer;

static int keep(bytes *b, const char *text, size_t len)
{
    if (b->len + len + 1 > b->cap) {
        size_t cap = 2 * (b->len + len + 1);
        char *data = realloc(b->data, cap);
        if (data == NULL) {
            qn_cli_error("out of memory for an answer of %zu bytes", cap);
            return -1;
        }
        b->data = data;
        b->cap = cap;
    }
    memcpy(b->data + b->len, text, len);
    b->len += len;
    b->data[b->len] = 0;
    return 0;
}

static void show(answer *a, const char *text, size_t len)
{
    fwrite(text, 1, len, stdout);
    a->last = len > 0 ? text[len - 1] : a->last;
}

static void show_text(answer *a, const char *text)
{
    show(a, text, strlen(text));
}

/* The thought with its tags around it, dim on a terminal. */
static void begin_thought(answer *a)
{
    if (a->c->colour) {
        fputs(DIM, stdout);
    }
    show_text(a, a->c->tags.open);
    show_text(a, a->last == '\n' ? "" : "\n");
    a->shown[QUERN_PART_THOUGHT] = true;
}

static void end_thought(answer *a)
{
    show_text(a, "\n");
    show_text(a, a->c->tags.close);
    if (a->c->colour) {
        fputs(BRIGHT, stdout);
    }
    show_text(a, "\n\n");
}

static void on_part(void *user, quern_part part, const char *text, size_t len)
{
    answer *a = user;
    if (a->lost || keep(&a->part[part], text, len) != 0) {
        a->lost = true;
        return;
    }
    if (part == QUERN_PART_THOUGHT && a->c->think == QN_THINK_HIDE) {
        return;
    }
    if (!a->shown[part]) {
        qn_cli_progress_end();
        if (part == QUERN_PART_THOUGHT) {
            begin_thought(a);
        } else if (a->shown[QUERN_PART_THOUGHT]) {
            end_thought(a);
        }
        a->shown[part] = true;
    }
    show(a, text, len);
}

static bool on_text(void *user, const char *text, size_t len, int32_t token)
{
    answer *a = user;
    quern_error err;
    (void)token;
    if (quern_splitter_feed(a->splitter, text, len, &err) != 0) {
        qn_cli_error("%s", err.text);
        a->lost = true;
    }
    if (fflush(stdout) != 0) {
        qn_cli_error("cannot write the answer to stdout");
        a->lost = true;
    }
    if (quern_splitter_part(a->splitter) == QUERN_PART_THOUGHT) {
        a->n_thought++;
        a->over = a->budget >= 0 && a->n_thought >= a->budget;
        if (a->c->think == QN_THINK_HIDE) {
            qn_cli_progress("thinking: %d tokens", a->n_thought);
        }
    }
    return !a->lost && !a->over && !qn_signals_interrupted();
}

/* Adds n ids to *ids; 0, or -1 after printing the error. */
static int add_ids(int32_t **ids, size_t *n, const int32_t *more, size_t n_more)
{
    int32_t *p = realloc(*ids, (*n + n_more + 1) * sizeof *p);
    if (p == NULL) {
        qn_cli_error("out of memory for %zu tokens", *n + n_more);
        return -1;
    }
    if (n_more > 0) {
        memcpy(p + *n, more, n_more * sizeof *p);
    }
    *ids = p;
    *n += n_more;
    return 0;
}

/* What ends a thought, as models write it, fed to them in their place: the ids are added. */
static int close_thought(answer *a, int32_t **ids, size_t *n)
{
    char text[96];
    int32_t *more;
    size_t n_more;
    quern_error err;
    const qn_chat *c = a->c;
    bool like_xml = c->tags.close[0] == '<' && c->tags.close[1] == '/';
    snprintf(text, sizeof text, like_xml ? "\n%s\n\n" : "%s", c->tags.close);
    if (quern_tokenize(c->l.model, text, strlen(text), false, true, &more, &n_more, &err) != 0 ||
        quern_splitter_feed(a->splitter, text, strlen(text), &err) != 0) {
        qn_cli_error("%s", err.text);
        return -1;
    }
    int rc = add_ids(ids, n, more, n_more);
    free(more);
    a->over = false;
    a->closed = true;
    return rc;
}

static bool go_on(void)
{
    return !qn_signals_interrupted();
}

/* Makes the session hold the ids, which it holds a beginning of. */
static qn_chat_next process(answer *a, const int32_t *ids, size_t n)
{
    quern_error err;
    size_t n_processed;
    quern_session *s = a->c->l.session;
    if (n >= (size_t)quern_session_n_ctx(s)) {
        qn_cli_error("the context is full: the conversation has %zu tokens, the context holds %d. Nothing is "
                     "lost: /save FILE, then /load it in a chat with a larger -c; /clear begins a new "
                     "conversation; a shorter message may still fit",
                     n, quern_session_n_ctx(s));
        return QN_CHAT_FAILED;
    }
    double start = qn_seconds();
    qn_prompt_progress p;
    qn_progress_prompt(&p, s);
    p.go_on = go_on;
    int rc = a->c->model.deterministic ? quern_session_truncate(s, 0, &err) : 0;
    rc = rc != 0 ? rc : quern_session_update(s, ids, n, &n_processed, &err);
    qn_progress_prompt_end(&p, s, rc == 0 ? (int)n_processed : -1);
    a->prompt_seconds += qn_seconds() - start;
    a->n_processed += n_processed;
    if (rc != 0 && qn_signals_interrupted()) {
        return QN_CHAT_STOPPED;
    }
    if (rc != 0) {
        qn_cli_error("%s", err.text);
        return QN_CHAT_FAILED;
    }
    return QN_CHAT_GO_ON;
}

/* Generates until the answer ends, or its thought has to. */
static qn_chat_next generate(answer *a, quern_sampler *sampler)
{
    const qn_chat *c = a->c;
    quern_error err;
    quern_generate_result r;
    int left = c->n_predict < 0                        ? -1
               : (size_t)c->n_predict > a->n_generated ? c->n_predict - (int)a->n_generated
                                                       : 0;
    quern_generate_params p = {
        .n_predict = left,
        .stop = (const char *const *)c->stops,
        .n_stop = c->stop.n,
        .ignore_end = c->ignore_eos,
        .show = c->control,
        .n_show = c->n_control,
        .on_text = on_text,
        .user = a,
    };
    if (quern_generate(c->l.session, sampler, &p, &r, &err) != 0) {
        qn_cli_error("%s", err.text);
        return QN_CHAT_FAILED;
    }
    a->decode_seconds += r.decode_seconds;
    a->n_generated += r.n_generated;
    a->stop = r.stop;
    int rc = add_ids(&a->ids, &a->n_ids, r.tokens, r.n_generated - (r.stop == QUERN_STOP_END));
    quern_generate_result_free(&r);
    return rc != 0 || a->lost ? QN_CHAT_FAILED : QN_CHAT_GO_ON;
}

/* Prompt, answer, and in between the end of a thought that takes too long. */
static qn_chat_next run(answer *a, int32_t **prompt, bool thinks)
{
    quern_error err;
    quern_sampler *sampler;
    qn_chat *c = a->c;
    if (thinks && a->budget == 0 && close_thought(a, prompt, &a->n_prompt) != 0) {
        return QN_CHAT_FAILED;
    }
    size_t n = a->n_prompt;
    if (c->show_prompt || qn_cli_debugs(QN_DEBUG_PROMPT)) {
        qn_prompt_show(c->l.model, *prompt, n, c->show_prompt);
    }
    qn_chat_next next = process(a, *prompt, n);
    if (next != QN_CHAT_GO_ON) {
        return next;
    }
    if (quern_sampler_new(&sampler, &c->sampling.params, &err) != 0) {
        qn_cli_error("%s", err.text);
        return QN_CHAT_FAILED;
    }
    next = generate(a, sampler);
    while (next == QN_CHAT_GO_ON && a->over && a->stop == QUERN_STOP_ABORT && !qn_signals_interrupted()) {
        /* The session holds the prompt and all ids but the last. */
        next = add_ids(prompt, &n, a->ids + (n - a->n_prompt), a->n_ids - (n - a->n_prompt)) == 0
                   ? QN_CHAT_GO_ON
                   : QN_CHAT_FAILED;
        size_t before = n;
        if (next == QN_CHAT_GO_ON && (close_thought(a, prompt, &n) != 0 ||
                                      add_ids(&a->ids, &a->n_ids, *prompt + before, n - before) != 0)) {
            next = QN_CHAT_FAILED;
        }
        next = next == QN_CHAT_GO_ON ? process(a, *prompt, n) : next;
        next = next == QN_CHAT_GO_ON ? generate(a, sampler) : next;
    }
    quern_sampler_free(sampler);
    return next;
}

/* The answer becomes a message of the conversation. */
static int keep_answer(answer *a)
{
    bytes *said = &a->part[QUERN_PART_ANSWER], *thought = &a->part[QUERN_PART_THOUGHT];
    if (said->data == NULL && keep(said, "", 0) != 0) {
        return -1;
    }
    qn_turn t = {
        .role = QN_CHAT_ASSISTANT,
        .content = said->data,
        .len = said->len,
        .thought = thought->data,
        .thought_len = thought->len,
    };
    *said = *thought = (bytes){0};
    if (t.thought == NULL && !a->closed && a->n_ids > 0) {
        t.ids = a->ids;
        t.n_ids = a->n_ids;
        a->ids = NULL;
    }
    return qn_conversation_take(&a->c->conv, &t);
}

static double rate(size_t n, double seconds)
{
    return n > 0 && seconds > 0 ? (double)n / seconds : 0;
}

static void report(const answer *a)
{
    static const char *const stops[] = {[QUERN_STOP_END] = "end",
                                        [QUERN_STOP_STRING] = "string",
                                        [QUERN_STOP_LENGTH] = "length",
                                        [QUERN_STOP_ABORT] = "abort"};
    const quern_session *s = a->c->l.session;
    qn_cli_detail(
        "prompt %zu tokens, %zu processed in %.1f ms (%.2f t/s); answer %zu tokens in %.1f ms (%.2f "
        "t/s), stop: %s; context %d of %d",
        a->n_prompt, a->n_processed, 1e3 * a->prompt_seconds, rate(a->n_processed, a->prompt_seconds),
        a->n_generated, 1e3 * a->decode_seconds, rate(a->n_generated, a->decode_seconds), stops[a->stop],
        quern_session_length(s), quern_session_n_ctx(s));
}

/* What is left to show, and to say. */
static void finish_output(answer *a)
{
    quern_splitter_flush(a->splitter);
    qn_cli_progress_end();
    if (a->shown[QUERN_PART_THOUGHT] && !a->shown[QUERN_PART_ANSWER] && a->c->colour) {
        fputs(BRIGHT, stdout);
    }
    if (a->last != '\n') {
        putchar('\n');
    }
    if ((fflush(stdout) != 0 || ferror(stdout)) && !a->lost) {
        qn_cli_error("cannot write the answer to stdout");
        a->lost = true;
    }
}

/* How an answer ended that did not end by itself. */
static void say_end(const answer *a)
{
    const quern_session *s = a->c->l.session;
    bool full = quern_session_length(s) + 1 >= quern_session_n_ctx(s);
    if (a->stop == QUERN_STOP_LENGTH && full) {
        qn_cli_error(
            "the context of %d tokens is full, the answer is cut short. Nothing is lost: /save FILE, "
            "then /load it in a chat with a larger -c; /clear begins a new conversation",
            quern_session_n_ctx(s));
    } else if (a->stop == QUERN_STOP_LENGTH) {
        qn_cli_note("the answer is cut short after %zu tokens (-n)", a->n_generated);
    } else if (a->stop == QUERN_STOP_ABORT) {
        qn_cli_note("stopped; the answer so far is kept");
    }
}

qn_chat_next qn_chat_answer(qn_chat *c)
{
    answer a = {
        .c = c,
        .budget = c->has_tags ? c->think_budget : -1,
    };
    int32_t *prompt;
    bool thinks;
    quern_error err;
    if (qn_chat_prompt(c, &c->conv, &prompt, &a.n_prompt, &thinks) != 0) {
        return QN_CHAT_FAILED;
    }
    a.n_thought = thinks ? 0 : -1;
    qn_chat_next next = QN_CHAT_FAILED;
    if (quern_splitter_new(&a.splitter, c->has_tags ? &c->tags : NULL, thinks, on_part, &a, &err) != 0) {
        qn_cli_error("%s", err.text);
    } else {
        next = run(&a, &prompt, thinks);
    }
    if (next == QN_CHAT_GO_ON || a.n_generated > 0 || a.last != 0) {
        finish_output(&a);
        next = next == QN_CHAT_GO_ON && a.lost ? QN_CHAT_FAILED : next;
        if (keep_answer(&a) != 0) {
            next = QN_CHAT_FAILED;
        }
        if (next == QN_CHAT_GO_ON) {
            say_end(&a);
        }
        report(&a);
    } else if (next == QN_CHAT_STOPPED) {
        qn_cli_note("stopped before the answer began; /regen answers the message, another one replaces it");
    }
    if (next == QN_CHAT_GO_ON && qn_signals_interrupted()) {
        next = QN_CHAT_STOPPED;
    }
    quern_splitter_free(a.splitter);
    free(a.part[0].data);
    free(a.part[1].data);
    free(a.ids);
    free(prompt);
    return next;
}
