// rooms: room_model
/* A model config from arbitrary text: parsed, resolved for every layer of a small file, and bound to its
 * tensors. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/gguf_writer.h"
#include "model/config.h"
#include "model/model_internal.h"

enum { N_LAYER = 3 };

typedef struct spec {
    const char *name;
    uint64_t ne0, ne1;
} spec;

/* n_embd 32, 2 heads of 16 (1 of keys), n_ff 64, 8 tokens, P 4. */
static const spec globals[] = {
    {"token_embd", 32, 8},         {"output_norm", 32, 1},          {"output", 32, 8},
    {"rope_freqs", 8, 1},          {"rope_factors_long", 8, 1},     {"rope_factors_short", 8, 1},
    {"position_embd", 32, 64},     {"per_layer_token_embd", 12, 8}, {"per_layer_model_proj", 32, 12},
    {"per_layer_proj_norm", 4, 1}, {"altup_proj", 32, 32},          {"altup_unembd_proj", 32, 32},
};
static const spec of_layer[] = {
    {"attn_norm", 32, 1},         {"attn_norm_2", 32, 1},
    {"attn_q", 32, 32},           {"attn_k", 32, 16},
    {"attn_v", 32, 16},           {"attn_output", 32, 32},
    {"attn_q_norm", 16, 1},       {"attn_k_norm", 16, 1},
    {"attn_sub_norm", 32, 1},     {"post_attention_norm", 32, 1},
    {"ffn_norm", 32, 1},          {"post_ffw_norm", 32, 1},
    {"ffn_gate", 32, 64},         {"ffn_up", 32, 64},
    {"ffn_down", 64, 32},         {"ffn_sub_norm", 64, 1},
    {"attn_qkv", 32, 64},         {"attn_q_a", 32, 8},
    {"attn_q_b", 8, 32},          {"attn_kv_a_mqa", 32, 20},
    {"attn_kv_b", 12, 48},        {"attn_q_a_norm", 8, 1},
    {"attn_kv_a_norm", 12, 1},    {"altup_router", 32, 2},
    {"altup_router_norm", 32, 1}, {"altup_predict_coef", 2, 4},
    {"altup_correct_coef", 2, 2}, {"altup_correct_scale", 32, 1},
    {"laurel_l", 32, 6},          {"laurel_r", 6, 32},
    {"laurel_post_norm", 32, 1},  {"layer_output_scale", 1, 1},
    {"inp_gate", 32, 4},          {"proj", 4, 32},
    {"post_norm", 32, 1},
};
static const spec biases[] = {
    {"attn_q", 32, 1},    {"attn_k", 16, 1},      {"attn_v", 16, 1},   {"attn_output", 32, 1},
    {"attn_norm", 32, 1}, {"attn_norm_2", 32, 1}, {"attn_qkv", 64, 1}, {"ffn_norm", 32, 1},
    {"ffn_gate", 64, 1},  {"ffn_up", 64, 1},      {"ffn_down", 32, 1},
};

static void put(gw *w, const spec *s, const char *suffix, int il)
{
    char name[96];
    static float ones[128];
    for (int i = 0; i < 128; i++) {
        ones[i] = 1;
    }
    if (il < 0) {
        snprintf(name, sizeof name, "%s.%s", s->name, suffix);
    } else {
        snprintf(name, sizeof name, "blk.%d.%s.%s", il, s->name, suffix);
    }
    bool vector = s->ne1 == 1;
    gw_tensor(w, name, vector ? QN_F32 : QN_F16, vector ? 1 : 2, (uint64_t[]){s->ne0, s->ne1},
              vector ? ones : NULL);
}

