/* model_draft.c: what a file's tensors and keys say about its architecture. */
#include "model/model_draft.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/draft_internal.h"
#include "model/model_check.h"
#include "model/model_internal.h"

void draft_set(draft_group *d, const char *path, const char *fmt, ...)
{
    int i = 0;
    while (i < d->n && strcmp(d->set[i].path, path) != 0) {
        i++;
    }
    if (i == DRAFT_SETTINGS) {
        return; /* more rows than leaves that are ever set here */
    }
    d->n = i == d->n ? d->n + 1 : d->n;
    d->set[i].path = path;
    va_list args;
    va_start(args, fmt);
    vsnprintf(d->set[i].value, sizeof d->set[i].value, fmt, args);
    va_end(args);
}

bool draft_is_set(const draft_group *d, const char *path)
{
    for (int i = 0; i < d->n; i++) {
        if (strcmp(d->set[i].path, path) == 0) {
            return true;
        }
    }
    return false;
}

const qn_kv *draft_key(const draft *d, const char *name)
{
    char key[160];
    snprintf(key, sizeof key, "%s.%s", d->arch, name);
    return qn_gguf_find(d->g, key);
}

static int64_t key_int(const draft *d, const char *name, int64_t absent)
{
    const qn_kv *kv = draft_key(d, name);
    int64_t v;
    return kv && qn_kv_i64(kv, 0, &v) ? v : absent;
}

const qn_tensor *draft_tensor(const draft *d, int il, const char *name, const char *suffix)
{
    char full[128], block[32] = "";
    if (il >= 0) {
        snprintf(block, sizeof block, "blk.%d.", il);
    }
    snprintf(full, sizeof full, "%s%s.%s", block, name, suffix);
    const qn_tensor *t = qn_gguf_find_tensor(d->g, full);
    if (!t && strcmp(suffix, "weight") == 0) {
        snprintf(full, sizeof full, "%s%s", block, name);
        t = qn_gguf_find_tensor(d->g, full);
    }
    return t;
}

int draft_count(const draft *d, const char *name, const char *suffix)
{
    int n = 0;
    for (int il = 0; il < d->n_layer; il++) {
        n += draft_tensor(d, il, name, suffix) != NULL;
    }
    return n;
}

static bool has(const draft *d, const char *name)
{
    return draft_count(d, name, "weight") > 0;
}

static const qn_tensor *first(const draft *d, const char *name)
{
    const qn_tensor *t = NULL;
    for (int il = 0; il < d->n_layer && !t; il++) {
        t = draft_tensor(d, il, name, "weight");
    }
    return t;
}

/* "yes" where every layer that has one of the tensors has its suffix too, "optional" where some, else NULL.
 */
static const char *need_of(const draft *d, const char *const *names, const char *suffix)
{
    int with = 0, without = 0;
    for (int k = 0; names[k]; k++) {
        for (int il = 0; il < d->n_layer; il++) {
            if (draft_tensor(d, il, names[k], "weight")) {
                bool there = draft_tensor(d, il, names[k], suffix) != NULL;
                with += there;
                without += !there;
            }
        }
    }
    return with == 0 ? NULL : without == 0 ? "yes" : "optional";
}

static void set_need(draft *d, const char *path, const char *const *names, const char *suffix)
{
    const char *need = need_of(d, names, suffix);
    if (need) {
        draft_set(&d->base, path, "%s", need);
    }
}

