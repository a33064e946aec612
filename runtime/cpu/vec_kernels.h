/* vec_kernels.h: the functions of vec.h over a vector type that the including source defines:
 *
 *     vf                          vector of VF floats
 *     vf_load(p), vf_load_half(p) VF values from unaligned f32 or f16
 *     vf_store(p, v), vf_set(s), vf_mul_add(a, b, c) = a * b + c
 *     VQ, VK                      queries and keys that `scores` keeps in registers at once
 *     vf_sums(v, n, out)          out[i] = sum of the lanes of v[i], n <= VQ * VK
 *
 * All loops over rows are the same everywhere; only widths and roundings of the four operations differ. */
#ifndef QN_CPU_VEC_KERNELS_H
#define QN_CPU_VEC_KERNELS_H

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "cpu/vec.h"

#define VEC_INLINE static inline __attribute__((always_inline))

VEC_INLINE float row_value(qn_kv_rows_view r, int row, int d)
{
    ptrdiff_t at = row * r.stride + d;
    return r.half ? qn_f16_to_f32(((const uint16_t *)r.data)[at]) : ((const float *)r.data)[at];
}

VEC_INLINE vf row_load(qn_kv_rows_view r, bool half, int row, int d)
{
    ptrdiff_t at = row * r.stride + d;
    return half ? vf_load_half((const uint16_t *)r.data + at) : vf_load((const float *)r.data + at);
}

VEC_INLINE void scores_tile(const float *q, ptrdiff_t q_stride, int n_q, qn_kv_rows_view k, bool half, int k0,
                            int n_k, int dim, float *out, ptrdiff_t out_stride)
{
    vf acc[VQ * VK];
    float sum[VQ * VK];
    for (int i = 0; i < n_q * n_k; i++) {
        acc[i] = vf_set(0.0f);
    }
    int d = 0;
    for (; d + VF <= dim; d += VF) {
        vf key[VK];
        for (int j = 0; j < n_k; j++) {
            key[j] = row_load(k, half, k0 + j, d);
        }
        for (int i = 0; i < n_q; i++) {
            vf query = vf_load(q + i * q_stride + d);
            for (int j = 0; j < n_k; j++) {
                acc[i * n_k + j] = vf_mul_add(query, key[j], acc[i * n_k + j]);
            }
        }
    }
    vf_sums(acc, n_q * n_k, sum);
    for (int i = 0; i < n_q; i++) {
        for (int j = 0; j < n_k; j++) {
            float s = sum[i * n_k + j];
            for (int e = d; e < dim; e++) {
                s += q[i * q_stride + e] * row_value(k, k0 + j, e);
            }
            out[i * out_stride + k0 + j] = s;
        }
    }
}

VEC_INLINE void scores_rows(const float *q, ptrdiff_t q_stride, int n_q, qn_kv_rows_view k, bool half,
                            int n_k, int dim, float *out, ptrdiff_t out_stride)
{
    int j = 0;
    for (; j + VK <= n_k; j += VK) {
        scores_tile(q, q_stride, n_q, k, half, j, VK, dim, out, out_stride);
    }
    for (; j < n_k; j++) {
        scores_tile(q, q_stride, n_q, k, half, j, 1, dim, out, out_stride);
    }
}

static void vec_scores(const float *q, ptrdiff_t q_stride, int n_q, qn_kv_rows_view k, int n_k, int dim,
                       float *out, ptrdiff_t out_stride)
{
    int i = 0;
    for (; i + VQ <= n_q; i += VQ) {
        if (k.half) {
            scores_rows(q + i * q_stride, q_stride, VQ, k, true, n_k, dim, out + i * out_stride, out_stride);
        } else {
            scores_rows(q + i * q_stride, q_stride, VQ, k, false, n_k, dim, out + i * out_stride, out_stride);
        }
    }
    for (; i < n_q; i++) {
        if (k.half) {
            scores_rows(q + i * q_stride, q_stride, 1, k, true, n_k, dim, out + i * out_stride, out_stride);
        } else {
            scores_rows(q + i * q_stride, q_stride, 1, k, false, n_k, dim, out + i * out_stride, out_stride);
        }
    }
}

enum { MIX_COLS = 4 }; /* vectors of a row that stay in registers */

VEC_INLINE void mix_tile(const float *w, ptrdiff_t w_stride, int n_q, qn_kv_rows_view v, bool half, int n_v,
                         int d, int cols, float *acc, ptrdiff_t acc_stride)
{
    vf sum[VQ * MIX_COLS];
    for (int i = 0; i < n_q; i++) {
        for (int c = 0; c < cols; c++) {
            sum[i * cols + c] = vf_load(acc + i * acc_stride + d + VF * c);
        }
    }
    for (int j = 0; j < n_v; j++) {
        vf row[MIX_COLS];
        for (int c = 0; c < cols; c++) {
            row[c] = row_load(v, half, j, d + VF * c);
        }
        for (int i = 0; i < n_q; i++) {
            vf weight = vf_set(w[i * w_stride + j]);
            for (int c = 0; c < cols; c++) {
                sum[i * cols + c] = vf_mul_add(weight, row[c], sum[i * cols + c]);
            }
        }
    }
    for (int i = 0; i < n_q; i++) {
        for (int c = 0; c < cols; c++) {
            vf_store(acc + i * acc_stride + d + VF * c, sum[i * cols + c]);
        }
    }
}

