// rooms: room_text
/* B12, B32: stop strings across pieces; text that may begin one is held back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "text/stop.h"

/* Feeds `text` in pieces of `step` bytes; what came out is in `out`. Returns the stop string met or -1. */
static int feed(const char *const *stops, size_t n_stops, const char *text, size_t step, char *out)
{
    qn_stop *s;
    qn_err err;
    assert_int_equal(qn_stop_new(&s, stops, n_stops, &err), 0);
    size_t n = strlen(text), len = 0, k;
    const char *p;
    int found = -1, hit;
    for (size_t i = 0; i < n; i += step) {
        assert_int_equal(qn_stop_feed(s, text + i, step < n - i ? step : n - i, &p, &k, &hit, &err), 0);
        memcpy(out + len, p, k);
        len += k;
        if (hit >= 0) {
            assert_int_equal(found, -1);
            found = hit;
        }
    }
    qn_stop_flush(s, &p, &k);
    memcpy(out + len, p, k);
    out[len + k] = '\0';
    qn_stop_free(s);
    return found;
}

static void expect(const char *const *stops, size_t n, const char *text, int found, const char *shown)
{
    for (size_t step = 1; step <= 12; step++) {
        char out[256];
        assert_int_equal(feed(stops, n, text, step, out), found);
        assert_string_equal(out, shown);
    }
}

#define LIST(...)                                                                                            \
    (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)

static void cases(void **state)
{
    (void)state;
    expect(NULL, 0, "anything", -1, "anything");
    expect(LIST("STOP"), "no such word", -1, "no such word");
    expect(LIST("STOP"), "before STOP after STOP", 0, "before ");
    expect(LIST("STOP"), "STO", -1, "STO");
    expect(LIST("STOP"), "STSTOSTOPx", 0, "STSTO");
    expect(LIST("aab"), "aaaaab!", 0, "aaa");
    expect(LIST("abab", "\n\n"), "x\n y\n\nz", 1, "x\n y");
    expect(LIST("abc", "bc"), "xabc", 0, "x"); /* complete at once: the longer */
    expect(LIST("abcd", "bc"), "xabcd", 1, "xa");
    expect(LIST("###", "User:"), "Hi #, ## and ####", 0, "Hi #, ## and ");
    expect(LIST("\xe2\x96\x81"), "a\xe2\x96\x82\xe2\x96\x81", 0, "a\xe2\x96\x82");
    expect(LIST("x"), "x", 0, "");
    expect(LIST("x"), "", -1, "");
}

static void holds_back(void **state)
{
    (void)state;
    qn_stop *s;
    qn_err err;
    const char *p;
    size_t n;
    int hit;
    assert_int_equal(qn_stop_new(&s, LIST("<end>"), &err), 0);
    assert_int_equal(qn_stop_feed(s, "abc <", 5, &p, &n, &hit, &err), 0);
    assert_int_equal(n, 4);
    assert_memory_equal(p, "abc ", 4);
    assert_int_equal(qn_stop_feed(s, "en", 2, &p, &n, &hit, &err), 0);
    assert_int_equal(n, 0);
    assert_int_equal(qn_stop_feed(s, "t", 1, &p, &n, &hit, &err), 0);
    assert_int_equal(n, 4);
    assert_memory_equal(p, "<ent", 4);
    assert_int_equal(qn_stop_feed(s, "<end>tail", 9, &p, &n, &hit, &err), 0);
    assert_int_equal(n, 0);
    assert_int_equal(hit, 0);
    assert_int_equal(qn_stop_feed(s, "more", 4, &p, &n, &hit, &err), 0);
    assert_int_equal(n, 0);
    assert_int_equal(hit, -1);
    qn_stop_flush(s, &p, &n);
    assert_int_equal(n, 0);
    qn_stop_free(s);
    qn_stop_free(NULL);
}

static void empty_string(void **state)
{
    (void)state;
    qn_stop *s;
    qn_err err;
    assert_int_equal(qn_stop_new(&s, LIST("a", ""), &err), -1);
    assert_null(s);
}

/* Against a search over the whole text, over a small alphabet. */
static void random_texts(void **state)
{
    (void)state;
    uint32_t seed = 7;
    for (int round = 0; round < 3000; round++) {
        char text[40], a[8], b[8], out[64], want[64];
        char *const part[] = {text, a, b};
        const int size[] = {39, 1 + round % 6, 1 + round % 4};
        for (int k = 0; k < 3; k++) {
            for (int i = 0; i < size[k]; i++) {
                seed = seed * 1664525 + 1013904223;
                part[k][i] = (char)('a' + (seed >> 20) % 2);
            }
            part[k][size[k]] = '\0';
        }
        const char *const stops[] = {a, b};
        size_t end = SIZE_MAX, begin = SIZE_MAX;
        for (int k = 0; k < 2; k++) { /* least end, then least begin */
            const char *p = strstr(text, stops[k]);
            size_t e = p ? (size_t)(p - text) + strlen(stops[k]) : SIZE_MAX;
            if (p && (e < end || (e == end && (size_t)(p - text) < begin))) {
                end = e;
                begin = (size_t)(p - text);
            }
        }
        strcpy(want, text);
        if (begin != SIZE_MAX) {
            want[begin] = '\0';
        }
        int found = feed(stops, 2, text, 1 + (size_t)round % 7, out);
        assert_int_equal(found >= 0, begin != SIZE_MAX);
        assert_string_equal(out, want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases),
        cmocka_unit_test(holds_back),
        cmocka_unit_test(empty_string),
        cmocka_unit_test(random_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
