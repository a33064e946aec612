/* model.c: opens a file, finds its config, resolves and binds layer after layer. */
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model_internal.h"

enum { MAX_LAYERS = 4096, DEFAULT_CTX = 4096 };

static int read_arch(qn_model *m, qn_err *err)
{
    const qn_kv *kv = qn_gguf_find(m->gguf, "general.architecture");
    const char *file = qn_gguf_path(m->gguf);
    qn_str s;
    if (!kv) {
        return qn_fail(err, "%s: key general.architecture is missing", file);
    }
    if (!qn_kv_str(kv, 0, &s) || s.len < 1 || s.len > 64 || memchr(s.data, 0, s.len)) {
        return qn_fail(err, "%s: key general.architecture is not a name of 1 to 64 letters", file);
    }
    m->arch = qn_arena_strndup(&m->arena, s.data, s.len);
    return m->arch ? 0 : qn_fail(err, "%s: out of memory", file);
}

/* A whole number at <arch>.NAME; 0 where the file does not say. */
static int arch_int(const qn_model *m, const char *name, int64_t max, int *out, qn_err *err)
{
    char key[128];
    int64_t v = 0;
    snprintf(key, sizeof key, "%s.%s", m->arch, name);
    const qn_kv *kv = qn_gguf_find(m->gguf, key);
    *out = 0;
    if (!kv) {
        return 0;
    }
    if (kv->type == QN_KV_ARRAY || !qn_kv_i64(kv, 0, &v) || v < 0 || v > max) {
        return qn_fail(err, "%s: key %s must be a whole number from 0 to %lld", qn_gguf_path(m->gguf), key,
                       (long long)max);
    }
    *out = (int)v;
    return 0;
}

static int choose_ctx(qn_model *m, const qn_model_opts *opts, qn_err *err)
{
    if (arch_int(m, "context_length", INT32_MAX, &m->n_ctx_train, err)) {
        return -1;
    }
    m->n_ctx = m->n_ctx_train > 0 && m->n_ctx_train < DEFAULT_CTX ? m->n_ctx_train : DEFAULT_CTX;
    if (opts && opts->n_ctx < 0) {
        return qn_fail(err, "%s: context size %d", qn_gguf_path(m->gguf), opts->n_ctx);
    }
    m->n_ctx = opts && opts->n_ctx > 0 ? opts->n_ctx : m->n_ctx;
    return 0;
}

/* ---- tensors of the whole model ---- */

/* The embedding and the output projection, of which a file may have one for both. */
static int bind_vocab(qn_binder *b)
{
    qn_model *m = b->m;
    const qn_layer_cfg *c = b->cfg;
    const char *file = qn_gguf_path(b->g), *const *embd_leaf = &c->embedding.tensor;
    const qn_tensor *embd = c->embedding.tensor ? qn_bind_find(b, c->embedding.tensor, "weight") : NULL;
    const qn_tensor *out = c->output.tensor ? qn_bind_find(b, c->output.tensor, "weight") : NULL;
    m->tied = c->output.tied == QN_TIED_ALWAYS || (c->output.tied == QN_TIED_AUTO && (!out || !embd));
    if (!embd && out && c->output.tied == QN_TIED_AUTO) {
        embd = out;
        embd_leaf = &c->output.tensor;
    }
    uint64_t rows = embd ? embd->ne[1] : 1;
    if (rows < 1 || rows > INT32_MAX) {
        return qn_fail(b->err, "%s: tensor %s has %llu rows, which is no size of a vocabulary", file,
                       embd->name, (unsigned long long)rows);
    }
    if (!*embd_leaf) {
        return qn_fail(b->err, "%s: embedding.tensor is none", m->config_name);
    }
    qn_shape shape = {{(uint64_t)m->n_embd, rows, 1, 1}, false};
    if (qn_bind_tensor(b, &m->tok_embd, embd_leaf, "weight", shape, QN_NEED_YES)) {
        return -1;
    }
    m->n_vocab = (int)rows;
    m->out.w = m->tok_embd;
    qn_shape vector = {{rows, 1, 1, 1}, true}, scalar = {{1, 1, 1, 1}, true};
    if (!m->tied && qn_bind_tensor(b, &m->out.w, &c->output.tensor, "weight", shape, QN_NEED_YES)) {
        return -1;
    }
    if (!m->out.w && !b->faults) {
        return qn_fail(b->err, "%s: output.tensor is none and output.tied is never", m->config_name);
    }
    return qn_bind_tensor(b, &m->out.b, &c->output.tensor, "bias", vector, (qn_need)c->output.bias) ||
                   qn_bind_tensor(b, &m->out.scale, &c->output.tensor, "scale", scalar,
                                  m->tied ? QN_NEED_NO : (qn_need)c->weights.scale)
               ? -1
               : 0;
}

