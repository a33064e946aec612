/* quern run: one prompt in, one answer out. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/check.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/load.h"
#include "cli/prompt.h"
#include "cli/sampling.h"
#include "cli/startup.h"
#include "engine/memory.h"

typedef struct run_args {
    qn_model_args model;
    qn_prompt_args prompt;
    qn_sampling_args sampling;
    int n_predict;
    qn_strs stop;
    bool ignore_eos, stream, json, check;
    double start; /* when the command began */
} run_args;

typedef struct run_times {
    double start; /* of the command, on qn_seconds' clock */
    double first; /* seconds from there to the first token */
    double load, prompt, decode;
    size_t n_prompt;
} run_times;

static const qn_opt answer_opts[] = {
    {"-n, --predict, --n-predict", "N",
     "At most N tokens; -1: until an end token or the context's end; 0: only process the prompt. Default: "
     "-1.",
     QN_OPT_INT, offsetof(run_args, n_predict), -1, INT_MAX},
    {"--stop, -r, --reverse-prompt", "TEXT",
     "End before this text; may be given several times. Escapes as in -p.", QN_OPT_STRS,
     offsetof(run_args, stop)},
    {"--ignore-eos", NULL, "Never sample an end token.", QN_OPT_FLAG, offsetof(run_args, ignore_eos)},
    {"--no-stream", NULL, "Print the answer when it is complete.", QN_OPT_UNSET, offsetof(run_args, stream)},
    {"--json", NULL, "Print one JSON object instead: text, ids, counts, times, stop reason.", QN_OPT_FLAG,
     offsetof(run_args, json)},
    {"--check", NULL,
     "Instead of an answer: compare every step of prompt and -n greedy tokens (default 16) with the exact "
     "reference function on its own inputs; status 1 where one is beyond its tolerance.",
     QN_OPT_FLAG, offsetof(run_args, check)},
    {0},
};

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

typedef struct sink {
    bool stream;
    run_times *t;
    int write_error; /* errno of the write that failed */
} sink;

static bool on_text(void *user, const char *text, size_t len, int32_t token)
{
    sink *k = user;
    (void)token;
    if (k->t->first == 0) {
        k->t->first = qn_seconds() - k->t->start;
    }
    if (k->stream && len > 0) {
        fwrite(text, 1, len, stdout);
        if (fflush(stdout) != 0) {
            k->write_error = errno;
            return false;
        }
    }
    return !interrupted;
}

static const char *stop_name(quern_stop s)
{
    switch (s) {
    case QUERN_STOP_END:
        return "end";
    case QUERN_STOP_STRING:
        return "string";
    case QUERN_STOP_LENGTH:
        return "length";
    case QUERN_STOP_ABORT:
        return "abort";
    }
    return "?";
}

static double rate(double n, double s)
{
    return s > 0 && n > 0 ? n / s : 0;
}

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

static void report(const qn_loaded *l, const quern_generate_result *r, const run_times *t)
{
    char peak[24], why[48] = "";
    size_t n_decoded = r->n_generated > 0 ? r->n_generated - 1 : 0;
    if (r->stop == QUERN_STOP_END) {
        snprintf(why, sizeof why, " (token %d)", r->tokens[r->n_generated - 1]);
    }
    qn_cli_note("load   %10.1f ms; first token %.1f ms after the start", 1e3 * t->load, 1e3 * t->first);
    qn_startup_print(&l->session->exec->stats);
    qn_cli_note("prompt %10.1f ms, %6zu tokens, %8.2f t/s", 1e3 * t->prompt, t->n_prompt,
                rate((double)t->n_prompt, t->prompt));
    qn_cli_note("decode %10.1f ms, %6zu tokens, %8.2f t/s", 1e3 * t->decode, n_decoded,
                rate((double)n_decoded, t->decode));
    qn_cli_note("stop: %s%s after %zu tokens; peak memory %s", stop_name(r->stop), why, r->n_generated,
                qn_memory_text(qn_peak_memory(), peak));
}

