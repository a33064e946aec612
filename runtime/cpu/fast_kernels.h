/* fast_kernels.h: the kernels of fast.h over a vector type that the including source defines:
 *
 *     vf, vi                       vector of VF floats, of VF int32_t (compiler vectors: operators work lane
 * by lane) vf_load(p), vf_load_half(p)  VF values from unaligned f32 or f16 vf_store(p, v), vf_set(s),
 * vf_mul_add(a, b, c) = a * b + c vf_sums(v, n, out)           out[i] = sum of the lanes of v[i] VK, VC keys,
 * and vectors of a value row, that stay in registers beside ROWS query rows half_row(in, out, n), to_half(in,
 * out, n)   f16 to f32 and back
 *
 * The functions at the end become its qn_fast_kernels. */
#ifndef QN_CPU_FAST_KERNELS_H
#define QN_CPU_FAST_KERNELS_H

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "cpu/fast.h"

#define INLINE static inline __attribute__((always_inline))

enum { TILE = QN_ATTN_TILE, ROWS = 4 };

INLINE vf vf_choose(vi take, vf a, vf b)
{
    return (vf)((take & (vi)a) | (~take & (vi)b));
}

/* exp(x): x = n ln 2 + r with |r| <= ln 2 / 2, Taylor to r^7 (remainder below 6e-9), times 2^n in two steps,
 * so that results below the normal range and overflow come out right. NaN stays NaN. Relative error below
 * 2e-7. */
INLINE vf vf_exp(vf x)
{
    const vf magic = vf_set(12582912.0f), low = vf_set(-110.0f),
             high = vf_set(110.0f); /* magic: 1.5 * 2^23 */
    x = vf_choose((vi)(x < low), low, x);
    x = vf_choose((vi)(x > high), high, x);
    vf shifted = vf_mul_add(x, vf_set(0x1.715476p+0f), magic); /* rounds x / ln 2 to an integer */
    vf n = shifted - magic;
    vf r = vf_mul_add(n, vf_set(-0x1.62e4p-1f), x); /* ln 2 in two parts; the first product is exact */
    r = vf_mul_add(n, vf_set(-0x1.7f7d1cp-20f), r);
    vf p = vf_mul_add(vf_set(1.0f / 5040), r, vf_set(1.0f / 720));
    p = vf_mul_add(p, r, vf_set(1.0f / 120));
    p = vf_mul_add(p, r, vf_set(1.0f / 24));
    p = vf_mul_add(p, r, vf_set(1.0f / 6));
    p = vf_mul_add(p, r, vf_set(0.5f));
    p = vf_mul_add(p * r, r, r) + vf_set(1.0f);
    vi e = (vi)shifted - 0x4b400000, half = e >> 1;
    return p * (vf)((half + 127) << 23) * (vf)((e - half + 127) << 23);
}

INLINE vf vf_tanh(vf x)
{
    vf one = vf_set(1.0f), two = vf_set(2.0f);
    return one - two / (vf_exp(two * x) + one);
}

INLINE vf vf_silu(vf x)
{
    return x / (vf_set(1.0f) + vf_exp(vf_set(0.0f) - x));
}

/* 0.5 x (1 + tanh(u)) = x / (1 + exp(-2 u)); sqrt(2/pi) and 0.044715 as in the paper (Hendrycks and Gimpel,
 * 2016). */
INLINE vf vf_gelu(vf x)
{
    vf one = vf_set(1.0f), c = vf_set(-2.0f * 0.79788456080286535588f);
    return x / (one + vf_exp(c * x * vf_mul_add(vf_set(0.044715f) * x, x, one)));
}

typedef vf (*vf_function)(vf x);

/* out = f(x), times y where y is not NULL. What is left over at the end goes through a vector of its own. */
INLINE void apply(vf_function f, const float *x, const float *y, float *out, int n)
{
    int i = 0;
    for (; i + VF <= n; i += VF) {
        vf v = f(vf_load(x + i));
        if (y) {
            v = v * vf_load(y + i);
        }
        vf_store(out + i, v);
    }
    if (i < n) {
        float last[VF] = {0};
        memcpy(last, x + i, sizeof(float) * (size_t)(n - i));
        vf_store(last, f(vf_load(last)));
        for (int k = 0; i + k < n; k++) {
            out[i + k] = y ? last[k] * y[i + k] : last[k];
        }
    }
}

