// rooms: room_model
/* Files that must be refused: bug cases B01, B02, B04 and B07, and every check of the
 * reader (files on disk: test_gguf_files.c). Each buffer is
 * exactly as long as the file, so under AddressSanitizer a read beyond the end fails the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/gguf_refused.h"

/* B01 */
static void truncated_at_every_byte(void **state)
{
    (void)state;
    gw w = good();
    size_t size;
    uint8_t *bytes = gw_bytes(&w, &size);
    for (size_t cut = 0; cut < size; cut++) {
        uint8_t *part = malloc(cut ? cut : 1);
        memcpy(part, bytes, cut);
        refused_bytes(part, cut, "bytes", cut >= 24 ? "incomplete" : "");
        free(part);
    }
    free(bytes);
    gw_free(&w);
}

/* B02: header counts and lengths. */
static const uint64_t absurd[] = {1ull << 60, UINT64_MAX, UINT64_MAX / 8 + 2, 1ull << 32, 200};
enum { N_ABSURD = sizeof absurd / sizeof absurd[0] };

static void absurd_header_counts(void **state)
{
    (void)state;
    for (int i = 0; i < N_ABSURD; i++) {
        gw w = gw_new();
        gw_put(&w.kv, NULL, 76);
        w.alignment = 0;
        w.n_kv = absurd[i];
        refused(&w, "metadata keys", "100 bytes");
        w = gw_new();
        gw_put(&w.kv, NULL, 76);
        w.alignment = 0;
        w.n_tensors = absurd[i];
        refused(&w, "tensors", "100 bytes");
    }
}

static void absurd_lengths(void **state)
{
    (void)state;
    for (int i = 0; i < N_ABSURD; i++) {
        uint64_t n = absurd[i];
        gw w = gw_new(); /* length of a key */
        gw_put_uint(&w.kv, n, 8);
        gw_put(&w.kv, "abcdefghijklmnop", 16);
        w.n_kv = 1;
        w.alignment = 0;
        refused(&w, "metadata key 1 of 1", n > 65535 ? "65535 are allowed" : "incomplete");

        w = gw_new(); /* length of a string */
        gw_key(&w, "k", QN_KV_STRING);
        gw_put_uint(&w.kv, n, 8);
        gw_put(&w.kv, "abc", 3);
        refused(&w, "key k: string length", "bytes that are left");

        w = gw_new(); /* strings in an array */
        gw_array(&w, "k", QN_KV_STRING, n);
        gw_put_string(&w.kv, "abc", 3);
        refused(&w, "key k: string count", "bytes that are left");

        w = gw_new(); /* length of a string in an array */
        gw_array(&w, "k", QN_KV_STRING, 2);
        gw_put_string(&w.kv, "abc", 3);
        gw_put_uint(&w.kv, n, 8);
        refused(&w, "key k: string length", "bytes that are left");

        static const qn_kv_type types[] = {QN_KV_U8, QN_KV_BOOL, QN_KV_I16, QN_KV_F32, QN_KV_U64, QN_KV_F64};
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
            w = gw_new();
            gw_array(&w, "k", types[t], n);
            gw_put(&w.kv, NULL, 32);
            refused(&w, "key k: array count", "bytes that are left");
        }

        w = gw_new(); /* length of a tensor name */
        gw_put_uint(&w.table, n, 8);
        gw_put(&w.table, "abcdefghijklmnopqrstuvwxyz", 26);
        w.n_tensors = 1;
        w.alignment = 0;
        refused(&w, "tensor 1 of 1", n > 255 ? "255 are allowed" : "incomplete");
    }
}

static void string_without_its_length(void **state)
{
    (void)state;
    gw w = gw_new();
    w.alignment = 0;
    gw_key(&w, "k", QN_KV_STRING);
    gw_put(&w.kv, NULL, 7);
    refused(&w, "key k: ends inside the length of a string", "incomplete");
    w = gw_new();
    w.alignment = 0;
    gw_array(&w, "k", QN_KV_STRING, 2);
    gw_put_string(&w.kv, "12345678", 8); /* pays for the count, but leaves nothing for the second */
    refused(&w, "key k: ends inside the length of a string", "incomplete");
}

static void value_types(void **state)
{
    (void)state;
    static const uint32_t types[] = {13, 255, UINT32_MAX};
    for (int i = 0; i < 3; i++) {
        gw w = gw_new();
        gw_key(&w, "k", types[i]);
        gw_put(&w.kv, NULL, 8);
        refused(&w, "key k has value type", "0 to 12");
        w = gw_new();
        gw_array(&w, "k", types[i], 1);
        gw_put(&w.kv, NULL, 8);
        refused(&w, "key k: array of value type", "0 to 12");
    }
    gw w = gw_new();
    gw_key(&w, "k", QN_KV_ARRAY);
    for (int depth = 0; depth < 100000; depth++) {
        gw_put_uint(&w.kv, QN_KV_ARRAY, 4);
        gw_put_uint(&w.kv, 1, 8);
    }
    refused(&w, "key k", "array of arrays");
    w = gw_new();
    gw_int(&w, "k", QN_KV_BOOL, 2);
    refused(&w, "key k", "bool value 2");
    w = gw_new();
    gw_ints(&w, "k", QN_KV_BOOL, 3, (const int64_t[]){0, 1, 255});
    refused(&w, "key k", "bool value 255");
}

