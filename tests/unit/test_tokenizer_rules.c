// rooms: room_text
/* What a file's metadata decides: kinds that are refused, pre-tokenizer names (B09), special tokens (B10),
 * the SentencePiece space (B11), end-of-generation tokens (B32), tables that do not fit together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/tok_file.h"

static void kinds(void **state)
{
    (void)state;
    static const char *const bad[] = {"bert", "t5", "rwkv", "plamo2"};
    for (size_t i = 0; i < 4; i++) {
        file f = begin(bad[i]);
        char want[64];
        snprintf(want, sizeof want, "t.gguf: tokenizers of kind \"%s\"", bad[i]);
        refused(&f, want);
    }
    file f = begin("no_vocab");
    refused(&f, "t.gguf: no tokenizer in this file (tokenizer.ggml.model = \"no_vocab\")");
    f = begin("sorcery");
    refused(&f, "tokenizer.ggml.model = \"sorcery\" is not a known kind of tokenizer (supported: gpt2, "
                "gemma4, llama)");
    f = (file){.w = gw_new()};
    gw_str(&f.w, "general.architecture", "llama");
    refused(&f, "no tokenizer in this file (tokenizer.ggml.model is missing)");
    f = (file){.w = gw_new()};
    gw_u32(&f.w, "tokenizer.ggml.model", 3);
    refused(&f, "tokenizer.ggml.model is u32, not a string");
}

static void plain_bpe(void **state)
{
    (void)state;
    file f = bpe("gpt-2");
    qn_tokenizer *t = made(&f, NULL);
    assert_int_equal(qn_tokenizer_n_vocab(t), 261);
    assert_string_equal(qn_tokenizer_pre(t), "gpt-2");
    assert_string_equal(qn_tokenizer_model(t), "gpt2");
    gives(t, "hello w", true, true, "259 260");
    gives(t, "hellw", true, true, "258 119");
    gives(t, "", true, true, "");
    gives(t, "\xff", true, true, "239 191 189"); /* malformed: U+FFFD */
    detok(t, (int32_t[]){259, 260, 33}, 3, 0, "hello w!");
    size_t len;
    assert_string_equal(qn_token_text(t, 260, &len), "\xc4\xa0w");
    assert_int_equal(qn_token_find(t, "hello", 5), 259);
    assert_int_equal(qn_token_find(t, "nope", 4), -1);
    assert_null(qn_token_text(t, 261, &len));
    assert_null(qn_token_text(t, -1, &len));
    (void)qn_token_piece(t, 261, true, &len);
    assert_int_equal(len, 0);
    char *text;
    qn_err err;
    assert_int_equal(qn_detokenize(t, (int32_t[]){261}, 1, 0, &text, &len, &err), -1);
    assert_string_equal(err.text, "token id 261 is outside the vocabulary of 261 tokens");
    assert_int_equal(qn_tokenizer_n_warnings(t), 0);
    qn_tokenizer_free(t);
}

static void pre_names(void **state)
{
    (void)state;
    file f = bpe("qwen3x");
    refused(&f,
            "t.gguf: tokenizer.ggml.pre: pre-tokenizer \"qwen3x\" is not known (did you mean \"qwen35\"?)");
    f = bpe("sorcery");
    refused(&f, "pre-tokenizer \"sorcery\" is not known; ");

    f = bpe(NULL);
    qn_tokenizer *t = made(&f, NULL);
    assert_string_equal(qn_tokenizer_pre(t), "default");
    assert_int_equal(qn_tokenizer_n_warnings(t), 1);
    assert_non_null(strstr(qn_tokenizer_warning(t, 0), "tokenizer.ggml.pre is missing; \"default\" is used"));
    qn_tokenizer_free(t);

    f = bpe(NULL);
    add_extra(
        &f,
        (extra[]){{"<|begin_of_text|>", CONTROL}, {"<|start_header_id|>", CONTROL}, {"<|eot_id|>", CONTROL}},
        3);
    gw_u32(&f.w, "tokenizer.ggml.bos_token_id", 261);
    t = made(&f, NULL);
    assert_string_equal(qn_tokenizer_pre(t), "llama-bpe");
    assert_non_null(
        strstr(qn_tokenizer_warning(t, 0), "\"llama-bpe\" is used, which the vocabulary looks like"));
    assert_true(qn_tokenizer_add_bos(t));
    gives(t, "1234", true, true, "261 49 50 51 52");
    qn_tokenizer_free(t);

    f = bpe("falcon");
    qn_tok_opts opts = {.pre = "gpt-2"};
    t = made(&f, &opts);
    assert_string_equal(qn_tokenizer_pre(t), "gpt-2");
    qn_tokenizer_free(t);
}

