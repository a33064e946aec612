// jit_util.h: what the tests of the kernel compiler and its cache share.
#ifndef QN_TESTS_JIT_UTIL_H
#define QN_TESTS_JIT_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codegen/cache.h"

// A folder of its own for a test; path has 256 bytes.
static inline void temp_dir(char *path)
{
    const char *base = getenv("TMPDIR");
    snprintf(path, 256, "%.200s/quern-test-XXXXXX", base && base[0] ? base : "/tmp");
    assert_non_null(mkdtemp(path));
}

static inline void remove_tree(const char *path)
{
    if (unlink(path) == 0) {
        return;
    }
    DIR *d = opendir(path);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        char sub[600];
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            snprintf(sub, sizeof sub, "%.300s/%.255s", path, e->d_name);
            remove_tree(sub);
        }
    }
    if (d) {
        closedir(d);
    }
    rmdir(path);
}

// Names in a folder that are not "." and "..": all, or those with the prefix; the last one goes to name (256
// bytes).
static inline int count_names(const char *path, const char *prefix, char *name)
{
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            strncmp(e->d_name, prefix, strlen(prefix)) != 0) {
            continue;
        }
        n++;
        if (name) {
            snprintf(name, 256, "%s", e->d_name);
        }
    }
    if (d) {
        closedir(d);
    }
    return n;
}

static inline void write_file(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static inline char *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *size = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*size + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *size, f), *size);
    fclose(f);
    data[*size] = '\0';
    return data;
}

static inline int count_damaged(void *user, const qn_cache_item *item)
{
    int *counts = user;
    counts[0]++;
    counts[1] += item->damaged;
    return 0;
}

// Entries in a cache folder, all of them whole, and nothing beside them.
static inline int whole_entries(const char *dir)
{
    qn_err err = {""};
    int counts[2] = {0, 0};
    qn_cache *c = qn_cache_open(dir);
    assert_non_null(c);
    assert_int_equal(qn_cache_each(c, count_damaged, counts, &err), 0);
    qn_cache_close(c);
    assert_int_equal(counts[1], 0);
    assert_int_equal(count_names(dir, "", NULL), counts[0]);
    return counts[0];
}

#endif
