// rooms: room_model
/* Model configs as text: what the schema refuses, with file:line:column (B35). */
#include "config_test.h"

#include <locale.h>

static void smallest(void **state)
{
    (void)state;
    qn_config *c = must_parse(HEAD);
    assert_string_equal(qn_config_name(c), "t.yaml");
    assert_string_equal(qn_config_arch(c, 0), "t");
    assert_null(qn_config_arch(c, 1));
    qn_config_free(c);
    c = must_parse("architecture: [a, b]\nnorm: {eps: 1e-5}\nrope: {style: none}\n");
    assert_string_equal(qn_config_arch(c, 1), "b");
    assert_null(qn_config_arch(c, 2));
    qn_config_free(c);
}

static void text_level(void **state)
{
    (void)state;
    refused("architecture: t\nnorm: {eps: 1}\nnorm: {eps: 2}\n", "t.yaml:3:1: ", "duplicate key \"norm\"");
    refused("architecture: t\nrope:\n\tstyle: neox\n", "t.yaml:3:1: ", "cannot start any token");
    refused(HEAD "---\narchitecture: u\n", "t.yaml:4:1: ", "second document");
    refused("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "t.yaml:1:4: ", "anchor");
    refused("", "t.yaml:1:1: ", "empty");
    refused("- a\n", "t.yaml:1:1: ", "expected a map");
    refused("x", "t.yaml:1:1: ", "expected a map");
    qn_config *c = must_parse("\xef\xbb\xbf"
                              "architecture: t\r\nnorm: {eps: 1e-5}\r\nrope: {style: neox}\r\n");
    assert_string_equal(qn_config_arch(c, 0), "t");
    qn_config_free(c);
}

static void sizes(void **state)
{
    (void)state;
    size_t n = 100000;
    char *deep = malloc(n);
    memset(deep, '[', n);
    refused_bytes(deep, n, "t.yaml:1:", "deeper than");
    free(deep);
    n = 10 << 20;
    char *big = malloc(n);
    memset(big, '#', n);
    refused_bytes(big, n, "t.yaml: ", "more than a config may have");
    free(big);
}

static void unknown(void **state)
{
    (void)state;
    refused(HEAD "atention: {scale: 1}\n",
            "t.yaml:4:1: ", "unknown key \"atention\" (did you mean \"attention\"?)");
    refused(HEAD "attention: {scal: 1}\n",
            "t.yaml:4:13: ", "\"scal\" in attention (did you mean \"scale\"?)");
    refused(HEAD "attention:\n  qk_norm: {ordr: after_rope}\n",
            "t.yaml:5:13: ", "in attention.qk_norm (did you mean \"order\"?)");
    refused(HEAD "layers: {patern: {}}\n", "t.yaml:4:10: ", "did you mean \"pattern\"?");
    refused(HEAD "wen: []\n", "t.yaml:4:1: ", "did you mean \"when\"?");
    refused(HEAD "attention.scale: 1\n", "t.yaml:4:1: ", "unknown key");
    refused(HEAD "zzzzzzzz: 1\n", "t.yaml:4:1: ", "unknown key \"zzzzzzzz\"");
    refused(HEAD "when: [{if: {key: a, eq: 1}, set: {kinds: {}, ropes: {}}}]\n", "t.yaml:4:47: ", "\"rope\"");
    refused(HEAD "attention: {scale: {keys: x}}\n", "t.yaml:4:21: ", "did you mean \"key\"?");
    refused(HEAD "attention: {scale: {formula: rsqrt_headdim}}\n", "t.yaml:4:30: ", "\"rsqrt_head_dim\"?");
    char path[400] = HEAD;
    memset(path + strlen(HEAD), 'x', 300);
    memcpy(path + strlen(HEAD) + 300, ": 1\n", 5);
    refused(path, "t.yaml:4:1: ", "unknown key");
}

static void types(void **state)
{
    (void)state;
    refused(HEAD "attention: 3\n", "t.yaml:4:12: ", "expected a map");
    refused(HEAD "attention: [scale]\n", "t.yaml:4:12: ", "expected a map");
    refused(HEAD "attention: {scale: x}\n", "t.yaml:4:20: ", "expected a number, found x");
    refused(HEAD "attention: {scale: '1'}\n", "t.yaml:4:20: ", "expected a number");
    refused(HEAD "attention: {scale: .nan}\n", "t.yaml:4:20: ", "expected a number");
    refused(HEAD "attention: {scale: .inf}\n", "t.yaml:4:20: ", "expected a number");
    refused(HEAD "attention: {scale: nan}\n", "t.yaml:4:20: ", "expected a number");
    refused(HEAD "attention: {scale: 1e999}\n", "t.yaml:4:20: ", "does not fit");
    refused(HEAD "attention: {scale: 0x10}\n", "t.yaml:4:20: ", "expected a number");
    refused(HEAD "attention: {scale: 1,5}\n", "t.yaml:4:", "");
    refused(HEAD "attention: {window: 1.5}\n", "t.yaml:4:21: ", "whole number");
    refused(HEAD "attention: {window: -1}\n", "t.yaml:4:21: ", "must be 0 to");
    refused(HEAD "attention: {head_dim: 99999999999999999999}\n", "t.yaml:4:23: ", "fit");
    refused(HEAD "attention: {head_dim: 0}\n", "t.yaml:4:23: ", "must be 1 to");
    refused(HEAD "residual: {parallel: yes}\n", "t.yaml:4:22: ", "expected true or false");
    refused(HEAD "residual: {parallel: 1}\n", "t.yaml:4:22: ", "expected true or false");
    refused(HEAD "residual: {parallel: {formula: n_embd}}\n", "t.yaml:4:22: ", "truth value");
    refused(HEAD "attention: {scale: }\n", "t.yaml:4:", "expected a number");
}

static void words(void **state)
{
    (void)state;
    refused("architecture: t\nnorm: {eps: 1}\nrope: {style: neo}\n", "t.yaml:3:15: ",
            "rope.style is \"neo\", must be none | neox | interleaved (did you mean \"neox\"?)");
    refused(HEAD "attention: {bias: true}\n", "t.yaml:4:19: ", "must be no | yes | optional");
    refused(HEAD "attention: {bias: off}\n", "t.yaml:4:19: ", "must be no | yes | optional");
    refused(HEAD "attention: {kind: [standard]}\n", "t.yaml:4:19: ", "attention.kind is \"a list or map\"");
    refused(HEAD "norm2: {kind: none}\n", "t.yaml:4:1: ", "\"norm\"");
    refused("architecture: t\nnorm: {kind: none, eps: 1}\nrope: {style: neox}\n",
            "t.yaml:2:14: ", "rms | layer");
    qn_config *c =
        must_parse(HEAD "attention: {bias: no, out_bias: yes, fused: auto}\noutput: {tied: never}\n");
    qn_config_free(c);
}

static void names(void **state)
{
    (void)state;
    const char *truths[] = {"no", "off",  "yes", "on",     "true", "false",
                            "~",  "null", "''",  "\"no\"", "No",   "OFF"};
    for (size_t i = 0; i < sizeof truths / sizeof truths[0]; i++) {
        char text[200];
        snprintf(text, sizeof text, HEAD "attention: {post_norm: %s}\n", truths[i]);
        refused(text, "t.yaml:4:24: ", "for no tensor write none");
    }
    refused(HEAD "attention: {q: attn_q.weight}\n", "t.yaml:4:16: ", "must stand without .weight");
    refused(HEAD "attention: {q: attn q}\n", "t.yaml:4:16: ", "not the name of a tensor");
    refused(HEAD "attention: {q: ../x}\n", "t.yaml:4:16: ", "not the name of a tensor");
    refused(HEAD "attention: {q: [a]}\n", "t.yaml:4:16: ", "name of a tensor");
}

static void required(void **state)
{
    (void)state;
    refused("norm: {eps: 1}\nrope: {style: none}\n", "t.yaml:1:1: ", "\"architecture\" is missing");
    refused("architecture: t\nrope: {style: none}\n", "t.yaml:1:1: ", "norm.eps must be set");
    refused("architecture: t\nnorm: {eps: 1}\n", "t.yaml:1:1: ", "rope.style must be set");
    refused("architecture: []\nnorm: {eps: 1}\nrope: {style: none}\n", "t.yaml:1:15: ", "empty list");
    refused("architecture: {a: b}\nnorm: {eps: 1}\nrope: {style: none}\n", "t.yaml:1:15: ", "expected text");
}

static void value_forms(void **state)
{
    (void)state;
    refused(HEAD "attention: {scale: {default: 1}}\n",
            "t.yaml:4:20: ", "exactly one of key, global_key and formula");
    refused(HEAD "attention: {scale: {key: a, formula: n_embd}}\n", "t.yaml:4:20: ", "exactly one of");
    refused(HEAD "attention: {scale: {formula: n_embd, default: 1}}\n", "t.yaml:4:38: ", "no default");
    refused(HEAD "attention: {scale: {key: ''}}\n", "t.yaml:4:26: ", "not the name of a key");
    refused(HEAD "attention: {scale: {key: [a]}}\n", "t.yaml:4:26: ", "expected text");
    refused(HEAD "attention: {scale: {key: a, times: x}}\n", "t.yaml:4:36: ", "expected a number");
    refused(HEAD "attention: {scale: {key: a, invert: 1}}\n", "t.yaml:4:37: ", "expected true or false");
    refused(HEAD "attention: {window: {key: a, default: {key: b, default: 1.5}}}\n",
            "t.yaml:4:57: ", "whole");
    refused(HEAD "attention: {window: {key: a, default: -4}}\n", "t.yaml:4:39: ", "must be 0 to");
}

static void conditions(void **state)
{
    (void)state;
    const struct {
        const char *cond, *where, *what;
    } bad[] = {
        {"{}", "t.yaml:4:13: ", "exactly one of key, global_key, value, tensor"},
        {"[]", "t.yaml:4:13: ", "empty list"},
        {"3", "t.yaml:4:13: ", "expected a map"},
        {"{key: a}", "t.yaml:4:13: ", "exactly one of eq, ge, gt, lt and is"},
        {"{key: a, eq: 1, gt: 2}", "t.yaml:4:13: ", "exactly one of eq"},
        {"{key: a, tensor: b, is: present}", "t.yaml:4:13: ", "exactly one of key"},
        {"{key: a, is: there}", "t.yaml:4:26: ", "present or absent"},
        {"{value: n_layer, is: present}", "t.yaml:4:34: ", "always present"},
        {"{value: n_layr, eq: 1}", "t.yaml:4:21: ", "unknown value \"n_layr\" (did you mean \"n_layer\"?)"},
        {"{value: n_layer, eq: many}", "t.yaml:4:34: ", "expected a number"},
        {"{tensor: a.weight, eq: 1}", "t.yaml:4:32: ", "only be tested with is"},
        {"{key: a, gt: big}", "t.yaml:4:26: ", "expected a number"},
        {"{key: a, eq: [1]}", "t.yaml:4:26: ", "a list"},
        {"{key: a, equals: 1}", "t.yaml:4:22: ", "unknown key"},
        {"[{key: a, eq: 1}, {key: b}]", "t.yaml:4:31: ", "exactly one of eq"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[400];
        snprintf(text, sizeof text, HEAD "when: [{if: %s, set: {}}]\n", bad[i].cond);
        refused(text, bad[i].where, bad[i].what);
    }
    refused(HEAD "when: {if: {key: a, eq: 1}, set: {}}\n", "t.yaml:4:7: ", "must be a list");
    refused(HEAD "when: [{if: {key: a, eq: 1}}]\n", "t.yaml:4:8: ", "needs if and set");
    refused(HEAD "when: [{if: {key: a, eq: 1}, then: {}}]\n", "t.yaml:4:30: ", "unknown key \"then\"");
}

static void places(void **state)
{
    (void)state;
    const char *pattern = HEAD "layers: {pattern: {kinds: [a, b], period: 2}}\n";
    char text[600];
    snprintf(text, sizeof text, "%skinds: {c: {}}\n", pattern);
    refused(text, "t.yaml:5:9: ", "no layers.pattern has a kind \"c\"");
    snprintf(text, sizeof text, "%skinds: {a: {output: {softcap: 1}}}\n", pattern);
    refused(text, "t.yaml:5:22: ", "cannot be set in a kind");
    snprintf(text, sizeof text, "%skinds: {a: {layers: {pattern: {}}}}\n", pattern);
    refused(text, "t.yaml:5:22: ", "cannot stand in a kind");
    snprintf(text, sizeof text, "%skinds: {a: {kinds: {}}}\n", pattern);
    refused(text, "t.yaml:5:13: ", "cannot stand in a kind");
    refused(HEAD "kinds: {a: {}}\n", "t.yaml:4:9: ", "no layers.pattern");
    refused(HEAD "when: [{if: {key: a, eq: 1}, set: {layers: {count: 3}}}]\n",
            "t.yaml:4:45: ", "in a variant");
    refused(HEAD "when: [{if: {value: layer, eq: 1}, set: {output: {softcap: 3}}}]\n",
            "t.yaml:4:51: ", "in a variant that tests a layer");
    refused(HEAD "when: [{if: {value: layer, eq: 1}, set: {kinds: {a: {}}}}]\n",
            "t.yaml:4:42: ", "cannot stand");
    refused(HEAD "when: [{if: {key: a, eq: 1}, set: {when: []}}]\n", "t.yaml:4:36: ", "cannot stand");
}

static void patterns(void **state)
{
    (void)state;
    const struct {
        const char *pattern, *what;
    } bad[] = {
        {"{period: 2}", "needs kinds and exactly one"},
        {"{kinds: [a, b]}", "needs kinds and exactly one"},
        {"{kinds: [a, b], period: 2, list: [0]}", "needs kinds and exactly one"},
        {"{kinds: [a], period: 2}", "2 to 16 names"},
        {"{kinds: a, period: 2}", "2 to 16 names"},
        {"{kinds: [a, a], period: 2}", "stands twice"},
        {"{kinds: [a, b, c], period: 2}", "two kinds apart"},
        {"{kinds: [a, b], period: x}", "expected a number"},
        {"{kinds: [a, b], list: []}", "numbers of kinds"},
        {"{kinds: [a, b], list: [0, 2]}", "kind 2 of 2"},
        {"{kinds: [a, b], list: [-1]}", "kind -1 of 2"},
        {"{kinds: [a, b], array: [x]}", "expected text"},
        {"{kinds: [a, b], perod: 2}", "did you mean \"period\"?"},
        {"3", "expected a map"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[400];
        snprintf(text, sizeof text, HEAD "layers: {pattern: %s}\n", bad[i].pattern);
        refused(text, "t.yaml:4:", bad[i].what);
    }
}

/* Numbers mean the same under a locale with a comma. */
static void comma_locale(void **state)
{
    (void)state;
    const char *const tried[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "nl_NL.UTF-8"};
    bool set = false;
    for (size_t i = 0; i < sizeof tried / sizeof tried[0] && !set; i++) {
        set = setlocale(LC_ALL, tried[i]) && strcmp(localeconv()->decimal_point, ",") == 0;
    }
    asked a = {.w = usual_keys()};
    open_file(&a);
    qn_config *c = must_parse("architecture: t\nnorm: {eps: 1.5e-3}\nrope: {style: neox, base: 2.5}\n");
    qn_layer_cfg cfg = resolve(c, &a, 0, NULL);
    assert_true(cfg.norm.eps == 1.5e-3);
    assert_true(cfg.rope.base == 2.5);
    qn_config_free(c);
    close_file(&a);
    setlocale(LC_ALL, "C");
    if (!set) {
        print_message("no locale with a decimal comma on this machine; checked under C only\n");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smallest),     cmocka_unit_test(text_level), cmocka_unit_test(sizes),
        cmocka_unit_test(unknown),      cmocka_unit_test(types),      cmocka_unit_test(words),
        cmocka_unit_test(names),        cmocka_unit_test(required),   cmocka_unit_test(value_forms),
        cmocka_unit_test(conditions),   cmocka_unit_test(places),     cmocka_unit_test(patterns),
        cmocka_unit_test(comma_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
