// rooms: room_text
/* A directory of tokenizer configs in place of the embedded ones; errors in it name file, line and column. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <unistd.h>

#include "tests/unit/tok_file.h"

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *o = fopen(path, "w");
    assert_non_null(o);
    fputs(text, o);
    fclose(o);
}

static const char vocabulary[] = "models: [{name: gpt2, algorithm: bpe}]\n";

static void config_refused(const char *dir, const char *yaml, const char *where, const char *what)
{
    write_file(dir, "mine.yaml", yaml);
    file f = bpe("mine");
    qn_tok_opts opts = {.config_dir = dir};
    qn_tokenizer *t;
    qn_err err = {""};
    assert_int_equal(finish(&f, &opts, &t, &err), -1);
    char want[256];
    snprintf(want, sizeof want, "%s/%s", dir, where);
    if (!strstr(err.text, want) || !strstr(err.text, what)) {
        fail_msg("\"%s\" is not \"%s ... %s\"", err.text, want, what);
    }
}

static void config_dir(void **state)
{
    (void)state;
    char dir[] = "/tmp/qn_tok_XXXXXX";
    assert_non_null(mkdtemp(dir));
    qn_tok_opts opts = {.config_dir = dir};
    qn_tokenizer *t;
    qn_err err;
    file f = bpe("mine");
    assert_int_equal(finish(&f, &opts, &t, &err), -1);
    assert_non_null(strstr(err.text, "no vocabulary.yaml there"));
    write_file(dir, "vocabulary.yaml", vocabulary);
    write_file(dir, "mine.yaml", "pre: [mine]\nsplit: ['\\p{L}', [x, 'l+|[^l]+']]\n");
    write_file(dir, ".hidden.yaml", "not: read: at all");
    write_file(dir, "README.md", "not: read: at all");
    f = bpe("mine");
    t = made(&f, &opts);
    gives(t, "hello", false, false, "104 101 108 108 111"); /* every letter a word */
    qn_tokenizer_free(t);
    f = bpe("gpt-2"); /* only what is in the directory */
    assert_int_equal(finish(&f, &opts, &t, &err), -1);
    config_refused(dir, "pre: [mine]\n", "mine.yaml:1:1: ", "`split` must be a list");
    config_refused(dir, "pre: [mine]\nsplit: []\n", "mine.yaml:2:8: ", "`split` must be a list");
    config_refused(dir, "pre: [mine]\nsplit: ['a', '(b']\n",
                   "mine.yaml:2:14: ", "missing closing parenthesis");
    config_refused(dir, "pre: [mine]\nsplit: [{a: b}]\n", "mine.yaml:2:9: ", "expected a pattern");
    config_refused(dir, "pre: [mine]\nsplit: [a]\nignore_merge: true\n",
                   "mine.yaml:3:1: ", "unknown key \"ignore_merge\" (did you mean \"ignore_merges\"?)");
    config_refused(dir, "pre: [mine]\nsplit: [a]\nadd_bos: yes\n",
                   "mine.yaml:3:10: ", "expected true or false");
    config_refused(dir, "pre: mine\nsplit: [a]\n", "mine.yaml:1:6: ", "`pre` must be the list");
    config_refused(dir, "pre: [mine]\nsplit: ['\\C']\n", "mine.yaml:2:9: ", "pattern");
    config_refused(dir, "pre: [mine\n", "mine.yaml:", "");
    write_file(dir, "mine.yaml", "pre: [mine]\nsplit: [a]\n");
    write_file(dir, "vocabulary.yaml", "models: [{name: gpt2, algorithm: bpe}]\nroles: {eoz: [x]}\n");
    f = bpe("mine");
    assert_int_equal(finish(&f, &opts, &t, &err), -1);
    assert_non_null(strstr(err.text, "vocabulary.yaml:2:9: \"eoz\" is not a role"));
    write_file(dir, "vocabulary.yaml", "models: [{name: gpt2, algorithm: magic}]\n");
    f = bpe("mine");
    assert_int_equal(finish(&f, &opts, &t, &err), -1);
    assert_non_null(strstr(err.text, "vocabulary.yaml:1:34: expected bpe, spm, none or unsupported"));
    const char *const files[] = {"vocabulary.yaml", "mine.yaml", ".hidden.yaml", "README.md"};
    for (size_t i = 0; i < 4; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        unlink(path);
    }
    rmdir(dir);
    f = bpe("mine");
    assert_int_equal(finish(&f, &opts, &t, &err), -1);
    assert_non_null(strstr(err.text, "No such file"));
}

/* A pattern that keeps a frame for every repetition: the engine's stack grows with the text, and nothing is
 * lost. */
static void deep_pattern(void **state)
{
    (void)state;
    enum { N = 400000 };
    char dir[] = "/tmp/qn_tok_XXXXXX";
    assert_non_null(mkdtemp(dir));
    write_file(dir, "vocabulary.yaml", vocabulary);
    write_file(dir, "mine.yaml", "pre: [mine]\nsplit: ['(?:(h)|(e)|(?=l)(l))*']\n");
    file f = bpe("mine");
    qn_tok_opts opts = {.config_dir = dir};
    qn_tokenizer *t = made(&f, &opts);
    char *text = malloc(N), *back;
    assert_non_null(text);
    for (int i = 0; i < N; i++) {
        text[i] = "hell"[i % 4];
    }
    int32_t *ids;
    size_t n, len;
    qn_err err;
    if (qn_tokenize(t, text, N, false, false, &ids, &n, &err)) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(n, N / 4);
    assert_int_equal(qn_detokenize(t, ids, n, 0, &back, &len, &err), 0);
    assert_int_equal(len, N);
    assert_memory_equal(back, text, N);
    free(back);
    free(ids);
    free(text);
    qn_tokenizer_free(t);
    char path[256];
    snprintf(path, sizeof path, "%s/mine.yaml", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/vocabulary.yaml", dir);
    unlink(path);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(config_dir), cmocka_unit_test(deep_pattern)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
