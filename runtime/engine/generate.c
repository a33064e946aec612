/* generate.c: the loop sample, show, append, and everything that ends it. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/engine.h"
#include "engine/sampler.h"
#include "text/stop.h"
#include "text/utf8.h"

typedef struct bytes {
    char *data;
    size_t len, cap;
} bytes;

typedef struct generation {
    quern_session *s;
    int seq;
    bool done;
    quern_sampler *sampler;
    const quern_generate_params *p;
    quern_generate_result *r;
    size_t tokens_cap;
    size_t text_cap;
    float *masked;   /* logits without the end tokens; NULL unless ignore_end */
    int32_t *banned; /* those tokens */
    size_t n_banned;
    qn_stop *stop;
    qn_utf8_stream utf8;
    bytes piece;   /* text that the current token makes certain */
    bool at_start; /* the next piece begins the text: drop the blank some tokenizers put there */
} generation;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Room for n more bytes behind len. */
static int grow(char **data, size_t *cap, size_t len, size_t n, qn_err *err)
{
    if (n > SIZE_MAX / 4 - len) {
        return qn_fail(err, "the generated text is too long");
    }
    if (len + n > *cap) {
        size_t cap_new = 2 * (len + n);
        char *p = realloc(*data, cap_new);
        if (p == NULL) {
            return qn_fail(err, "out of memory for %zu bytes of generated text", len + n);
        }
        *data = p;
        *cap = cap_new;
    }
    return 0;
}

static bool among(int32_t id, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] == id) {
            return true;
        }
    }
    return false;
}

static bool is_end(const generation *g, int32_t id)
{
    return among(id, g->p->extra_end, g->p->n_extra_end) || quern_is_end_token(g->s->m, id);
}

/* The logits to sample from: the session's, or a copy in which no end token can win. */
static const float *logits_to_sample(generation *g)
{
    const float *logits = quern_session_logits(g->s, -1);
    if (g->masked == NULL) {
        return logits;
    }
    int n_vocab = g->s->m->model->n_vocab;
    memcpy(g->masked, logits, (size_t)n_vocab * sizeof *logits);
    for (size_t i = 0; i < g->n_banned; i++) {
        g->masked[g->banned[i]] = -INFINITY;
    }
    return g->masked;
}

/* Memory for the logits in which no end token can win, and the list of these. */
static int ban_end_tokens(generation *g, qn_err *err)
{
    int n_vocab = g->s->m->model->n_vocab;
    size_t n_eog = 0;
    const int32_t *eog = g->s->m->tok != NULL ? qn_tokenizer_eog(g->s->m->tok, &n_eog) : NULL;
    g->masked = qn_calloc((size_t)n_vocab, sizeof *g->masked);
    g->banned = qn_calloc(n_eog + g->p->n_extra_end + 1, sizeof *g->banned);
    if (g->masked == NULL || g->banned == NULL) {
        return qn_fail(err, "out of memory for logits");
    }
    for (size_t i = 0; i < n_eog + g->p->n_extra_end; i++) {
        int32_t id = i < n_eog ? eog[i] : g->p->extra_end[i - n_eog];
        if (id >= 0 && id < n_vocab) {
            g->banned[g->n_banned++] = id;
        }
    }
    return 0;
}

static int push_token(generation *g, int32_t token, qn_err *err)
{
    quern_generate_result *r = g->r;
    if (r->n_generated == g->tokens_cap) {
        size_t cap = g->tokens_cap != 0 ? 2 * g->tokens_cap : 256;
        int32_t *tokens = realloc(r->tokens, cap * sizeof *tokens);
        if (tokens == NULL) {
            return qn_fail(err, "out of memory for %zu generated tokens", cap);
        }
        r->tokens = tokens;
        g->tokens_cap = cap;
    }
    r->tokens[r->n_generated++] = token;
    return 0;
}

