// rooms: room_base
// Where libraries are looked for, in which order, and what is said of those refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dynlib.h"

static char top[64];

static void make_dirs(const char *path)
{
    char part[600];
    for (size_t i = 1; i <= strlen(path); i++) {
        if (path[i] == '/' || path[i] == '\0') {
            snprintf(part, sizeof part, "%.*s", (int)i, path);
            mkdir(part, 0777);
        }
    }
}

// A path below the test's folder; at most eight at a time.
static const char *at(const char *below)
{
    static char paths[8][400];
    static int next;
    char *p = paths[next++ % 8];
    snprintf(p, sizeof paths[0], "%s/%s", top, below);
    return p;
}

static int index_of(const qn_dirs *d, const char *path)
{
    for (int i = 0; i < d->n; i++) {
        if (strcmp(d->dirs[i].path, path) == 0) {
            return i;
        }
    }
    return -1;
}

static void folders_come_in_the_stated_order(void **state)
{
    (void)state;
    static const char *const folders[] = {
        "cuda/lib64",
        "cuda/targets/some-arch/lib",
        "venv/lib/python3.11/site-packages/nvidia/cu13/lib",
        "venv/lib/python3.11/site-packages/nvidia/cublas/lib",
        "extra/nvidia/cuda_nvrtc/lib",
        "other/lib/python3/dist-packages/nvidia/cu13/lib",
        "base/lib/python3.12/site-packages/nvidia/cu13/lib",
        "base/bin",
        "other/bin",
        "home/.local/lib/python3.9/site-packages/nvidia/cu12/lib",
        "home/.pyenv/versions/3.12.1/lib/python3.12/site-packages/nvidia/cu13/lib",
    };
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        make_dirs(at(folders[i]));
    }
    FILE *f = fopen(at("base/bin/python3.12"), "w");
    assert_non_null(f);
    fclose(f);
    chmod(at("base/bin/python3.12"), 0755);
    assert_int_equal(symlink(at("base/bin/python3.12"), at("other/bin/python3")), 0);
    char path[400];
    snprintf(path, sizeof path, "relative:%s", at("other/bin"));
    setenv("CUDA_PATH", at("cuda"), 1);
    setenv("VIRTUAL_ENV", at("venv"), 1);
    setenv("PYTHONPATH", at("extra"), 1);
    setenv("PATH", path, 1);
    setenv("HOME", at("home"), 1);
    qn_dirs d = {0};
    qn_err err;
    assert_int_equal(qn_dirs_cuda(&d, &err), 0);
    assert_string_equal(d.dirs[0].path, ""); // the loader's own search
    assert_string_equal(d.dirs[0].place, "loader path");
    static const int order[] = {0, 1, 2, 3, 4, 5, 6, 9, 10};
    int last = 0;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        int is = index_of(&d, at(folders[order[i]]));
        if (is <= 0) {
            fail_msg("%s is not searched", folders[order[i]]);
        }
        assert_string_equal(d.dirs[is].place, i < 2 ? "CUDA_PATH" : "pip");
        if (i != 3) { // two packages of one folder: either first
            assert_true(is > last);
            last = is;
        }
    }
    for (int i = 0; i < d.n; i++) {
        assert_int_equal(index_of(&d, d.dirs[i].path), i); // none twice
    }
    qn_dirs_free(&d);
}

static void a_wrong_cuda_path_is_shown(void **state)
{
    (void)state;
    setenv("CUDA_PATH", "/not/there", 1);
    qn_dirs d = {0};
    qn_err err;
    assert_int_equal(qn_dirs_cuda(&d, &err), 0);
    assert_int_equal(index_of(&d, "/not/there/lib64"), 1);
    qn_dirs_free(&d);
    unsetenv("CUDA_PATH");
}

static void newer_folders_come_first(void **state)
{
    (void)state;
    qn_dirs d = {0};
    make_dirs(at("t/cuda-12.9"));
    make_dirs(at("t/cuda-13.0"));
    assert_int_equal(qn_dirs_glob(&d, "x", at("t/cuda-*")), 0);
    assert_int_equal(d.n, 2);
    assert_string_equal(d.dirs[0].path, at("t/cuda-13.0"));
    qn_dirs_free(&d);
}

static int refuse_first(void *user, const qn_dynlib *lib, qn_err *err)
{
    int *calls = user;
    assert_non_null(lib->handle);
    return (*calls)++ ? 0 : qn_fail(err, "not this one");
}

static int refuse_all(void *user, const qn_dynlib *lib, qn_err *err)
{
    (void)user;
    double (*table[2])(double);
    static const qn_symbol optional[] = {{"cos", 0, false}, {"no_such_symbol", sizeof table[0], true}};
    static const qn_symbol needed[] = {{"no_such_symbol", 0, false}};
    assert_int_equal(qn_dynlib_resolve(lib, table, optional, 2, err), 0);
    assert_true(table[0](0.0) == 1.0);
    assert_null(table[1]);
    return qn_dynlib_resolve(lib, table, needed, 1, err);
}

static void goes_on_behind_what_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"libm.so.7", "libm.so.6", NULL};
    qn_dirs d = {0};
    qn_dynlib lib;
    qn_err err;
    int calls = 0;
    make_dirs(at("bad"));
    FILE *f = fopen(at("bad/libm.so.7"), "w");
    assert_non_null(f);
    fputs("no library", f);
    fclose(f);
    assert_int_equal(qn_dirs_add(&d, "here", at("bad")), 0);
    assert_int_equal(qn_dirs_add(&d, "loader path", ""), 0);
    assert_int_equal(qn_dynlib_open(&lib, &d, names, refuse_all, NULL, &err), -1);
    assert_non_null(strstr(err.text, "libm.so.7, libm.so.6 not found in"));
    assert_non_null(strstr(err.text, "bad/libm.so.7: "));
    assert_non_null(strstr(err.text, "no symbol no_such_symbol"));
    char real[QN_PATH_MAX];
    static const char *const both[] = {"libm.so.6", "libc.so.6", NULL};
    assert_int_equal(qn_dynlib_open(&lib, &d, both, refuse_first, &calls, &err), 0);
    assert_int_equal(calls, 2);
    assert_string_equal(lib.place, "loader path");
    assert_non_null(strstr(lib.path, "libc"));
    assert_non_null(realpath(lib.dir, real));
    qn_dirs_free(&d);
}

static void the_checkout_of_this_program_is_found(void **state)
{
    (void)state;
    char root[QN_PATH_MAX], small[4];
    assert_true(qn_checkout_root(root, sizeof root));
    assert_string_equal(root, QN_SOURCE_DIR);
    assert_false(qn_checkout_root(small, sizeof small));
}

static int make_top(void **state)
{
    (void)state;
    strcpy(top, "/tmp/quern-dynlib-XXXXXX");
    return mkdtemp(top) ? 0 : -1;
}

static int remove_top(void **state)
{
    (void)state;
    char command[100];
    setenv("PATH", "/usr/bin:/bin", 1);
    snprintf(command, sizeof command, "rm -rf %s", top);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_come_in_the_stated_order),
        cmocka_unit_test(a_wrong_cuda_path_is_shown),
        cmocka_unit_test(newer_folders_come_first),
        cmocka_unit_test(goes_on_behind_what_is_refused),
        cmocka_unit_test(the_checkout_of_this_program_is_found),
    };
    return cmocka_run_group_tests(tests, make_top, remove_top);
}
