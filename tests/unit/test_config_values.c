// rooms: room_model
/* Model configs against a file: every form of value, patterns, variants, and what a file may say wrongly. */
#include "config_test.h"

#include <math.h>

/* attention.scale given by `form` in layer il of a file. */
static double scale_of(const char *form, const asked *a, int il)
{
    char text[600];
    snprintf(text, sizeof text, HEAD "attention: {scale: %s}\n", form);
    qn_config *c = must_parse(text);
    double v = resolve(c, a, il, NULL).attention.scale;
    qn_config_free(c);
    return v;
}

static void scale_fails(const char *form, const asked *a, int il, const char *what)
{
    char text[600];
    snprintf(text, sizeof text, HEAD "attention: {scale: %s}\n", form);
    qn_config *c = must_parse(text);
    unresolved(c, a, il, what);
    qn_config_free(c);
}

static asked file_of_values(void)
{
    asked a = {.w = usual_keys()};
    gw_f32(&a.w, "t.f", 0.25f);
    gw_f64(&a.w, "t.d", 1e-3);
    gw_int(&a.w, "t.i8", QN_KV_I8, -5);
    gw_int(&a.w, "t.u64", QN_KV_U64, 7);
    gw_bool(&a.w, "t.yes", true);
    gw_str(&a.w, "t.text", "linear");
    gw_u32(&a.w, "t.zero", 0);
    gw_f32(&a.w, "t.nan", NAN);
    gw_f64(&a.w, "t.inf", INFINITY);
    gw_f32(&a.w, "bare", 3);
    gw_ints(&a.w, "t.six", QN_KV_U32, 6, (int64_t[]){10, 11, 12, 13, 14, 15});
    gw_ints(&a.w, "t.five", QN_KV_U32, 5, (int64_t[]){10, 11, 12, 13, 14});
    gw_strs(&a.w, "t.words", 6, (const char *[]){"a", "b", "c", "d", "e", "f"});
    open_file(&a);
    return a;
}

static void forms(void **state)
{
    (void)state;
    asked a = file_of_values();
    assert_true(scale_of("3", &a, 0) == 3);
    assert_true(scale_of("-1e-5", &a, 0) == -1e-5);
    assert_true(scale_of("0", &a, 0) == scale_of("{formula: rsqrt_head_dim}", &a, 0)); /* there is none */
    assert_true(scale_of(".5", &a, 0) == 0.5);
    assert_true(scale_of("{key: f}", &a, 0) == 0.25);
    assert_true(scale_of("{key: d}", &a, 0) == 1e-3);
    assert_true(scale_of("{key: i8}", &a, 0) == -5);
    assert_true(scale_of("{key: u64}", &a, 0) == 7);
    assert_true(scale_of("{global_key: bare}", &a, 0) == 3);
    assert_true(scale_of("{key: six}", &a, 0) == 10);
    assert_true(scale_of("{key: six}", &a, 5) == 15);
    assert_true(scale_of("{key: no, default: 4}", &a, 0) == 4);
    assert_true(scale_of("{key: no, default: {key: f}}", &a, 0) == 0.25);
    assert_true(scale_of("{key: no, default: {key: no2, default: {formula: n_head}}}", &a, 0) == 4);
    assert_true(scale_of("{key: f, times: 8}", &a, 0) == 2);
    assert_true(scale_of("{key: f, plus: -1}", &a, 0) == -0.75);
    assert_true(scale_of("{key: f, invert: true}", &a, 0) == 4);
    assert_true(scale_of("{key: f, invert: false}", &a, 0) == 0.25);
    assert_true(scale_of("{key: f, times: 8, plus: 2, invert: true}", &a, 0) == 0.25);
    assert_true(scale_of("{key: no, default: 8, times: 2, invert: true}", &a, 0) == 1.0 / 16);
    scale_fails("{key: no}", &a, 0, "attention.scale, t.yaml:4:20: t.gguf: key t.no is missing");
    scale_fails("{global_key: no}", &a, 0, "key no is missing");
    scale_fails("{key: text}", &a, 0, "key t.text is str, a number is needed");
    scale_fails("{key: words}", &a, 0, "key t.words is str, a number is needed");
    scale_fails("{key: five}", &a, 0, "key t.five has 5 values, the model has 6 layers");
    scale_fails("{key: nan}", &a, 0, "t.nan is not finite");
    scale_fails("{key: inf}", &a, 0, "t.inf is not finite");
    scale_fails("{key: zero, invert: true}", &a, 0, "invert is 0");
    qn_config *c = must_parse(HEAD "attention: {window: {key: f}}\n");
    unresolved(c, &a, 0, "attention.window is 0.25, must be a whole number");
    qn_config_free(c);
    scale_fails("{key: f, times: 1e300}", &a, 0, "must be -1e+30 to 1e+30");
    close_file(&a);
}

