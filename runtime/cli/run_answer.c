/* run_answer.c: one prompt through the session, and its answer out. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/run.h"

static volatile sig_atomic_t interrupted, generating;

/* The first Ctrl-C ends the answer; before and after it there is nothing to wait for. */
static void on_interrupt(int sig)
{
    (void)sig;
    if (!generating || interrupted) {
        _exit(QN_EXIT_INTERRUPT);
    }
    interrupted = 1;
}

void qn_run_catch_interrupts(void)
{
    /* A write under way goes on: text handed over is never lost. A second Ctrl-C ends the process. */
    interrupted = generating = 0;
    struct sigaction act = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART | SA_RESETHAND};
    sigaction(SIGINT, &act, NULL);
}

void qn_answer_clear(qn_answer *a)
{
    free(a->ids);
    free(a->probs);
    free(a->tops);
    quern_generate_result_free(&a->r);
    *a = (qn_answer){0};
}

typedef struct sink {
    const qn_run_output *out;
    const qn_request *request;
    qn_answer *answer;
    double start, last;
    size_t n; /* tokens so far */
    int n_top;
    int write_error; /* errno of the write that failed */
    quern_error err;
    bool failed; /* err says why */
} sink;

/* Room for one more token's probabilities; the lists of the likeliest move, so their places are set at the
 * end. */
static bool reserve_probs(qn_answer *a, size_t n, int n_top)
{
    if (n < a->probs_cap) {
        return true;
    }
    size_t cap = 2 * a->probs_cap + 64;
    qn_token_probs *probs = realloc(a->probs, cap * sizeof *probs);
    a->probs = probs != NULL ? probs : a->probs;
    quern_logprob *tops = realloc(a->tops, (cap * (size_t)n_top + 1) * sizeof *tops);
    a->tops = tops != NULL ? tops : a->tops;
    if (probs == NULL || tops == NULL) {
        return false;
    }
    a->probs_cap = cap;
    return true;
}

static bool take_probs(sink *k, int32_t token)
{
    qn_answer *a = k->answer;
    const quern_session *s = k->out->loaded->session;
    if (!reserve_probs(a, k->n, k->n_top)) {
        snprintf(k->err.text, sizeof k->err.text, "out of memory for log-probabilities");
        return false;
    }
    quern_logprob *top = a->tops + k->n * (size_t)k->n_top;
    qn_token_probs *p = &a->probs[k->n];
    *p = (qn_token_probs){.id = token, .top = top, .n_top = k->n_top};
    return quern_logprobs(quern_session_logits(s, -1), quern_model_n_vocab(s->m), token, &p->logprob, top,
                          k->n_top, &k->err) == 0;
}

static void debug_token(sink *k, int32_t token)
{
    char text[256];
    double now = qn_seconds();
    qn_cli_debug(QN_DEBUG_TOKENS, "%zu: %d '%s' %.2f ms", k->n, token,
                 qn_piece_text(k->out->loaded->model, token, text, sizeof text), 1e3 * (now - k->last));
    k->last = now;
}

static bool on_text(void *user, const char *text, size_t len, int32_t token)
{
    sink *k = user;
    if (k->answer->first == 0) {
        k->answer->first = qn_seconds() - k->start;
    }
    if (qn_cli_debugs(QN_DEBUG_TOKENS)) {
        debug_token(k, token);
    }
    if (k->request->n_logprobs >= 0 && !take_probs(k, token)) {
        k->failed = true;
        return false;
    }
    if (k->out->form == QN_RUN_JSONL) {
        k->write_error = qn_run_print_token(k->out, k->request, k->answer, k->n, token, text, len);
    } else if (k->out->form == QN_RUN_TEXT && k->out->stream && len > 0) {
        k->write_error = qn_run_print_text(text, len);
    }
    k->n++;
    return k->write_error == 0 && !interrupted;
}

static int write_failed(int why)
{
    return why > 0 ? qn_cli_error("cannot write the answer to stdout: %s", strerror(why))
                   : qn_cli_error("cannot write the answer to stdout");
}

/* Says that a request failed, and where it came from; the others go on. */
static int fault(const qn_run_output *out, const qn_request *r, const char *text)
{
    int why = 0;
    if (r->line > 0) {
        qn_cli_error("--prompts line %zu: %s", r->line, text);
        why = qn_run_print_fault(out, r, text);
    } else {
        qn_cli_error("%s", text);
    }
    return why == 0 ? QN_EXIT_ERROR : write_failed(why);
}

