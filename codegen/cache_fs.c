#include "codegen/cache_fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Seconds after which an unlocked private directory is abandoned even if its process number is alive, and
 * after which one is where the file system has no locks. */
enum { ABANDONED = 60, ABANDONED_UNLOCKABLE = 3600, DEPTH_MAX = 4 };
static const char private_prefix[] = ".tmp-";

int qn_fs_mkdirs(const char *path, qn_err *err)
{
    char part[QN_PATH_MAX];
    if (strlen(path) >= sizeof part) {
        return qn_fail(err, "%.200s...: path too long", path);
    }
    for (size_t i = 1; path[0] && i <= strlen(path); i++) {
        if (path[i] != '/' && path[i] != '\0') {
            continue;
        }
        memcpy(part, path, i);
        part[i] = '\0';
        struct stat st;
        int error = mkdir(part, 0777) != 0 ? errno : 0;
        if (error && (stat(part, &st) != 0 || !S_ISDIR(st.st_mode))) {
            return qn_fail(err, "cannot make the directory %s: %s", part, strerror(error));
        }
    }
    return 0;
}

int qn_fs_read(int dir, const char *name, size_t max, qn_blob *out, qn_err *err)
{
    *out = (qn_blob){0};
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    if (fd < 0) {
        return qn_fail(err, "%s: %s", name, strerror(errno));
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size > max) {
        close(fd);
        return qn_fail(err, "%s is no regular file of a sensible size", name);
    }
    size_t size = (size_t)st.st_size, done = 0;
    out->data = malloc(size + 1);
    while (out->data && done < size) {
        ssize_t n = read(fd, out->data + done, size - done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            break;
        }
        done += (size_t)n;
    }
    close(fd);
    if (!out->data || done < size) {
        free(out->data);
        *out = (qn_blob){0};
        return qn_fail(err, "%s: %zu of %zu bytes could be read", name, done, size);
    }
    out->data[size] = '\0';
    out->size = size;
    return 0;
}

int qn_fs_write(int dir, const char *name, const qn_blob *data, qn_err *err)
{
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        return qn_fail(err, "cannot create %s: %s", name, strerror(errno));
    }
    size_t done = 0;
    int error = 0;
    while (done < data->size && !error) {
        ssize_t n = write(fd, data->data + done, data->size - done);
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            error = n == 0 ? ENOSPC : errno;
        }
    }
    if (!error && fsync(fd) != 0) {
        error = errno;
    }
    if (close(fd) != 0 && !error) {
        error = errno;
    }
    return error ? qn_fail(err, "cannot write %s: %s", name, strerror(error)) : 0;
}

static void private_name(char *tmp, size_t size)
{
    uint64_t r = 0;
    if (getrandom(&r, sizeof r, GRND_NONBLOCK) != (ssize_t)sizeof r) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        r = (uint64_t)t.tv_nsec ^ ((uint64_t)t.tv_sec << 30) ^ (uint64_t)(uintptr_t)&t;
    }
    snprintf(tmp, size, "%s%ld-%016" PRIx64, private_prefix, (long)getpid(), r);
}

int qn_fs_private(int top, char *tmp, size_t size, qn_err *err)
{
    private_name(tmp, size);
    if (mkdirat(top, tmp, 0777) != 0) {
        return qn_fail(err, "cannot make the directory %s: %s", tmp, strerror(errno));
    }
    int fd = openat(top, tmp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        qn_fail(err, "cannot open the directory %s: %s", tmp, strerror(errno));
        qn_fs_remove(top, tmp);
        return -1;
    }
    flock(fd, LOCK_EX | LOCK_NB); /* without locks the sweep goes by age */
    return fd;
}

static void remove_depth(int top, const char *name, int depth)
{
    if (unlinkat(top, name, 0) == 0 || errno == ENOENT) {
        return;
    }
    int fd = depth < DEPTH_MAX ? openat(top, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            remove_depth(dirfd(d), e->d_name, depth + 1);
        }
    }
    closedir(d);
    unlinkat(top, name, AT_REMOVEDIR);
}

void qn_fs_remove(int top, const char *name)
{
    remove_depth(top, name, 0);
}

int qn_fs_drop(int top, const char *name, qn_err *err)
{
    char tmp[64];
    private_name(tmp, sizeof tmp);
    if (renameat(top, name, top, tmp) != 0) {
        return errno == ENOENT ? 0 : qn_fail(err, "cannot remove %s: %s", name, strerror(errno));
    }
    qn_fs_remove(top, tmp);
    return 0;
}

/* A private directory is abandoned when nobody holds its lock and its process is gone; the age decides where
 * the number may belong to another machine's or container's process, and where there are no locks. */
static bool abandoned(int top, const char *name)
{
    struct stat st;
    int fd = openat(top, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        if (fd >= 0) {
            close(fd);
        }
        return fd < 0 && errno == ENOTDIR;
    }
    int locked = flock(fd, LOCK_EX | LOCK_NB), error = errno;
    close(fd);
    long pid = strtol(name + sizeof private_prefix - 1, NULL, 10), age = (long)(time(NULL) - st.st_mtime);
    if (locked != 0) {
        return error != EWOULDBLOCK && age > ABANDONED_UNLOCKABLE;
    }
    return age > ABANDONED || (pid > 0 && kill((pid_t)pid, 0) != 0 && errno == ESRCH);
}

void qn_fs_sweep(int top)
{
    int fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        if (strncmp(e->d_name, private_prefix, sizeof private_prefix - 1) == 0 && abandoned(top, e->d_name)) {
            qn_fs_remove(top, e->d_name);
        }
    }
    closedir(d);
}
