#if defined(__x86_64__)
#include <immintrin.h>

#include "cpu/exact.h"
#include "cpu/matmul_kernels.h"
#include "cpu/unpack.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    DOT_TOKENS = 3, /* up to this many rows of x, one dot product each beats building a panel */
    TILE = 4,       /* rows of x that one pass over a panel serves */
    LANES = 8,      /* rows of a panel */
};

/* Products of unsigned codes and signed bytes are added in pairs to 16 bits, which holds codes up to 63
 * (twice 2 * 63 * 127 fits), but not wide ones. Those are taken as signed, code - 128, with their sign moved
 * to the other factor (2 * 128 * 127 fits). */

/* ---- rows unpacked as they lie, one dot product a token ---- */

INLINE float sum8(__m256 v)
{
    __m128 a = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    a = _mm_add_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_add_ss(a, _mm_shuffle_ps(a, a, 1)));
}

/* 32 products in 8 sums of 4. */
INLINE __m256i times32(const uint8_t *code, const int8_t *q, bool wide)
{
    __m256i w = _mm256_loadu_si256((const __m256i *)code), x = _mm256_loadu_si256((const __m256i *)q);
    if (wide) {
        w = _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80));
        x = _mm256_sign_epi8(x, w);
        w = _mm256_abs_epi8(w);
    }
    return _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1));
}

/* What holds for 8 groups of 16 from group g on, of data for groups of 16 or 32. */
INLINE __m256 each16(const float *v, int g, int group)
{
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    if (group == 16) {
        return _mm256_loadu_ps(v + g);
    }
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(v + g / 2)), twice);
}

INLINE float dot_codes(const uint8_t *code, const float *s, const float *m, qn_q8_row x, int n, int group,
                       bool wide)
{
    const __m256i pick = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
    __m256 acc[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()}, min = _mm256_setzero_ps();
    for (int g = 0; g < n / 16; g += LANES) { /* groups of 16; padding of s, m and d: zero */
        __m256 p = _mm256_mul_ps(each16(s, g, group), _mm256_loadu_ps(x.d + g));
        if (!wide) {
            min = _mm256_fmadd_ps(each16(m, g, group), _mm256_loadu_ps(x.sum2 + g), min);
        }
        int left = n / 16 - g, used = left < LANES ? left : LANES;
#pragma GCC unroll 4
        for (int i = 0; i < LANES; i += 2) {
            if (i >= used) {
                break;
            }
            const int at = (g + i) * 16;
            __m256 scale = _mm256_permutevar8x32_ps(p, _mm256_add_epi32(pick, _mm256_set1_epi32(i)));
            __m256 f = _mm256_cvtepi32_ps(times32(code + at, x.q + at, wide));
            acc[i / 2 % 2] = _mm256_fmadd_ps(f, scale, acc[i / 2 % 2]);
        }
    }
    return sum8(_mm256_sub_ps(_mm256_add_ps(acc[0], acc[1]), min));
}

static void quantised_dots(const qn_mm_block *b, const qn_unpack *u)
{
    int n = b->act->n_in;
    struct unpacked r = unpacked_in(b->scratch, n, u->group);
    for (int row = 0; row < b->n_rows; row++) {
        unpack_row(b, row, r, 0);
        for (int t = 0; t < b->act->n_tokens; t++) {
            qn_q8_row x = qn_q8_row_at(b->act, t);
            float *y = &b->y[t * b->y_stride + row];
            if (u->group == 16) {
                *y = dot_codes(r.code, r.s, r.m, x, n, 16, false);
            } else if (u->wide) {
                *y = dot_codes(r.code, r.s, r.m, x, n, 32, true);
            } else {
                *y = dot_codes(r.code, r.s, r.m, x, n, 32, false);
            }
        }
    }
}

/* ---- panels: 8 rows interleaved, a lane each ---- */

