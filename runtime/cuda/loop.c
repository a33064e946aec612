/* loop.c: a token of one or several sequences as a captured graph, and decoding that chooses by itself: the
 * host only looks on, some tokens behind. */
#include "cuda/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { AHEAD = 8, RING_STEPS = QN_CUDA_RING / QN_MAX_SEQ }; /* AHEAD: tokens in flight */

/* The launches of one token: of one sequence by the decode plan, of several by the list of such rows. */
static int launch_token(qn_cuda_exec *x, qn_cuda_choice how, int n, qn_err *err)
{
    const qn_plans *p = x->base.plans;
    const qn_cuda_list *choose = &x->low.choose[how];
    int rc = 0;
    if (n > 1) {
        rc = qn_cuda_launch(x, &p->prefill, &x->low.each, n, n, 0, -1, err);
    } else if (how == QN_CHOOSE_BEST) {
        const qn_cuda_list *list = x->low.persistent.n ? &x->low.persistent : &x->low.decode;
        return qn_cuda_launch(x, &p->decode, list, 1, 1, 0, -1, err);
    } else if (x->low.persistent_steps.n) {
        rc = qn_cuda_launch(x, &p->decode, &x->low.persistent_steps, 1, 1, 0, -1, err);
    } else {
        rc = qn_cuda_launch(x, &p->decode, &x->low.decode, 1, 1, 0, p->decode.n_step - 1, err);
    }
    return rc ? rc : qn_cuda_launch(x, &p->decode, choose, n, n, 0, -1, err);
}

qn_cu_result qn_cuda_capture_begin(qn_cuda_exec *x)
{
    return x->cuda.api.StreamBeginCapture(x->stream, QN_CU_CAPTURE_THREAD_LOCAL);
}

qn_cu_result qn_cuda_capture_end(qn_cuda_exec *x, qn_cu_graph_exec *out)
{
    const qn_cuda_api *cu = &x->cuda.api;
    qn_cu_graph graph = NULL;
    qn_cu_result r = cu->StreamEndCapture(x->stream, &graph);
    if (!r && out) {
        r = cu->GraphInstantiateWithFlags(out, graph, 0);
        if (!r && (r = cu->GraphUpload(*out, x->stream)) != 0) {
            cu->GraphExecDestroy(*out);
        }
        *out = r ? NULL : *out;
    }
    if (graph) {
        cu->GraphDestroy(graph);
    }
    return r;
}

/* A failure leaves base.stats.graph_off filled and is no error. */
static void capture(qn_cuda_exec *x, qn_cuda_choice how, int n)
{
    double start = qn_cuda_seconds();
    qn_cu_graph_exec *out = &x->graphs[how][n];
    qn_err err = {""};
    qn_cu_result r = qn_cuda_capture_begin(x);
    int rc = r ? -1 : launch_token(x, how, n, &err);
    if (!r) {
        r = qn_cuda_capture_end(x, rc == 0 ? out : NULL);
    }
    x->base.stats.capture += qn_cuda_seconds() - start;
    if (r || rc) {
        if (!err.text[0]) {
            qn_cuda_fail(&x->cuda, r, "capturing decode", &err);
        }
        snprintf(x->base.stats.graph_off, sizeof x->base.stats.graph_off, "%.150s", err.text);
        return;
    }
    x->base.stats.captures++;
}

int qn_cuda_token(qn_cuda_exec *x, qn_cuda_choice how, int n, qn_err *err)
{
    char *off = x->base.stats.graph_off;
    if (!x->graphs[how][n] && !off[0]) {
        if (x->base.opts.no_graph) {
            snprintf(off, sizeof x->base.stats.graph_off, "--no-graph");
        } else {
            capture(x, how, n);
            if (off[0] && x->base.opts.log) {
                char line[200];
                snprintf(line, sizeof line, "graph: off (%s)", off);
                x->base.opts.log(x->base.opts.log_user, 0, line);
            }
        }
    }
    if (!x->graphs[how][n]) {
        return launch_token(x, how, n, err);
    }
    qn_cu_result r = x->cuda.api.GraphLaunch(x->graphs[how][n], x->stream);
    return r ? qn_cuda_fail(&x->cuda, r, "launching the decode graph", err) : 0;
}

