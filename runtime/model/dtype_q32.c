/* Types of 32 values a block: one scale, sometimes one minimum.
 *
 * 4-bit planes put value j and value j + 16 into one byte: the low nibble is the earlier half. */
#include "model/dtype_decode.h"

enum { N = 32 };

/* q4_0: x = d * (q - 8), 18 bytes
 *
 *   0      2                          18
 *   | d    | qs[16]                    |
 *   | f16  | qs[j]: 7..4 q of j+16, 3..0 q of j
 */
void qn_decode_q4_0(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += N, b += 18) {
        float d = qn_load_f16(b);
        const uint8_t *qs = b + 2;
        for (int j = 0; j < N / 2; j++) {
            out[i + j] = (float)((qs[j] & 15) - 8) * d;
            out[i + j + 16] = (float)((qs[j] >> 4) - 8) * d;
        }
    }
}

/* q4_1: x = d * q + m, 20 bytes
 *
 *   0      2      4                   20
 *   | d    | m    | qs[16] as in q4_0  |
 */
void qn_decode_q4_1(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += N, b += 20) {
        float d = qn_load_f16(b);
        float m = qn_load_f16(b + 2);
        const uint8_t *qs = b + 4;
        for (int j = 0; j < N / 2; j++) {
            out[i + j] = (float)(qs[j] & 15) * d + m;
            out[i + j + 16] = (float)(qs[j] >> 4) * d + m;
        }
    }
}

/* q5_0: x = d * (q - 16), q = 4 low bits from qs, bit 4 from qh; 22 bytes
 *
 *   0      2                 6        22
 *   | d    | qh (u32)        | qs[16]  |
 *            bit j: bit 4 of value j, j = 0..31
 */
void qn_decode_q5_0(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += N, b += 22) {
        float d = qn_load_f16(b);
        uint32_t qh = qn_load_u32(b + 2);
        const uint8_t *qs = b + 6;
        for (int j = 0; j < N / 2; j++) {
            int lo = (qs[j] & 15) | (int)(qh >> j & 1) << 4;
            int hi = (qs[j] >> 4) | (int)(qh >> (j + 16) & 1) << 4;
            out[i + j] = (float)(lo - 16) * d;
            out[i + j + 16] = (float)(hi - 16) * d;
        }
    }
}

/* q5_1: x = d * q + m, 24 bytes
 *
 *   0      2      4           8       24
 *   | d    | m    | qh (u32)  | qs[16] |
 */
void qn_decode_q5_1(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += N, b += 24) {
        float d = qn_load_f16(b);
        float m = qn_load_f16(b + 2);
        uint32_t qh = qn_load_u32(b + 4);
        const uint8_t *qs = b + 8;
        for (int j = 0; j < N / 2; j++) {
            int lo = (qs[j] & 15) | (int)(qh >> j & 1) << 4;
            int hi = (qs[j] >> 4) | (int)(qh >> (j + 16) & 1) << 4;
            out[i + j] = (float)lo * d + m;
            out[i + j + 16] = (float)hi * d + m;
        }
    }
}

/* q8_0: x = d * q, 34 bytes
 *
 *   0      2                          34
 *   | d    | qs[32], i8                |
 */
void qn_decode_q8_0(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += N, b += 34) {
        float d = qn_load_f16(b);
        for (int j = 0; j < N; j++) {
            out[i + j] = (float)(int8_t)b[2 + j] * d;
        }
    }
}
