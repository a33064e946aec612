/* Models in several files: NAME-00001-of-0000N.gguf holds the keys, all hold tensors. The keys split.no (from
 * 0), split.count and split.tensors.count are what llama.cpp's gguf-split writes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/gguf_internal.h"

enum { SPLIT_MAX = 65535, SUFFIX = sizeof "-00001-of-00002.gguf" - 1 };

/* 1 and *out where the key is a number from 0 to INT32_MAX, 0 where it is absent. */
static int split_key(const qn_gguf_file *f, const char *key, int64_t *out, qn_err *err)
{
    const qn_kv *kv = qn_name_index_find(&f->keys, key);
    if (!kv) {
        return 0;
    }
    if (kv->type == QN_KV_ARRAY || !qn_kv_i64(kv, 0, out) || *out < 0 || *out > INT32_MAX) {
        return qn_fail(err, "%s: key %s (type %s) is not a count", f->shown, key, qn_kv_type_name(kv->type));
    }
    return 1;
}

/* Takes NAME-PPPPP-of-CCCCC.gguf apart; 0 where the path does not end so. */
static size_t split_name(const char *path, unsigned *part, unsigned *count)
{
    size_t len = strlen(path);
    if (len < SUFFIX) {
        return 0;
    }
    const char *s = path + len - SUFFIX;
    for (int i = 0; i < 5; i++) {
        if (s[1 + i] < '0' || s[1 + i] > '9' || s[10 + i] < '0' || s[10 + i] > '9') {
            return 0;
        }
    }
    if (s[0] != '-' || strncmp(s + 6, "-of-", 4) != 0 || strcmp(s + 15, ".gguf") != 0) {
        return 0;
    }
    *part = (unsigned)strtoul(s + 1, NULL, 10);
    *count = (unsigned)strtoul(s + 10, NULL, 10);
    return len - SUFFIX;
}

static char *part_path(qn_arena *arena, const char *path, size_t stem, unsigned part, unsigned count)
{
    char *p = qn_arena_alloc(arena, stem + 32);
    if (p) {
        snprintf(p, stem + 32, "%.*s-%05u-of-%05u.gguf", (int)stem, path, part, count);
    }
    return p;
}

/* Later parts cannot be opened by themselves: say which file can. */
static int refuse_later_part(const qn_gguf_file *f, qn_arena *arena, const char *path, int64_t no,
                             int64_t count, qn_err *err)
{
    unsigned part, of;
    size_t stem = path ? split_name(path, &part, &of) : 0;
    if (stem && of == (unsigned)count) {
        const char *first = part_path(arena, path, stem, 1, of);
        if (first) {
            return qn_fail(err, "%s: is part %lld of %lld of a split model; pass its first file: %s",
                           f->shown, (long long)no + 1, (long long)count, first);
        }
    }
    return qn_fail(err,
                   "%s: is part %lld of %lld of a split model; pass the first file, whose name ends in "
                   "-00001-of-%05lld.gguf",
                   f->shown, (long long)no + 1, (long long)count, (long long)count);
}

static int open_sibling(qn_gguf *g, const char *path, size_t stem, unsigned part, unsigned count, qn_err *err)
{
    qn_gguf_file *f = &g->files[part - 1];
    char *sibling = part_path(&g->arena, path, stem, part, count);
    if (!sibling) {
        return qn_fail(err, "%s: out of memory", path);
    }
    g->n_files = part;
    if (qn_gguf_map_file(f, sibling, err) != 0 || qn_gguf_read_keys(f, &g->arena, err) != 0) {
        return qn_fail_prefix(err, "part %u of %u of the model", part, count);
    }
    int64_t no = -1, of = -1;
    if (split_key(f, "split.no", &no, err) < 0 || split_key(f, "split.count", &of, err) < 0) {
        return -1;
    }
    if (no != (int64_t)part - 1 || of != (int64_t)count) {
        return qn_fail(
            err, "%s: its keys say split.no %lld, split.count %lld, but by its name they should be %u and %u",
            f->shown, (long long)no, (long long)of, part - 1, count);
    }
    return 0;
}

int qn_gguf_open_siblings(qn_gguf *g, const char *path, qn_err *err)
{
    qn_gguf_file *f = &g->files[0];
    int64_t count = 1, no = 0;
    if (split_key(f, "split.count", &count, err) < 0 || split_key(f, "split.no", &no, err) < 0) {
        return -1;
    }
    if (count <= 1) {
        return 0;
    }
    if (count > SPLIT_MAX || no >= count) {
        return qn_fail(err, "%s: its keys say split.no %lld, split.count %lld, which cannot be", f->shown,
                       (long long)no, (long long)count);
    }
    if (no != 0) {
        return refuse_later_part(f, &g->arena, path, no, count, err);
    }
    unsigned part = 0, of = 0;
    size_t stem = path ? split_name(path, &part, &of) : 0;
    if (part != 1 || of != (unsigned)count) {
        return qn_fail(
            err,
            "%s: is part 1 of %lld of a split model, but it is not called ...-00001-of-%05lld.gguf, so the "
            "other parts cannot be found; give all parts their names back",
            f->shown, (long long)count, (long long)count);
    }
    qn_gguf_file *files = realloc(g->files, (size_t)count * sizeof *files);
    if (!files) {
        return qn_fail(err, "%s: out of memory", path);
    }
    g->files = files;
    memset(files + 1, 0, ((size_t)count - 1) * sizeof *files);
    for (unsigned p = 2; p <= of; p++) {
        if (open_sibling(g, path, stem, p, of, err) != 0) {
            return -1;
        }
    }
    return 0;
}

int qn_gguf_check_split_total(const qn_gguf *g, qn_err *err)
{
    if (g->n_files == 1) {
        return 0;
    }
    int64_t total = -1;
    if (split_key(&g->files[0], "split.tensors.count", &total, err) < 0) {
        return -1;
    }
    if (total < 0) {
        return qn_fail(err, "%s: key split.tensors.count is missing", g->files[0].shown);
    }
    if ((uint64_t)total != g->n_tensors) {
        return qn_fail(err, "%s: key split.tensors.count is %lld, but the %llu files hold %llu tensors",
                       g->files[0].shown, (long long)total, (unsigned long long)g->n_files,
                       (unsigned long long)g->n_tensors);
    }
    return 0;
}
