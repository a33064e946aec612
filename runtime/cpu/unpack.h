/* unpack.h: quantised blocks to byte codes with f32 scales, and f32 rows to their 8-bit form.
 *
 * Included once by the matmul source of each instruction set, so that the compiler vectorises these loops for
 * it; every build computes the same bits. Block layouts: ggml's quantisation formats; each is W = s * code -
 * m, or W = s * (code - 128) in a wide type. */
#ifndef QN_CPU_UNPACK_H
#define QN_CPU_UNPACK_H

#include <stdint.h>
#include <string.h>

#include "base/half.h"
#include "cpu/matmul_kernels.h"
#if defined(__SSSE3__)
#include <immintrin.h>
#endif

/* 16 and 32 bytes anywhere in memory. */
typedef uint8_t qn_u8x16 __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint32_t qn_u32x4 __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint32_t qn_u32x8 __attribute__((vector_size(32), aligned(1), may_alias));

/* The elements of v at constant places. GCC has clang's builtin from version 12 on only. */
#ifdef __clang__
#define QN_SHUFFLE(type, v, ...) __builtin_shufflevector(v, v, __VA_ARGS__)
#else
#define QN_SHUFFLE(type, v, ...) __builtin_shuffle(v, (type){__VA_ARGS__})
#endif

static inline float unpack_half(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
#if defined(__F16C__)
    return _cvtsh_ss(h);
#else
    return qn_f16_to_f32(h);
#endif
}

/* out[b] = times * the f16 at p + b * step, n of them. */
static inline __attribute__((always_inline)) void unpack_halves(const uint8_t *p, int step, int n,
                                                                float times, float *out)
{
    int b = 0;
#if defined(__F16C__)
    for (; b + 8 <= n; b += 8, p += 8 * step) {
        uint16_t h[8];
        for (int i = 0; i < 8; i++) {
            memcpy(&h[i], p + i * step, sizeof h[i]);
        }
        __m128i v = _mm_set_epi16((short)h[7], (short)h[6], (short)h[5], (short)h[4], (short)h[3],
                                  (short)h[2], (short)h[1], (short)h[0]);
        _mm256_storeu_ps(out + b, _mm256_mul_ps(_mm256_cvtph_ps(v), _mm256_set1_ps(times)));
    }
#endif
    for (; b < n; b++, p += step) {
        out[b] = times * unpack_half(p);
    }
}

/* ---- scales: f16 beside each block of 32 ---- */

static void scales_q4_0(const uint8_t *p, int n, float *s, float *m)
{
    unpack_halves(p, 18, n / 32, 1, s);
    for (int b = 0; b < n / 32; b++) {
        m[b] = 8 * s[b];
    }
}

static void scales_q4_1(const uint8_t *p, int n, float *s, float *m)
{
    unpack_halves(p, 20, n / 32, 1, s);
    unpack_halves(p + 2, 20, n / 32, -1, m);
}

static void scales_q5_0(const uint8_t *p, int n, float *s, float *m)
{
    unpack_halves(p, 22, n / 32, 1, s);
    for (int b = 0; b < n / 32; b++) {
        m[b] = 16 * s[b];
    }
}

static void scales_q5_1(const uint8_t *p, int n, float *s, float *m)
{
    unpack_halves(p, 24, n / 32, 1, s);
    unpack_halves(p + 2, 24, n / 32, -1, m);
}

static void scales_q8_0(const uint8_t *p, int n, float *s, float *m)
{
    (void)m;
    unpack_halves(p, 34, n / 32, 1, s);
}

static void scales_iq4_nl(const uint8_t *p, int n, float *s, float *m)
{
    (void)m;
    unpack_halves(p, 18, n / 32, 1, s);
}

/* ---- scales: small integers, times f16 of a block of 256 ---- */

/* 16 bytes less `bias`, the first 8 times a into `low`, the others times b into `high`; a = b where high =
 * low + 8. */
