// rooms: room_cuda
// What may be chosen of a launch: which values fit, which are tried, their text, and the choice by times.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "cuda/knobs.h"

static const qn_knobs q8 = {.warps = 16, .slices = 1, .ahead = 2, .per_sm = 1};
static const qn_knob_room span1 = {.parts = 1, .most_kept = 2, .rows = 4096};
static const qn_knob_room span3 = {.parts = 3, .most_kept = 2, .rows = 4096};

static void what_fits(void **state)
{
    (void)state;
    qn_knobs k = q8;
    assert_true(qn_knobs_fit(QN_KNOBS_Q8, &span1, &k));
    assert_false(qn_knobs_fit(QN_KNOBS_Q8, &span3, &k)); // three spans of activations in one warp's registers
    k.slices = 2;
    assert_false(qn_knobs_fit(QN_KNOBS_Q8, &span1, &k)); // a row of one span
    assert_true(qn_knobs_fit(QN_KNOBS_Q8, &span3, &k));
    k.slices = 3;
    assert_false(qn_knobs_fit(QN_KNOBS_Q8, &span3, &k)); // 16 warps are no multiple of 3
    k.warps = 15;
    assert_true(qn_knobs_fit(QN_KNOBS_Q8, &span3, &k));
    static const qn_knobs bad[] = {{0, 1, 2, 1, 0, 0, 0},  {17, 1, 2, 1, 0, 0, 0}, {16, 0, 2, 1, 0, 0, 0},
                                   {16, 1, 0, 1, 0, 0, 0}, {16, 1, 5, 1, 0, 0, 0}, {16, 1, 2, 0, 0, 0, 0},
                                   {16, 1, 2, 3, 0, 0, 0}, {-8, 1, 2, 1, 0, 0, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(qn_knobs_fit(QN_KNOBS_Q8, &span1, &bad[i]));
    }
    const qn_knob_room half = {.parts = 8, .rows = 100, .sums = 4};
    k = (qn_knobs){.warps = 16, .slices = 4, .ahead = 4, .per_sm = 2};
    assert_true(qn_knobs_fit(QN_KNOBS_HALF, &half, &k));
    k.slices = 8; // more sums than shared memory is kept for
    assert_false(qn_knobs_fit(QN_KNOBS_HALF, &half, &k));
    const qn_knob_room tiles = {.warp_bytes = 100,
                                .tile_bytes = 1000,
                                .fixed_bytes = 500,
                                .merge_bytes = 10,
                                .limit = 8 * 2100 + 500};
    k = (qn_knobs){.warps = 8, .ahead = 2, .split = 16, .alone = 16, .least = 8};
    assert_true(qn_knobs_fit(QN_KNOBS_MMA, &tiles, &k));
    k.ahead = 3;
    assert_false(qn_knobs_fit(QN_KNOBS_MMA, &tiles, &k));
    k.warps = 4;
    assert_true(qn_knobs_fit(QN_KNOBS_MMA, &tiles, &k));
    k.split = 65;
    assert_false(qn_knobs_fit(QN_KNOBS_MMA, &tiles, &k));
}

static void check_candidates(const qn_site *s, int least)
{
    qn_knobs c[QN_KNOB_CANDIDATES];
    char text[QN_KNOB_TEXT], other[QN_KNOB_TEXT];
    int n = qn_knobs_candidates(s, c);
    assert_true(n >= least);
    for (int i = 0; i < n; i++) {
        assert_true(qn_knobs_fit(s->kind, &s->room, &c[i]));
        qn_knobs_text(s->kind, &c[i], text);
        assert_string_not_equal(text, qn_knobs_text(s->kind, &s->shipped, other));
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(text, qn_knobs_text(s->kind, &c[k], other));
        }
    }
}

static void candidates_fit_and_differ(void **state)
{
    (void)state;
    qn_site s = {.kind = QN_KNOBS_Q8, .shipped = q8, .room = span1};
    check_candidates(&s, 8);
    s.room = span3;
    s.shipped.slices = 3;
    s.shipped.warps = 15;
    check_candidates(&s, 8); // whole teams of three warps
    s = (qn_site){.kind = QN_KNOBS_HALF, .shipped = q8, .room = {.parts = 8, .rows = 100, .sums = 6144}};
    check_candidates(&s, 8);
    s.kind = QN_KNOBS_COLS;
    check_candidates(&s, 3);
    s = (qn_site){.kind = QN_KNOBS_PLAIN, .shipped = {.warps = 4}};
    check_candidates(&s, 2);
    s = (qn_site){.kind = QN_KNOBS_MMA,
                  .shipped = {.warps = 8, .ahead = 2, .split = 16, .alone = 16, .least = 8},
                  .room = {.tile_bytes = 8704, .merge_bytes = 2144, .limit = 227 * 1024}};
    check_candidates(&s, 8);
    s.room.limit = 8 * 2 * 8704; // nothing more than shipped
    check_candidates(&s, 6);
    s.room.split = 5; // of a card with fewer multiprocessors: the first to be tried
    qn_knobs c[QN_KNOB_CANDIDATES];
    assert_true(qn_knobs_candidates(&s, c) > 0);
    assert_int_equal(c[0].split, 5);
    assert_int_equal(c[0].warps, 8);
    s = (qn_site){.kind = QN_KNOBS_ROWS,
                  .shipped = {.warps = 4, .split = 33},
                  .room = {.warp_bytes = 4000, .limit = 99 * 1024}};
    check_candidates(&s, 3);
}

