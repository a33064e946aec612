/* From a path to bytes that begin as a GGUF file does, or the reason why not. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/gguf_internal.h"

enum { HEADER_BYTES = 24 }; /* magic, u32 version, u64 tensors, u64 keys */

static void set_shown(qn_gguf_file *f, const char *path)
{
    size_t len = strlen(path);
    if (len < sizeof f->shown) {
        memcpy(f->shown, path, len + 1);
    } else { /* the end of a path says more than its beginning */
        snprintf(f->shown, sizeof f->shown, "%.80s...%s", path, path + len - 160);
    }
}

static bool begins(const qn_gguf_file *f, const char *with)
{
    size_t n = strlen(with);
    return f->size >= n && memcmp(f->data, with, n) == 0;
}

static bool looks_like_html(const qn_gguf_file *f)
{
    uint64_t i = begins(f, "\xef\xbb\xbf") ? 3 : 0; /* a byte-order mark */
    while (i < f->size && i < 64 && memchr(" \t\r\n", f->data[i], 4)) {
        i++;
    }
    return i + 1 < f->size && f->data[i] == '<' &&
           (memchr("!?", f->data[i + 1], 2) || (f->data[i + 1] | 32) == 'h');
}

/* The first bytes as a reader can take them in: hex, then text. */
static void describe_bytes(const qn_gguf_file *f, char *out, size_t size)
{
    uint64_t n = f->size < 8 ? f->size : 8;
    size_t used = 0;
    for (uint64_t i = 0; i < n; i++) {
        used += (size_t)snprintf(out + used, size - used, "%s%02x", i ? " " : "", f->data[i]);
    }
    used += (size_t)snprintf(out + used, size - used, " \"");
    for (uint64_t i = 0; i < n; i++) {
        unsigned char c = f->data[i];
        used += (size_t)snprintf(out + used, size - used, "%c", c >= 0x20 && c < 0x7f ? c : '.');
    }
    snprintf(out + used, size - used, "\"");
}

static int refuse_foreign(const qn_gguf_file *f, qn_err *err)
{
    static const struct {
        const char *magic, *what;
    } known[] = {
        {"FUGG", "is a big-endian GGUF file; only little-endian files are supported"},
        {"tjgg", "is a GGML file of version \"ggjt\", the format before GGUF; convert the model to GGUF"},
        {"fmgg", "is a GGML file of version \"ggmf\", the format before GGUF; convert the model to GGUF"},
        {"lmgg", "is an unversioned GGML file, the format before GGUF; convert the model to GGUF"},
        {"algg", "is a GGML adapter (\"ggla\"), not a GGUF model"},
        {"version https://git-lfs",
         "is a git-lfs pointer, not the model itself; fetch it with: git lfs pull"},
        {"PK\x03\x04", "is a zip archive (a PyTorch checkpoint?), not a GGUF file"},
        {"\x1f\x8b", "is gzip data, not a GGUF file; unpack it first"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (begins(f, known[i].magic)) {
            return qn_fail(err, "%s: %s", f->shown, known[i].what);
        }
    }
    if (looks_like_html(f)) {
        return qn_fail(err, "%s: is an HTML or XML page, not a GGUF file; the download went wrong", f->shown);
    }
    if (f->size > 9 && f->data[8] == '{' && f->data[6] == 0 && f->data[7] == 0) {
        return qn_fail(err, "%s: looks like a safetensors file, not GGUF; convert the model to GGUF",
                       f->shown);
    }
    char seen[64];
    describe_bytes(f, seen, sizeof seen);
    return qn_fail(err, "%s: is not a GGUF file: it begins with %s instead of \"GGUF\"", f->shown, seen);
}

static int check_identity(qn_gguf_file *f, qn_err *err)
{
    if (f->size == 0) {
        return qn_fail(err, "%s: is empty (0 bytes)", f->shown);
    }
    if (!begins(f, "GGUF") && f->size >= 8) {
        return refuse_foreign(f, err);
    }
    if (f->size < HEADER_BYTES) {
        return qn_fail(err, "%s: has %llu bytes, too short for the %d bytes of a GGUF header; the file is %s",
                       f->shown, (unsigned long long)f->size, HEADER_BYTES,
                       begins(f, "GGUF") ? "probably incomplete" : "not a GGUF file or incomplete");
    }
    f->pos = 4;
    qn_gguf_take_u32(f, &f->version);
    if (f->version == 2 || f->version == 3) {
        return 0;
    }
    uint32_t swapped = __builtin_bswap32(f->version);
    if (f->version > 0xffff && swapped <= 0xffff) {
        return qn_fail(err,
                       "%s: is a big-endian GGUF file (version %u); only little-endian files are supported",
                       f->shown, swapped);
    }
    if (f->version == 0) {
        return qn_fail(err, "%s: has GGUF version 0, which does not exist; the file is damaged", f->shown);
    }
    return qn_fail(err, "%s: has GGUF version %u, which is too %s; versions 2 and 3 are supported", f->shown,
                   f->version, f->version < 2 ? "old" : "new");
}

int qn_gguf_set_memory(qn_gguf_file *f, const void *data, size_t size, const char *name, qn_err *err)
{
    f->path = name;
    set_shown(f, name);
    f->data = data;
    f->size = size;
    return check_identity(f, err);
}

static int map_fd(qn_gguf_file *f, int fd, qn_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return qn_fail(err, "%s: cannot be examined: %s", f->shown, strerror(errno));
    }
    if (S_ISDIR(st.st_mode)) {
        return qn_fail(err, "%s: is a directory; pass a GGUF file", f->shown);
    }
    if (S_ISFIFO(st.st_mode)) {
        return qn_fail(err,
                       "%s: is a pipe (FIFO), not a regular file; a model is mapped, so it must be a file",
                       f->shown);
    }
    if (!S_ISREG(st.st_mode)) {
        return qn_fail(err, "%s: is not a regular file", f->shown);
    }
    if (st.st_size > 0) {
        if ((uint64_t)st.st_size > SIZE_MAX) {
            return qn_fail(err, "%s: %lld bytes do not fit this machine's address space", f->shown,
                           (long long)st.st_size);
        }
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
            return qn_fail(err, "%s: cannot be mapped (%lld bytes): %s", f->shown, (long long)st.st_size,
                           strerror(errno));
        }
        f->data = p;
        f->size = (uint64_t)st.st_size;
        f->mapped = true;
    }
    return check_identity(f, err);
}

int qn_gguf_map_file(qn_gguf_file *f, const char *path, qn_err *err)
{
    f->path = path;
    set_shown(f, path);
    /* O_NONBLOCK: opening a FIFO that nobody writes to would wait for ever. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        if (errno == EACCES || errno == EPERM) {
            return qn_fail(err, "%s: no permission to read it", f->shown);
        }
        if (errno == ENXIO) {
            return qn_fail(err, "%s: is not a regular file", f->shown);
        }
        return qn_fail(err, "%s: cannot be opened: %s", f->shown, strerror(errno));
    }
    int rc = map_fd(f, fd, err);
    close(fd);
    return rc;
}

void qn_gguf_unmap(qn_gguf_file *f)
{
    if (f->mapped) {
        munmap((void *)f->data, (size_t)f->size);
        f->mapped = false;
    }
}
