/* gguf.h: a GGUF file (v2 or v3, one file or split), mapped read-only, every length and offset checked.
 *
 * Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 * After qn_gguf_open succeeds, every pointer handed out here lies inside a map, every tensor's bytes are
 * inside its file, and all names are NUL-terminated, valid until qn_gguf_close. */
#ifndef QN_MODEL_GGUF_H
#define QN_MODEL_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef enum qn_kv_type {
    QN_KV_U8 = 0,
    QN_KV_I8 = 1,
    QN_KV_U16 = 2,
    QN_KV_I16 = 3,
    QN_KV_U32 = 4,
    QN_KV_I32 = 5,
    QN_KV_F32 = 6,
    QN_KV_BOOL = 7,
    QN_KV_STRING = 8,
    QN_KV_ARRAY = 9,
    QN_KV_U64 = 10,
    QN_KV_I64 = 11,
    QN_KV_F64 = 12,
} qn_kv_type;

/* Bytes in the map; not NUL-terminated. */
typedef struct qn_str {
    const char *data;
    uint64_t len;
} qn_str;

typedef struct qn_kv {
    const char *key;
    qn_kv_type type;      /* QN_KV_ARRAY for arrays */
    qn_kv_type elem_type; /* of an array; never QN_KV_ARRAY (nested arrays are refused) */
    uint64_t count;       /* elements of an array; 1 otherwise */
    const uint8_t *raw;   /* value bytes, little-endian, unaligned; of strings: the u64 length first */
    uint64_t raw_bytes;
    const uint64_t *at; /* of string arrays: where in `raw` each element begins; NULL for the rest */
} qn_kv;

typedef struct qn_tensor {
    const char *name;
    uint32_t type;    /* GGUF type number; qn_dtype_get(type) is never NULL */
    uint32_t n_dims;  /* 1..4 */
    uint64_t ne[4];   /* ne[0] is contiguous; unused dims are 1; ne[0] is a multiple of the block */
    uint64_t n_bytes; /* of the data */
    const uint8_t *data;
    int shard; /* which file of a split model, from 0 */
} qn_tensor;

typedef struct qn_gguf qn_gguf;

/* Opens `path` and, where it is the first of a split model (NAME-00001-of-0000N.gguf), its siblings. The keys
 * are those of the first file. A file that is cut, damaged, of another format or version, or a later part of
 * a split is refused with the reason. The files must not shrink while they are open (that would be a SIGBUS).
 */
int qn_gguf_open(qn_gguf **out, const char *path, qn_err *err);
/* The same from memory (fuzzing, tests): `data` must outlive the result; `name` is for messages. */
int qn_gguf_open_memory(qn_gguf **out, const void *data, size_t size, const char *name, qn_err *err);
void qn_gguf_close(qn_gguf *g);

const char *qn_gguf_path(const qn_gguf *g);
uint32_t qn_gguf_version(const qn_gguf *g);
uint64_t qn_gguf_file_bytes(const qn_gguf *g); /* all shards */
uint64_t qn_gguf_n_kv(const qn_gguf *g);
const qn_kv *qn_gguf_kv(const qn_gguf *g, uint64_t i);
uint64_t qn_gguf_n_tensors(const qn_gguf *g);
const qn_tensor *qn_gguf_tensor(const qn_gguf *g, uint64_t i);

/* By exact name, by hash; NULL if absent. */
const qn_kv *qn_gguf_find(const qn_gguf *g, const char *key);
const qn_tensor *qn_gguf_find_tensor(const qn_gguf *g, const char *name);

/* Element i of a scalar (i = 0) or an array. false where i is out of range or the type does not convert:
 * any integer or bool type to i64 (u64 above INT64_MAX does not convert); any number to f64; string to str.
 */
bool qn_kv_i64(const qn_kv *kv, uint64_t i, int64_t *out);
bool qn_kv_f64(const qn_kv *kv, uint64_t i, double *out);
bool qn_kv_bool(const qn_kv *kv, uint64_t i, bool *out);
/* Strings of arrays are found in O(1), by the index made at open. */
bool qn_kv_str(const qn_kv *kv, uint64_t i, qn_str *out);

const char *qn_kv_type_name(qn_kv_type t); /* "u32", "str", ...; "?" for none */

#endif