static void what_orders_sums(void **state)
{
    (void)state;
    qn_knobs k = {.warps = 8, .slices = 1, .ahead = 4, .per_sm = 2};
    assert_true(qn_knobs_same_sums(QN_KNOBS_Q8, &q8, &k));
    k.slices = 2;
    assert_false(qn_knobs_same_sums(QN_KNOBS_Q8, &q8, &k));
    const qn_knobs a = {.warps = 8, .ahead = 2, .split = 16, .alone = 16, .least = 8};
    qn_knobs b = a;
    b.ahead = 1;
    assert_true(qn_knobs_same_sums(QN_KNOBS_MMA, &a, &b));
    b.warps = 4;
    assert_false(qn_knobs_same_sums(QN_KNOBS_MMA, &a, &b));
    b = a;
    b.least = 4;
    assert_false(qn_knobs_same_sums(QN_KNOBS_MMA, &a, &b));
}

static void text_and_back(void **state)
{
    (void)state;
    static const char *const good[QN_KNOBS_KINDS] = {"warps 16, slices 1, ahead 2, blocks 1",
                                                     "warps 8, slices 4, ahead 4, blocks 2",
                                                     "warps 16, slices 2, blocks 1",
                                                     "warps 4",
                                                     "warps 8, ahead 2, split 16, alone 16, least 8",
                                                     "warps 4, split 64"};
    char text[QN_KNOB_TEXT], bad[QN_KNOB_TEXT];
    qn_knobs k;
    for (int kind = 0; kind < QN_KNOBS_KINDS; kind++) {
        assert_true(qn_knobs_read((qn_knob_kind)kind, good[kind], &k));
        assert_string_equal(qn_knobs_text((qn_knob_kind)kind, &k, text), good[kind]);
        size_t n = strlen(good[kind]);
        for (size_t i = 0; i < n; i++) { // cut anywhere; any byte another one: refused, or a value in bounds
            snprintf(bad, sizeof bad, "%.*s", (int)i, good[kind]);
            if (qn_knobs_read((qn_knob_kind)kind, bad, &k)) {
                assert_string_equal(qn_knobs_text((qn_knob_kind)kind, &k, text), bad);
            }
            for (int b = 1; b < 256; b++) {
                snprintf(bad, sizeof bad, "%s", good[kind]);
                bad[i] = (char)b;
                if (qn_knobs_read((qn_knob_kind)kind, bad, &k)) {
                    assert_string_equal(qn_knobs_text((qn_knob_kind)kind, &k, text), bad);
                    assert_in_range(k.warps, 1, QN_KNOB_WARPS);
                }
            }
        }
    }
    static const char *const refused[] = {"",
                                          "warps",
                                          "warps 0",
                                          "warps 17",
                                          "warps 4,",
                                          "warps 4, slices 1",
                                          " warps 4",
                                          "warps  4",
                                          "warps +4",
                                          "warps 04",
                                          "warps 99999999999999999999"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_false(qn_knobs_read(QN_KNOBS_PLAIN, refused[i], &k));
    }
}

static void the_faster_one_is_taken(void **state)
{
    (void)state;
    const float clear[3][5] = {{10, 10.1f, 9.9f, 10, 10}, {9, 9.1f, 9, 8.9f, 9}, {8, 8, 8.1f, 7.9f, 8}};
    assert_int_equal(qn_knobs_select(clear[0], 3, 5), 2);
    const float less[2][5] = {{10, 10.01f, 9.99f, 10, 10}, {9.95f, 9.95f, 9.94f, 9.95f, 9.95f}};
    assert_int_equal(qn_knobs_select(less[0], 2, 5), 0); // half a hundredth is no gain
    const float noisy[2][5] = {{10, 12, 8, 11.5f, 8.5f}, {9, 9, 9, 9, 9}};
    assert_int_equal(qn_knobs_select(noisy[0], 2, 5), 0); // the shipped one's runs spread further
    const float wild[2][5] = {{10, 10, 10, 10, 10}, {9, 7, 12, 7.5f, 11}};
    assert_int_equal(qn_knobs_select(wild[0], 2, 5), 0); // its own do
    const float outlier[2][5] = {{10, 10, 50, 10, 10}, {9, 9, 9, 90, 9}};
    assert_int_equal(qn_knobs_select(outlier[0], 2, 5), 1); // one disturbed run of five decides nothing
    const float failed[3][5] = {{10, 10, 10, 10, 10}, {1, 1, 0, 1, 1}, {9, 9, 9, 9, 9}};
    assert_int_equal(qn_knobs_select(failed[0], 3, 5), 2);
    const float none[2][2] = {{0, 10}, {9, 9}};
    assert_int_equal(qn_knobs_select(none[0], 2, 2), 0);
    const float nan[2][2] = {{10, 10}, {__builtin_nanf(""), 9}};
    assert_int_equal(qn_knobs_select(nan[0], 2, 2), 0);
    assert_int_equal(qn_knobs_select(clear[0], 1, 5), 0);
    const float odd[3] = {3, 1, 2};
    assert_true(qn_knobs_median(odd, 3) == 2);
    assert_true(qn_knobs_median(none[0], 2) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits),
        cmocka_unit_test(candidates_fit_and_differ),
        cmocka_unit_test(what_orders_sums),
        cmocka_unit_test(text_and_back),
        cmocka_unit_test(the_faster_one_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