static inline void scale_bytes(qn_u8x16 v, float bias, float a, float b, float *low, float *high)
{
#if defined(__AVX512F__)
    if (high == low + 8) { /* one store, so that a load of all 16 need not wait for two to reach the cache */
        __m512 f = _mm512_sub_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32((__m128i)v)), _mm512_set1_ps(bias));
        _mm512_storeu_ps(low, _mm512_mul_ps(f, _mm512_set1_ps(a)));
        return;
    }
#endif
#if defined(__AVX2__)
    __m256 f = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32((__m128i)v));
    __m256 g = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128((__m128i)v, 8)));
    f = _mm256_sub_ps(f, _mm256_set1_ps(bias));
    g = _mm256_sub_ps(g, _mm256_set1_ps(bias));
    _mm256_storeu_ps(low, _mm256_mul_ps(f, _mm256_set1_ps(a)));
    _mm256_storeu_ps(high, _mm256_mul_ps(g, _mm256_set1_ps(b)));
#else
    for (int i = 0; i < 8; i++) {
        low[i] = a * ((float)v[i] - bias);
        high[i] = b * ((float)v[8 + i] - bias);
    }
#endif
}

static void scales_q2_K(const uint8_t *p, int n, float *s, float *m)
{
    for (int b = 0; b < n / 256; b++, p += 84, s += 16, m += 16) {
        float d = unpack_half(p + 80), dmin = unpack_half(p + 82);
        qn_u32x4 v = *(const qn_u32x4 *)p;
        scale_bytes((qn_u8x16)(v & 0x0f0f0f0fu), 0, d, d, s, s + 8);
        scale_bytes((qn_u8x16)(v >> 4 & 0x0f0f0f0fu), 0, dmin, dmin, m, m + 8);
    }
}

/* 16 scales of 6 bits: low nibbles of 8 bytes, their high nibbles, and 4 bytes with two bits each of scales
 * g, g + 4, g + 8 and g + 12. */
static void scales_q3_K(const uint8_t *p, int n, float *s, float *m)
{
    for (int b = 0; b < n / 256; b++, p += 110, s += 16, m += 16) {
        uint32_t u[3];
        float d = unpack_half(p + 108);
        memcpy(u, p + 96, sizeof u);
        qn_u32x4 low = {u[0], u[1], u[0] >> 4, u[1] >> 4}, high = {u[2], u[2] >> 2, u[2] >> 4, u[2] >> 6};
        qn_u8x16 v = (qn_u8x16)((low & 0x0f0f0f0fu) | (high & 0x03030303u) << 4);
        scale_bytes(v, 32, d, d, s, s + 8);
        scale_bytes(v, 32, 4 * d, 4 * d, m, m + 8);
    }
}

/* 8 scales and 8 minima of 6 bits in 12 bytes (Q4_K, Q5_K), times d and dmin at p. */
static inline void scales_k(const uint8_t *p, float *s, float *m)
{
    qn_u32x4 u = *(const qn_u32x4 *)p; /* d and dmin; scales; minima; nibbles of the second four of each */
    qn_u32x4 all = QN_SHUFFLE(qn_u32x4, u, 1, 3, 2, 3), top = QN_SHUFFLE(qn_u32x4, u, 1, 1, 2, 2);
    all = all >> (qn_u32x4){0, 0, 0, 4} & (qn_u32x4){0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f};
    top = top >> 2 & (qn_u32x4){0, 0x30303030, 0, 0x30303030};
    scale_bytes((qn_u8x16)(all | top), 0, unpack_half(p), unpack_half(p + 2), s, m);
}

static void scales_q4_K(const uint8_t *p, int n, float *s, float *m)
{
    for (int b = 0; b < n / 256; b++) {
        scales_k(p + 144 * b, s + 8 * b, m + 8 * b);
    }
}

static void scales_q5_K(const uint8_t *p, int n, float *s, float *m)
{
    for (int b = 0; b < n / 256; b++) {
        scales_k(p + 176 * b, s + 8 * b, m + 8 * b);
    }
}

