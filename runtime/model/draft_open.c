/* draft_open.c: choices that tensors and keys leave open, with the values that models are known to take. */
#include <stdio.h>
#include <string.h>

#include "model/draft_internal.h"

static bool always(const draft *d)
{
    (void)d;
    return true;
}

static bool gated(const draft *d)
{
    return !draft_is_set(&d->base, "ffn.kind") && !draft_is_set(&d->base, "ffn.activation");
}

static bool plain(const draft *d)
{
    return draft_is_set(&d->base, "ffn.kind");
}

static bool has_qk_norm(const draft *d)
{
    return draft_is_set(&d->base, "attention.qk_norm.kind");
}

static bool no_pattern(const draft *d)
{
    return draft_key(d, "attention.sliding_window") && !draft_is_set(&d->base, "layers.pattern");
}

static bool has_window(const draft *d)
{
    return draft_key(d, "attention.sliding_window") != NULL;
}

static bool stretched(const draft *d)
{
    return has_window(d) || draft_key(d, "rope.scaling.type") || draft_key(d, "rope.scaling.factor");
}

static bool no_norm_weights(const draft *d)
{
    return draft_is_set(&d->base, "norm.weight");
}

static bool one_norm(const draft *d)
{
    return draft_is_set(&d->base, "ffn.norm");
}

static bool output_scaled(const draft *d)
{
    return draft_key(d, "logit_scale") != NULL;
}

static bool has_streams(const draft *d)
{
    return draft_is_set(&d->base, "altup.streams");
}

static bool has_scalar(const draft *d)
{
    return draft_count(d, "layer_output_scale", "weight") > 0;
}

static bool looped(const draft *d)
{
    return draft_is_set(&d->base, "layers.loops");
}

static bool has_factors(const draft *d)
{
    return draft_tensor(d, -1, "rope_freqs", "weight") || draft_tensor(d, -1, "rope_factors_long", "weight");
}

/* A row is left out where its leaf has been set from a key (`unless_set`). */
static const struct {
    const char *path, *values;
    bool (*applies)(const draft *d);
    bool unless_set;
} rows[] = {
    {"rope.style", "neox | interleaved | none (also by kind of layer, or by number: when)", always, false},
    {"rope.dim", "{key: rope.dimension_count} | {formula: head_dim}", always, false},
    {"rope.base",
     "{key: rope.freq_base} | another one on windowed layers, 10000 or {key: rope.freq_base_swa}", has_window,
     false},
    {"rope.scaling", "file | none (on windowed layers)", stretched, false},
    {"rope.attn_factor", "{key: rope.scaling.attn_factor} | 1 (on windowed layers)", stretched, false},
    {"rope.factors", "as set | none", has_factors, false},
    {"ffn.activation", "silu | gelu", gated, false},
    {"ffn.activation", "gelu | relu2 | relu | silu", plain, true},
    {"ffn.norm", "as set | another of the layer's norms | none", one_norm, false},
    {"ffn.sparsity_std", "0 | a number on the first layers", has_streams, false},
    {"residual.parallel", "false | true", always, true},
    {"residual.scale", "1 | {formula: rsqrt_n_layer, times: 1.4}", always, true},
    {"residual.layer_scale", "layer_output_scale | none, with residual.embed_skip: layer_output_scale",
     has_scalar, false},
    {"attention.scale",
     "{formula: rsqrt_head_dim} | {formula: rsqrt_n_embd_per_head} | {formula: inv_head_dim} | 1", always,
     true},
    {"attention.softcap", "0 | 50", always, true},
    {"attention.alibi", "0 | 8", always, true},
    {"attention.window", "0 | {key: attention.sliding_window} | that on some layers (layers.pattern)",
     no_pattern, false},
    {"layers.pattern", "none | {kinds: [local, global], period: 2, 3, 4, 5, 6 or 8}", no_pattern, false},
    {"layers.loop_norm", "true | false", looped, false},
    {"attention.kv_shared", "0 | a number of last layers", has_streams, true},
    {"attention.v_norm", "none | rms", has_qk_norm, false},
    {"attention.qk_norm.kind", "rms | layer", has_qk_norm, false},
    {"attention.qk_norm.order", "before_rope | after_rope", has_qk_norm, false},
    {"norm.kind", "rms | layer", no_norm_weights, false},
    {"norm.weight", "no | yes", no_norm_weights, false},
    {"embedding.norm", "none | token_embd_norm", no_norm_weights, false},
    {"attention.norm", "attn_norm | none", no_norm_weights, false},
    {"embedding.scale", "1 | {formula: sqrt_n_embd} | a number", always, true},
    {"output.norm_scale", "1 | {formula: inv_n_embd, times: 256}", always, false},
    {"output.scale", "{key: logit_scale} | {key: logit_scale, invert: true}", output_scaled, false},
    {"output.softcap", "0 | 30", always, true},
    {"output.tied", "auto | always | never", always, false},
};

void draft_list_open(draft *d)
{
    size_t at = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!rows[i].applies(d) || (rows[i].unless_set && draft_is_set(&d->base, rows[i].path))) {
            continue;
        }
        int n = snprintf(d->open + at, sizeof d->open - at, "#   %s: %s\n", rows[i].path, rows[i].values);
        at += n > 0 && (size_t)n < sizeof d->open - at ? (size_t)n : 0;
    }
    d->open[at] = '\0';
}
