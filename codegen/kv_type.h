/* kv_type.h: how a KV cache stores its values.
 *
 * f16: halves. q8_0: groups of 32 values of a head as the GGUF type of that name has them: a half d, then 32
 * signed bytes; a value is d times its byte, d = largest magnitude / 127. */
#ifndef QN_CODEGEN_KV_TYPE_H
#define QN_CODEGEN_KV_TYPE_H

#include <stddef.h>
#include <stdint.h>

#include "codegen/backend.h"

/* Names of qn_cache_type, NULL-terminated: "f16", "q8_0". */
extern const char *const qn_cache_type_names[];

/* Bytes of n values; of q8_0 n is a multiple of 32. */
size_t qn_cache_bytes(qn_cache_type type, size_t n);
/* n values into a cache row and out of it. */
void qn_kv_store(qn_cache_type type, const float *x, void *row, size_t n);
void qn_kv_load(qn_cache_type type, const void *row, float *x, size_t n);
/* x becomes what a q8_0 cache gives back of it; of f16 it stays (the exact arithmetic keeps f32 then). */
void qn_kv_round(qn_cache_type type, float *x, size_t n);

/* Can every cache of the plans be of the types that the options ask for? An error that names the layer. */
int qn_kv_check_types(const qn_plans *p, const qn_exec_opts *opts, qn_err *err);

#endif