static void formulas(void **state)
{
    (void)state;
    asked a = {.w = usual_keys()};
    gw_u32(&a.w, "t.attention.key_length", 25);
    gw_u32(&a.w, "t.attention.value_length", 9);
    open_file(&a);
    assert_true(scale_of("{formula: n_embd}", &a, 0) == 64);
    assert_true(scale_of("{formula: n_layer}", &a, 0) == 6);
    assert_true(scale_of("{formula: n_head}", &a, 0) == 4);
    assert_true(scale_of("{formula: n_head_kv}", &a, 0) == 2);
    assert_true(scale_of("{formula: head_dim}", &a, 0) == 25);
    assert_true(scale_of("{formula: value_dim}", &a, 0) == 9);
    assert_true(scale_of("{formula: n_embd_per_head}", &a, 0) == 16);
    assert_true(scale_of("{formula: sqrt_n_embd}", &a, 0) == 8);
    assert_true(scale_of("{formula: rsqrt_head_dim}", &a, 0) == 0.2);
    assert_true(scale_of("{formula: inv_head_dim}", &a, 0) == 1.0 / 25);
    assert_true(scale_of("{formula: rsqrt_n_embd_per_head}", &a, 0) == 0.25);
    assert_true(scale_of("{formula: rsqrt_n_layer, times: 1.4}", &a, 0) == 1 / sqrt(6) * 1.4);
    assert_true(scale_of("{formula: inv_n_embd, times: 256}", &a, 0) == 4);
    qn_config *c =
        must_parse(HEAD "attention: {head_dim: {formula: value_dim}, value_dim: {formula: head_dim}}\n");
    unresolved(c, &a, 0, "asks for itself");
    qn_config_free(c);
    close_file(&a);
}

static void defaults(void **state)
{
    (void)state;
    asked a = {.w = usual_keys()};
    open_file(&a);
    qn_config *c = must_parse(HEAD);
    qn_layer_cfg v = resolve(c, &a, 3, NULL);
    assert_int_equal(v.n_layer, 6);
    assert_int_equal(v.layers.loops, 1);
    assert_true(v.layers.loop_norm);
    assert_int_equal(v.embedding.width, 64);
    assert_string_equal(v.embedding.tensor, "token_embd");
    assert_null(v.embedding.norm);
    assert_int_equal(v.norm.kind, QN_NORM_RMS);
    assert_int_equal(v.norm.weight, QN_NEED_YES);
    assert_int_equal(v.norm.bias, QN_NEED_NO);
    assert_int_equal(v.attention.kind, QN_ATTN_STANDARD);
    assert_int_equal(v.attention.head_dim, 16);
    assert_int_equal(v.attention.value_dim, 16);
    assert_int_equal(v.attention.fused, QN_FUSED_AUTO);
    assert_int_equal(v.attention.qk_norm.kind, QN_NORM_NONE);
    assert_true(v.attention.scale == 0.25);
    assert_int_equal(v.rope.style, QN_ROPE_NEOX);
    assert_int_equal(v.rope.dim, 16);
    assert_true(v.rope.base == 10000);
    assert_int_equal(v.rope.scaling, QN_SCALING_LINEAR);
    assert_true(v.rope.factor == 1);
    assert_int_equal(v.rope.orig_ctx, 512);
    assert_int_equal(v.ffn.kind, QN_FFN_GATED);
    assert_int_equal(v.ffn.activation, QN_ACT_SILU);
    assert_int_equal(v.ffn.n_ff, 96);
    assert_string_equal(v.ffn.norm, "ffn_norm");
    assert_false(v.ffn.input_shared);
    assert_int_equal(v.output.tied, QN_TIED_AUTO);
    assert_string_equal(v.output.tensor, "output");
    char where[200];
    assert_string_equal(qn_config_origin(c, &v, &v.norm.eps, where, sizeof where), "norm.eps, t.yaml:2:13");
    assert_string_equal(qn_config_origin(c, &v, &v.ffn.n_ff, where, sizeof where),
                        "ffn.n_ff, the default in t.yaml");
    qn_config_free(c);
    close_file(&a);
}

