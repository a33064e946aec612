#if defined(__x86_64__)
#include "cpu/dots_avx512.h"

#include <immintrin.h>

#include "cpu/unpack.h"

#define INLINE static inline __attribute__((always_inline))

/* ---- 64 codes in order: unit u of the 256 values that begin at p. `last`: only 32 are left (types of 32
 * values a block). ---- */

typedef __m512i (*unit_fn)(const uint8_t *p, int u, bool last);

INLINE __m512i low_high(uint64_t low_words, uint64_t high_words)
{
    int64_t low = (int64_t)low_words, high = (int64_t)high_words;
    return _mm512_setr_epi64(low, low, low, low, high, high, high, high);
}

/* The same 32 bytes in both halves. */
INLINE __m512i twice(const uint8_t *p)
{
    return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)p));
}

/* Two blocks' 16 bytes of nibbles, each as 16 low then 16 high nibbles. */
INLINE __m512i nibbles(const uint8_t *a, const uint8_t *b)
{
    const __m512i by = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
    __m512i v = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)a));
    v = _mm512_mask_broadcast_i32x4(v, 0xff00, _mm_loadu_si128((const __m128i *)b));
    return _mm512_and_si512(_mm512_srlv_epi64(v, by), _mm512_set1_epi8(15));
}

INLINE __m512i fives(const uint8_t *a, const uint8_t *b)
{
    uint32_t low, high;
    memcpy(&low, a, sizeof low);
    memcpy(&high, b, sizeof high);
    __m512i v = nibbles(a + 4, b + 4);
    return _mm512_mask_add_epi8(v, (uint64_t)high << 32 | low, v, _mm512_set1_epi8(16));
}

INLINE __m512i iq4(const uint8_t *a, const uint8_t *b)
{
    __m512i table = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)iq4_codes));
    return _mm512_shuffle_epi8(table, nibbles(a, b));
}

INLINE __m512i unit_q4_0(const uint8_t *p, int u, bool last)
{
    p += 36 * u + 2;
    return nibbles(p, last ? p : p + 18);
}
INLINE __m512i unit_q4_1(const uint8_t *p, int u, bool last)
{
    p += 40 * u + 4;
    return nibbles(p, last ? p : p + 20);
}
INLINE __m512i unit_q5_0(const uint8_t *p, int u, bool last)
{
    p += 44 * u + 2;
    return fives(p, last ? p : p + 22);
}
INLINE __m512i unit_q5_1(const uint8_t *p, int u, bool last)
{
    p += 48 * u + 4;
    return fives(p, last ? p : p + 24);
}
INLINE __m512i unit_iq4_nl(const uint8_t *p, int u, bool last)
{
    p += 36 * u + 2;
    return iq4(p, last ? p : p + 18);
}
INLINE __m512i unit_q8_0(const uint8_t *p, int u, bool last)
{
    p += 68 * u + 2;
    __m256i a = _mm256_loadu_si256((const __m256i *)p);
    __m256i b = _mm256_loadu_si256((const __m256i *)(last ? p : p + 34));
    return _mm512_xor_si512(_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1), _mm512_set1_epi8((char)128));
}

INLINE __m512i unit_q2_K(const uint8_t *p, int u, bool last)
{
    (void)last;
    unsigned by = 4 * (u & 1);
    __m512i v = twice(p + 16 + 32 * (u >> 1));
    return _mm512_and_si512(_mm512_srlv_epi64(v, low_high(by, by + 2)), _mm512_set1_epi8(3));
}
INLINE __m512i unit_q3_K(const uint8_t *p, int u, bool last)
{
    (void)last;
    unsigned by = 4 * (u & 1), bit = 2 * u;
    __m512i v = _mm512_srlv_epi64(twice(p + 32 + 32 * (u >> 1)), low_high(by, by + 2));
    v = _mm512_and_si512(v, _mm512_set1_epi8(3));
    __m512i bits = low_high(0x0101010101010101u << bit, 0x0202020202020202u << bit);
    return _mm512_mask_add_epi8(v, _mm512_test_epi8_mask(twice(p), bits), v, _mm512_set1_epi8(4));
}
INLINE __m512i unit_q4_K(const uint8_t *p, int u, bool last)
{
    (void)last;
    __m512i v = twice(p + 16 + 32 * u);
    return _mm512_and_si512(_mm512_srlv_epi64(v, low_high(0, 4)), _mm512_set1_epi8(15));
}
INLINE __m512i unit_q5_K(const uint8_t *p, int u, bool last)
{
    (void)last;
    int bit = 2 * u;
    __m512i v = _mm512_srlv_epi64(twice(p + 48 + 32 * u), low_high(0, 4));
    v = _mm512_and_si512(v, _mm512_set1_epi8(15));
    __m512i bits = low_high(0x0101010101010101u << bit, 0x0202020202020202u << bit);
    return _mm512_mask_add_epi8(v, _mm512_test_epi8_mask(twice(p + 16), bits), v, _mm512_set1_epi8(16));
}
INLINE __m512i unit_q6_K(const uint8_t *p, int u, bool last)
{
    (void)last;
    __m512i v = _mm512_loadu_si512(p + 64 * (u >> 1)), top = twice(p + 128 + 32 * (u >> 1));
    if (u & 1) {
        v = _mm512_srli_epi64(v, 4);
        top = _mm512_srlv_epi64(top, low_high(0, 2));
    } else {
        top = _mm512_sllv_epi64(top, low_high(4, 2));
    }
    return _mm512_or_si512(_mm512_and_si512(v, _mm512_set1_epi8(15)),
                           _mm512_and_si512(top, _mm512_set1_epi8(0x30)));
}
INLINE __m512i unit_iq4_xs(const uint8_t *p, int u, bool last)
{
    (void)last;
    p += 8 + 32 * u;
    return iq4(p, p + 16);
}