INLINE void transpose8(__m256i v[8])
{
    __m256i a[8];
    for (int i = 0; i < 8; i += 4) {
        __m256i t0 = _mm256_unpacklo_epi32(v[i], v[i + 1]), t1 = _mm256_unpackhi_epi32(v[i], v[i + 1]);
        __m256i t2 = _mm256_unpacklo_epi32(v[i + 2], v[i + 3]),
                t3 = _mm256_unpackhi_epi32(v[i + 2], v[i + 3]);
        a[i] = _mm256_unpacklo_epi64(t0, t2);
        a[i + 1] = _mm256_unpackhi_epi64(t0, t2);
        a[i + 2] = _mm256_unpacklo_epi64(t1, t3);
        a[i + 3] = _mm256_unpackhi_epi64(t1, t3);
    }
    for (int c = 0; c < 4; c++) {
        v[c] = _mm256_permute2x128_si256(a[c], a[4 + c], 0x20);
        v[4 + c] = _mm256_permute2x128_si256(a[c], a[4 + c], 0x31);
    }
}

/* Columns of n_rows (at most 8) rows of words side by side: out[c][r]. Missing rows repeat the last. n_words
 * is read exactly; out has room for whole vectors of columns. */
static void interleave(const void *rows, size_t row_words, int n_rows, int n_words, void *out)
{
    const uint32_t *in = rows;
    uint32_t *o = out;
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (int c = 0; c < n_words; c += LANES) {
        __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(n_words - c), lane), v[LANES];
        for (int r = 0; r < LANES; r++) {
            size_t row = (size_t)(r < n_rows ? r : n_rows - 1);
            v[r] = _mm256_maskload_epi32((const int *)(const void *)(in + row * row_words + c), mask);
        }
        transpose8(v);
        for (int i = 0; i < LANES; i++) {
            _mm256_storeu_si256((__m256i *)(void *)(o + LANES * (c + i)), v[i]);
        }
    }
}

struct panel {
    const uint8_t *code; /* [k / 4][row][4] */
    const float *s, *m;  /* [group][row] */
    int n;
};

INLINE __m256i broadcast4(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm256_set1_epi32(four);
}

/* 16 values of a panel against n_t rows of x, from value k on. */
INLINE void group_sums(const uint8_t *code, const int8_t *const *q, int k, int n_t, bool wide, __m256i *isum)
{
    const __m256i ones = _mm256_set1_epi16(1), sign = _mm256_set1_epi8((char)0x80);
    for (int t = 0; t < n_t; t++) {
        isum[t] = _mm256_setzero_si256();
    }
#pragma GCC unroll 2
    for (int c = 0; c < 4; c += 2) {
        __m256i w0 = _mm256_loadu_si256((const __m256i *)(code + 32 * c));
        __m256i w1 = _mm256_loadu_si256((const __m256i *)(code + 32 * c + 32));
        if (wide) {
            w0 = _mm256_xor_si256(w0, sign);
            w1 = _mm256_xor_si256(w1, sign);
            __m256i a0 = _mm256_abs_epi8(w0), a1 = _mm256_abs_epi8(w1);
            for (int t = 0; t < n_t; t++) {
                __m256i x0 = broadcast4(q[t] + k + 4 * c), x1 = broadcast4(q[t] + k + 4 * c + 4);
                __m256i p0 = _mm256_maddubs_epi16(a0, _mm256_sign_epi8(x0, w0));
                __m256i p1 = _mm256_maddubs_epi16(a1, _mm256_sign_epi8(x1, w1));
                isum[t] = _mm256_add_epi32(isum[t], _mm256_madd_epi16(p0, ones));
                isum[t] = _mm256_add_epi32(isum[t], _mm256_madd_epi16(p1, ones));
            }
        } else {
            for (int t = 0; t < n_t; t++) {
                __m256i x0 = broadcast4(q[t] + k + 4 * c), x1 = broadcast4(q[t] + k + 4 * c + 4);
                __m256i pair = _mm256_add_epi16(_mm256_maddubs_epi16(w0, x0), _mm256_maddubs_epi16(w1, x1));
                isum[t] = _mm256_add_epi32(isum[t], _mm256_madd_epi16(pair, ones));
            }
        }
    }
}

