// rooms: room_base
#include "base/alloc.h"
#include "base/error.h"
#include "base/half.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- error ---- */

static void fail_formats_and_returns_minus_one(void **state)
{
    (void)state;
    qn_err err;
    assert_int_equal(qn_fail(&err, "%s: %s is %d, should be %d", "a.gguf", "n_head", 3, 4), -1);
    assert_string_equal(err.text, "a.gguf: n_head is 3, should be 4");
}

static void control_bytes_become_question_marks(void **state)
{
    (void)state;
    qn_err err;
    qn_fail(&err, "name %s", "a\nb\x1b[31m\x7f\tz \xc3\xa9");
    assert_string_equal(err.text, "name a?b?[31m??z \xc3\xa9");
    qn_fail(&err, "inner");
    qn_fail_prefix(&err, "x\r\ny");
    assert_string_equal(err.text, "x??y: inner");
}

static void long_messages_are_cut(void **state)
{
    (void)state;
    struct {
        qn_err err;
        char guard[8];
    } s;
    char text[3 * QN_ERR_MAX];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    memset(s.guard, 0x5a, sizeof s.guard);
    assert_int_equal(qn_fail(&s.err, "%s", text), -1);
    assert_int_equal(strlen(s.err.text), QN_ERR_MAX - 1);
    for (size_t i = 0; i < sizeof s.guard; i++) {
        assert_int_equal(s.guard[i], 0x5a);
    }
}

static void prefixes_stand_in_front(void **state)
{
    (void)state;
    qn_err err;
    qn_fail(&err, "tensor %s is missing", "output.weight");
    assert_int_equal(qn_fail_prefix(&err, "layer %d", 7), -1);
    qn_fail_prefix(&err, "%s", "m.gguf");
    assert_string_equal(err.text, "m.gguf: layer 7: tensor output.weight is missing");
}

static void long_prefix_leaves_room_for_the_message(void **state)
{
    (void)state;
    qn_err err;
    char head[2 * QN_ERR_MAX];
    memset(head, 'h', sizeof head - 1);
    head[sizeof head - 1] = '\0';
    for (size_t n = QN_ERR_MAX / 2 - 2; n < sizeof head; n = n < QN_ERR_MAX / 2 + 2 ? n + 1 : n + 97) {
        qn_fail(&err, "the cause");
        qn_fail_prefix(&err, "%.*s", (int)n, head);
        size_t len = strlen(err.text);
        assert_true(len < QN_ERR_MAX);
        assert_string_equal(err.text + len - strlen(": the cause"), ": the cause");
    }
    memset(err.text, 'm', sizeof err.text - 1); /* both long: cut, still terminated */
    err.text[sizeof err.text - 1] = '\0';
    qn_fail_prefix(&err, "%s", head);
    assert_true(memchr(err.text, '\0', sizeof err.text) != NULL);
    assert_non_null(strstr(err.text, "hh: mm"));
}

/* ---- alloc ---- */

/* The sanitizers stop at absurd sizes unless told that NULL is an answer. */
const char *__asan_default_options(void);
const char *__tsan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}
const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static void products_and_sums_are_checked(void **state)
{
    (void)state;
    uint64_t v = 0;
    assert_true(qn_mul_u64(UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1, &v));
    assert_true(v == UINT64_C(0xffffffff00000000));
    assert_false(qn_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &v));
    assert_false(qn_mul_u64(UINT64_MAX, 2, &v));
    assert_true(qn_mul_u64(UINT64_MAX, 0, &v));
    assert_true(v == 0);
    assert_true(qn_add_u64(UINT64_MAX, 0, &v));
    assert_true(v == UINT64_MAX);
    assert_false(qn_add_u64(UINT64_MAX, 1, &v));
}

/* Sizes the compiler cannot see through, so that it does not warn of them. */
static size_t hidden(size_t n)
{
    volatile size_t v = n;
    return v;
}

static void calloc_is_zeroed_and_refuses_overflow(void **state)
{
    (void)state;
    unsigned char *p = qn_calloc(1000, 3);
    assert_non_null(p);
    for (int i = 0; i < 3000; i++) {
        assert_int_equal(p[i], 0);
    }
    free(p);
    assert_null(qn_calloc(hidden(SIZE_MAX / 2 + 2), 2));
    assert_null(qn_calloc(hidden(SIZE_MAX / 8), 16));
    p = qn_calloc(0, 16); /* NULL means failure only */
    assert_non_null(p);
    free(p);
    p = qn_calloc(16, 0);
    assert_non_null(p);
    free(p);
}