static void scales_q6_K(const uint8_t *p, int n, float *s, float *m)
{
    for (int b = 0; b < n / 256; b++, p += 210, s += 16, m += 16) {
        float d = unpack_half(p + 208);
        qn_u8x16 v = (qn_u8x16)(*(const qn_u32x4 *)(p + 192) ^ 0x80808080u);
        scale_bytes(v, 128, d, d, s, s + 8);
        scale_bytes(v, 128, 32 * d, 32 * d, m, m + 8);
    }
}

/* 8 scales of 6 bits: their nibbles in order, and in the 16 bits before those their top two bits in order. */
static void scales_iq4_xs(const uint8_t *p, int n, float *s, float *m)
{
    (void)m;
    for (int b = 0; b < n / 256; b++, p += 136, s += 8) {
        uint16_t h;
        uint32_t l;
        memcpy(&h, p + 2, sizeof h);
        memcpy(&l, p + 4, sizeof l);
        uint64_t low = l, high = h; /* each spread to a byte a scale */
        low = (low | low << 16) & 0x0000ffff0000ffff;
        low = (low | low << 8) & 0x00ff00ff00ff00ff;
        low = (low | low << 4) & 0x0f0f0f0f0f0f0f0f;
        high = (high | high << 24) & 0x000000ff000000ff;
        high = (high | high << 12) & 0x000f000f000f000f;
        high = (high | high << 6) & 0x0303030303030303;
        low |= high << 4;
        qn_u8x16 v = (qn_u8x16)(qn_u32x4){(uint32_t)low, (uint32_t)(low >> 32), 0, 0};
        float d = unpack_half(p), unused[8];
        scale_bytes(v, 32, d, d, s, unused);
    }
}

/* ---- codes ---- */

/* 32 values of 4 bits: low nibbles are values 0-15, high nibbles 16-31. */
static inline void unpack_nibbles(const uint8_t *qs, uint8_t *code)
{
    qn_u32x4 q = *(const qn_u32x4 *)qs;
    *(qn_u32x4 *)code = q & 0x0f0f0f0fu;
    *(qn_u32x4 *)(code + 16) = (q >> 4) & 0x0f0f0f0fu;
}

static void codes_q4_0(const uint8_t *p, int n, uint8_t *code)
{
    for (int b = 0; b < n / 32; b++) {
        unpack_nibbles(p + 18 * b + 2, code + 32 * b);
    }
}

static void codes_q4_1(const uint8_t *p, int n, uint8_t *code)
{
    for (int b = 0; b < n / 32; b++) {
        unpack_nibbles(p + 20 * b + 4, code + 32 * b);
    }
}

