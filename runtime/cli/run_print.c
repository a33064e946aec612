/* run_print.c: answers as text, as a JSON object, as a JSON object a token. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/run.h"
#include "cli/startup.h"
#include "engine/memory.h"

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

static int flush(void)
{
    errno = 0;
    bool flushed = fflush(stdout) == 0;
    return flushed && !ferror(stdout) ? 0 : errno != 0 ? errno : -1;
}

/* An object on a line of its own; takes it. */
static int put_line(json_t *o)
{
    char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(o);
    if (text == NULL) {
        return ENOMEM;
    }
    puts(text);
    free(text);
    return flush();
}

/* Which prompt and answer an object is of; nothing where there is only one. */
static int set_id(json_t *o, const qn_request *r)
{
    int bad = r->id != NULL ? qn_json_set(o, "prompt_id", json_incref(r->id)) : 0;
    return bad | (r->answer > 0 ? qn_json_set(o, "answer", json_integer(r->answer)) : 0);
}

/* A token's id, text, bytes (the text cannot show all of them) and log-probability. */
static int set_token(json_t *o, const qn_run_output *out, int32_t id, float logprob)
{
    size_t len = 0;
    const qn_tokenizer *tok = out->loaded->model->tok;
    const char *piece = tok != NULL ? qn_token_piece(tok, id, true, &len) : NULL;
    json_t *bytes = json_array();
    int bad = qn_json_set(o, "id", json_integer(id));
    for (size_t i = 0; i < len; i++) {
        bad |= json_array_append_new(bytes, json_integer((unsigned char)piece[i]));
    }
    bad |= qn_json_set(o, "token", qn_json_text(piece != NULL ? piece : "", len));
    bad |= qn_json_set(o, "bytes", bytes);
    bad |= qn_json_set(o, "logprob", qn_json_real(logprob));
    return bad;
}

static int set_probs(json_t *o, const qn_run_output *out, const qn_token_probs *p)
{
    json_t *list = json_array();
    int bad = set_token(o, out, p->id, p->logprob);
    for (int i = 0; i < p->n_top; i++) {
        json_t *t = json_object();
        int bad_token = set_token(t, out, p->top[i].token, p->top[i].logprob);
        bad |= json_array_append_new(list, qn_json_whole(t, bad_token));
    }
    return bad | qn_json_set(o, "top_logprobs", list);
}

static json_t *all_probs(const qn_run_output *out, const qn_answer *a)
{
    json_t *list = json_array();
    int bad = 0;
    for (size_t i = 0; i < a->r.n_generated; i++) {
        json_t *t = json_object();
        int bad_token = set_probs(t, out, &a->probs[i]);
        bad |= json_array_append_new(list, qn_json_whole(t, bad_token));
    }
    return qn_json_whole(list, bad);
}

int qn_run_print_token(const qn_run_output *out, const qn_request *r, const qn_answer *a, size_t index,
                       int32_t token, const char *text, size_t len)
{
    json_t *o = json_object();
    int bad = set_id(o, r);
    bad |= qn_json_set(o, "index", json_integer((json_int_t)index));
    bad |= a->probs != NULL ? set_probs(o, out, &a->probs[index]) : qn_json_set(o, "id", json_integer(token));
    bad |= qn_json_set(o, "text", qn_json_text(text, len));
    return put_line(qn_json_whole(o, bad));
}

int qn_run_print_text(const char *text, size_t len)
{
    fwrite(text, 1, len, stdout);
    return flush();
}

static json_t *whole_json(const qn_run_output *out, const qn_request *r, const qn_answer *a)
{
    char seed[24]; /* a string: readers of JSON need not hold numbers of 64 bits */
    const qn_loaded *l = out->loaded;
    json_t *o = json_object();
    int bad = set_id(o, r);
    size_t n_decoded = a->r.n_generated > 0 ? a->r.n_generated - 1 : 0;
    bad |= qn_json_set(o, "version", qn_json_str(quern_version()));
    bad |= qn_json_set(o, "model", qn_json_str(out->args->path));
    bad |= qn_json_set(o, "architecture", qn_json_str(l->model->model->arch));
    bad |= qn_json_set(o, "backend", qn_json_str(quern_session_backend(l->session)));
    bad |= qn_json_set(o, "exact", json_boolean(out->args->exact));
    bad |= qn_json_set(o, "n_ctx", json_integer(quern_session_n_ctx(l->session)));
    bad |= qn_json_set(o, "text", qn_json_text(a->r.text, a->r.text_len));
    bad |= qn_json_set(o, "stop", qn_json_str(stop_name(a->r.stop)));
    bad |= qn_json_set(o, "prompt_ids", qn_json_i32s(a->ids, a->n_prompt));
    bad |= qn_json_set(o, "ids", qn_json_i32s(a->r.tokens, a->r.n_generated));
    if (r->n_logprobs >= 0 && out->form == QN_RUN_JSON) {
        bad |= qn_json_set(o, "logprobs", all_probs(out, a));
    }
    bad |= qn_json_set(o, "n_prompt", json_integer((json_int_t)a->n_prompt));
    bad |= qn_json_set(o, "n_reused", json_integer((json_int_t)a->n_reused));
    bad |= qn_json_set(o, "n_generated", json_integer((json_int_t)a->r.n_generated));
    snprintf(seed, sizeof seed, "%" PRIu64, r->sampling.seed);
    bad |= qn_json_set(o, "seed", qn_json_str(seed));
    bad |= qn_json_set(o, "load_seconds", qn_json_real(l->seconds));
    bad |= qn_json_set(o, "first_token_seconds", qn_json_real(a->first));
    bad |= qn_startup_json(o, &l->session->exec->stats);
    bad |= qn_json_set(o, "prompt_seconds", qn_json_real(a->prompt));
    bad |= qn_json_set(o, "decode_seconds", qn_json_real(a->r.decode_seconds));
    bad |= qn_json_set(o, "prompt_tokens_per_second",
                       qn_json_real(rate((double)(a->n_prompt - a->n_reused), a->prompt)));
    bad |= qn_json_set(o, "decode_tokens_per_second",
                       qn_json_real(rate((double)n_decoded, a->r.decode_seconds)));
    bad |= qn_json_set(o, "peak_memory_bytes", json_integer((json_int_t)qn_peak_memory()));
    return qn_json_whole(o, bad);
}