/* Leaves whose tensor has one usual name. */
static void name_tensors(draft *d)
{
    static const struct {
        const char *path, *name;
        bool global;
    } rows[] = {
        {"embedding.norm", "token_embd_norm", true},
        {"embedding.positions", "position_embd", true},
        {"embedding.per_layer.tensor", "per_layer_token_embd", true},
        {"embedding.per_layer.proj", "per_layer_model_proj", true},
        {"embedding.per_layer.norm", "per_layer_proj_norm", true},
        {"attention.sub_norm", "attn_sub_norm", false},
        {"latent.q_a", "attn_q_a", false},
        {"latent.q_b", "attn_q_b", false},
        {"latent.kv_a", "attn_kv_a_mqa", false},
        {"latent.kv_b", "attn_kv_b", false},
        {"latent.q_a_norm", "attn_q_a_norm", false},
        {"latent.kv_a_norm", "attn_kv_a_norm", false},
        {"ffn.sub_norm", "ffn_sub_norm", false},
        {"ffn.act_div", "ffn.act.scales", false},
        {"per_layer.gate", "inp_gate", false},
        {"per_layer.proj", "proj", false},
        {"per_layer.post_norm", "post_norm", false},
        {"altup.router", "altup_router", false},
        {"altup.router_norm", "altup_router_norm", false},
        {"altup.predict", "altup_predict_coef", false},
        {"altup.correct", "altup_correct_coef", false},
        {"altup.correct_scale", "altup_correct_scale", false},
        {"altup.proj", "altup_proj", true},
        {"altup.unembd", "altup_unembd_proj", true},
        {"altup.laurel_l", "laurel_l", false},
        {"altup.laurel_r", "laurel_r", false},
        {"altup.laurel_norm", "laurel_post_norm", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].global ? draft_tensor(d, -1, rows[i].name, "weight") != NULL : has(d, rows[i].name)) {
            draft_set(&d->base, rows[i].path, "%s", rows[i].name);
        }
    }
    const qn_tensor *gate = first(d, "inp_gate"), *router = first(d, "altup_router");
    if (gate && key_int(d, "embedding_length_per_layer_input", -1) == (int64_t)gate->ne[1]) {
        draft_set(&d->base, "embedding.per_layer.width", "{key: embedding_length_per_layer_input}");
    } else if (gate) {
        draft_set(&d->base, "embedding.per_layer.width", "%llu", (unsigned long long)gate->ne[1]);
    }
    if (router) {
        draft_set(&d->base, "altup.streams", "%llu", (unsigned long long)router->ne[1]);
    }
}

static void norms(draft *d)
{
    static const char *const of_blocks[] = {"attn_norm", "attn_norm_2", "ffn_norm", NULL};
    draft_group *b = &d->base;
    bool layer = !draft_key(d, "attention.layer_norm_rms_epsilon");
    bool eps = !layer || draft_key(d, "attention.layer_norm_epsilon");
    bool in = has(d, "attn_norm"), ffn = has(d, "ffn_norm");
    bool post_a = has(d, "post_attention_norm"), post_f = has(d, "post_ffw_norm");
    draft_set(b, "norm.kind", "%s", layer ? "layer" : "rms");
    if (eps) {
        draft_set(b, "norm.eps", "{key: attention.layer_norm%s_epsilon}", layer ? "" : "_rms");
    } else {
        draft_set(b, "norm.eps", "1e-5");
    }
    set_need(d, "norm.bias", of_blocks, "bias");
    if (!in && !ffn && !post_a && !draft_tensor(d, -1, "output_norm", "weight")) {
        draft_set(b, "norm.weight", "no");
        return;
    }
    if (!draft_tensor(d, -1, "output_norm", "weight")) {
        draft_set(b, "output.norm", "none");
    }
    if (!in) {
        draft_set(b, "attention.norm", "none");
    }
    if (has(d, "attn_norm_2")) { /* the only family with that name gives it to the attention */
        draft_set(b, "attention.norm", "attn_norm_2");
        draft_set(b, "ffn.norm", "attn_norm");
        draft_set(b, "residual.parallel", "true");
    } else if (!ffn && in && post_a && !post_f) {
        draft_set(b, "ffn.norm", "post_attention_norm");
        post_a = false;
    } else if (!ffn && in && !post_f) {
        draft_set(b, "ffn.norm", "shared");
        draft_set(b, "residual.parallel", "true");
    } else if (!ffn) {
        draft_set(b, "ffn.norm", "none");
    }
    if (post_a) {
        draft_set(b, "attention.post_norm", "post_attention_norm");
    }
    if (post_f) {
        draft_set(b, "ffn.post_norm", "post_ffw_norm");
    }
}

static void qk_norm(draft *d)
{
    const qn_tensor *q = first(d, "attn_q_norm");
    draft_group *b = &d->base;
    if (!q) {
        return;
    }
    draft_set(b, "attention.qk_norm.kind", "%s",
              draft_key(d, "attention.layer_norm_rms_epsilon") ? "rms" : "layer");
    if (q->ne[1] == 1 && d->n_head > 1 && q->ne[0] == (uint64_t)d->n_head * (uint64_t)d->head_dim) {
        draft_set(b, "attention.qk_norm.width", "full");
    } else if (q->n_dims > 1 && q->ne[0] == 1) {
        draft_set(b, "attention.qk_norm.weight", "per_head");
    } else if (q->ne[1] == (uint64_t)d->n_head && d->n_head > 1) {
        draft_set(b, "attention.qk_norm.weight", "head_channel");
    }
    if (!has(d, "attn_k_norm")) {
        draft_set(b, "attention.qk_norm.k", "none");
    }
}

