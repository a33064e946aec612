// rooms: room_codegen
// The kernel cache by itself, with entries that no compiler made.
#include "unit/jit_util.h"

#include <sys/wait.h>
#include <time.h>

#include "codegen/cache_fs.h"
#include "codegen/meta.h"

static qn_blob blob(const char *text, size_t size)
{
    qn_blob b = {malloc(size + 1), size};
    assert_non_null(b.data);
    memcpy(b.data, text, size);
    b.data[size] = '\0';
    return b;
}

// An entry whose cubin has bytes of every kind.
static void make(qn_kernel *k, qn_blob *key, int seed)
{
    char text[64], digest[17], bytes[700];
    *k = (qn_kernel){.n_entry = 2, .seconds = 0.25};
    snprintf(text, sizeof text, "source %d\n", seed);
    k->source = blob(text, strlen(text));
    k->ptx = blob(".version 8.0\n", 13);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (char)(i * 7 + (size_t)seed);
    }
    k->cubin = blob(bytes, sizeof bytes);
    strcpy(k->arch, "sm_90a");
    k->entries[0] = (qn_kernel_entry){"norm_rms_n64", 256, 20, 128, 0, 0, 0};
    k->entries[1] = (qn_kernel_entry){"norm_finish", 32, -1, -1, 8, 4, 12};
    int n = snprintf(text, sizeof text, "key %d\nwith lines\n", seed);
    *key = blob(text, (size_t)n);
    qn_cache_digest(key->data, key->size, digest);
    snprintf(k->name, sizeof k->name, "norm-rms_n64-%s", digest);
}

static void store(const char *dir, const qn_kernel *k, const qn_blob *key)
{
    qn_err err;
    qn_cache *c = qn_cache_open(dir);
    if (qn_cache_store(c, k, key, &err) != 0) {
        fail_msg("%s", err.text);
    }
    qn_cache_close(c);
}

static int load(const char *dir, const char *name, const qn_blob *key, qn_kernel *out, qn_err *err)
{
    qn_cache *c = qn_cache_open(dir);
    *out = (qn_kernel){0};
    int rc = qn_cache_load(c, name, key, out, err);
    qn_cache_close(c);
    return rc;
}

static void free_made(qn_kernel *k, qn_blob *key)
{
    qn_kernel_clear(k);
    free(key->data);
}

static void gives_back_what_was_stored(void **state)
{
    (void)state;
    char dir[256], sub[300];
    temp_dir(dir);
    snprintf(sub, sizeof sub, "%s/not/yet/there", dir);
    qn_kernel k, got;
    qn_blob key;
    qn_err err;
    make(&k, &key, 1);
    assert_int_equal(load(sub, k.name, &key, &got, &err), 0);
    assert_string_equal(err.text, "");
    store(sub, &k, &key);
    store(sub, &k, &key); // again: as if another process had been first
    assert_int_equal(load(sub, k.name, &key, &got, &err), 1);
    assert_true(got.cached);
    assert_string_equal(got.name, k.name);
    assert_string_equal(got.arch, "sm_90a");
    assert_int_equal(got.cubin.size, k.cubin.size);
    assert_memory_equal(got.cubin.data, k.cubin.data, k.cubin.size);
    assert_string_equal(got.source.data, k.source.data);
    assert_string_equal(got.ptx.data, k.ptx.data);
    assert_int_equal(got.n_entry, 2);
    assert_memory_equal(&got.entries[0].threads, &k.entries[0].threads, 6 * sizeof(int));
    assert_memory_equal(&got.entries[1].threads, &k.entries[1].threads, 6 * sizeof(int));
    assert_non_null(qn_kernel_find(&got, "norm_finish"));
    assert_null(qn_kernel_find(&got, "norm"));
    assert_int_equal((int)(got.seconds * 1000 + 0.5), 250);
    assert_int_equal(whole_entries(sub), 1);
    qn_kernel_clear(&got);
    free_made(&k, &key);
    remove_tree(dir);
}

