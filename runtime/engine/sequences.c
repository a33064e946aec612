/* sequences.c: the sequences of a session: which one is selected, and one more token in several at once. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

_Static_assert(QUERN_MAX_SEQUENCES == (int)QN_MAX_SEQ,
               "sequences of the interface and of an executor differ");

static void save(quern_session *s, qn_sequence *q)
{
    *q = (qn_sequence){s->tokens, s->logits, s->n_logits, s->logits_cap, s->n_last};
}

static void restore(quern_session *s, const qn_sequence *q)
{
    s->tokens = q->tokens;
    s->logits = q->logits;
    s->n_logits = q->n_logits;
    s->logits_cap = q->logits_cap;
    s->n_last = q->n_last;
}

int qn_sequences_new(quern_session *s, qn_err *err)
{
    int n = qn_n_seq(&s->exec->opts);
    s->others = qn_calloc((size_t)n, sizeof *s->others);
    for (int i = 1; s->others != NULL && i < n; i++) {
        s->others[i].tokens = qn_calloc((size_t)s->exec->opts.n_ctx, sizeof *s->tokens);
        if (s->others[i].tokens == NULL) {
            return qn_fail(err, "out of memory for %d contexts of %d tokens", n, s->exec->opts.n_ctx);
        }
    }
    return s->others != NULL ? 0 : qn_fail(err, "out of memory for %d sequences", n);
}

void qn_sequences_free(quern_session *s)
{
    for (int i = 0; s->others != NULL && i < qn_n_seq(&s->exec->opts); i++) {
        if (i != s->exec->seq) {
            free(s->others[i].tokens);
            free(s->others[i].logits);
        }
    }
    free(s->others);
    free(s->tokens);
    free(s->logits);
    free(s->rows);
}

int quern_session_select(quern_session *s, int sequence, quern_error *error)
{
    int old = s->exec->seq;
    if (sequence == old) {
        return 0;
    }
    if (qn_exec_select(s->exec, sequence, qn_engine_err(error)) != 0) {
        return -1;
    }
    save(s, &s->others[old]);
    restore(s, &s->others[sequence]);
    return 0;
}

/* Logits of row i become the kept ones of its sequence. */
static int keep_logits(quern_session *s, int sequence, int32_t token, const float *row, qn_err *err)
{
    if (quern_session_select(s, sequence, qn_public_err(err)) != 0 || qn_session_reserve(s, 1, err) != 0) {
        return -1;
    }
    memcpy(s->logits, row, sizeof *row * (size_t)s->m->model->n_vocab);
    s->tokens[s->exec->length - 1] = token;
    s->n_logits = s->n_last = 1;
    return 0;
}

static int append_one(quern_session *s, int sequence, const int32_t *token, qn_err *err)
{
    return quern_session_select(s, sequence, qn_public_err(err)) != 0
               ? -1
               : quern_session_append(s, token, 1, false, qn_public_err(err));
}

int quern_session_append_each(quern_session *s, const int *sequences, const int32_t *tokens, int n,
                              quern_error *error)
{
    qn_err *err = qn_engine_err(error);
    int n_seq = qn_n_seq(&s->exec->opts), selected = s->exec->seq, rc = 0;
    if (n < 1 || n > n_seq) {
        return qn_fail(err, "%d tokens for different ones of %d sequences", n, n_seq);
    }
    if (n == 1) {
        rc = append_one(s, sequences[0], tokens, err);
    } else {
        size_t n_vocab = (size_t)s->m->model->n_vocab;
        s->rows = s->rows != NULL ? s->rows : qn_alloc64(sizeof *s->rows * n_vocab * (size_t)n_seq);
        if (s->rows == NULL) {
            return qn_fail(err, "out of memory for logits of %d sequences", n_seq);
        }
        qn_run r = {.tokens = tokens,
                    .n = n,
                    .phase = QN_PHASE_PREFILL,
                    .outputs = QN_OUT_ALL,
                    .logits = s->rows,
                    .stop_after = -1,
                    .seqs = sequences};
        rc = s->exec->run(s->exec, &r, err);
        for (int i = 0; rc == 0 && i < n; i++) {
            rc = keep_logits(s, sequences[i], tokens[i], s->rows + (size_t)i * n_vocab, err);
        }
    }
    quern_error ignored;
    quern_session_select(s, selected, &ignored);
    return rc;
}
