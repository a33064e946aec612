/* quern run: prompts in, answers out. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cli/check.h"
#include "cli/commands.h"
#include "cli/run.h"
#include "text/tokenizer.h"

typedef struct run_args {
    qn_model_args model;
    qn_prompt_args prompt;
    qn_turn_args turn;
    qn_sampling_args sampling;
    const char *prompts;
    int n_predict, n_logprobs, n_answers;
    qn_strs stop;
    int output; /* QN_RUN_* */
    bool ignore_eos, stream, check;
    double start; /* when the command began */
} run_args;

static const char *const outputs[] = {"text", "json", "jsonl", NULL};

static const qn_opt file_opts[] = {
    {"--prompts", "FILE",
     "Answers every line of a file, in order (- is stdin): text with escapes as in -p, or, where the first "
     "line begins "
     "with {, JSON objects: \"prompt\", and if wanted \"id\" and predict, temp, top_k, top_p, min_p, "
     "repeat_penalty, "
     "repeat_last_n, seed, stop, ignore_eos, logprobs, special. One that fails leaves the others; status 1 "
     "then.",
     QN_OPT_STR, offsetof(run_args, prompts)},
    {0},
};

static const qn_opt answer_opts[] = {
    {"-n, --predict, --n-predict", "N",
     "At most N tokens; -1: until an end token or the context's end; 0: only process the prompt. Default: "
     "-1.",
     QN_OPT_INT, offsetof(run_args, n_predict), -1, INT_MAX},
    {"--stop, -r, --reverse-prompt", "TEXT",
     "End before this text; may be given several times. Escapes as in -p.", QN_OPT_STRS,
     offsetof(run_args, stop)},
    {"--answers", "N",
     "Answers to each prompt, with the seeds that follow each other from --seed on. Default: 1.", QN_OPT_INT,
     offsetof(run_args, n_answers), 1, 1 << 20},
    {"--ignore-eos", NULL, "Never sample an end token.", QN_OPT_FLAG, offsetof(run_args, ignore_eos)},
    {"--logprobs", "N",
     "Log-probability of each token, and the N likeliest in its place, of the logits as the model gave them; "
     "in text "
     "form on stderr behind the answer. Default: none.",
     QN_OPT_INT, offsetof(run_args, n_logprobs), 0, 1000},
    {"--no-stream", NULL, "Print the answer when it is complete.", QN_OPT_UNSET, offsetof(run_args, stream)},
    {"-o, --output", "NAME",
     "text; json, an object for each prompt: text, ids, counts, times, stop reason; jsonl, an object for "
     "each token "
     "as it comes and then that one. Default: text.",
     QN_OPT_CHOICE, offsetof(run_args, output), 0, 0, outputs},
    {"--json", NULL, "The same as -o json.", QN_OPT_SET, offsetof(run_args, output), QN_RUN_JSON},
    {"--json-lines", NULL, "The same as -o jsonl.", QN_OPT_SET, offsetof(run_args, output), QN_RUN_JSONL},
    {"--check", NULL,
     "Instead of an answer: compare every step of prompt and -n greedy tokens (default 16) with the exact "
     "reference function on its own inputs; status 1 where one is beyond its tolerance.",
     QN_OPT_FLAG, offsetof(run_args, check)},
    {0},
};

static void show_settings(const run_args *a, const quern_model *m)
{
    char values[160], list[1024] = "";
    qn_cli_detail("sampling: %s", qn_sampling_text(&a->sampling.params, values));
    size_t n, used = 0;
    const int32_t *end = qn_tokenizer_eog(m->tok, &n);
    for (size_t i = 0; i < n && used < sizeof list - 1; i++) {
        size_t len = 0;
        const char *text = qn_token_text(m->tok, end[i], &len);
        used += (size_t)snprintf(list + used, sizeof list - used, " %d '%.*s'", end[i], (int)len,
                                 text != NULL ? text : "");
    }
    qn_cli_detail("end tokens%s:%s", a->ignore_eos ? " (ignored)" : "", n == 0 ? " none" : list);
}

/* The prompt in chunks, its last few tokens in one of their own (short chunks may take other kernels), then
 * greedy decoding. */
