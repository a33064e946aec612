#if defined(__x86_64__)
#include <immintrin.h>

#include "cpu/dots_avx512.h"
#include "cpu/exact.h"
#include "cpu/matmul_kernels.h"
#include "cpu/unpack.h"

#define INLINE static inline __attribute__((always_inline))

enum { TILE = 8 }; /* rows of x that one pass over a panel serves */

/* ---- panels: 16 rows interleaved, a lane each ---- */

/* 16 x 16 words: out[c] word r = in[r] word c. */
INLINE void transpose16(__m512i v[16])
{
    __m512i a[16];
    for (int i = 0; i < 16; i += 4) {
        __m512i t0 = _mm512_unpacklo_epi32(v[i], v[i + 1]), t1 = _mm512_unpackhi_epi32(v[i], v[i + 1]);
        __m512i t2 = _mm512_unpacklo_epi32(v[i + 2], v[i + 3]),
                t3 = _mm512_unpackhi_epi32(v[i + 2], v[i + 3]);
        a[i] = _mm512_unpacklo_epi64(t0, t2);
        a[i + 1] = _mm512_unpackhi_epi64(t0, t2);
        a[i + 2] = _mm512_unpacklo_epi64(t1, t3);
        a[i + 3] = _mm512_unpackhi_epi64(t1, t3);
    }
    /* a[4 j + c]: words 4 q + c of rows 4 j .. 4 j + 3 in quarter q. */
    for (int c = 0; c < 4; c++) {
        __m512i lo01 = _mm512_shuffle_i32x4(a[c], a[4 + c], 0x88),
                hi01 = _mm512_shuffle_i32x4(a[c], a[4 + c], 0xdd);
        __m512i lo23 = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0x88);
        __m512i hi23 = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0xdd);
        v[c] = _mm512_shuffle_i32x4(lo01, lo23, 0x88);
        v[8 + c] = _mm512_shuffle_i32x4(lo01, lo23, 0xdd);
        v[4 + c] = _mm512_shuffle_i32x4(hi01, hi23, 0x88);
        v[12 + c] = _mm512_shuffle_i32x4(hi01, hi23, 0xdd);
    }
}

/* Columns of `n_rows` rows of words (row_words apart) side by side: out[c][r]. Missing rows repeat the last.
 * The last columns are read under a mask; out has room for whole vectors of columns. */
static void interleave(const void *rows, size_t row_words, int n_rows, int n_words, void *out)
{
    const uint32_t *in = rows;
    uint32_t *o = out;
    for (int c = 0; c < n_words; c += 16) {
        __mmask16 mask = n_words - c >= 16 ? 0xffff : (__mmask16)((1u << (n_words - c)) - 1);
        __m512i v[16];
        for (int r = 0; r < 16; r++) {
            size_t row = (size_t)(r < n_rows ? r : n_rows - 1);
            v[r] = _mm512_maskz_loadu_epi32(mask, in + row * row_words + c);
        }
        transpose16(v);
        for (int i = 0; i < 16; i++) {
            _mm512_storeu_si512(o + 16 * (c + i), v[i]);
        }
    }
}

