// rooms: room_model
/* Families: what a config asks for, resolved and bound to its golden models, is what the facts of the
 * architecture say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include <dirent.h>
#include <math.h>

#include "model/config.h"
#include "model/model.h"

static qn_model *load_ctx(const char *name, int n_ctx)
{
    char path[4096];
    qn_model *m;
    qn_err err = {""}, err2 = {""};
    qn_model_opts draft = {.config_dir = QN_SOURCE_DIR "/docs/drafts", .n_ctx = n_ctx},
                  shipped = {.n_ctx = n_ctx};
    snprintf(path, sizeof path, QN_BUILD_DIR "/goldens/archs/%s.gguf", name);
    if (qn_model_load(&m, path, &draft, &err) && qn_model_load(&m, path, &shipped, &err2)) {
        fail_msg("%s; %s", err.text, err2.text);
    }
    return m;
}

static qn_model *load(const char *name)
{
    return load_ctx(name, 0);
}

/* Tensors that no slot took are those listed, `*` standing for the layers first to last. */
static void unused_are(const qn_model *m, int first, int last, const char *const *names)
{
    int n = 0;
    for (; m->unused[n]; n++) {
        bool listed = false;
        for (int k = 0; names && names[k]; k++) {
            for (int il = first; il <= last; il++) {
                char full[100];
                snprintf(full, sizeof full, names[k], il);
                listed |= strcmp(full, m->unused[n]) == 0;
            }
        }
        if (!listed) {
            fail_msg("%s is unused", m->unused[n]);
        }
    }
    int k = 0;
    while (names && names[k]) {
        k++;
    }
    assert_int_equal(n, k * (last - first + 1));
}

static void gemma4_common(const qn_model *m)
{
    assert_true(m->tied && m->embd_scale == 8);
    for (int il = 0; il < m->n_layer; il++) {
        const qn_layer *l = &m->layers[il];
        bool local = strcmp(l->kind, "local") == 0;
        assert_true(local || strcmp(l->kind, "global") == 0);
        assert_true(l->attn.scale == 1);
        assert_int_equal(l->attn.k_dim, local ? 32 : 64);
        assert_int_equal(l->attn.rope.n_rot, local ? 32 : 64);
        assert_int_equal(l->attn.window > 0, local);
        assert_int_equal(l->attn.q_norm.kind, QN_NORM_RMS);
        bool owns = l->attn.kv_source == il;
        assert_int_equal(l->attn.v_norm.kind, owns ? QN_NORM_RMS : QN_NORM_NONE);
        assert_null(l->attn.v_norm.w);
        assert_int_equal(l->attn.k_norm.kind, owns ? QN_NORM_RMS : QN_NORM_NONE);
        assert_true(owns ? l->attn.k.w != NULL : !l->attn.k.w && !l->attn.v.w);
        assert_int_equal(l->ffn.act, QN_ACT_GELU);
        assert_non_null(l->attn.post_norm.w);
        assert_non_null(l->ffn.post_norm.w);
    }
}

static void gemma4_shared(void **state)
{
    (void)state;
    static const char *const spare[] = {"blk.%d.attn_k.weight", "blk.%d.attn_v.weight",
                                        "blk.%d.attn_k_norm.weight", NULL};
    qn_model *m = load("gemma4-e2b");
    gemma4_common(m);
    assert_int_equal(m->ple_width, 16);
    assert_int_equal(m->ple_tok_embd->ne[0], 160);
    assert_int_equal(m->ple_norm.kind, QN_NORM_RMS);
    assert_true(m->logit_softcap == 3);
    static const int source[] = {0, 1, 2, 3, 4, 3, 3, 3, 3, 4};
    for (int il = 0; il < 10; il++) {
        const qn_layer *l = &m->layers[il];
        assert_int_equal(l->attn.kv_source, source[il]);
        assert_int_equal(l->ffn.n_ff, il < 5 ? 48 : 96);
        assert_int_equal(l->ple.gate.w->ne[1], 16);
        assert_string_equal(strstr(l->ple.post_norm.w->name, "post_norm"), "post_norm.weight");
        assert_non_null(l->out_scale);
    }
    unused_are(m, 5, 9, spare);
    const qn_tensor *div = qn_gguf_find_tensor(m->gguf, "rope_freqs.weight");
    for (int i = 0; i < 32; i++) {
        float d;
        memcpy(&d, div->data + 4 * i, 4);
        assert_true(m->layers[4].attn.rope.freq[i] == (float)(pow(50000, -i / 32.0) / d));
        if (i < 16) {
            assert_true(m->layers[0].attn.rope.freq[i] == (float)pow(10000, -i / 16.0));
        }
    }
    qn_model_free(m);
    m = load("gemma4-e4b");
    gemma4_common(m);
    static const int source4[] = {0, 1, 2, 3, 4, 3, 3, 4};
    for (int il = 0; il < 8; il++) {
        assert_int_equal(m->layers[il].attn.kv_source, source4[il]);
    }
    unused_are(m, 0, -1, NULL);
    qn_model_free(m);
}

