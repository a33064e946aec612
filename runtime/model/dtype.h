/* dtype.h: one row a GGUF tensor type.
 *
 * Every type that GGUF numbers has a geometry row, so that a file can be measured and a tensor refused by
 * its type's name. Types that quern computes with also have a reference decode. */
#ifndef QN_MODEL_DTYPE_H
#define QN_MODEL_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

/* GGUF's numbers (ggml_type). */
typedef enum qn_type {
    QN_F32 = 0,
    QN_F16 = 1,
    QN_Q4_0 = 2,
    QN_Q4_1 = 3,
    QN_Q5_0 = 6,
    QN_Q5_1 = 7,
    QN_Q8_0 = 8,
    QN_Q8_1 = 9,
    QN_Q2_K = 10,
    QN_Q3_K = 11,
    QN_Q4_K = 12,
    QN_Q5_K = 13,
    QN_Q6_K = 14,
    QN_Q8_K = 15,
    QN_IQ4_NL = 20,
    QN_IQ4_XS = 23,
    QN_BF16 = 30,
    QN_TYPE_COUNT = 64, /* room for every number in use; unused rows have no name */
} qn_type;

typedef struct qn_dtype {
    const char *name;      /* as in file names and messages: "q4_K"; NULL: no such type */
    uint16_t block_values; /* values per block */
    uint16_t block_bytes;  /* bytes per block */
    /* Reference decode of n values (a multiple of block_values) from `blocks` (any alignment), bit for bit
     * the values that ggml's reference gives. NULL: a type quern does not compute with. */
    void (*decode)(const void *blocks, float *out, int64_t n);
} qn_dtype;

/* The row of a GGUF type number; NULL where GGUF has no such type. */
const qn_dtype *qn_dtype_get(uint32_t type);

/* "f32, f16, ..." : names of the types with a decode, for messages. */
const char *qn_dtype_supported(void);

#endif