INLINE int32_t load_i32(const uint8_t *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE float load_f32(const uint8_t *p)
{
    float v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* A panel: code[k / 4][row][4], s[group][row], m[group][row]. */
struct panel {
    const uint8_t *code;
    const float *s, *m;
    int n; /* values a row */
};

/* n_t rows of x from t0. Their 8-bit forms are addressed as one base and common offsets each, which leaves
 * the loop enough general registers. */
INLINE void code_tile(struct panel p, const qn_act *a, int t0, int n_t, int group, bool wide, float *y,
                      ptrdiff_t y_stride, __mmask16 rows)
{
    const uint8_t *x[TILE];
    __m512 acc[TILE];
    qn_q8_row first = qn_q8_row_at(a, t0);
    size_t row = qn_q8_row_bytes(a->n_in);
    for (int t = 0; t < n_t; t++) {
        x[t] = (const uint8_t *)first.q + (size_t)t * row;
        acc[t] = _mm512_setzero_ps();
    }
    const size_t d_at = (size_t)((const uint8_t *)first.d - x[0]);
    const size_t sum_at = (size_t)((const uint8_t *)(group == 32 ? first.sum : first.sum2) - x[0]);
    const size_t bias_at = (size_t)((const uint8_t *)first.bias - x[0]);
    for (int g = 0; g < p.n / group; g++) {
        __m512 part[TILE]; /* a scale group's sum of code * d * q */
        size_t sum = sum_at + 4 * (size_t)g;
#pragma GCC unroll 2
        for (int half = 0; half < group / 16; half++) {
            __m512i isum[TILE];
            size_t h = (size_t)(g * (group / 16) + half);
            for (int t = 0; t < n_t; t++) {
                isum[t] = wide ? _mm512_set1_epi32(load_i32(x[t] + bias_at + 4 * h)) : _mm512_setzero_si512();
            }
#pragma GCC unroll 4
            for (size_t c = 0; c < 4; c++) {
                __m512i w = _mm512_load_si512(p.code + 64 * (4 * h + c));
                for (int t = 0; t < n_t; t++) {
                    __m512i four = _mm512_set1_epi32(load_i32(x[t] + 16 * h + 4 * c));
                    isum[t] = _mm512_dpbusd_epi32(isum[t], w, four);
                }
            }
            for (int t = 0; t < n_t; t++) {
                __m512 f = _mm512_cvtepi32_ps(isum[t]), d = _mm512_set1_ps(load_f32(x[t] + d_at + 4 * h));
                part[t] = half ? _mm512_fmadd_ps(f, d, part[t]) : _mm512_mul_ps(f, d);
            }
        }
        __m512 s = _mm512_load_ps(p.s + 16 * g), m = wide ? s : _mm512_load_ps(p.m + 16 * g);
        for (int t = 0; t < n_t; t++) {
            acc[t] = _mm512_fmadd_ps(part[t], s, acc[t]);
            if (!wide) {
                acc[t] = _mm512_fnmadd_ps(m, _mm512_set1_ps(load_f32(x[t] + sum)), acc[t]);
            }
        }
    }
    for (int t = 0; t < n_t; t++) {
        _mm512_mask_storeu_ps(y + (t0 + t) * y_stride, rows, acc[t]);
    }
}

INLINE void code_tiles(struct panel p, const qn_mm_block *b, int group, bool wide)
{
    __mmask16 rows = (__mmask16)((1u << b->n_rows) - 1);
    int t = 0, n = b->act->n_tokens;
    for (; t + TILE <= n; t += TILE) {
        code_tile(p, b->act, t, TILE, group, wide, b->y, b->y_stride, rows);
    }
    for (; t + 4 <= n; t += 4) {
        code_tile(p, b->act, t, 4, group, wide, b->y, b->y_stride, rows);
    }
    for (; t < n; t++) {
        code_tile(p, b->act, t, 1, group, wide, b->y, b->y_stride, rows);
    }
}

static void quantised_panel(const qn_mm_block *b, const qn_unpack *u)
{
    struct unpacked r = unpacked_in(b->scratch, b->act->n_in, u->group);
    for (int row = 0; row < b->n_rows; row++) {
        unpack_row(b, row, r, row);
    }
    uint8_t *code = r.code + QN_MM_ROWS * r.padded;
    float *s = (float *)(void *)(code + QN_MM_ROWS * r.padded), *m = s + QN_MM_ROWS * r.groups;
    interleave(r.code, (size_t)r.padded / 4, b->n_rows, r.padded / 4, code);
    interleave(r.s, (size_t)r.groups, b->n_rows, r.groups, s);
    if (!u->wide) {
        interleave(r.m, (size_t)r.groups, b->n_rows, r.groups, m);
    }
    struct panel p = {code, s, m, b->act->n_in};
    if (u->group == 16) {
        code_tiles(p, b, 16, false);
    } else if (u->wide) {
        code_tiles(p, b, 32, true);
    } else {
        code_tiles(p, b, 32, false);
    }
}

/* ---- floating-point weights ---- */

static float dot_float(const float *w, const float *x, int n)
{
    __m512 acc[4];
    for (int i = 0; i < 4; i++) {
        acc[i] = _mm512_setzero_ps();
    }
    int k = 0;
    for (; k + 64 <= n; k += 64) {
        for (int i = 0; i < 4; i++) {
            acc[i] =
                _mm512_fmadd_ps(_mm512_loadu_ps(w + k + 16 * i), _mm512_loadu_ps(x + k + 16 * i), acc[i]);
        }
    }
    for (; k < n; k += 16) {
        __mmask16 mask = n - k >= 16 ? 0xffff : (__mmask16)((1u << (n - k)) - 1);
        acc[0] =
            _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, w + k), _mm512_maskz_loadu_ps(mask, x + k), acc[0]);
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(acc[0], acc[1]), _mm512_add_ps(acc[2], acc[3])));
}