static void put_keys(gw *w)
{
    gw_str(w, "general.architecture", "f");
    gw_u32(w, "f.block_count", N_LAYER);
    gw_u32(w, "f.embedding_length", 32);
    gw_u32(w, "f.context_length", 64);
    gw_u32(w, "f.feed_forward_length", 64);
    gw_u32(w, "f.attention.head_count", 2);
    gw_u32(w, "f.attention.head_count_kv", 1);
    gw_f32(w, "f.attention.layer_norm_rms_epsilon", 1e-5f);
    gw_f32(w, "f.attention.layer_norm_epsilon", 1e-5f);
    gw_u32(w, "f.attention.sliding_window", 8);
    gw_ints(w, "f.attention.sliding_window_pattern", QN_KV_BOOL, N_LAYER, (int64_t[]){1, 0, 1});
    gw_str(w, "f.rope.scaling.type", "yarn");
    gw_f32(w, "f.rope.scaling.factor", 4);
    gw_u32(w, "f.embedding_length_per_layer_input", 4);
    gw_f32(w, "f.logit_scale", 0.5f);
    gw_u32(w, "f.attention.key_length_swa", 16);
    gw_u32(w, "f.attention.value_length_swa", 16);
    gw_u32(w, "f.attention.shared_kv_layers", 1);
    gw_u32(w, "f.attention.q_lora_rank", 8);
    gw_u32(w, "f.attention.kv_lora_rank", 12);
    gw_ints(w, "f.array", QN_KV_U32, N_LAYER, (int64_t[]){2, 0, 2});
    gw_u32(w, "f.rope.dimension_count", 16);
    gw_u32(w, "bare", 1);
    gw_bool(w, "f.flag", true);
}

static qn_gguf *small_file(void)
{
    gw w = gw_new();
    put_keys(&w);
    for (size_t i = 0; i < sizeof globals / sizeof globals[0]; i++) {
        put(&w, &globals[i], "weight", -1);
    }
    put(&w, &(spec){"output_norm", 32, 1}, "bias", -1);
    for (int il = 0; il < N_LAYER; il++) {
        for (size_t i = 0; i < sizeof of_layer / sizeof of_layer[0]; i++) {
            put(&w, &of_layer[i], "weight", il);
        }
        for (size_t i = 0; i < sizeof biases / sizeof biases[0]; i++) {
            put(&w, &biases[i], "bias", il);
        }
    }
    size_t size;
    void *bytes = gw_bytes(&w, &size);
    qn_gguf *g;
    qn_err err;
    if (qn_gguf_open_memory(&g, bytes, size, "small", &err)) {
        fputs(err.text, stderr);
        abort();
    }
    gw_free(&w);
    return g;
}

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

/* What later stages rely on. */
static void check_model(const qn_model *m)
{
    for (int i = 0; i < m->n_layer; i++) {
        const qn_layer *l = &m->layers[i];
        const qn_attn *a = &l->attn;
        must(l->kind && a->kv_source >= 0 && a->kv_source <= i);
        if (a->kind == QN_ATTN_STANDARD) {
            must(a->n_head > 0 && a->n_head_kv > 0 && a->k_dim > 0 && a->v_dim > 0 && a->out.w);
            must(a->qkv.w || a->q.w);
            must(a->rope.style == QN_ROPE_NONE || (a->rope.freq && a->rope.n_rot % 2 == 0));
        }
        must(l->ffn.kind == QN_FFN_NONE || (l->ffn.up.w && l->ffn.down.w && l->ffn.n_ff > 0));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static qn_gguf *g;
    static qn_layer_cfg cfg;
    qn_config *c;
    qn_err err = {""};
    g = g ? g : small_file();
    if (qn_config_parse(&c, (const char *)data, size, "fuzz.yaml", &err)) {
        must(strncmp(err.text, "fuzz.yaml", 9) == 0);
        return 0;
    }
    must(qn_config_arch(c, 0) != NULL);
    for (int il = 0; il <= N_LAYER; il++) {
        const char *kind;
        int rc = qn_config_resolve(c, g, il, 100, &cfg, &kind, &err);
        must(rc == 0 || err.text[0]);
    }
    qn_model *m;
    if (qn_model_with_config(&m, g, c, NULL, &err) == 0) {
        check_model(m);
        m->gguf = NULL; /* the file serves all inputs */
        qn_model_free(m);
    }
    qn_config_free(c);
    return 0;
}