static int print_json(const run_args *a, const qn_loaded *l, const int32_t *ids,
                      const quern_generate_result *r, const run_times *t)
{
    char seed[24]; /* a string: readers of JSON need not hold numbers of 64 bits */
    json_t *o = json_object();
    int bad = 0;
    size_t n_decoded = r->n_generated > 0 ? r->n_generated - 1 : 0;
    bad |= qn_json_set(o, "version", qn_json_str(quern_version()));
    bad |= qn_json_set(o, "model", qn_json_str(a->model.path));
    bad |= qn_json_set(o, "architecture", qn_json_str(l->model->model->arch));
    bad |= qn_json_set(o, "backend", qn_json_str(quern_session_backend(l->session)));
    bad |= qn_json_set(o, "exact", json_boolean(a->model.exact));
    bad |= qn_json_set(o, "n_ctx", json_integer(quern_session_n_ctx(l->session)));
    bad |= qn_json_set(o, "text", qn_json_text(r->text, r->text_len));
    bad |= qn_json_set(o, "stop", qn_json_str(stop_name(r->stop)));
    bad |= qn_json_set(o, "prompt_ids", qn_json_i32s(ids, t->n_prompt));
    bad |= qn_json_set(o, "ids", qn_json_i32s(r->tokens, r->n_generated));
    bad |= qn_json_set(o, "n_prompt", json_integer((json_int_t)t->n_prompt));
    bad |= qn_json_set(o, "n_generated", json_integer((json_int_t)r->n_generated));
    snprintf(seed, sizeof seed, "%" PRIu64, a->sampling.params.seed);
    bad |= qn_json_set(o, "seed", qn_json_str(seed));
    bad |= qn_json_set(o, "load_seconds", qn_json_real(t->load));
    bad |= qn_json_set(o, "first_token_seconds", qn_json_real(t->first));
    bad |= qn_startup_json(o, &l->session->exec->stats);
    bad |= qn_json_set(o, "prompt_seconds", qn_json_real(t->prompt));
    bad |= qn_json_set(o, "decode_seconds", qn_json_real(t->decode));
    bad |= qn_json_set(o, "prompt_tokens_per_second", qn_json_real(rate((double)t->n_prompt, t->prompt)));
    bad |= qn_json_set(o, "decode_tokens_per_second", qn_json_real(rate((double)n_decoded, t->decode)));
    bad |= qn_json_set(o, "peak_memory_bytes", json_integer((json_int_t)qn_peak_memory()));
    return qn_json_print(qn_json_whole(o, bad), JSON_COMPACT);
}

static int unescape_stops(run_args *a, char ***copies)
{
    *copies = calloc(a->stop.n + 1, sizeof **copies);
    for (size_t i = 0; *copies != NULL && i < a->stop.n; i++) {
        char *s = strdup(a->stop.items[i]);
        if (s == NULL) {
            return qn_cli_error("out of memory");
        }
        (*copies)[i] = s;
        if (a->prompt.escape) {
            s[qn_unescape(s, strlen(s))] = 0;
        }
    }
    return *copies != NULL ? -1 : qn_cli_error("out of memory");
}

static int answer(run_args *a, qn_loaded *l, const int32_t *ids, run_times *t, const char *const *stops)
{
    quern_error err;
    quern_sampler *sampler = NULL;
    quern_generate_result r = {0};
    sink out = {a->stream && !a->json, t, 0};
    quern_generate_params p = {
        .n_predict = a->n_predict,
        .stop = stops,
        .n_stop = a->stop.n,
        .ignore_end = a->ignore_eos,
        .on_text = on_text,
        .user = &out,
    };
    double start = qn_seconds();
    if (quern_sampler_new(&sampler, &a->sampling.params, &err) != 0 ||
        quern_session_append(l->session, ids, t->n_prompt, false, &err) != 0) {
        quern_sampler_free(sampler);
        return qn_cli_error("%s", err.text);
    }
    t->prompt = qn_seconds() - start;
    generating = 1;
    int rc = quern_generate(l->session, sampler, &p, &r, &err);
    generating = 0;
    quern_sampler_free(sampler);
    if (rc != 0) {
        fflush(stdout);
        return qn_cli_error("%s", err.text);
    }
    t->decode = r.decode_seconds;
    if (a->json) {
        rc = print_json(a, l, ids, &r, t);
    } else {
        if (!out.stream) {
            fwrite(r.text, 1, r.text_len, stdout);
        }
        if (isatty(STDOUT_FILENO) && r.text_len > 0 && r.text[r.text_len - 1] != '\n') {
            putchar('\n');
        }
        bool flushed = fflush(stdout) == 0;
        rc = flushed && !ferror(stdout) ? QN_EXIT_OK
                                        : qn_cli_error("cannot write the answer to stdout: %s",
                                                       strerror(out.write_error ? out.write_error : errno));
    }
    report(l, &r, t);
    quern_generate_result_free(&r);
    return rc != QN_EXIT_OK ? rc : interrupted ? QN_EXIT_INTERRUPT : QN_EXIT_OK;
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
    rc = rc == 0 ? qn_checker_report(&c, a->json) : QN_EXIT_ERROR;
    qn_checker_close(&c);
    free(logits);
    return rc;
}

