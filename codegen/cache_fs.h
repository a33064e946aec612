/* cache_fs.h: the file operations of the kernel cache; directories are given as open descriptors. */
#ifndef QN_CODEGEN_CACHE_FS_H
#define QN_CODEGEN_CACHE_FS_H

#include "base/error.h"
#include "codegen/cache.h"

/* Creates a directory and those above it. */
int qn_fs_mkdirs(const char *path, qn_err *err);

/* Whole regular file of at most `max` bytes, malloc'ed. */
int qn_fs_read(int dir, const char *name, size_t max, qn_blob *out, qn_err *err);

/* New file, written and synced. */
int qn_fs_write(int dir, const char *name, const qn_blob *data, qn_err *err);

/* Makes a private directory (hidden name into tmp) and locks it for as long as the descriptor returned is
 * open, so that a sweep can tell it from one whose process was killed. -1: failure. */
int qn_fs_private(int top, char *tmp, size_t size, qn_err *err);

/* Renames an entry to a private name, then removes it. One that is not there is no failure. */
int qn_fs_drop(int top, const char *name, qn_err *err);

/* Removes a file or a directory with all in it, as far as possible. */
void qn_fs_remove(int top, const char *name);

/* Removes the private directories of processes that are gone. */
void qn_fs_sweep(int top);

#endif
