#include "model/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "model/gguf_internal.h"

/* The name index reads the first member of either struct. */
_Static_assert(offsetof(qn_kv, key) == 0, "qn_kv begins with its name");
_Static_assert(offsetof(qn_tensor, name) == 0, "qn_tensor begins with its name");

static int index_tensors(qn_gguf *g, qn_err *err)
{
    uint64_t first, second;
    int rc =
        qn_name_index_build(&g->tensor_names, g->tensors, sizeof *g->tensors, g->n_tensors, &first, &second);
    if (rc > 0) {
        const qn_tensor *t = &g->tensors[second];
        const char *where = g->files[t->shard].shown;
        if (g->tensors[first].shard == t->shard) {
            return qn_fail(err, "%s: two tensors are called %s", where, t->name);
        }
        return qn_fail(err, "%s: tensor %s is in %s too", where, t->name,
                       g->files[g->tensors[first].shard].shown);
    }
    return rc == 0 ? 0 : qn_fail(err, "%s: out of memory", g->files[0].shown);
}

static int read_all(qn_gguf *g, const char *path, qn_err *err)
{
    if (qn_gguf_read_keys(&g->files[0], &g->arena, err) != 0 || qn_gguf_open_siblings(g, path, err) != 0) {
        return -1;
    }
    for (uint64_t i = 0; i < g->n_files; i++) {
        if (qn_gguf_read_tensors(g, i, err) != 0) {
            return -1;
        }
    }
    return qn_gguf_check_split_total(g, err) != 0 ? -1 : index_tensors(g, err);
}

/* path: a file; else `size` bytes at `data`, called `name`. */
static int open_any(qn_gguf **out, const char *path, const void *data, size_t size, const char *name,
                    qn_err *err)
{
    *out = NULL;
    qn_gguf *g = qn_calloc(1, sizeof *g);
    if (!g) {
        return qn_fail(err, "%s: out of memory", name);
    }
    g->files = qn_calloc(1, sizeof *g->files);
    char *own = g->files ? qn_arena_strndup(&g->arena, name, strlen(name)) : NULL;
    if (!own) {
        qn_gguf_close(g);
        return qn_fail(err, "%s: out of memory", name);
    }
    g->n_files = 1;
    int rc = path ? qn_gguf_map_file(&g->files[0], own, err)
                  : qn_gguf_set_memory(&g->files[0], data, size, own, err);
    if (rc != 0 || read_all(g, path ? own : NULL, err) != 0) {
        qn_gguf_close(g);
        return -1;
    }
    *out = g;
    return 0;
}

int qn_gguf_open(qn_gguf **out, const char *path, qn_err *err)
{
    return open_any(out, path, NULL, 0, path, err);
}

int qn_gguf_open_memory(qn_gguf **out, const void *data, size_t size, const char *name, qn_err *err)
{
    return open_any(out, NULL, data, size, name, err);
}

void qn_gguf_close(qn_gguf *g)
{
    if (!g) {
        return;
    }
    for (uint64_t i = 0; i < g->n_files; i++) {
        qn_gguf_unmap(&g->files[i]);
        qn_name_index_free(&g->files[i].keys);
        free(g->files[i].kv);
    }
    qn_name_index_free(&g->tensor_names);
    free(g->files);
    free(g->tensors);
    qn_arena_free(&g->arena);
    free(g);
}

const char *qn_gguf_path(const qn_gguf *g)
{
    return g->files[0].path;
}

uint32_t qn_gguf_version(const qn_gguf *g)
{
    return g->files[0].version;
}

uint64_t qn_gguf_file_bytes(const qn_gguf *g)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < g->n_files; i++) {
        bytes += g->files[i].size;
    }
    return bytes;
}

uint64_t qn_gguf_n_kv(const qn_gguf *g)
{
    return g->files[0].n_kv;
}

const qn_kv *qn_gguf_kv(const qn_gguf *g, uint64_t i)
{
    return i < g->files[0].n_kv ? &g->files[0].kv[i] : NULL;
}

uint64_t qn_gguf_n_tensors(const qn_gguf *g)
{
    return g->n_tensors;
}

const qn_tensor *qn_gguf_tensor(const qn_gguf *g, uint64_t i)
{
    return i < g->n_tensors ? &g->tensors[i] : NULL;
}

const qn_kv *qn_gguf_find(const qn_gguf *g, const char *key)
{
    return qn_name_index_find(&g->files[0].keys, key);
}

const qn_tensor *qn_gguf_find_tensor(const qn_gguf *g, const char *name)
{
    return qn_name_index_find(&g->tensor_names, name);
}