static void gemma4_plain(void **state)
{
    (void)state;
    qn_model *m = load("gemma4-31b");
    gemma4_common(m);
    assert_int_equal(m->ple_width, 0);
    for (int il = 0; il < 6; il++) {
        const qn_attn *a = &m->layers[il].attn;
        assert_int_equal(a->v_from_k, il == 5);
        assert_int_equal(a->v.w == NULL, il == 5);
        assert_int_equal(a->n_head_kv, il == 5 ? 1 : 2);
        assert_int_equal(a->kv_source, il);
    }
    unused_are(m, 0, -1, NULL);
    qn_model_free(m);
    m = load("gemma4-12b");
    gemma4_common(m);
    assert_null(m->layers[0].out_scale);
    assert_int_equal(m->layers[0].attn.window, 16);
    assert_false(m->layers[2].attn.v_from_k);
    unused_are(m, 0, -1, NULL);
    qn_model_free(m);
}

static void gemma3n(void **state)
{
    (void)state;
    static const char *const spare[] = {"blk.%d.attn_k.weight", "blk.%d.attn_v.weight",
                                        "blk.%d.attn_k_norm.weight", NULL};
    qn_model *m = load("gemma3n");
    assert_int_equal(m->n_stream, 4);
    assert_int_equal(m->ple_width, 256);
    for (int i = 0; i < 3; i++) {
        const qn_tensor *all = qn_gguf_find_tensor(m->gguf, "altup_unembd_proj.weight"),
                        *one = &m->stream_unembd[i];
        assert_int_equal(one->ne[0] * one->ne[1] * one->ne[2], 32 * 32);
        assert_ptr_equal(one->data, all->data + i * 32 * 32 * 2);
        assert_int_equal(m->stream_proj[i].n_bytes, 32 * 32 * 2);
    }
    assert_true(m->logit_softcap == 30 && m->tied);
    for (int il = 0; il < 22; il++) {
        const qn_layer *l = &m->layers[il];
        assert_string_equal(l->kind, il % 2 ? "global" : "local"); /* the file's period is 2 */
        assert_int_equal(l->attn.kv_source, il < 20 ? il : il == 20 ? 18 : 19);
        assert_true(l->ffn.sparsity_std == (il < 10 ? 1.6448533535f : 0));
        assert_int_equal(l->altup.predict.w->ne[1], 16);
        assert_int_equal(l->altup.laurel_l.w->ne[1], 64);
        assert_int_equal(l->altup.router_norm.kind, QN_NORM_RMS);
        assert_non_null(l->altup.correct_scale);
        assert_true(l->attn.scale == 1);
        assert_true(l->attn.rope.freq[1] == (float)pow(il % 2 ? 1e6 : 1e4, -1 / 8.0));
    }
    unused_are(m, 20, 21, spare);
    qn_model_free(m);
}

static void minicpm3(void **state)
{
    (void)state;
    for (int n_ctx = 32; n_ctx <= 33; n_ctx++) {
        qn_model *m = load_ctx("minicpm3", n_ctx);
        const qn_attn *a = &m->layers[1].attn;
        assert_true(m->embd_scale == 12 && m->out_norm_scale == 4);
        assert_true(m->layers[0].residual_scale == (float)(1.4 / sqrt(2)));
        assert_int_equal(a->kind, QN_ATTN_LATENT);
        assert_int_equal(a->kv_rank, 32);
        assert_int_equal(a->k_dim, 48);
        assert_int_equal(a->v_dim, 32);
        assert_int_equal(a->rope.n_rot, 16);
        assert_true(a->rope.mscale == 1.1f);
        assert_true(a->scale == (float)(1 / sqrt(48)));
        assert_int_equal(a->q_b.w->ne[1], 4 * 48);
        assert_int_equal(a->kv_a.w->ne[1], 48);
        assert_int_equal(a->kv_b.w->ne[1], 4 * (32 + 32));
        assert_int_equal(a->q_a_norm.kind, QN_NORM_RMS);
        assert_string_equal(m->unused[0],
                            n_ctx > 32 ? "rope_factors_short.weight" : "rope_factors_long.weight");
        assert_null(m->unused[1]);
        qn_model_free(m);
    }
}

