/* config_test.h: configs from text and files made of keys, for tests of model configs. */
#ifndef QN_TESTS_CONFIG_TEST_H
#define QN_TESTS_CONFIG_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "gguf_writer.h"
#include "model/config.h"

/* What every config below begins with. */
#define HEAD "architecture: t\nnorm: {eps: 1e-5}\nrope: {style: neox}\n"

static inline qn_config *must_parse(const char *text)
{
    qn_config *c;
    qn_err err = {""};
    if (qn_config_parse(&c, text, strlen(text), "t.yaml", &err)) {
        fail_msg("%s", err.text);
    }
    return c;
}

/* Fails with a message that begins with `where` and holds `what`. */
static inline void refused_bytes(const char *text, size_t n, const char *where, const char *what)
{
    qn_config *c = (qn_config *)1;
    qn_err err = {""};
    assert_int_equal(qn_config_parse(&c, text, n, "t.yaml", &err), -1);
    assert_null(c);
    if (strncmp(err.text, where, strlen(where)) != 0 || !strstr(err.text, what)) {
        fail_msg("\"%s\" instead of \"%s ... %s\"", err.text, where, what);
    }
}

static inline void refused(const char *text, const char *where, const char *what)
{
    refused_bytes(text, strlen(text), where, what);
}

/* The keys that the defaults need: 6 layers, n_embd 64, 4 heads of 16 (2 of keys), n_ff 96. */
static inline gw usual_keys(void)
{
    gw w = gw_new();
    gw_str(&w, "general.architecture", "t");
    gw_u32(&w, "t.block_count", 6);
    gw_u32(&w, "t.embedding_length", 64);
    gw_u32(&w, "t.context_length", 512);
    gw_u32(&w, "t.feed_forward_length", 96);
    gw_u32(&w, "t.attention.head_count", 4);
    gw_u32(&w, "t.attention.head_count_kv", 2);
    return w;
}

/* A file being asked about: gw_* on w, then open_file, then resolve. */
typedef struct asked {
    gw w;
    void *bytes;
    qn_gguf *g;
} asked;

static inline void open_file(asked *a)
{
    size_t size;
    qn_err err = {""};
    a->bytes = gw_bytes(&a->w, &size);
    if (qn_gguf_open_memory(&a->g, a->bytes, size, "t.gguf", &err)) {
        fail_msg("%s", err.text);
    }
}

static inline void close_file(asked *a)
{
    qn_gguf_close(a->g);
    gw_free(&a->w);
    free(a->bytes);
}

static inline qn_layer_cfg resolve(const qn_config *c, const asked *a, int il, const char **kind)
{
    qn_layer_cfg cfg;
    const char *k;
    qn_err err = {""};
    if (qn_config_resolve(c, a->g, il, 100, &cfg, kind ? kind : &k, &err)) {
        fail_msg("%s", err.text);
    }
    return cfg;
}

static inline void unresolved(const qn_config *c, const asked *a, int il, const char *what)
{
    qn_layer_cfg cfg;
    const char *kind;
    qn_err err = {""};
    assert_int_equal(qn_config_resolve(c, a->g, il, 100, &cfg, &kind, &err), -1);
    if (!strstr(err.text, what)) {
        fail_msg("\"%s\" instead of \"... %s ...\"", err.text, what);
    }
}

#endif