INLINE void float_tile(const float *panel, const qn_act *a, int t0, int n_t, float *y, ptrdiff_t y_stride,
                       __mmask16 rows)
{
    const float *x[TILE];
    __m512 acc[TILE];
    for (int t = 0; t < n_t; t++) {
        x[t] = a->x + (t0 + t) * a->stride;
        acc[t] = _mm512_setzero_ps();
    }
    for (int k = 0; k < a->n_in; k++) {
        __m512 w = _mm512_load_ps(panel + 16 * k);
        for (int t = 0; t < n_t; t++) {
            acc[t] = _mm512_fmadd_ps(w, _mm512_set1_ps(x[t][k]), acc[t]);
        }
    }
    for (int t = 0; t < n_t; t++) {
        _mm512_mask_storeu_ps(y + (t0 + t) * y_stride, rows, acc[t]);
    }
}

static void float_rows(const qn_mm_block *b)
{
    const qn_act *a = b->act;
    int n = a->n_in;
    float *buf = (float *)(void *)b->scratch, *panel = buf + QN_MM_ROWS * qn_mm_padded(n);
    if (a->n_tokens <= DOT_TOKENS_MAX) {
        for (int r = 0; r < b->n_rows; r++) {
            const float *w = unpack_float_row(b->type, b->w + (size_t)r * b->row_bytes, n, buf);
            for (int t = 0; t < a->n_tokens; t++) {
                b->y[t * b->y_stride + r] = dot_float(w, a->x + t * a->stride, n);
            }
        }
        return;
    }
    if (b->type == QN_F32) {
        interleave(b->w, (size_t)n, b->n_rows, n, panel);
    } else {
        for (int r = 0; r < b->n_rows; r++) {
            unpack_float_row(b->type, b->w + (size_t)r * b->row_bytes, n, buf + (size_t)r * (size_t)n);
        }
        interleave(buf, (size_t)n, b->n_rows, n, panel);
    }
    __mmask16 rows = (__mmask16)((1u << b->n_rows) - 1);
    int t = 0;
    for (; t + TILE <= a->n_tokens; t += TILE) {
        float_tile(panel, a, t, TILE, b->y, b->y_stride, rows);
    }
    for (; t < a->n_tokens; t++) {
        float_tile(panel, a, t, 1, b->y, b->y_stride, rows);
    }
}

/* unpack.h's quantize_group in vectors, bit for bit. */
static void quantize(const float *x, int n, qn_q8_row out)
{
    const __m512i abs = _mm512_set1_epi32(0x7fffffff);
    for (int g = 0; g < n / 16; g++) {
        __m512 v = _mm512_loadu_ps(x + 16 * g);
        __m512i top = _mm512_and_si512(_mm512_castps_si512(v), abs);
        float max = qn_f32_from_bits(_mm512_reduce_max_epu32(top)), d, inv = quantize_scale(max, &d);
        __mmask16 used = inv != 0.0f ? 0xffff : 0;
        __m512i q = _mm512_cvtps_epi32(_mm512_maskz_mul_ps(used, v, _mm512_set1_ps(inv)));
        _mm_storeu_si128((__m128i *)(out.q + 16 * g), _mm512_cvtepi32_epi8(q));
        quantize_sums(out, g, d, _mm512_reduce_add_epi32(q));
    }
    quantize_padding(out, n);
}

static void run_rows(const qn_mm_block *b)
{
    const qn_unpack *u = &unpack_rows[b->type];
    if (!u->group) {
        float_rows(b);
    } else if (b->act->n_tokens <= DOT_TOKENS_MAX) {
        qn_dots_avx512(b);
    } else {
        quantised_panel(b, u);
    }
}

const qn_mm_kernels qn_mm_avx512 = {.quantize = quantize, .rows = run_rows, .exact = exact_rows};
#endif
