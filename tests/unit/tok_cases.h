/* tok_cases.h: golden tokenizers and their cases (tests/data/tokenizers/), for tests. Anything missing fails.
 */
#ifndef QN_TESTS_TOK_CASES_H
#define QN_TESTS_TOK_CASES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/alloc.h"
#include "text/tokenizer.h"

static inline char *tc_read(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        fail_msg("%s cannot be opened", path);
    }
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    char *p = malloc(*size + 1);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, *size, f), *size);
    p[*size] = '\0';
    fclose(f);
    return p;
}

/* A file of the folder by its name without ".gguf". */
static inline qn_gguf *tc_open_file(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tokenizers/%s.gguf", QN_TEST_DATA, name);
    qn_gguf *g;
    qn_err err;
    if (qn_gguf_open(&g, path, &err)) {
        fail_msg("%s", err.text);
    }
    return g;
}

static inline qn_gguf *tc_open(const char *vocabulary)
{
    char name[128];
    snprintf(name, sizeof name, "ggml-vocab-%s", vocabulary);
    return tc_open_file(name);
}

/* pre: NULL, or the pre-tokenizer that replaces the file's. Closes the file. */
static inline qn_tokenizer *tc_make(qn_gguf *g, const char *pre)
{
    qn_tok_opts opts = {.pre = pre};
    qn_tokenizer *t;
    qn_err err;
    if (qn_tokenizer_new(&t, g, &opts, &err)) {
        fail_msg("%s", err.text);
    }
    qn_gguf_close(g);
    return t;
}

static inline qn_tokenizer *tc_load(const char *vocabulary)
{
    return tc_make(tc_open(vocabulary), NULL);
}

/* A member of a case, of the type it must have. */
static inline const json_t *tc_get(const json_t *c, const char *key, json_type type)
{
    const json_t *v = json_object_get(c, key);
    assert_non_null(v);
    assert_int_equal(json_typeof(v), type);
    return v;
}

static inline bool tc_true(const json_t *c, const char *key)
{
    const json_t *v = json_object_get(c, key);
    assert_true(json_is_boolean(v));
    return json_is_true(v);
}

/* Bytes of a case's text, with a NUL behind. */
static inline const char *tc_text(const json_t *c, qn_arena *arena, size_t *len)
{
    if (json_object_get(c, "text")) {
        const json_t *text = tc_get(c, "text", JSON_STRING);
        *len = json_string_length(text);
        return json_string_value(text);
    }
    const json_t *hex = tc_get(c, "bytes_hex", JSON_STRING);
    *len = json_string_length(hex) / 2;
    char *p = qn_arena_alloc(arena, *len + 1);
    assert_non_null(p);
    for (size_t i = 0; i < *len; i++) {
        unsigned byte;
        assert_int_equal(sscanf(json_string_value(hex) + 2 * i, "%2x", &byte), 1);
        p[i] = (char)byte;
    }
    return p;
}

#endif