/* Ends of words differ by pre-tokenizer: seen by which merges are possible. */
static void words_differ(void **state)
{
    (void)state;
    static const char *const merges[] = {"1 2", "12 3", "123 4", "! \xc4\x8a", "3 4"};
    static const struct {
        const char *pre, *want;
    } rows[] = {
        {"gpt-2", "258 32 33 10"},        {"qwen2", "49 50 51 52 32 259"},
        {"chatglm-bpe", "257 52 32 259"}, {"starcoder", "49 50 51 52 32 33 10"},
        {"falcon", "257 52 32 33 10"},    {"tiny_aya", "49 50 260 32 259"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        file f = begin("gpt2");
        gw_str(&f.w, "tokenizer.ggml.pre", rows[i].pre);
        gw_strs(&f.w, "tokenizer.ggml.merges", 5, merges);
        add_bytes(&f);
        add_extra(
            &f,
            (extra[]){
                {"12", NORMAL}, {"123", NORMAL}, {"1234", NORMAL}, {"!\xc4\x8a", NORMAL}, {"34", NORMAL}},
            5);
        qn_tokenizer *t = made(&f, NULL);
        gives(t, "1234 !\n", false, false, rows[i].want);
        qn_tokenizer_free(t);
    }
}

static void specials(void **state)
{
    (void)state;
    file f = bpe("gpt-2");
    add_extra(
        &f,
        (extra[]){
            {"<|im_end|>", CONTROL}, {"<tag>", USER}, {"<tag>>", USER}, {"<odd>", UNKNOWN}, {"  ", USER}},
        5);
    qn_tokenizer *t = made(&f, NULL);
    gives(t, "a<|im_end|>b", false, true, "97 261 98");
    gives(t, "a<|im_end|>b", false, false, "97 60 124 105 109 95 101 110 100 124 62 98");
    gives(t, "<tag>", false, false, "262");  /* user-defined: whatever parse_special says */
    gives(t, "<tag>>", false, false, "263"); /* the longest wins */
    gives(t, "<tag>><tag>", false, true, "263 262");
    gives(t, "<odd>", false, true, "264");
    gives(t, "<odd>", false, false, "60 111 100 100 62");
    gives(t, "a   b", false, false, "97 265 32 98"); /* from the left */
    size_t len;
    (void)qn_token_piece(t, 261, false, &len);
    assert_int_equal(len, 0);
    (void)qn_token_piece(t, 261, true, &len);
    assert_int_equal(len, 10);
    (void)qn_token_piece(t, 262, false, &len);
    assert_int_equal(len, 5);
    detok(t, (int32_t[]){97, 261, 262}, 3, 0, "a<tag>");
    detok(t, (int32_t[]){97, 261, 262}, 3, QN_DETOK_SPECIAL, "a<|im_end|><tag>");
    assert_int_equal(qn_token_get_attr(t, 261), QN_TOKEN_CONTROL);
    assert_int_equal(qn_token_get_attr(t, 262), QN_TOKEN_USER_DEFINED);
    assert_int_equal(qn_token_get_attr(t, 999), QN_TOKEN_UNDEFINED);
    assert_string_equal(qn_token_attr_name(QN_TOKEN_USER_DEFINED), "user-defined");
    qn_tokenizer_free(t);
}

/* Ids of a text in spans, each headed by T (trusted) or U. */
static void spans_give(const qn_tokenizer *t, const char *const *span, size_t n_spans, const char *want)
{
    char text[256] = "", got[512] = "";
    qn_span s[8];
    for (size_t i = 0; i < n_spans; i++) {
        s[i] = (qn_span){.len = strlen(span[i]) - 1, .trusted = span[i][0] == 'T'};
        strcat(text, span[i] + 1);
    }
    int32_t *ids;
    size_t n;
    qn_err err;
    assert_int_equal(qn_tokenize_spans(t, text, strlen(text), s, n_spans, false, &ids, &n, &err), 0);
    for (size_t i = 0; i < n; i++) {
        sprintf(got + strlen(got), "%s%d", i ? " " : "", ids[i]);
    }
    assert_string_equal(got, want);
    free(ids);
}

#define SPANS(...)                                                                                           \
    (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)

/* B10: what a user writes cannot close his turn. */
static void spans(void **state)
{
    (void)state;
    file f = bpe("gpt-2");
    add_extra(&f, (extra[]){{"<e>", CONTROL}, {"<u>", USER}, {"<|channel|>", CONTROL}}, 3);
    qn_tokenizer *t = made(&f, NULL);
    spans_give(t, SPANS("T<e>", "Ua<e>", "T<e>"), "261 97 60 101 62 261");
    spans_give(t, SPANS("T<", "Ue", "T>"), "60 101 62"); /* one that only touches it */
    spans_give(t, SPANS("T<e", "T>"), "261");
    spans_give(t, SPANS("T<e>", "U<u>"), "261 262"); /* user-defined: part of the vocabulary's text */
    spans_give(t, SPANS("U<|channel|>"), "60 124 99 104 97 110 110 101 108 124 62");
    spans_give(t, SPANS("T<|channel|>"), "263");
    spans_give(t, SPANS("The", "Ullo"), "259"); /* words cross */
    spans_give(t, SPANS("U", "T<e>", "U"), "261");
    spans_give(t, SPANS("U<e>", "T<e>"), "60 101 62 261");
    int32_t *ids;
    size_t n;
    qn_err err;
    const qn_span bad[] = {{.len = 2}, {.len = 2}};
    assert_int_equal(qn_tokenize_spans(t, "abc", 3, bad, 2, false, &ids, &n, &err), -1);
    assert_int_equal(qn_tokenize_spans(t, "abc", 3, bad, 1, false, &ids, &n, &err), -1);
    assert_null(ids);
    const int32_t own[] = {97, 98, 7}, outside[] = {1, 9999};
    qn_span with[] = {{.len = 3, .trusted = true}, {.len = 2, .ids = own, .n_ids = 3}, {.len = 3}};
    assert_int_equal(qn_tokenize_spans(t, "<e>hello", 8, with, 3, false, &ids, &n, &err), 0);
    assert_int_equal(n, 6); /* the token, the ids as they are, and "llo" in two */
    assert_memory_equal(ids, ((int32_t[]){261, 97, 98, 7}), 4 * sizeof *ids);
    free(ids);
    with[1].ids = outside;
    with[1].n_ids = 2;
    assert_int_equal(qn_tokenize_spans(t, "<e>hello", 8, with, 3, false, &ids, &n, &err), -1);
    assert_non_null(strstr(err.text, "token id 9999 of a span is outside the vocabulary"));
    const qn_span huge[] = {{.len = SIZE_MAX}, {.len = 4}};
    assert_int_equal(qn_tokenize_spans(t, "abc", 3, huge, 2, false, &ids, &n, &err), -1);
    qn_tokenizer_free(t);
}

static void around_text(void **state)
{
    (void)state;
    file f = bpe("gpt-2");
    gw_u32(&f.w, "tokenizer.ggml.bos_token_id", 1);
    gw_u32(&f.w, "tokenizer.ggml.eos_token_id", 2);
    gw_bool(&f.w, "tokenizer.ggml.add_bos_token", true);
    gw_bool(&f.w, "tokenizer.ggml.add_eos_token", true);
    qn_tokenizer *t = made(&f, NULL);
    gives(t, "he", true, true, "1 256 2");
    gives(t, "he", false, true, "256");
    gives(t, "", true, true, "1 2");
    qn_tokenizer_free(t);

    f = bpe("llama-bpe"); /* such models want BOS, but the file has none */
    t = made(&f, NULL);
    assert_false(qn_tokenizer_add_bos(t));
    assert_non_null(strstr(qn_tokenizer_warning(t, 0), "tokenizer.ggml.bos_token_id is missing"));
    qn_tokenizer_free(t);
    f = bpe("gpt-2");
    gw_bool(&f.w, "tokenizer.ggml.add_bos_token", true);
    refused(&f, "tokenizer.ggml.add_bos_token is true, but tokenizer.ggml.bos_token_id is missing");
    f = bpe("gpt-2");
    gw_bool(&f.w, "tokenizer.ggml.add_eos_token", true);
    refused(&f, "tokenizer.ggml.add_eos_token is true, but tokenizer.ggml.eos_token_id is missing");
    f = bpe("gpt-2");
    gw_u32(&f.w, "tokenizer.ggml.add_bos_token", 7);
    gw_str(&f.w, "tokenizer.ggml.bos_token_id", "x");
    refused(&f, "tokenizer.ggml.bos_token_id is not a token id");
    f = bpe("gpt-2");
    gw_u32(&f.w, "tokenizer.ggml.bos_token_id", 5000);
    t = made(&f, NULL);
    assert_int_equal(qn_tokenizer_role(t, QN_ROLE_BOS), -1);
    assert_non_null(strstr(qn_tokenizer_warning(t, 0), "bos_token_id = 5000 is outside the vocabulary"));
    qn_tokenizer_free(t);
}

static void ends(const qn_tokenizer *t, const char *want)
{
    size_t n;
    const int32_t *id = qn_tokenizer_eog(t, &n);
    char got[256] = "";
    for (size_t i = 0; i < n; i++) {
        sprintf(got + strlen(got), "%s%d", i ? " " : "", id[i]);
        assert_true(qn_tokenizer_is_eog(t, id[i]));
    }
    assert_string_equal(got, want);
    assert_false(qn_tokenizer_is_eog(t, -1));
}

static void end_of_generation(void **state)
{
    (void)state;
    file f = bpe("gpt-2");
    add_extra(&f,
              (extra[]){{"<|end_of_text|>", CONTROL},
                        {"<|eot_id|>", NORMAL},
                        {"<|eom_id|>", CONTROL},
                        {"<stop>", CONTROL}},
              4);
    gw_u32(&f.w, "tokenizer.ggml.eos_token_id", 264);
    qn_tokenizer *t = made(&f, NULL);
    ends(t, "261 262 263 264");
    assert_int_equal(qn_tokenizer_role(t, QN_ROLE_EOS), 264);
    assert_int_equal(qn_tokenizer_role(t, QN_ROLE_EOT), 262);
    assert_int_equal(qn_tokenizer_role(t, QN_ROLE_EOM), 263);
    assert_int_equal(qn_token_get_attr(t, 262), QN_TOKEN_CONTROL); /* by its name, whatever the file says */
    gives(t, "<|eot_id|>", false, false, "60 124 101 111 116 95 105 100 124 62");
    qn_tokenizer_free(t);

    f = bpe("gpt-2");
    add_extra(&f,
              (extra[]){{"<|im_end|>", CONTROL},
                        {"<|endoftext|>", CONTROL},
                        {"<|fim_pad|>", CONTROL},
                        {"<|file_sep|>", CONTROL}},
              4);
    gw_u32(&f.w, "tokenizer.ggml.eos_token_id", 261);
    t = made(&f, NULL);
    ends(t, "261 262 263 264");
    qn_tokenizer_free(t);

    f = bpe("gpt-2"); /* channels: <|end|> ends a message, not the answer */
    add_extra(
        &f,
        (extra[]){
            {"<|end|>", CONTROL}, {"<|return|>", CONTROL}, {"<|call|>", CONTROL}, {"<|channel|>", CONTROL}},
        4);
    t = made(&f, NULL);
    ends(t, "262 263");
    assert_int_equal(qn_token_get_attr(t, 261), QN_TOKEN_USER_DEFINED);
    assert_int_equal(qn_token_get_attr(t, 264), QN_TOKEN_USER_DEFINED);
    qn_tokenizer_free(t);

    f = bpe("gpt-2");
    qn_tok_opts opts = {.eog = (int32_t[]){7, 3}, .n_eog = 2};
    t = made(&f, &opts);
    ends(t, "3 7");
    qn_tokenizer_free(t);
    f = bpe("gpt-2");
    opts.n_eog = 0; /* nothing ends */
    t = made(&f, &opts);
    ends(t, "");
    qn_tokenizer_free(t);
    f = bpe("gpt-2");
    opts = (qn_tok_opts){.eog = (int32_t[]){1000}, .n_eog = 1};
    qn_err err;
    assert_int_equal(finish(&f, &opts, &t, &err), -1);
    assert_string_equal(err.text, "end token 1000 is outside the vocabulary of 261 tokens");
}

static file spm(void)
{
    static const extra rows[] = {
        {"<unk>", UNKNOWN},
        {"<s>", CONTROL},
        {"</s>", CONTROL},
        {"\xe2\x96\x81", NORMAL},
        {"a", NORMAL},
        {"b", NORMAL},
        {"\xe2\x96\x81"
         "a",
         NORMAL},
        {"ab", NORMAL},
        {"<0x0A>", BYTE},
        {"<0xC3>", BYTE},
        {"[INST]", USER},
        {"\xe2\x96\x81\xe2\x96\x81", NORMAL},
    };
    file f = begin("llama");
    add_extra(&f, rows, sizeof rows / sizeof rows[0]);
    return f;
}

static void sentence_piece(void **state)
{
    (void)state;
    file f = spm();
    qn_tokenizer *t = made(&f, NULL);
    assert_true(qn_tokenizer_add_space_prefix(t));
    assert_string_equal(qn_tokenizer_pre(t), "");
    gives(t, "a", true, true, "1 6");
    gives(t, " a", true, true, "1 3 6"); /* the better score joins first */
    gives(t, "", true, true, "1");
    gives(t, "ab", false, true, "6 5");
    gives(t, "<s>a", false, true, "1 6");
    gives(t, "[INST] a", false, true, "10 3 6");
    gives(t, "a[INST]b", false, true, "6 10 3 5");
    gives(t, "a\n", false, true, "6 8");
    gives(t, "a\xc3\xa9", false, true, "6 9 0"); /* a byte without a token is unknown, not lost */
    detok(t, (int32_t[]){1, 6, 5}, 3, 0, "ab");
    detok(t, (int32_t[]){1, 6, 5}, 3, QN_DETOK_KEEP_PREFIX, " ab");
    detok(t, (int32_t[]){6, 6, 8, 9}, 4, 0, "a a\n\xc3");
    detok(t, (int32_t[]){4, 6}, 2, 0, "a a");
    qn_tokenizer_free(t);

    f = spm();
    gw_bool(&f.w, "tokenizer.ggml.add_space_prefix", false);
    gw_bool(&f.w, "tokenizer.ggml.add_bos_token", false);
    t = made(&f, NULL);
    gives(t, "a", true, true, "4");
    gives(t, " a", true, true, "6");
    detok(t, (int32_t[]){6}, 1, 0, " a");
    qn_tokenizer_free(t);

    f = spm();
    gw_bool(&f.w, "tokenizer.ggml.remove_extra_whitespaces", true);
    t = made(&f, NULL);
    gives(t, "  a   a ", false, true, "6 6");
    gives(t, "   ", false, true, "3");
    qn_tokenizer_free(t);
}

static void strip_after(void **state)
{
    (void)state;
    file f = spm();
    gw_str(&f.w, "general.name", "Some Phi-3 mini");
    qn_tokenizer *t = made(&f, NULL);
    gives(t, "[INST]  \n a", false, true, "10 6");
    gives(t, "<s> a", false, true, "1 3 6"); /* excepted by name */
    qn_tokenizer_free(t);
}

static void raw_bpe(void **state)
{
    (void)state;
    static const char *const merges[] = {"a b", "\xe2\x96\x81 a", "\n \n"};
    static const extra rows[] = {
        {"<bos>", CONTROL},
        {"<eos>", CONTROL},
        {"<unk>", UNKNOWN},
        {"\xe2\x96\x81", NORMAL},
        {"a", NORMAL},
        {"b", NORMAL},
        {"ab", NORMAL},
        {"\xe2\x96\x81"
         "a",
         NORMAL},
        {"\n", NORMAL},
        {"\n\n", NORMAL},
        {"\n\n\n", NORMAL},
        {"<0xC3>", BYTE},
        {"</s>", NORMAL},
        {"<turn|>", CONTROL},
        {"<|tool_response>", CONTROL},
    };
    file f = begin("gemma4");
    gw_str(&f.w, "tokenizer.ggml.pre", "whatever");
    gw_strs(&f.w, "tokenizer.ggml.merges", 3, merges);
    gw_u32(&f.w, "tokenizer.ggml.bos_token_id", 0);
    gw_u32(&f.w, "tokenizer.ggml.eos_token_id", 1);
    gw_bool(&f.w, "tokenizer.ggml.add_bos_token", false);
    add_extra(&f, rows, sizeof rows / sizeof rows[0]);
    qn_tokenizer *t = made(&f, NULL);
    assert_string_equal(qn_tokenizer_pre(t), "gemma4");
    assert_true(qn_tokenizer_add_bos(t));
    gives(t, "ab a", true, true, "0 6 7");
    gives(t, "a", true, true, "0 4"); /* no space in front */
    gives(t, "a\n\n\na", false, true, "4 10 4");
    gives(t, "\n\n\n\n", false, true, "9 9"); /* no such token: merged */
    gives(t, "\xc3\xa9", false, true, "11");  /* the other byte has no token */
    ends(t, "1 13 14");
    assert_int_equal(qn_token_get_attr(t, 12), QN_TOKEN_NORMAL);
    detok(t, (int32_t[]){0, 7, 9, 11}, 4, 0, " a\n\n\xc3");
    qn_tokenizer_free(t);
}

static void broken_tables(void **state)
{
    (void)state;
    file f = begin("gpt2");
    gw_str(&f.w, "tokenizer.ggml.pre", "gpt-2");
    refused(&f, "t.gguf: tokenizer.ggml.tokens is missing");
    f = begin("gpt2");
    gw_str(&f.w, "tokenizer.ggml.pre", "gpt-2");
    add(&f, "a", NORMAL);
    refused(&f, "t.gguf: tokenizer.ggml.merges is missing");
    f = begin("gpt2");
    gw_str(&f.w, "tokenizer.ggml.pre", "gpt-2");
    gw_u32(&f.w, "tokenizer.ggml.merges", 1);
    add(&f, "a", NORMAL);
    refused(&f, "tokenizer.ggml.merges is not an array of strings");
    f = spm();
    add(&f, "ab", NORMAL);
    refused(&f, "tokenizer.ggml.tokens: \"ab\" is both token 7 and token 12");
    f = begin("llama");
    gw_strs(&f.w, "tokenizer.ggml.tokens", 2, (const char *const[]){"a", "b"});
    gw_f32s(&f.w, "tokenizer.ggml.scores", 1, (float[]){0});
    refused(&f, "tokenizer.ggml.scores has 1 entries, tokenizer.ggml.tokens has 2");
    f = begin("llama");
    gw_strs(&f.w, "tokenizer.ggml.tokens", 2, (const char *const[]){"a", "b"});
    gw_f32s(&f.w, "tokenizer.ggml.scores", 2, (float[]){0, __builtin_nanf("")});
    refused(&f, "tokenizer.ggml.scores[1] is not a number");
    f = begin("llama");
    gw_f32s(&f.w, "tokenizer.ggml.tokens", 1, (float[]){0});
    refused(&f, "tokenizer.ggml.tokens[0] is not a string");
    f = begin("llama");
    gw_str(&f.w, "tokenizer.ggml.tokens", "a");
    refused(&f, "tokenizer.ggml.tokens is str, not an array");
    f = spm(); /* odd but fine: empty tokens, a type out of range, merges that make no sense */
    add(&f, "", NORMAL);
    add(&f, "", 77);
    qn_tokenizer *t = made(&f, NULL);
    size_t len;
    assert_string_equal(qn_token_text(t, 13, &len), "[EMPTY_13]");
    qn_tokenizer_free(t);
    static const char *const merges[] = {"",    " ",   "a",         "a ",     " a",
                                         "a b", "a b", "\xff \xff", "ab c d", "zz yy"};
    f = begin("gpt2");
    gw_str(&f.w, "tokenizer.ggml.pre", "gpt-2");
    gw_strs(&f.w, "tokenizer.ggml.merges", 10, merges);
    add_bytes(&f);
    add(&f, "ab", NORMAL);
    t = made(&f, NULL);
    gives(t, "abc", false, false, "256 99");
    qn_tokenizer_free(t);
}

static void missing_bytes(void **state)
{
    (void)state;
    file f = begin("gpt2");
    gw_str(&f.w, "tokenizer.ggml.pre", "gpt-2");
    gw_strs(&f.w, "tokenizer.ggml.merges", 1, (const char *const[]){"a b"});
    add(&f, "a", NORMAL);
    add(&f, "b", NORMAL);
    qn_tokenizer *t = made(&f, NULL);
    assert_string_equal(qn_tokenizer_warning(t, 0),
                        "the vocabulary has no token for 254 of the 256 bytes (0x00...)");
    gives(t, "ab", false, false, "0 1"); /* a merge whose result is no token is spelt out */
    gives(t, "a-b", false, false, "0 1");
    qn_tokenizer_free(t);
}

static void too_long(void **state)
{
    (void)state;
    file f = bpe("gpt-2");
    qn_tokenizer *t = made(&f, NULL);
    int32_t *ids;
    size_t n;
    qn_err err;
    assert_int_equal(qn_tokenize(t, "x", ((size_t)1 << 28) + 1, false, false, &ids, &n, &err), -1);
    assert_null(ids);
    assert_non_null(strstr(err.text, "268435457 bytes"));
    qn_tokenizer_free(t);
    qn_tokenizer_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds),          cmocka_unit_test(plain_bpe),   cmocka_unit_test(pre_names),
        cmocka_unit_test(words_differ),   cmocka_unit_test(specials),    cmocka_unit_test(around_text),
        cmocka_unit_test(spans),          cmocka_unit_test(strip_after), cmocka_unit_test(end_of_generation),
        cmocka_unit_test(sentence_piece), cmocka_unit_test(raw_bpe),     cmocka_unit_test(broken_tables),
        cmocka_unit_test(missing_bytes),  cmocka_unit_test(too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
