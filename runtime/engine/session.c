/* session.c: tokens in, logits out: chunks, the token history, and truncation where a ring has moved on. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "codegen/kv_type.h"
#include "engine/engine.h"
#include "engine/memory.h"

_Static_assert((int)QUERN_LOADING_WEIGHTS == (int)QN_LOADING_WEIGHTS &&
                   (int)QUERN_LOADING_KERNELS == (int)QN_LOADING_KERNELS &&
                   (int)QUERN_LOADING_CHOICES == (int)QN_LOADING_CHOICES,
               "what is loaded has two lists of names");

enum { DEFAULT_UBATCH = 512, DEFAULT_OUTPUTS = 64 };

/* auto: the GPU where one answers and the arithmetic asked for runs there, else the CPU with the reason said.
 */
static int choose_backend(const quern_model *m, const quern_session_params *p, qn_exec_opts *opts,
                          qn_err *err)
{
    uint64_t free_bytes;
    if (p->backend == QUERN_BACKEND_CPU || (p->backend == QUERN_BACKEND_AUTO && p->exact)) {
        return 0;
    }
    if (p->exact) {
        return qn_fail(err, "the exact arithmetic runs on backend cpu only");
    }
    bool explicit_cuda = p->backend == QUERN_BACKEND_CUDA;
    if ((explicit_cuda ? qn_cuda_available : qn_cuda_usable)(p->device, &free_bytes, err) == 0) {
        opts->cuda = true;
        return 0;
    }
    if (explicit_cuda) {
        return qn_fail_prefix(err, "backend cuda");
    }
    qn_engine_log(m, 0, "backend cpu: %s", err->text);
    return 0;
}

int qn_session_opts(const quern_model *m, const quern_session_params *params, qn_exec_opts *opts, qn_err *err)
{
    const quern_session_params none = {0};
    const quern_session_params *p = params != NULL ? params : &none;
    if (p->n_ubatch < 0 || p->n_threads < 0 || p->n_outputs < 0) {
        return qn_fail(err, "%s %d is negative (0: the default)",
                       p->n_ubatch < 0    ? "chunk size"
                       : p->n_threads < 0 ? "thread count"
                                          : "number of outputs",
                       p->n_ubatch < 0    ? p->n_ubatch
                       : p->n_threads < 0 ? p->n_threads
                                          : p->n_outputs);
    }
    if (p->n_sequences < 0 || p->n_sequences > QUERN_MAX_SEQUENCES) {
        return qn_fail(err, "%d sequences: not 1 to %d (0: 1)", p->n_sequences, QUERN_MAX_SEQUENCES);
    }
    if ((unsigned)p->cache_type_k > QUERN_CACHE_Q8_0 || (unsigned)p->cache_type_v > QUERN_CACHE_Q8_0) {
        return qn_fail(
            err, "no cache type %d",
            (int)((unsigned)p->cache_type_k > QUERN_CACHE_Q8_0 ? p->cache_type_k : p->cache_type_v));
    }
    int n_ubatch = p->n_ubatch != 0 ? p->n_ubatch : DEFAULT_UBATCH;
    *opts = (qn_exec_opts){
        .n_ctx = m->model->n_ctx,
        .n_ubatch = n_ubatch < m->model->n_ctx ? n_ubatch : m->model->n_ctx,
        .n_threads = p->n_threads != 0 ? p->n_threads : qn_cpu_count(),
        .exact = p->exact,
        .n_outputs = p->n_outputs != 0 ? p->n_outputs : DEFAULT_OUTPUTS,
        .n_seq = p->n_sequences != 0 ? p->n_sequences : 1,
        .k_type = (qn_cache_type)p->cache_type_k,
        .v_type = (qn_cache_type)p->cache_type_v,
        .device = p->device,
        .cache = p->cache,
        .kernel_src = p->kernel_src,
        .variant = p->variant,
        .no_graph = p->no_graph,
        .no_prompt_graph = p->no_prompt_graph,
        .persistent = p->persistent,
        .rows_apart = p->rows_apart,
        .plain_gemv = p->plain_gemv,
        .f32_products = p->f32_products,
        .plain_attention = p->plain_attention,
        .flash_attention = p->flash_attention,
        .tma_attention = p->tma_attention,
        .weight_cache = (qn_weight_cache)p->weight_cache,
        .prefill = (qn_prefill)p->prefill,
        .no_tune = p->no_tune,
        .tune_seconds = p->tune_seconds,
        .rows_attention = p->rows_attention,
        .no_fuse = p->no_fuse,
        .f32_activations = p->f32_activations,
        .log = m->log,
        .log_user = m->log_user,
        .loading = p->loading,
        .loading_user = p->loading_user,
    };
    if (opts->n_seq > opts->n_ubatch) {
        return qn_fail(err, "chunks of %d tokens (context %d) are too small for %d sequences", opts->n_ubatch,
                       opts->n_ctx, opts->n_seq);
    }
    opts->n_outputs = opts->n_outputs < opts->n_seq ? opts->n_seq : opts->n_outputs;
    return choose_backend(m, p, opts, err) != 0 ? -1 : qn_kv_check_types(m->plans, opts, err);
}

