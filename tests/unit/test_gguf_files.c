// rooms: room_model
/* What is on disk and must be refused: bug cases B01 (cut files), B03 (not a GGUF, not a file) and B05
 * (splits). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit/gguf_refused.h"

static char dir[] = "/tmp/quern-test-gguf-bad-XXXXXX";

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

static const char *refused_open(const char *path, const char *part, const char *part2)
{
    static qn_err err;
    qn_gguf *g = (qn_gguf *)&err;
    err.text[0] = '\0';
    if (qn_gguf_open(&g, path, &err) == 0) {
        fail_msg("%s opened; expected: %s", path, part);
    }
    assert_null(g);
    contains(err.text, part);
    contains(err.text, part2 ? part2 : "");
    return err.text;
}

/* The same, and the message names the path itself. */
static const char *refused_path(const char *path, const char *part, const char *part2)
{
    const char *text = refused_open(path, part, part2);
    contains(text, path);
    return text;
}

/* B01 */
static void truncated_file_names_first_tensor(void **state)
{
    (void)state;
    gw w = gw_new();
    char name[16], path[128];
    for (int i = 0; i < 10; i++) {
        snprintf(name, sizeof name, "blk.%d.w", i);
        gw_tensor(&w, name, QN_F32, 2, (uint64_t[]){256, 16}, NULL); /* 16384 bytes each */
    }
    size_t size;
    uint8_t *bytes = gw_bytes(&w, &size);
    size_t start = size - 10 * 16384;
    snprintf(path, sizeof path, "%s/cut.gguf", dir);
    size_t cuts[] = {size / 10, size / 2, size - size / 1000, size - 1};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(gw_write_file(path, bytes, cuts[i]), 0);
        char tensor[64], has[64], needs[64];
        size_t first = (cuts[i] - start) / 16384;
        snprintf(tensor, sizeof tensor, "tensor blk.%zu.w does not fit", first);
        snprintf(has, sizeof has, "has %zu bytes", cuts[i]);
        snprintf(needs, sizeof needs, "end at byte %zu", start + (first + 1) * 16384);
        const char *text = refused_path(path, tensor, has);
        contains(text, needs);
        contains(text, "probably incomplete");
    }
    unlink(path);
    free(bytes);
    gw_free(&w);
}

/* B03: one message each, and no two alike. */
static char seen[32][QN_ERR_MAX];
static int n_seen;

static void remember(const char *text)
{
    const char *reason = strstr(text, ": ");
    assert_non_null(reason);
    for (int i = 0; i < n_seen; i++) {
        assert_string_not_equal(seen[i], reason);
    }
    snprintf(seen[n_seen++], QN_ERR_MAX, "%s", reason);
}

static void foreign(const char *path, const void *bytes, size_t size, const char *part, const char *part2)
{
    assert_int_equal(gw_write_file(path, bytes, size), 0);
    remember(refused_path(path, part, part2));
    unlink(path);
}

static void version_file(const char *path, uint32_t version, const char *part, const char *part2)
{
    gw w = good();
    w.version = version;
    size_t size;
    uint8_t *bytes = gw_bytes(&w, &size);
    foreign(path, bytes, size, part, part2);
    free(bytes);
    gw_free(&w);
}

static void not_a_gguf(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/x.gguf", dir);
    version_file(path, 0x03000000u, "big-endian", "version 3");
    version_file(path, 1, "version 1", "too old");
    version_file(path, 4, "version 4", "too new");
    version_file(path, 0, "version 0", "damaged");
    version_file(path, 0x12345678u, "version 305419896", "too new");
    static const struct {
        const char *bytes;
        size_t size;
        const char *part, *part2;
    } cases[] = {
        {"FUGG\0\0\0\3aaaaaaaaaaaaaaaa", sizeof "FUGG\0\0\0\3aaaaaaaaaaaaaaaa" - 1, "big-endian", NULL},
        {"tjgg\3\0\0\0aaaaaaaaaaaaaaaa", sizeof "tjgg\3\0\0\0aaaaaaaaaaaaaaaa" - 1, "ggjt", "convert"},
        {"fmgg\1\0\0\0aaaaaaaaaaaaaaaa", sizeof "fmgg\1\0\0\0aaaaaaaaaaaaaaaa" - 1, "ggmf", "convert"},
        {"lmgg\0\0\0\0aaaaaaaaaaaaaaaa", sizeof "lmgg\0\0\0\0aaaaaaaaaaaaaaaa" - 1, "GGML", "convert"},
        {"algg\0\0\0\0aaaaaaaaaaaaaaaa", sizeof "algg\0\0\0\0aaaaaaaaaaaaaaaa" - 1, "adapter", NULL},
        {"", sizeof "" - 1, "is empty", "0 bytes"},
        {"GGUF", sizeof "GGUF" - 1, "4 bytes", "incomplete"},
        {"abcd", sizeof "abcd" - 1, "4 bytes", "not a GGUF file or incomplete"},
        {"\n<!DOCTYPE html>\n<html><body>404</body></html>",
         sizeof "\n<!DOCTYPE html>\n<html><body>404</body></html>" - 1, "HTML", "download"},
        {"PK\3\4aaaaaaaaaaaaaaaaaaaaaaaaaa", sizeof "PK\3\4aaaaaaaaaaaaaaaaaaaaaaaaaa" - 1, "zip", NULL},
        {"\x1f\x8b\x08\0aaaaaaaaaaaaaaaaaaaaaaaa", sizeof "\x1f\x8b\x08\0aaaaaaaaaaaaaaaaaaaaaaaa" - 1,
         "gzip", NULL},
        {"\x40\0\0\0\0\0\0\0{\"__metadata__\":{}}", sizeof "\x40\0\0\0\0\0\0\0{\"__metadata__\":{}}" - 1,
         "safetensors", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        foreign(path, cases[i].bytes, cases[i].size, cases[i].part, cases[i].part2);
    }
}

static void html_in_other_forms(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/x.gguf", dir);
    static const char *const pages[] = {"<html>\n<head>", "<HTML><BODY>", "\xef\xbb\xbf<!doctype html>",
                                        "<?xml version=\"1.0\"?><Error/>"};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(gw_write_file(path, pages[i], strlen(pages[i])), 0);
        refused_path(path, "HTML or XML page", NULL);
    }
    unlink(path);
}

