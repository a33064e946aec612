/* tok_cases.h: golden tokenizers and their cases (tests/data/tokenizers/), for tests. Anything missing fails.
 */
#ifndef QN_TESTS_TOK_CASES_H
#define QN_TESTS_TOK_CASES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "cli/json_nul.h"
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

static inline qn_gguf *tc_open(const char *vocabulary)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tokenizers/ggml-vocab-%s.gguf", QN_TEST_DATA, vocabulary);
    qn_gguf *g;
    qn_err err;
    if (qn_gguf_open(&g, path, &err)) {
        fail_msg("%s", err.text);
    }
    return g;
}

static inline qn_tokenizer *tc_load(const char *vocabulary)
{
    qn_gguf *g = tc_open(vocabulary);
    qn_tokenizer *t;
    qn_err err;
    if (qn_tokenizer_new(&t, g, NULL, &err)) {
        fail_msg("%s", err.text);
    }
    qn_gguf_close(g);
    return t;
}

/* Bytes of a case's text; malloc'ed. mark: of qn_json_hide_nul. */
static inline char *tc_text(const cJSON *c, int mark, size_t *len)
{
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(c, "text");
    if (text) {
        assert_true(cJSON_IsString(text));
        char *p = strdup(text->valuestring);
        assert_non_null(p);
        *len = qn_json_show_nul(p, mark);
        return p;
    }
    const cJSON *hex = cJSON_GetObjectItemCaseSensitive(c, "bytes_hex");
    assert_true(cJSON_IsString(hex));
    *len = strlen(hex->valuestring) / 2;
    char *p = malloc(*len + 1);
    assert_non_null(p);
    for (size_t i = 0; i < *len; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex->valuestring + 2 * i, "%2x", &byte), 1);
        p[i] = (char)byte;
    }
    p[*len] = '\0';
    return p;
}

static inline bool tc_flag(const cJSON *c, const char *key)
{
    const cJSON *f = cJSON_GetObjectItemCaseSensitive(c, key);
    assert_true(cJSON_IsBool(f));
    return cJSON_IsTrue(f);
}

#endif
