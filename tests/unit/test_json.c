// rooms: room_text
#include "text/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static qn_arena arena;
static qn_err err;

static int free_arena(void **state)
{
    (void)state;
    qn_arena_free(&arena);
    return 0;
}

/* From a block of exactly that size, so that the sanitizer sees a read behind it. */
static const qn_json *parse_bytes(const char *text, size_t len)
{
    const qn_json *v = NULL;
    char *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, text, len);
    int rc = qn_json_parse(&v, &arena, copy, len, &err);
    free(copy);
    assert_true((rc == 0) == (v != NULL));
    return v;
}

static const qn_json *parse(const char *text)
{
    return parse_bytes(text, strlen(text));
}

static const qn_json *parsed(const char *text)
{
    const qn_json *v = parse(text);
    if (!v) {
        fail_msg("%s: %s", text, err.text);
    }
    return v;
}

static void reads_every_kind(void **state)
{
    (void)state;
    const qn_json *v = parsed(" {\"a\" : null, \"b\":true,\"c\":false , "
                              "\"d\":-12.5e1,\"e\":\"x\",\n\"f\":[],\"g\":{},\"h\":[1,[2,{\"i\":3}]]}\t\r\n");
    assert_int_equal(v->kind, QN_JSON_OBJECT);
    assert_int_equal(v->n_child, 8);
    assert_int_equal(qn_json_get(v, "a")->kind, QN_JSON_NULL);
    assert_true(qn_json_get(v, "b")->kind == QN_JSON_BOOL && qn_json_get(v, "b")->truth);
    assert_true(qn_json_get(v, "c")->kind == QN_JSON_BOOL && !qn_json_get(v, "c")->truth);
    assert_true(qn_json_get(v, "d")->number == -125.0 && !qn_json_get(v, "d")->is_int);
    assert_string_equal(qn_json_get(v, "e")->text, "x");
    assert_int_equal(qn_json_get(v, "f")->n_child, 0);
    assert_int_equal(qn_json_get(v, "g")->kind, QN_JSON_OBJECT);
    const qn_json *h = qn_json_get(v, "h");
    assert_int_equal(h->n_child, 2);
    assert_int_equal(h->child->integer, 1);
    assert_int_equal(qn_json_get(h->child->next->child->next, "i")->integer, 3);
    assert_null(qn_json_get(v, "z"));
    assert_null(qn_json_get(h, "a"));
    assert_null(qn_json_get(NULL, "a"));
    assert_string_equal(parsed("\"top\"")->text, "top");
}

static void numbers_keep_64_bits(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_int;
        int64_t integer;
        double number;
    } cases[] = {
        {"0", true, 0, 0},
        {"-0", true, 0, -0.0},
        {"9223372036854775807", true, INT64_MAX, 0x1p63},
        {"-9223372036854775808", true, INT64_MIN, -0x1p63},
        {"9223372036854775808", false, 0, 0x1p63},
        {"-9223372036854775809", false, 0, -0x1p63},
        {"1.0", false, 0, 1},
        {"1E+2", false, 0, 100},
        {"0.1", false, 0, 0.1},
        {"5e-324", false, 0, 5e-324},
        {"1e999", false, 0, INFINITY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const qn_json *v = parsed(cases[i].text);
        assert_int_equal(v->kind, QN_JSON_NUMBER);
        assert_int_equal(v->is_int, cases[i].is_int);
        assert_true(v->integer == cases[i].integer);
        assert_true(v->number == cases[i].number);
        assert_true(!signbit(v->number) == !signbit(cases[i].number));
    }
}

static void strings_are_decoded(void **state)
{
    (void)state;
    const qn_json *v =
        parsed("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\\ud83d\\ude00 \xe2\x82\xac\"");
    assert_string_equal(v->text, "\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 \xe2\x82\xac");
    assert_int_equal(v->text_len, strlen(v->text));
    v = parsed("\"a\\u0000b\"");
    assert_int_equal(v->text_len, 3);
    assert_memory_equal(v->text, "a\0b", 4);
    assert_int_equal(parsed("\"\"")->text_len, 0);
}

static void what_is_not_json_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        " ",
        "{",
        "}",
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{\"a\":1 \"b\":2}",
        "{1:2}",
        "[1}",
        "{\"a\":1]",
        "nul",
        "nulll",
        "True",
        "NaN",
        "Infinity",
        "-",
        "+1",
        "01",
        "-01",
        "1.",
        ".5",
        "1e",
        "1e+",
        "0x10",
        "1 2",
        "[] []",
        "\"",
        "\"\\\"",
        "\"\\",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\ud800\"",
        "\"\\ud800x\"",
        "\"\\ud800\\u0041\"",
        "\"\\ud800\\u\"",
        "\"\\udc00\"",
        "\"\\ud83d\\",
        "\"a\nb\"",
        "\"\x01\"",
        "'a'",
        "\"\xff\"",
        "\"\xc3\"",
        "\"\xed\xa0\x80\"",
        "{\"a\\u0000\":1}",
        "/* */ 1",
        "\xef\xbb\xbf{}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err.text[0] = '\0';
        if (parse(bad[i])) {
            fail_msg("accepted: %s", bad[i]);
        }
        assert_int_equal(strncmp(err.text, "JSON, byte ", 11), 0);
    }
    assert_null(parse_bytes("1\0", 2));
    assert_null(parse_bytes("[\0]", 3));
}

