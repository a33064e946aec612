// rooms: room_model
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit/gguf_writer.h"

static qn_gguf *open_bytes(const uint8_t *bytes, size_t size)
{
    qn_err err = {{0}};
    qn_gguf *g = NULL;
    if (qn_gguf_open_memory(&g, bytes, size, "memory", &err) != 0) {
        fail_msg("%s", err.text);
    }
    return g;
}

static qn_gguf *open_path(const char *path)
{
    qn_err err = {{0}};
    qn_gguf *g = NULL;
    if (qn_gguf_open(&g, path, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return g;
}

static void every_scalar_type(gw *w)
{
    gw_int(w, "a.u8", QN_KV_U8, 200);
    gw_int(w, "a.i8", QN_KV_I8, -100);
    gw_int(w, "a.u16", QN_KV_U16, 60000);
    gw_int(w, "a.i16", QN_KV_I16, -30000);
    gw_int(w, "a.u32", QN_KV_U32, 4000000000);
    gw_int(w, "a.i32", QN_KV_I32, -2000000000);
    gw_int(w, "a.u64", QN_KV_U64, INT64_MAX);
    gw_int(w, "a.u64big", QN_KV_U64, -1);
    gw_int(w, "a.i64", QN_KV_I64, INT64_MIN);
    gw_f32(w, "a.f32", 0.1f);
    gw_f64(w, "a.f64", 0.1);
    gw_bool(w, "a.true", true);
    gw_bool(w, "a.false", false);
    gw_str(w, "a.str", "h\xc3\xa9llo");
    gw_str(w, "a.empty", "");
}

static void scalars_convert(void **state)
{
    (void)state;
    gw w = gw_new();
    every_scalar_type(&w);
    size_t size;
    uint8_t *bytes = gw_bytes(&w, &size);
    qn_gguf *g = open_bytes(bytes, size);
    static const struct {
        const char *key;
        int64_t want;
    } ints[] = {
        {"a.u8", 200},         {"a.i8", -100},         {"a.u16", 60000},     {"a.i16", -30000},
        {"a.u32", 4000000000}, {"a.i32", -2000000000}, {"a.u64", INT64_MAX}, {"a.i64", INT64_MIN},
        {"a.true", 1},         {"a.false", 0},
    };
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) {
        const qn_kv *kv = qn_gguf_find(g, ints[i].key);
        assert_non_null(kv);
        int64_t v = 77;
        double f = 0;
        bool b;
        qn_str s;
        assert_true(qn_kv_i64(kv, 0, &v));
        assert_true(v == ints[i].want);
        assert_false(qn_kv_i64(kv, 1, &v));
        assert_false(qn_kv_str(kv, 0, &s));
        bool is_bool = kv->type == QN_KV_BOOL;
        assert_int_equal(qn_kv_f64(kv, 0, &f), !is_bool);
        assert_int_equal(qn_kv_bool(kv, 0, &b), is_bool);
        assert_true(is_bool ? b == (v != 0) : f == (double)ints[i].want);
    }
    int64_t v;
    double f;
    assert_false(qn_kv_i64(qn_gguf_find(g, "a.u64big"), 0, &v));
    assert_true(qn_kv_f64(qn_gguf_find(g, "a.u64big"), 0, &f));
    assert_true(f == 0x1p64);
    assert_true(qn_kv_f64(qn_gguf_find(g, "a.f32"), 0, &f) && f == (double)0.1f);
    assert_true(qn_kv_f64(qn_gguf_find(g, "a.f64"), 0, &f) && f == 0.1);
    assert_false(qn_kv_i64(qn_gguf_find(g, "a.f32"), 0, &v));
    assert_false(qn_kv_f64(qn_gguf_find(g, "a.f64"), 1, &f));
    qn_str s;
    assert_true(qn_kv_str(qn_gguf_find(g, "a.str"), 0, &s));
    assert_int_equal(s.len, 6);
    assert_memory_equal(s.data, "h\xc3\xa9llo", 6);
    assert_false(qn_kv_str(qn_gguf_find(g, "a.str"), 1, &s));
    assert_false(qn_kv_f64(qn_gguf_find(g, "a.str"), 0, &f));
    assert_true(qn_kv_str(qn_gguf_find(g, "a.empty"), 0, &s));
    assert_int_equal(s.len, 0);
    assert_null(qn_gguf_find(g, "a"));
    assert_null(qn_gguf_find(g, ""));
    qn_gguf_close(g);
    free(bytes);
    gw_free(&w);
}

static void arrays_are_indexed(void **state)
{
    (void)state;
    gw w = gw_new();
    static const char *const words[] = {"", "a", "longer than the rest", "\n", "z"};
    gw_strs(&w, "words", 5, words);
    gw_ints(&w, "types", QN_KV_I32, 4, (const int64_t[]){-1, 0, 1, 6});
    gw_ints(&w, "flags", QN_KV_BOOL, 3, (const int64_t[]){1, 0, 1});
    gw_f32s(&w, "scores", 3, (const float[]){-1.5f, 0, 2});
    gw_strs(&w, "no_words", 0, NULL);
    gw_ints(&w, "no_ints", QN_KV_U64, 0, NULL);
    size_t size;
    uint8_t *bytes = gw_bytes(&w, &size);
    qn_gguf *g = open_bytes(bytes, size);
    const qn_kv *kv = qn_gguf_find(g, "words");
    assert_int_equal(kv->type, QN_KV_ARRAY);
    assert_int_equal(kv->elem_type, QN_KV_STRING);
    assert_int_equal(kv->count, 5);
    qn_str s;
    for (int i = 4; i >= 0; i--) {
        assert_true(qn_kv_str(kv, (uint64_t)i, &s));
        assert_int_equal(s.len, strlen(words[i]));
        assert_memory_equal(s.data, words[i], s.len);
    }
    assert_false(qn_kv_str(kv, 5, &s));
    assert_false(qn_kv_str(kv, UINT64_MAX, &s));
    int64_t v;
    kv = qn_gguf_find(g, "types");
    assert_true(qn_kv_i64(kv, 0, &v) && v == -1);
    assert_true(qn_kv_i64(kv, 3, &v) && v == 6);
    assert_false(qn_kv_i64(kv, 4, &v));
    bool b;
    kv = qn_gguf_find(g, "flags");
    assert_true(qn_kv_bool(kv, 2, &b) && b);
    assert_true(qn_kv_bool(kv, 1, &b) && !b);
    assert_false(qn_kv_bool(kv, 3, &b));
    double f;
    kv = qn_gguf_find(g, "scores");
    assert_true(qn_kv_f64(kv, 0, &f) && f == -1.5);
    assert_true(qn_kv_f64(kv, 2, &f) && f == 2);
    assert_false(qn_kv_str(qn_gguf_find(g, "no_words"), 0, &s));
    assert_false(qn_kv_i64(qn_gguf_find(g, "no_ints"), 0, &v));
    qn_gguf_close(g);
    free(bytes);
    gw_free(&w);
}

static void fill(uint8_t *p, size_t n, int seed)
{
    for (size_t i = 0; i < n; i++) {
        p[i] = (uint8_t)(i * 7 + (size_t)seed);
    }
}

/* Same tensors at any alignment and in both versions (B04): the data pointers lead to the same bytes. */
static void tensors_at_every_alignment(void **state)
{
    (void)state;
    static const uint32_t alignments[] = {0, 8, 32, 64, 256, 4096};
    for (size_t a = 0; a < sizeof alignments / sizeof alignments[0]; a++) {
        for (uint32_t version = 2; version <= 3; version++) {
            gw w = gw_new();
            w.version = version;
            if (alignments[a]) {
                gw_alignment(&w, alignments[a]);
            }
            fill(gw_tensor(&w, "one", QN_F32, 1, (uint64_t[]){5}, NULL), 20, 1);
            fill(gw_tensor(&w, "two", QN_Q4_0, 2, (uint64_t[]){64, 3}, NULL), 108, 2);
            fill(gw_tensor(&w, "four", QN_F16, 4, (uint64_t[]){2, 3, 4, 5}, NULL), 240, 3);
            size_t size;
            uint8_t *bytes = gw_bytes(&w, &size);
            qn_gguf *g = open_bytes(bytes, size);
            assert_int_equal(qn_gguf_version(g), version);
            assert_int_equal(qn_gguf_file_bytes(g), size);
            assert_int_equal(qn_gguf_n_tensors(g), 3);
            static const struct {
                const char *name;
                uint32_t type, n_dims;
                uint64_t ne[4], n_bytes;
                int seed;
            } want[] = {{"one", QN_F32, 1, {5, 1, 1, 1}, 20, 1},
                        {"two", QN_Q4_0, 2, {64, 3, 1, 1}, 108, 2},
                        {"four", QN_F16, 4, {2, 3, 4, 5}, 240, 3}};
            for (int i = 0; i < 3; i++) {
                const qn_tensor *t = qn_gguf_find_tensor(g, want[i].name);
                assert_ptr_equal(t, qn_gguf_tensor(g, (uint64_t)i));
                assert_string_equal(t->name, want[i].name);
                assert_int_equal(t->type, want[i].type);
                assert_int_equal(t->n_dims, want[i].n_dims);
                assert_memory_equal(t->ne, want[i].ne, sizeof t->ne);
                assert_int_equal(t->n_bytes, want[i].n_bytes);
                assert_int_equal(t->shard, 0);
                uint8_t expected[256];
                fill(expected, t->n_bytes, want[i].seed);
                assert_memory_equal(t->data, expected, t->n_bytes);
            }
            assert_null(qn_gguf_find_tensor(g, "three"));
            assert_null(qn_gguf_tensor(g, 3));
            assert_null(qn_gguf_kv(g, qn_gguf_n_kv(g)));
            qn_gguf_close(g);
            free(bytes);
            gw_free(&w);
        }
    }
}

/* The data begin at the next multiple of the alignment, wherever the table ends. */
static void headers_of_every_length(void **state)
{
    (void)state;
    char pad[80] = {0};
    for (int n = 0; n < 70; n++) {
        gw w = gw_new();
        gw_str(&w, "pad", pad);
        gw_tensor(&w, "t", QN_F32, 1, (uint64_t[]){2}, "01234567");
        size_t size;
        uint8_t *bytes = gw_bytes(&w, &size);
        qn_gguf *g = open_bytes(bytes, size);
        assert_memory_equal(qn_gguf_tensor(g, 0)->data, "01234567", 8);
        qn_gguf_close(g);
        free(bytes);
        gw_free(&w);
        pad[n] = 'x';
    }
}

static void many_names_are_found(void **state)
{
    (void)state;
    enum { N = 3000 };
    gw w = gw_new();
    char name[32];
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "key.%d", i);
        gw_u32(&w, name, (uint32_t)i * 3);
        snprintf(name, sizeof name, "blk.%d.w", i);
        gw_tensor(&w, name, QN_F32, 1, (uint64_t[]){(uint64_t)i % 5 + 1}, NULL);
    }
    size_t size;
    uint8_t *bytes = gw_bytes(&w, &size);
    qn_gguf *g = open_bytes(bytes, size);
    assert_int_equal(qn_gguf_n_kv(g), N);
    for (int i = 0; i < N; i++) {
        int64_t v;
        snprintf(name, sizeof name, "key.%d", i);
        assert_string_equal(qn_gguf_kv(g, (uint64_t)i)->key, name);
        assert_ptr_equal(qn_gguf_find(g, name), qn_gguf_kv(g, (uint64_t)i));
        assert_true(qn_kv_i64(qn_gguf_find(g, name), 0, &v) && v == i * 3);
        snprintf(name, sizeof name, "blk.%d.w", i);
        assert_int_equal(qn_gguf_find_tensor(g, name)->ne[0], i % 5 + 1);
    }
    qn_gguf_close(g);
    free(bytes);
    gw_free(&w);
}