/* ---- dot products of two rows of W at a time ---- */

enum { PAIR = 2 };

INLINE __m512 add_unit(__m512 acc, __m512i code, __m512i x, bool wide, __m512 scale)
{
    __m512i i = _mm512_dpbusd_epi32(_mm512_setzero_si512(), code, x);
    if (wide) {
        i = _mm512_sub_epi32(i, _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8((char)128), x));
    }
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(i), scale, acc);
}

/* What holds for the 16 groups of 16 from value k on, of data for groups of 16 or 32. */
INLINE __m512 each16(const float *v, int k, int group)
{
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    if (group == 16) {
        return _mm512_loadu_ps(v + k / 16);
    }
    return _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(v + k / 32)));
}

/* Scales of 256 values times those of x. */
INLINE __m512 scales_at(const float *s, qn_q8_row x, int k, int group)
{
    return _mm512_mul_ps(each16(s, k, group), _mm512_loadu_ps(x.d + k / 16));
}

/* min + the minima of 256 values times the sums of x. */
INLINE __m512 add_minima(__m512 min, const float *m, qn_q8_row x, int k, int group)
{
    return _mm512_fmadd_ps(each16(m, k, group), _mm512_loadu_ps(x.sum2 + k / 16), min);
}

/* What is the same in all steps over a pair of rows; constants where it is inlined. */
struct form {
    unit_fn unit;
    int bytes; /* of 256 values */
    int group;
    bool wide;
};

/* out[row][t]; 256 values a turn, each scale for the 4 lanes of its 16 values. */
INLINE void dot_pair(const uint8_t *w0, const uint8_t *w1, struct form f, struct unpacked r, int n,
                     const qn_q8_row *x, int n_t, float out[PAIR][DOT_TOKENS_MAX])
{
    const __m512i pick4 = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const uint8_t *w[PAIR] = {w0, w1};
    __m512 acc[PAIR][DOT_TOKENS_MAX], min[PAIR][DOT_TOKENS_MAX], p[PAIR][DOT_TOKENS_MAX];
    for (int i = 0; i < PAIR * n_t; i++) {
        acc[i % PAIR][i / PAIR] = min[i % PAIR][i / PAIR] = _mm512_setzero_ps();
    }
    for (int k = 0; k < n; k += 256, w[0] += f.bytes, w[1] += f.bytes) {
        for (int i = 0; i < PAIR * n_t; i++) {
            int row = i % PAIR, t = i / PAIR;
            p[row][t] = scales_at(r.s + row * r.groups, x[t], k, f.group);
            if (!f.wide) {
                min[row][t] = add_minima(min[row][t], r.m + row * r.groups, x[t], k, f.group);
            }
        }
        if (n - k >= 256) {
#pragma GCC unroll 4
            for (int u = 0; u < 4; u++) {
                __m512i pick = _mm512_add_epi32(pick4, _mm512_set1_epi32(4 * u));
                for (int row = 0; row < PAIR; row++) {
                    __m512i code = f.unit(w[row], u, false);
                    for (int t = 0; t < n_t; t++) {
                        acc[row][t] = add_unit(acc[row][t], code, _mm512_loadu_si512(x[t].q + k + 64 * u),
                                               f.wide, _mm512_permutexvar_ps(pick, p[row][t]));
                    }
                }
            }
        } else { /* blocks of 32 only; what lies behind the row counts with scale 0 */
            for (int u = 0; 64 * u < n - k; u++) {
                __m512i pick = _mm512_add_epi32(pick4, _mm512_set1_epi32(4 * u));
                for (int row = 0; row < PAIR; row++) {
                    __m512i code = f.unit(w[row], u, n - k - 64 * u < 64);
                    for (int t = 0; t < n_t; t++) {
                        acc[row][t] = add_unit(acc[row][t], code, _mm512_loadu_si512(x[t].q + k + 64 * u),
                                               f.wide, _mm512_permutexvar_ps(pick, p[row][t]));
                    }
                }
            }
        }
    }
    for (int i = 0; i < PAIR * n_t; i++) {
        int row = i % PAIR, t = i / PAIR;
        out[row][t] = _mm512_reduce_add_ps(_mm512_sub_ps(acc[row][t], min[row][t]));
    }
}