static void errors_say_where(void **state)
{
    (void)state;
    assert_null(parse("{\"a\": [1, tru]}"));
    assert_string_equal(err.text, "JSON, byte 10: a value expected");
}

static void depth_is_limited(void **state)
{
    (void)state;
    enum { N = 100000 };
    char *text = malloc(2 * N + 1);
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    assert_non_null(parse_bytes(text, 128));
    memset(text, '[', N);
    memset(text + N, ']', N);
    assert_null(parse_bytes(text, 2 * (size_t)N));
    assert_non_null(strstr(err.text, "64 levels"));
    free(text);
}

static void writes_and_reads_back(void **state)
{
    (void)state;
    qn_json_out o = {0};
    qn_json_open(&o, '{');
    qn_json_key(&o, "t\"ext");
    qn_json_string(&o, "a\"\\\n\x01\x00\xc3\xa9", 8);
    qn_json_key(&o, "list");
    qn_json_open(&o, '[');
    qn_json_int(&o, INT64_MIN);
    qn_json_uint(&o, UINT64_MAX);
    qn_json_open(&o, '[');
    qn_json_close(&o, ']');
    qn_json_open(&o, '{');
    qn_json_close(&o, '}');
    qn_json_bool(&o, true);
    qn_json_bool(&o, false);
    qn_json_null(&o);
    qn_json_double(&o, NAN);
    qn_json_close(&o, ']');
    qn_json_key(&o, "n");
    qn_json_double(&o, 0.1);
    qn_json_close(&o, '}');
    assert_false(o.failed);
    assert_string_equal(o.text,
                        "{\"t\\\"ext\":\"a\\\"\\\\\\n\\u0001\\u0000\xc3\xa9\",\"list\":[-9223372036854775808,"
                        "18446744073709551615,[],{},true,false,null,null],\"n\":0.1}");
    assert_int_equal(strlen(o.text), o.len);
    const qn_json *v = parsed(o.text);
    assert_int_equal(qn_json_get(v, "t\"ext")->text_len, 8);
    assert_memory_equal(qn_json_get(v, "t\"ext")->text, "a\"\\\n\x01\x00\xc3\xa9", 8);
    qn_json_free(&o);
    assert_null(o.text);
}

static void indented_texts_have_a_member_a_line(void **state)
{
    (void)state;
    qn_json_out o = {.indented = true};
    qn_json_open(&o, '{');
    qn_json_key(&o, "a");
    qn_json_int(&o, 1);
    qn_json_key(&o, "b");
    qn_json_open(&o, '[');
    qn_json_int(&o, 2);
    qn_json_open(&o, '[');
    qn_json_close(&o, ']');
    qn_json_close(&o, ']');
    qn_json_close(&o, '}');
    assert_string_equal(o.text, "{\n  \"a\": 1,\n  \"b\": [\n    2,\n    []\n  ]\n}");
    qn_json_free(&o);
}

static void invalid_utf8_is_replaced(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"a\xff"
         "b",
         "\"a\xef\xbf\xbd"
         "b\""},
        {"\xe2\x82", "\"\xef\xbf\xbd\""},
        {"\xc3\x28", "\"\xef\xbf\xbd(\""},
        {"\xf0\x9f\x98\x80", "\"\xf0\x9f\x98\x80\""},
        {"", "\"\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qn_json_out o = {0};
        qn_json_string(&o, cases[i].in, strlen(cases[i].in));
        assert_string_equal(o.text, cases[i].out);
        qn_json_free(&o);
    }
}

static void numbers_read_back_to_the_last_bit(void **state)
{
    (void)state;
    static const double values[] = {
        0, -0.0, 1, 1.0 / 3, 1e300, 5e-324, 0x1.fffffffffffffp1023, 123456789.125};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        qn_json_out o = {0};
        qn_json_double(&o, values[i]);
        assert_true(parsed(o.text)->number == values[i]);
        qn_json_free(&o);
        float f = (float)values[i];
        qn_json_float(&o, f);
        if (isfinite(f)) {
            assert_true((float)parsed(o.text)->number == f);
        } else {
            assert_string_equal(o.text, "null");
        }
        qn_json_free(&o);
    }
    qn_json_out o = {0};
    qn_json_float(&o, 0.8f);
    assert_string_equal(o.text, "0.8");
    qn_json_free(&o);
}

static void long_texts_grow(void **state)
{
    (void)state;
    qn_json_out o = {0};
    qn_json_open(&o, '[');
    for (int i = 0; i < 100000; i++) {
        qn_json_int(&o, i);
    }
    qn_json_close(&o, ']');
    const qn_json *v = parsed(o.text);
    assert_int_equal(v->n_child, 100000);
    int i = 0;
    for (const qn_json *c = v->child; c; c = c->next) {
        assert_int_equal(c->integer, i++);
    }
    qn_json_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_kind),         cmocka_unit_test(numbers_keep_64_bits),
        cmocka_unit_test(strings_are_decoded),      cmocka_unit_test(what_is_not_json_is_refused),
        cmocka_unit_test(errors_say_where),         cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(writes_and_reads_back),    cmocka_unit_test(indented_texts_have_a_member_a_line),
        cmocka_unit_test(invalid_utf8_is_replaced), cmocka_unit_test(numbers_read_back_to_the_last_bit),
        cmocka_unit_test(long_texts_grow),
    };
    return cmocka_run_group_tests(tests, NULL, free_arena);
}
