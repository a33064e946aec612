// rooms: room_model
/* Files that are no model quern can run: each refusal names what is at fault. */
#include "config_test.h"

#include "model/model_internal.h"

/* One change to an otherwise good file. */
typedef struct change {
    const char *skip_key, *skip_tensor; /* left out */
    const char *tensor;                 /* given another shape or type */
    uint32_t type;
    uint64_t ne[2];
    void (*add)(gw *w); /* put in */
} change;

static bool is(const char *a, const char *b)
{
    return a && strcmp(a, b) == 0;
}

static void put_u32(gw *w, const change *c, const char *key, uint32_t v)
{
    if (!is(c->skip_key, key)) {
        gw_u32(w, key, v);
    }
}

static void put_tensor(gw *w, const change *c, const char *name, uint64_t ne0, uint64_t ne1)
{
    if (is(c->skip_tensor, name)) {
        return;
    }
    uint64_t ne[2] = {ne0, ne1};
    uint32_t type = ne1 == 1 ? QN_F32 : QN_F16;
    if (is(c->tensor, name)) {
        ne[0] = c->ne[0];
        ne[1] = c->ne[1];
        type = c->type;
    }
    gw_tensor(w, name, type, ne[1] == 1 ? 1 : 2, ne, NULL);
}

/* Two layers, n_embd 64, 4 heads of 16, 2 of keys, n_ff 96, 10 tokens. */
static gw file_with(const change *c)
{
    gw w = gw_new();
    gw_str(&w, "general.architecture", "t");
    put_u32(&w, c, "t.block_count", 2);
    put_u32(&w, c, "t.embedding_length", 64);
    put_u32(&w, c, "t.context_length", 512);
    put_u32(&w, c, "t.feed_forward_length", 96);
    put_u32(&w, c, "t.attention.head_count", 4);
    put_u32(&w, c, "t.attention.head_count_kv", 2);
    if (c->add) {
        c->add(&w);
    }
    put_tensor(&w, c, "token_embd.weight", 64, 10);
    put_tensor(&w, c, "output_norm.weight", 64, 1);
    put_tensor(&w, c, "output.weight", 64, 10);
    static const struct {
        const char *name;
        uint64_t ne0, ne1;
    } layer[] = {{"attn_norm", 64, 1}, {"attn_q", 64, 64},      {"attn_k", 64, 32},
                 {"attn_v", 64, 32},   {"attn_output", 64, 64}, {"ffn_norm", 64, 1},
                 {"ffn_gate", 64, 96}, {"ffn_up", 64, 96},      {"ffn_down", 96, 64}};
    for (int il = 0; il < 2; il++) {
        for (size_t i = 0; i < sizeof layer / sizeof layer[0]; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s.weight", il, layer[i].name);
            put_tensor(&w, c, name, layer[i].ne0, layer[i].ne1);
        }
    }
    return w;
}

/* Loads the file under the config; "" where it loads, else the message. */
static const char *result(const change *c, const char *yaml, const qn_model_opts *opts)
{
    static qn_err err;
    asked a = {.w = file_with(c)};
    qn_config *config = must_parse(yaml);
    qn_model *m;
    err.text[0] = '\0';
    open_file(&a);
    if (qn_model_with_config(&m, a.g, config, opts, &err)) {
        assert_null(m);
        assert_true(err.text[0] != '\0');
        close_file(&a);
    } else {
        qn_model_free(m); /* closes the file */
        gw_free(&a.w);
        free(a.bytes);
    }
    qn_config_free(config);
    return err.text;
}

static void expect(const change *c, const char *yaml, const char *what)
{
    const char *text = result(c, yaml, NULL);
    if (*what ? !strstr(text, what) : *text) {
        fail_msg("\"%s\" instead of \"%s\"", text, what);
    }
}

static const change unchanged;

static void good(void **state)
{
    (void)state;
    expect(&unchanged, HEAD, "");
    expect(&(change){.skip_tensor = "output.weight"}, HEAD, "");
    expect(&(change){.skip_tensor = "token_embd.weight"}, HEAD, ""); /* the output serves as embedding */
    expect(&(change){.skip_key = "t.context_length"}, HEAD, "");
    expect(&(change){.tensor = "blk.1.ffn_gate.weight", .type = QN_Q8_0, .ne = {64, 96}}, HEAD, "");
}