VEC_INLINE void mix_rows(const float *w, ptrdiff_t w_stride, int n_q, qn_kv_rows_view v, bool half, int n_v,
                         int dim, float *acc, ptrdiff_t acc_stride)
{
    int d = 0;
    for (; d + MIX_COLS * VF <= dim; d += MIX_COLS * VF) {
        mix_tile(w, w_stride, n_q, v, half, n_v, d, MIX_COLS, acc, acc_stride);
    }
    for (; d + VF <= dim; d += VF) {
        mix_tile(w, w_stride, n_q, v, half, n_v, d, 1, acc, acc_stride);
    }
    for (; d < dim; d++) {
        for (int i = 0; i < n_q; i++) {
            float s = acc[i * acc_stride + d];
            for (int j = 0; j < n_v; j++) {
                s += w[i * w_stride + j] * row_value(v, j, d);
            }
            acc[i * acc_stride + d] = s;
        }
    }
}

static void vec_mix(const float *w, ptrdiff_t w_stride, int n_q, qn_kv_rows_view v, int n_v, int dim,
                    float *acc, ptrdiff_t acc_stride)
{
    int i = 0;
    for (; i + VQ <= n_q; i += VQ) {
        if (v.half) {
            mix_rows(w + i * w_stride, w_stride, VQ, v, true, n_v, dim, acc + i * acc_stride, acc_stride);
        } else {
            mix_rows(w + i * w_stride, w_stride, VQ, v, false, n_v, dim, acc + i * acc_stride, acc_stride);
        }
    }
    for (; i < n_q; i++) {
        if (v.half) {
            mix_rows(w + i * w_stride, w_stride, 1, v, true, n_v, dim, acc + i * acc_stride, acc_stride);
        } else {
            mix_rows(w + i * w_stride, w_stride, 1, v, false, n_v, dim, acc + i * acc_stride, acc_stride);
        }
    }
}

static float vec_dot(const float *a, const float *b, int n)
{
    float out;
    vec_scores(a, 0, 1, (qn_kv_rows_view){b, 0, false}, 1, n, &out, 0);
    return out;
}

static float vec_max(const float *x, int n)
{
    float max = -INFINITY;
    bool nan = false;
    for (int i = 0; i < n; i++) {
        max = x[i] > max ? x[i] : max;
        nan |= x[i] != x[i];
    }
    return nan ? NAN : max;
}

/* exp(x): x = n ln 2 + r with |r| <= ln 2 / 2, Taylor to r^7 (remainder below 6e-9), times 2^n in two steps,
 * so that results below the normal range and overflow come out right. Plain operations: every build gives the
 * same bits. */
VEC_INLINE float vec_exp(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    x = x < -110.0f ? -110.0f : x;   /* NaN stays */
    x = x > 110.0f ? 110.0f : x;
    float shifted = x * 0x1.715476p+0f + magic;
    float n = shifted - magic;
    float r = x - n * 0x1.62e4p-1f; /* ln 2 in two parts; the first product is exact */
    r = r - n * 0x1.7f7d1cp-20f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    int32_t e = (int32_t)(qn_f32_bits(shifted) - 0x4b400000u), half = e >> 1;
    float lo = qn_f32_from_bits((uint32_t)(half + 127) << 23);
    float hi = qn_f32_from_bits((uint32_t)(e - half + 127) << 23);
    return p * lo * hi;
}

/* In 16 lanes, then those in turn. */
static float vec_sum(const float *x, int n)
{
    float lanes[16] = {0}, sum = 0.0f;
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        for (int l = 0; l < 16; l++) {
            lanes[l] += x[i + l];
        }
    }
    for (int l = 0; i < n; i++, l++) {
        lanes[l] += x[i];
    }
    for (int l = 0; l < 16; l++) {
        sum += lanes[l];
    }
    return sum;
}

static float vec_exp_sum(float *x, int n, float max)
{
    for (int i = 0; i < n; i++) {
        x[i] = vec_exp(x[i] - max);
    }
    return vec_sum(x, n);
}

static void vec_silu(float *x, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] = x[i] / (1.0f + vec_exp(-x[i]));
    }
}

/* 1 + tanh(u) = 2 / (1 + exp(-2 u)). */
static void vec_gelu_tanh(float *x, int n)
{
    for (int i = 0; i < n; i++) {
        float u = 0.7978845608028654f * x[i] * (1.0f + 0.044715f * x[i] * x[i]);
        x[i] = x[i] / (1.0f + vec_exp(-2.0f * u));
    }
}

static void vec_add(float *y, const float *a, const float *b, int n)
{
    for (int i = 0; i < n; i++) {
        y[i] = a[i] + b[i];
    }
}

static void vec_mul(float *y, const float *a, const float *b, int n)
{
    for (int i = 0; i < n; i++) {
        y[i] = a[i] * b[i];
    }
}

static void vec_scale(float *y, const float *a, float s, int n)
{
    for (int i = 0; i < n; i++) {
        y[i] = a[i] * s;
    }
}

#endif
