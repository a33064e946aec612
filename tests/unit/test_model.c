// rooms: room_model
/* The golden models of the shipped configs, resolved and bound: what the architecture's facts say they must
 * be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include <math.h>

#include "model/config.h"
#include "model/model.h"
#include "model/model_internal.h"

static qn_model *load_ctx(const char *name, int n_ctx)
{
    char path[4096];
    qn_model *m;
    qn_err err = {""};
    qn_model_opts opts = {.n_ctx = n_ctx};
    snprintf(path, sizeof path, QN_BUILD_DIR "/goldens/archs/%s.gguf", name);
    if (qn_model_load(&m, path, &opts, &err)) {
        fail_msg("%s", err.text);
    }
    return m;
}

static qn_model *load(const char *name)
{
    return load_ctx(name, 0);
}

static int n_unused(const qn_model *m)
{
    int n = 0;
    while (m->unused[n]) {
        n++;
    }
    return n;
}

static void shape_is(const qn_tensor *t, uint64_t a, uint64_t b)
{
    assert_non_null(t);
    assert_int_equal(t->ne[0], a);
    assert_int_equal(t->ne[1], b);
}

static void llama(void **state)
{
    (void)state;
    qn_model *m = load("llama");
    assert_string_equal(m->arch, "llama");
    assert_string_equal(m->config_name, "model_configs/llama.yaml");
    assert_int_equal(m->n_layer, 3);
    assert_int_equal(m->n_embd, 64);
    assert_int_equal(m->n_vocab, 96);
    assert_int_equal(m->n_ctx_train, 256);
    assert_int_equal(m->n_ctx, 256);
    assert_false(m->tied);
    assert_true(m->embd_scale == 1 && m->logit_scale == 1 && m->logit_softcap == 0 && m->out_norm_scale == 1);
    assert_int_equal(m->n_stream, 1);
    assert_int_equal(m->ple_width, 0);
    assert_string_equal(m->out.w->name, "output.weight");
    assert_int_equal(n_unused(m), 0);
    assert_int_equal(m->out_norm.kind, QN_NORM_RMS);
    for (int il = 0; il < 3; il++) {
        const qn_layer *l = &m->layers[il];
        assert_int_equal(l->file_index, il);
        assert_string_equal(l->kind, "");
        assert_false(l->skip || l->parallel || l->loop_norm_after);
        assert_true(l->residual_scale == 1);
        assert_int_equal(l->attn.kind, QN_ATTN_STANDARD);
        assert_int_equal(l->attn.n_head, 4);
        assert_int_equal(l->attn.n_head_kv, 2);
        assert_int_equal(l->attn.k_dim, 32);
        assert_int_equal(l->attn.v_dim, 32);
        assert_true(l->attn.scale == (float)(1 / sqrt(32)));
        assert_int_equal(l->attn.kv_source, il);
        assert_int_equal(l->attn.window, 0);
        shape_is(l->attn.q.w, 64, 128);
        shape_is(l->attn.k.w, 64, 64);
        shape_is(l->attn.v.w, 64, 64);
        shape_is(l->attn.out.w, 128, 64);
        assert_null(l->attn.qkv.w);
        assert_null(l->attn.q.b);
        assert_int_equal(l->attn.qk_norm, QN_NORM_NONE);
        assert_int_equal(l->attn.rope.style, QN_ROPE_INTERLEAVED);
        assert_int_equal(l->attn.rope.n_rot, 32);
        assert_true(l->attn.rope.mscale == 1);
        assert_true(l->attn.norm.eps == 1e-5f);
        shape_is(l->attn.norm.w, 64, 1);
        assert_int_equal(l->attn.post_norm.kind, QN_NORM_NONE);
        assert_int_equal(l->ffn.kind, QN_FFN_GATED);
        assert_int_equal(l->ffn.act, QN_ACT_SILU);
        assert_int_equal(l->ffn.n_ff, 96);
        assert_false(l->ffn.fused || l->ffn.input_shared);
        shape_is(l->ffn.gate.w, 64, 96);
        shape_is(l->ffn.up.w, 64, 96);
        shape_is(l->ffn.down.w, 96, 64);
        assert_ptr_equal(l->attn.rope.freq, m->layers[0].attn.rope.freq);
        for (int i = 0; i < 16; i++) {
            assert_true(l->attn.rope.freq[i] == (float)pow(10000, -i / 16.0));
        }
    }
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < qn_gguf_n_tensors(m->gguf); i++) {
        bytes += qn_gguf_tensor(m->gguf, i)->n_bytes;
    }
    assert_int_equal(qn_model_weight_bytes(m), bytes);
    qn_model_free(m);
}

static void llama_variants(void **state)
{
    (void)state;
    qn_model *m = load("llama-bias");
    const qn_layer *l = &m->layers[1];
    shape_is(l->attn.q.b, 128, 1);
    shape_is(l->attn.v.b, 64, 1);
    shape_is(l->attn.out.b, 64, 1);
    shape_is(l->ffn.gate.b, 96, 1);
    shape_is(l->ffn.down.b, 64, 1);
    assert_int_equal(n_unused(m), 0);
    qn_model_free(m);
    m = load("llama-fusedqkv");
    shape_is(m->layers[0].attn.qkv.w, 64, 256);
    shape_is(m->layers[0].attn.qkv.b, 256, 1);
    assert_null(m->layers[0].attn.q.w);
    assert_int_equal(n_unused(m), 0);
    qn_model_free(m);
    m = load("llama-linear");
    for (int i = 0; i < 16; i++) {
        const qn_kv *kv = qn_gguf_find(m->gguf, "llama.rope.scaling.factor");
        double factor = 0;
        assert_true(qn_kv_f64(kv, 0, &factor) && factor > 1);
        assert_true(m->layers[0].attn.rope.freq[i] == (float)(pow(10000, -i / 16.0) / factor));
    }
    qn_model_free(m);
}

static void rope_freqs(void **state)
{
    (void)state;
    static const float div[] = {1,      1.03f,  1.116f, 1.262f, 1.456f, 1.705f, 2.099f, 2.407f,
                                2.837f, 3.321f, 3.868f, 4.761f, 5.251f, 5.965f, 6.803f, 7.418f};
    qn_model *m = load("llama-ropefreqs");
    for (int i = 0; i < 16; i++) {
        assert_true(m->layers[1].attn.rope.freq[i] == (float)(pow(500000, -i / 16.0) / div[i]));
    }
    assert_true(m->tied);
    assert_ptr_equal(m->out.w, m->tok_embd);
    assert_int_equal(n_unused(m), 0);
    qn_model_free(m);
}

/* Above the original context the long divisors, up to it the short ones; cos and sin times attn_factor. */
static void longrope(void **state)
{
    (void)state;
    static const float is_long[] = {1,      1.022f, 1.082f, 1.2f,   1.33f,  1.554f, 1.789f, 2.039f,
                                    2.383f, 2.687f, 3.117f, 3.556f, 3.934f, 4.662f, 5.137f, 5.521f};
    static const float is_short[] = {1.059f, 1.158f, 1.14f,  1.468f, 1.436f, 1.212f, 1.015f, 1.145f,
                                     1.21f,  1.059f, 1.025f, 1.051f, 1.335f, 1.381f, 1.397f, 1.34f};
    const int ctx[] = {0, 33, 32, 5};
    for (int k = 0; k < 4; k++) {
        qn_model *m = load_ctx("llama-longrope", ctx[k]);
        assert_int_equal(m->n_ctx, ctx[k] ? ctx[k] : 256);
        assert_true(m->layers[0].attn.rope.mscale == 1.19f);
        for (int i = 0; i < 16; i++) {
            float div = (k < 2 ? is_long : is_short)[i];
            assert_true(m->layers[0].attn.rope.freq[i] == (float)(pow(10000, -i / 16.0) / div));
        }
        assert_string_equal(m->unused[0], k < 2 ? "rope_factors_short.weight" : "rope_factors_long.weight");
        qn_model_free(m);
    }
}

