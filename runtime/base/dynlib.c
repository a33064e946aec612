#include "base/dynlib.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool qn_path_format(char *out, size_t size, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(out, size, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= size) {
        out[0] = '\0';
        return false;
    }
    return true;
}

int qn_dirs_add(qn_dirs *d, const char *place, const char *path)
{
    for (int i = 0; i < d->n; i++) {
        if (strcmp(d->dirs[i].path, path) == 0) {
            return 0;
        }
    }
    if (d->n == d->cap) {
        int cap = d->cap ? 2 * d->cap : 16;
        qn_dir *more = realloc(d->dirs, (size_t)cap * sizeof *more);
        if (!more) {
            return -1;
        }
        d->dirs = more;
        d->cap = cap;
    }
    char *copy = strdup(path);
    if (!copy) {
        return -1;
    }
    d->dirs[d->n++] = (qn_dir){.place = place, .path = copy};
    return 0;
}

int qn_dirs_glob(qn_dirs *d, const char *place, const char *pattern)
{
    glob_t g;
    if (glob(pattern, GLOB_ONLYDIR, NULL, &g) != 0) {
        return 0;
    }
    int rc = 0;
    for (size_t i = g.gl_pathc; i-- > 0 && rc == 0;) {
        struct stat st;
        if (stat(g.gl_pathv[i], &st) == 0 && S_ISDIR(st.st_mode)) {
            rc = qn_dirs_add(d, place, g.gl_pathv[i]);
        }
    }
    globfree(&g);
    return rc;
}

void qn_dirs_free(qn_dirs *d)
{
    for (int i = 0; i < d->n; i++) {
        free(d->dirs[i].path);
    }
    free(d->dirs);
    *d = (qn_dirs){0};
}

/* The library folders of one toolkit: lib64, lib, and targets/<arch>/lib, whichever exist. */
static int add_toolkit(qn_dirs *d, const char *place, const char *root)
{
    static const char *const subs[] = {"lib64", "lib", "targets/*/lib"};
    int rc = 0;
    for (size_t i = 0; i < sizeof subs / sizeof *subs && rc == 0; i++) {
        char pattern[QN_PATH_MAX];
        qn_path_format(pattern, sizeof pattern, "%s/%s", root, subs[i]);
        rc = qn_dirs_glob(d, place, pattern);
    }
    return rc;
}

/* nvidia/<any>/lib of the site-packages (Debian: dist-packages) folders below one prefix. */
static int add_python_prefix(qn_dirs *d, const char *prefix)
{
    static const char *const subs[] = {"lib/python3*/site-packages", "lib/python3*/dist-packages",
                                       "lib/python3/dist-packages", "lib64/python3*/site-packages"};
    int rc = 0;
    for (size_t i = 0; i < sizeof subs / sizeof *subs && rc == 0; i++) {
        char pattern[QN_PATH_MAX];
        qn_path_format(pattern, sizeof pattern, "%s/%s/nvidia/*/lib", prefix, subs[i]);
        rc = qn_dirs_glob(d, "pip", pattern);
    }
    return rc;
}

/* The prefix of bin/python3 in a folder of PATH is the folder above; behind a symbolic link there is a second
 * one (the Python that a virtual environment was made from). */
static int add_python_of_bin(qn_dirs *d, const char *bin)
{
    char exe[QN_PATH_MAX], real[QN_PATH_MAX];
    qn_path_format(exe, sizeof exe, "%s/python3", bin);
    if (access(exe, X_OK) != 0) {
        return 0;
    }
    char *slash = strrchr(exe, '/');
    *slash = '\0';
    slash = strrchr(exe, '/');
    if (slash && slash != exe) {
        *slash = '\0';
        if (add_python_prefix(d, exe) != 0) {
            return -1;
        }
    }
    qn_path_format(exe, sizeof exe, "%s/python3", bin);
    if (!realpath(exe, real)) {
        return 0;
    }
    for (int up = 0; up < 2; up++) {
        slash = strrchr(real, '/');
        if (!slash || slash == real) {
            return 0;
        }
        *slash = '\0';
    }
    return add_python_prefix(d, real);
}

/* fn for every part of a colon-separated list that is an absolute path. */
static int each_part(qn_dirs *d, const char *list, int (*fn)(qn_dirs *, const char *))
{
    char *copy = list ? strdup(list) : NULL;
    char *rest = NULL;
    int rc = 0;
    for (char *part = copy ? strtok_r(copy, ":", &rest) : NULL; part && rc == 0;
         part = strtok_r(NULL, ":", &rest)) {
        if (part[0] == '/') {
            rc = fn(d, part);
        }
    }
    free(copy);
    return rc;
}

static int add_python_path(qn_dirs *d, const char *dir)
{
    char pattern[QN_PATH_MAX];
    qn_path_format(pattern, sizeof pattern, "%s/nvidia/*/lib", dir);
    return qn_dirs_glob(d, "pip", pattern);
}

static int add_pythons(qn_dirs *d)
{
    char prefix[QN_PATH_MAX];
    const char *venv = getenv("VIRTUAL_ENV"), *home = getenv("HOME");
    int rc = venv && venv[0] == '/' ? add_python_prefix(d, venv) : 0;
    char root[QN_PATH_MAX - 8];
    if (rc == 0 && qn_checkout_root(root, sizeof root)) {
        qn_path_format(prefix, sizeof prefix, "%s/.venv", root);
        rc = add_python_prefix(d, prefix);
    }
    rc = rc ? rc : each_part(d, getenv("PYTHONPATH"), add_python_path);
    rc = rc ? rc : each_part(d, getenv("PATH"), add_python_of_bin);
    if (rc == 0 && home && home[0] == '/') {
        qn_path_format(prefix, sizeof prefix, "%s/.local", home);
        rc = add_python_prefix(d, prefix);
        qn_path_format(prefix, sizeof prefix, "%s/.pyenv/versions/*", home);
        rc = rc ? rc : add_python_prefix(d, prefix);
    }
    return rc;
}

