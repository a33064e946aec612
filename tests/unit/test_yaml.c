// rooms: room_model
/* B35: what YAML leaves open is refused, with file:line:column. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <locale.h>
#include <cmocka.h>

#include <sys/stat.h>
#include <unistd.h>

#include "model/yaml.h"

static qn_yaml *load(const char *text)
{
    qn_yaml *doc;
    qn_err err = {""};
    if (qn_yaml_load(&doc, text, strlen(text), "t.yaml", &err)) {
        fail_msg("%s", err.text);
    }
    return doc;
}

static void refused(const char *bytes, size_t n, const char *where, const char *what)
{
    qn_yaml *doc = (qn_yaml *)1;
    qn_err err = {""};
    assert_int_equal(qn_yaml_load(&doc, bytes, n, "t.yaml", &err), -1);
    assert_null(doc);
    if (strncmp(err.text, where, strlen(where)) != 0 || !strstr(err.text, what)) {
        fail_msg("\"%s\" instead of \"%s ... %s\"", err.text, where, what);
    }
}

#define REFUSED(text, where, what) refused(text, sizeof(text) - 1, where, what)

static void tree(void **state)
{
    (void)state;
    qn_yaml *doc = load("name: qwen2\n"
                        "list: [a, 'b c', \"d\\n\"]\n"
                        "map:\n"
                        "  x: 1\n"
                        "  y: {z: 2.5}\n"
                        "text: |\n"
                        "  two\n"
                        "  lines\n"
                        "void:\n");
    const qn_yaml_node *r = qn_yaml_root(doc);
    assert_int_equal(r->kind, QN_YAML_MAP);
    assert_int_equal(r->n_child, 5);
    assert_string_equal(qn_yaml_get(r, "name")->text, "qwen2");
    const qn_yaml_node *list = qn_yaml_get(r, "list");
    assert_int_equal(list->kind, QN_YAML_SEQ);
    assert_int_equal(list->n_child, 3);
    assert_int_equal(list->line, 2);
    assert_int_equal(list->column, 7);
    assert_int_equal(list->key_column, 1);
    assert_true(qn_yaml_at(list, 0)->plain);
    assert_false(qn_yaml_at(list, 1)->plain);
    assert_string_equal(qn_yaml_at(list, 1)->text, "b c");
    assert_int_equal(qn_yaml_at(list, 2)->len, 2);
    assert_null(qn_yaml_at(list, 3));
    const qn_yaml_node *z = qn_yaml_get(qn_yaml_get(qn_yaml_get(r, "map"), "y"), "z");
    assert_string_equal(z->text, "2.5");
    assert_int_equal(z->line, 5);
    assert_int_equal(z->column, 10);
    assert_int_equal(z->key_column, 7);
    assert_string_equal(qn_yaml_get(r, "text")->text, "two\nlines\n");
    assert_false(qn_yaml_get(r, "text")->plain);
    assert_string_equal(qn_yaml_get(r, "void")->text, "");
    assert_null(qn_yaml_get(r, "absent"));
    assert_null(qn_yaml_get(list, "name"));
    assert_string_equal(r->child->next->next->key, "map");
    qn_yaml_free(doc);
    qn_yaml_free(NULL);
}

static void accepted_forms(void **state)
{
    (void)state;
    qn_yaml *doc = load("\xef\xbb\xbf"
                        "a: 1\r\nb: x y\r\n");
    const qn_yaml_node *b = qn_yaml_get(qn_yaml_root(doc), "b");
    assert_string_equal(b->text, "x y");
    assert_int_equal(b->line, 2);
    assert_int_equal(b->column, 4);
    assert_int_equal(qn_yaml_root(doc)->column, 1);
    qn_yaml_free(doc);
    doc = load("---\na: é ü\n...\n");
    assert_string_equal(qn_yaml_get(qn_yaml_root(doc), "a")->text, "é ü");
    qn_yaml_free(doc);
}

static void refusals(void **state)
{
    (void)state;
    REFUSED("a: 1\nb: 2\na: 3\n", "t.yaml:3:1: ", "duplicate key \"a\" (first on line 1)");
    REFUSED("m: {k: 1, 'k': 2}\n", "t.yaml:1:11: ", "duplicate key \"k\"");
    REFUSED("a: &x 1\nb: *x\n", "t.yaml:1:4: ", "anchors");
    REFUSED("b: *x\n", "t.yaml:1:4: ", "aliases");
    REFUSED("b: !!str 1\n", "t.yaml:1:4: ", "tags");
    REFUSED("b: !<x> {a: 1}\n", "t.yaml:1:4: ", "tags");
    REFUSED("a: &l [x]\n", "t.yaml:1:4: ", "anchors");
    REFUSED("a: 1\n---\nb: 2\n", "t.yaml:2:1: ", "second document");
    REFUSED("%YAML 1.1\n---\na: 1\n", "t.yaml:1:1: ", "directives");
    REFUSED("", "t.yaml:1:1: ", "empty");
    REFUSED("# only a comment\n", "t.yaml:1:1: ", "empty");
    REFUSED("a:\n\tb: 1\n", "t.yaml:2:1: ", "cannot start any token");
    REFUSED("a: \"x\\0y\"\n", "t.yaml:1:4: ", "NUL");
    REFUSED("a: 1\nb: \xff\n", "t.yaml:2:4: ", "not valid UTF-8");
    REFUSED("a: \xed\xa0\x80\n", "t.yaml:1:4: ", "not valid UTF-8");
    REFUSED("\xff\xfe"
            "a\0:\0",
            "t.yaml:1:1: ", "not valid UTF-8");
    REFUSED("a\0b: 1", "t.yaml:1:2: ", "not valid UTF-8");
    REFUSED("[a]: 1\n", "t.yaml:1:", "");
    REFUSED("? {a: 1}\n: 2\n", "t.yaml:1:3: ", "a key must be a scalar");
    REFUSED("\"\": 1\n", "t.yaml:1:1: ", "empty key");
    REFUSED("a: [1, 2\n", "t.yaml:2:1: ", "");
    REFUSED("a: b: c\n", "t.yaml:1:5: ", "");
}

/* What the n copies of a text, between a head and a tail, say when loaded. */
static char *repeated(const char *head, const char *s, size_t n, size_t *size)
{
    size_t h = strlen(head), k = strlen(s);
    char *buf = malloc(h + n * k + 1);
    assert_non_null(buf);
    memcpy(buf, head, h);
    for (size_t i = 0; i < n; i++) {
        memcpy(buf + h + i * k, s, k);
    }
    *size = h + n * k;
    return buf;
}