/* Factor 4, original context 64, base 10000, 32 dimensions. By hand:
 * d(b) = 32 ln(64 / (2 pi b)) / (2 ln 10000); d(32) = -1.989 -> lo = 0; d(1) = 4.032 -> hi = 5.
 * Pair i: theta / 4 * r + theta * (1 - r) with r = min(1, i / 5). */
static void yarn(void **state)
{
    (void)state;
    qn_model *m = load("llama-yarn");
    const qn_rope *r = &m->layers[0].attn.rope;
    static const double keeps[] = {1, 0.85, 0.7, 0.55, 0.4, 0.25, 0.25, 0.25};
    for (int i = 0; i < 16; i++) {
        double want = pow(10000, -i / 16.0) * keeps[i < 7 ? i : 7];
        assert_true(fabs(r->freq[i] - want) <= 1e-7 * want);
    }
    assert_true(fabs(r->mscale - 1.1386294361119891) < 1e-6); /* 1 + 0.1 ln 4 */
    qn_model_free(m);
}

static void qwen(void **state)
{
    (void)state;
    qn_model *m = load("qwen2");
    const qn_layer *l = &m->layers[2];
    assert_int_equal(l->attn.k_dim, 16);
    assert_int_equal(l->attn.rope.style, QN_ROPE_NEOX);
    shape_is(l->attn.q.b, 64, 1);
    shape_is(l->attn.k.b, 32, 1);
    assert_null(l->attn.out.b);
    assert_null(m->out.b);
    assert_true(l->attn.rope.freq[1] == (float)pow(1e6, -1 / 8.0));
    qn_model_free(m);
    m = load("qwen3");
    l = &m->layers[0];
    assert_int_equal(l->attn.qk_norm, QN_NORM_RMS);
    assert_int_equal(l->attn.qk_width, QN_QK_HEAD);
    assert_int_equal(l->attn.qk_order, QN_QK_BEFORE_ROPE);
    assert_int_equal(l->attn.qk_weight, QN_QKW_CHANNEL);
    shape_is(l->attn.q_norm.w, 32, 1);
    shape_is(l->attn.k_norm.w, 32, 1);
    assert_string_equal(l->attn.k_norm.w->name, "blk.0.attn_k_norm.weight");
    assert_true(l->attn.q_norm.eps == 1e-6f);
    assert_int_equal(l->attn.k_dim, 32);
    qn_model_free(m);
}