static void names(void **state)
{
    (void)state;
    gw w = gw_new();
    gw_u32(&w, "twice", 1);
    gw_u32(&w, "other", 1);
    gw_u32(&w, "twice", 1);
    refused(&w, "key twice is there twice", "1 and 3");

    w = gw_new();
    gw_u32(&w, "", 1);
    refused(&w, "metadata key 1 of 1", "has 0 bytes");

    w = gw_new();
    gw_put_string(&w.kv, "a\0b", 3);
    gw_put_uint(&w.kv, QN_KV_U8, 4);
    gw_put_uint(&w.kv, 0, 8);
    w.n_kv = 1;
    refused(&w, "metadata key 1 of 1", "NUL");

    w = gw_new();
    gw_tensor(&w, "x", QN_F32, 1, (uint64_t[]){1}, NULL);
    gw_tensor(&w, "y", QN_F32, 1, (uint64_t[]){1}, NULL);
    gw_tensor(&w, "x", QN_F32, 1, (uint64_t[]){1}, NULL);
    refused(&w, "two tensors are called x", NULL);

    w = gw_new();
    gw_tensor(&w, "", QN_F32, 1, (uint64_t[]){1}, NULL);
    refused(&w, "tensor 1 of 1", "has 0 bytes");

    w = gw_new();
    gw_put_string(&w.table, "a\0b", 3);
    gw_put(&w.table, NULL, 64);
    w.n_tensors = 1;
    refused(&w, "tensor 1 of 1", "NUL");

    char longest[257] = {0};
    memset(longest, 'n', 256);
    w = gw_new();
    gw_tensor(&w, longest, QN_F32, 1, (uint64_t[]){1}, NULL);
    refused(&w, "has 256 bytes", "1 to 255");
    /* Control bytes of a name do not reach the terminal. */
    w = gw_new();
    gw_u32(&w, "\x1b[2J\n", 1);
    gw_u32(&w, "\x1b[2J\n", 1);
    assert_null(strpbrk(refused(&w, "key ?[2J? is there twice", NULL), "\x1b\n"));
}

