/* dtype_decode.h: the reference decodes behind the rows of dtype.c. Private to dtype*.c.
 *
 * Each one writes n values (a multiple of the block) from blocks at any alignment. The products are formed in
 * the order that ggml's reference forms them, and nothing is contracted to a fused multiply-add, so the
 * values are the same bits. All fields are little-endian; f16 is binary16. */
#ifndef QN_MODEL_DTYPE_DECODE_H
#define QN_MODEL_DTYPE_DECODE_H

#include <stdint.h>

#include "base/half.h"

static inline uint16_t qn_load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t qn_load_u32(const uint8_t *p)
{
    return (uint32_t)qn_load_u16(p) | (uint32_t)qn_load_u16(p + 2) << 16;
}

static inline float qn_load_f16(const uint8_t *p)
{
    return qn_f16_to_f32(qn_load_u16(p));
}

/* dtype_plain.c */
void qn_decode_f32(const void *blocks, float *out, int64_t n);
void qn_decode_f16(const void *blocks, float *out, int64_t n);
void qn_decode_bf16(const void *blocks, float *out, int64_t n);
/* dtype_q32.c */
void qn_decode_q4_0(const void *blocks, float *out, int64_t n);
void qn_decode_q4_1(const void *blocks, float *out, int64_t n);
void qn_decode_q5_0(const void *blocks, float *out, int64_t n);
void qn_decode_q5_1(const void *blocks, float *out, int64_t n);
void qn_decode_q8_0(const void *blocks, float *out, int64_t n);
/* dtype_qk.c */
void qn_decode_q2_K(const void *blocks, float *out, int64_t n);
void qn_decode_q3_K(const void *blocks, float *out, int64_t n);
void qn_decode_q4_K(const void *blocks, float *out, int64_t n);
void qn_decode_q5_K(const void *blocks, float *out, int64_t n);
void qn_decode_q6_K(const void *blocks, float *out, int64_t n);
/* dtype_iq.c */
void qn_decode_iq4_nl(const void *blocks, float *out, int64_t n);
void qn_decode_iq4_xs(const void *blocks, float *out, int64_t n);

#endif