static void an_entry_without_cubin_is_whole(void **state)
{
    (void)state;
    char dir[256];
    temp_dir(dir);
    qn_kernel k, got;
    qn_blob key;
    qn_err err;
    make(&k, &key, 2);
    free(k.cubin.data);
    k.cubin = (qn_blob){0};
    store(dir, &k, &key);
    assert_int_equal(load(dir, k.name, &key, &got, &err), 1);
    assert_int_equal(got.cubin.size, 0);
    qn_kernel_clear(&got);
    free_made(&k, &key);
    remove_tree(dir);
}

// Every byte of every file flipped, and every file cut at every length: never taken, and never a crash.
static void every_flip_and_cut_is_found(void **state)
{
    (void)state;
    static const char *const files[] = {"meta", "kernel.cubin", "kernel.ptx", "kernel.cu"};
    char dir[256], path[600];
    temp_dir(dir);
    qn_kernel k, got;
    qn_blob key;
    qn_err err;
    make(&k, &key, 3);
    store(dir, &k, &key);
    int tried = 0;
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        size_t size;
        snprintf(path, sizeof path, "%s/%s/%s", dir, k.name, files[f]);
        char *whole = read_file(path, &size);
        for (size_t i = 0; i < size; i++) {
            whole[i] ^= (char)(1 << i % 8);
            write_file(path, whole, size);
            assert_int_equal(load(dir, k.name, &key, &got, &err), -1);
            assert_non_null(strstr(err.text, k.name));
            whole[i] ^= (char)(1 << i % 8);
            write_file(path, whole, i);
            assert_int_equal(load(dir, k.name, &key, &got, &err), -1);
            tried += 2;
        }
        write_file(path, whole, size);
        assert_int_equal(load(dir, k.name, &key, &got, &err), 1);
        qn_kernel_clear(&got);
        unlink(path);
        assert_int_equal(load(dir, k.name, &key, &got, &err), -1);
        assert_non_null(strstr(err.text, files[f]));
        assert_int_equal(mkdir(path, 0777), 0);
        assert_int_equal(load(dir, k.name, &key, &got, &err), -1);
        rmdir(path);
        assert_int_equal(mkfifo(path, 0666), 0); // must not block
        assert_int_equal(load(dir, k.name, &key, &got, &err), -1);
        unlink(path);
        write_file(path, whole, size);
        free(whole);
    }
    assert_true(tried > 2000);
    free_made(&k, &key);
    remove_tree(dir);
}

static void another_key_or_name_is_not_taken(void **state)
{
    (void)state;
    char dir[256], from[600], to[600];
    temp_dir(dir);
    qn_kernel k, other, got;
    qn_blob key, other_key;
    qn_err err;
    make(&k, &key, 4);
    make(&other, &other_key, 5);
    store(dir, &k, &key);
    snprintf(from, sizeof from, "%s/%s", dir, k.name);
    snprintf(to, sizeof to, "%s/%s", dir, other.name);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(load(dir, other.name, &other_key, &got, &err), -1);
    assert_non_null(strstr(err.text, "another key"));
    // Seen without a key, as `quern cache verify` does, its name gives it away.
    qn_cache *c = qn_cache_open(dir);
    int counts[2] = {0, 0};
    assert_int_equal(qn_cache_each(c, count_damaged, counts, &err), 0);
    assert_int_equal(counts[0], 1);
    assert_int_equal(counts[1], 1);
    assert_int_equal(qn_cache_drop(c, other.name, &err), 0);
    assert_int_equal(qn_cache_drop(c, other.name, &err), 0); // gone already
    qn_cache_close(c);
    assert_int_equal(count_names(dir, "", NULL), 0);
    free_made(&k, &key);
    free_made(&other, &other_key);
    remove_tree(dir);
}