static void enumerations(void **state)
{
    (void)state;
    asked a = {.w = usual_keys()};
    open_file(&a);
    qn_config *c = must_parse("architecture: t\n"
                              "norm: {eps: 1e-5, kind: layer, bias: optional, weight: no}\n"
                              "rope: {style: interleaved, scaling: yarn, factors: longrope}\n"
                              "attention: {kind: matrix, fused: no, v_norm: layer, out: none,\n"
                              "  qk_norm: {kind: layer, width: full, order: after_rope, weight: per_head}}\n"
                              "ffn: {kind: none, activation: xielu, norm: shared}\n"
                              "output: {tied: never}\n"
                              "residual: {parallel: true, skip_layer: false}\n");
    qn_layer_cfg v = resolve(c, &a, 0, NULL);
    assert_int_equal(v.norm.kind, QN_NORM_LAYER);
    assert_int_equal(v.norm.bias, QN_NEED_OPTIONAL);
    assert_int_equal(v.norm.weight, QN_NEED_NO);
    assert_int_equal(v.rope.style, QN_ROPE_INTERLEAVED);
    assert_int_equal(v.rope.scaling, QN_SCALING_YARN);
    assert_int_equal(v.rope.factors, QN_FACTORS_LONGROPE);
    assert_int_equal(v.attention.kind, QN_ATTN_MATRIX);
    assert_int_equal(v.attention.fused, QN_FUSED_NO);
    assert_int_equal(v.attention.v_norm, QN_NORM_LAYER);
    assert_null(v.attention.out);
    assert_int_equal(v.attention.qk_norm.kind, QN_NORM_LAYER);
    assert_int_equal(v.attention.qk_norm.width, QN_QK_FULL);
    assert_int_equal(v.attention.qk_norm.order, QN_QK_AFTER_ROPE);
    assert_int_equal(v.attention.qk_norm.weight, QN_QKW_PER_HEAD);
    assert_int_equal(v.ffn.kind, QN_FFN_NONE);
    assert_int_equal(v.ffn.activation, QN_ACT_XIELU);
    assert_null(v.ffn.norm);
    assert_true(v.ffn.input_shared);
    assert_int_equal(v.output.tied, QN_TIED_NEVER);
    assert_true(v.residual.parallel);
    qn_config_free(c);
    close_file(&a);
}

/* Every leaf can be written at its path, with its default. */
static void every_leaf_can_be_set(void **state)
{
    (void)state;
    asked a = {.w = usual_keys()};
    open_file(&a);
    for (int i = 0; qn_schema(i); i++) {
        const qn_schema_row *r = qn_schema(i);
        assert_true(strlen(r->doc) > 5 && r->doc[strlen(r->doc) - 1] == '.');
        const char *value = r->default_text;
        char text[800], path[128], braces[16] = "";
        if (!value || !strcmp(r->path, "norm.eps") || !strcmp(r->path, "rope.style")) {
            continue;
        }
        snprintf(path, sizeof path, "%s", r->path);
        for (char *dot; (dot = strchr(path, '.'));) {
            memmove(dot + 3, dot + 1, strlen(dot));
            memcpy(dot, ": {", 3);
            strcat(braces, "}");
        }
        snprintf(text, sizeof text, "architecture: t\n%s: %s%s\n%s%s", path, value, braces,
                 strncmp(path, "norm", 4) ? "norm: {eps: 1}\n" : "",
                 strncmp(path, "rope", 4) ? "rope: {style: none}\n" : "");
        if (!strncmp(path, "norm", 4) || !strncmp(path, "rope", 4)) {
            char *close = strstr(text, "}\n");
            char rest[400];
            snprintf(rest, sizeof rest, "%s", close);
            sprintf(close, ", %s%s", strncmp(path, "norm", 4) ? "style: none" : "eps: 1", rest);
        }
        qn_config *c = must_parse(text);
        qn_layer_cfg v = resolve(c, &a, 0, NULL);
        assert_int_equal(v.n_layer, 6);
        qn_config_free(c);
    }
    close_file(&a);
}