int qn_run_print_whole(const qn_run_output *out, const qn_request *r, const qn_answer *a)
{
    const quern_generate_result *g = &a->r;
    if (out->form != QN_RUN_TEXT) {
        return put_line(whole_json(out, r, a));
    }
    if (!out->stream) {
        fwrite(g->text, 1, g->text_len, stdout);
    }
    /* On a terminal the next line begins below; of several answers each ends its line. */
    bool open = g->text_len > 0 && g->text[g->text_len - 1] != '\n';
    if (out->several || (open && isatty(STDOUT_FILENO))) {
        putchar('\n');
    }
    return flush();
}

int qn_run_print_fault(const qn_run_output *out, const qn_request *r, const char *text)
{
    if (out->form == QN_RUN_TEXT) {
        putchar('\n'); /* an empty answer: the others keep their places */
        return flush();
    }
    json_t *o = json_object();
    int bad = set_id(o, r);
    bad |= qn_json_set(o, "error", qn_json_str(text));
    return put_line(qn_json_whole(o, bad));
}

static void report_probs(const qn_run_output *out, const qn_answer *a)
{
    qn_cli_note("log-probabilities: the token chosen | the likeliest ones");
    for (size_t i = 0; i < a->r.n_generated; i++) {
        const qn_token_probs *p = &a->probs[i];
        char line[2048], text[64];
        int n = snprintf(line, sizeof line, "%9.5f %6d '%s' |", (double)p->logprob, p->id,
                         qn_piece_text(out->loaded->model, p->id, text, sizeof text));
        for (int t = 0; t < p->n_top && n < (int)sizeof line - 128; t++) {
            n += snprintf(line + n, sizeof line - (size_t)n, "%s %.5f %d '%s'", t > 0 ? "," : "",
                          (double)p->top[t].logprob, p->top[t].token,
                          qn_piece_text(out->loaded->model, p->top[t].token, text, sizeof text));
        }
        qn_cli_note("%s", line);
    }
}

/* "; kernels: 40 cached, 2 compiled" where there are any. */
static const char *kernels_text(const qn_exec_stats *s, char text[64])
{
    text[0] = '\0';
    if (s->n_kernels > 0) {
        snprintf(text, 64, "; kernels: %d cached, %d compiled", s->n_kernels - s->n_compiled, s->n_compiled);
    }
    return text;
}

void qn_run_report(const qn_run_output *out, const qn_request *r, const qn_answer *a)
{
    const qn_loaded *l = out->loaded;
    const quern_generate_result *g = &a->r;
    const qn_exec_stats *stats = &l->session->exec->stats;
    char peak[24], why[48] = "", kept[64] = "", text[64], device[48] = "";
    size_t n_decoded = g->n_generated > 0 ? g->n_generated - 1 : 0, n_new = a->n_prompt - a->n_reused;
    if (g->stop == QUERN_STOP_END) {
        snprintf(why, sizeof why, " (token %d)", g->tokens[g->n_generated - 1]);
    }
    if (a->n_reused > 0) {
        snprintf(kept, sizeof kept, ", %zu kept from the one before", a->n_reused);
    }
    if (stats->device_bytes > 0) {
        snprintf(device, sizeof device, ", of the device %s", qn_memory_text(stats->device_bytes, peak));
    }
    if (a->probs != NULL && out->form == QN_RUN_TEXT) {
        report_probs(out, a);
    }
    if (r->line == 0) {
        qn_cli_note("load   %10.1f ms; first token %.1f ms after the start%s", 1e3 * l->seconds,
                    1e3 * a->first, kernels_text(stats, text));
        qn_startup_print(stats);
    } else {
        qn_cli_note("prompt of line %zu", r->line);
    }
    qn_cli_note("prompt %10.1f ms, %6zu tokens, %8.2f t/s%s", 1e3 * a->prompt, n_new,
                rate((double)n_new, a->prompt), kept);
    qn_cli_note("decode %10.1f ms, %6zu tokens, %8.2f t/s", 1e3 * g->decode_seconds, n_decoded,
                rate((double)n_decoded, g->decode_seconds));
    qn_cli_note("stop: %s%s after %zu tokens; peak memory %s%s", stop_name(g->stop), why, g->n_generated,
                qn_memory_text(qn_peak_memory(), peak), device);
}