static void attention(draft *d)
{
    static const char *const qkv[] = {"attn_q", "attn_k", "attn_v", "attn_qkv", NULL};
    static const char *const out[] = {"attn_output", NULL};
    draft_group *b = &d->base;
    int n_q = draft_count(d, "attn_q", "weight") + draft_count(d, "attn_qkv", "weight");
    int n_out = draft_count(d, "attn_output", "weight");
    set_need(d, "attention.bias", qkv, "bias");
    set_need(d, "attention.out_bias", out, "bias");
    qk_norm(d);
    if (has(d, "attn_kv_a_mqa")) {
        draft_set(b, "attention.kind", "latent");
        draft_set(b, "latent.kv_rank", "{key: attention.kv_lora_rank}");
        if (has(d, "attn_q_a")) {
            draft_set(b, "latent.q_rank", "{key: attention.q_lora_rank}");
        }
        draft_set(b, "rope.dim", "{key: rope.dimension_count}");
        return;
    }
    if (has(d, "attn_k") && draft_count(d, "attn_v", "weight") < draft_count(d, "attn_k", "weight")) {
        draft_set(b, "attention.v_from_k", "optional");
    }
    bool no_q = n_q < d->n_layer;
    if (no_q && n_out > n_q) {
        d->when[d->n_when++] = has(d, "attn_qkv") ? "{if: {layer_tensor: attn_qkv.weight, is: absent}, "
                                                    "set: {attention: {kind: matrix}}}"
                                                  : "{if: {layer_tensor: attn_q.weight, is: absent}, "
                                                    "set: {attention: {kind: matrix}}}";
    }
    if (n_out < d->n_layer) {
        d->when[d->n_when++] =
            "{if: {layer_tensor: attn_output.weight, is: absent}, set: {attention: {kind: none}}}";
    }
    const qn_tensor *q = draft_tensor(d, 0, "attn_q", "weight");
    if (q && d->n_head > 0 && !draft_key(d, "attention.key_length") &&
        !draft_key(d, "attention.key_length_swa") && q->ne[1] != q->ne[0] &&
        q->ne[1] % (uint64_t)d->n_head == 0) {
        draft_set(b, "attention.head_dim", "%d", (int)(q->ne[1] / (uint64_t)d->n_head));
        draft_set(b, "attention.value_dim", "%d", (int)(q->ne[1] / (uint64_t)d->n_head));
    }
    if (draft_key(d, "attention.shared_kv_layers")) {
        draft_set(b, "attention.kv_shared", "{key: attention.shared_kv_layers}");
    }
}

static void feed_forward(draft *d)
{
    static const char *const all[] = {"ffn_gate", "ffn_up", "ffn_down", NULL};
    draft_group *b = &d->base;
    const qn_tensor *up = first(d, "ffn_up"), *down = first(d, "ffn_down");
    int n_down = draft_count(d, "ffn_down", "weight");
    set_need(d, "ffn.bias", all, "bias");
    if (!up || !down) {
        return;
    }
    if (!has(d, "ffn_gate") && up->ne[1] == down->ne[0]) {
        draft_set(b, "ffn.kind", "plain");
    }
    int64_t said = 0;
    const qn_kv *kv = draft_key(d, "feed_forward_length");
    if (kv && qn_kv_i64(kv, 0, &said) && said != (int64_t)down->ne[0]) {
        if (said == 2 * (int64_t)down->ne[0]) {
            draft_set(b, "ffn.n_ff", "{key: feed_forward_length, times: 0.5}");
        } else if (kv->type != QN_KV_ARRAY) {
            draft_set(b, "ffn.n_ff", "%llu", (unsigned long long)down->ne[0]);
        }
    }
    if (n_down < d->n_layer) {
        d->when[d->n_when++] =
            "{if: {layer_tensor: ffn_down.weight, is: absent}, set: {residual: {skip_layer: true}}}";
    }
    if (qn_gguf_find(d->g, "xielu.alpha_n")) {
        draft_set(b, "ffn.activation", "xielu");
        draft_set(b, "ffn.xielu.alpha_n", "{global_key: xielu.alpha_n}");
        draft_set(b, "ffn.xielu.alpha_p", "{global_key: xielu.alpha_p}");
        draft_set(b, "ffn.xielu.beta", "{global_key: xielu.beta}");
        draft_set(b, "ffn.xielu.eps", "{global_key: xielu.eps}");
    }
}

