/* dynlib.h: finding and opening a shared library that quern uses but is never linked with. */
#ifndef QN_BASE_DYNLIB_H
#define QN_BASE_DYNLIB_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { QN_PATH_MAX = 4096 };

/* printf into a path; one that does not fit becomes "" and false. */
bool qn_path_format(char *out, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Folders to search, in order. An empty path means the loader's own search (LD_LIBRARY_PATH, ld.so.cache). */
typedef struct qn_dir {
    const char *place; /* "loader path", "CUDA_PATH", "/usr/local/cuda*", "pip" */
    char *path;
} qn_dir;

typedef struct qn_dirs {
    qn_dir *dirs;
    int n, cap;
} qn_dirs;

/* Adds one folder (copied); folders already there are not added again. -1: out of memory. */
int qn_dirs_add(qn_dirs *d, const char *place, const char *path);
/* Adds the folders that match a glob pattern, last name first (so that cuda-13.0 comes before cuda-12.9). */
int qn_dirs_glob(qn_dirs *d, const char *place, const char *pattern);
void qn_dirs_free(qn_dirs *d);

/* The folders of CUDA's libraries: the loader path, $CUDA_PATH, /usr/local/cuda*, and nvidia/<any>/lib below
 * the site-packages folders of the Pythons in sight (docs/jit-and-cache.md lists them). No Python is run. */
int qn_dirs_cuda(qn_dirs *d, qn_err *err);

typedef struct qn_dynlib {
    void *handle;
    const char *place;      /* qn_dir.place it was found through (static storage) */
    char path[QN_PATH_MAX]; /* the file, symbolic links resolved */
    char dir[QN_PATH_MAX];  /* the folder it was opened from: where its sister libraries stand */
} qn_dynlib;

/* Opens the first library that `accept` takes: every folder in turn, in each the names in turn
 * (NULL-terminated, best first). accept looks the symbols up; where it fails (-1), the search goes on. On
 * failure err says what was looked for, where, and why files that exist were refused. An open library stays
 * open until the process ends. */
typedef int (*qn_dynlib_accept)(void *user, const qn_dynlib *lib, qn_err *err);
int qn_dynlib_open(qn_dynlib *out, const qn_dirs *dirs, const char *const *names, qn_dynlib_accept accept,
                   void *user, qn_err *err);

/* One function to look up: where its address goes, and whether the library is of use without it. */
typedef struct qn_symbol {
    const char *name;
    size_t offset; /* in the table of function pointers */
    bool optional;
} qn_symbol;

/* Fills a table of function pointers; n rows. A missing symbol that is not optional is an error naming it; a
 * missing optional one leaves NULL. */
int qn_dynlib_resolve(const qn_dynlib *lib, void *table, const qn_symbol *symbols, size_t n, qn_err *err);

/* Root of the checkout this binary was built in (a folder up to three levels above it that holds kernel_src/
 * and cache/), without a slash at the end; false where there is none. */
bool qn_checkout_root(char *path, size_t size);

#endif