static void silu_mul(const float *gate, const float *up, float *out, int n)
{
    apply(vf_silu, gate, up, out, n);
}

static void gelu_mul(const float *gate, const float *up, float *out, int n)
{
    apply(vf_gelu, gate, up, out, n);
}

static void silu(float *x, int n)
{
    apply(vf_silu, x, NULL, x, n);
}

static void gelu(float *x, int n)
{
    apply(vf_gelu, x, NULL, x, n);
}

/* ---- rows of f32 or f16 ---- */

typedef struct rows {
    const void *data;
    size_t stride; /* values */
    bool half;
} rows;

INLINE float row_value(rows r, bool half, int row, int d)
{
    size_t at = (size_t)row * r.stride + (size_t)d;
    return half ? qn_f16_to_f32(((const uint16_t *)r.data)[at]) : ((const float *)r.data)[at];
}

INLINE vf row_load(rows r, bool half, int row, int d)
{
    size_t at = (size_t)row * r.stride + (size_t)d;
    return half ? vf_load_half((const uint16_t *)r.data + at) : vf_load((const float *)r.data + at);
}

/* s[i][j] = q_i . k_j for n_q query rows and keys j0 .. j0 + n_k - 1 (n_k <= VK). */
INLINE void scores_of(const float *q, int dim, int n_q, rows k, bool half, int j0, int n_k,
                      float s[ROWS][TILE])
{
    vf acc[ROWS * VK];
    float sum[ROWS * VK];
    int d = 0;
    for (int i = 0; i < n_q * n_k; i++) {
        acc[i] = vf_set(0.0f);
    }
    for (; d + VF <= dim; d += VF) {
        vf key[VK];
        for (int j = 0; j < n_k; j++) {
            key[j] = row_load(k, half, j0 + j, d);
        }
        for (int i = 0; i < n_q; i++) {
            vf query = vf_load(q + (size_t)i * (size_t)dim + d);
            for (int j = 0; j < n_k; j++) {
                acc[i * n_k + j] = vf_mul_add(query, key[j], acc[i * n_k + j]);
            }
        }
    }
    vf_sums(acc, n_q * n_k, sum);
    for (int i = 0; i < n_q; i++) {
        memcpy(&s[i][j0], sum + i * n_k, sizeof(float) * (size_t)n_k);
    }
    for (; d < dim; d++) {
        for (int i = 0; i < n_q; i++) {
            for (int j = 0; j < n_k; j++) {
                s[i][j0 + j] += q[(size_t)i * (size_t)dim + d] * row_value(k, half, j0 + j, d);
            }
        }
    }
}

INLINE void scores(const float *q, int dim, int n_q, rows k, bool half, int n_k, float s[ROWS][TILE])
{
    int j = 0;
    for (; j + VK <= n_k; j += VK) {
        scores_of(q, dim, n_q, k, half, j, VK, s);
    }
    for (; j < n_k; j++) {
        scores_of(q, dim, n_q, k, half, j, 1, s);
    }
}

/* Columns d .. d + cols * VF - 1 of o_i += sum_j p[i][j] v_j. */
INLINE void mix_columns(const float p[ROWS][TILE], int n_q, rows v, bool half, int n_v, int dim, int d,
                        int cols, float *o)
{
    vf sum[ROWS * VC];
    for (int i = 0; i < n_q; i++) {
        for (int c = 0; c < cols; c++) {
            sum[i * cols + c] = vf_load(o + (size_t)i * (size_t)dim + d + VF * c);
        }
    }
    for (int j = 0; j < n_v; j++) {
        vf row[VC];
        for (int c = 0; c < cols; c++) {
            row[c] = row_load(v, half, j, d + VF * c);
        }
        for (int i = 0; i < n_q; i++) {
            vf weight = vf_set(p[i][j]);
            for (int c = 0; c < cols; c++) {
                sum[i * cols + c] = vf_mul_add(weight, row[c], sum[i * cols + c]);
            }
        }
    }
    for (int i = 0; i < n_q; i++) {
        for (int c = 0; c < cols; c++) {
            vf_store(o + (size_t)i * (size_t)dim + d + VF * c, sum[i * cols + c]);
        }
    }
}

