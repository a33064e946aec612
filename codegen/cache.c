#include "codegen/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codegen/cache_fs.h"
#include "codegen/meta.h"

/* A cubin or a PTX text beyond this is not ours. */
enum { FILE_MAX = 256 << 20 };

struct qn_cache {
    char *dir;
};

void qn_kernel_clear(qn_kernel *k)
{
    free(k->source.data);
    free(k->cubin.data);
    free(k->ptx.data);
    *k = (qn_kernel){0};
}

const qn_kernel_entry *qn_kernel_find(const qn_kernel *k, const char *symbol)
{
    for (int i = 0; i < k->n_entry; i++) {
        if (strcmp(k->entries[i].symbol, symbol) == 0) {
            return &k->entries[i];
        }
    }
    return NULL;
}

static bool choose(char *path, size_t size, const char **why, const char *rule, const char *dir,
                   const char *below)
{
    *why = rule;
    return (size_t)snprintf(path, size, "%s%s", dir, below) < size;
}

bool qn_cache_place(char *path, size_t size, const char *flag, const char **why)
{
    const char *env = getenv("QUERN_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char root[QN_PATH_MAX - 8];
    const char *asked = flag ? flag : env && env[0] ? env : NULL;
    if (asked) {
        *why = flag ? "--cache" : "QUERN_CACHE";
        return strcmp(asked, "none") != 0 && choose(path, size, why, *why, asked, "");
    }
    if (qn_checkout_root(root, sizeof root)) {
        return choose(path, size, why, "the checkout's cache/", root, "/cache");
    }
    if (xdg && xdg[0] == '/') {
        return choose(path, size, why, "XDG_CACHE_HOME", xdg, "/quern");
    }
    if (home && home[0] == '/') {
        return choose(path, size, why, "HOME", home, "/.cache/quern");
    }
    *why = "neither --cache, QUERN_CACHE, XDG_CACHE_HOME nor HOME names a place";
    return false;
}

qn_cache *qn_cache_open(const char *dir)
{
    qn_cache *c = calloc(1, sizeof *c);
    char *copy = strdup(dir);
    if (!c || !copy) {
        free(c);
        free(copy);
        return NULL;
    }
    c->dir = copy;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        qn_fs_sweep(fd);
        close(fd);
    }
    return c;
}

void qn_cache_close(qn_cache *c)
{
    if (c) {
        free(c->dir);
        free(c);
    }
}

const char *qn_cache_dir(const qn_cache *c)
{
    return c->dir;
}

void qn_cache_digest(const void *key, size_t size, char out[17])
{
    char hash[33];
    qn_hash_hex(key, size, hash);
    memcpy(out, hash, 16);
    out[16] = '\0';
}

static int read_checked(int dir, const char *name, const qn_meta_file *want, qn_blob *out, qn_err *err)
{
    int rc = qn_fs_read(dir, name, FILE_MAX, out, err);
    if (rc != 0) {
        return rc;
    }
    char hash[33];
    qn_hash_hex(out->data, out->size, hash);
    if (out->size != want->size) {
        return qn_fail(err, "%s has %zu bytes instead of %zu", name, out->size, want->size);
    }
    return strcmp(hash, want->hash) == 0 ? 0 : qn_fail(err, "%s does not have its hash", name);
}

/* An entry's name ends in the digest of its key. */
static bool digest_fits(const char *name, const char *key, size_t size)
{
    char digest[17];
    qn_cache_digest(key, size, digest);
    size_t n = strlen(name);
    return n > 17 && name[n - 17] == '-' && strcmp(name + n - 16, digest) == 0;
}

static int read_entry(int dir, const char *name, const qn_blob *key, qn_kernel *out, size_t *bytes,
                      qn_err *err)
{
    qn_blob text = {0};
    qn_meta meta = {0};
    int rc = qn_fs_read(dir, "meta", FILE_MAX, &text, err);
    if (rc == 0) {
        rc = qn_meta_parse(&text, &meta, out, err);
    }
    if (rc == 0 && key && (meta.key_size != key->size || memcmp(meta.key, key->data, key->size) != 0)) {
        rc = qn_fail(err, "it was made from another key");
    }
    if (rc == 0 && !digest_fits(name, meta.key, meta.key_size)) {
        rc = qn_fail(err, "its name is not of its key");
    }
    rc = rc ? rc : read_checked(dir, "kernel.cu", &meta.source, &out->source, err);
    rc = rc ? rc : read_checked(dir, "kernel.ptx", &meta.ptx, &out->ptx, err);
    if (rc == 0 && meta.cubin.size) {
        rc = read_checked(dir, "kernel.cubin", &meta.cubin, &out->cubin, err);
    }
    if (bytes) {
        *bytes = text.size + out->source.size + out->ptx.size + out->cubin.size;
    }
    free(text.data);
    snprintf(out->name, sizeof out->name, "%s", name);
    out->cached = true;
    return rc;
}

/* 1, 0, -1 as qn_cache_load. */
static int load_at(int top, const char *name, const qn_blob *key, qn_kernel *out, size_t *bytes, qn_err *err)
{
    int dir = openat(top, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0) {
        if (errno == ENOENT) {
            return 0;
        }
        qn_fail(err, "%s: %s", name, strerror(errno));
        return errno == ENOTDIR || errno == ELOOP ? -1 : 0;
    }
    int rc = read_entry(dir, name, key, out, bytes, err);
    if (rc != 0) {
        qn_kernel_clear(out);
        /* Another process may have dropped it while it was being read: then there is none. */
        struct stat mine, there;
        bool gone = fstat(dir, &mine) == 0 && (fstatat(top, name, &there, AT_SYMLINK_NOFOLLOW) != 0 ||
                                               mine.st_ino != there.st_ino || mine.st_dev != there.st_dev);
        if (gone) {
            err->text[0] = '\0';
        }
        rc = gone ? 0 : qn_fail_prefix(err, "%s", name);
    } else {
        rc = 1;
    }
    close(dir);
    return rc;
}

