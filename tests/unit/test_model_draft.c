// rooms: room_model
/* Drafts of all golden models against their shipped configs: every tensor in the same slot, and whatever else
 * differs is listed as undecided. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <dirent.h>

#include "config_test.h"
#include "model/model_check.h"
#include "model/model_draft.h"

#define SLOT(member)                                                                                         \
    {                                                                                                        \
#member, offsetof(qn_layer, member)                                                                  \
    }
static const struct {
    const char *name;
    size_t at;
} slots[] = {
    SLOT(attn.norm.w),
    SLOT(attn.norm.b),
    SLOT(attn.sub_norm.w),
    SLOT(attn.post_norm.w),
    SLOT(attn.q.w),
    SLOT(attn.q.b),
    SLOT(attn.q.scale),
    SLOT(attn.k.w),
    SLOT(attn.k.b),
    SLOT(attn.k.scale),
    SLOT(attn.v.w),
    SLOT(attn.v.b),
    SLOT(attn.v.scale),
    SLOT(attn.qkv.w),
    SLOT(attn.qkv.b),
    SLOT(attn.qkv.scale),
    SLOT(attn.out.w),
    SLOT(attn.out.b),
    SLOT(attn.out.scale),
    SLOT(attn.q_norm.w),
    SLOT(attn.k_norm.w),
    SLOT(attn.q_a.w),
    SLOT(attn.q_b.w),
    SLOT(attn.kv_a.w),
    SLOT(attn.kv_b.w),
    SLOT(attn.q_a_norm.w),
    SLOT(attn.kv_a_norm.w),
    SLOT(ffn.norm.w),
    SLOT(ffn.norm.b),
    SLOT(ffn.sub_norm.w),
    SLOT(ffn.post_norm.w),
    SLOT(ffn.gate.w),
    SLOT(ffn.gate.b),
    SLOT(ffn.gate.scale),
    SLOT(ffn.up.w),
    SLOT(ffn.up.b),
    SLOT(ffn.up.scale),
    SLOT(ffn.down.w),
    SLOT(ffn.down.b),
    SLOT(ffn.down.scale),
    SLOT(ffn.act_div),
    SLOT(out_scale),
    SLOT(embed_skip),
    SLOT(ple.gate.w),
    SLOT(ple.proj.w),
    SLOT(ple.post_norm.w),
    SLOT(altup.router.w),
    SLOT(altup.predict.w),
    SLOT(altup.correct.w),
    SLOT(altup.router_norm.w),
    SLOT(altup.correct_scale),
    SLOT(altup.laurel_l.w),
    SLOT(altup.laurel_r.w),
    SLOT(altup.laurel_norm.w),
};

static const char *name_of(const qn_tensor *t)
{
    return t ? t->name : "nothing";
}

/* Is a choice listed: "#   path: ..."? */
static bool is_open(const char *text, const char *path)
{
    char line[100];
    snprintf(line, sizeof line, "\n#   %s: ", path);
    return strstr(text, line) != NULL;
}

typedef struct pair {
    const char *golden, *text;
    const qn_model *m, *d; /* shipped, draft */
    int n_open;            /* differences that are listed */
} pair;

/* The two models differ in a choice: one of the leaves (";" between) must be listed. */
static void differs(pair *p, int il, const char *paths)
{
    char copy[200], *rest = copy, *path;
    snprintf(copy, sizeof copy, "%s", paths);
    while ((path = strsep(&rest, ";"))) {
        if (is_open(p->text, path)) {
            p->n_open++;
            return;
        }
    }
    fail_msg("%s: layer %d: %s differs and is not listed as undecided in\n%s", p->golden, il, paths, p->text);
}

static void same_slot(pair *p, int il, const char *slot, const qn_tensor *due, const qn_tensor *got)
{
    if (due == got) {
        return;
    }
    bool shares = strncmp(slot, "attn.", 5) == 0 && p->m->layers[il].attn.kv_source != il && !due;
    if (shares && is_open(p->text, "attention.kv_shared")) {
        p->n_open++; /* the file has keys of a layer that is known to read another's */
        return;
    }
    fail_msg("%s: layer %d: %s is %s instead of %s", p->golden, il, slot, name_of(got), name_of(due));
}

static bool same_freq(const qn_rope *a, const qn_rope *b)
{
    return a->n_rot == b->n_rot && memcmp(a->freq, b->freq, sizeof(float) * (size_t)(a->n_rot / 2)) == 0;
}