INLINE void mix(const float p[ROWS][TILE], int n_q, rows v, bool half, int n_v, int dim, float *o)
{
    int d = 0;
    for (; d + VC * VF <= dim; d += VC * VF) {
        mix_columns(p, n_q, v, half, n_v, dim, d, VC, o);
    }
    for (; d + VF <= dim; d += VF) {
        mix_columns(p, n_q, v, half, n_v, dim, d, 1, o);
    }
    for (; d < dim; d++) {
        for (int i = 0; i < n_q; i++) {
            float s = o[(size_t)i * (size_t)dim + d];
            for (int j = 0; j < n_v; j++) {
                s += p[i][j] * row_value(v, half, j, d);
            }
            o[(size_t)i * (size_t)dim + d] = s;
        }
    }
}

/* ---- attention ---- */

static float tile_max(const float *s, float top)
{
    vf most = vf_load(s);
    for (int j = VF; j < TILE; j += VF) {
        vf v = vf_load(s + j);
        most = vf_choose((vi)(v > most), v, most);
    }
    float lane[VF];
    vf_store(lane, most);
    for (int i = 0; i < VF; i++) {
        top = lane[i] > top ? lane[i] : top;
    }
    return top;
}

/* s = exp(s - top); returns the sum. */
static float tile_exp(float *s, float top)
{
    vf sum = vf_set(0.0f);
    float out;
    for (int j = 0; j < TILE; j += VF) {
        vf v = vf_exp(vf_load(s + j) - vf_set(top));
        vf_store(s + j, v);
        sum += v;
    }
    vf_sums(&sum, 1, &out);
    return out;
}

/* exp of one number. */
static float one_exp(float x)
{
    float out[VF];
    vf_store(out, vf_exp(vf_set(x)));
    return out[0];
}

/* Soft-cap, ALiBi and mask of one row's scores of keys key .. key + n - 1, then the online softmax step; s
 * becomes p. Returns the factor by which what was accumulated before must be multiplied. */
static float softmax_step(const qn_attn_block *b, int row, int key, int n, float *s)
{
    int pos = b->row_pos[row];
    int last = pos + 1 - key, first = b->window > 0 ? pos - b->window + 1 - key : 0;
    last = last < n ? last : n;
    first = first > 0 ? first : 0;
    if (first >= last) {
        memset(s, 0, sizeof(float) * (size_t)n);
        return 1.0f;
    }
    if (b->softcap > 0) {
        vf cap = vf_set(b->softcap), inv = vf_set(1.0f / b->softcap);
        for (int j = 0; j < n; j += VF) { /* may run over into what is masked below */
            vf_store(s + j, cap * vf_tanh(vf_load(s + j) * inv));
        }
    }
    float slope = b->slope[row];
    if (slope != 0) {
        for (int j = first; j < last; j++) {
            s[j] -= slope * (float)(pos - key - j);
        }
    }
    for (int j = 0; j < first; j++) {
        s[j] = -INFINITY;
    }
    for (int j = last; j < TILE; j++) {
        s[j] = -INFINITY;
    }
    float top = tile_max(s, b->m[row]);
    float keep = b->m[row] == -INFINITY ? 0.0f : one_exp(b->m[row] - top);
    float sum = tile_exp(s, top); /* exp(-Inf) is 0 */
    b->m[row] = top;
    b->l[row] = b->l[row] * keep + sum;
    return keep;
}

/* Keys key .. key + n - 1. */
typedef struct tile {
    int key, n;
    rows k, v;
} tile;

INLINE void attend(const qn_attn_block *b, const tile *t, int r0, int n_q, bool half)
{
    float s[ROWS][TILE], *o = b->o + (size_t)r0 * (size_t)b->v_dim;
    scores(b->q + (size_t)r0 * (size_t)b->k_dim, b->k_dim, n_q, t->k, half, t->n, s);
    for (int i = 0; i < n_q; i++) {
        float keep = softmax_step(b, r0 + i, t->key, t->n, s[i]);
        for (int d = 0; keep != 1.0f && d < b->v_dim; d++) {
            o[i * b->v_dim + d] *= keep;
        }
    }
    mix((const float(*)[TILE])s, n_q, t->v, half, t->n, b->v_dim, o);
}

