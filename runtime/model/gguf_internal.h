/* gguf_internal.h: what the gguf*.c files share.
 *
 * Reading goes in three passes: qn_gguf_map_file (bytes and identity of the file), qn_gguf_read_keys
 * (header and metadata), qn_gguf_read_tensors (tensor table). Between the last two the split keys decide
 * which files belong together. Nothing is believed before it is checked against the size of the file. */
#ifndef QN_MODEL_GGUF_INTERNAL_H
#define QN_MODEL_GGUF_INTERNAL_H

#include "base/alloc.h"
#include "model/gguf.h"

/* Open-addressing table from names to indices of an array whose items begin with a `const char *name`. */
typedef struct qn_name_index {
    uint32_t *slots; /* item + 1; 0 is empty */
    uint64_t mask;
    const char *items;
    size_t stride;
} qn_name_index;

typedef struct qn_gguf_file {
    const char *path; /* whole */
    char shown[256];  /* for messages: the path, its middle cut out where it is long */
    const uint8_t *data;
    uint64_t size;
    bool mapped;
    uint32_t version;
    uint64_t pos; /* how far reading has come */
    uint64_t alignment;
    uint64_t n_tensors;
    qn_kv *kv;
    uint64_t n_kv;
    qn_name_index keys;
} qn_gguf_file;

struct qn_gguf {
    qn_arena arena; /* names, string indices, paths */
    qn_gguf_file *files;
    uint64_t n_files;
    qn_tensor *tensors;
    uint64_t n_tensors;
    qn_name_index tensor_names;
};

/* gguf_index.c. Build: 0; -1 out of memory; 1 where two items have one name (*first, *second). */
int qn_name_index_build(qn_name_index *ix, const void *items, size_t stride, uint64_t n, uint64_t *first,
                        uint64_t *second);
/* The item, or NULL. */
const void *qn_name_index_find(const qn_name_index *ix, const char *name);
void qn_name_index_free(qn_name_index *ix);

/* gguf_file.c. Fills data and size, and refuses what is not a regular file or not a GGUF by its first bytes.
 */
int qn_gguf_map_file(qn_gguf_file *f, const char *path, qn_err *err);
int qn_gguf_set_memory(qn_gguf_file *f, const void *data, size_t size, const char *name, qn_err *err);
void qn_gguf_unmap(qn_gguf_file *f);

/* gguf_read.c */
int qn_gguf_read_keys(qn_gguf_file *f, qn_arena *arena, qn_err *err);

/* A cursor step: n bytes at f->pos, or NULL where the file ends before. Moves on only where it succeeds. */
const uint8_t *qn_gguf_take(qn_gguf_file *f, uint64_t n);
bool qn_gguf_take_u32(qn_gguf_file *f, uint32_t *out);
bool qn_gguf_take_u64(qn_gguf_file *f, uint64_t *out);
/* A length-prefixed name, 1..max bytes without NUL, copied to the arena. `what` and i of n say whose, in
 * messages. */
int qn_gguf_take_name(qn_gguf_file *f, qn_arena *arena, uint64_t max, const char *what, uint64_t i,
                      uint64_t n, const char **out, qn_err *err);
int qn_gguf_cut_short(const qn_gguf_file *f, const char *what, uint64_t i, uint64_t n, qn_err *err);
/* Room for one more in a growing array; NULL on failure (the old array stays). */
void *qn_gguf_grow(void *items, uint64_t n, uint64_t *capacity, size_t size);

/* gguf_tensors.c: appends the tensors of file number `shard` to g. */
int qn_gguf_read_tensors(qn_gguf *g, uint64_t shard, qn_err *err);

/* gguf_split.c. Looks at the split keys of the first file and opens the siblings it asks for; `path` NULL:
 * from memory. */
int qn_gguf_open_siblings(qn_gguf *g, const char *path, qn_err *err);
int qn_gguf_check_split_total(const qn_gguf *g, qn_err *err);

#endif