/* Types that quern does not compute with are still measured and located; the model loader refuses them. */
static void known_types_without_decode_parse(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < QN_TYPE_COUNT; type++) {
        const qn_dtype *row = qn_dtype_get(type);
        if (!row) {
            continue;
        }
        gw w = gw_new();
        gw_tensor(&w, "x", type, 2, (uint64_t[]){row->block_values * 2u, 3}, NULL);
        size_t size;
        uint8_t *bytes = gw_bytes(&w, &size);
        qn_gguf *g = open_bytes(bytes, size);
        assert_int_equal(qn_gguf_tensor(g, 0)->type, type);
        assert_int_equal(qn_gguf_tensor(g, 0)->n_bytes, 6 * row->block_bytes);
        qn_gguf_close(g);
        free(bytes);
        gw_free(&w);
    }
}

static void longest_names(void **state)
{
    (void)state;
    static char key[65536], name[256];
    memset(key, 'k', sizeof key - 1);
    memset(name, 'n', sizeof name - 1);
    gw w = gw_new();
    gw_u32(&w, key, 7);
    gw_tensor(&w, name, QN_F32, 1, (uint64_t[]){2}, NULL);
    size_t size;
    uint8_t *bytes = gw_bytes(&w, &size);
    qn_gguf *g = open_bytes(bytes, size);
    assert_ptr_equal(qn_gguf_find(g, key), qn_gguf_kv(g, 0));
    assert_ptr_equal(qn_gguf_find_tensor(g, name), qn_gguf_tensor(g, 0));
    qn_gguf_close(g);
    free(bytes);
    gw_free(&w);
}