static void limits(void **state)
{
    (void)state;
    size_t n;
    char *p = repeated("", "[", 100000, &n);
    refused(p, n, "t.yaml:1:33: ", "nested deeper than 32");
    free(p);
    p = repeated("", "{a: ", 100000, &n);
    refused(p, n, "t.yaml:1:", "nested deeper than 32");
    free(p);
    p = repeated("", "- ", 100000, &n);
    refused(p, n, "t.yaml:1:65: ", "nested deeper than 32");
    free(p);
    p = repeated("", "- a\n", 100000, &n);
    refused(p, n, "t.yaml:100000:", "more than 100000 nodes");
    free(p);
    p = repeated("# ", "0123456789", 1 << 20, &n);
    refused(p, n, "t.yaml: ", "more than a config may have");
    free(p);
    p = repeated("", "- a\n", 99998, &n);
    qn_yaml *doc;
    qn_err err;
    assert_int_equal(qn_yaml_load(&doc, p, n, "t.yaml", &err), 0);
    assert_int_equal(qn_yaml_root(doc)->n_child, 99998);
    qn_yaml_free(doc);
    free(p);
}

/* Many keys: the check for duplicates must not be quadratic. */
static void many_keys(void **state)
{
    (void)state;
    char *buf = malloc(90000 * 12);
    assert_non_null(buf);
    size_t n = 0;
    for (int i = 0; i < 90000; i++) {
        n += (size_t)sprintf(buf + n, "k%d:\n", (i * 7919) % 90000);
    }
    qn_yaml *doc;
    qn_err err;
    assert_int_equal(qn_yaml_load(&doc, buf, n, "t.yaml", &err), 0);
    assert_int_equal(qn_yaml_root(doc)->n_child, 90000);
    qn_yaml_free(doc);
    free(buf);
}