/* Leaves that a key of one usual name gives. */
static void keys(draft *d)
{
    static const struct {
        const char *key, *path, *value;
    } rows[] = {
        {"nextn_predict_layers", "layers.skip_last", "{key: nextn_predict_layers}"},
        {"num_loops", "layers.loops", "{key: num_loops}"},
        {"embedding_scale", "embedding.scale", "{key: embedding_scale}"},
        {"residual_scale", "residual.scale", "{key: residual_scale}"},
        {"use_parallel_residual", "residual.parallel", "{key: use_parallel_residual}"},
        {"attention.scale", "attention.scale", "{key: attention.scale}"},
        {"attention.clamp_kqv", "attention.clamp", "{key: attention.clamp_kqv}"},
        {"attention.max_alibi_bias", "attention.alibi", "{key: attention.max_alibi_bias}"},
        {"attention.temperature_scale", "attention.temperature", "{key: attention.temperature_scale}"},
        {"attention.temperature_scale", "attention.temperature_ctx",
         "{key: rope.scaling.original_context_length, default: {key: context_length}}"},
        {"attn_logit_softcapping", "attention.softcap", "{key: attn_logit_softcapping}"},
        {"final_logit_softcapping", "output.softcap", "{key: final_logit_softcapping}"},
        {"logit_scale", "output.scale", "{key: logit_scale}"},
        {"rope.scaling.alpha", "rope.ntk_alpha", "{key: rope.scaling.alpha}"},
        {"rope.scaling.yarn_beta_fast", "rope.beta_fast", "{key: rope.scaling.yarn_beta_fast}"},
        {"rope.scaling.yarn_beta_slow", "rope.beta_slow", "{key: rope.scaling.yarn_beta_slow}"},
        {"rope.scaling.yarn_log_multiplier", "rope.yarn_log_multiplier",
         "{key: rope.scaling.yarn_log_multiplier}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (draft_key(d, rows[i].key)) {
            draft_set(&d->base, rows[i].path, "%s", rows[i].value);
        }
    }
}

static void rope(draft *d)
{
    draft_group *b = &d->base;
    const qn_tensor *freqs = draft_tensor(d, -1, "rope_freqs", "weight");
    bool none = !draft_key(d, "rope.freq_base") && !draft_key(d, "rope.dimension_count");
    bool encoded = draft_tensor(d, -1, "position_embd", "weight") || draft_key(d, "attention.max_alibi_bias");
    draft_set(b, "rope.style", "%s", none && encoded ? "none" : "neox");
    if (draft_tensor(d, -1, "rope_factors_long", "weight") ||
        draft_tensor(d, 0, "rope_factors_long", "weight")) {
        draft_set(b, "rope.factors", "longrope");
    } else if (freqs) {
        draft_group *to = b;
        int64_t local = key_int(d, "rope.dimension_count_swa", -1);
        if (draft_is_set(b, "layers.pattern") && local >= 0) {
            int64_t global = key_int(d, "rope.dimension_count", -1), n = 2 * (int64_t)freqs->ne[0];
            to = n == local && n != global ? &d->local : n == global && n != local ? &d->global : b;
        }
        draft_set(to, "rope.factors", "freqs");
    }
}

/* Kinds of layers, where the file says which are windowed. */
static void pattern(draft *d)
{
    static const struct {
        const char *key, *path, *value;
    } rows[] = {
        {"attention.sliding_window", "attention.window", "{key: attention.sliding_window}"},
        {"attention.key_length_swa", "attention.head_dim", "{key: attention.key_length_swa}"},
        {"attention.value_length_swa", "attention.value_dim", "{key: attention.value_length_swa}"},
        {"rope.dimension_count_swa", "rope.dim", "{key: rope.dimension_count_swa}"},
        {"rope.freq_base_swa", "rope.base", "{key: rope.freq_base_swa}"},
    };
    const qn_kv *kv = draft_key(d, "attention.sliding_window_pattern");
    if (!kv) {
        return;
    }
    draft_set(&d->base, "layers.pattern", "{kinds: [local, global], %s}",
              kv->type == QN_KV_ARRAY ? "array: attention.sliding_window_pattern"
                                      : "period: {key: attention.sliding_window_pattern}");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (draft_key(d, rows[i].key)) {
            draft_set(&d->local, rows[i].path, "%s", rows[i].value);
        }
    }
}

