/* cache.h: compiled kernels on disk, shared by any number of processes.
 *
 * An entry is one directory <op>-<specialisation>-<digest>/ with kernel.cu, kernel.cubin (absent where only
 * PTX was made), kernel.ptx and meta. It is published whole by renaming a private directory, and checked
 * whole when read: the key that it was made from is kept in it and compared byte for byte; the digest only
 * names it. */
#ifndef QN_CODEGEN_CACHE_H
#define QN_CODEGEN_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/dynlib.h"
#include "base/error.h"

enum { QN_CACHE_FORMAT = 1, QN_KERNEL_ENTRIES = 8, QN_SYMBOL_MAX = 160, QN_ENTRY_NAME_MAX = 224 };

/* One kernel function of a program, and what it asks of the card. -1: not known. */
typedef struct qn_kernel_entry {
    char symbol[QN_SYMBOL_MAX];
    int threads;                   /* most a block may have (its launch bound) */
    int regs;                      /* registers a thread */
    int smem_static, stack;        /* bytes */
    int spill_stores, spill_loads; /* bytes */
} qn_kernel_entry;

typedef struct qn_blob {
    char *data; /* malloc'ed, with a NUL behind it that is not counted */
    size_t size;
} qn_blob;

/* A compiled program. */
typedef struct qn_kernel {
    char name[QN_ENTRY_NAME_MAX]; /* of its entry: <op>-<specialisation>-<digest> */
    char arch[20];
    qn_blob source, cubin, ptx; /* cubin is empty where only PTX was made */
    int n_entry;
    qn_kernel_entry entries[QN_KERNEL_ENTRIES];
    bool cached;    /* came from the cache */
    double seconds; /* spent compiling it (as recorded, where cached) */
} qn_kernel;

void qn_kernel_clear(qn_kernel *k);
/* The kernel function of that name; NULL: none. */
const qn_kernel_entry *qn_kernel_find(const qn_kernel *k, const char *symbol);

/* Where compiled kernels go: flag, QUERN_CACHE, the checkout's cache/ beside the binary, XDG_CACHE_HOME,
 * HOME; false: nowhere (memory only). flag: --cache DIR or NULL; "none" there or in QUERN_CACHE asks for
 * memory only. *why says which rule decided (static storage). */
bool qn_cache_place(char *path, size_t size, const char *flag, const char **why);

typedef struct qn_cache qn_cache;

/* A cache in a directory, which need not exist yet. Removes what killed processes left behind. NULL: out of
 * memory. */
qn_cache *qn_cache_open(const char *dir);
void qn_cache_close(qn_cache *c);
const char *qn_cache_dir(const qn_cache *c);

/* Digest of a key: 16 hexadecimal digits and a NUL. */
void qn_cache_digest(const void *key, size_t size, char out[17]);

/* Reads the entry `name` into *out (cleared by the caller). 1: it is there, whole, and made from this key; 0:
 * there is none (or it cannot be reached: err says why, else err->text is empty); -1: it is damaged, err says
 * how. */
int qn_cache_load(const qn_cache *c, const char *name, const qn_blob *key, qn_kernel *out, qn_err *err);

/* Publishes. An entry that another process published meanwhile is left as it is (success). */
int qn_cache_store(const qn_cache *c, const qn_kernel *k, const qn_blob *key, qn_err *err);

/* Removes an entry; readers see it whole or not at all. */
int qn_cache_drop(const qn_cache *c, const char *name, qn_err *err);

/* What `quern cache` shows of an entry. */
typedef struct qn_cache_item {
    char name[QN_ENTRY_NAME_MAX];
    bool damaged;
    qn_err why;       /* damaged: how */
    qn_kernel kernel; /* otherwise; freed after the call */
    size_t bytes;     /* of its files */
} qn_cache_item;

/* fn for every entry (by the look of its name), names ascending, until it returns non-zero, which is
 * returned. A directory that does not exist is empty. -1: the directory cannot be read. */
int qn_cache_each(const qn_cache *c, int (*fn)(void *user, const qn_cache_item *item), void *user,
                  qn_err *err);

#endif