INLINE void dots(const qn_mm_block *b, struct form f, int n_t)
{
    struct unpacked r = unpacked_in(b->scratch, b->act->n_in, f.group);
    qn_q8_row x[DOT_TOKENS_MAX];
    for (int t = 0; t < n_t; t++) {
        x[t] = qn_q8_row_at(b->act, t);
    }
    for (int row = 0; row < b->n_rows; row += PAIR) {
        int second = row + 1 < b->n_rows ? row + 1 : row; /* an odd last row is its own partner */
        float y[PAIR][DOT_TOKENS_MAX];
        unpack_scales(b, row, r, 0);
        unpack_scales(b, second, r, 1);
        dot_pair(b->w + (size_t)row * b->row_bytes, b->w + (size_t)second * b->row_bytes, f, r, b->act->n_in,
                 x, n_t, y);
        for (int t = 0; t < n_t; t++) {
            b->y[t * b->y_stride + row] = y[0][t];
            b->y[t * b->y_stride + second] = y[second - row][t];
        }
    }
}

INLINE void dots_of(const qn_mm_block *b, struct form f)
{
    if (b->act->n_tokens == 1) {
        dots(b, f, 1);
    } else if (b->act->n_tokens == 2) {
        dots(b, f, 2);
    } else {
        dots(b, f, 3);
    }
}

static void dots_q4_0(const qn_mm_block *b)
{
    dots_of(b, (struct form){unit_q4_0, 144, 32, false});
}
static void dots_q4_1(const qn_mm_block *b)
{
    dots_of(b, (struct form){unit_q4_1, 160, 32, false});
}
static void dots_q5_0(const qn_mm_block *b)
{
    dots_of(b, (struct form){unit_q5_0, 176, 32, false});
}
static void dots_q5_1(const qn_mm_block *b)
{
    dots_of(b, (struct form){unit_q5_1, 192, 32, false});
}
static void dots_q8_0(const qn_mm_block *b)
{
    dots_of(b, (struct form){unit_q8_0, 272, 32, true});
}
static void dots_q2_K(const qn_mm_block *b)
{
    dots_of(b, (struct form){unit_q2_K, 84, 16, false});
}
static void dots_q3_K(const qn_mm_block *b)
{
    dots_of(b, (struct form){unit_q3_K, 110, 16, false});
}
static void dots_q4_K(const qn_mm_block *b)
{
    dots_of(b, (struct form){unit_q4_K, 144, 32, false});
}
static void dots_q5_K(const qn_mm_block *b)
{
    dots_of(b, (struct form){unit_q5_K, 176, 32, false});
}
static void dots_q6_K(const qn_mm_block *b)
{
    dots_of(b, (struct form){unit_q6_K, 210, 16, false});
}
static void dots_iq4_nl(const qn_mm_block *b)
{
    dots_of(b, (struct form){unit_iq4_nl, 144, 32, true});
}
static void dots_iq4_xs(const qn_mm_block *b)
{
    dots_of(b, (struct form){unit_iq4_xs, 136, 32, true});
}

void qn_dots_avx512(const qn_mm_block *b)
{
    static void (*const of_type[QN_TYPE_COUNT])(const qn_mm_block *) = {
        [QN_Q4_0] = dots_q4_0, [QN_Q4_1] = dots_q4_1, [QN_Q5_0] = dots_q5_0,     [QN_Q5_1] = dots_q5_1,
        [QN_Q8_0] = dots_q8_0, [QN_Q2_K] = dots_q2_K, [QN_Q3_K] = dots_q3_K,     [QN_Q4_K] = dots_q4_K,
        [QN_Q5_K] = dots_q5_K, [QN_Q6_K] = dots_q6_K, [QN_IQ4_NL] = dots_iq4_nl, [QN_IQ4_XS] = dots_iq4_xs,
    };
    of_type[b->type](b);
}
#endif