int qn_cuda_put_rows(qn_cuda_exec *x, const int *seqs, const int32_t *tokens, int n, qn_err *err)
{
    const qn_cuda_api *cu = &x->cuda.api;
    qn_cuda_state *s = x->host_state;
    *s = (qn_cuda_state){.pos = qn_exec_length(&x->base, seqs[0]),
                         .n_rows = n,
                         .n_out = n,
                         .token = tokens[0],
                         .seq = seqs[0],
                         .many = n > 1};
    for (int i = 0; i < n; i++) {
        s->rows[i].pos = qn_exec_length(&x->base, seqs[i]);
        s->rows[i].seq = seqs[i];
        x->host_tokens[i] = tokens[i];
    }
    qn_cu_result r = cu->MemcpyHtoDAsync(x->mem.state, s, sizeof *s, x->stream);
    r = r ? r : cu->MemcpyHtoDAsync(x->mem.tokens, x->host_tokens, sizeof *tokens * (size_t)n, x->stream);
    return r ? qn_cuda_fail(&x->cuda, r, "sending tokens", err) : 0;
}

static qn_cuda_choice choice_of(const qn_choice *c)
{
    return c->temperature == 0                         ? QN_CHOOSE_BEST
           : c->top_k > 0 && c->top_k <= QN_CUDA_TOP_K ? QN_CHOOSE_TOP_K
                                                       : QN_CHOOSE_FULL;
}

/* Tokens in the penalty's window, counted, and those that are banned. */
static int send_marks(qn_cuda_exec *x, const qn_loop_row *row, int index, int length, qn_err *err)
{
    const qn_cuda_api *cu = &x->cuda.api;
    size_t n_vocab = (size_t)x->base.plans->model->n_vocab, n_ctx = (size_t)x->base.opts.n_ctx;
    uint32_t *marks = qn_calloc(n_vocab, sizeof *marks);
    if (!marks) {
        return qn_fail(err, "out of memory for the sampler");
    }
    int last_n = row->how.repeat_penalty == 1 ? 0 : row->how.repeat_last_n;
    int first = last_n >= 0 && length + 1 - last_n > 0 ? length + 1 - last_n : 0;
    for (int i = first; i <= length; i++) {
        marks[i < length ? row->history[i] : row->token]++;
    }
    for (size_t i = 0; i < row->n_banned; i++) {
        marks[row->banned[i]] |= QN_MARK_BANNED;
    }
    uint64_t history = x->mem.history + sizeof(int32_t) * n_ctx * (size_t)index;
    qn_cu_result r = cu->MemcpyHtoDAsync(x->mem.marks + sizeof *marks * n_vocab * (size_t)index, marks,
                                         sizeof *marks * n_vocab, x->stream);
    if (!r && first < length) {
        r = cu->MemcpyHtoDAsync(history + sizeof(int32_t) * (size_t)first, row->history + first,
                                sizeof(int32_t) * (size_t)(length - first), x->stream);
    }
    r = r ? r
          : cu->MemcpyHtoDAsync(history + sizeof(int32_t) * (size_t)length, &row->token, sizeof row->token,
                                x->stream);
    free(marks); /* pageable memory is staged before a copy returns */
    return r ? qn_cuda_fail(&x->cuda, r, "sending the sampler's state", err) : 0;
}

static int send_choices(qn_cuda_exec *x, const qn_loop_row *rows, int n, qn_cuda_choice *how, qn_err *err)
{
    qn_cuda_sampling all[QN_MAX_SEQ] = {0};
    *how = QN_CHOOSE_BEST;
    for (int i = 0; i < n; i++) {
        const qn_choice *c = &rows[i].how;
        qn_cuda_choice own = choice_of(c);
        bool penalty = c->repeat_penalty != 1 && c->repeat_last_n != 0;
        bool marked = rows[i].n_banned > 0 || penalty;
        *how = own > *how ? own : *how;
        all[i] = (qn_cuda_sampling){.inv_temp = own == QN_CHOOSE_BEST ? 1 : 1.0 / (double)c->temperature,
                                    .top_p = (double)c->top_p,
                                    .least = (double)c->min_p * 0x1p44,
                                    .seed = c->seed,
                                    .penalty = c->repeat_penalty,
                                    .top_k = c->top_k,
                                    .last_n = penalty ? c->repeat_last_n : 0,
                                    .flags = (own == QN_CHOOSE_BEST ? QN_SAMPLE_GREEDY : 0) |
                                             (marked ? QN_SAMPLE_MARKED : 0)};
        if (marked && send_marks(x, &rows[i], i, qn_exec_length(&x->base, rows[i].seq), err)) {
            return -1;
        }
    }
    qn_cu_result r = x->cuda.api.MemcpyHtoDAsync(x->mem.sampling, all, sizeof *all * (size_t)n, x->stream);
    return r ? qn_cuda_fail(&x->cuda, r, "sending the sampler's state", err) : 0;
}

