#include "codegen/backend.h"

int qn_n_seq(const qn_exec_opts *opts)
{
    return opts->n_seq > 0 ? opts->n_seq : 1;
}

int qn_exec_length(const qn_exec *e, int seq)
{
    return seq == e->seq ? e->length : e->lengths[seq];
}

void qn_exec_set_length(qn_exec *e, int seq, int length, int high)
{
    int *l = seq == e->seq ? &e->length : &e->lengths[seq], *h = seq == e->seq ? &e->high : &e->highs[seq];
    *l = length;
    *h = high > *h ? high : *h;
}

int qn_exec_select(qn_exec *e, int seq, qn_err *err)
{
    if (seq < 0 || seq >= qn_n_seq(&e->opts)) {
        return qn_fail(err, "no sequence %d: there are %d, counted from 0", seq, qn_n_seq(&e->opts));
    }
    e->lengths[e->seq] = e->length;
    e->highs[e->seq] = e->high;
    e->seq = seq;
    e->length = e->lengths[seq];
    e->high = e->highs[seq];
    return 0;
}

int qn_kv_rows(const qn_kv_cache *kv, const qn_exec_opts *opts)
{
    /* Long rings are whole tiles of the kernel that copies by tensors (runtime/cuda/lower_attention.c). */
    const int tile = kv->k_dim > 128 ? 80 : 128, least = 8 * tile;
    int64_t ring = (int64_t)kv->window + opts->n_ubatch;
    ring = ring < least ? ring : (ring + tile - 1) / tile * tile;
    return kv->window > 0 && ring < opts->n_ctx ? (int)ring : opts->n_ctx;
}

int qn_buf_rows(const qn_buf *b, const qn_exec_opts *opts)
{
    int outputs = opts->n_outputs > 0 && opts->n_outputs < opts->n_ubatch ? opts->n_outputs : opts->n_ubatch;
    return b->rows == QN_ROWS_OUTPUTS ? outputs : opts->n_ubatch;
}

int qn_kv_check_truncate(const qn_exec *e, int length, qn_err *err)
{
    for (int i = 0; i < e->plans->n_kv; i++) {
        const qn_kv_cache *kv = &e->plans->kv[i];
        int rows = qn_kv_rows(kv, &e->opts);
        int oldest = (e->high > e->length ? e->high : e->length) - rows, needed = length - kv->window + 1;
        if (kv->window > 0 && length > 0 && oldest > (needed > 0 ? needed : 0)) {
            return qn_fail(err, "layer %d keeps the last %d positions only: cannot go back from %d to %d",
                           kv->layer, rows, e->length, length);
        }
    }
    return 0;
}

int qn_exec_check_view(const qn_exec *e, qn_view v, int row, int n_rows, qn_err *err)
{
    bool inside = v.buf >= 0 && v.buf < e->plans->n_buf && v.col >= 0 && v.width >= 0 &&
                  v.width <= e->plans->bufs[v.buf].width - v.col && row >= 0 && n_rows >= 0 &&
                  n_rows <= qn_buf_rows(&e->plans->bufs[v.buf], &e->opts) - row;
    return inside ? 0 : qn_fail(err, "no such view");
}

int qn_exec_check_kv(const qn_exec *e, int kv, int pos, int n, qn_err *err)
{
    bool inside = kv >= 0 && kv < e->plans->n_kv && pos >= 0 && n >= 0 &&
                  n <= qn_kv_rows(&e->plans->kv[kv], &e->opts) && pos <= e->opts.n_ctx - n;
    return inside ? 0 : qn_fail(err, "no such rows of a KV cache");
}

void qn_exec_advance(qn_exec *e, const qn_run *r)
{
    for (int i = 0; r->seqs && i < r->n; i++) {
        int next = qn_exec_length(e, r->seqs[i]) + 1;
        qn_exec_set_length(e, r->seqs[i], r->hold ? next - 1 : next, next);
    }
    if (r->seqs) {
        return;
    }
    int end = e->length + r->n;
    e->high = e->high > end ? e->high : end;
    if (!r->hold) {
        e->length = end;
    }
}

/* One token each of several sequences. */
static int check_seqs(const qn_exec *e, const qn_run *r, qn_err *err)
{
    bool seen[QN_MAX_SEQ] = {false};
    if (r->phase == QN_PHASE_DECODE || r->n > QN_MAX_SEQ) {
        return qn_fail(err, "a run of %d sequences (at most %d, in prefill's phase)", r->n, QN_MAX_SEQ);
    }
    for (int i = 0; i < r->n; i++) {
        int seq = r->seqs[i];
        bool there = seq >= 0 && seq < qn_n_seq(&e->opts);
        if (!there || seen[seq]) {
            return qn_fail(err, "sequence %d %s (there are %d)", seq,
                           there ? "is named twice" : "does not exist", qn_n_seq(&e->opts));
        }
        seen[seq] = true;
        if (qn_exec_length(e, seq) >= e->opts.n_ctx) {
            return qn_fail(err, "the context of sequence %d is full: %d tokens", seq, e->opts.n_ctx);
        }
    }
    return 0;
}

int qn_run_check(const qn_exec *e, const qn_run *r, int n_out, qn_err *err)
{
    qn_buf outputs = {.rows = QN_ROWS_OUTPUTS};
    if (r->n < 1 || r->n > e->opts.n_ubatch || (r->phase == QN_PHASE_DECODE && r->n != 1) ||
        n_out > qn_buf_rows(&outputs, &e->opts)) {
        return qn_fail(err, "a run of %d tokens with %d rows of logits (at most %d and %d; one in decode)",
                       r->n, n_out, e->opts.n_ubatch, qn_buf_rows(&outputs, &e->opts));
    }
    if (r->seqs && check_seqs(e, r, err)) {
        return -1;
    }
    if (!r->seqs && r->pos != e->length) {
        return qn_fail(err, "run at position %d, but %d positions are held", r->pos, e->length);
    }
    if (!r->seqs && r->n > e->opts.n_ctx - r->pos) {
        return qn_fail(err, "the context of %d tokens is full: %d held, %d more asked for", e->opts.n_ctx,
                       r->pos, r->n);
    }
    for (int i = 0; i < r->n; i++) {
        if (r->tokens[i] < 0 || r->tokens[i] >= e->plans->model->n_vocab) {
            return qn_fail(err, "token id %d at position %d is outside the vocabulary of %d", r->tokens[i],
                           r->pos + i, e->plans->model->n_vocab);
        }
    }
    return 0;
}