static void rest(draft *d)
{
    static const char *const scaled[] = {"attn_q",   "attn_k", "attn_v",   "attn_qkv", "attn_output",
                                         "ffn_gate", "ffn_up", "ffn_down", NULL};
    if (need_of(d, scaled, "scale")) {
        draft_set(&d->base, "weights.scale", "optional");
    }
    if (draft_tensor(d, -1, "output", "bias")) {
        draft_set(&d->base, "output.bias", "yes");
    }
    if (has(d, "layer_output_scale")) { /* a file without weighted norms is known to add its embedding */
        bool adds = draft_is_set(&d->base, "norm.weight");
        draft_set(&d->base, adds ? "residual.embed_skip" : "residual.layer_scale", "layer_output_scale");
    }
}

static int open_draft(draft *d, const qn_gguf *g, qn_err *err)
{
    const qn_kv *kv = qn_gguf_find(g, "general.architecture");
    qn_str s;
    if (!kv || !qn_kv_str(kv, 0, &s) || s.len < 1 || s.len > 64 || memchr(s.data, 0, s.len)) {
        return qn_fail(err, "%s: key general.architecture is missing or no name", qn_gguf_path(g));
    }
    memcpy(d->arch, s.data, s.len);
    if (d->arch[strspn(d->arch, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")] !=
        '\0') {
        return qn_fail(err, "%s: key general.architecture holds more than letters, digits, '_', '-' and '.'",
                       qn_gguf_path(g));
    }
    d->g = g;
    int64_t n = key_int(d, "block_count", -1);
    if (n < 1 || n > 4096 || !draft_key(d, "embedding_length")) {
        return qn_fail(err, "%s: key %s.%s is missing or out of range: nothing can be proposed without it",
                       qn_gguf_path(g), d->arch, n < 1 || n > 4096 ? "block_count" : "embedding_length");
    }
    d->n_layer = (int)n;
    int64_t heads = key_int(d, "attention.head_count", 0);
    d->n_head = heads > 0 && heads < 65536 ? (int)heads : 0;
    const qn_tensor *q = draft_tensor(d, 0, "attn_q", "weight");
    int64_t per_head = d->n_head ? key_int(d, "embedding_length", 0) / d->n_head : 0;
    int64_t dim = q && d->n_head ? (int64_t)(q->ne[1] / (uint64_t)d->n_head)
                                 : key_int(d, "attention.key_length", per_head);
    d->head_dim = dim > 0 && dim < 65536 ? (int)dim : 0;
    return qn_model_refuse(g, d->arch, err);
}

/* Names come from the file: what would end the comment or is no ASCII becomes '?'. */
static void add_remark(void *user, bool fault, const char *text)
{
    FILE *f = user;
    fprintf(f, "# %s: ", fault ? "fault" : "note");
    for (; *text; text++) {
        fputc(*text >= ' ' && *text <= '~' ? *text : '?', f);
    }
    fputc('\n', f);
}

/* Comments on how the text fits the file. */
static int judge(const char *text, qn_gguf *g, FILE *f, qn_err *err)
{
    qn_config *c;
    int bound;
    if (qn_config_parse(&c, text, strlen(text), "this draft", err)) {
        return -1;
    }
    int n = qn_model_check(c, g, 0, add_remark, f, &bound, err);
    qn_config_free(c);
    return n < 0 ? -1 : 0;
}

int qn_model_draft(char **text, qn_gguf *g, qn_err *err)
{
    draft *d = qn_calloc(1, sizeof *d);
    char *first_text = NULL, *remarks = NULL;
    size_t size = 0;
    *text = NULL;
    if (!d || open_draft(d, g, err)) {
        free(d);
        return d ? -1 : qn_fail(err, "out of memory");
    }
    pattern(d);
    name_tensors(d);
    norms(d);
    attention(d);
    feed_forward(d);
    keys(d);
    rope(d);
    rest(d);
    draft_list_open(d);
    first_text = draft_print(d, "");
    FILE *f = first_text ? open_memstream(&remarks, &size) : NULL;
    int rc = f ? judge(first_text, g, f, err) : qn_fail(err, "out of memory");
    if (f) {
        fclose(f);
    }
    *text = rc ? NULL : draft_print(d, remarks);
    rc = rc == 0 && !*text ? qn_fail(err, "out of memory") : rc;
    free(first_text);
    free(remarks);
    free(d);
    return rc;
}