/* Vocabulary files have no tensors and may end before the aligned start of the data. */
static void no_tensors_at_all(void **state)
{
    (void)state;
    gw w = gw_new();
    w.alignment = 1; /* no padding is written; the key is absent, so the reader assumes 32 */
    gw_str(&w, "a", "b");
    size_t size;
    uint8_t *bytes = gw_bytes(&w, &size);
    assert_int_not_equal(size % 32, 0);
    qn_gguf *g = open_bytes(bytes, size);
    assert_int_equal(qn_gguf_n_tensors(g), 0);
    assert_null(qn_gguf_find_tensor(g, "a"));
    qn_gguf_close(g);
    free(bytes);
    w.n_kv = 0;
    w.kv.n = 0;
    bytes = gw_bytes(&w, &size);
    assert_int_equal(size, 24);
    g = open_bytes(bytes, size);
    assert_int_equal(qn_gguf_n_kv(g), 0);
    assert_null(qn_gguf_find(g, "a"));
    qn_gguf_close(g);
    free(bytes);
    gw_free(&w);
}

static char dir[] = "/tmp/quern-test-gguf-XXXXXX";

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    return rmdir(dir);
}

static void save_part(const char *path, int no, int count, int total, uint32_t alignment)
{
    char name[32];
    gw w = gw_new();
    if (no == 0) {
        gw_str(&w, "general.name", "whole");
    }
    gw_int(&w, "split.no", QN_KV_U16, no);
    gw_int(&w, "split.count", QN_KV_U16, count);
    gw_int(&w, "split.tensors.count", QN_KV_I32, total);
    if (alignment) {
        gw_alignment(&w, alignment);
    }
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "t%d", 2 * no + i);
        fill(gw_tensor(&w, name, QN_F32, 1, (uint64_t[]){9}, NULL), 36, 2 * no + i);
    }
    assert_int_equal(gw_save(&w, path), 0);
    gw_free(&w);
}

