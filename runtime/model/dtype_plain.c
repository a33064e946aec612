/* Types that are plain numbers: one value a block. */
#include "model/dtype_decode.h"

void qn_decode_f32(const void *blocks, float *out, int64_t n)
{
    const uint8_t *p = blocks;
    for (int64_t i = 0; i < n; i++) {
        out[i] = qn_f32_from_bits(qn_load_u32(p + 4 * i));
    }
}

void qn_decode_f16(const void *blocks, float *out, int64_t n)
{
    const uint8_t *p = blocks;
    for (int64_t i = 0; i < n; i++) {
        out[i] = qn_load_f16(p + 2 * i);
    }
}

/* The upper half of a binary32. */
void qn_decode_bf16(const void *blocks, float *out, int64_t n)
{
    const uint8_t *p = blocks;
    for (int64_t i = 0; i < n; i++) {
        out[i] = qn_bf16_to_f32(qn_load_u16(p + 2 * i));
    }
}