static void odd_things_in_its_place_are_damage_and_can_be_dropped(void **state)
{
    (void)state;
    char dir[256], path[600];
    temp_dir(dir);
    qn_kernel k, got;
    qn_blob key;
    qn_err err;
    make(&k, &key, 6);
    snprintf(path, sizeof path, "%s/%s", dir, k.name);
    qn_cache *c = qn_cache_open(dir);
    for (int kind = 0; kind < 3; kind++) {
        if (kind == 0) {
            write_file(path, "x", 1);
        } else if (kind == 1) {
            assert_int_equal(symlink("/", path), 0);
        } else {
            assert_int_equal(mkdir(path, 0777), 0);
        }
        assert_int_equal(load(dir, k.name, &key, &got, &err), -1);
        assert_int_equal(qn_cache_drop(c, k.name, &err), 0);
        store(dir, &k, &key);
        assert_int_equal(load(dir, k.name, &key, &got, &err), 1);
        qn_kernel_clear(&got);
        assert_int_equal(qn_cache_drop(c, k.name, &err), 0);
        assert_int_equal(count_names(dir, "", NULL), 0);
    }
    qn_cache_close(c);
    free_made(&k, &key);
    remove_tree(dir);
}

static void a_path_that_is_a_file_fails_cleanly(void **state)
{
    (void)state;
    char dir[256], path[300];
    temp_dir(dir);
    snprintf(path, sizeof path, "%s/file", dir);
    write_file(path, "x", 1);
    qn_kernel k, got;
    qn_blob key;
    qn_err err;
    make(&k, &key, 7);
    qn_cache *c = qn_cache_open(path);
    got = (qn_kernel){0};
    assert_int_equal(qn_cache_load(c, k.name, &key, &got, &err), 0);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(qn_cache_store(c, &k, &key, &err), -1);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(qn_cache_each(c, count_damaged, (int[2]){0, 0}, &err), -1);
    qn_cache_close(c);
    free_made(&k, &key);
    remove_tree(dir);
}

// Private folders of processes that are gone are removed, those of living ones are not.
static void sweeps_what_the_dead_left(void **state)
{
    (void)state;
    char dir[256], path[400], mine[64];
    temp_dir(dir);
    pid_t dead = fork();
    if (dead == 0) {
        _exit(0);
    }
    waitpid(dead, NULL, 0);
    snprintf(path, sizeof path, "%s/.tmp-%ld-0123", dir, (long)dead);
    assert_int_equal(mkdir(path, 0777), 0);
    strcat(path, "/kernel.cu");
    write_file(path, "x", 1);
    snprintf(path, sizeof path, "%s/.tmp-%ld-4567", dir, (long)getpid());
    assert_int_equal(mkdir(path, 0777), 0); // of a living process, not locked yet
    qn_err err;
    int top = open(dir, O_RDONLY | O_DIRECTORY);
    int fd = qn_fs_private(top, mine, sizeof mine, &err);
    assert_true(fd >= 0);
    qn_cache_close(qn_cache_open(dir));
    assert_int_equal(count_names(dir, "", NULL), 2);
    struct timespec old[2] = {{.tv_sec = time(NULL) - 120}, {.tv_sec = time(NULL) - 120}};
    assert_int_equal(utimensat(top, mine, old, 0), 0); // old but locked
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    qn_cache_close(qn_cache_open(dir));
    assert_int_equal(count_names(dir, "", NULL), 1);
    assert_int_equal(count_names(dir, mine, NULL), 1);
    close(fd);
    close(top);
    qn_cache_close(qn_cache_open(dir));
    assert_int_equal(count_names(dir, "", NULL), 0);
    remove_tree(dir);
}

static void digests_have_sixteen_digits(void **state)
{
    (void)state;
    char a[17], b[17];
    qn_cache_digest("a", 1, a);
    qn_cache_digest("b", 1, b);
    assert_int_equal(strspn(a, "0123456789abcdef"), 16);
    assert_string_not_equal(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_back_what_was_stored),
        cmocka_unit_test(an_entry_without_cubin_is_whole),
        cmocka_unit_test(every_flip_and_cut_is_found),
        cmocka_unit_test(another_key_or_name_is_not_taken),
        cmocka_unit_test(odd_things_in_its_place_are_damage_and_can_be_dropped),
        cmocka_unit_test(a_path_that_is_a_file_fails_cleanly),
        cmocka_unit_test(sweeps_what_the_dead_left),
        cmocka_unit_test(digests_have_sixteen_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