/* Rows `rows` (a lane mask) of n_t rows of y. */
INLINE void code_tile(struct panel p, const qn_act *a, int t0, int n_t, int group, bool wide, float *y,
                      ptrdiff_t y_stride, __m256i rows)
{
    const int8_t *q[TILE];
    const float *d[TILE], *sum[TILE];
    __m256 acc[TILE];
    for (int t = 0; t < n_t; t++) {
        qn_q8_row x = qn_q8_row_at(a, t0 + t);
        q[t] = x.q;
        d[t] = x.d;
        sum[t] = group == 32 ? x.sum : x.sum2;
        acc[t] = _mm256_setzero_ps();
    }
    for (int g = 0; g < p.n / group; g++) {
        __m256 s = _mm256_loadu_ps(p.s + LANES * g), m = s;
        if (!wide) {
            m = _mm256_loadu_ps(p.m + LANES * g);
        }
        __m256 part[TILE]; /* a scale group's sum of code * d * q */
#pragma GCC unroll 2
        for (int half = 0; half < group / 16; half++) {
            __m256i isum[TILE];
            int h = g * (group / 16) + half;
            group_sums(p.code + LANES * 16 * h, q, 16 * h, n_t, wide, isum);
            for (int t = 0; t < n_t; t++) {
                __m256 f = _mm256_cvtepi32_ps(isum[t]), by = _mm256_set1_ps(d[t][h]);
                part[t] = half ? _mm256_fmadd_ps(f, by, part[t]) : _mm256_mul_ps(f, by);
            }
        }
        for (int t = 0; t < n_t; t++) {
            acc[t] = _mm256_fmadd_ps(part[t], s, acc[t]);
            if (!wide) {
                acc[t] = _mm256_fnmadd_ps(m, _mm256_set1_ps(sum[t][g]), acc[t]);
            }
        }
    }
    for (int t = 0; t < n_t; t++) {
        _mm256_maskstore_ps(y + (t0 + t) * y_stride, rows, acc[t]);
    }
}

INLINE void code_tiles(struct panel p, const qn_mm_block *b, int group, bool wide, float *y, __m256i rows)
{
    int t = 0, n = b->act->n_tokens;
    for (; t + TILE <= n; t += TILE) {
        code_tile(p, b->act, t, TILE, group, wide, y, b->y_stride, rows);
    }
    for (; t < n; t++) {
        code_tile(p, b->act, t, 1, group, wide, y, b->y_stride, rows);
    }
}

static __m256i lane_mask(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static void quantised_panel(const qn_mm_block *b, const qn_unpack *u)
{
    struct unpacked r = unpacked_in(b->scratch, b->act->n_in, u->group);
    uint8_t *code = r.code + QN_MM_ROWS * r.padded;
    float *s = (float *)(void *)(code + LANES * r.padded), *m = s + LANES * r.groups;
    struct panel p = {code, s, m, b->act->n_in};
    for (int row = 0; row < b->n_rows; row++) {
        unpack_row(b, row, r, row);
    }
    for (int row = 0; row < b->n_rows; row += LANES) {
        int left = b->n_rows - row < LANES ? b->n_rows - row : LANES;
        interleave(r.code + row * r.padded, (size_t)r.padded / 4, left, r.padded / 4, code);
        interleave(r.s + row * r.groups, (size_t)r.groups, left, r.groups, s);
        if (!u->wide) {
            interleave(r.m + row * r.groups, (size_t)r.groups, left, r.groups, m);
        }
        if (u->group == 16) {
            code_tiles(p, b, 16, false, b->y + row, lane_mask(left));
        } else if (u->wide) {
            code_tiles(p, b, 32, true, b->y + row, lane_mask(left));
        } else {
            code_tiles(p, b, 32, false, b->y + row, lane_mask(left));
        }
    }
}

/* ---- floating-point weights ---- */

static float dot_float(const float *w, const float *x, int n)
{
    __m256 acc[4];
    for (int i = 0; i < 4; i++) {
        acc[i] = _mm256_setzero_ps();
    }
    int k = 0;
    for (; k + 32 <= n; k += 32) {
        for (int i = 0; i < 4; i++) {
            acc[i] = _mm256_fmadd_ps(_mm256_loadu_ps(w + k + 8 * i), _mm256_loadu_ps(x + k + 8 * i), acc[i]);
        }
    }
    for (; k < n; k += LANES) {
        __m256i mask = lane_mask(n - k);
        acc[0] = _mm256_fmadd_ps(_mm256_maskload_ps(w + k, mask), _mm256_maskload_ps(x + k, mask), acc[0]);
    }
    return sum8(_mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3])));
}