/* Lets bytes that belong to no stop string through the UTF-8 stream into the current piece. */
static int show(generation *g, const char *data, size_t n, qn_err *err)
{
    if (grow(&g->piece.data, &g->piece.cap, g->piece.len, QN_UTF8_OUT(n), err) != 0) {
        return -1;
    }
    g->piece.len += qn_utf8_feed(&g->utf8, data, n, g->piece.data + g->piece.len);
    return 0;
}

/* Feeds a token's bytes; *stopped: a stop string is complete. */
static int feed_token(generation *g, int32_t token, bool *stopped, qn_err *err)
{
    size_t n = 0, n_out;
    int found;
    const char *out, *data = NULL;
    if (g->s->m->tok != NULL) {
        data = qn_token_piece(g->s->m->tok, token, among(token, g->p->show, g->p->n_show), &n);
    }
    if (g->at_start && n > 0) {
        size_t blank = data[0] == ' ';
        data += blank;
        n -= blank;
        g->at_start = false;
    }
    if (qn_stop_feed(g->stop, data, n, &out, &n_out, &found, err) != 0) {
        return -1;
    }
    *stopped = found >= 0;
    return show(g, out, n_out, err);
}

/* Text held back for a stop string or a code point that will not come any more. */
static int flush_text(generation *g, qn_err *err)
{
    const char *out;
    size_t n;
    qn_stop_flush(g->stop, &out, &n);
    if (show(g, out, n, err) != 0 ||
        grow(&g->piece.data, &g->piece.cap, g->piece.len, QN_UTF8_OUT(0), err) != 0) {
        return -1;
    }
    g->piece.len += qn_utf8_flush(&g->utf8, g->piece.data + g->piece.len);
    return 0;
}

/* Adds the piece to the result and hands it to the callback; *go_on: the callback's answer. */
static int deliver(generation *g, int32_t token, bool *go_on, qn_err *err)
{
    quern_generate_result *r = g->r;
    if (grow(&r->text, &g->text_cap, r->text_len, g->piece.len + 1, err) != 0) {
        return -1;
    }
    if (g->piece.len > 0) {
        memcpy(r->text + r->text_len, g->piece.data, g->piece.len);
        r->text_len += g->piece.len;
    }
    r->text[r->text_len] = 0;
    *go_on = g->p->on_text == NULL ||
             g->p->on_text(g->p->user, r->text + r->text_len - g->piece.len, g->piece.len, token);
    g->piece.len = 0;
    return 0;
}

/* Takes the token that follows n_history others and shows its text. *done: the answer ends with it, for the
 * reason in r->stop. */
static int accept(generation *g, int32_t token, size_t n_history, bool *done, qn_err *err)
{
    bool stop_string = false, go_on;
    if (push_token(g, token, err) != 0) {
        return -1;
    }
    bool end = is_end(g, token);
    if (!end && feed_token(g, token, &stop_string, err) != 0) {
        return -1;
    }
    bool full = n_history + 1 >= (size_t)g->s->exec->opts.n_ctx ||
                (g->p->n_predict >= 0 && g->r->n_generated >= (size_t)g->p->n_predict);
    *done = end || stop_string || full;
    g->r->stop = end ? QUERN_STOP_END : stop_string ? QUERN_STOP_STRING : QUERN_STOP_LENGTH;
    if ((*done && flush_text(g, err) != 0) || deliver(g, token, &go_on, err) != 0) {
        return -1;
    }
    if (!*done && !go_on) {
        *done = true;
        g->r->stop = QUERN_STOP_ABORT;
    }
    return 0;
}

/* Samples one token from the session's logits. */
static int step(generation *g, bool *done, qn_err *err)
{
    const quern_session *s = g->s;
    size_t n_history = (size_t)s->exec->length;
    int32_t token;
    if (quern_sample(g->sampler, logits_to_sample(g), s->m->model->n_vocab, s->tokens, n_history, &token,
                     qn_public_err(err)) != 0) {
        return -1;
    }
    return accept(g, token, n_history, done, err);
}

typedef struct device_row {
    generation *g;
    size_t n_history; /* tokens before the next choice */
    size_t n_before;  /* tokens generated before the loop */
    int base;         /* length before it */
    int rc;
    qn_err err;
} device_row;