static void alloc64_is_aligned_and_refuses_overflow(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4097, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *p = qn_alloc64(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        memset(p, 0x7f, sizes[i]);
        free(p);
    }
    for (size_t back = 0; back < 130; back++) {
        assert_null(qn_alloc64(hidden(SIZE_MAX - back)));
    }
}

static void arena_pieces_are_zeroed_aligned_and_disjoint(void **state)
{
    (void)state;
    enum { N = 3000 };
    qn_arena a = {0};
    unsigned char *p[N];
    size_t size[N];
    for (int i = 0; i < N; i++) {
        size[i] = i % 500 == 499 ? 100000 : (size_t)(i * 37 % 301); /* some larger than a block, some empty */
        p[i] = qn_arena_alloc(&a, size[i]);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 16, 0);
        for (size_t j = 0; j < size[i]; j++) {
            assert_int_equal(p[i][j], 0);
        }
        memset(p[i], i & 0xff, size[i]);
    }
    for (int i = 0; i < N; i++) {
        for (size_t j = 0; j < size[i]; j++) {
            assert_int_equal(p[i][j], i & 0xff);
        }
    }
    qn_arena_free(&a);
    assert_null(a.head);
    assert_non_null(qn_arena_alloc(&a, 8)); /* usable again */
    qn_arena_free(&a);
    qn_arena_free(&a);
}

static void arena_refuses_overflow(void **state)
{
    (void)state;
    qn_arena a = {0};
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 15, SIZE_MAX - 16, SIZE_MAX / 2 + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_null(qn_arena_alloc(&a, hidden(sizes[i])));
        assert_null(qn_arena_strndup(&a, "x", hidden(sizes[i])));
    }
    assert_null(qn_arena_strndup(&a, "x", hidden(SIZE_MAX / 2)));
    assert_non_null(qn_arena_alloc(&a, 1)); /* a refusal leaves the arena sound */
    qn_arena_free(&a);
}

static void arena_strndup_copies_and_terminates(void **state)
{
    (void)state;
    qn_arena a = {0};
    static const char bytes[] = {'a', '\0', 'b', 'c'};
    char *s = qn_arena_strndup(&a, bytes, sizeof bytes);
    assert_memory_equal(s, bytes, sizeof bytes);
    assert_int_equal(s[sizeof bytes], 0);
    s = qn_arena_strndup(&a, "sixteen bytes ..", 16);
    assert_string_equal(s, "sixteen bytes ..");
    assert_string_equal(qn_arena_strndup(&a, "", 0), "");
    qn_arena_free(&a);
}

/* ---- half ---- */

/* Value of a binary16 pattern, from the format's definition. */
static double f16_value(uint16_t h)
{
    int exp = (h >> 10) & 0x1f, man = h & 0x3ff;
    double v = exp == 0x1f ? (man ? NAN : INFINITY) : exp ? ldexp(1024 + man, exp - 25) : ldexp(man, -24);
    return h & 0x8000 ? -v : v;
}

/* Nearest binary16 pattern to x (not NaN), ties to even, through double: nearbyint rounds x divided by the
 * quantum of its binade. */
static uint16_t f16_reference(float x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double a = fabs((double)x);
    int e = 0;
    frexp(a, &e); /* a in [2^(e-1), 2^e) */
    if (isinf(a) || e > 16) {
        return sign | 0x7c00;
    }
    int q = e - 11 < -24 ? -24 : e - 11; /* 11 significant bits, no finer than 2^-24 */
    double n = nearbyint(ldexp(a, -q));  /* 0..2048 */
    double v = ldexp(n, q);
    if (v >= 65536) {
        return sign | 0x7c00;
    }
    if (v < 0x1p-14) {
        return (uint16_t)(sign | (int)ldexp(v, 24));
    }
    frexp(v, &e);
    return (uint16_t)(sign | ((e + 14) << 10) | ((int)ldexp(v, 11 - e) - 1024));
}

static void check_to_f16(uint32_t bits)
{
    float x = qn_f32_from_bits(bits);
    uint16_t got = qn_f32_to_f16(x);
    uint16_t want = f16_reference(x);
    if (got != want) {
        fail_msg("f32 %08x (%a) -> f16 %04x, should be %04x", bits, (double)x, got, want);
    }
#ifdef __FLT16_MAX__
    _Float16 h = (_Float16)x;
    memcpy(&want, &h, sizeof want);
    if (got != want) {
        fail_msg("f32 %08x (%a) -> f16 %04x, the compiler's conversion gives %04x", bits, (double)x, got,
                 want);
    }
#endif
}