/* Options that contradict each other or the backend. */
static int check_prefill(const qn_exec_opts *o, qn_err *err)
{
    unsigned cache = o->weight_cache, prefill = o->prefill;
    if (cache > QN_WEIGHT_CACHE_SERIAL || prefill > QN_PREFILL_FP8) {
        return qn_fail(err, "weight cache %u or prefill %u: no such choice", cache, prefill);
    }
    if (!o->cuda && (cache == QN_WEIGHT_CACHE_ON || prefill != QN_PREFILL_AUTO)) {
        return qn_fail(err, "%s is for backend cuda, and this session runs on backend cpu",
                       cache == QN_WEIGHT_CACHE_ON ? "--weight-cache on" : "--prefill");
    }
    if (prefill == QN_PREFILL_FP8 && cache >= QN_WEIGHT_CACHE_OFF) {
        return qn_fail(
            err, "--prefill fp8 multiplies rows of 8 bits that are made once: --weight-cache %s has none",
            cache == QN_WEIGHT_CACHE_OFF ? "off" : "serial");
    }
    if (cache == QN_WEIGHT_CACHE_ON && (prefill == QN_PREFILL_MMQ || prefill == QN_PREFILL_WGMMA)) {
        return qn_fail(err,
                       "--prefill %s multiplies the quantised weights: --weight-cache on would never be read",
                       prefill == QN_PREFILL_MMQ ? "mmq" : "wgmma");
    }
    return 0;
}

static int new_session(quern_session **out, const quern_model *m, const quern_session_params *params,
                       quern_error *error)
{
    qn_err *err = qn_engine_err(error);
    qn_exec_opts opts;
    if (qn_session_opts(m, params, &opts, err) != 0 || check_prefill(&opts, err) != 0) {
        return -1;
    }
    uint64_t available = qn_memory_available();
    if (opts.cuda && qn_cuda_available(opts.device, &available, err) != 0) {
        return -1;
    }
    if (qn_memory_fit(m->plans, &opts, m->n_ctx_default, available, err) != 0) {
        return -1;
    }
    if (opts.n_ctx < m->model->n_ctx) {
        qn_engine_log(m, 0, "context reduced from %d to %d: no more fits in memory", m->model->n_ctx,
                      opts.n_ctx);
    }
    quern_session *s = qn_calloc(1, sizeof *s);
    if (s == NULL) {
        return qn_fail(err, "out of memory for a session");
    }
    s->m = m;
    s->tokens = qn_calloc((size_t)opts.n_ctx, sizeof *s->tokens);
    if (s->tokens == NULL) {
        quern_session_free(s);
        return qn_fail(err, "out of memory for a context of %d tokens", opts.n_ctx);
    }
    if ((opts.cuda ? qn_cuda_exec_new : qn_cpu_exec_new)(&s->exec, m->plans, &opts, err) != 0) {
        quern_session_free(s);
        return -1;
    }
    if (qn_sequences_new(s, err) != 0) {
        quern_session_free(s);
        return -1;
    }
    *out = s;
    return 0;
}

