/* engine.h: what stands behind the handles of quern.h; for runtime/engine and runtime/cli. */
#ifndef QN_ENGINE_ENGINE_H
#define QN_ENGINE_ENGINE_H

#include "base/error.h"
#include "codegen/backend.h"
#include "engine/quern.h"
#include "model/model.h"
#include "text/tokenizer.h"

/* The public error and the house's are the same bytes. */
_Static_assert(sizeof(quern_error) == sizeof(qn_err), "quern_error and qn_err differ");
static inline qn_err *qn_engine_err(quern_error *e)
{
    return (qn_err *)e;
}
static inline quern_error *qn_public_err(qn_err *e)
{
    return (quern_error *)e;
}

struct quern_model {
    qn_model *model;
    qn_plans *plans;
    qn_tokenizer *tok;  /* NULL: a model without a tokenizer */
    bool n_ctx_default; /* nobody asked for model->n_ctx: a session may take less */
    quern_log_fn log;
    void *log_user;
};

/* What a session keeps for each of its sequences. */
typedef struct qn_sequence {
    int32_t *tokens; /* [exec->opts.n_ctx] ids of positions 0 .. length - 1 */
    float *logits;   /* [n_logits][n_vocab] of the last append */
    int n_logits;
    size_t logits_cap; /* floats */
    int n_last;        /* tokens of the last append */
} qn_sequence;

struct quern_session {
    const quern_model *m;
    qn_exec *exec;
    int32_t *tokens; /* these five: the selected sequence's qn_sequence */
    float *logits;
    int n_logits;
    size_t logits_cap;
    int n_last;
    qn_sequence *others; /* [n_seq] of those that are not selected */
    float *rows;         /* [n_seq][n_vocab] logits of append_each; NULL until needed */
    quern_progress_fn progress;
    void *progress_user;
    bool stopped; /* the last call that processed tokens ended because `progress` said so */
};

/* Calls the model's log function, if it has one. level: quern_log_fn. */
void qn_engine_log(const quern_model *m, int level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Tokenizer of a file with these params' config_dir and end_tokens. */
int qn_engine_tokenizer(qn_tokenizer **out, const qn_gguf *g, const quern_model_params *p, qn_err *err);

/* Room for `rows` rows of logits of the selected sequence. */
int qn_session_reserve(quern_session *s, size_t rows, qn_err *err);
/* The sequences beside the first, and their end. */
int qn_sequences_new(quern_session *s, qn_err *err);
void qn_sequences_free(quern_session *s);

/* Executor options of a session, defaults filled in; n_ctx is the model's. Fails for a backend this build
 * lacks. */
int qn_session_opts(const quern_model *m, const quern_session_params *params, qn_exec_opts *opts,
                    qn_err *err);

#endif