static void gemma3(void **state)
{
    (void)state;
    qn_model *m = load("gemma3");
    assert_true(m->embd_scale == 8 && m->tied && m->logit_softcap == 0);
    const float *local = m->layers[0].attn.rope.freq, *global = m->layers[5].attn.rope.freq;
    for (int il = 0; il < 7; il++) {
        const qn_layer *l = &m->layers[il];
        bool is_global = il == 5;
        assert_string_equal(l->kind, is_global ? "global" : "local");
        assert_int_equal(l->attn.window, is_global ? 0 : 8);
        assert_ptr_equal(l->attn.rope.freq, is_global ? global : local);
        assert_string_equal(strstr(l->attn.post_norm.w->name, "post_"), "post_attention_norm.weight");
        assert_string_equal(strstr(l->ffn.post_norm.w->name, "post_"), "post_ffw_norm.weight");
        assert_int_equal(l->ffn.act, QN_ACT_GELU);
        assert_true(l->attn.scale == (float)(1 / sqrt(32)));
        assert_int_equal(l->attn.kv_source, il);
    }
    for (int i = 0; i < 16; i++) {
        assert_true(local[i] == (float)pow(300, -i / 16.0));
        assert_true(global[i] == (float)(pow(3000, -i / 16.0) / 2));
    }
    assert_int_equal(n_unused(m), 0);
    qn_model_free(m);
    m = load("gemma3-27b");
    assert_int_equal(m->n_layer, 62);
    assert_true(m->layers[0].attn.scale == (float)(1 / sqrt(32))); /* n_embd / n_head, not the head's 16 */
    assert_int_equal(m->layers[0].attn.k_dim, 16);
    qn_model_free(m);
}