static void deci(void **state)
{
    (void)state;
    qn_model *m = load("deci");
    static const qn_attn_kind kind[] = {QN_ATTN_STANDARD, QN_ATTN_MATRIX, QN_ATTN_STANDARD, QN_ATTN_NONE,
                                        QN_ATTN_STANDARD};
    static const int n_ff[] = {96, 64, 128, 0, 96}, n_kv[] = {2, 0, 1, 0, 4};
    for (int il = 0; il < 5; il++) {
        const qn_layer *l = &m->layers[il];
        assert_int_equal(l->attn.kind, kind[il]);
        assert_int_equal(l->ffn.n_ff, n_ff[il]);
        assert_int_equal(l->attn.n_head_kv, n_kv[il]);
        assert_int_equal(l->skip, il == 3);
        assert_int_equal(l->ffn.kind, il == 3 ? QN_FFN_NONE : QN_FFN_GATED);
    }
    assert_non_null(m->layers[1].attn.norm.w);
    assert_int_equal(m->layers[1].attn.out.w->ne[0], 64);
    assert_null(m->layers[1].attn.q.w);
    unused_are(m, 0, -1, NULL);
    qn_model_free(m);
}

static void nanbeige(void **state)
{
    (void)state;
    qn_model *m = load("nanbeige");
    assert_int_equal(m->n_layer, 4);
    for (int i = 0; i < 4; i++) {
        const qn_layer *l = &m->layers[i];
        assert_int_equal(l->file_index, i % 2);
        assert_int_equal(l->pass, i / 2);
        assert_int_equal(l->attn.kv_source, i);
        assert_int_equal(l->loop_norm_after, i == 1);
        assert_ptr_equal(l->attn.q.w, m->layers[i % 2].attn.q.w);
    }
    qn_model_free(m);
}

static void talkie(void **state)
{
    (void)state;
    qn_model *m = load("talkie");
    const qn_layer *l = &m->layers[0];
    assert_int_equal(m->embd_norm.kind, QN_NORM_RMS);
    assert_null(m->embd_norm.w);
    assert_int_equal(m->out_norm.kind, QN_NORM_RMS);
    assert_null(m->out_norm.w);
    assert_true(m->logit_scale == 0.5f && !m->tied);
    assert_int_equal(l->attn.norm.kind, QN_NORM_RMS);
    assert_null(l->attn.norm.w);
    assert_int_equal(l->attn.qk_order, QN_QK_AFTER_ROPE);
    assert_int_equal(l->attn.qk_weight, QN_QKW_PER_HEAD);
    assert_int_equal(l->attn.q_norm.w->ne[1], 4);
    assert_int_equal(l->attn.k_norm.kind, QN_NORM_RMS);
    assert_null(l->attn.k_norm.w);
    assert_non_null(l->embed_skip);
    unused_are(m, 0, -1, NULL);
    qn_model_free(m);
}

static void falcon(void **state)
{
    (void)state;
    qn_model *m = load("falcon");
    const qn_layer *l = &m->layers[0];
    assert_true(l->parallel && l->ffn.input_shared);
    assert_int_equal(l->ffn.norm.kind, QN_NORM_NONE);
    assert_int_equal(l->attn.norm.kind, QN_NORM_LAYER);
    assert_string_equal(l->attn.norm.w->name, "blk.0.attn_norm.weight");
    assert_non_null(l->attn.norm.b);
    assert_int_equal(l->ffn.kind, QN_FFN_PLAIN);
    assert_null(l->ffn.gate.w);
    assert_false(l->ffn.fused);
    unused_are(m, 0, -1, NULL);
    qn_model_free(m);
    m = load("falcon-40b");
    l = &m->layers[1];
    assert_true(l->parallel && !l->ffn.input_shared);
    assert_string_equal(l->attn.norm.w->name, "blk.1.attn_norm_2.weight");
    assert_string_equal(l->ffn.norm.w->name, "blk.1.attn_norm.weight");
    unused_are(m, 0, -1, NULL);
    qn_model_free(m);
}

