// rooms: room_text
/* B12: what streams out is valid UTF-8 whatever the pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "text/unicode_class.h"
#include "text/utf8.h"

static void next_is(const char *s, size_t n, int want, uint32_t want_cp)
{
    uint32_t cp = 0xffffffff;
    assert_int_equal(qn_utf8_next((const unsigned char *)s, n, &cp), want);
    if (want > 0) {
        assert_int_equal(cp, want_cp);
    }
}

static void next(void **state)
{
    (void)state;
    next_is("A", 1, 1, 'A');
    next_is("\0", 1, 1, 0);
    next_is("\xc3\xa9", 2, 2, 0xe9);
    next_is("\xe4\xb8\xad", 3, 3, 0x4e2d);
    next_is("\xf0\x9f\x98\x80", 4, 4, 0x1f600);
    next_is("\xf4\x8f\xbf\xbf", 4, 4, 0x10ffff);
    next_is("\xc3", 1, 0, 0);
    next_is("\xe4\xb8", 2, 0, 0);
    next_is("\xf0\x9f\x98", 3, 0, 0);
    next_is("\x80", 1, -1, 0);
    next_is("\xc0\x80", 2, -1, 0);         /* overlong */
    next_is("\xe0\x80\x80", 3, -1, 0);     /* overlong */
    next_is("\xed\xa0\x80", 3, -1, 0);     /* surrogate */
    next_is("\xf4\x90\x80\x80", 4, -1, 0); /* above U+10FFFF */
    next_is("\xf5", 1, -1, 0);
    next_is("\xff", 1, -1, 0);
    next_is("\xc3q", 2, -1, 0);
    next_is("\xe4\xb8q", 3, -2, 0);
    next_is("\xf0\x9f\x98q", 4, -3, 0);
}

/* Every code point there and back. */
static void round_trip(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp <= 0x10ffff; cp++) {
        unsigned char s[4];
        uint32_t back;
        int n = qn_utf8_put(cp, s);
        int k = qn_utf8_next(s, (size_t)n, &back);
        if (cp >= 0xd800 && cp <= 0xdfff) {
            assert_int_equal(k, -1);
        } else {
            assert_int_equal(k, n);
            assert_int_equal(back, cp);
            assert_int_equal(qn_utf8_lead_len(s[0]), n);
        }
    }
}

/* Feeds s in pieces of `step` bytes; what comes out, NUL-terminated in out. */
static void stream(const char *s, size_t n, size_t step, char *out)
{
    qn_utf8_stream u = {0};
    size_t len = 0;
    for (size_t i = 0; i < n; i += step) {
        size_t k = step < n - i ? step : n - i;
        char piece[QN_UTF8_OUT(64)];
        size_t got = qn_utf8_feed(&u, s + i, k, piece);
        assert_true(got <= QN_UTF8_OUT(k));
        memcpy(out + len, piece, got);
        len += got;
    }
    len += qn_utf8_flush(&u, out + len);
    out[len] = '\0';
}

static void streams_to(const char *s, const char *want)
{
    for (size_t step = 1; step <= 7; step++) {
        char out[256];
        stream(s, strlen(s), step, out);
        assert_string_equal(out, want);
    }
}

#define R "\xef\xbf\xbd"

static void streams(void **state)
{
    (void)state;
    streams_to("", "");
    streams_to("plain", "plain");
    streams_to("a\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80z", "a\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80z");
    streams_to("\xf0\x9f\x98", R);
    streams_to("a\xc3", "a" R);
    streams_to("\xe4\xb8q", R "q");
    streams_to("\xff\xfe", R R);
    streams_to("\xf0\x9f\xf0\x9f\x98\x80", R "\xf0\x9f\x98\x80");
    streams_to("\xed\xa0\x80", R R R);
    streams_to("\xe4\xe4\xb8\xad", R "\xe4\xb8\xad");
}

/* Nothing is let out before it is certain, and nothing is held back once it is. */
static void holds_back(void **state)
{
    (void)state;
    qn_utf8_stream u = {0};
    char out[64];
    assert_int_equal(qn_utf8_feed(&u, "a\xf0\x9f", 3, out), 1);
    assert_int_equal(qn_utf8_feed(&u, "\x98", 1, out), 0);
    assert_int_equal(qn_utf8_feed(&u, "\x80", 1, out), 4);
    assert_memory_equal(out, "\xf0\x9f\x98\x80", 4);
    assert_int_equal(qn_utf8_flush(&u, out), 0);
}

/* Random bytes: the pieces do not matter, and the output is valid. */
static void random_bytes(void **state)
{
    (void)state;
    uint32_t seed = 1;
    for (int round = 0; round < 2000; round++) {
        char s[41], whole[256], parts[256];
        for (int i = 0; i < 40; i++) {
            seed = seed * 1664525 + 1013904223;
            static const unsigned char pool[] = {0x41, 0x80, 0xbf, 0xc3, 0xe0, 0xa0,
                                                 0xed, 0x9f, 0xf0, 0x90, 0xf4, 0x8f};
            s[i] = (char)pool[(seed >> 16) % sizeof pool];
        }
        stream(s, 40, 40, whole);
        stream(s, 40, 1 + (size_t)round % 5, parts);
        assert_string_equal(whole, parts);
        for (size_t i = 0, n = strlen(whole); i < n;) {
            uint32_t cp;
            int k = qn_utf8_next((const unsigned char *)whole + i, n - i, &cp);
            assert_true(k > 0);
            i += (size_t)k;
        }
    }
}

static void classes(void **state)
{
    (void)state;
    static const struct {
        uint32_t cp;
        qn_uclass cls;
    } rows[] = {
        {0x80, QN_UC_OTHER},     {0x85, QN_UC_SPACE},     {0xa0, QN_UC_SPACE},     {0xa1, QN_UC_PUNCT},
        {0xaa, QN_UC_LETTER},    {0xad, QN_UC_OTHER},     {0xb2, QN_UC_NUMBER},    {0xd7, QN_UC_SYMBOL},
        {0xe9, QN_UC_LETTER},    {0x301, QN_UC_MARK},     {0x660, QN_UC_NUMBER},   {0x180e, QN_UC_OTHER},
        {0x2028, QN_UC_SPACE},   {0x3000, QN_UC_SPACE},   {0x4e2d, QN_UC_LETTER},  {0xd800, QN_UC_OTHER},
        {0xfffd, QN_UC_SYMBOL},  {0x1f600, QN_UC_SYMBOL}, {0x31350, QN_UC_LETTER}, {0x1e4ef, QN_UC_MARK},
        {0x10ffff, QN_UC_OTHER}, {0x110000, QN_UC_OTHER}, {0x7f, QN_UC_OTHER},     {0x2ebf0, QN_UC_LETTER},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(qn_unicode_class(rows[i].cp), rows[i].cls);
    }
    assert_int_equal(qn_unicode_runs[0] >> 3, 0x80);
    for (size_t i = 1; i < qn_unicode_n_runs; i++) {
        assert_true(qn_unicode_runs[i - 1] >> 3 < qn_unicode_runs[i] >> 3);
        assert_int_not_equal(qn_unicode_runs[i - 1] & 7, qn_unicode_runs[i] & 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(next),       cmocka_unit_test(round_trip),   cmocka_unit_test(streams),
        cmocka_unit_test(holds_back), cmocka_unit_test(random_bytes), cmocka_unit_test(classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