static bool take_choice(void *user, int32_t token)
{
    device_row *d = user;
    d->rc = accept(d->g, token, d->n_history++, &d->g->done, &d->err);
    return d->rc != 0 || d->g->done;
}

/* A running answer as a row of the executor's loop. */
static void fill_row(generation *g, device_row *d, qn_loop_row *row)
{
    const quern_session *s = g->s;
    const qn_exec *e = s->exec;
    *d = (device_row){.g = g, .n_before = g->r->n_generated, .base = e->length};
    d->n_history = (size_t)e->length + 1;
    int n = e->opts.n_ctx - e->length;
    if (g->p->n_predict >= 0 && (size_t)n > (size_t)g->p->n_predict - g->r->n_generated) {
        n = g->p->n_predict - (int)g->r->n_generated;
    }
    *row = (qn_loop_row){.seq = g->seq,
                         .token = g->r->tokens[g->r->n_generated - 1],
                         .n = n,
                         .how = qn_sampler_choice(g->sampler),
                         .history = s->tokens,
                         .banned = g->banned,
                         .n_banned = g->n_banned,
                         .take = take_choice,
                         .user = d};
}

/* Goes on with all running answers until one ends, choices made by the executor; the host only looks on. 1:
 * the executor does not choose like this. */
static int run_on_device(generation *all, int n, qn_err *err)
{
    quern_session *s = all->s;
    device_row d[QN_MAX_SEQ];
    qn_loop_row rows[QN_MAX_SEQ];
    int n_row = 0;
    for (int i = 0; i < n; i++) {
        if (!all[i].done) {
            if (quern_session_select(s, all[i].seq, qn_public_err(err)) != 0) {
                return -1;
            }
            fill_row(&all[i], &d[n_row], &rows[n_row]);
            n_row++;
        }
    }
    int rc = s->exec->loop(s->exec, rows, n_row, err);
    for (int i = 0; i < n_row && rc != 1; i++) {
        qn_err ignored;
        quern_session_select(s, rows[i].seq, qn_public_err(&ignored));
        s->n_logits = 0;
        const int32_t *chosen = d[i].g->r->tokens + d[i].n_before;
        for (int k = d[i].base; k < s->exec->length; k++) {
            s->tokens[k] = chosen[k - d[i].base - 1]; /* the first is the one before: the row's token */
        }
        if (rc == 0 && d[i].rc != 0) {
            *err = d[i].err;
            rc = -1;
        }
    }
    return rc;
}

static int prepare(generation *g, qn_err *err)
{
    const quern_session *s = g->s;
    if (g->p->n_predict < -1) {
        return qn_fail(err, "n_predict %d is below -1 (-1: until an end token)", g->p->n_predict);
    }
    if (quern_session_logits(s, -1) == NULL) {
        return qn_fail(err, "nothing to generate from: the session holds no logits (append tokens first)");
    }
    if (g->p->n_stop > 0 && s->m->tok == NULL) {
        return qn_fail(err, "stop strings need a tokenizer, and the model has none");
    }
    if (g->p->ignore_end && ban_end_tokens(g, err) != 0) {
        return -1;
    }
    g->done = g->p->n_predict == 0 || s->exec->length >= s->exec->opts.n_ctx;
    g->r->stop = QUERN_STOP_LENGTH;
    g->at_start = s->m->tok != NULL && qn_tokenizer_add_space_prefix(s->m->tok);
    for (int i = 0; g->at_start && i < s->exec->length; i++) {
        g->at_start = qn_token_get_attr(s->m->tok, s->tokens[i]) == QN_TOKEN_CONTROL;
    }
    /* The result's text is a string even if no token comes. */
    if (grow(&g->r->text, &g->text_cap, 0, 1, err) != 0) {
        return -1;
    }
    g->r->text[0] = 0;
    return qn_stop_new(&g->stop, g->p->stop, g->p->n_stop, err);
}