static void booleans(void **state)
{
    (void)state;
    asked a = {.w = usual_keys()};
    gw_bool(&a.w, "t.yes", true);
    gw_u32(&a.w, "t.one", 1);
    gw_u32(&a.w, "t.nought", 0);
    gw_str(&a.w, "t.text", "true");
    open_file(&a);
    const struct {
        const char *form;
        bool parallel;
    } good[] = {{"true", true},
                {"false", false},
                {"{key: yes}", true},
                {"{key: one}", true},
                {"{key: nought}", false},
                {"{key: no, default: true}", true},
                {"{key: no, default: {key: nought}}", false}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char text[300];
        snprintf(text, sizeof text, HEAD "residual: {parallel: %s}\n", good[i].form);
        qn_config *c = must_parse(text);
        assert_int_equal(resolve(c, &a, 0, NULL).residual.parallel, good[i].parallel);
        qn_config_free(c);
    }
    qn_config *c = must_parse(HEAD "residual: {parallel: {key: text}}\n");
    unresolved(c, &a, 0, "key t.text is str");
    qn_config_free(c);
    close_file(&a);
}

/* Kinds of the six layers as one letter each. */
static void kinds_are(const char *pattern, const asked *a, const char *want)
{
    char text[500], got[8] = "";
    snprintf(text, sizeof text, HEAD "layers: {pattern: %s}\nkinds: {b: {attention: {window: 7}}}\n",
             pattern);
    qn_config *c = must_parse(text);
    for (int il = 0; il < 6; il++) {
        const char *kind;
        qn_layer_cfg v = resolve(c, a, il, &kind);
        got[il] = kind[0];
        assert_int_equal(v.attention.window, kind[0] == 'b' ? 7 : 0);
    }
    assert_string_equal(got, want);
    qn_config_free(c);
}