static int generate(sink *k, quern_sampler *sampler, quern_error *err)
{
    const qn_request *r = k->request;
    const quern_generate_params p = {.n_predict = r->n_predict,
                                     .stop = (const char *const *)r->stop,
                                     .n_stop = r->n_stop,
                                     .ignore_end = r->ignore_eos != 0,
                                     .on_text = on_text,
                                     .user = k,
                                     .keep_logits = r->n_logprobs >= 0};
    quern_generate_result result;
    k->last = qn_seconds();
    generating = 1;
    int rc = quern_generate(k->out->loaded->session, sampler, &p, &result, err);
    generating = 0;
    k->answer->r = rc == 0 ? result : (quern_generate_result){0};
    for (size_t i = 0; k->answer->probs != NULL && i < k->answer->r.n_generated; i++) {
        k->answer->probs[i].top = k->answer->tops + i * (size_t)k->n_top;
    }
    return rc;
}

/* The prompt's tokens into the session. */
static int feed(sink *k, bool fresh, quern_error *err)
{
    quern_session *s = k->out->loaded->session;
    qn_answer *a = k->answer;
    qn_prompt_progress progress;
    size_t processed = 0;
    double start = qn_seconds();
    if (fresh && quern_session_truncate(s, 0, err) != 0) {
        return -1;
    }
    qn_progress_prompt(&progress, s);
    int rc = quern_session_update(s, a->ids, a->n_prompt, &processed, err);
    qn_progress_prompt_end(&progress, s, rc == 0 ? (int)processed : -1);
    a->n_reused = a->n_prompt - processed;
    a->prompt = qn_seconds() - start;
    return rc;
}

int qn_run_prompt_ids(const quern_model *m, const qn_turn *turn, const qn_request *r, bool show,
                      int32_t **ids, size_t *n, qn_err *err)
{
    int rc = turn != NULL ? qn_turn_ids(turn, m, r->text, r->len, show, ids, n, err)
                          : qn_prompt_ids(m, r->special != 0, r->text, r->len, ids, n, err);
    if (rc == 0 && (show || qn_cli_debugs(QN_DEBUG_PROMPT))) {
        qn_prompt_show(m, *ids, *n, show);
    }
    return rc;
}

int qn_run_answer(const qn_run_output *out, const qn_request *r, bool fresh, bool show_prompt,
                  qn_answer *answer)
{
    const qn_loaded *l = out->loaded;
    int n_ctx = quern_session_n_ctx(l->session), n_vocab = quern_model_n_vocab(l->model);
    sink k = {.out = out,
              .request = r,
              .answer = answer,
              .start = r->line > 0 || r->answer > 1 ? qn_seconds() : out->start};
    quern_sampler *sampler = NULL;
    quern_error err;
    *answer = (qn_answer){0};
    k.n_top = r->n_logprobs < 0 ? 0 : r->n_logprobs < n_vocab ? r->n_logprobs : n_vocab;
    if (r->text == NULL) {
        return fault(out, r, r->fault.text);
    }
    if (qn_run_prompt_ids(l->model, out->turn, r, show_prompt, &answer->ids, &answer->n_prompt,
                          qn_engine_err(&err)) != 0) {
        return fault(out, r, err.text);
    }
    if (answer->n_prompt > (size_t)n_ctx) {
        snprintf(err.text, sizeof err.text,
                 "the prompt has %zu tokens, the context holds %d; shorten it or raise -c", answer->n_prompt,
                 n_ctx);
        return fault(out, r, err.text);
    }
    int rc = quern_sampler_new(&sampler, &r->sampling, &err) != 0 || feed(&k, fresh, &err) != 0 ||
             generate(&k, sampler, &err) != 0;
    quern_sampler_free(sampler);
    if (rc != 0 || k.failed) {
        fflush(stdout);
        return fault(out, r, k.failed ? k.err.text : err.text);
    }
    if (k.write_error == 0) {
        k.write_error = qn_run_print_whole(out, r, answer);
    }
    rc = k.write_error == 0 ? QN_EXIT_OK : write_failed(k.write_error);
    qn_run_report(out, r, answer);
    return rc != QN_EXIT_OK ? rc : interrupted ? QN_EXIT_INTERRUPT : QN_EXIT_OK;
}