static void tensor_shapes(void **state)
{
    (void)state;
    static const struct {
        uint32_t type, n_dims;
        uint64_t ne[5];
        const char *part, *part2;
    } cases[] = {
        {QN_F32, 0, {0}, "tensor bad has 0 dimensions", "1 to 4"},
        {QN_F32, 5, {1, 1, 1, 1, 1}, "tensor bad has 5 dimensions", "1 to 4"},
        {QN_F32, 2, {32, 0}, "tensor bad: dimension 1 is 0", NULL},
        {QN_F32, 1, {0}, "tensor bad: dimension 0 is 0", NULL},
        {QN_F32, 2, {1ull << 32, 1ull << 32}, "tensor bad: the product", "4294967296 x 4294967296"},
        {QN_F32, 4, {1ull << 16, 1ull << 16, 1ull << 16, (1ull << 16) + 1}, "tensor bad: the product", NULL},
        {QN_F32, 2, {UINT64_MAX, UINT64_MAX}, "tensor bad: the product", NULL},
        {QN_F32, 1, {UINT64_MAX}, "tensor bad: the product", NULL},
        {QN_F32, 1, {1ull << 62}, "tensor bad: the size of", "f32 overflows"},
        {QN_F16, 1, {1ull << 62}, "tensor bad does not fit", "9223372036854775808 bytes"},
        {QN_F16, 2, {1ull << 31, 1ull << 30}, "tensor bad does not fit", "incomplete"},
        {QN_Q4_K, 2, {896, 1}, "tensor bad: row length 896 is not a multiple of 256", "q4_K"},
        {QN_Q4_0, 2, {48, 2}, "tensor bad: row length 48 is not a multiple of 32", "q4_0"},
        {4, 1, {32}, "tensor bad has type number 4", "unknown"},
        {31, 1, {32}, "tensor bad has type number 31", "q4_K"},
        {64, 1, {32}, "tensor bad has type number 64", "iq4_xs"},
        {UINT32_MAX, 1, {32}, "tensor bad has type number 4294967295", "unknown"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw w = gw_new();
        gw_tensor_raw(&w, "bad", cases[i].type, cases[i].n_dims, cases[i].ne, 0);
        gw_put(&w.data, NULL, 256);
        refused(&w, cases[i].part, cases[i].part2);
    }
    gw w = gw_new(); /* more dimensions than the file has bytes for */
    gw_put_string(&w.table, "bad", 3);
    gw_put_uint(&w.table, UINT32_MAX, 4);
    gw_put(&w.table, NULL, 64);
    w.n_tensors = 1;
    refused(&w, "tensor bad has 4294967295 dimensions", NULL);
}

static void tensor_places(void **state)
{
    (void)state;
    static const struct {
        uint64_t offset;
        const char *part, *part2;
    } cases[] = {
        {1, "tensor bad: offset 1 is not a multiple", "alignment 32"},
        {16, "tensor bad: offset 16 is not a multiple", NULL},
        {UINT64_MAX - 31, "tensor bad: offset 18446744073709551584", "overflows"},
        {1ull << 63, "tensor bad does not fit", "incomplete"},
        {256, "tensor bad does not fit", "incomplete"},
        {224, "tensor bad does not fit", "incomplete"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw w = gw_new();
        gw_tensor_raw(&w, "bad", QN_F32, 1, (uint64_t[]){16}, cases[i].offset);
        gw_put(&w.data, NULL, 256);
        refused(&w, cases[i].part, cases[i].part2);
    }
    gw w = gw_new();
    gw_tensor_raw(&w, "late", QN_F32, 1, (uint64_t[]){16}, 64);
    gw_tensor_raw(&w, "early", QN_F32, 1, (uint64_t[]){17}, 0);
    gw_put(&w.data, NULL, 256);
    refused(&w, "tensors early and late overlap", NULL);
    w = gw_new();
    gw_tensor_raw(&w, "a", QN_F32, 1, (uint64_t[]){16}, 0);
    gw_tensor_raw(&w, "b", QN_F32, 1, (uint64_t[]){16}, 0);
    gw_put(&w.data, NULL, 256);
    refused(&w, "overlap", NULL);
}

/* B04 */
static void alignments(void **state)
{
    (void)state;
    static const uint32_t bad[] = {0, 1, 3, 4, 48, 0x80000001u, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        gw w = gw_new();
        gw_u32(&w, "general.alignment", bad[i]);
        gw_tensor(&w, "x", QN_F32, 1, (uint64_t[]){8}, NULL);
        char says[64];
        snprintf(says, sizeof says, "general.alignment is %u;", bad[i]);
        refused(&w, says, "power of two");
    }
    gw w = gw_new();
    gw_int(&w, "general.alignment", QN_KV_I64, -32);
    refused(&w, "general.alignment is -32", NULL);
    w = gw_new();
    gw_str(&w, "general.alignment", "32");
    refused(&w, "general.alignment", "type str");
    w = gw_new();
    gw_ints(&w, "general.alignment", QN_KV_U32, 1, (const int64_t[]){32});
    refused(&w, "general.alignment", "type array");
    w = gw_new(); /* a huge but legal one: the data would start beyond the end */
    gw_u32(&w, "general.alignment", 1u << 31);
    gw_tensor(&w, "x", QN_F32, 1, (uint64_t[]){8}, NULL);
    refused(&w, "tensor x does not fit", "incomplete");
}

/* The guess at what a foreign file is reads no further than the file. */
static void short_foreign_files(void **state)
{
    (void)state;
    static const char *const text[] = {"        ", "\n\n\n\n\n\n\n<", "\xef\xbb\xbf     ", "version ",
                                       "        {"};
    for (size_t i = 0; i < sizeof text / sizeof text[0]; i++) {
        size_t size = strlen(text[i]);
        char *exact = malloc(size);
        assert_non_null(exact);
        memcpy(exact, text[i], size);
        refused_bytes(exact, size, "is not a GGUF file: it begins with", NULL);
        free(exact);
    }
}

/* Any single byte changed, in all of header, keys and table: no crash, and either result is consistent. */
static void one_byte_damage(void **state)
{
    (void)state;
    gw w = good();
    size_t size;
    uint8_t *bytes = gw_bytes(&w, &size);
    size_t end = size - w.data.n;
    static const uint8_t change[] = {0x01, 0x80, 0xff, 0x0f, 0x20};
    int opened = 0, turned_away = 0;
    for (size_t at = 0; at < end; at++) {
        for (size_t c = 0; c < sizeof change; c++) {
            qn_gguf *g = NULL;
            qn_err err = {{0}};
            bytes[at] ^= change[c];
            if (qn_gguf_open_memory(&g, bytes, size, "bad.gguf", &err) == 0) {
                opened++;
                for (uint64_t i = 0; i < qn_gguf_n_tensors(g); i++) {
                    const qn_tensor *t = qn_gguf_tensor(g, i);
                    assert_true(t->data >= bytes && t->data + t->n_bytes <= bytes + size);
                }
                qn_gguf_close(g);
            } else {
                turned_away++;
                assert_null(g);
                assert_true(err.text[0] != '\0');
            }
            bytes[at] ^= change[c];
        }
    }
    assert_true(opened > 0 && turned_away > 0);
    free(bytes);
    gw_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(truncated_at_every_byte),
        cmocka_unit_test(absurd_header_counts),
        cmocka_unit_test(absurd_lengths),
        cmocka_unit_test(string_without_its_length),
        cmocka_unit_test(value_types),
        cmocka_unit_test(names),
        cmocka_unit_test(tensor_shapes),
        cmocka_unit_test(tensor_places),
        cmocka_unit_test(alignments),
        cmocka_unit_test(short_foreign_files),
        cmocka_unit_test(one_byte_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
