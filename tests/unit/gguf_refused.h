/* gguf_refused.h: expectations about files that must be refused, and a good file to damage. */
#ifndef QN_TESTS_GGUF_REFUSED_H
#define QN_TESTS_GGUF_REFUSED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/gguf_writer.h"

static inline void contains(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("\"%s\" does not say \"%s\"", text, part);
    }
}

/* Opens, expects a refusal that begins with the name and says both parts. Returns the message (static). */
static inline const char *refused_bytes(const void *bytes, size_t size, const char *part, const char *part2)
{
    static qn_err err;
    qn_gguf *g = (qn_gguf *)&err;
    err.text[0] = '\0';
    if (qn_gguf_open_memory(&g, bytes, size, "bad.gguf", &err) == 0) {
        fail_msg("opened; expected: %s", part);
    }
    assert_null(g);
    assert_int_equal(strncmp(err.text, "bad.gguf: ", 10), 0);
    assert_null(strchr(err.text, '\n'));
    contains(err.text, part);
    contains(err.text, part2 ? part2 : "");
    return err.text;
}

static inline const char *refused(gw *w, const char *part, const char *part2)
{
    size_t size;
    uint8_t *bytes = gw_bytes(w, &size);
    const char *text = refused_bytes(bytes, size, part, part2);
    free(bytes);
    gw_free(w);
    return text;
}

/* A small file with something of everything. */
static inline gw good(void)
{
    gw w = gw_new();
    gw_str(&w, "general.architecture", "test");
    gw_u32(&w, "test.block_count", 1);
    gw_strs(&w, "tokens", 3, (const char *[]){"a", "", "ccc"});
    gw_f32s(&w, "scores", 2, (const float[]){1, 2});
    gw_ints(&w, "flags", QN_KV_BOOL, 2, (const int64_t[]){0, 1});
    gw_alignment(&w, 32);
    gw_tensor(&w, "embd", QN_Q4_0, 2, (uint64_t[]){32, 16}, NULL);
    gw_tensor(&w, "norm", QN_F32, 1, (uint64_t[]){32}, NULL);
    gw_tensor(&w, "out", QN_F16, 2, (uint64_t[]){16, 64}, NULL);
    return w;
}

#endif