/* The vocabulary's size is said up to three times. */
static int check_vocab(const qn_binder *b)
{
    const qn_model *m = b->m;
    const qn_kv *tokens = qn_gguf_find(b->g, "tokenizer.ggml.tokens");
    int n = 0;
    if (!m->tok_embd) {
        return 0;
    }
    if (tokens && tokens->count != (uint64_t)m->n_vocab) {
        return qn_fail(b->err, "%s: tensor %s has %d rows, tokenizer.ggml.tokens has %llu entries",
                       qn_gguf_path(b->g), m->tok_embd->name, m->n_vocab, (unsigned long long)tokens->count);
    }
    if (arch_int(m, "vocab_size", INT32_MAX, &n, b->err)) {
        return -1;
    }
    if (!tokens && n && n != m->n_vocab) {
        return qn_fail(b->err, "%s: tensor %s has %d rows, key %s.vocab_size says %d", qn_gguf_path(b->g),
                       m->tok_embd->name, m->n_vocab, m->arch, n);
    }
    return 0;
}

static int bind_per_layer_embedding(qn_binder *b)
{
    qn_model *m = b->m;
    const qn_layer_cfg *c = b->cfg;
    m->ple_width = c->embedding.per_layer_width;
    if (m->ple_width == 0) {
        return 0;
    }
    if (!c->embedding.per_layer_tensor || !c->embedding.per_layer_proj) {
        return qn_fail(b->err, "%s: embedding.per_layer needs tensor and proj", m->config_name);
    }
    uint64_t all = (uint64_t)m->ple_width * (uint64_t)c->n_layer;
    qn_shape table = {{all, (uint64_t)m->n_vocab, 1, 1}, false};
    return qn_bind_tensor(b, &m->ple_tok_embd, &c->embedding.per_layer_tensor, "weight", table,
                          QN_NEED_YES) ||
                   qn_bind_linear(b, &m->ple_proj, &c->embedding.per_layer_proj, (uint64_t)m->n_embd, all,
                                  QN_NEED_NO) ||
                   qn_bind_rms(b, &m->ple_norm, &c->embedding.per_layer_norm, (uint64_t)m->ple_width)
               ? -1
               : 0;
}

/* The matrices of a [n, n, count] tensor, one by one. */
static int slice(qn_binder *b, const qn_tensor **of, int count)
{
    const qn_tensor *t = *of;
    if (!t) {
        return 0;
    }
    qn_tensor *parts = qn_arena_alloc(&b->m->arena, sizeof *parts * (size_t)count);
    if (!parts) {
        return qn_fail(b->err, "%s: out of memory", qn_gguf_path(b->g));
    }
    for (int i = 0; i < count; i++) {
        parts[i] = *t;
        parts[i].n_dims = 2;
        parts[i].ne[2] = 1;
        parts[i].n_bytes = t->n_bytes / (uint64_t)count;
        parts[i].data = t->data + (uint64_t)i * parts[i].n_bytes;
    }
    *of = parts;
    return 0;
}

static int bind_streams(qn_binder *b)
{
    qn_model *m = b->m;
    const qn_layer_cfg *c = b->cfg;
    uint64_t e = (uint64_t)m->n_embd;
    m->n_stream = c->altup.streams;
    if (m->n_stream == 1) {
        return 0;
    }
    if (!c->altup.proj || !c->altup.unembd) {
        return qn_fail(b->err, "%s: altup.streams needs altup.proj and altup.unembd", m->config_name);
    }
    qn_shape shape = {{e, e, (uint64_t)m->n_stream - 1, 1}, false};
    return qn_bind_tensor(b, &m->stream_proj, &c->altup.proj, "weight", shape, QN_NEED_YES) ||
                   qn_bind_tensor(b, &m->stream_unembd, &c->altup.unembd, "weight", shape, QN_NEED_YES) ||
                   slice(b, &m->stream_proj, m->n_stream - 1) || slice(b, &m->stream_unembd, m->n_stream - 1)
               ? -1
               : 0;
}

