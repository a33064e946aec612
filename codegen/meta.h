/* meta.h: the meta file of a cache entry: what the kernel was made from, and lengths and hashes of what was
 * made. */
#ifndef QN_CODEGEN_META_H
#define QN_CODEGEN_META_H

#include "codegen/cache.h"

/* xxHash3-128 as 32 hexadecimal digits and a NUL. */
void qn_hash_hex(const void *data, size_t size, char out[33]);

/* The text of the meta file; data NULL: out of memory. */
qn_blob qn_meta_format(const qn_kernel *k, const qn_blob *key);

/* Lengths and hashes that the other files must have. */
typedef struct qn_meta_file {
    size_t size;
    char hash[33];
} qn_meta_file;

typedef struct qn_meta {
    qn_meta_file source, cubin, ptx;
    const char *key; /* into the text */
    size_t key_size;
} qn_meta;

/* Reads a meta text into *m and the arch, seconds and entries of *k. -1: damaged, err says how. */
int qn_meta_parse(const qn_blob *text, qn_meta *m, qn_kernel *k, qn_err *err);

#endif