static void patterns(void **state)
{
    (void)state;
    asked a = {.w = usual_keys()};
    gw_u32(&a.w, "t.three", 3);
    gw_ints(&a.w, "t.array", QN_KV_BOOL, 6, (int64_t[]){1, 1, 0, 0, 1, 0});
    gw_ints(&a.w, "t.numbers", QN_KV_I32, 7, (int64_t[]){4, 0, 0, 0, 0, -1, 1});
    gw_ints(&a.w, "t.short", QN_KV_BOOL, 5, (int64_t[]){1, 1, 0, 0, 1});
    gw_bool(&a.w, "t.all", true);
    gw_f32(&a.w, "t.half", 0.5f);
    gw_strs(&a.w, "t.words", 6, (const char *[]){"a", "b", "c", "d", "e", "f"});
    open_file(&a);
    kinds_are("{kinds: [a, b], period: 2}", &a, "ababab");
    kinds_are("{kinds: [a, b], period: 4}", &a, "aaabaa");
    kinds_are("{kinds: [a, b], period: 1}", &a, "bbbbbb");
    kinds_are("{kinds: [a, b], period: 0}", &a, "aaaaaa");
    kinds_are("{kinds: [b, a], period: {key: three}}", &a, "bbabba");
    kinds_are("{kinds: [a, b], period: {key: none, default: 6}}", &a, "aaaaab");
    kinds_are("{kinds: [a, b], period: {key: array, default: 2}}", &a, "aabbab");
    kinds_are("{kinds: [a, b], period: {key: array}}", &a, "aabbab");
    kinds_are("{kinds: [a, b], period: {key: none, default: {key: numbers, default: 2}}}", &a, "abbbba");
    kinds_are("{kinds: [a, b], period: {key: none, default: {key: three}}}", &a, "aabaab");
    kinds_are("{kinds: [a, b], array: array}", &a, "aabbab");
    kinds_are("{kinds: [a, b], array: numbers}", &a, "abbbba");
    kinds_are("{kinds: [a, b], array: all}", &a, "aaaaaa");
    kinds_are("{kinds: [a, b, c], list: [0, 2, 1, 1]}", &a, "acbbac");
    const struct {
        const char *pattern, *what;
    } bad[] = {
        {"{kinds: [a, b], array: short}", "key t.short has 5 values, the model has 6 layers"},
        {"{kinds: [a, b], array: absent}", "key t.absent is missing"},
        {"{kinds: [a, b], array: words}", "does not hold numbers"},
        {"{kinds: [a, b], period: {key: short, default: 2}}",
         "key t.short has 5 values, the model has 6 layers"},
        {"{kinds: [a, b], period: {key: words}}", "does not hold numbers"},
        {"{kinds: [a, b], period: {key: half}}", "period is 0.5"},
        {"{kinds: [a, b], period: -1}", "period is -1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[300];
        snprintf(text, sizeof text, HEAD "layers: {pattern: %s}\n", bad[i].pattern);
        qn_config *c = must_parse(text);
        unresolved(c, &a, 5, bad[i].what);
        unresolved(c, &a, 5, "t.yaml:4:19: ");
        qn_config_free(c);
    }
    close_file(&a);
}

/* Whether a variant under `cond` is in force in layer il. */
static bool holds(const char *cond, const asked *a, int il)
{
    char text[500];
    snprintf(text, sizeof text, HEAD "when: [{if: %s, set: {attention: {softcap: 9}}}]\n", cond);
    qn_config *c = must_parse(text);
    bool on = resolve(c, a, il, NULL).attention.softcap == 9;
    qn_config_free(c);
    return on;
}

static asked file_of_conditions(void)
{
    asked a = {.w = usual_keys()};
    gw_u32(&a.w, "t.n", 5);
    gw_str(&a.w, "t.type", "longrope");
    gw_bool(&a.w, "t.on", true);
    gw_bool(&a.w, "t.off", false);
    gw_ints(&a.w, "t.array", QN_KV_U32, 3, (int64_t[]){8, 0, 1});
    gw_ints(&a.w, "t.empty", QN_KV_U32, 0, (int64_t[]){0});
    gw_u32(&a.w, "bare", 5);
    gw_tensor(&a.w, "rope_freqs.weight", QN_F32, 1, (uint64_t[]){8}, NULL);
    gw_tensor(&a.w, "blk.2.attn_v.weight", QN_F32, 1, (uint64_t[]){8}, NULL);
    open_file(&a);
    return a;
}

static void conditions(void **state)
{
    (void)state;
    asked a = file_of_conditions();
    const char *yes[] = {"{key: n, eq: 5}",
                         "{key: n, ge: 5}",
                         "{key: n, gt: 4.5}",
                         "{key: n, lt: 6}",
                         "{global_key: bare, eq: 5}",
                         "{key: n, is: present}",
                         "{key: none, is: absent}",
                         "{key: type, eq: longrope}",
                         "{key: type, eq: 'longrope'}",
                         "{key: on, eq: true}",
                         "{key: off, eq: false}",
                         "{key: on, eq: 1}",
                         "{key: n, eq: {global_key: bare}}",
                         "{key: n, eq: {key: none, default: 5}}",
                         "{value: n_layer, eq: 6}",
                         "{value: n_embd, eq: 64}",
                         "{value: n_ctx, eq: 100}",
                         "{value: n_head, eq: 4}",
                         "{value: n_head_kv, lt: 3}",
                         "{value: n_ff, ge: 96}",
                         "{value: layer, eq: 2}",
                         "{tensor: rope_freqs.weight, is: present}",
                         "{tensor: x.weight, is: absent}",
                         "{layer_tensor: attn_v.weight, is: present}",
                         "{key: array, eq: 8}",
                         "[{key: n, eq: 5}, {value: n_layer, eq: 6}]",
                         "{key: n, eq: {key: n, plus: 0}}",
                         "{key: n, gt: {formula: n_head}}",
                         "{key: n, lt: {key: context_length}}"};
    const char *no[] = {"{key: n, eq: 4}",
                        "{key: n, ge: 6}",
                        "{key: n, gt: 5}",
                        "{key: n, lt: 5}",
                        "{key: bare, eq: 5}",
                        "{key: none, eq: 5}",
                        "{key: none, ge: 0}",
                        "{key: none, gt: -1}",
                        "{key: none, lt: 99}",
                        "{key: none, eq: x}",
                        "{key: none, is: present}",
                        "{key: n, is: absent}",
                        "{key: type, eq: long}",
                        "{key: type, eq: longropes}",
                        "{key: on, eq: false}",
                        "{key: empty, eq: 0}",
                        "{value: n_layer, eq: 5}",
                        "{value: layer, eq: 1}",
                        "{tensor: x.weight, is: present}",
                        "{layer_tensor: attn_k.weight, is: present}",
                        "{layer_tensor: attn_v.weight, is: absent}",
                        "[{key: n, eq: 5}, {value: n_layer, eq: 5}]",
                        "[{key: n, eq: 4}, {value: layer, eq: 2}]"};
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        if (!holds(yes[i], &a, 2)) {
            fail_msg("%s does not hold", yes[i]);
        }
    }
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++) {
        if (holds(no[i], &a, 2)) {
            fail_msg("%s holds", no[i]);
        }
    }
    assert_false(holds("{layer_tensor: attn_v.weight, is: present}", &a, 1));
    qn_config *c = must_parse(HEAD "when: [{if: {key: n, eq: five}, set: {}}]\n");
    unresolved(c, &a, 0, "t.yaml:4:13: t.gguf: key t.n is u32, cannot be compared with \"five\"");
    qn_config_free(c);
    c = must_parse(HEAD "when: [{if: {key: type, gt: 3}, set: {}}]\n");
    unresolved(c, &a, 0, "t.yaml:4:13: t.gguf: key t.type is str, a number is needed");
    qn_config_free(c);
    close_file(&a);
}