/* n_q is 1 to ROWS; each case is compiled for itself. */
static void attend_f32(const qn_attn_block *b, const tile *t, int r0, int n_q)
{
    if (n_q == 4) {
        attend(b, t, r0, 4, false);
    } else if (n_q == 3) {
        attend(b, t, r0, 3, false);
    } else if (n_q == 2) {
        attend(b, t, r0, 2, false);
    } else {
        attend(b, t, r0, 1, false);
    }
}

static void attend_half(const qn_attn_block *b, const tile *t, int r0, int n_q)
{
    if (n_q == 4) {
        attend(b, t, r0, 4, true);
    } else if (n_q == 3) {
        attend(b, t, r0, 3, true);
    } else if (n_q == 2) {
        attend(b, t, r0, 2, true);
    } else {
        attend(b, t, r0, 1, true);
    }
}

/* n values of a q8_0 row as f32. */
static void q8_row(const uint8_t *in, float *out, int n)
{
    for (int g = 0; g < n / 32; g++, in += 34) {
        float d = qn_f16_to_f32((uint16_t)(in[0] | in[1] << 8));
        const int8_t *code = (const int8_t *)in + 2;
        for (int i = 0; i < 32; i++) {
            out[32 * g + i] = d * (float)code[i];
        }
    }
}

/* Many query rows read a tile often: it is converted to f32 for them first; 8-bit ones always. */
static tile tile_at(const qn_attn_block *b, int key)
{
    size_t row = (size_t)(key % b->cache_rows);
    int left = b->key_last - key, to_end = b->cache_rows - (int)row; /* a ring's end cuts a tile */
    tile t = {.key = key, .n = left < TILE ? left : TILE};
    t.n = t.n < to_end ? t.n : to_end;
    if (b->n_row <= ROWS && !b->k_q8 && !b->v_q8) {
        t.k = (rows){b->k + row * b->k_stride, b->k_stride, true};
        t.v = (rows){b->v + row * b->v_stride, b->v_stride, true};
    } else {
        float *kt = b->scratch, *vt = kt + (size_t)TILE * (size_t)b->k_dim;
        for (int j = 0; j < t.n; j++) {
            float *kr = kt + (size_t)j * (size_t)b->k_dim, *vr = vt + (size_t)j * (size_t)b->v_dim;
            size_t at = row + (size_t)j;
            if (b->k_q8) {
                q8_row(b->k_q8 + at * b->k_q8_stride, kr, b->k_dim);
            } else {
                half_row(b->k + at * b->k_stride, kr, b->k_dim);
            }
            if (b->v_q8) {
                q8_row(b->v_q8 + at * b->v_q8_stride, vr, b->v_dim);
            } else {
                half_row(b->v + at * b->v_stride, vr, b->v_dim);
            }
        }
        t.k = (rows){kt, (size_t)b->k_dim, false};
        t.v = (rows){vt, (size_t)b->v_dim, false};
    }
    return t;
}

static bool any_visible(const qn_attn_block *b, const tile *t, int r0, int n_q)
{
    for (int r = r0; r < r0 + n_q; r++) {
        int pos = b->row_pos[r];
        if (t->key <= pos && (b->window <= 0 || t->key + t->n > pos - b->window + 1)) {
            return true;
        }
    }
    return false;
}

static void attention(const qn_attn_block *b)
{
    for (int r = 0; r < b->n_row; r++) {
        b->m[r] = -INFINITY;
        b->l[r] = 0;
    }
    memset(b->o, 0, sizeof(float) * (size_t)b->n_row * (size_t)b->v_dim);
    for (int key = b->key_first; key < b->key_last;) {
        tile t = tile_at(b, key);
        for (int r = 0; r < b->n_row; r += ROWS) {
            int n_q = b->n_row - r < ROWS ? b->n_row - r : ROWS;
            if (any_visible(b, &t, r, n_q)) {
                (t.k.half ? attend_half : attend_f32)(b, &t, r, n_q);
            }
        }
        key += t.n;
    }
}

#endif