/* A device is asked several times before its executor opens it. */
int quern_session_new(quern_session **out, const quern_model *m, const quern_session_params *params,
                      quern_error *error)
{
    qn_err none; /* whoever asks a device that is not there says so */
    int device = params != NULL ? params->device : 0;
    bool held = (params == NULL || params->backend != QUERN_BACKEND_CPU) && qn_cuda_hold(device, &none) == 0;
    *out = NULL;
    int rc = new_session(out, m, params, error);
    if (held) {
        qn_cuda_release(device);
    }
    return rc;
}

void quern_session_free(quern_session *s)
{
    if (s != NULL) {
        qn_sequences_free(s);
        if (s->exec != NULL) {
            s->exec->free(s->exec);
        }
        free(s);
    }
}

const char *quern_session_backend(const quern_session *s)
{
    return s->exec->name;
}

int quern_session_length(const quern_session *s)
{
    return s->exec->length;
}

int quern_session_n_ctx(const quern_session *s)
{
    return s->exec->opts.n_ctx;
}

int qn_session_reserve(quern_session *s, size_t rows, qn_err *err)
{
    uint64_t floats, bytes;
    if (!qn_mul_u64(rows, (uint64_t)s->m->model->n_vocab, &floats) ||
        !qn_mul_u64(floats, sizeof(float), &bytes) || bytes > PTRDIFF_MAX) {
        return qn_fail(err, "logits of %zu tokens over a vocabulary of %d are too large", rows,
                       s->m->model->n_vocab);
    }
    if (floats > s->logits_cap) {
        free(s->logits);
        s->logits_cap = 0;
        s->logits = qn_alloc64((size_t)bytes);
        if (s->logits == NULL) {
            return qn_fail(err, "out of memory for logits of %zu tokens (%llu bytes)", rows,
                           (unsigned long long)bytes);
        }
        s->logits_cap = (size_t)floats;
    }
    return 0;
}

static int check_tokens(const quern_session *s, const int32_t *tokens, size_t n, qn_err *err)
{
    int n_ctx = s->exec->opts.n_ctx, n_vocab = s->m->model->n_vocab;
    if (n > (size_t)(n_ctx - s->exec->length)) {
        return qn_fail(err, "%zu tokens do not fit: the context holds %d and %d are in use", n, n_ctx,
                       s->exec->length);
    }
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= n_vocab) {
            return qn_fail(err, "token %zu has id %d, outside the vocabulary of %d", i, tokens[i], n_vocab);
        }
    }
    return 0;
}

typedef struct progress {
    quern_session *s;
    int done, total;
} progress;

static bool go_on(void *user)
{
    const progress *p = user;
    p->s->stopped = p->s->stopped || !p->s->progress(p->s->progress_user, p->done, p->total);
    return !p->s->stopped;
}

/* Runs tokens in chunks. outputs: of every token, of the last one, or none (logits then NULL). */
static int run_chunks(quern_session *s, const int32_t *tokens, int n, qn_outputs outputs, float *logits,
                      qn_err *err)
{
    const qn_exec_opts *o = &s->exec->opts;
    int n_ubatch = outputs == QN_OUT_ALL && o->n_outputs < o->n_ubatch ? o->n_outputs : o->n_ubatch;
    bool asks = s->progress != NULL && n > 1;
    progress at = {s, 0, n};
    s->stopped = false;
    for (int done = 0; done < n;) {
        int chunk = n - done < n_ubatch ? n - done : n_ubatch;
        bool last = done + chunk == n;
        at.done = done;
        if (asks && !go_on(&at)) {
            return qn_fail(err, "stopped after %d of %d tokens", done, n);
        }
        qn_run r = {
            .tokens = tokens + done,
            .n = chunk,
            .pos = s->exec->length,
            .phase = n == 1 ? QN_PHASE_DECODE : QN_PHASE_PREFILL,
            .outputs = outputs == QN_OUT_LAST && !last ? QN_OUT_NONE : outputs,
            .stop_after = -1,
            .go_on = asks ? go_on : NULL,
            .go_on_user = &at,
        };
        if (r.outputs != QN_OUT_NONE) {
            r.logits = logits + (outputs == QN_OUT_ALL ? (size_t)done * (size_t)s->m->model->n_vocab : 0);
        }
        if (s->exec->run(s->exec, &r, err) != 0) {
            return s->stopped ? qn_fail(err, "stopped after %d of %d tokens", done, n) : -1;
        }
        done += chunk;
    }
    return 0;
}

