// rooms: room_text quern_jansson
/* Long runs of one character and long prose: time per byte stays flat (B14), no limit of the regex engine
 * loses text, under every pre-tokenizer there is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

#include "model/embedded.h"
#include "model/yaml.h"
#include "tests/unit/tok_cases.h"

enum { RUN = 200000, N_LONG = 7, HANG_SECONDS = 600 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Tokenises, checks that nothing was lost, and returns the number of ids. */
static size_t round_trip(const qn_tokenizer *t, const char *text, size_t len, const char *label)
{
    int32_t *ids;
    size_t n, back_len;
    char *back;
    qn_err err;
    double start = seconds();
    if (qn_tokenize(t, text, len, false, false, &ids, &n, &err)) {
        fail_msg("%s: %s", label, err.text);
    }
    double took = seconds() - start;
    if (took > HANG_SECONDS) {
        fail_msg("%s: %zu bytes took %.1f s", label, len, took);
    }
    assert_int_equal(qn_detokenize(t, ids, n, 0, &back, &back_len, &err), 0);
    if (back_len != len || memcmp(back, text, len) != 0) {
        fail_msg("%s: %zu bytes went in, %zu came back", label, len, back_len);
    }
    free(back);
    free(ids);
    return n;
}

static char *repeat(const char *unit, size_t n, size_t *len)
{
    size_t k = strlen(unit);
    char *p = malloc(n * k + 1);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++) {
        memcpy(p + i * k, unit, k);
    }
    *len = n * k;
    p[*len] = '\0';
    return p;
}

/* The first N_LONG at full length. */
static const char *const units[] = {"a", " ",      "\n", "1",  "漢",     "A",   "!",      "\r\n",   "\t",
                                    "'", "a ",     " a", "aA", "1 ",     "\n ", "é",      "\u0301", "😀",
                                    "٣", "\u00a0", "'s", "ａ", "\u2028", "<",   "a\u0301"};

static void run_all(const qn_tokenizer *t, const char *name)
{
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        char label[128];
        size_t len, n = i < N_LONG ? RUN : RUN / 10;
        char *text = repeat(units[i], n, &len);
        snprintf(label, sizeof label, "%s: %zu x \"%s\"", name, n, units[i]);
        round_trip(t, text, len, label);
        free(text);
    }
}

/* Every embedded pre-tokenizer over the same vocabulary. */
static void every_pre_tokenizer(void **state)
{
    (void)state;
    qn_gguf *g = tc_open("gpt-2");
    int n = 0;
    for (const qn_embedded *e = qn_embedded_files; e->name; e++) {
        qn_yaml *doc;
        qn_err err;
        if (strncmp(e->name, "model_configs/tokenizers/", 25) != 0) {
            continue;
        }
        assert_int_equal(qn_yaml_load(&doc, e->data, e->size, e->name, &err), 0);
        const qn_yaml_node *pre = qn_yaml_get(qn_yaml_root(doc), "pre");
        const qn_yaml_node *raw = qn_yaml_get(qn_yaml_root(doc), "byte_encode");
        if (pre && !raw) { /* the vocabulary is over bytes */
            qn_tok_opts opts = {.pre = pre->child->text};
            qn_tokenizer *t;
            if (qn_tokenizer_new(&t, g, &opts, &err)) {
                fail_msg("%s", err.text);
            }
            double start = seconds();
            run_all(t, pre->child->text);
            print_message("%-16s %.2f s\n", pre->child->text, seconds() - start);
            qn_tokenizer_free(t);
            n++;
        }
        qn_yaml_free(doc);
    }
    qn_gguf_close(g);
    assert_in_range(n, 20, 200);
}

static void sentence_piece(void **state)
{
    (void)state;
    qn_tokenizer *t = tc_load("llama-spm");
    run_all(t, "llama-spm");
    qn_tokenizer_free(t);
}

static void counts(void **state)
{
    (void)state;
    static const struct {
        const char *vocabulary, *unit;
        size_t n;
    } rows[] = {
        {"gpt-2", "a", 50000},      /* "aaaa" */
        {"gpt-2", "\n", 100000},    /* "\n\n" */
        {"llama-spm", "1", 200001}, /* single digits, and the space in front */
        {"llama-spm", "\n", 200001},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        qn_tokenizer *t = tc_load(rows[i].vocabulary);
        size_t len;
        char *text = repeat(rows[i].unit, RUN, &len);
        assert_int_equal(round_trip(t, text, len, rows[i].unit), rows[i].n);
        free(text);
        qn_tokenizer_free(t);
    }
}

/* Words of random letters and lengths, sentences, paragraphs. */
static char *prose(size_t len)
{
    static const char *const words[] = {
        "the",  "of",     "and",   "miller", "grinds", "corn", "between", "two",  "stones",    "which",
        "turn", "slowly", "water", "wheel",  "don't",  "1847", "flour",   "it's", "threshold", "Tuesday"};
    char *p = malloc(len + 1);
    assert_non_null(p);
    uint32_t seed = 3;
    size_t n = 0;
    while (n < len) {
        seed = seed * 1664525 + 1013904223;
        const char *w = words[(seed >> 16) % (sizeof words / sizeof words[0])];
        const char *sep = (seed >> 8) % 11 == 0 ? ". " : (seed >> 8) % 97 == 0 ? ".\n\n" : " ";
        for (const char *s = w; *s && n < len; s++) {
            p[n++] = *s;
        }
        for (const char *s = sep; *s && n < len; s++) {
            p[n++] = *s;
        }
    }
    p[len] = '\0';
    return p;
}

static void long_prose(void **state)
{
    (void)state;
    static const char *const all[] = {"gpt-2", "falcon", "llama-spm"};
    static const size_t sizes[] = {100000, 1000000, 4000000}; /* bug-B14 compares times */
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        qn_tokenizer *t = tc_load(all[i]);
        char *text = prose(sizes[2]);
        for (int k = 0; k < 3; k++) {
            double start = seconds();
            round_trip(t, text, sizes[k], "prose");
            print_message("%s: %zu bytes %.3f s\n", all[i], sizes[k], seconds() - start);
        }
        free(text);
        qn_tokenizer_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pre_tokenizer),
        cmocka_unit_test(sentence_piece),
        cmocka_unit_test(counts),
        cmocka_unit_test(long_prose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
