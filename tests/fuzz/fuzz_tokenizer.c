// rooms: room_text
/* Arbitrary bytes through several pre-tokenizers and both algorithms: valid text comes back from its ids byte
 * for byte, malformed text comes back the same every time. The first byte picks the tokenizer and the flags.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"
#include "text/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

/* Pre-tokenizers over the first vocabulary; the last entry is the SentencePiece one. */
static const char *const pre[] = {"gpt-2",       "llama-bpe",      "gpt-4o", "deepseek-llm",
                                  "deepseek-v3", "deepseek-coder", "falcon", "tiny_aya"};
enum { N_PRE = sizeof pre / sizeof pre[0] };
static qn_tokenizer *tokenizer[N_PRE + 1];

static qn_tokenizer *load(const char *vocabulary, const char *name)
{
    char path[512];
    qn_gguf *g = NULL;
    qn_tokenizer *t = NULL;
    qn_err err;
    qn_tok_opts opts = {.pre = name};
    strcpy(path, QN_TEST_DATA "/tokenizers/ggml-vocab-");
    strcat(strcat(path, vocabulary), ".gguf");
    must(qn_gguf_open(&g, path, &err) == 0 && qn_tokenizer_new(&t, g, &opts, &err) == 0);
    qn_gguf_close(g);
    return t;
}

static bool is_utf8(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int k = qn_utf8_next((const unsigned char *)s + i, n - i, &cp);
        if (k <= 0) {
            return false;
        }
        i += (size_t)k;
    }
    return true;
}

static char *round_trip(const qn_tokenizer *t, const char *text, size_t len, bool add, bool parse,
                        size_t *back_len)
{
    int32_t *ids;
    size_t n;
    char *back;
    qn_err err;
    must(qn_tokenize(t, text, len, add, parse, &ids, &n, &err) == 0);
    for (size_t i = 0; i < n; i++) {
        must(ids[i] >= 0 && ids[i] < qn_tokenizer_n_vocab(t));
    }
    must(qn_detokenize(t, ids, n, parse ? QN_DETOK_SPECIAL : 0, &back, back_len, &err) == 0);
    free(ids);
    return back;
}

/* All of a text in trusted spans is the text with its special tokens, all in others the text without. */
static void check_spans(const qn_tokenizer *t, const char *text, size_t len, bool trusted)
{
    int32_t *a, *b;
    size_t n, m;
    qn_err err;
    const qn_span one[] = {{.len = len, .trusted = trusted}};
    const qn_span mixed[] = {{.len = len / 3, .trusted = trusted},
                             {.len = len - len / 3, .trusted = !trusted}};
    must(qn_tokenize(t, text, len, false, trusted, &a, &n, &err) == 0);
    must(qn_tokenize_spans(t, text, len, one, 1, false, &b, &m, &err) == 0);
    must(n == m && memcmp(a, b, n * sizeof *a) == 0);
    free(b);
    must(qn_tokenize_spans(t, text, len, mixed, 2, true, &b, &m, &err) == 0);
    free(a);
    free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    int which = data[0] % (N_PRE + 1);
    bool parse = data[0] & 0x80, spm = which == N_PRE;
    if (!tokenizer[which]) {
        tokenizer[which] = load(spm ? "llama-spm" : "gpt-2", spm ? NULL : pre[which]);
    }
    const qn_tokenizer *t = tokenizer[which];
    const char *text = (const char *)data + 1;
    size_t len = size - 1, n, m;
    char *back = round_trip(t, text, len, false, parse, &n);
    /* SentencePiece: its sign for a space comes back as a space, and a special token gets one behind it. */
    bool exact = is_utf8(text, len) && (!spm || (!parse && !memmem(text, len, "\xe2\x96\x81", 3)));
    must(!exact || (n == len && memcmp(back, text, n) == 0));
    if (!spm) {
        char *again = round_trip(t, back, n, false, parse, &m);
        must(n == m && memcmp(back, again, n) == 0);
        free(again);
    }
    free(back);
    back = round_trip(t, text, len, true, parse, &n);
    free(back);
    check_spans(t, text, len, parse);
    return 0;
}