static int bind_positions(qn_binder *b)
{
    const char *name = b->cfg->embedding.positions;
    const qn_tensor *t = name ? qn_bind_find(b, name, "weight") : NULL;
    qn_shape shape = {{(uint64_t)b->m->n_embd, t ? t->ne[1] : (uint64_t)b->m->n_ctx_train, 1, 1}, false};
    if (qn_bind_tensor(b, &b->m->pos_embd, &b->cfg->embedding.positions, "weight", shape, QN_NEED_YES)) {
        return -1;
    }
    if (t && t->ne[1] < (uint64_t)b->m->n_ctx) {
        return qn_fail(b->err, "%s: tensor %s has %llu positions, the context is %d", qn_gguf_path(b->g),
                       t->name, (unsigned long long)t->ne[1], b->m->n_ctx);
    }
    return 0;
}

static int bind_globals(qn_binder *b)
{
    qn_model *m = b->m;
    const qn_layer_cfg *c = b->cfg;
    uint64_t e = (uint64_t)m->n_embd;
    b->il = -1;
    m->embd_scale = (float)c->embedding.scale;
    m->out_norm_scale = (float)c->output.norm_scale;
    m->logit_scale = (float)c->output.scale;
    m->logit_softcap = (float)c->output.softcap;
    return bind_vocab(b) || check_vocab(b) || qn_bind_norm(b, &m->embd_norm, &c->embedding.norm, e) ||
                   bind_positions(b) || qn_bind_norm(b, &m->out_norm, &c->output.norm, e) ||
                   bind_per_layer_embedding(b) || bind_streams(b)
               ? -1
               : 0;
}

/* ---- layers ---- */

/* Layer whose cache layer il reads: the last of its kind among those before the shared tail. */
static int find_kv_source(qn_binder *b, int il, int n_layer)
{
    qn_layer *l = &b->m->layers[il];
    int own = n_layer - b->cfg->attention.kv_shared;
    l->attn.kv_source = il;
    if (il < own || b->cfg->attention.kind == QN_ATTN_NONE || b->cfg->attention.kind == QN_ATTN_MATRIX ||
        b->cfg->residual.skip_layer) {
        return 0;
    }
    if (b->cfg->attention.kind != QN_ATTN_STANDARD) {
        return qn_fail(b->err, "%s: attention.kv_shared needs attention of kind standard", b->m->config_name);
    }
    for (int i = own - 1; i >= 0; i--) {
        const qn_attn *a = &b->m->layers[i].attn;
        if (strcmp(b->m->layers[i].kind, l->kind) != 0 || a->kind != QN_ATTN_STANDARD) {
            continue;
        }
        if (a->n_head_kv != b->cfg->attention.n_head_kv || a->k_dim != b->cfg->attention.head_dim ||
            a->v_dim != b->cfg->attention.value_dim) {
            return qn_fail(
                b->err,
                "%s: layer %d reads the cache of layer %d, but has %d key heads of %d and %d, not %d of %d "
                "and %d",
                qn_gguf_path(b->g), il, i, b->cfg->attention.n_head_kv, b->cfg->attention.head_dim,
                b->cfg->attention.value_dim, a->n_head_kv, a->k_dim, a->v_dim);
        }
        l->attn.kv_source = i;
        return 0;
    }
    return qn_fail(b->err,
                   "%s: layer %d has no cache of its own and no earlier layer of its kind (\"%s\") has one",
                   qn_gguf_path(b->g), il, l->kind);
}

static int bind_one_layer(qn_binder *b, int il, qn_layer_cfg *cfg)
{
    qn_model *m = b->m;
    const char *kind;
    qn_layer *l = &m->layers[il];
    if (qn_config_resolve_all(b->config, b->g, il, m->n_ctx, cfg, &kind, b->faults, b->err)) {
        return -1;
    }
    l->kind = qn_arena_strndup(&m->arena, kind, strlen(kind));
    if (!l->kind) {
        return qn_fail(b->err, "%s: out of memory", qn_gguf_path(b->g));
    }
    b->cfg = cfg;
    b->il = il;
    return find_kv_source(b, il, cfg->n_layer) || qn_bind_layer(b, l) ? -1 : 0;
}

