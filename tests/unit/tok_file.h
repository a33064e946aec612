/* tok_file.h: small vocabularies for tests: a file under construction, and what a tokenizer made of it gives.
 */
#ifndef QN_TESTS_TOK_FILE_H
#define QN_TESTS_TOK_FILE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/gguf_writer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER = 4, UNUSED = 5, BYTE = 6 };

typedef struct extra {
    const char *text;
    int type;
} extra;

/* The file under construction: a byte-level vocabulary of 256 bytes (byte b is token b) and what is added. */
typedef struct file {
    gw w;
    const char *text[400];
    int64_t type[400];
    float score[400];
    uint64_t n;
} file;

static inline void add(file *f, const char *text, int type)
{
    f->text[f->n] = text;
    f->type[f->n] = type;
    f->score[f->n] = -(float)f->n;
    f->n++;
}

static inline file begin(const char *model)
{
    file f = {.w = gw_new()};
    gw_str(&f.w, "general.architecture", "llama");
    gw_str(&f.w, "tokenizer.ggml.model", model);
    return f;
}

/* GPT-2's spelling of the bytes. */
static inline void add_bytes(file *f)
{
    static char text[256][4];
    int n = 0;
    for (int b = 0; b < 256; b++) {
        bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        unsigned char *s = (unsigned char *)text[b];
        s[qn_utf8_put(printable ? (uint32_t)b : 256 + (uint32_t)n++, s)] = 0;
        add(f, (char *)s, NORMAL);
    }
}

static inline void add_extra(file *f, const extra *e, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        add(f, e[i].text, e[i].type);
    }
}

/* Writes the tables and makes the tokenizer; the file is freed. */
static inline int finish(file *f, const qn_tok_opts *opts, qn_tokenizer **t, qn_err *err)
{
    if (f->n) {
        gw_strs(&f->w, "tokenizer.ggml.tokens", f->n, f->text);
        gw_ints(&f->w, "tokenizer.ggml.token_type", QN_KV_I32, f->n, f->type);
        gw_f32s(&f->w, "tokenizer.ggml.scores", f->n, f->score);
    }
    size_t size;
    void *bytes = gw_bytes(&f->w, &size);
    qn_gguf *g;
    assert_int_equal(qn_gguf_open_memory(&g, bytes, size, "t.gguf", err), 0);
    *t = (qn_tokenizer *)1;
    int rc = qn_tokenizer_new(t, g, opts, err);
    assert_true(rc == 0 ? *t != NULL : *t == NULL);
    qn_gguf_close(g);
    gw_free(&f->w);
    free(bytes);
    return rc;
}

static inline qn_tokenizer *made(file *f, const qn_tok_opts *opts)
{
    qn_tokenizer *t;
    qn_err err;
    if (finish(f, opts, &t, &err)) {
        fail_msg("%s", err.text);
    }
    return t;
}

static inline void refused(file *f, const char *what)
{
    qn_tokenizer *t;
    qn_err err = {""};
    assert_int_equal(finish(f, NULL, &t, &err), -1);
    if (!strstr(err.text, what)) {
        fail_msg("\"%s\" does not say \"%s\"", err.text, what);
    }
}

/* Ids as text, "1 2 3". */
static inline void gives(const qn_tokenizer *t, const char *text, bool add_special, bool parse_special,
                         const char *want)
{
    int32_t *ids;
    size_t n;
    qn_err err;
    char got[4096] = "";
    assert_int_equal(qn_tokenize(t, text, strlen(text), add_special, parse_special, &ids, &n, &err), 0);
    for (size_t i = 0; i < n; i++) {
        sprintf(got + strlen(got), "%s%d", i ? " " : "", ids[i]);
    }
    assert_string_equal(got, want);
    free(ids);
}

static inline void detok(const qn_tokenizer *t, const int32_t *ids, size_t n, unsigned flags,
                         const char *want)
{
    char *text;
    size_t len;
    qn_err err;
    assert_int_equal(qn_detokenize(t, ids, n, flags, &text, &len, &err), 0);
    assert_string_equal(text, want);
    assert_int_equal(len, strlen(want));
    free(text);
}

static inline file bpe(const char *pre)
{
    static const char *const merges[] = {"h e", "l l", "he ll", "hell o", "\xc4\xa0 w"};
    file f = begin("gpt2");
    if (pre) {
        gw_str(&f.w, "tokenizer.ggml.pre", pre);
    }
    gw_strs(&f.w, "tokenizer.ggml.merges", 5, merges);
    add_bytes(&f);
    add_extra(
        &f,
        (extra[]){{"he", NORMAL}, {"ll", NORMAL}, {"hell", NORMAL}, {"hello", NORMAL}, {"\xc4\xa0w", NORMAL}},
        5);
    return f;
}

#endif
