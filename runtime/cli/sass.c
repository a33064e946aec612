#include "cli/sass.h"

#include <errno.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char *const programs[] = {"nvdisasm", "cuobjdump"};

static bool try_folder(qn_disassembler *out, const char *dir, int len, int program)
{
    out->cuobjdump = program == 1;
    return len > 0 && qn_path_format(out->path, sizeof out->path, "%.*s/%s", len, dir, programs[program]) &&
           access(out->path, X_OK) == 0;
}

static bool on_path(qn_disassembler *out, int program)
{
    const char *path = getenv("PATH");
    while (path && *path) {
        int len = (int)strcspn(path, ":");
        if (*path == '/' && try_folder(out, path, len, program)) {
            return true;
        }
        path += len + (path[len] == ':');
    }
    return false;
}

int qn_disassembler_find(qn_disassembler *out, qn_err *err)
{
    qn_dirs dirs = {0};
    int rc = qn_dirs_cuda(&dirs, err);
    for (int p = 0; rc == 0 && p < 2; p++) {
        bool found = on_path(out, p);
        for (int i = 0; i < dirs.n && !found; i++) {
            char bin[QN_PATH_MAX];
            found = dirs.dirs[i].path[0] && qn_path_format(bin, sizeof bin, "%s/../bin", dirs.dirs[i].path) &&
                    try_folder(out, bin, (int)strlen(bin), p);
        }
        if (found) {
            qn_dirs_free(&dirs);
            return 0;
        }
    }
    qn_dirs_free(&dirs);
    return rc ? rc
              : qn_fail(err, "no disassembler: neither nvdisasm nor cuobjdump on PATH, in $CUDA_PATH/bin or "
                             "/usr/local/cuda*/bin (remedy: a CUDA toolkit; 'ptx' and 'cubin' need none)");
}

static int write_temp(const qn_blob *data, char *path, qn_err *err)
{
    int fd = mkstemp(path);
    if (fd < 0) {
        return qn_fail(err, "%s: %s", path, strerror(errno));
    }
    size_t at = 0;
    while (at < data->size) {
        ssize_t n = write(fd, data->data + at, data->size - at);
        if (n < 0 && errno != EINTR) {
            qn_fail(err, "%s: %s", path, strerror(errno));
            close(fd);
            unlink(path);
            return -1;
        }
        at += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    return 0;
}

static int read_all(int fd, qn_blob *out, qn_err *err)
{
    size_t cap = 0;
    for (;;) {
        if (out->size + 1 >= cap) {
            cap = cap ? 2 * cap : 1 << 16;
            char *p = realloc(out->data, cap);
            if (!p) {
                return qn_fail(err, "out of memory for a listing");
            }
            out->data = p;
        }
        ssize_t n = read(fd, out->data + out->size, cap - out->size - 1);
        if (n == 0) {
            out->data[out->size] = '\0';
            return 0;
        }
        if (n < 0 && errno != EINTR) {
            return qn_fail(err, "reading the disassembler's output: %s", strerror(errno));
        }
        out->size += n > 0 ? (size_t)n : 0;
    }
}

static int run(const qn_disassembler *d, const char *file, qn_blob *out, qn_err *err)
{
    int fds[2], status = 0;
    pid_t pid;
    posix_spawn_file_actions_t fa;
    const char *args[4] = {d->path, d->cuobjdump ? "-sass" : file, d->cuobjdump ? file : NULL, NULL};
    if (pipe(fds) != 0) {
        return qn_fail(err, "pipe: %s", strerror(errno));
    }
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, fds[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&fa, fds[0]);
    posix_spawn_file_actions_addclose(&fa, fds[1]);
    int r = posix_spawn(&pid, d->path, &fa, NULL, (char *const *)(uintptr_t)args, environ);
    posix_spawn_file_actions_destroy(&fa);
    close(fds[1]);
    int rc = r ? qn_fail(err, "%s: %s", d->path, strerror(r)) : read_all(fds[0], out, err);
    close(fds[0]);
    if (!r && (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0) &&
        rc == 0) {
        rc = qn_fail(err, "%s failed on %s", d->path, file);
    }
    return rc;
}

int qn_disassemble(const qn_disassembler *d, const qn_blob *cubin, qn_blob *out, qn_err *err)
{
    const char *tmp = getenv("TMPDIR");
    char path[QN_PATH_MAX];
    *out = (qn_blob){0};
    if (!qn_path_format(path, sizeof path, "%s/quern-cubin-XXXXXX", tmp && tmp[0] ? tmp : "/tmp")) {
        return qn_fail(err, "TMPDIR is too long");
    }
    if (write_temp(cubin, path, err)) {
        return -1;
    }
    int rc = run(d, path, out, err);
    unlink(path);
    if (rc) {
        free(out->data);
        *out = (qn_blob){0};
    }
    return rc;
}