int quern_session_append(quern_session *s, const int32_t *tokens, size_t n, bool all_logits,
                         quern_error *error)
{
    qn_err *err = qn_engine_err(error);
    if (n == 0) {
        return 0;
    }
    if (check_tokens(s, tokens, n, err) != 0) {
        return -1;
    }
    s->n_logits = 0;
    if (qn_session_reserve(s, all_logits ? n : 1, err) != 0) {
        return -1;
    }
    int start = s->exec->length;
    memmove(s->tokens + start, tokens, n * sizeof *tokens);
    if (run_chunks(s, s->tokens + start, (int)n, all_logits ? QN_OUT_ALL : QN_OUT_LAST, s->logits, err) !=
        0) {
        qn_err ignored; /* where the ring has moved on, the chunks that succeeded stay */
        if (!s->stopped) {
            s->exec->truncate(s->exec, start, &ignored);
        }
        return -1;
    }
    s->n_last = (int)n;
    s->n_logits = all_logits ? (int)n : 1;
    return 0;
}

const float *quern_session_logits(const quern_session *s, int i)
{
    int row = i < 0 ? s->n_last + i : i;
    int first = s->n_last - s->n_logits; /* the only row kept is the last token's, or all are */
    if (s->n_logits == 0 || row < first || row >= s->n_last) {
        return NULL;
    }
    return s->logits + (size_t)(row - first) * (size_t)s->m->model->n_vocab;
}

int quern_session_truncate(quern_session *s, int n, quern_error *error)
{
    qn_err *err = qn_engine_err(error);
    if (n < 0 || n > s->exec->length) {
        return qn_fail(err, "cannot keep %d tokens: the session holds %d", n, s->exec->length);
    }
    if (n == s->exec->length) {
        return 0;
    }
    s->n_logits = 0;
    qn_err lost;
    if (s->exec->truncate(s->exec, n, &lost) == 0) {
        return 0;
    }
    /* A windowed layer has overwritten rows that position n needs: process what stays once more. */
    if (s->exec->truncate(s->exec, 0, err) != 0) {
        return -1;
    }
    return run_chunks(s, s->tokens, n, QN_OUT_NONE, NULL, err);
}

const int32_t *quern_session_tokens(const quern_session *s)
{
    return s->tokens;
}

int quern_session_update(quern_session *s, const int32_t *tokens, size_t n, size_t *n_processed,
                         quern_error *error)
{
    qn_err *err = qn_engine_err(error);
    size_t n_ctx = (size_t)s->exec->opts.n_ctx, same = 0;
    size_t most = n < (size_t)s->exec->length ? n : (size_t)s->exec->length;
    if (n_processed != NULL) {
        *n_processed = 0;
    }
    if (n == 0) {
        return qn_fail(err, "no tokens for a session to hold");
    }
    if (n > n_ctx) {
        return qn_fail(err, "%zu tokens do not fit: the context holds %zu", n, n_ctx);
    }
    while (same < most && tokens[same] == s->tokens[same]) {
        same++;
    }
    if (same == n && (size_t)s->exec->length == n && quern_session_logits(s, -1) != NULL) {
        return 0;
    }
    same -= same == n; /* the last one is to leave its logits */
    s->n_logits = 0;
    qn_err lost;
    if (s->exec->truncate(s->exec, (int)same, &lost) != 0) {
        same = 0; /* what a windowed layer has lost comes back by processing everything */
        if (s->exec->truncate(s->exec, 0, err) != 0) {
            return -1;
        }
    }
    int rc = quern_session_append(s, tokens + same, n - same, false, error);
    if (n_processed != NULL) {
        *n_processed = (size_t)s->exec->length - same;
    }
    return rc;
}

void quern_session_on_progress(quern_session *s, quern_progress_fn fn, void *user)
{
    s->progress = fn;
    s->progress_user = user;
}