/* One token of every running answer through the model. */
static int append_tokens(generation *all, int n, qn_err *err)
{
    int seqs[QN_MAX_SEQ], n_run = 0;
    int32_t tokens[QN_MAX_SEQ];
    for (int i = 0; i < n; i++) {
        if (!all[i].done) {
            seqs[n_run] = all[i].seq;
            tokens[n_run++] = all[i].r->tokens[all[i].r->n_generated - 1];
        }
    }
    return n_run == 0 ? 0 : quern_session_append_each(all->s, seqs, tokens, n_run, qn_public_err(err));
}

static int run(generation *all, int n, qn_err *err)
{
    quern_session *s = all->s;
    bool on_device = s->exec->loop != NULL;
    for (int i = 0; i < n; i++) {
        on_device = on_device && !all[i].p->keep_logits;
    }
    for (bool going = true, first = true; going; first = false) {
        going = false;
        for (int i = 0; i < n && (first || !on_device); i++) { /* a device chooses all but the first itself */
            if (!all[i].done && (quern_session_select(s, all[i].seq, qn_public_err(err)) != 0 ||
                                 step(&all[i], &all[i].done, err) != 0)) {
                return -1;
            }
        }
        for (int i = 0; i < n; i++) {
            going = going || !all[i].done;
        }
        int rc = going && on_device ? run_on_device(all, n, err) : 1;
        on_device = rc == 0;
        if (rc < 0 || (going && rc == 1 && append_tokens(all, n, err) != 0)) {
            return -1;
        }
    }
    return 0;
}

static int check_each(const quern_session *s, int n, const int *sequences, qn_err *err)
{
    int n_seq = qn_n_seq(&s->exec->opts);
    if (n < 1 || n > n_seq) {
        return qn_fail(err, "answers in %d of %d sequences", n, n_seq);
    }
    for (int i = 0; i < n; i++) {
        if (sequences[i] < 0 || sequences[i] >= n_seq) {
            return qn_fail(err, "no sequence %d: there are %d, counted from 0", sequences[i], n_seq);
        }
        for (int k = 0; k < i; k++) {
            if (sequences[k] == sequences[i]) {
                return qn_fail(err, "sequence %d is named twice", sequences[i]);
            }
        }
    }
    return 0;
}

int quern_generate_each(quern_session *s, int n, const int *sequences, quern_sampler *const *samplers,
                        const quern_generate_params *params, quern_generate_result *results,
                        quern_error *error)
{
    qn_err *err = qn_engine_err(error), ignored;
    generation all[QN_MAX_SEQ] = {0};
    int selected = s->exec->seq;
    if (n > 0 && n <= QN_MAX_SEQ) {
        memset(results, 0, (size_t)n * sizeof *results);
    }
    if (check_each(s, n, sequences, err) != 0) {
        return -1;
    }
    int rc = 0;
    for (int i = 0; i < n; i++) {
        all[i] = (generation){
            .s = s, .seq = sequences[i], .sampler = samplers[i], .p = &params[i], .r = &results[i]};
    }
    for (int i = 0; i < n && rc == 0; i++) {
        rc = quern_session_select(s, sequences[i], error) != 0 || prepare(&all[i], err) != 0 ? -1 : 0;
    }
    double start = seconds();
    rc = rc != 0 ? rc : run(all, n, err);
    for (int i = 0; i < n; i++) {
        results[i].decode_seconds = seconds() - start;
        if (rc != 0) {
            quern_generate_result_free(&results[i]);
        }
        qn_stop_free(all[i].stop);
        free(all[i].masked);
        free(all[i].banned);
        free(all[i].piece.data);
    }
    quern_session_select(s, selected, qn_public_err(&ignored));
    return rc;
}

int quern_generate(quern_session *s, quern_sampler *sampler, const quern_generate_params *params,
                   quern_generate_result *result, quern_error *error)
{
    int selected = s->exec->seq;
    return quern_generate_each(s, 1, &selected, &sampler, params, result, error);
}

void quern_generate_result_free(quern_generate_result *r)
{
    free(r->tokens);
    free(r->text);
    memset(r, 0, sizeof *r);
}