static void typed(void **state)
{
    (void)state;
    qn_yaml *doc = load("t: true\nf: false\nno: no\nq: 'true'\ni: -12\nbig: 9223372036854775808\nd: 1e-6\n"
                        "h: 0x10\nx: 1.5.2\nl: [1]\ninf: 1e999\nn: nan\ncomma: 1,5\n");
    const qn_yaml_node *r = qn_yaml_root(doc);
    qn_err err;
    bool b = false;
    assert_int_equal(qn_yaml_bool(qn_yaml_get(r, "t"), &b, &err), 0);
    assert_true(b);
    assert_int_equal(qn_yaml_bool(qn_yaml_get(r, "f"), &b, &err), 0);
    assert_false(b);
    assert_int_equal(qn_yaml_bool(qn_yaml_get(r, "no"), &b, &err), -1);
    assert_string_equal(err.text, "t.yaml:3:5: expected true or false, found no");
    assert_int_equal(qn_yaml_bool(qn_yaml_get(r, "q"), &b, &err), -1);
    int64_t i;
    assert_int_equal(qn_yaml_i64(qn_yaml_get(r, "i"), &i, &err), 0);
    assert_int_equal(i, -12);
    assert_int_equal(qn_yaml_i64(qn_yaml_get(r, "big"), &i, &err), -1);
    assert_int_equal(qn_yaml_i64(qn_yaml_get(r, "h"), &i, &err), -1);
    assert_int_equal(qn_yaml_i64(qn_yaml_get(r, "l"), &i, &err), -1);
    assert_string_equal(err.text, "t.yaml:10:4: expected a whole number, found a list");
    double d;
    assert_int_equal(qn_yaml_f64(qn_yaml_get(r, "d"), &d, &err), 0);
    assert_true(d == 1e-6);
    assert_int_equal(qn_yaml_f64(qn_yaml_get(r, "i"), &d, &err), 0);
    assert_true(d == -12);
    const char *const bad[] = {"x", "inf", "n", "h", "q", "l", "comma"};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        assert_int_equal(qn_yaml_f64(qn_yaml_get(r, bad[k]), &d, &err), -1);
    }
    const char *s;
    assert_int_equal(qn_yaml_text(qn_yaml_get(r, "no"), &s, &err), 0);
    assert_string_equal(s, "no");
    assert_int_equal(qn_yaml_text(qn_yaml_get(r, "l"), &s, &err), -1);
    qn_yaml_free(doc);
}

static void keys(void **state)
{
    (void)state;
    static const char *const known[] = {"n_head", "n_head_kv", "rope_base"};
    qn_err err;
    qn_yaml *doc = load("n_head: 1\n  # comment\nrope_bsae: 2\n");
    assert_int_equal(qn_yaml_check_keys(qn_yaml_root(doc), known, 3, &err), -1);
    assert_string_equal(err.text, "t.yaml:3:1: unknown key \"rope_bsae\" (did you mean \"rope_base\"?)");
    qn_yaml_free(doc);
    doc = load("colour: red\n");
    assert_int_equal(qn_yaml_check_keys(qn_yaml_root(doc), known, 3, &err), -1);
    assert_string_equal(err.text, "t.yaml:1:1: unknown key \"colour\"");
    qn_yaml_free(doc);
    doc = load("- n_head\n");
    assert_int_equal(qn_yaml_check_keys(qn_yaml_root(doc), known, 3, &err), -1);
    qn_yaml_free(doc);
    doc = load("rope_base: 1\nn_head: 2\n");
    assert_int_equal(qn_yaml_check_keys(qn_yaml_root(doc), known, 3, &err), 0);
    qn_yaml_free(doc);
}

static void nearest(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen2", "llama-bpe", "gpt-2", "gpt-4o"};
    assert_string_equal(qn_nearest("qwen3", names, 4), "qwen2");
    assert_string_equal(qn_nearest("lalma-bpe", names, 4), "llama-bpe");
    assert_string_equal(qn_nearest("gpt2", names, 4), "gpt-2");
    assert_string_equal(qn_nearest("gtp-4o", names, 4), "gpt-4o");
    assert_null(qn_nearest("tekken", names, 4));
    assert_null(qn_nearest("", names, 4));
    char longest[200];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_null(qn_nearest(longest, names, 4));
}

static void files(void **state)
{
    (void)state;
    qn_yaml *doc;
    qn_err err;
    char path[] = "/tmp/qn_yaml_XXXXXX";
    assert_non_null(mkdtemp(path));
    char file[64];
    snprintf(file, sizeof file, "%s/x.yaml", path);
    assert_int_equal(qn_yaml_load_file(&doc, file, &err), -1);
    assert_non_null(strstr(err.text, "No such file"));
    assert_int_equal(qn_yaml_load_file(&doc, path, &err), -1);
    assert_non_null(strstr(err.text, "not a regular file"));
    assert_int_equal(mkfifo(file, 0600), 0);
    assert_int_equal(qn_yaml_load_file(&doc, file, &err), -1);
    assert_non_null(strstr(err.text, "not a regular file"));
    unlink(file);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs("a: b\n", f);
    fclose(f);
    assert_int_equal(qn_yaml_load_file(&doc, file, &err), 0);
    assert_string_equal(qn_yaml_get(qn_yaml_root(doc), "a")->text, "b");
    qn_yaml_free(doc);
    assert_int_equal(truncate(file, 10 << 20), 0);
    assert_int_equal(qn_yaml_load_file(&doc, file, &err), -1);
    assert_non_null(strstr(err.text, "10485760 bytes"));
    unlink(file);
    rmdir(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tree),   cmocka_unit_test(accepted_forms), cmocka_unit_test(refusals),
        cmocka_unit_test(limits), cmocka_unit_test(many_keys),      cmocka_unit_test(typed),
        cmocka_unit_test(keys),   cmocka_unit_test(nearest),        cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