/* defaults < base < variants of the model, in order < kind < kinds of variants < variants of the layer */
static void order(void **state)
{
    (void)state;
    asked a = file_of_conditions();
    qn_config *c = must_parse(HEAD "layers: {pattern: {kinds: [l, g], period: 2}}\n"
                                   "attention: {softcap: 1, clamp: 1, window: 1, alibi: 1, temperature: 1}\n"
                                   "kinds:\n"
                                   "  g: {attention: {window: 3, alibi: 3}}\n"
                                   "when:\n"
                                   "  - {if: {value: layer, ge: 0}, set: {attention: {temperature: 5}}}\n"
                                   "  - if: {key: n, eq: 5}\n"
                                   "    set:\n"
                                   "      attention: {clamp: 2, window: 2, alibi: 2, temperature: 2}\n"
                                   "      kinds: {g: {attention: {alibi: 4}}}\n"
                                   "  - {if: {key: n, eq: 6}, set: {attention: {clamp: 99}}}\n"
                                   "  - {if: {key: n, eq: 5}, set: {attention: {temperature: 3}}}\n");
    qn_layer_cfg l = resolve(c, &a, 0, NULL), g = resolve(c, &a, 1, NULL);
    assert_true(l.attention.softcap == 1 && g.attention.softcap == 1);
    assert_true(l.attention.clamp == 2 && g.attention.clamp == 2);
    assert_true(l.attention.window == 2 && g.attention.window == 3);
    assert_true(l.attention.alibi == 2 && g.attention.alibi == 4);
    assert_true(l.attention.temperature == 5 && g.attention.temperature == 5);
    qn_config_free(c);
    /* a variant brings the pattern */
    c = must_parse(HEAD "when:\n"
                        "  - if: {key: n, gt: 0}\n"
                        "    set:\n"
                        "      layers: {pattern: {kinds: [l, g], period: 3}}\n"
                        "      kinds: {l: {attention: {window: 4}}}\n");
    const char *kind;
    assert_int_equal(resolve(c, &a, 1, &kind).attention.window, 4);
    assert_string_equal(kind, "l");
    assert_int_equal(resolve(c, &a, 2, &kind).attention.window, 0);
    assert_string_equal(kind, "g");
    qn_config_free(c);
    close_file(&a);
}

static void layers(void **state)
{
    (void)state;
    asked a = {.w = usual_keys()};
    gw_u32(&a.w, "t.extra", 2);
    gw_u32(&a.w, "t.all", 6);
    open_file(&a);
    qn_config *c = must_parse(HEAD "layers: {skip_last: {key: extra, default: 0}}\n");
    assert_int_equal(resolve(c, &a, 3, NULL).n_layer, 4);
    unresolved(c, &a, 4, "layer 4 of 4");
    unresolved(c, &a, -1, "layer -1 of 4");
    qn_config_free(c);
    c = must_parse(HEAD "layers: {skip_last: {key: all}}\n");
    unresolved(c, &a, 0, "6 of 6 blocks");
    qn_config_free(c);
    close_file(&a);
}