int qn_dirs_cuda(qn_dirs *d, qn_err *err)
{
    const char *cuda = getenv("CUDA_PATH");
    int rc = qn_dirs_add(d, "loader path", "");
    if (rc == 0 && cuda && cuda[0]) {
        int before = d->n;
        rc = add_toolkit(d, "CUDA_PATH", cuda);
        if (rc == 0 && d->n == before) { /* a wrong one is searched too, so that messages show it */
            char lib[QN_PATH_MAX];
            qn_path_format(lib, sizeof lib, "%s/lib64", cuda);
            rc = qn_dirs_add(d, "CUDA_PATH", lib);
        }
    }
    rc = rc ? rc : add_toolkit(d, "/usr/local/cuda*", "/usr/local/cuda");
    rc = rc ? rc : add_toolkit(d, "/usr/local/cuda*", "/usr/local/cuda-*");
    rc = rc ? rc : add_pythons(d);
    return rc ? qn_fail(err, "out of memory while listing library folders") : 0;
}

/* Where the loader found a library: its link map knows; symbolic links resolved for display. */
static void fill_path(qn_dynlib *lib, const char *asked)
{
    struct link_map *map = NULL;
    const char *name = asked;
    if (dlinfo(lib->handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && map->l_name[0]) {
        name = map->l_name;
    }
    qn_path_format(lib->dir, sizeof lib->dir, "%s", name);
    char *slash = strrchr(lib->dir, '/');
    if (slash) {
        *slash = '\0';
    } else {
        lib->dir[0] = '\0';
    }
    char real[QN_PATH_MAX];
    qn_path_format(lib->path, sizeof lib->path, "%s", realpath(name, real) ? real : name);
}

/* Adds "a, b" with what stands between to a list, as far as it fits. */
static void note(char *list, size_t size, const char *between, const char *a, const char *b)
{
    size_t used = strlen(list);
    if (used + 1 < size) {
        qn_path_format(list + used, size - used, "%s%s%s", used ? between : "", a, b);
    }
}

/* "libx.so.2, libx.so.1 not found in the loader path, /a, /b; /b/libx.so.1: why it was refused". */
static int not_found(const qn_dirs *dirs, const char *const *names, const char *refused, qn_err *err)
{
    char tried[128] = "", where[QN_ERR_MAX / 3] = "";
    for (const char *const *name = names; *name; name++) {
        note(tried, sizeof tried, ", ", *name, "");
    }
    for (int i = 0; i < dirs->n; i++) {
        const char *path = dirs->dirs[i].path;
        note(where, sizeof where, ", ", path[0] ? path : "the loader path", "");
    }
    return qn_fail(err, "%s not found in %s%s%s", tried, where, refused[0] ? "; " : "", refused);
}

int qn_dynlib_open(qn_dynlib *out, const qn_dirs *dirs, const char *const *names, qn_dynlib_accept accept,
                   void *user, qn_err *err)
{
    char refused[QN_ERR_MAX / 2] = "";
    for (int i = 0; i < dirs->n; i++) {
        for (const char *const *name = names; *name; name++) {
            char file[QN_PATH_MAX];
            const char *dir = dirs->dirs[i].path;
            qn_path_format(file, sizeof file, "%s%s%s", dir, dir[0] ? "/" : "", *name);
            if (dir[0] && access(file, F_OK) != 0) {
                continue;
            }
            *out = (qn_dynlib){.place = dirs->dirs[i].place};
            out->handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
            if (!out->handle) {
                const char *why = dlerror();
                if (dir[0]) {
                    note(refused, sizeof refused, "; ", why ? why : file, why ? "" : ": cannot be opened");
                }
                continue;
            }
            fill_path(out, file);
            qn_err sub;
            if (accept(user, out, &sub) == 0) {
                return 0;
            }
            qn_fail_prefix(&sub, "%s", out->path);
            note(refused, sizeof refused, "; ", sub.text, "");
            dlclose(out->handle);
        }
    }
    *out = (qn_dynlib){0};
    return not_found(dirs, names, refused, err);
}

int qn_dynlib_resolve(const qn_dynlib *lib, void *table, const qn_symbol *symbols, size_t n, qn_err *err)
{
    for (size_t i = 0; i < n; i++) {
        void *p = dlsym(lib->handle, symbols[i].name);
        if (!p && !symbols[i].optional) {
            return qn_fail(err, "no symbol %s", symbols[i].name);
        }
        memcpy((char *)table + symbols[i].offset, &p, sizeof p);
    }
    return 0;
}

bool qn_checkout_root(char *path, size_t size)
{
    char exe[QN_PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0) {
        return false;
    }
    exe[n] = '\0';
    for (int up = 0; up < 4; up++) {
        char *slash = strrchr(exe, '/');
        if (!slash || slash == exe) {
            return false;
        }
        *slash = '\0';
        char probe[QN_PATH_MAX + 32];
        qn_path_format(probe, sizeof probe, "%s/kernel_src/types.cuh", exe);
        bool sources = access(probe, F_OK) == 0;
        qn_path_format(probe, sizeof probe, "%s/cache/README.md", exe);
        if (sources && access(probe, F_OK) == 0 && (size_t)strlen(exe) < size) {
            qn_path_format(path, size, "%s", exe);
            return true;
        }
    }
    return false;
}