/* Are the rows such that a loop can run? *n: steps until the first of them ends. */
static int check_rows(const qn_cuda_exec *x, const qn_loop_row *rows, int n_row, int *seqs, int32_t *tokens,
                      int *n, qn_err *err)
{
    const qn_exec *e = &x->base;
    for (int i = 0; i < n_row && i < QN_MAX_SEQ; i++) {
        seqs[i] = rows[i].seq;
        tokens[i] = rows[i].token;
    }
    const qn_run r = {.tokens = tokens, .n = n_row, .phase = QN_PHASE_PREFILL, .seqs = seqs};
    if (qn_run_check(e, &r, n_row, err)) {
        return -1;
    }
    *n = rows[0].n;
    for (int i = 0; i < n_row; i++) {
        int left = e->opts.n_ctx - qn_exec_length(e, seqs[i]);
        if (rows[i].n < 1 || rows[i].n > left) {
            return qn_fail(err, "%d tokens asked for, %d positions left", rows[i].n, left);
        }
        *n = rows[i].n < *n ? rows[i].n : *n;
    }
    return 0;
}

/* Waits for a choice in the ring, without the driver's help. */
static int wait_choice(qn_cuda_exec *x, volatile int32_t *slot, int32_t *id, qn_err *err)
{
    for (int spin = 0; *slot == QN_CHOSE_PENDING; spin++) {
        if (spin % 4096 == 4095) { /* a failed kernel never writes */
            qn_cu_result s = x->cuda.api.StreamQuery(x->stream);
            if (s && s != QN_CU_NOT_READY) {
                return qn_cuda_fail(&x->cuda, s, "decoding", err);
            }
            if (!s && *slot == QN_CHOSE_PENDING) {
                return qn_fail(err, "decoding ended without a choice");
            }
        }
    }
    *id = *slot;
    *slot = QN_CHOSE_PENDING;
    return 0;
}

/* One row's next choice. *ended: it was the row's last. */
static int take_choice(qn_cuda_exec *x, qn_loop_row *row, int index, bool *ended, qn_err *err)
{
    int32_t id = QN_CHOSE_PENDING;
    if (wait_choice(x, &x->ring[row->n_done % RING_STEPS * QN_MAX_SEQ + index], &id, err)) {
        return -1;
    }
    if (id < 0) {
        int pos = qn_exec_length(&x->base, row->seq) + row->n_done;
        return id == QN_CHOSE_NONE ? qn_fail(err, "every logit is -inf at position %d", pos)
                                   : qn_fail(err, "logits hold %s at position %d",
                                             id == QN_CHOSE_NAN ? "NaN" : "infinity", pos);
    }
    row->n_done++;
    bool stop = row->take && row->take(row->user, id);
    *ended = *ended || stop || row->n_done == row->n;
    return 0;
}

int qn_cuda_loop(qn_exec *e, qn_loop_row *rows, int n_row, qn_err *err)
{
    qn_cuda_exec *x = (qn_cuda_exec *)e;
    int seqs[QN_MAX_SEQ], n, sent = 0;
    int32_t tokens[QN_MAX_SEQ];
    qn_cuda_choice how;
    for (int i = 0; i < n_row; i++) {
        rows[i].n_done = 0;
    }
    if (check_rows(x, rows, n_row, seqs, tokens, &n, err)) {
        return -1;
    }
    x->cuda.api.CtxSetCurrent(x->ctx);
    for (int i = 0; i < QN_CUDA_RING; i++) {
        x->ring[i] = QN_CHOSE_PENDING;
    }
    int rc =
        qn_cuda_put_rows(x, seqs, tokens, n_row, err) || send_choices(x, rows, n_row, &how, err) ? -1 : 0;
    int ahead = AHEAD < e->opts.n_ubatch ? AHEAD : e->opts.n_ubatch; /* a ring has n_ubatch rows to spare */
    bool ended = false;
    for (int done = 0; rc == 0 && !ended; done++) {
        while (rc == 0 && sent < n && sent < done + ahead) {
            rc = qn_cuda_token(x, how, n_row, err);
            sent++;
        }
        for (int i = 0; i < n_row && rc == 0; i++) {
            rc = take_choice(x, &rows[i], i, &ended, err);
        }
    }
    qn_err late;
    if (qn_cuda_sync(x, rc ? &late : err) && rc == 0) {
        rc = -1;
    }
    /* A cache holds the input token and every choice that was fed back; what ran ahead is forgotten. */
    for (int i = 0; i < n_row; i++) {
        int base = qn_exec_length(e, seqs[i]);
        qn_exec_set_length(e, seqs[i], base + rows[i].n_done, base + sent);
    }
    return rc;
}