static void mpt(void **state)
{
    (void)state;
    qn_model *m = load("mpt");
    const qn_layer *l = &m->layers[0];
    assert_int_equal(l->attn.n_head_kv, 4);
    assert_true(l->attn.alibi_max_bias == 8 && l->attn.clamp == 0);
    assert_int_equal(l->attn.rope.style, QN_ROPE_NONE);
    assert_int_equal(l->attn.rope.n_rot, 0);
    assert_null(l->attn.norm.b);
    assert_null(l->ffn.act_div);
    qn_model_free(m);
    m = load("mpt-clamp-act");
    l = &m->layers[1];
    assert_true(l->attn.clamp == 1.2f && m->tied);
    assert_non_null(l->attn.norm.b);
    assert_non_null(l->ffn.up.b);
    assert_string_equal(l->ffn.act_div->name, "blk.1.ffn.act.scales");
    unused_are(m, 0, -1, NULL);
    qn_model_free(m);
}

static void exaone4(void **state)
{
    (void)state;
    qn_model *m = load("exaone4");
    for (int il = 0; il < 3; il++) {
        const qn_layer *l = &m->layers[il];
        assert_int_equal(l->attn.norm.kind, QN_NORM_NONE);
        assert_int_equal(l->ffn.norm.kind, QN_NORM_NONE);
        assert_false(l->ffn.input_shared);
        assert_int_equal(l->attn.window, 0);
        assert_int_equal(l->attn.rope.style, QN_ROPE_NEOX);
    }
    unused_are(m, 0, -1, NULL);
    qn_model_free(m);
    m = load("exaone4-64l");
    for (int il = 0; il < 64; il++) {
        bool global = il % 4 == 3;
        assert_int_equal(m->layers[il].attn.window, global ? 0 : 8);
        assert_int_equal(m->layers[il].attn.rope.style, global ? QN_ROPE_NONE : QN_ROPE_NEOX);
    }
    unused_are(m, 0, -1, NULL);
    qn_model_free(m);
}

static void bitnet(void **state)
{
    (void)state;
    qn_model *m = load("bitnet");
    const qn_layer *l = &m->layers[1];
    assert_int_equal(l->attn.sub_norm.w->ne[0], 64);
    assert_int_equal(l->ffn.sub_norm.w->ne[0], 96);
    const qn_linear *all[] = {&l->attn.q,   &l->attn.k, &l->attn.v,  &l->attn.out,
                              &l->ffn.gate, &l->ffn.up, &l->ffn.down};
    for (int i = 0; i < 7; i++) {
        assert_non_null(all[i]->scale);
    }
    assert_true(m->tied);
    unused_are(m, 0, -1, NULL);
    qn_model_free(m);
}

/* Every golden model binds, and nothing in it is left over but what its architecture does not read. */
static void every_golden(void **state)
{
    (void)state;
    static const char *const spare[] = {"rope_factors_long.weight", "rope_factors_short.weight",
                                        "attn_k.weight", "attn_v.weight", "attn_k_norm.weight"};
    DIR *dir = opendir(QN_BUILD_DIR "/goldens/archs");
    int n = 0;
    assert_non_null(dir);
    for (struct dirent *d; (d = readdir(dir));) {
        char name[256];
        size_t len = strlen(d->d_name);
        if (len < 6 || strcmp(d->d_name + len - 5, ".gguf") != 0) {
            continue;
        }
        snprintf(name, sizeof name, "%.*s", (int)(len - 5), d->d_name);
        qn_model *m = load(name);
        for (int i = 0; m->unused[i]; i++) {
            bool known = false;
            for (size_t k = 0; k < sizeof spare / sizeof spare[0]; k++) {
                known |= strstr(m->unused[i], spare[k]) != NULL;
            }
            if (!known) {
                fail_msg("%s: %s is unused", name, m->unused[i]);
            }
        }
        qn_model_free(m);
        n++;
    }
    closedir(dir);
    assert_int_equal(n, 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemma4_shared), cmocka_unit_test(gemma4_plain), cmocka_unit_test(gemma3n),
        cmocka_unit_test(minicpm3),      cmocka_unit_test(deci),         cmocka_unit_test(nanbeige),
        cmocka_unit_test(talkie),        cmocka_unit_test(falcon),       cmocka_unit_test(mpt),
        cmocka_unit_test(exaone4),       cmocka_unit_test(bitnet),       cmocka_unit_test(every_golden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
