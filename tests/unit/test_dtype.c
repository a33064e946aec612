// rooms: room_model
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/half.h"
#include "model/dtype.h"

/* Geometry from the goldens' README and ggml's block structs, written out a second time on purpose. */
static const struct {
    uint32_t type;
    const char *name;
    int values, bytes;
} geometry[] = {
    {0, "f32", 1, 4},         {1, "f16", 1, 2},         {2, "q4_0", 32, 18},      {3, "q4_1", 32, 20},
    {6, "q5_0", 32, 22},      {7, "q5_1", 32, 24},      {8, "q8_0", 32, 34},      {9, "q8_1", 32, 36},
    {10, "q2_K", 256, 84},    {11, "q3_K", 256, 110},   {12, "q4_K", 256, 144},   {13, "q5_K", 256, 176},
    {14, "q6_K", 256, 210},   {15, "q8_K", 256, 292},   {16, "iq2_xxs", 256, 66}, {17, "iq2_xs", 256, 74},
    {18, "iq3_xxs", 256, 98}, {19, "iq1_s", 256, 50},   {20, "iq4_nl", 32, 18},   {21, "iq3_s", 256, 110},
    {22, "iq2_s", 256, 82},   {23, "iq4_xs", 256, 136}, {24, "i8", 1, 1},         {25, "i16", 1, 2},
    {26, "i32", 1, 4},        {27, "i64", 1, 8},        {28, "f64", 1, 8},        {29, "iq1_m", 256, 56},
    {30, "bf16", 1, 2},       {34, "tq1_0", 256, 54},   {35, "tq2_0", 256, 66},   {39, "mxfp4", 32, 17},
    {40, "nvfp4", 64, 36},    {41, "q1_0", 128, 18},    {42, "q2_0", 64, 18},
};
enum { N_GEOMETRY = sizeof geometry / sizeof geometry[0] };

static void rows_match_the_format(void **state)
{
    (void)state;
    int present = 0;
    for (uint32_t t = 0; t < QN_TYPE_COUNT; t++) {
        present += qn_dtype_get(t) != NULL;
    }
    assert_int_equal(present, N_GEOMETRY);
    for (int i = 0; i < N_GEOMETRY; i++) {
        const qn_dtype *row = qn_dtype_get(geometry[i].type);
        assert_non_null(row);
        assert_string_equal(row->name, geometry[i].name);
        assert_int_equal(row->block_values, geometry[i].values);
        assert_int_equal(row->block_bytes, geometry[i].bytes);
    }
}

static void unknown_numbers_have_no_row(void **state)
{
    (void)state;
    static const uint32_t none[] = {4, 5, 31, 32, 33, 36, 37, 38, 43, 63, 64, 65, 1000, UINT32_MAX};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        assert_null(qn_dtype_get(none[i]));
    }
}

static void supported_lists_the_rows_with_a_decode(void **state)
{
    (void)state;
    char list[512] = "";
    for (uint32_t t = 0; t < QN_TYPE_COUNT; t++) {
        const qn_dtype *row = qn_dtype_get(t);
        if (row && row->decode) {
            strcat(list, list[0] ? ", " : "");
            strcat(list, row->name);
        }
    }
    assert_string_equal(qn_dtype_supported(), list);
}

static uint8_t *slurp(const char *name, size_t *size)
{
    char path[512];
    snprintf(path, sizeof path, QN_TEST_DATA "/quants/%s", name);
    FILE *f = fopen(path, "rb");
    if (!f) {
        fail_msg("%s is missing", path);
    }
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    uint8_t *p = malloc(*size + 1);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, *size, f), *size);
    fclose(f);
    return p;
}

/* Every value of the golden block vectors, as bits, from blocks at odd addresses too. */
static void check_blocks(uint32_t type, const char *upper)
{
    char name[32];
    size_t blocks_size, f32_size;
    snprintf(name, sizeof name, "%s.blocks", upper);
    uint8_t *blocks = slurp(name, &blocks_size);
    snprintf(name, sizeof name, "%s.f32", upper);
    uint8_t *want = slurp(name, &f32_size);

    const qn_dtype *row = qn_dtype_get(type);
    size_t n = f32_size / 4;
    assert_true(n > 0);
    assert_int_equal(n % row->block_values, 0);
    assert_int_equal(n / row->block_values * row->block_bytes, blocks_size);
    /* An exact-size block buffer and a guard behind the output: overruns show, with the sanitizer or without.
     */
    float *got = malloc((n + 1) * sizeof *got);
    uint8_t *odd = malloc(blocks_size + 1);
    assert_non_null(got);
    assert_non_null(odd);
    for (int shift = 0; shift < 2; shift++) {
        memcpy(odd + shift, blocks, blocks_size);
        memset(got, 0xa5, (n + 1) * sizeof *got);
        row->decode(odd + shift, got, (int64_t)n);
        for (size_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, want + 4 * i, 4);
            if (bits != qn_f32_bits(got[i])) {
                fail_msg("%s: value %zu is %08x, golden %08x", upper, i, qn_f32_bits(got[i]), bits);
            }
        }
        assert_int_equal(qn_f32_bits(got[n]), 0xa5a5a5a5u);
    }
    free(odd);
    free(got);
    free(want);
    free(blocks);
}

static void decodes_match_golden_blocks(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        const char *upper;
    } cases[] = {
        {QN_F16, "F16"},   {QN_BF16, "BF16"}, {QN_Q4_0, "Q4_0"},     {QN_Q4_1, "Q4_1"},     {QN_Q5_0, "Q5_0"},
        {QN_Q5_1, "Q5_1"}, {QN_Q8_0, "Q8_0"}, {QN_Q2_K, "Q2_K"},     {QN_Q3_K, "Q3_K"},     {QN_Q4_K, "Q4_K"},
        {QN_Q5_K, "Q5_K"}, {QN_Q6_K, "Q6_K"}, {QN_IQ4_NL, "IQ4_NL"}, {QN_IQ4_XS, "IQ4_XS"},
    };
    int decodes = 0;
    for (uint32_t t = 0; t < QN_TYPE_COUNT; t++) {
        const qn_dtype *row = qn_dtype_get(t);
        decodes += row && row->decode;
    }
    /* A type with a decode and no golden vector fails here; f32 has its own test. */
    assert_int_equal(decodes, sizeof cases / sizeof cases[0] + 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_blocks(cases[i].type, cases[i].upper);
    }
}

static void f32_is_copied_as_bits(void **state)
{
    (void)state;
    static const uint32_t bits[] = {0,           0x80000000u, 0x3f800000u, 0x7f800000u,
                                    0xff800000u, 0x7fc00001u, 1,           0x12345678u};
    enum { N = sizeof bits / sizeof bits[0] };
    uint8_t raw[4 * N + 1];
    float out[N];
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < 4; k++) {
            raw[1 + 4 * i + k] = (uint8_t)(bits[i] >> (8 * k));
        }
    }
    qn_dtype_get(QN_F32)->decode(raw + 1, out, N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(qn_f32_bits(out[i]), bits[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_match_the_format),
        cmocka_unit_test(unknown_numbers_have_no_row),
        cmocka_unit_test(supported_lists_the_rows_with_a_decode),
        cmocka_unit_test(decodes_match_golden_blocks),
        cmocka_unit_test(f32_is_copied_as_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