static void compare_attention(pair *p, int il, const qn_attn *a, const qn_attn *b)
{
    assert_int_equal(a->kind, b->kind);
    if (a->kind == QN_ATTN_NONE || a->kind == QN_ATTN_MATRIX) {
        return;
    }
    assert_int_equal(a->n_head, b->n_head);
    assert_int_equal(a->k_dim, b->k_dim);
    assert_int_equal(a->v_dim, b->v_dim);
    assert_int_equal(a->v_from_k, b->v_from_k);
    assert_int_equal(a->qk_width, b->qk_width);
    assert_int_equal(a->qk_weight, b->qk_weight);
    const struct {
        bool same;
        const char *paths;
    } rows[] = {
        {a->qk_norm == b->qk_norm, "attention.qk_norm.kind"},
        {a->qk_order == b->qk_order, "attention.qk_norm.order"},
        {a->v_norm.kind == b->v_norm.kind, "attention.v_norm"},
        {a->clamp == b->clamp, "attention.clamp"},
        {a->scale == b->scale, "attention.scale"},
        {a->softcap == b->softcap, "attention.softcap"},
        {a->alibi_max_bias == b->alibi_max_bias, "attention.alibi"},
        {a->temp_scale == b->temp_scale && a->temp_ctx == b->temp_ctx, "attention.temperature"},
        {a->window == b->window, "attention.window;layers.pattern"},
        {a->kv_source == b->kv_source, "attention.kv_shared"},
        {a->norm.kind == b->norm.kind, "norm.kind;attention.norm"},
        {a->rope.style == b->rope.style, "rope.style"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!rows[i].same) {
            differs(p, il, rows[i].paths);
        }
    }
    if (a->rope.style != QN_ROPE_NONE && b->rope.style != QN_ROPE_NONE) {
        if (!same_freq(&a->rope, &b->rope)) {
            differs(p, il, "rope.base;rope.scaling;rope.factors;rope.dim");
        }
        if (a->rope.mscale != b->rope.mscale) {
            differs(p, il, "rope.attn_factor;rope.scaling");
        }
    }
}

static void compare_rest(pair *p, int il, const qn_layer *a, const qn_layer *b)
{
    assert_int_equal(a->ffn.kind, b->ffn.kind);
    assert_int_equal(a->ffn.n_ff, b->ffn.n_ff);
    assert_int_equal(a->ffn.fused, b->ffn.fused);
    assert_int_equal(a->skip, b->skip);
    const struct {
        bool same;
        const char *paths;
    } rows[] = {
        {a->ffn.act == b->ffn.act, "ffn.activation"},
        {a->ffn.input_shared == b->ffn.input_shared, "ffn.norm"},
        {a->ffn.sparsity_std == b->ffn.sparsity_std, "ffn.sparsity_std"},
        {a->ffn.xielu_alpha_n == b->ffn.xielu_alpha_n && a->ffn.xielu_eps == b->ffn.xielu_eps, "ffn.xielu"},
        {a->parallel == b->parallel, "residual.parallel"},
        {a->residual_scale == b->residual_scale, "residual.scale"},
        {a->loop_norm_after == b->loop_norm_after, "layers.loop_norm"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!rows[i].same) {
            differs(p, il, rows[i].paths);
        }
    }
}

static void compare_whole(pair *p)
{
    const qn_model *a = p->m, *b = p->d;
    const struct {
        const char *name;
        const qn_tensor *due, *got;
    } tensors[] = {
        {"embedding", a->tok_embd, b->tok_embd},
        {"positions", a->pos_embd, b->pos_embd},
        {"embedding norm", a->embd_norm.w, b->embd_norm.w},
        {"output", a->out.w, b->out.w},
        {"output bias", a->out.b, b->out.b},
        {"output norm", a->out_norm.w, b->out_norm.w},
        {"output norm bias", a->out_norm.b, b->out_norm.b},
        {"per-layer table", a->ple_tok_embd, b->ple_tok_embd},
        {"per-layer projection", a->ple_proj.w, b->ple_proj.w},
        {"per-layer norm", a->ple_norm.w, b->ple_norm.w},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        if (tensors[i].due != tensors[i].got) {
            fail_msg("%s: %s is %s instead of %s", p->golden, tensors[i].name, name_of(tensors[i].got),
                     name_of(tensors[i].due));
        }
    }
    assert_int_equal(a->n_layer, b->n_layer);
    assert_int_equal(a->n_stream, b->n_stream);
    assert_int_equal(a->ple_width, b->ple_width);
    if (a->embd_scale != b->embd_scale) {
        differs(p, -1, "embedding.scale");
    }
    if (a->embd_norm.kind != b->embd_norm.kind) {
        differs(p, -1, "embedding.norm");
    }
    if (a->out_norm_scale != b->out_norm_scale) {
        differs(p, -1, "output.norm_scale");
    }
    if (a->logit_scale != b->logit_scale) {
        differs(p, -1, "output.scale");
    }
    if (a->logit_softcap != b->logit_softcap) {
        differs(p, -1, "output.softcap");
    }
}

