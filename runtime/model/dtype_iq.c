/* 4-bit types whose codes index a table of unevenly spaced levels. */
#include "model/dtype_decode.h"

/* Levels of iq4_nl and iq4_xs, dense near zero. */
static const int8_t level[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* 32 values from 16 bytes, nibbles as in q4_0. */
static void decode_levels(const uint8_t *qs, float d, float *out)
{
    for (int j = 0; j < 16; j++) {
        out[j] = d * (float)level[qs[j] & 15];
        out[j + 16] = d * (float)level[qs[j] >> 4];
    }
}

/* iq4_nl: x = d * level[q], 32 values in 18 bytes
 *
 *   0      2                          18
 *   | d    | qs[16] as in q4_0         |
 */
void qn_decode_iq4_nl(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 32, b += 18) {
        decode_levels(b + 2, qn_load_f16(b), out + i);
    }
}

/* iq4_xs: x = d * (s - 32) * level[q], 256 values in 8 sub-blocks of 32; 136 bytes
 *
 *   0      2            4            8                   136
 *   | d    | sh (u16)   | sl[4]      | qs[128]            |
 *
 * s (6 bits) of sub-block j: low four bits are a nibble of sl[j / 2] (the low one where j is even), bits 5..4
 * are bits 2j+1..2j of sh. Sub-block j has qs[16j .. 16j+15], nibbles as in q4_0. */
void qn_decode_iq4_xs(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += 256, b += 136) {
        float d = qn_load_f16(b);
        uint16_t sh = qn_load_u16(b + 2);
        for (int sub = 0; sub < 8; sub++) {
            int s = (b[4 + sub / 2] >> (4 * (sub % 2)) & 15) | (sh >> (2 * sub) & 3) << 4;
            decode_levels(b + 8 + 16 * sub, d * (float)(s - 32), out + i + 32 * sub);
        }
    }
}