/* 32 values of 5 bits: nibbles, and 32 fifth bits in order. */
static inline void unpack_fives(const uint8_t *qh, const uint8_t *qs, uint8_t *code)
{
    const qn_u8x16 bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    uint32_t h;
    memcpy(&h, qh, sizeof h);
    qn_u8x16 all = (qn_u8x16)(qn_u32x4){h, 0, 0, 0};
    qn_u8x16 lo = QN_SHUFFLE(qn_u8x16, all, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    qn_u8x16 hi = QN_SHUFFLE(qn_u8x16, all, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    qn_u32x4 q = *(const qn_u32x4 *)qs;
    qn_u32x4 five_lo = (qn_u32x4)((lo & bit) == bit) & 0x10101010u;
    qn_u32x4 five_hi = (qn_u32x4)((hi & bit) == bit) & 0x10101010u;
    *(qn_u32x4 *)code = (q & 0x0f0f0f0fu) | five_lo;
    *(qn_u32x4 *)(code + 16) = ((q >> 4) & 0x0f0f0f0fu) | five_hi;
}

static void codes_q5_0(const uint8_t *p, int n, uint8_t *code)
{
    for (int b = 0; b < n / 32; b++, p += 22) {
        unpack_fives(p + 2, p + 6, code + 32 * b);
    }
}

static void codes_q5_1(const uint8_t *p, int n, uint8_t *code)
{
    for (int b = 0; b < n / 32; b++, p += 24) {
        unpack_fives(p + 4, p + 8, code + 32 * b);
    }
}

static void codes_q8_0(const uint8_t *p, int n, uint8_t *code)
{
    for (int b = 0; b < n / 32; b++) {
        *(qn_u32x8 *)(code + 32 * b) = *(const qn_u32x8 *)(p + 34 * b + 2) ^ 0x80808080u;
    }
}

static void codes_q2_K(const uint8_t *p, int n, uint8_t *code)
{
    for (int b = 0; b < n / 256; b++, p += 84, code += 256) {
        for (int h = 0; h < 2; h++) {
            qn_u32x8 q = *(const qn_u32x8 *)(p + 16 + 32 * h);
            for (int j = 0; j < 4; j++) {
                *(qn_u32x8 *)(code + 128 * h + 32 * j) = (q >> (2 * j)) & 0x03030303u;
            }
        }
    }
}

static void codes_q3_K(const uint8_t *p, int n, uint8_t *code)
{
    for (int b = 0; b < n / 256; b++, p += 110, code += 256) {
        qn_u32x8 third = *(const qn_u32x8 *)p;
        for (int h = 0; h < 2; h++) {
            qn_u32x8 q = *(const qn_u32x8 *)(p + 32 + 32 * h);
            for (int j = 0; j < 4; j++) {
                qn_u32x8 bit = ((third >> (4 * h + j)) & 0x01010101u) << 2;
                *(qn_u32x8 *)(code + 128 * h + 32 * j) = ((q >> (2 * j)) & 0x03030303u) | bit;
            }
        }
    }
}

static void codes_q4_K(const uint8_t *p, int n, uint8_t *code)
{
    for (int b = 0; b < n / 256; b++, p += 144, code += 256) {
        for (int j = 0; j < 4; j++) {
            qn_u32x8 q = *(const qn_u32x8 *)(p + 16 + 32 * j);
            *(qn_u32x8 *)(code + 64 * j) = q & 0x0f0f0f0fu;
            *(qn_u32x8 *)(code + 64 * j + 32) = (q >> 4) & 0x0f0f0f0fu;
        }
    }
}

static void codes_q5_K(const uint8_t *p, int n, uint8_t *code)
{
    for (int b = 0; b < n / 256; b++, p += 176, code += 256) {
        qn_u32x8 fifth = *(const qn_u32x8 *)(p + 16);
        for (int j = 0; j < 4; j++) {
            qn_u32x8 q = *(const qn_u32x8 *)(p + 48 + 32 * j);
            qn_u32x8 bits = fifth >> (2 * j);
            *(qn_u32x8 *)(code + 64 * j) = (q & 0x0f0f0f0fu) | ((bits & 0x01010101u) << 4);
            *(qn_u32x8 *)(code + 64 * j + 32) = ((q >> 4) & 0x0f0f0f0fu) | ((bits & 0x02020202u) << 3);
        }
    }
}

static void codes_q6_K(const uint8_t *p, int n, uint8_t *code)
{
    for (int b = 0; b < n / 256; b++, p += 210) {
        for (int h = 0; h < 2; h++, code += 128) {
            qn_u32x8 a = *(const qn_u32x8 *)(p + 64 * h), c = *(const qn_u32x8 *)(p + 64 * h + 32);
            qn_u32x8 top = *(const qn_u32x8 *)(p + 128 + 32 * h);
            *(qn_u32x8 *)code = (a & 0x0f0f0f0fu) | ((top << 4) & 0x30303030u);
            *(qn_u32x8 *)(code + 32) = (c & 0x0f0f0f0fu) | ((top << 2) & 0x30303030u);
            *(qn_u32x8 *)(code + 64) = ((a >> 4) & 0x0f0f0f0fu) | (top & 0x30303030u);
            *(qn_u32x8 *)(code + 96) = ((c >> 4) & 0x0f0f0f0fu) | ((top >> 2) & 0x30303030u);
        }
    }
}

/* The IQ4 table's entries + 128. */
static const uint8_t iq4_codes[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                      129, 141, 153, 166, 181, 197, 217, 241};

/* 32 values that are places in the IQ4 table. */
static inline void unpack_iq4(const uint8_t *qs, uint8_t *code)
{
#if defined(__SSSE3__)
    __m128i t = _mm_loadu_si128((const __m128i *)iq4_codes), q = _mm_loadu_si128((const __m128i *)qs);
    __m128i low = _mm_set1_epi8(15);
    _mm_storeu_si128((__m128i *)code, _mm_shuffle_epi8(t, _mm_and_si128(q, low)));
    q = _mm_and_si128(_mm_srli_epi16(q, 4), low);
    _mm_storeu_si128((__m128i *)(code + 16), _mm_shuffle_epi8(t, q));
#else
    for (int i = 0; i < 16; i++) {
        code[i] = iq4_codes[qs[i] & 15];
        code[16 + i] = iq4_codes[qs[i] >> 4];
    }
#endif
}

static void codes_iq4_nl(const uint8_t *p, int n, uint8_t *code)
{
    for (int b = 0; b < n / 32; b++) {
        unpack_iq4(p + 18 * b + 2, code + 32 * b);
    }
}

static void codes_iq4_xs(const uint8_t *p, int n, uint8_t *code)
{
    for (int g = 0; g < n / 32; g++) {
        unpack_iq4(p + g / 8 * 136 + 8 + 16 * (g % 8), code + 32 * g);
    }
}

static const qn_unpack unpack_rows[QN_TYPE_COUNT] = {
    [QN_Q4_0] = {scales_q4_0, codes_q4_0, 32, false},
    [QN_Q4_1] = {scales_q4_1, codes_q4_1, 32, false},
    [QN_Q5_0] = {scales_q5_0, codes_q5_0, 32, false},
    [QN_Q5_1] = {scales_q5_1, codes_q5_1, 32, false},
    [QN_Q8_0] = {scales_q8_0, codes_q8_0, 32, true},
    [QN_Q2_K] = {scales_q2_K, codes_q2_K, 16, false},
    [QN_Q3_K] = {scales_q3_K, codes_q3_K, 16, false},
    [QN_Q4_K] = {scales_q4_K, codes_q4_K, 32, false},
    [QN_Q5_K] = {scales_q5_K, codes_q5_K, 32, false},
    [QN_Q6_K] = {scales_q6_K, codes_q6_K, 16, false},
    [QN_IQ4_NL] = {scales_iq4_nl, codes_iq4_nl, 32, true},
    [QN_IQ4_XS] = {scales_iq4_xs, codes_iq4_xs, 32, true},
};

/* Rows of a block as codes with their scales. Padding of s and m is zero, so that padding of code counts
 * nothing. */
struct unpacked {
    uint8_t *code; /* [QN_MM_ROWS][padded] */
    float *s, *m;  /* [QN_MM_ROWS][groups] */
    int padded, groups, used;
};

static inline struct unpacked unpacked_in(unsigned char *scratch, int n, int group)
{
    struct unpacked r;
    r.padded = qn_mm_padded(n);
    r.groups = group == 16 ? qn_mm_groups16(n) : qn_mm_groups32(n);
    r.used = n / group;
    r.s = (float *)(void *)scratch;
    r.m = r.s + QN_MM_ROWS * r.groups;
    r.code = (uint8_t *)(r.m + QN_MM_ROWS * r.groups);
    return r;
}

/* Row `row` of the block into place `slot`. */
static inline void unpack_scales(const qn_mm_block *b, int row, struct unpacked r, int slot)
{
    float *s = r.s + slot * r.groups, *m = r.m + slot * r.groups;
    unpack_rows[b->type].scales(b->w + (size_t)row * b->row_bytes, b->act->n_in, s, m);
    for (int g = r.used; g < r.groups; g++) {
        s[g] = m[g] = 0.0f;
    }
}

static inline void unpack_row(const qn_mm_block *b, int row, struct unpacked r, int slot)
{
    unpack_scales(b, row, r, slot);
    unpack_rows[b->type].codes(b->w + (size_t)row * b->row_bytes, b->act->n_in, r.code + slot * r.padded);
}

/* A floating-point row as f32: `w` itself where it is f32 and aligned, else converted into `out`. */
static inline const float *unpack_float_row(qn_type type, const uint8_t *w, int n, float *out)
{
    if (type == QN_F32) {
        if ((uintptr_t)w % _Alignof(float) == 0) {
            return (const float *)(const void *)w;
        }
        memcpy(out, w, sizeof(float) * (size_t)n);
        return out;
    }
    int k = 0;
#if defined(__F16C__)
    if (type == QN_F16) {
        for (; k + 8 <= n; k += 8) {
            __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(w + 2 * k));
            _mm256_storeu_ps(out + k, _mm256_cvtph_ps(h));
        }
    }
#endif
    for (; k < n; k++) {
        uint16_t h;
        memcpy(&h, w + 2 * k, sizeof h);
        out[k] = type == QN_F16 ? qn_f16_to_f32(h) : qn_bf16_to_f32(h);
    }
    return out;
}

/* Scale of a group with this largest |x|, and what to multiply x by (0: all is taken as 0). NaN or Inf ends
 * up in the scale. */
static inline float quantize_scale(float max, float *d)
{
    *d = max < 1e-30f ? 0.0f : max / 127.0f;
    return max >= 1e-30f && max <= 3e38f ? 127.0f / max : 0.0f;
}

static inline void quantize_sums(qn_q8_row out, int g, float d, int isum)
{
    out.d[g] = d;
    out.bias[g] = -128 * isum;
    out.sum2[g] = d * (float)isum;
    if (g % 2) {
        out.sum[g / 2] = out.sum2[g - 1] + out.sum2[g];
    }
}

static inline void quantize_padding(qn_q8_row out, int n)
{
    memset(out.q + n, 0, (size_t)(qn_mm_padded(n) - n));
    for (int g = n / 32; g < qn_mm_groups32(n); g++) {
        out.sum[g] = 0.0f;
    }
    for (int g = n / 16; g < qn_mm_groups16(n); g++) {
        out.d[g] = out.sum2[g] = 0.0f;
        out.bias[g] = 0;
    }
}

/* Rounds 16 values to 8 bits. The largest |x| is found on the bits, where NaN > Inf > finite. Rounding to
 * nearest even is by adding 1.5 * 2^23. */
static inline void quantize_group(const float *x, qn_q8_row out, int g)
{
    enum { MAGIC_BITS = 0x4b400000 };
    const float magic = 12582912.0f;
    uint32_t top = 0;
    for (int i = 0; i < 16; i++) {
        uint32_t u = qn_f32_bits(x[i]) & 0x7fffffffu;
        top = u > top ? u : top;
    }
    float d, inv = quantize_scale(qn_f32_from_bits(top), &d);
    int sum = 0;
    for (int i = 0; i < 16; i++) {
        float r = (inv != 0.0f ? x[i] * inv : 0.0f) + magic;
        int v = (int)(qn_f32_bits(r) - (uint32_t)MAGIC_BITS);
        out.q[16 * g + i] = (int8_t)v;
        sum += v;
    }
    quantize_sums(out, g, d, sum);
}

static inline void quantize_row(const float *x, int n, qn_q8_row out)
{
    for (int g = 0; g < n / 16; g++) {
        quantize_group(x + 16 * g, out, g);
    }
    quantize_padding(out, n);
}

#endif