INLINE void float_tile(const float *panel, const qn_act *a, int t0, int n_t, float *y, ptrdiff_t y_stride,
                       __m256i rows)
{
    const float *x[2 * TILE];
    __m256 acc[2 * TILE];
    for (int t = 0; t < n_t; t++) {
        x[t] = a->x + (t0 + t) * a->stride;
        acc[t] = _mm256_setzero_ps();
    }
    for (int k = 0; k < a->n_in; k++) {
        __m256 w = _mm256_loadu_ps(panel + LANES * k);
        for (int t = 0; t < n_t; t++) {
            acc[t] = _mm256_fmadd_ps(w, _mm256_set1_ps(x[t][k]), acc[t]);
        }
    }
    for (int t = 0; t < n_t; t++) {
        _mm256_maskstore_ps(y + (t0 + t) * y_stride, rows, acc[t]);
    }
}

static void float_dots(const qn_mm_block *b)
{
    const qn_act *a = b->act;
    for (int r = 0; r < b->n_rows; r++) {
        const float *w =
            unpack_float_row(b->type, b->w + (size_t)r * b->row_bytes, a->n_in, (float *)(void *)b->scratch);
        for (int t = 0; t < a->n_tokens; t++) {
            b->y[t * b->y_stride + r] = dot_float(w, a->x + t * a->stride, a->n_in);
        }
    }
}

static void float_panel(const qn_mm_block *b)
{
    const qn_act *a = b->act;
    int n = a->n_in;
    float *buf = (float *)(void *)b->scratch, *panel = buf + LANES * qn_mm_padded(n);
    for (int row = 0; row < b->n_rows; row += LANES) {
        int left = b->n_rows - row < LANES ? b->n_rows - row : LANES;
        const uint8_t *w = b->w + (size_t)row * b->row_bytes;
        if (b->type == QN_F32) {
            interleave(w, (size_t)n, left, n, panel);
        } else {
            for (int r = 0; r < left; r++) {
                unpack_float_row(b->type, w + (size_t)r * b->row_bytes, n, buf + (size_t)r * (size_t)n);
            }
            interleave(buf, (size_t)n, left, n, panel);
        }
        int t = 0;
        for (; t + 2 * TILE <= a->n_tokens; t += 2 * TILE) {
            float_tile(panel, a, t, 2 * TILE, b->y + row, b->y_stride, lane_mask(left));
        }
        for (; t < a->n_tokens; t++) {
            float_tile(panel, a, t, 1, b->y + row, b->y_stride, lane_mask(left));
        }
    }
}

static void run_rows(const qn_mm_block *b)
{
    const qn_unpack *u = &unpack_rows[b->type];
    bool dots = b->act->n_tokens <= DOT_TOKENS;
    if (u->group) {
        (dots ? quantised_dots : quantised_panel)(b, u);
    } else {
        (dots ? float_dots : float_panel)(b);
    }
}

const qn_mm_kernels qn_mm_avx2 = {.quantize = quantize_row, .rows = run_rows, .exact = exact_rows};
#endif