/* The whole table against values worked out apart from it, YaRN's corner cases included. */
static void frequencies(void **state)
{
    (void)state;
    static const struct {
        int dim, orig;
        double base, factor, fast, slow, log_mul, attn, mscale;
        int first_full, last_kept; /* pairs: the first fully stretched, the last untouched */
    } cases[] = {
        /* d(32) = 20.944, d(1) = 45.03 */
        {128, 4096, 10000, 40, 32, 1, 0, 1, 1 + 0.1 * 3.6888794541139363, 46, 20},
        {128, 4096, 10000, 40, 32, 1, 1, 1, 1, 46, 20},
        {128, 4096, 10000, 40, 32, 1, 0.707, 1, 1.3688879454113936 / 1.2608037774058553, 46, 20},
        {64, 8192, 1e6, 4, 32, 1, 0, 0.5, 0.5 * 1.1386294361119891, 17, 8},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        qn_layer_cfg c = {0};
        double freq[64], mscale;
        c.rope.dim = cases[k].dim;
        c.rope.orig_ctx = cases[k].orig;
        c.rope.base = cases[k].base;
        c.rope.factor = cases[k].factor;
        c.rope.beta_fast = cases[k].fast;
        c.rope.beta_slow = cases[k].slow;
        c.rope.yarn_log_multiplier = cases[k].log_mul;
        c.rope.attn_factor = cases[k].attn;
        c.rope.scaling = QN_SCALING_YARN;
        qn_rope_frequencies(&c, freq, &mscale);
        assert_true(fabs(mscale - cases[k].mscale) < 1e-9);
        for (int i = 0; i < c.rope.dim / 2; i++) {
            double plain = pow(cases[k].base, -2.0 * i / c.rope.dim), ratio = freq[i] / plain;
            double lo = cases[k].last_kept, hi = cases[k].first_full;
            double r = i <= lo ? 0 : i >= hi ? 1 : (i - lo) / (hi - lo);
            assert_true(fabs(ratio - (1 - r + r / cases[k].factor)) < 1e-12);
        }
    }
    qn_layer_cfg c = {0};
    double freq[8], mscale;
    c.rope.dim = 16;
    c.attention.head_dim = 16;
    c.rope.base = 10000;
    c.rope.ntk_alpha = 1000;
    c.rope.attn_factor = 1.5;
    c.rope.scaling = QN_SCALING_NONE;
    c.rope.factor = 8; /* has no effect where scaling is none */
    qn_rope_frequencies(&c, freq, &mscale);
    assert_true(fabs(freq[1] - pow(26826957.95, -0.125)) < 1e-8); /* 10000 * 1000^(16/14) */
    assert_true(freq[0] == 1 && mscale == 1.5);
    c.rope.scaling = QN_SCALING_LINEAR;
    qn_rope_frequencies(&c, freq, &mscale);
    assert_true(freq[0] == 0.125 && mscale == 1.5);
    c.rope.factor = 0; /* means 1 */
    qn_rope_frequencies(&c, freq, &mscale);
    assert_true(freq[0] == 1);
}

static void contexts(void **state)
{
    (void)state;
    qn_model *m = load_ctx("qwen2", 1000000);
    assert_int_equal(m->n_ctx, 1000000);
    qn_model_free(m);
    qn_err err;
    qn_model_opts opts = {.n_ctx = -1};
    assert_int_equal(qn_model_load(&m, QN_BUILD_DIR "/goldens/archs/qwen2.gguf", &opts, &err), -1);
    assert_null(m);
    assert_non_null(strstr(err.text, "context size -1"));
}

static void quantised(void **state)
{
    (void)state;
    static const char *const good[] = {"F16",    "BF16",   "Q8_0",       "Q4_0",      "Q4_1", "Q5_0",
                                       "Q5_1",   "Q4_K",   "Q6_K",       "Q2_K",      "Q3_K", "Q5_K",
                                       "IQ4_NL", "IQ4_XS", "mix-Q4_K_M", "mix-Q3_K_L"};
    char path[4096];
    qn_model *m;
    qn_err err;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        snprintf(path, sizeof path, QN_TEST_DATA "/goldens/quants/llama-%s.gguf", good[i]);
        if (qn_model_load(&m, path, NULL, &err)) {
            fail_msg("%s", err.text);
        }
        qn_model_free(m);
    }
    assert_int_equal(qn_model_load(&m, QN_TEST_DATA "/goldens/quants/llama-IQ1_S.gguf", NULL, &err), -1);
    assert_null(m);
    assert_non_null(strstr(err.text,
                           "llama-IQ1_S.gguf: tensor token_embd.weight is of type iq1_s, which is not "
                           "supported (supported: f32, f16, q4_0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama),     cmocka_unit_test(llama_variants), cmocka_unit_test(rope_freqs),
        cmocka_unit_test(longrope),  cmocka_unit_test(yarn),           cmocka_unit_test(qwen),
        cmocka_unit_test(gemma3),    cmocka_unit_test(frequencies),    cmocka_unit_test(contexts),
        cmocka_unit_test(quantised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