static void split_model_loads_from_its_first_file(void **state)
{
    (void)state;
    char path[3][128];
    uint64_t bytes = 0;
    for (int i = 0; i < 3; i++) {
        snprintf(path[i], sizeof path[i], "%s/m-%05d-of-00003.gguf", dir, i + 1);
        save_part(path[i], i, 3, 6, i == 1 ? 256 : 0);
        struct stat st;
        assert_int_equal(stat(path[i], &st), 0);
        bytes += (uint64_t)st.st_size;
    }
    qn_gguf *g = open_path(path[0]);
    assert_string_equal(qn_gguf_path(g), path[0]);
    assert_int_equal(qn_gguf_file_bytes(g), bytes);
    assert_int_equal(qn_gguf_n_tensors(g), 6);
    assert_non_null(qn_gguf_find(g, "general.name"));
    for (int i = 0; i < 6; i++) {
        char name[8];
        uint8_t want[36];
        snprintf(name, sizeof name, "t%d", i);
        const qn_tensor *t = qn_gguf_find_tensor(g, name);
        assert_int_equal(t->shard, i / 2);
        fill(want, sizeof want, i);
        assert_memory_equal(t->data, want, sizeof want);
    }
    qn_gguf_close(g);
    for (int i = 0; i < 3; i++) {
        unlink(path[i]);
    }
}