static int check_steps(const run_args *a, const quern_session *s, const int32_t *ids, size_t n)
{
    enum { SHORT = 5, N_PREDICT = 16 };
    size_t tail = n > SHORT ? SHORT : 0;
    int n_vocab = quern_model_n_vocab(s->m), left = a->n_predict >= 0 ? a->n_predict : N_PREDICT;
    float *logits = qn_calloc((size_t)n_vocab, sizeof *logits);
    qn_checker c;
    if (logits == NULL) {
        return qn_cli_error("out of memory");
    }
    if (qn_checker_open(&c, s) != 0) {
        free(logits);
        return QN_EXIT_ERROR;
    }
    int chunk = s->exec->opts.n_ubatch;
    int rc = qn_checker_tokens(&c, ids, n - tail, chunk, QN_PHASE_PREFILL, logits);
    rc = rc ? rc : qn_checker_tokens(&c, ids + n - tail, tail, chunk, QN_PHASE_PREFILL, logits);
    while (rc == 0 && left-- > 0 && s->exec->length < s->exec->opts.n_ctx) {
        int32_t best = 0;
        for (int i = 1; i < n_vocab; i++) {
            best = logits[i] > logits[best] ? i : best;
        }
        rc = qn_checker_tokens(&c, &best, 1, 1, QN_PHASE_DECODE, logits);
    }
    rc = rc == 0 ? qn_checker_report(&c, a->output != QN_RUN_TEXT) : QN_EXIT_ERROR;
    qn_checker_close(&c);
    free(logits);
    return rc;
}

static int check_request(const run_args *a, const qn_loaded *l, const qn_turn *turn, const qn_request *r)
{
    qn_err err;
    int32_t *ids;
    size_t n;
    if (qn_run_prompt_ids(l->model, turn, r, a->prompt.show, &ids, &n, &err) != 0) {
        return qn_cli_error("%s", err.text);
    }
    int n_ctx = quern_session_n_ctx(l->session);
    int rc = n > (size_t)n_ctx ? qn_cli_error("the prompt has %zu tokens, the context holds %d", n, n_ctx)
                               : check_steps(a, l->session, ids, n);
    free(ids);
    return rc;
}

static int answer_all(const run_args *a, const qn_loaded *l, const qn_turn *turn, const qn_request *requests,
                      size_t n)
{
    const qn_run_output out = {.form = a->output,
                               .stream = a->stream,
                               .several = a->prompts != NULL || a->n_answers > 1,
                               .args = &a->model,
                               .loaded = l,
                               .turn = turn,
                               .start = a->start};
    size_t n_failed = 0;
    int rc = QN_EXIT_OK;
    if (a->sampling.params.temperature > 0) {
        qn_cli_note("seed %" PRIu64, a->sampling.params.seed);
    }
    const size_t each = (size_t)a->n_answers;
    for (size_t i = 0; i < n * each && rc != QN_EXIT_INTERRUPT && (rc == QN_EXIT_OK || !ferror(stdout));
         i++) {
        qn_answer answer;
        qn_request r = requests[i / each];
        r.answer = each > 1 ? (int)(i % each) + 1 : 0;
        r.sampling.seed += i % each;
        rc = qn_run_answer(&out, &r, a->model.deterministic, a->prompt.show, &answer);
        qn_answer_clear(&answer);
        n_failed += rc == QN_EXIT_ERROR;
    }
    if (a->prompts != NULL && rc != QN_EXIT_INTERRUPT) {
        qn_cli_note("%zu %s, %zu failed; %.1f s", n * each, each > 1 ? "answers" : "prompts", n_failed,
                    qn_seconds() - a->start);
    }
    return n_failed > 0 && rc == QN_EXIT_OK ? QN_EXIT_ERROR : rc;
}

/* What the options say of every answer. -1: go on. */
static int base_request(const run_args *a, qn_request *r)
{
    *r = (qn_request){.sampling = a->sampling.params,
                      .n_predict = a->n_predict,
                      .n_logprobs = a->n_logprobs,
                      .ignore_eos = a->ignore_eos,
                      .special = a->prompt.special};
    int rc = qn_stops_of_options("run", &a->stop, a->prompt.escape, &r->stop);
    r->n_stop = rc < 0 ? a->stop.n : 0;
    return rc;
}

