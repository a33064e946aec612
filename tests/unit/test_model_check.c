// rooms: room_model
/* A config against a file with all that does not fit: golden models against their own config and others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "model/model_check.h"

typedef struct found {
    int faults, notes;
    char text[1 << 14];
} found;

static void note(void *user, bool fault, const char *text)
{
    found *f = user;
    f->faults += fault;
    f->notes += !fault;
    size_t at = strlen(f->text);
    snprintf(f->text + at, sizeof f->text - at, "%s: %s\n", fault ? "fault" : "note", text);
}

static int check(found *f, const char *config, const char *model)
{
    char path[600];
    qn_config *c;
    qn_gguf *g;
    qn_err err = {""};
    int bound;
    memset(f, 0, sizeof *f);
    snprintf(path, sizeof path, QN_SOURCE_DIR "/model_configs/%s.yaml", config);
    if (qn_config_load(&c, path, &err)) {
        fail_msg("%s", err.text);
    }
    snprintf(path, sizeof path, QN_BUILD_DIR "/goldens/archs/%s.gguf", model);
    if (qn_gguf_open(&g, path, &err)) {
        fail_msg("%s", err.text);
    }
    int n = qn_model_check(c, g, 0, note, f, &bound, &err);
    assert_int_equal(n, f->faults);
    qn_gguf_close(g);
    qn_config_free(c);
    return bound;
}

static void has(const found *f, const char *what)
{
    if (!strstr(f->text, what)) {
        fail_msg("no \"%s\" in\n%s", what, f->text);
    }
}

static void own_config(void **state)
{
    (void)state;
    static found f;
    static const char *const names[] = {"llama", "gemma3", "gemma3n", "deci", "falcon", "talkie", "minicpm3"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_true(check(&f, names[i], names[i]) > 0);
        if (f.faults) {
            fail_msg("%s", f.text);
        }
    }
    check(&f, "gemma4", "gemma4-e2b"); /* layers that share a cache have keys of their own in the file */
    assert_int_equal(f.faults, 0);
    assert_int_equal(f.notes, 3);
    has(&f, "tensor blk.5.attn_k.weight is in the file, but nothing in ");
    has(&f, "(and 4 more alike)");
}

static void missing_tensors(void **state)
{
    (void)state;
    static found f;
    check(&f, "gemma3", "gemma2");
    assert_int_equal(f.faults, 3);
    has(&f, "architecture is \"gemma2\"");
    has(&f,
        "tensor blk.0.attn_q_norm.weight [32] is missing (asked for by attention.qk_norm.q, the default in ");
    has(&f, "tensor blk.0.attn_k_norm.weight");
    has(&f, "note: key gemma2.attn_logit_softcapping is in the file, but no value of ");
}

static void missing_keys(void **state)
{
    (void)state;
    static found f;
    check(&f, "llama", "falcon-40b");
    has(&f, "norm.eps, ");
    has(&f, "key falcon.attention.layer_norm_rms_epsilon is missing");
    check(&f, "minicpm3", "llama"); /* several at once */
    has(&f, "key llama.attention.q_lora_rank is missing");
    has(&f, "key llama.attention.kv_lora_rank is missing");
}

static void shapes(void **state)
{
    (void)state;
    static found f;
    check(&f, "qwen3", "stablelm-12b"); /* norms of another kind, q and k norms of another shape */
    assert_true(f.faults >= 2);
    check(&f, "llama", "phi3"); /* gate and up in one: nothing is wrong with that */
    assert_int_equal(f.faults, 1);
    check(&f, "qwen", "qwen3"); /* half the feed-forward width */
    has(&f, "ffn_gate.weight is [64, 96], expected [64, 48]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(own_config), cmocka_unit_test(missing_tensors),
                                       cmocka_unit_test(missing_keys), cmocka_unit_test(shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