/* A width that is no multiple of the heads: the scale takes the whole part. */
static void scale_of_uneven_heads(void **state)
{
    (void)state;
    asked a = {.w = gw_new()};
    gw_str(&a.w, "general.architecture", "t");
    gw_u32(&a.w, "t.block_count", 6);
    gw_u32(&a.w, "t.embedding_length", 67);
    gw_u32(&a.w, "t.feed_forward_length", 96);
    gw_u32(&a.w, "t.attention.head_count", 4);
    gw_u32(&a.w, "t.attention.key_length", 8);
    gw_u32(&a.w, "t.attention.value_length", 8);
    open_file(&a);
    assert_true(scale_of("{formula: rsqrt_n_embd_per_head}", &a, 0) == 0.25);
    scale_fails("{formula: n_embd_per_head}", &a, 0, "n_embd 67 is no multiple of n_head 4");
    close_file(&a);
}

/* What a hostile or broken file may say of its shape. */
static void bad_files(void **state)
{
    (void)state;
    const struct {
        const char *key;
        qn_kv_type type;
        int64_t value;
        const char *what;
    } bad[] = {
        {"t.block_count", QN_KV_U32, 0, "layers.count of layer 0 is 0, must be 1 to 4096"},
        {"t.block_count", QN_KV_U32, 4097, "must be 1 to 4096"},
        {"t.block_count", QN_KV_U32, 0xffffffff, "must be 1 to 4096"},
        {"t.block_count", QN_KV_U64, -1, "must be 1 to 4096"},
        {"t.block_count", QN_KV_I32, -3, "must be 1 to 4096"},
        {"t.embedding_length", QN_KV_U32, 0, "must be 1 to 1048576"},
        {"t.embedding_length", QN_KV_U64, INT64_MAX, "must be 1 to 1048576"},
        {"t.embedding_length", QN_KV_U32, 66, "n_embd 66 is no multiple of n_head 4"},
        {"t.attention.head_count", QN_KV_U32, 70000, "must be 0 to 65536"},
        {"t.attention.head_count", QN_KV_U32, 0, "n_embd 64 is no multiple of n_head 0"},
        {"t.attention.key_length", QN_KV_U32, 0, "must be 1 to 16384"},
        {"t.attention.key_length", QN_KV_I32, -8, "must be 1 to 16384"},
        {"t.rope.dimension_count", QN_KV_U32, 99999, "must be 0 to 16384"},
        {"t.rope.freq_base", QN_KV_U32, 0, "rope.base of layer 0 is 0, must be 1 to 1e+30"},
        {"t.feed_forward_length", QN_KV_U32, 0x7fffffff, "must be 0 to 16777216"},
        {"t.rope.scaling.original_context_length", QN_KV_U32, 0xffffffff, "must be 0 to 2147483647"},
    };
    qn_config *c = must_parse(HEAD);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        asked a = {.w = gw_new()};
        gw_str(&a.w, "general.architecture", "t");
        const char *usual[] = {"t.block_count", "t.embedding_length", "t.feed_forward_length",
                               "t.attention.head_count"};
        const uint32_t value[] = {6, 64, 96, 4};
        for (int k = 0; k < 4; k++) {
            if (strcmp(usual[k], bad[i].key) != 0) {
                gw_u32(&a.w, usual[k], value[k]);
            }
        }
        gw_int(&a.w, bad[i].key, bad[i].type, bad[i].value);
        open_file(&a);
        unresolved(c, &a, 0, bad[i].what);
        close_file(&a);
    }
    asked a = {.w = usual_keys()};
    gw_str(&a.w, "t.rope.scaling.type", "dynamic");
    open_file(&a);
    unresolved(c, &a, 0, "rope.scaling.type is \"dynamic\", must be none, linear, yarn or longrope");
    close_file(&a);
    a = (asked){.w = gw_new()};
    gw_str(&a.w, "general.architecture", "t");
    open_file(&a);
    unresolved(c, &a, 0, "layers.count, the default in t.yaml: t.gguf: key t.block_count is missing");
    close_file(&a);
    qn_config_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms),
        cmocka_unit_test(formulas),
        cmocka_unit_test(defaults),
        cmocka_unit_test(enumerations),
        cmocka_unit_test(every_leaf_can_be_set),
        cmocka_unit_test(booleans),
        cmocka_unit_test(patterns),
        cmocka_unit_test(conditions),
        cmocka_unit_test(order),
        cmocka_unit_test(layers),
        cmocka_unit_test(scale_of_uneven_heads),
        cmocka_unit_test(bad_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