/* The prompts, from the options or their file. -1: go on. */
static int read_requests(const run_args *a, qn_request **requests, size_t *n)
{
    qn_request like;
    const char *idle = qn_turn_idle_option(&a->turn);
    if (idle != NULL) {
        return qn_cli_usage_error("run", "%s without --chat: no template is applied", idle);
    }
    int rc = qn_turn_check(&a->turn, "run");
    rc = rc >= 0 ? rc : base_request(a, &like);
    if (rc >= 0) {
        return rc;
    }
    if (a->prompts != NULL) {
        rc = a->prompt.text != NULL || a->prompt.file != NULL
                 ? qn_cli_usage_error("run", "--prompts together with -p or -f")
             : a->check ? qn_cli_usage_error("run", "--check takes one prompt, not --prompts")
                        : qn_requests_read(a->prompts, &like, a->prompt.escape, requests, n);
        qn_request_clear(&like);
        return rc;
    }
    *requests = malloc(sizeof **requests);
    if (*requests == NULL) {
        qn_request_clear(&like);
        return qn_cli_error("out of memory");
    }
    **requests = like;
    *n = 1;
    return qn_prompt_read(&a->prompt, "run", &(*requests)->text, &(*requests)->len);
}

static int load_and_run(run_args *a, const qn_request *requests, size_t n)
{
    qn_loaded l = {0};
    a->model.no_fuse |= a->check; /* every step's output is looked at */
    if (qn_cli_load(&l, &a->model, QN_LOAD_SESSION | QN_LOAD_TEXT) != 0) {
        return QN_EXIT_ERROR;
    }
    if (qn_cli_wants(1)) {
        show_settings(a, l.model);
    }
    bool chat = qn_turn_wanted(&a->turn);
    qn_turn turn = {0};
    int rc = QN_EXIT_ERROR;
    if (!chat || qn_turn_open(&turn, &a->turn, a->prompt.escape, l.model) == 0) {
        const qn_turn *t = chat ? &turn : NULL;
        rc = a->check ? check_request(a, &l, t, requests) : answer_all(a, &l, t, requests, n);
    }
    qn_turn_close(&turn);
    qn_loaded_free(&l);
    return rc;
}

int qn_cmd_run(int argc, char **argv)
{
    run_args a = {.model = qn_model_args_defaults,
                  .prompt = qn_prompt_args_defaults,
                  .sampling = qn_sampling_args_defaults(),
                  .n_predict = -1,
                  .n_logprobs = -1,
                  .n_answers = 1,
                  .stream = true,
                  .start = qn_seconds()};
    const qn_opt_group groups[] = {
        qn_prompt_group(&a.prompt),      qn_turn_group(&a.turn),      qn_template_group(&a.turn.template),
        {"Many prompts", file_opts, &a}, {"Answer", answer_opts, &a}, qn_sampling_group(&a.sampling),
        qn_load_group(&a.model),         qn_backend_group(&a.model),  qn_common_group,
    };
    const qn_usage usage = {"run",
                            "MODEL [-p TEXT | -f FILE | --prompts FILE] [options]",
                            "Completes a prompt, or each of a file; with --chat, answers it as a chat model "
                            "does. Answers go to stdout, everything else to stderr.",
                            groups,
                            sizeof groups / sizeof *groups,
                            1};
    const char *positional[1];
    qn_request *requests = NULL;
    size_t n = 0;
    int rc = qn_opts_parse(&usage, argc, argv, positional);
    rc = rc >= 0 ? rc : qn_model_args_finish(&a.model, "run", positional[0]);
    rc = rc >= 0 ? rc : qn_sampling_finish(&a.sampling, "run");
    qn_run_catch_interrupts();
    rc = rc >= 0 ? rc : read_requests(&a, &requests, &n);
    rc = rc >= 0 ? rc : load_and_run(&a, requests, n);
    for (size_t i = 0; i < n; i++) {
        qn_request_clear(&requests[i]);
    }
    free(requests);
    qn_turn_args_free(&a.turn);
    qn_strs_free(&a.stop);
    qn_ints_free(&a.model.end_tokens);
    return rc;
}