/* Which of the two vocabulary tensors serves as which. */
static void tied(void **state)
{
    (void)state;
    static const struct {
        const char *skip, *yaml, *embd, *out;
        bool tied;
    } cases[] = {
        {NULL, HEAD, "token_embd.weight", "output.weight", false},
        {"output.weight", HEAD, "token_embd.weight", "token_embd.weight", true},
        {"token_embd.weight", HEAD, "output.weight", "output.weight", true},
        {NULL, HEAD "output: {tied: always}\n", "token_embd.weight", "token_embd.weight", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        asked a = {.w = file_with(&(change){.skip_tensor = cases[i].skip})};
        qn_config *config = must_parse(cases[i].yaml);
        qn_model *m;
        qn_err err;
        open_file(&a);
        assert_int_equal(qn_model_with_config(&m, a.g, config, NULL, &err), 0);
        assert_string_equal(m->tok_embd->name, cases[i].embd);
        assert_string_equal(m->out.w->name, cases[i].out);
        assert_int_equal(m->tied, cases[i].tied);
        assert_int_equal(m->unused[0] != NULL, !cases[i].skip && cases[i].tied);
        qn_model_free(m);
        qn_config_free(config);
        gw_free(&a.w);
        free(a.bytes);
    }
}

static void missing(void **state)
{
    (void)state;
    expect(&(change){.skip_tensor = "blk.1.attn_k.weight"}, HEAD,
           "t.gguf: tensor blk.1.attn_k.weight [64, 32] is missing (asked for by attention.k, the default in "
           "t.yaml)");
    expect(&(change){.skip_tensor = "blk.0.attn_norm.weight"}, HEAD,
           "blk.0.attn_norm.weight [64] is missing");
    expect(&unchanged, HEAD "attention: {q: query}\n",
           "blk.0.query.weight [64, 64] is missing (asked for by attention.q, t.yaml:4:16)");
    expect(&unchanged, HEAD "attention: {bias: yes}\n", "tensor blk.0.attn_q.bias [64] is missing");
    expect(&unchanged, HEAD "attention: {bias: optional}\n", "");
    expect(&unchanged, HEAD "attention: {fused: yes}\n", "blk.0.attn_qkv.weight [64, 128] is missing");
    expect(&unchanged, HEAD "attention: {post_norm: pn}\n", "blk.0.pn.weight [64] is missing");
    expect(&unchanged, HEAD "weights: {scale: yes}\n", "tensor output.scale [1] is missing");
    expect(&unchanged, HEAD "embedding: {positions: pos}\n", "tensor pos.weight [64, 512] is missing");
    expect(&unchanged, HEAD "embedding: {per_layer: {width: 4, tensor: a, proj: b}}\n",
           "a.weight [8, 10] is missing");
    expect(&unchanged, HEAD "embedding: {per_layer: {width: 4}}\n", "needs tensor and proj");
    expect(&unchanged, HEAD "altup: {streams: 2}\n", "needs altup.proj");
    expect(&(change){.skip_tensor = "output.weight"}, HEAD "output: {tied: never}\n",
           "output.weight [64, 10] is missing (asked for by output.tensor");
    expect(&(change){.skip_tensor = "token_embd.weight"}, HEAD "output: {tied: never}\n",
           "token_embd.weight");
    expect(&(change){.skip_tensor = "output_norm.weight"}, HEAD, "output_norm.weight [64] is missing");
    expect(&unchanged,
           "architecture: t\nnorm: {eps: 1}\nrope: {style: neox, factors: freqs, factors_required: true}\n",
           "tensor rope_freqs.weight [8] is missing");
    expect(
        &unchanged,
        "architecture: t\nnorm: {eps: 1}\nrope: {style: neox, factors: longrope, factors_required: true}\n",
        "tensor rope_factors_short.weight [8] is missing");
    expect(&unchanged, HEAD "attention: {out: none}\n", "one of attention.q, k, v and out is none");
    expect(&unchanged, HEAD "ffn: {down: none}\n", "one of ffn.gate, up and down is none");
    expect(&(change){.skip_key = "t.block_count"}, HEAD, "key t.block_count is missing");
    expect(&(change){.skip_key = "t.attention.head_count"}, HEAD, "key t.attention.head_count is missing");
}

static void shapes(void **state)
{
    (void)state;
    expect(&(change){.tensor = "blk.1.attn_k.weight", .type = QN_F16, .ne = {64, 48}}, HEAD,
           "t.gguf: tensor blk.1.attn_k.weight is [64, 48], expected [64, 32] (attention.k, the default in "
           "t.yaml)");
    expect(&(change){.tensor = "blk.0.ffn_down.weight", .type = QN_F16, .ne = {64, 96}}, HEAD,
           "is [64, 96], expected [96, 64]");
    expect(&(change){.tensor = "output.weight", .type = QN_F16, .ne = {64, 11}}, HEAD,
           "is [64, 11], expected [64, 10]");
    expect(&(change){.tensor = "token_embd.weight", .type = QN_F16, .ne = {32, 10}}, HEAD,
           "token_embd.weight is [32, 10], expected [64, 10]");
    expect(&(change){.tensor = "blk.0.attn_norm.weight", .type = QN_F32, .ne = {65, 1}}, HEAD,
           "is [65], expected [64]");
    /* B08: the file's own head width wins, and what does not fit it is refused with both numbers */
    expect(&unchanged, HEAD "attention: {head_dim: 32}\n", "attn_q.weight is [64, 64], expected [64, 128]");
}

static void types(void **state)
{
    (void)state;
    expect(&(change){.tensor = "blk.0.attn_norm.weight", .type = QN_F16, .ne = {64, 1}}, HEAD,
           "tensor blk.0.attn_norm.weight is of type f16; norms, biases and scales must be f32");
    expect(&(change){.tensor = "blk.1.ffn_up.weight", .type = 39, .ne = {64, 96}}, HEAD,
           "tensor blk.1.ffn_up.weight is of type mxfp4, which is not supported (supported: f32, f16, q4_0");
}

static void add_experts(gw *w)
{
    gw_u32(w, "t.expert_count", 8);
}
static void add_no_experts(gw *w)
{
    gw_u32(w, "t.expert_count", 0);
}
static void add_exps(gw *w)
{
    gw_tensor(w, "blk.0.ffn_gate_exps.weight", QN_F16, 3, (uint64_t[]){64, 96, 2}, NULL);
}
static void add_ssm(gw *w)
{
    gw_tensor(w, "blk.0.ssm_in.weight", QN_F16, 1, (uint64_t[]){64}, NULL);
}
static void add_noncausal(gw *w)
{
    gw_bool(w, "t.attention.causal", false);
}
static void add_mmproj(gw *w)
{
    gw_str(w, "general.type", "mmproj");
}
static void add_adapter(gw *w)
{
    gw_str(w, "general.type", "adapter");
}
static void add_vision(gw *w)
{
    gw_tensor(w, "v.blk.0.attn_q.weight", QN_F16, 1, (uint64_t[]){64}, NULL);
}
static void add_vocab_size(gw *w)
{
    gw_u32(w, "t.vocab_size", 11);
}
static void add_tokens(gw *w)
{
    gw_u32(w, "t.vocab_size", 10);
    gw_strs(w, "tokenizer.ggml.tokens", 2, (const char *[]){"a", "b"});
}
static void add_zero_factor(gw *w)
{
    gw_tensor(w, "rope_freqs.weight", QN_F32, 1, (uint64_t[]){8}, NULL);
}
static void add_negative_factor(gw *w)
{
    gw_tensor(w, "rope_freqs.weight", QN_F32, 1, (uint64_t[]){8}, (float[]){1, 1, 1, -2, 1, 1, 1, 1});
}
static void add_tiny_factor(gw *w)
{
    gw_tensor(w, "rope_freqs.weight", QN_F32, 1, (uint64_t[]){8}, (float[]){1e-10f, 1, 1, 1, 1, 1, 1, 1});
}
static void add_short_factors(gw *w)
{
    gw_tensor(w, "rope_freqs.weight", QN_F32, 1, (uint64_t[]){7}, NULL);
}

static void families(void **state)
{
    (void)state;
    expect(&(change){.add = add_experts}, HEAD,
           "with 8 experts is a mixture of experts (MoE), which is not supported");
    expect(&(change){.add = add_no_experts}, HEAD, "");
    expect(&(change){.add = add_exps}, HEAD, "mixture of experts (MoE) (it has blk.0.ffn_gate_exps.weight)");
    expect(&(change){.add = add_ssm}, HEAD, "state-space model (it has blk.0.ssm_in.weight)");
    expect(&(change){.add = add_noncausal}, HEAD, "does not generate text (t.attention.causal is false)");
    expect(&(change){.add = add_mmproj}, HEAD, "the vision or audio part of a model: mmproj");
    expect(&(change){.add = add_adapter}, HEAD, "holds adapter, not a language model");
    expect(&(change){.add = add_vision}, HEAD, ""); /* beside a whole language model */
    expect(&(change){.add = add_vision, .skip_tensor = "blk.0.ffn_down.weight"}, HEAD,
           "vision part of a model");
}

static void vocabulary(void **state)
{
    (void)state;
    expect(&(change){.add = add_vocab_size}, HEAD,
           "tensor token_embd.weight has 10 rows, key t.vocab_size says 11");
    expect(&(change){.add = add_tokens}, HEAD,
           "tensor token_embd.weight has 10 rows, tokenizer.ggml.tokens has 2 entries");
}

static void numbers(void **state)
{
    (void)state;
    expect(&unchanged, HEAD "attention: {n_head: 0, head_dim: 16, value_dim: 16}\n",
           "layer 0 has 0 query heads, at least 1 is needed (attention.n_head, t.yaml:4:21)");
    expect(&unchanged, HEAD "attention: {n_head_kv: 3}\n", "4 query heads and 3 key heads");
    expect(&unchanged, HEAD "attention: {n_head_kv: 0}\n", "4 query heads and 0 key heads");
    expect(&unchanged, HEAD "ffn: {n_ff: 0}\n",
           "layer 0: the feed-forward branch is 0 wide (ffn.n_ff, t.yaml:4:13)");
    const char *dims[] = {"0", "1", "7", "18"};
    for (int i = 0; i < 4; i++) {
        char text[200];
        snprintf(text, sizeof text, "architecture: t\nnorm: {eps: 1}\nrope: {style: neox, dim: %s}\n",
                 dims[i]);
        expect(&unchanged, text, "must be even, at least 2 and at most the head (rope.dim, t.yaml:3:26)");
    }
    expect(&unchanged, HEAD "layers: {count: 40}\n", "40 layers, but only 21 tensors");
    expect(&unchanged, HEAD "layers: {count: 3}\n", "blk.2.attn_norm.weight [64] is missing");
    expect(&unchanged, HEAD "attention: {kv_shared: 2}\n", "2 of 2 layers share a cache");
    expect(&unchanged, HEAD "attention: {kv_shared: 1}\n", "");
    expect(&unchanged, HEAD "attention: {kv_shared: 1}\nlayers: {pattern: {kinds: [a, b], period: 2}}\n",
           "no earlier layer of its kind (\"b\") has one");
    expect(&unchanged, HEAD "attention: {v_from_k: yes, value_dim: 8}\n", "a value is 8 wide and a key 16");
    expect(&unchanged, HEAD "attention: {temperature: 1}\n", "needs attention.temperature_ctx");
    expect(&unchanged, HEAD "attention: {kind: latent}\n", "needs latent.kv_rank");
    expect(&unchanged, "architecture: t\nnorm: {eps: 1}\nrope: {style: neox, scaling: yarn, orig_ctx: 0}\n",
           "YaRN needs an original context (0)");
    const char *freqs = "architecture: t\nnorm: {eps: 1}\nrope: {style: neox, factors: freqs}\n";
    expect(&(change){.add = add_zero_factor}, freqs, "divisor 0 of tensor rope_freqs.weight");
    expect(&(change){.add = add_negative_factor}, freqs, "divisor -2 of tensor rope_freqs.weight");
    expect(&(change){.add = add_tiny_factor}, freqs, "RoPE frequency 0 is 1e+10 (divisor 1e-10 of tensor");
    expect(&(change){.add = add_short_factors}, freqs,
           "rope_freqs.weight is [7], expected [8] (rope.factors, t.yaml:3:30)");
    qn_model_opts opts = {.n_ctx = 100};
    const char *text = result(&unchanged, HEAD "embedding: {positions: token_embd}\n", &opts);
    assert_non_null(strstr(text, "token_embd.weight has 10 positions, the context is 100"));
}

static void architectures(void **state)
{
    (void)state;
    asked a = {.w = file_with(&unchanged)};
    qn_model *m;
    qn_err err;
    open_file(&a);
    assert_int_equal(qn_model_from_gguf(&m, a.g, NULL, &err), -1);
    assert_non_null(strstr(err.text, "t.gguf: architecture \"t\" is not supported; quern knows apertus"));
    assert_non_null(strstr(err.text, "llama"));
    qn_model_opts opts = {.config_dir = "/nonexistent"};
    assert_int_equal(qn_model_from_gguf(&m, a.g, &opts, &err), -1);
    assert_non_null(strstr(err.text, "/nonexistent: No such file"));
    close_file(&a);
    a = (asked){.w = gw_new()};
    open_file(&a);
    assert_int_equal(qn_model_from_gguf(&m, a.g, NULL, &err), -1);
    assert_non_null(strstr(err.text, "general.architecture is missing"));
    close_file(&a);
    a = (asked){.w = gw_new()};
    gw_u32(&a.w, "general.architecture", 3);
    open_file(&a);
    assert_int_equal(qn_model_from_gguf(&m, a.g, NULL, &err), -1);
    assert_non_null(strstr(err.text, "not a name"));
    close_file(&a);
}

/* A folder of configs: one is picked by architecture; one that is broken is named where none serves. */
static void folders(void **state)
{
    (void)state;
    char dir[] = "/tmp/quern-test-XXXXXX", path[3][64];
    assert_non_null(mkdtemp(dir));
    const char *text[] = {HEAD, "architecture: [a, b\n",
                          "architecture: [c, d]\nnorm: {eps: 1}\nrope: {style: none}\n"};
    for (int i = 0; i < 3; i++) {
        snprintf(path[i], sizeof path[i], "%s/%d.yaml", dir, i);
        FILE *f = fopen(path[i], "w");
        assert_non_null(f);
        fputs(text[i], f);
        fclose(f);
    }
    qn_config *c;
    qn_err err;
    assert_int_equal(qn_config_find(&c, "d", dir, &err), 0);
    assert_string_equal(qn_config_name(c), path[2]);
    qn_config_free(c);
    assert_int_equal(qn_config_find(&c, "e", dir, &err), -1);
    assert_null(c);
    assert_non_null(strstr(err.text, "architecture \"e\" is not supported"));
    assert_non_null(strstr(err.text, "knows t, c, d"));
    assert_non_null(strstr(err.text, "1.yaml:2:1: "));
    FILE *f = fopen(path[1], "w");
    fputs("architecture: d\n", f);
    fclose(f);
    assert_int_equal(qn_config_find(&c, "d", dir, &err), -1);
    assert_non_null(strstr(err.text, "both serve architecture \"d\""));
    for (int i = 0; i < 3; i++) {
        remove(path[i]);
    }
    remove(dir);
}

/* Vocabulary-only files load where only the vocabulary is asked for, whatever their architecture. */
static void vocabulary_only(void **state)
{
    (void)state;
    asked a = {.w = gw_new()};
    gw_str(&a.w, "general.architecture", "unheard-of");
    open_file(&a);
    qn_model *m;
    qn_err err;
    assert_int_equal(qn_model_from_gguf(&m, a.g, NULL, &err), -1);
    assert_non_null(strstr(err.text, "has no tensors (a vocabulary only)"));
    qn_model_opts opts = {.allow_no_vocab_tensor = true};
    assert_int_equal(qn_model_from_gguf(&m, a.g, &opts, &err), 0);
    assert_int_equal(m->n_layer, 0);
    assert_string_equal(m->arch, "unheard-of");
    assert_null(m->unused[0]);
    qn_model_free(m);
    gw_free(&a.w);
    free(a.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good),
        cmocka_unit_test(tied),
        cmocka_unit_test(missing),
        cmocka_unit_test(shapes),
        cmocka_unit_test(types),
        cmocka_unit_test(families),
        cmocka_unit_test(vocabulary),
        cmocka_unit_test(numbers),
        cmocka_unit_test(architectures),
        cmocka_unit_test(folders),
        cmocka_unit_test(vocabulary_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