static int run_loaded(run_args *a, qn_loaded *l, const char *text, size_t len, const char *const *stops)
{
    int32_t *ids;
    run_times t = {.start = a->start, .load = l->seconds};
    if (qn_prompt_tokens(l->model, &a->prompt, text, len, &ids, &t.n_prompt) != 0) {
        return QN_EXIT_ERROR;
    }
    if (a->prompt.show || qn_cli_debugs(QN_DEBUG_PROMPT)) {
        qn_prompt_show(l->model, ids, t.n_prompt, a->prompt.show);
    }
    if (qn_cli_wants(1)) {
        show_settings(a, l->model);
    }
    int rc;
    if (t.n_prompt > (size_t)quern_session_n_ctx(l->session)) {
        rc = qn_cli_error("the prompt has %zu tokens, the context holds %d; shorten it or raise -c",
                          t.n_prompt, quern_session_n_ctx(l->session));
    } else if (a->check) {
        rc = check_steps(a, l->session, ids, t.n_prompt);
    } else {
        if (a->sampling.params.temperature > 0) {
            qn_cli_note("seed %" PRIu64, a->sampling.params.seed);
        }
        rc = answer(a, l, ids, &t, stops);
    }
    free(ids);
    return rc;
}

int qn_cmd_run(int argc, char **argv)
{
    run_args a = {.model = qn_model_args_defaults,
                  .prompt = qn_prompt_args_defaults,
                  .sampling = qn_sampling_args_defaults(),
                  .n_predict = -1,
                  .stream = true,
                  .start = qn_seconds()};
    const qn_opt_group groups[] = {
        qn_prompt_group(&a.prompt), {"Answer", answer_opts, &a}, qn_sampling_group(&a.sampling),
        qn_load_group(&a.model),    qn_backend_group(&a.model),  qn_common_group,
    };
    const qn_usage usage = {"run",
                            "MODEL [-p TEXT | -f FILE] [options]",
                            "Completes a prompt. The answer goes to stdout, everything else to stderr.",
                            groups,
                            sizeof groups / sizeof *groups,
                            1};
    const char *positional[1];
    char *text = NULL, **stops = NULL;
    size_t len;
    qn_loaded l = {0};
    int rc = qn_opts_parse(&usage, argc, argv, positional);
    rc = rc >= 0 ? rc : qn_model_args_finish(&a.model, "run", positional[0]);
    rc = rc >= 0 ? rc : qn_sampling_finish(&a.sampling, "run");
    rc = rc >= 0 ? rc : unescape_stops(&a, &stops);
    if (rc < 0) {
        rc = qn_prompt_read(&a.prompt, "run", &text, &len);
    }
    if (rc < 0) {
        /* A write under way goes on: text handed over is never lost. A second Ctrl-C ends the process. */
        struct sigaction act = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART | SA_RESETHAND};
        sigaction(SIGINT, &act, NULL);
    }
    a.model.no_fuse |= a.check; /* every step's output is looked at */
    if (rc < 0) {
        rc = qn_cli_load(&l, &a.model, QN_LOAD_SESSION | QN_LOAD_TEXT) == 0
                 ? run_loaded(&a, &l, text, len, (const char *const *)stops)
                 : QN_EXIT_ERROR;
    }
    qn_loaded_free(&l);
    for (size_t i = 0; stops != NULL && stops[i] != NULL; i++) {
        free(stops[i]);
    }
    free(stops);
    free(text);
    qn_strs_free(&a.stop);
    qn_ints_free(&a.model.end_tokens);
    return rc;
}