static void one_of_one_is_an_ordinary_file(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/m-00001-of-00001.gguf", dir);
    save_part(path, 0, 1, 2, 0);
    qn_gguf *g = open_path(path);
    assert_int_equal(qn_gguf_n_tensors(g), 2);
    qn_gguf_close(g);
    unlink(path);
    /* Nor does a name alone make a split. */
    gw w = gw_new();
    gw_tensor(&w, "t", QN_F32, 1, (uint64_t[]){3}, NULL);
    assert_int_equal(gw_save(&w, path), 0);
    gw_free(&w);
    g = open_path(path);
    assert_int_equal(qn_gguf_n_tensors(g), 1);
    qn_gguf_close(g);
    unlink(path);
}

/* Sizes and offsets beyond 32 bits, in a sparse file. */
static void more_than_4_gib(void **state)
{
    (void)state;
    const uint64_t big = 5ull << 30;
    gw w = gw_new();
    gw_tensor_raw(&w, "big", QN_F32, 2, (uint64_t[]){1ull << 28, 5}, 0);
    gw_tensor_raw(&w, "last", QN_F32, 1, (uint64_t[]){4}, big);
    size_t start;
    uint8_t *head = gw_bytes(&w, &start);
    char path[128];
    snprintf(path, sizeof path, "%s/big.gguf", dir);
    assert_int_equal(gw_write_file(path, head, start), 0);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseeko(f, (off_t)(start + big), SEEK_SET), 0);
    assert_int_equal(fwrite("0123456789abcdef", 1, 16, f), 16);
    assert_int_equal(fclose(f), 0);
    qn_gguf *g = open_path(path);
    assert_true(qn_gguf_file_bytes(g) == start + big + 16);
    assert_true(qn_gguf_find_tensor(g, "big")->n_bytes == big);
    assert_memory_equal(qn_gguf_find_tensor(g, "last")->data, "0123456789abcdef", 16);
    qn_gguf_close(g);
    unlink(path);
    free(head);
    gw_free(&w);
}

static void type_names(void **state)
{
    (void)state;
    assert_string_equal(qn_kv_type_name(QN_KV_U8), "u8");
    assert_string_equal(qn_kv_type_name(QN_KV_STRING), "str");
    assert_string_equal(qn_kv_type_name(QN_KV_ARRAY), "array");
    assert_string_equal(qn_kv_type_name(QN_KV_F64), "f64");
    assert_string_equal(qn_kv_type_name((qn_kv_type)13), "?");
    qn_gguf_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalars_convert),
        cmocka_unit_test(arrays_are_indexed),
        cmocka_unit_test(tensors_at_every_alignment),
        cmocka_unit_test(headers_of_every_length),
        cmocka_unit_test(many_names_are_found),
        cmocka_unit_test(known_types_without_decode_parse),
        cmocka_unit_test(longest_names),
        cmocka_unit_test(no_tensors_at_all),
        cmocka_unit_test(split_model_loads_from_its_first_file),
        cmocka_unit_test(one_of_one_is_an_ordinary_file),
        cmocka_unit_test(more_than_4_gib),
        cmocka_unit_test(type_names),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