static int compare(const char *golden)
{
    char path[600], *text;
    qn_gguf *g;
    qn_config *c;
    qn_model *m, *d;
    qn_err err = {""};
    snprintf(path, sizeof path, QN_BUILD_DIR "/goldens/archs/%s.gguf", golden);
    if (qn_gguf_open(&g, path, &err) || qn_model_draft(&text, g, &err) ||
        qn_config_parse(&c, text, strlen(text), "draft", &err) || qn_model_from_gguf(&m, g, NULL, &err) ||
        qn_model_bind_config(&d, g, c, NULL, &err)) {
        fail_msg("%s: %s", golden, err.text);
    }
    pair p = {golden, text, m, d, 0};
    assert_null(strstr(text, "# fault:"));
    compare_whole(&p);
    for (int il = 0; il < m->n_layer; il++) {
        for (size_t k = 0; k < sizeof slots / sizeof slots[0]; k++) {
            const qn_tensor *due, *got;
            memcpy(&due, (const char *)&m->layers[il] + slots[k].at, sizeof due);
            memcpy(&got, (const char *)&d->layers[il] + slots[k].at, sizeof got);
            same_slot(&p, il, slots[k].name, due, got);
        }
        compare_attention(&p, il, &m->layers[il].attn, &d->layers[il].attn);
        compare_rest(&p, il, &m->layers[il], &d->layers[il]);
    }
    d->gguf = NULL;
    qn_model_free(d);
    qn_model_free(m); /* and the file */
    qn_config_free(c);
    free(text);
    return p.n_open;
}

static void every_golden(void **state)
{
    (void)state;
    DIR *dir = opendir(QN_BUILD_DIR "/goldens/archs");
    int n = 0, equal = 0;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char name[256];
        size_t len = strlen(e->d_name);
        if (len < 6 || strcmp(e->d_name + len - 5, ".gguf") != 0) {
            continue;
        }
        snprintf(name, sizeof name, "%.*s", (int)(len - 5), e->d_name);
        equal += compare(name) == 0;
        n++;
    }
    closedir(dir);
    print_message("%d of %d drafts are the shipped model in every choice\n", equal, n);
    assert_int_equal(n, 80);
    assert_true(equal > 0);
}

static void refusals(void **state)
{
    (void)state;
    char *text;
    qn_err err = {""};
    asked a = {.w = gw_new()};
    open_file(&a);
    assert_int_equal(qn_model_draft(&text, a.g, &err), -1);
    assert_non_null(strstr(err.text, "general.architecture"));
    close_file(&a);
    a = (asked){.w = gw_new()};
    gw_str(&a.w, "general.architecture", "a\nb: c");
    gw_u32(&a.w, "a\nb: c.block_count", 1);
    open_file(&a);
    assert_int_equal(qn_model_draft(&text, a.g, &err), -1);
    assert_non_null(strstr(err.text, "letters"));
    close_file(&a);
    a = (asked){.w = gw_new()};
    gw_str(&a.w, "general.architecture", "t");
    open_file(&a);
    assert_int_equal(qn_model_draft(&text, a.g, &err), -1);
    assert_non_null(strstr(err.text, "t.block_count is missing"));
    close_file(&a);
    a = (asked){.w = usual_keys()};
    gw_u32(&a.w, "t.expert_count", 8);
    open_file(&a);
    assert_int_equal(qn_model_draft(&text, a.g, &err), -1);
    assert_non_null(strstr(err.text, "mixture of experts"));
    close_file(&a);
}

/* Without tensors there is still a text, which says what is missing. */
static void incomplete(void **state)
{
    (void)state;
    char *text;
    qn_err err = {""};
    asked a = {.w = usual_keys()};
    float one[64];
    for (int i = 0; i < 64; i++) {
        one[i] = 1;
    }
    gw_tensor(&a.w, "blk.0.attn_norm.weight", QN_F32, 1, (uint64_t[]){64}, one);
    gw_u32(&a.w, "t.x\xff\nattention: {scale: 3}", 1); /* what is quoted stays in its comment */
    open_file(&a);
    if (qn_model_draft(&text, a.g, &err)) {
        fail_msg("%s", err.text);
    }
    assert_non_null(strstr(text, "# fault:"));
    assert_non_null(strstr(text, "key t.x??attention: {scale: 3} is in the file"));
    free(text);
    close_file(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_golden), cmocka_unit_test(refusals),
                                       cmocka_unit_test(incomplete)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
