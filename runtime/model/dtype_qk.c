/* K-quants: blocks of 256 values in sub-blocks of 16 or 32, each sub-block with a small integer scale (and
 * minimum) that one f16 per block multiplies. */
#include "model/dtype_decode.h"

enum { N = 256 };

/* q2_K: x = d * s * q - dmin * m for sub-blocks of 16; 84 bytes
 *
 *   0                  16                  80     82     84
 *   | scales[16]       | qs[64]            | d    | dmin |
 *   | 7..4 m, 3..0 s   | 4 values a byte
 *
 * Half h (128 values) uses qs[32h .. 32h+31]; its value 32k + l is bits 2k+1..2k of qs[32h + l]. */
void qn_decode_q2_K(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += N, b += 84) {
        float d = qn_load_f16(b + 80);
        float dmin = qn_load_f16(b + 82);
        for (int sub = 0; sub < 16; sub++) {
            float s = d * (float)(b[sub] & 15);
            float m = dmin * (float)(b[sub] >> 4);
            const uint8_t *qs = b + 16 + 32 * (sub / 8) + 16 * (sub % 2);
            int shift = 2 * (sub / 2 % 4);
            for (int l = 0; l < 16; l++) {
                out[i + 16 * sub + l] = s * (float)(qs[l] >> shift & 3) - m;
            }
        }
    }
}

/* q3_K: x = d * (s - 32) * (q - 4) for sub-blocks of 16; 110 bytes
 *
 *   0           32          96           108    110
 *   | hmask[32] | qs[64]    | scales[12] | d    |
 *
 * q: two low bits from qs as in q2_K; bit 2 of value 128h + 32k + l is bit 4h + k of hmask[l].
 * s (6 bits) of sub-block j: low four bits from a nibble of scales[j % 8] (the low one where j < 8),
 * bits 5..4 from scales[8 + j % 4], bits 2(j/4)+1..2(j/4). */
void qn_decode_q3_K(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += N, b += 110) {
        const uint8_t *scales = b + 96;
        float d = qn_load_f16(b + 108);
        for (int sub = 0; sub < 16; sub++) {
            int lo = scales[sub % 8] >> (sub < 8 ? 0 : 4) & 15;
            int hi = scales[8 + sub % 4] >> (2 * (sub / 4)) & 3;
            float s = d * (float)((lo | hi << 4) - 32);
            const uint8_t *qs = b + 32 + 32 * (sub / 8) + 16 * (sub % 2);
            const uint8_t *hmask = b + 16 * (sub % 2);
            int shift = 2 * (sub / 2 % 4);
            for (int l = 0; l < 16; l++) {
                int q = (qs[l] >> shift & 3) | (hmask[l] >> (sub / 2) & 1) << 2;
                out[i + 16 * sub + l] = s * (float)(q - 4);
            }
        }
    }
}

/* The 8 scales and 8 minimums of q4_K and q5_K, 6 bits each, in 12 bytes:
 *
 *   byte      7..6              5..0
 *   j         s[j+4] bits 5..4  s[j]          j = 0..3
 *   4 + j     m[j+4] bits 5..4  m[j]
 *   byte      7..4              3..0
 *   8 + j     m[j+4] bits 3..0  s[j+4] bits 3..0
 */
static void scale_min(const uint8_t *p, int sub, int *s, int *m)
{
    int j = sub % 4;
    if (sub < 4) {
        *s = p[j] & 63;
        *m = p[4 + j] & 63;
    } else {
        *s = (p[8 + j] & 15) | p[j] >> 6 << 4;
        *m = p[8 + j] >> 4 | p[4 + j] >> 6 << 4;
    }
}

/* q4_K: x = d * s * q - dmin * m for sub-blocks of 32; 144 bytes
 *
 *   0      2      4            16                  144
 *   | d    | dmin | scales[12] | qs[128]            |
 *
 * qs[32p + l]: low nibble is value 64p + l, high nibble value 64p + 32 + l. */
void qn_decode_q4_K(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += N, b += 144) {
        float d = qn_load_f16(b);
        float dmin = qn_load_f16(b + 2);
        for (int sub = 0; sub < 8; sub++) {
            int s, m;
            scale_min(b + 4, sub, &s, &m);
            float ds = d * (float)s;
            float dm = dmin * (float)m;
            const uint8_t *qs = b + 16 + 32 * (sub / 2);
            int shift = 4 * (sub % 2);
            for (int l = 0; l < 32; l++) {
                out[i + 32 * sub + l] = ds * (float)(qs[l] >> shift & 15) - dm;
            }
        }
    }
}

/* q5_K: as q4_K with a fifth bit; 176 bytes
 *
 *   0      2      4            16         48                 176
 *   | d    | dmin | scales[12] | qh[32]   | qs[128]           |
 *
 * Bit 4 of value l of sub-block j is bit j of qh[l]. */
void qn_decode_q5_K(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += N, b += 176) {
        float d = qn_load_f16(b);
        float dmin = qn_load_f16(b + 2);
        const uint8_t *qh = b + 16;
        for (int sub = 0; sub < 8; sub++) {
            int s, m;
            scale_min(b + 4, sub, &s, &m);
            float ds = d * (float)s;
            float dm = dmin * (float)m;
            const uint8_t *qs = b + 48 + 32 * (sub / 2);
            int shift = 4 * (sub % 2);
            for (int l = 0; l < 32; l++) {
                int q = (qs[l] >> shift & 15) | (qh[l] >> sub & 1) << 4;
                out[i + 32 * sub + l] = ds * (float)q - dm;
            }
        }
    }
}

/* q6_K: x = d * s * (q - 32) for sub-blocks of 16, s signed; 210 bytes
 *
 *   0            128         192              208    210
 *   | ql[128]    | qh[64]    | scales[16], i8 | d    |
 *
 * Half h (128 values), value 32k + l (k = 0..3, l = 0..31): low four bits are a nibble of
 * ql[64h + 32(k % 2) + l] (the low one where k < 2), bits 5..4 are bits 2k+1..2k of qh[32h + l]. */
void qn_decode_q6_K(const void *blocks, float *out, int64_t n)
{
    const uint8_t *b = blocks;
    for (int64_t i = 0; i < n; i += N, b += 210) {
        float d = qn_load_f16(b + 208);
        for (int sub = 0; sub < 16; sub++) {
            int h = sub / 8, k = sub / 2 % 4, l0 = 16 * (sub % 2);
            const uint8_t *ql = b + 64 * h + 32 * (k % 2) + l0;
            const uint8_t *qh = b + 128 + 32 * h + l0;
            float s = d * (float)(int8_t)b[192 + sub];
            for (int l = 0; l < 16; l++) {
                int q = (ql[l] >> (k < 2 ? 0 : 4) & 15) | (qh[l] >> (2 * k) & 3) << 4;
                out[i + 16 * sub + l] = s * (float)(q - 32);
            }
        }
    }
}