static void every_f16_goes_to_f32_and_back(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = qn_f16_to_f32((uint16_t)h);
        double v = f16_value((uint16_t)h);
        if (isnan(v)) {
            assert_true(isnan(f));
            uint16_t back = qn_f32_to_f16(f);
            assert_true(isnan(f16_value(back)));
            assert_int_equal(back & 0x8000, h & 0x8000);
            continue;
        }
        if ((double)f != v || !signbit(f) != !signbit(v)) {
            fail_msg("f16 %04x -> %a, should be %a", h, (double)f, v);
        }
        assert_int_equal(qn_f32_to_f16(f), h);
    }
}

/* Around every value and every midpoint of neighbours, both signs. */
static void f32_rounds_to_nearest_even_f16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double lo = f16_value((uint16_t)h);
        double hi = h == 0x7bff ? 65536.0 : f16_value((uint16_t)(h + 1));
        float mid = (float)((lo + hi) / 2); /* exact: one bit more than binary16 */
        assert_true((double)mid == (lo + hi) / 2);
        for (int s = 0; s < 2; s++) {
            uint32_t sign = s ? 0x80000000u : 0, m = qn_f32_bits(mid), v = qn_f32_bits((float)lo);
            for (int d = -2; d <= 2; d++) {
                check_to_f16(sign | (m + (uint32_t)d));
                if (d >= 0 || v) {
                    check_to_f16(sign | (v + (uint32_t)d));
                }
            }
        }
        /* Independent of the reference above: the tie goes to the even pattern. */
        assert_int_equal(qn_f32_to_f16(mid), h & 1 ? h + 1 : h);
    }
}

static void f32_to_f16_over_the_whole_range(void **state)
{
    (void)state;
    for (uint64_t u = 0; u < 0x100000000u; u += 4093) { /* prime: the low bits vary too */
        if ((u & 0x7fffffffu) <= 0x7f800000u) {
            check_to_f16((uint32_t)u);
        } else {
            uint16_t h = qn_f32_to_f16(qn_f32_from_bits((uint32_t)u));
            assert_true(isnan(f16_value(h)));
        }
    }
}

static void every_bf16_goes_to_f32_and_back(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = qn_bf16_to_f32((uint16_t)h);
        assert_int_equal(qn_f32_bits(f), h << 16);
        uint16_t back = qn_f32_to_bf16(f);
        assert_int_equal(isnan(f) ? back | 0x40u : back, isnan(f) ? h | 0x40u : h);
    }
}

static void f32_rounds_to_nearest_even_bf16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7f80; h++) { /* every finite magnitude */
        uint32_t u = h << 16;
        for (uint32_t sign = 0; sign < 2; sign++) {
            uint32_t s = sign << 31, hs = h | sign << 15;
            assert_int_equal(qn_f32_to_bf16(qn_f32_from_bits(s | u | 0x7fff)), hs);
            assert_int_equal(qn_f32_to_bf16(qn_f32_from_bits(s | u | 0x8000)), h & 1 ? hs + 1 : hs);
            assert_int_equal(qn_f32_to_bf16(qn_f32_from_bits(s | u | 0x8001)), hs + 1);
            assert_int_equal(qn_f32_to_bf16(qn_f32_from_bits(s | u | 0xffff)), hs + 1);
        }
    }
    static const uint32_t nans[] = {0x7f800001, 0x7fffffff, 0xff800001, 0xffffffff, 0x7fc00000};
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) { /* a NaN must not round up to -0 */
        uint16_t h = qn_f32_to_bf16(qn_f32_from_bits(nans[i]));
        assert_true((h & 0x7fff) > 0x7f80);
        assert_int_equal(h >> 15, nans[i] >> 31);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fail_formats_and_returns_minus_one),
        cmocka_unit_test(control_bytes_become_question_marks),
        cmocka_unit_test(long_messages_are_cut),
        cmocka_unit_test(prefixes_stand_in_front),
        cmocka_unit_test(long_prefix_leaves_room_for_the_message),
        cmocka_unit_test(products_and_sums_are_checked),
        cmocka_unit_test(calloc_is_zeroed_and_refuses_overflow),
        cmocka_unit_test(alloc64_is_aligned_and_refuses_overflow),
        cmocka_unit_test(arena_pieces_are_zeroed_aligned_and_disjoint),
        cmocka_unit_test(arena_refuses_overflow),
        cmocka_unit_test(arena_strndup_copies_and_terminates),
        cmocka_unit_test(every_f16_goes_to_f32_and_back),
        cmocka_unit_test(f32_rounds_to_nearest_even_f16),
        cmocka_unit_test(f32_to_f16_over_the_whole_range),
        cmocka_unit_test(every_bf16_goes_to_f32_and_back),
        cmocka_unit_test(f32_rounds_to_nearest_even_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