/* Copies of the stack for its further passes. */
static void unroll(qn_model *m, int n_layer, int loops, bool loop_norm)
{
    for (int pass = 0; pass < loops; pass++) {
        for (int il = 0; il < n_layer; il++) {
            qn_layer *l = &m->layers[pass * n_layer + il];
            if (pass > 0) {
                *l = m->layers[il];
                l->attn.kv_source += pass * n_layer;
            }
            l->pass = pass;
            l->loop_norm_after = loop_norm && il == n_layer - 1 && pass < loops - 1;
        }
    }
}

static int bind_layers(qn_binder *b, const qn_layer_cfg *first)
{
    qn_model *m = b->m;
    const char *file = qn_gguf_path(b->g);
    int n = first->n_layer, loops = first->layers.loops;
    if ((uint64_t)n > qn_gguf_n_tensors(b->g)) {
        return qn_fail(b->err, "%s: %d layers, but only %llu tensors", file, n,
                       (unsigned long long)qn_gguf_n_tensors(b->g));
    }
    if (n * loops > MAX_LAYERS) {
        return qn_fail(b->err, "%s: %d layers in %d passes, more than %d", file, n, loops, MAX_LAYERS);
    }
    if (first->attention.kv_shared >= n) {
        return qn_fail(b->err, "%s: %d of %d layers share a cache, none is left to own one", file,
                       first->attention.kv_shared, n);
    }
    m->n_layer = n * loops;
    m->layers = qn_arena_alloc(&m->arena, (size_t)m->n_layer * sizeof *m->layers);
    qn_layer_cfg *cfg = qn_calloc(1, sizeof *cfg);
    if (!m->layers || !cfg) {
        free(cfg);
        return qn_fail(b->err, "%s: out of memory", file);
    }
    int rc = 0;
    for (int il = 0; il < n && !rc; il++) {
        rc = bind_one_layer(b, il, cfg);
        rc = rc ? qn_bind_fault(b) : 0;
    }
    free(cfg);
    if (!rc) {
        unroll(m, n, loops, first->layers.loop_norm);
    }
    return rc;
}

/* ---- the whole ---- */

static int by_pointer(const void *a, const void *b)
{
    const qn_tensor *x = *(const qn_tensor *const *)a, *y = *(const qn_tensor *const *)b;
    return (x > y) - (x < y);
}

/* Sorts what was bound, sums it and lists the rest. */
static int account(qn_binder *b)
{
    qn_model *m = b->m;
    uint64_t n = qn_gguf_n_tensors(b->g);
    size_t n_unused = 0;
    if (b->n_used) {
        qsort(b->used, b->n_used, sizeof *b->used, by_pointer);
    }
    for (size_t i = 0; i < b->n_used; i++) {
        m->weight_bytes += i == 0 || b->used[i] != b->used[i - 1] ? b->used[i]->n_bytes : 0;
    }
    m->unused = qn_arena_alloc(&m->arena, (size_t)(n + 1) * sizeof *m->unused);
    if (!m->unused) {
        return qn_fail(b->err, "%s: out of memory", qn_gguf_path(b->g));
    }
    for (uint64_t i = 0; i < n; i++) {
        const qn_tensor *t = qn_gguf_tensor(b->g, i);
        if (!b->n_used || !bsearch(&t, b->used, b->n_used, sizeof *b->used, by_pointer)) {
            m->unused[n_unused++] = t->name;
        }
    }
    return 0;
}

static int bind_all(qn_binder *b)
{
    qn_model *m = b->m;
    const char *kind;
    qn_layer_cfg *first = qn_calloc(1, sizeof *first);
    if (!first) {
        return qn_fail(b->err, "%s: out of memory", qn_gguf_path(b->g));
    }
    int rc = qn_config_resolve_all(b->config, b->g, 0, m->n_ctx, first, &kind, b->faults, b->err);
    if (!rc) {
        b->cfg = first;
        m->n_embd = first->embedding.width;
        rc = bind_globals(b);
        rc = (rc && qn_bind_fault(b)) || bind_layers(b, first) || account(b);
    }
    free(first);
    return rc ? -1 : 0;
}

