// rooms: room_text quern_jansson
/* Every case of the golden vocabularies: ids equal another engine's (tests/data/README.md). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/tok_cases.h"

static bool same_ids(const int32_t *ids, size_t n, const json_t *want)
{
    if (json_array_size(want) != n) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(want, i);
        assert_true(json_is_integer(id));
        if (json_integer_value(id) != ids[i]) {
            return false;
        }
    }
    return true;
}

static bool run_case(const qn_tokenizer *t, const char *line)
{
    qn_arena arena = {0};
    qn_err err;
    json_error_t why;
    json_t *c = json_loads(line, JSON_ALLOW_NUL, &why);
    if (!c) {
        fail_msg("%s: %s", line, why.text);
    }
    size_t len, n;
    const char *text = tc_text(c, &arena, &len);
    bool add = tc_true(c, "add_special");
    bool parse = tc_true(c, "parse_special");
    int32_t *ids;
    if (qn_tokenize(t, text, len, add, parse, &ids, &n, &err)) {
        fail_msg("%s: %s", line, err.text);
    }
    bool same = same_ids(ids, n, tc_get(c, "ids", JSON_ARRAY));
    if (!same) {
        print_error("differs: %s\n    got:", line);
        for (size_t i = 0; i < n; i++) {
            print_error(" %d", ids[i]);
        }
        print_error("\n");
    }
    free(ids);
    json_decref(c);
    qn_arena_free(&arena);
    return same;
}

static void run_cases(const char *file, int n_cases)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tokenizers/%s.cases.jsonl", QN_TEST_DATA, file);
    size_t size;
    char *cases = tc_read(path, &size), *rest = cases, *line;
    qn_tokenizer *t = tc_make(tc_open_file(file), NULL);
    int n = 0, bad = 0;
    while ((line = strsep(&rest, "\n")) && *line) {
        n++;
        bad += !run_case(t, line);
    }
    print_message("%s: %d of %d\n", file, n - bad, n);
    assert_int_equal(n, n_cases);
    assert_int_equal(bad, 0);
    qn_tokenizer_free(t);
    free(cases);
}

/* The name of a case's pre-tokenizer, which is its first member: {"pre":"NAME",... */
static char *pre_of(const char *line)
{
    static const char head[] = "{\"pre\":\"";
    assert_int_equal(strncmp(line, head, sizeof head - 1), 0);
    const char *name = line + sizeof head - 1;
    return strndup(name, strcspn(name, "\""));
}

/* The other pre-tokenizers, each over the vocabulary of gpt-2. */
static void pre_tokenizers(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/tokenizers/pre.cases.jsonl", QN_TEST_DATA);
    size_t size;
    char *cases = tc_read(path, &size), *rest = cases, *line, *pre = NULL;
    qn_tokenizer *t = NULL;
    int n = 0, bad = 0, n_pre = 0;
    while ((line = strsep(&rest, "\n")) && *line) {
        char *name = pre_of(line);
        if (!pre || strcmp(pre, name) != 0) {
            qn_tokenizer_free(t);
            t = tc_make(tc_open("gpt-2"), name);
            n_pre++;
        }
        free(pre);
        pre = name;
        n++;
        bad += !run_case(t, line);
    }
    print_message("%d pre-tokenizers: %d of %d\n", n_pre, n - bad, n);
    assert_int_equal(n_pre, 26);
    assert_int_equal(n, 2755);
    assert_int_equal(bad, 0);
    qn_tokenizer_free(t);
    free(pre);
    free(cases);
}

static void mini_gemma4(void **state)
{
    (void)state;
    run_cases("mini-gemma4", 332);
}

static void deepseek_coder(void **state)
{
    (void)state;
    run_cases("ggml-vocab-deepseek-coder", 726);
}

static void falcon(void **state)
{
    (void)state;
    run_cases("ggml-vocab-falcon", 740);
}

static void gpt_2(void **state)
{
    (void)state;
    run_cases("ggml-vocab-gpt-2", 300);
}

static void llama_spm(void **state)
{
    (void)state;
    run_cases("ggml-vocab-llama-spm", 300);
}

static void phi_3(void **state)
{
    (void)state;
    run_cases("ggml-vocab-phi-3", 300);
}

static void starcoder(void **state)
{
    (void)state;
    run_cases("ggml-vocab-starcoder", 748);
}

/* The pairs that come with the vocabularies: texts between separator lines, one line of ids each. */
static void inp_out(const char *vocabulary, int n_pairs)
{
    static const char mark[] = "\n__ggml_vocab_test__\n";
    char path[512];
    size_t size;
    snprintf(path, sizeof path, "%s/tokenizers/ggml-vocab-%s.gguf.inp", QN_TEST_DATA, vocabulary);
    char *inp = tc_read(path, &size);
    snprintf(path, sizeof path, "%s/tokenizers/ggml-vocab-%s.gguf.out", QN_TEST_DATA, vocabulary);
    char *out = tc_read(path, &size), *lines = out;
    qn_tokenizer *t = tc_load(vocabulary);
    int n_seen = 0;
    for (char *text = inp, *end; (end = strstr(text, mark)); text = end + sizeof mark - 1) {
        char *want = strsep(&lines, "\n");
        assert_non_null(want);
        int32_t *ids;
        size_t n;
        qn_err err;
        assert_int_equal(qn_tokenize(t, text, (size_t)(end - text), false, false, &ids, &n, &err), 0);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(ids[i], strtol(want, &want, 10));
        }
        while (*want == ' ') {
            want++;
        }
        assert_string_equal(want, "");
        free(ids);
        n_seen++;
    }
    assert_int_equal(n_seen, n_pairs);
    qn_tokenizer_free(t);
    free(out);
    free(inp);
}

static void pairs(void **state)
{
    (void)state;
    static const char *const all[] = {"deepseek-coder", "falcon", "gpt-2", "llama-spm", "phi-3", "starcoder"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        inp_out(all[i], 46);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deepseek_coder), cmocka_unit_test(falcon),      cmocka_unit_test(gpt_2),
        cmocka_unit_test(llama_spm),      cmocka_unit_test(phi_3),       cmocka_unit_test(starcoder),
        cmocka_unit_test(pairs),          cmocka_unit_test(mini_gemma4), cmocka_unit_test(pre_tokenizers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
