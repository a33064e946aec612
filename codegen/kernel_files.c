#include "codegen/kernel_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "codegen/cache.h"
#include "codegen/cache_fs.h"
#include "model/embedded.h"

enum { KERNEL_FILE_MAX = 1 << 20, NAME_MAX_BYTES = 64 };

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), t = strlen(tail);
    return n > t && strcmp(s + n - t, tail) == 0;
}

static bool is_kernel_file(const char *name)
{
    return name[0] != '.' && strlen(name) <= NAME_MAX_BYTES &&
           (ends_with(name, ".cuh") || ends_with(name, ".cu"));
}

struct row {
    const char *name, *text;
    char *owned;
};

/* Headers first, then by name. */
static int by_kind_and_name(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    bool hx = ends_with(x->name, ".cuh"), hy = ends_with(y->name, ".cuh");
    return hx != hy ? (hx ? -1 : 1) : strcmp(x->name, y->name);
}

static int fill(qn_kernel_files *out, struct row *rows, int n, bool own, qn_err *err)
{
    out->names = qn_calloc((size_t)n, sizeof *out->names);
    out->texts = qn_calloc((size_t)n, sizeof *out->texts);
    out->owned = own ? qn_calloc(2 * (size_t)n, sizeof *out->owned) : NULL;
    if (!out->names || !out->texts || (own && !out->owned)) {
        return qn_fail(err, "out of memory");
    }
    if (n) {
        qsort(rows, (size_t)n, sizeof *rows, by_kind_and_name);
    }
    out->n = n;
    for (int i = 0; i < n; i++) {
        out->names[i] = rows[i].name;
        out->texts[i] = rows[i].text;
        if (own) {
            out->owned[2 * i] = (char *)(uintptr_t)rows[i].name;
            out->owned[2 * i + 1] = rows[i].owned;
        }
        out->n_header += ends_with(rows[i].name, ".cuh");
    }
    return 0;
}

static int load_embedded(qn_kernel_files *out, qn_err *err)
{
    static const char folder[] = "kernel_src/";
    int n = 0, total = 0;
    while (qn_embedded_files[total].name) {
        total++;
    }
    struct row *rows = qn_calloc((size_t)total, sizeof *rows);
    if (!rows) {
        return qn_fail(err, "out of memory");
    }
    for (int i = 0; i < total; i++) {
        const char *name = qn_embedded_files[i].name;
        if (strncmp(name, folder, sizeof folder - 1) == 0 && is_kernel_file(name + sizeof folder - 1)) {
            rows[n++] = (struct row){name + sizeof folder - 1, qn_embedded_files[i].data, NULL};
        }
    }
    int rc = fill(out, rows, n, false, err);
    free(rows);
    return rc;
}

static int select_kernel_file(const struct dirent *e)
{
    return is_kernel_file(e->d_name);
}

static int read_rows(int fd, struct dirent **list, int n, struct row *rows, int *used, qn_err *err)
{
    for (int i = 0; i < n; i++) {
        qn_blob text;
        if (qn_fs_read(fd, list[i]->d_name, KERNEL_FILE_MAX, &text, err) != 0) {
            return -1;
        }
        char *name = strdup(list[i]->d_name);
        rows[(*used)++] = (struct row){name, text.data, text.data};
        if (!name) {
            return qn_fail(err, "out of memory");
        }
        if (strlen(text.data) != text.size) {
            return qn_fail(err, "%s holds a NUL byte", name);
        }
    }
    return 0;
}

static int load_folder(qn_kernel_files *out, const char *dir, qn_err *err)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct dirent **list = NULL;
    int n = fd < 0 ? -1 : scandirat(fd, ".", &list, select_kernel_file, NULL), used = 0;
    if (n < 0) {
        if (fd >= 0) {
            close(fd);
        }
        return qn_fail(err, "--kernel-src %s: cannot be read", dir);
    }
    struct row *rows = qn_calloc((size_t)n, sizeof *rows);
    int rc = rows ? read_rows(fd, list, n, rows, &used, err) : qn_fail(err, "out of memory");
    bool filled = rc == 0 && (rc = fill(out, rows, used, true, err)) == 0;
    for (int i = 0; i < used && !filled; i++) {
        free((char *)(uintptr_t)rows[i].name);
        free(rows[i].owned);
    }
    for (int i = 0; i < n; i++) {
        free(list[i]);
    }
    free(list);
    free(rows);
    close(fd);
    return rc == 0 ? 0 : qn_fail_prefix(err, "--kernel-src %s", dir);
}

int qn_kernel_files_load(qn_kernel_files *out, const char *dir, qn_err *err)
{
    *out = (qn_kernel_files){0};
    int rc = dir ? load_folder(out, dir, err) : load_embedded(out, err);
    if (rc == 0 && out->n > QN_HEADERS_MAX) {
        rc = qn_fail(err, "%d kernel files, at most %d", out->n, QN_HEADERS_MAX);
    }
    if (rc == 0 && out->n_header == 0) {
        rc = qn_fail(err, "%s holds no kernel header (*.cuh)", dir ? dir : "this binary");
    }
    if (rc != 0) {
        qn_kernel_files_free(out);
    }
    return rc;
}

void qn_kernel_files_free(qn_kernel_files *f)
{
    for (int i = 0; f->owned && i < 2 * f->n; i++) {
        free(f->owned[i]);
    }
    free(f->names);
    free(f->texts);
    free(f->owned);
    *f = (qn_kernel_files){0};
}

int qn_kernel_files_of(const qn_kernel_files *f, const char *source, const char *names[QN_HEADERS_MAX],
                       const char *texts[QN_HEADERS_MAX])
{
    int n = 0;
    for (int i = 0; i < f->n && n < QN_HEADERS_MAX; i++) {
        char line[NAME_MAX_BYTES + 16];
        snprintf(line, sizeof line, "#include \"%s\"", f->names[i]);
        if (i < f->n_header || strstr(source, line)) {
            names[n] = f->names[i];
            texts[n++] = f->texts[i];
        }
    }
    return n;
}

const char *qn_kernel_files_find(const qn_kernel_files *f, const char *name)
{
    for (int i = 0; i < f->n; i++) {
        if (strcmp(f->names[i], name) == 0) {
            return f->texts[i];
        }
    }
    return NULL;
}

int qn_kernel_files_digest(const qn_kernel_files *f, char out[17], qn_err *err)
{
    char *all = NULL;
    size_t size = 0;
    FILE *m = open_memstream(&all, &size);
    for (int i = 0; m && i < f->n; i++) {
        fprintf(m, "file %s %zu\n%s", f->names[i], strlen(f->texts[i]), f->texts[i]);
    }
    if (!m || fclose(m) != 0) {
        free(all);
        return qn_fail(err, "out of memory");
    }
    qn_cache_digest(all, size, out);
    free(all);
    return 0;
}