static int bind(qn_model *m, const qn_config *config, qn_faults *faults, qn_err *err)
{
    qn_binder b = {.m = m, .g = m->gguf, .config = config, .faults = faults, .err = err};
    const char *name = qn_config_name(config);
    m->config_name = qn_arena_strndup(&m->arena, name, strlen(name));
    int rc = m->config_name ? bind_all(&b) : qn_fail(err, "%s: out of memory", qn_gguf_path(m->gguf));
    free(b.used);
    free(b.table);
    return rc;
}

static int find_and_bind(qn_model *m, const qn_model_opts *opts, qn_err *err)
{
    qn_config *config = NULL;
    if (qn_config_find(&config, m->arch, opts ? opts->config_dir : NULL, err)) {
        return qn_fail_prefix(err, "%s", qn_gguf_path(m->gguf));
    }
    int rc = bind(m, config, NULL, err);
    qn_config_free(config);
    return rc;
}

/* A file without tensors serves where only its vocabulary is asked for. */
static int no_tensors(qn_model *m, const qn_model_opts *opts, qn_err *err)
{
    static const char *nothing[] = {NULL};
    m->unused = nothing;
    if (opts && opts->allow_no_vocab_tensor) {
        return 0;
    }
    return qn_fail(err, "%s: has no tensors (a vocabulary only)", qn_gguf_path(m->gguf));
}

static int start(qn_model **out, qn_gguf *g, const qn_model_opts *opts, qn_err *err)
{
    qn_model *m = qn_calloc(1, sizeof *m);
    if (!m) {
        return qn_fail(err, "%s: out of memory", qn_gguf_path(g));
    }
    *out = m;
    m->gguf = g;
    m->config_name = "";
    m->n_stream = 1;
    return read_arch(m, err) || qn_model_refuse(g, m->arch, err) || choose_ctx(m, opts, err) ? -1 : 0;
}

/* A model that did not come about; the file stays the caller's. */
static int give_up(qn_model **out)
{
    if (*out) {
        (*out)->gguf = NULL;
        qn_model_free(*out);
        *out = NULL;
    }
    return -1;
}

int qn_model_with_config(qn_model **out, qn_gguf *g, const qn_config *config, const qn_model_opts *opts,
                         qn_err *err)
{
    *out = NULL;
    int rc = start(out, g, opts, err);
    if (!rc && qn_gguf_n_tensors(g) == 0) {
        rc = no_tensors(*out, opts, err);
    } else if (!rc) {
        rc = config ? bind(*out, config, NULL, err) : find_and_bind(*out, opts, err);
    }
    return rc ? give_up(out) : 0;
}

int qn_model_with_faults(qn_model **out, qn_gguf *g, const qn_config *config, const qn_model_opts *opts,
                         qn_faults *faults, qn_err *err)
{
    *out = NULL;
    if (start(out, g, opts, err) || (qn_gguf_n_tensors(g) == 0 && no_tensors(*out, NULL, err))) {
        return give_up(out);
    }
    int before = faults->n;
    if (bind(*out, config, faults, err)) {
        give_up(out);
        if (faults->n == before) {
            faults->report(faults->user, err->text);
            faults->n++;
        }
    }
    return 0;
}

int qn_model_from_gguf(qn_model **out, qn_gguf *g, const qn_model_opts *opts, qn_err *err)
{
    return qn_model_with_config(out, g, NULL, opts, err);
}

int qn_model_load(qn_model **out, const char *path, const qn_model_opts *opts, qn_err *err)
{
    qn_gguf *g;
    *out = NULL;
    if (qn_gguf_open(&g, path, err)) {
        return -1;
    }
    if (qn_model_from_gguf(out, g, opts, err)) {
        qn_gguf_close(g);
        return -1;
    }
    return 0;
}

void qn_model_free(qn_model *m)
{
    if (m) {
        if (m->gguf) {
            qn_gguf_close(m->gguf);
        }
        qn_arena_free(&m->arena);
        free(m);
    }
}

uint64_t qn_model_weight_bytes(const qn_model *m)
{
    return m->weight_bytes;
}
