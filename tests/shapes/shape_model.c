/* shape_model.c: see shape_model.h. */
#include "shape_model.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static bool has_suffix(const char *name, const char *suffix)
{
    size_t n = strlen(name), k = strlen(suffix);
    return n > k && strcmp(name + n - k, suffix) == 0;
}

/* The head, and behind it as many zeros as the file is long: pages that nobody touches are not there. */
static int map_head(shape_model *s, const char *path, qn_err *err)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        return qn_fail(err, "%s: cannot be read", path);
    }
    uint64_t size = 0;
    char *text = NULL;
    long n = fseek(f, 0, SEEK_END) == 0 ? ftell(f) - 8 : -1;
    bool ok = n > 0 && (text = malloc((size_t)n)) != NULL && fseek(f, 0, SEEK_SET) == 0 &&
              fread(text, 1, (size_t)n, f) == (size_t)n && fread(&size, 1, 8, f) == 8 && size >= (uint64_t)n;
    fclose(f);
    int fd = ok ? memfd_create("shape", MFD_CLOEXEC) : -1;
    ok = fd >= 0 && write(fd, text, (size_t)n) == n && ftruncate(fd, (off_t)size) == 0;
    free(text);
    void *map = ok ? mmap(NULL, size, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0) : MAP_FAILED;
    if (fd >= 0) {
        close(fd);
    }
    if (map == MAP_FAILED) {
        return qn_fail(err, "%s: cannot be mapped", path);
    }
    s->map = map;
    s->size = size;
    return 0;
}

int shape_model_open(shape_model *out, const char *path, int n_ctx, qn_err *err)
{
    *out = (shape_model){0};
    qn_model_opts mo = {.n_ctx = n_ctx};
    const char *slash = strrchr(path, '/');
    snprintf(out->name, sizeof out->name, "%s", slash ? slash + 1 : path);
    *strrchr(out->name, '.') = '\0';
    int rc;
    if (has_suffix(path, ".head")) {
        qn_gguf *g = NULL;
        rc =
            map_head(out, path, err) || qn_gguf_open_memory(&g, out->map, out->size, out->name, err) ? -1 : 0;
        if (rc == 0 && qn_model_from_gguf(&out->model, g, &mo, err)) {
            qn_gguf_close(g);
            rc = -1;
        }
    } else {
        rc = qn_model_load(&out->model, path, &mo, err);
    }
    if (rc || qn_plans_build(&out->plans, out->model, err)) {
        shape_model_close(out);
        return qn_fail_prefix(err, "%s", path);
    }
    return 0;
}

void shape_model_close(shape_model *s)
{
    qn_plans_free(s->plans);
    qn_model_free(s->model);
    if (s->map) {
        munmap(s->map, s->size);
    }
    s->plans = NULL;
    s->model = NULL;
    s->map = NULL;
}

static int wanted(const struct dirent *e)
{
    return has_suffix(e->d_name, ".head") || has_suffix(e->d_name, ".gguf");
}

int shape_models_each(const char *dir, int (*fn)(void *user, const char *path), void *user, qn_err *err)
{
    struct dirent **names;
    int n = scandir(dir, &names, wanted, alphasort), rc = 0;
    for (int i = 0; i < n; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", dir, names[i]->d_name);
        rc = rc ? rc : fn(user, path);
        free(names[i]);
    }
    if (n >= 0) {
        free(names);
    }
    return n > 0 ? rc : qn_fail(err, "%s: no models there", dir);
}