int qn_cache_load(const qn_cache *c, const char *name, const qn_blob *key, qn_kernel *out, qn_err *err)
{
    err->text[0] = '\0';
    int top = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0) {
        if (errno != ENOENT) {
            qn_fail(err, "%s: %s", c->dir, strerror(errno));
        }
        return 0;
    }
    int rc = load_at(top, name, key, out, NULL, err);
    close(top);
    return rc;
}

/* Writes and publishes one private directory. 1: it vanished under us (a sweep took it for abandoned). */
static int publish(int top, const qn_kernel *k, const qn_blob *meta, qn_err *err)
{
    char tmp[64];
    int dir = qn_fs_private(top, tmp, sizeof tmp, err);
    if (dir < 0) {
        return -1;
    }
    int rc = qn_fs_write(dir, "kernel.cu", &k->source, err);
    rc = rc ? rc : qn_fs_write(dir, "kernel.ptx", &k->ptx, err);
    rc = rc ? rc : k->cubin.size ? qn_fs_write(dir, "kernel.cubin", &k->cubin, err) : 0;
    rc = rc ? rc : qn_fs_write(dir, "meta", meta, err);
    if (rc == 0 && fsync(dir) != 0) {
        rc = qn_fail(err, "cannot sync %s: %s", tmp, strerror(errno));
    }
    bool published = rc == 0 && renameat(top, tmp, top, k->name) == 0;
    int error = errno;
    if (!published) {
        struct stat st;
        bool vanished = fstatat(top, tmp, &st, AT_SYMLINK_NOFOLLOW) != 0;
        qn_fs_remove(top, tmp);
        if (vanished) {
            rc = 1;
        } else if (rc == 0 && error != ENOTEMPTY && error != EEXIST) {
            rc = qn_fail(err, "cannot rename to %s: %s", k->name, strerror(error));
        }
    } else {
        fsync(top); /* a crash that loses the name only costs a compile */
    }
    close(dir);
    return rc;
}

int qn_cache_store(const qn_cache *c, const qn_kernel *k, const qn_blob *key, qn_err *err)
{
    if (qn_fs_mkdirs(c->dir, err) != 0) {
        return -1;
    }
    int top = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0) {
        return qn_fail(err, "%s: %s", c->dir, strerror(errno));
    }
    qn_blob meta = qn_meta_format(k, key);
    int rc = meta.data ? publish(top, k, &meta, err) : qn_fail(err, "out of memory");
    if (rc > 0) {
        rc = publish(top, k, &meta, err);
    }
    if (rc > 0) {
        rc = qn_fail(err, "private directories vanish while they are written");
    }
    free(meta.data);
    close(top);
    return rc < 0 ? qn_fail_prefix(err, "%s", c->dir) : 0;
}

int qn_cache_drop(const qn_cache *c, const char *name, qn_err *err)
{
    int top = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0) {
        return qn_fail(err, "%s: %s", c->dir, strerror(errno));
    }
    int rc = qn_fs_drop(top, name, err);
    close(top);
    return rc ? qn_fail_prefix(err, "%s", c->dir) : 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct dirent *const *)a)->d_name, (*(const struct dirent *const *)b)->d_name);
}

/* <op>-<specialisation>-<16 hexadecimal digits>: other names in the folder are none of the cache's business.
 */
static int looks_like_entry(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return e->d_name[0] != '.' && n > 17 && n < QN_ENTRY_NAME_MAX && e->d_name[n - 17] == '-' &&
           strspn(e->d_name + n - 16, "0123456789abcdef") == 16;
}

static int show(int top, const char *name, int (*fn)(void *, const qn_cache_item *), void *user)
{
    struct stat st;
    if (fstatat(top, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode)) {
        return 0;
    }
    qn_cache_item *item = calloc(1, sizeof *item);
    if (!item) {
        return 0;
    }
    int got = load_at(top, name, NULL, &item->kernel, &item->bytes, &item->why);
    snprintf(item->name, sizeof item->name, "%.*s", QN_ENTRY_NAME_MAX - 1, name);
    item->damaged = got < 0 || item->why.text[0];
    int rc = got == 0 && !item->damaged ? 0 : fn(user, item);
    qn_kernel_clear(&item->kernel);
    free(item);
    return rc;
}

int qn_cache_each(const qn_cache *c, int (*fn)(void *user, const qn_cache_item *item), void *user,
                  qn_err *err)
{
    int top = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0 && errno == ENOENT) {
        return 0;
    }
    struct dirent **list = NULL;
    int n = top < 0 ? -1 : scandirat(top, ".", &list, looks_like_entry, NULL);
    if (n < 0) {
        int error = errno;
        if (top >= 0) {
            close(top);
        }
        return qn_fail(err, "%s: %s", c->dir, strerror(error));
    }
    if (n > 0) {
        qsort(list, (size_t)n, sizeof *list, by_name);
    }
    int rc = 0;
    for (int i = 0; i < n; i++) {
        if (rc == 0) {
            rc = show(top, list[i]->d_name, fn, user);
        }
        free(list[i]);
    }
    free(list);
    close(top);
    return rc;
}