static void not_a_file(void **state)
{
    (void)state;
    char path[128];
    remember(refused_path(dir, "is a directory", NULL));
    snprintf(path, sizeof path, "%s/none.gguf", dir);
    remember(refused_path(path, "No such file", NULL));
    snprintf(path, sizeof path, "%s/fifo.gguf", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(600); /* a hang kills the test */
    remember(refused_path(path, "FIFO", "not a regular file"));
    alarm(0);
    unlink(path);
    remember(refused_path("/dev/null", "not a regular file", NULL));

    snprintf(path, sizeof path, "%s/secret.gguf", dir);
    gw w = good();
    assert_int_equal(gw_save(&w, path), 0);
    gw_free(&w);
    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(chmod(dir, 0711), 0);
    uid_t me = geteuid();
    if (me == 0) { /* root may read anything */
        assert_int_equal(seteuid(65534), 0);
    }
    qn_gguf *g;
    qn_err err;
    int rc = qn_gguf_open(&g, path, &err);
    assert_int_equal(seteuid(me), 0);
    assert_int_equal(rc, -1);
    contains(err.text, "no permission");
    remember(err.text);
    unlink(path);

    /* Paths are shown whole up to 255 bytes, then without their middle. */
    for (int len = 250; len < 260; len++) {
        char long_path[300];
        memset(long_path, 'x', sizeof long_path);
        memcpy(long_path, "/none/", 6);
        for (int i = 60; i < len; i += 60) {
            long_path[i] = '/';
        }
        long_path[len] = '\0';
        assert_int_equal(qn_gguf_open(&g, long_path, &err), -1);
        contains(err.text, ": cannot be opened: No such file or directory");
        assert_int_equal(strstr(err.text, long_path) == err.text, len <= 255);
        assert_int_equal(strstr(err.text, "...") != NULL, len > 255);
    }

    /* A path longer than a message can hold still leaves room for the reason. */
    char longest[3000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(qn_gguf_open(&g, longest, &err), -1);
    contains(err.text, "cannot be opened: File name too long");
}

/* B05 */
typedef struct part_keys {
    int no, count, total; /* -1: leave the key out */
} part_keys;

static void save_part(char *path, size_t size, int name_no, int name_count, part_keys keys,
                      const char *tensor)
{
    snprintf(path, size, "%s/m-%05d-of-%05d.gguf", dir, name_no, name_count);
    gw w = gw_new();
    static const char *const names_of[] = {"split.no", "split.count", "split.tensors.count"};
    const int values[] = {keys.no, keys.count, keys.total};
    for (int i = 0; i < 3; i++) {
        if (values[i] >= 0) {
            gw_int(&w, names_of[i], i < 2 ? QN_KV_U16 : QN_KV_I32, values[i]);
        }
    }
    gw_tensor(&w, tensor, QN_F32, 1, (uint64_t[]){9}, NULL);
    assert_int_equal(gw_save(&w, path), 0);
    gw_free(&w);
}

static void names_that_are_nearly_right(void **state)
{
    (void)state;
    char one[128], path[128];
    static const char *const nearly[] = {"m-0000a-of-00003.gguf", "m-00001-of-0000a.gguf",
                                         "m_00001-of-00003.gguf", "m-00001_of_00003.gguf",
                                         "m-00001-of-00003.ggu_", "m-00001-of-00004.gguf"};
    for (size_t i = 0; i < sizeof nearly / sizeof nearly[0]; i++) {
        for (int no = 0; no < 2; no++) {
            save_part(one, sizeof one, 1, 3, (part_keys){no, 3, 3}, "a");
            snprintf(path, sizeof path, "%s/%s", dir, nearly[i]);
            assert_int_equal(rename(one, path), 0);
            refused_path(path, no ? "whose name ends in -00001-of-00003.gguf" : "not called", NULL);
            unlink(path);
        }
    }
}

static void split_models(void **state)
{
    (void)state;
    char one[128], two[128], three[128], elsewhere[128];
    save_part(one, sizeof one, 1, 3, (part_keys){0, 3, 3}, "a");
    save_part(two, sizeof two, 2, 3, (part_keys){1, 3, 3}, "b");
    snprintf(three, sizeof three, "%s/m-00003-of-00003.gguf", dir);
    refused_open(one, three, "part 3 of 3");
    refused_path(two, "part 2 of 3", one);
    contains(refused_path(two, "pass", one), "first file");

    save_part(three, sizeof three, 3, 3, (part_keys){2, 3, 3}, "b");
    refused_open(one, "tensor b", two);
    save_part(three, sizeof three, 3, 3, (part_keys){2, 4, 3}, "c");
    refused_open(one, three, "split.count 4");
    save_part(three, sizeof three, 3, 3, (part_keys){1, 3, 3}, "c");
    contains(refused_open(one, three, "split.no 1"), "should be 2 and 3");
    save_part(three, sizeof three, 3, 3, (part_keys){-1, -1, 3}, "c");
    refused_open(one, three, "split.no -1");
    save_part(three, sizeof three, 3, 3, (part_keys){2, 3, 3}, "c");

    save_part(one, sizeof one, 1, 3, (part_keys){0, 3, 4}, "a");
    refused_path(one, "split.tensors.count is 4", "hold 3 tensors");
    save_part(one, sizeof one, 1, 3, (part_keys){0, 3, -1}, "a");
    refused_path(one, "split.tensors.count is missing", NULL);
    save_part(one, sizeof one, 1, 3, (part_keys){3, 3, 3}, "a");
    refused_path(one, "split.no 3, split.count 3", NULL);
    save_part(one, sizeof one, 1, 3, (part_keys){0, 2, 3}, "a");
    refused_path(one, "not called ...-00001-of-00002.gguf", NULL);
    save_part(one, sizeof one, 1, 3, (part_keys){0, 3, 3}, "a");

    snprintf(elsewhere, sizeof elsewhere, "%s/renamed.gguf", dir);
    assert_int_equal(rename(one, elsewhere), 0);
    refused_path(elsewhere, "not called ...-00001-of-00003.gguf", "names back");
    assert_int_equal(rename(two, elsewhere), 0);
    refused_path(elsewhere, "part 2 of 3", "-00001-of-00003.gguf");
    unlink(elsewhere);
    unlink(three);

    /* A sibling that is cut is named, and so is one that is no GGUF. */
    save_part(one, sizeof one, 1, 2, (part_keys){0, 2, 2}, "a");
    save_part(two, sizeof two, 2, 2, (part_keys){1, 2, 2}, "b");
    struct stat st;
    assert_int_equal(stat(two, &st), 0);
    assert_int_equal(truncate(two, st.st_size - 32), 0);
    refused_open(one, two, "tensor b does not fit");
    assert_int_equal(truncate(two, 3), 0);
    refused_open(one, two, "too short");
    unlink(one);
    unlink(two);

    /* Split keys of a wrong type, in the sibling and in the first. */
    save_part(one, sizeof one, 1, 2, (part_keys){0, 2, 2}, "a");
    snprintf(two, sizeof two, "%s/m-00002-of-00002.gguf", dir);
    gw w = gw_new();
    gw_f32(&w, "split.no", 1);
    assert_int_equal(gw_save(&w, two), 0);
    gw_free(&w);
    refused_open(one, two, "split.no (type f32)");
    unlink(one);
    unlink(two);

    w = gw_new();
    gw_int(&w, "split.count", QN_KV_U16, 2);
    gw_int(&w, "split.no", QN_KV_U16, 0);
    refused(&w, "part 1 of 2", NULL);
    w = gw_new();
    gw_str(&w, "split.count", "2");
    refused(&w, "key split.count", "type str");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(truncated_file_names_first_tensor),
        cmocka_unit_test(not_a_gguf),
        cmocka_unit_test(html_in_other_forms),
        cmocka_unit_test(not_a_file),
        cmocka_unit_test(names_that_are_nearly_right),
        cmocka_unit_test(split_models),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
