// attention_wgmma.cuh: what attention by the products of warpgroups has in common: queries in registers (in
// shared memory where k_dim is over 128), starting the products of a tile. 64 query rows a warpgroup.
// defines: query_tile, matrix_at, load_queries, start_scores, start_values, finish_values
#ifndef QN_ATTENTION_WGMMA_CUH
#define QN_ATTENTION_WGMMA_CUH
#include "attention_rows.cuh"

constexpr bool q_shared = k_pad > 128;
constexpr int n_value = v_pad; // a width that ptx_wgmma_f16 has
constexpr int k_tile = spec::keys * ((k_pad + 63) / 64 * 64),
              v_tile = spec::keys * ((v_pad + 63) / 64 * 64); // halves
typedef u32 query_tile[q_shared ? 1 : k_pad / 16][4];

// A matrix in shared memory as a product takes it: 128-byte swizzle; `leading`: bytes between blocks of 64
// columns where those are the ones side by side in memory, else without meaning; 1024: bytes between eight
// rows.
QN_DEV u64 matrix_at(u32 address, u32 leading)
{
    return (u64)((address & 0x3ffff) >> 4) | (u64)(leading >> 4) << 16 | (u64)(1024 >> 4) << 32 |
           (u64)1 << 62;
}

// Two values of a query row, times the scale.
QN_DEV void load_pair(float v[2], const float *q, int d, bool there)
{
    if constexpr (spec::q_vec == 4) {
        u32x2 x = {0, 0};
        if (there && d < spec::k_dim) {
            x = *(const u32x2 *)(q + d);
        }
        v[0] = __uint_as_float(x.x) * spec::scale;
        v[1] = __uint_as_float(x.y) * spec::scale;
    } else {
        v[0] = there && d < spec::k_dim ? q[d] * spec::scale : 0.0f;
        v[1] = there && d + 1 < spec::k_dim ? q[d + 1] * spec::scale : 0.0f;
    }
}

// A row's part of this thread: largest value, then halves. Where they stay in registers they are read once.
QN_DEV void load_row(running &w, query_tile &qf, half_t *q_s, int half, const float *src, int h, bool there)
{
    constexpr int steps = k_pad / 16;
    const int d0 = (int)threadIdx.x % 4 * 2, r = row_of(0, half);
    float v[steps][4], top = 0.0f;
#pragma unroll
    for (int k = 0; k < steps; k++) {
        load_pair(v[k], src, 16 * k + d0, there);
        load_pair(v[k] + 2, src, 16 * k + 8 + d0, there);
    }
#pragma unroll
    for (int k = 0; k < steps; k++) {
        top = fmaxf(top, fmaxf(fmaxf(fabsf(v[k][0]), fabsf(v[k][1])), fmaxf(fabsf(v[k][2]), fabsf(v[k][3]))));
    }
    const float down = start_row(w, 0, half, quad_max(top), h);
#pragma unroll
    for (int k = 0; k < steps; k++) {
        const u32 low = pack_half(v[k][0] * down, v[k][1] * down),
                  high = pack_half(v[k][2] * down, v[k][3] * down);
        if constexpr (q_shared) {
            half_t *row = q_s + k / 4 * (block_rows * 64) + r * 64 + d0;
            *(u32 *)(row + (((2 * k) % 8) ^ (r % 8)) * 8) = low;
            *(u32 *)(row + (((2 * k + 1) % 8) ^ (r % 8)) * 8) = high;
        } else {
            qf[k][half] = low;
            qf[k][2 + half] = high;
        }
    }
}

QN_DEV void load_queries(running &w, query_tile &qf, half_t *q_s, const float *q, i64 q_stride,
                         const place &p, int n_rows)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int r = row_of(0, half), token = r / spec::heads, h = p.head0 + r % spec::heads;
        const bool there = token < tokens && p.row0 + token < n_rows;
        load_row(w, qf, q_s, half, q + (i64)(there ? p.row0 + token : 0) * q_stride + h * spec::k_dim, h,
                 there);
    }
}

// Starts s = q k^T.
QN_DEV void start_scores(score_tile &s, const query_tile &qf, u64 q_at, u64 k_at)
{
    ptx_wgmma_fence();
#pragma unroll
    for (int k = 0; k < k_pad / 16; k++) {
        const u64 b = k_at + (u64)((k / 4 * (spec::keys * 128) + k % 4 * 32) >> 4);
        if constexpr (q_shared) {
            ptx_wgmma_f16_shared_n80(&s[0][0][0],
                                     q_at + (u64)((k / 4 * (block_rows * 128) + k % 4 * 32) >> 4), b, k > 0);
        } else {
            ptx_wgmma_f16<spec::keys, 0>(&s[0][0][0], qf[k], b, k > 0);
        }
    }
    ptx_wgmma_commit();
}

// Starts o += weights * v.
QN_DEV void start_values(running &w, const weight_tile &weights, u64 v_at)
{
    ptx_wgmma_fence();
#pragma unroll
    for (int k = 0; k < spec::keys / 16; k++) {
        const u32 a[4] = {weights[0][2 * k][0], weights[0][2 * k][1], weights[0][2 * k + 1][0],
                          weights[0][2 * k + 1][1]};
        ptx_wgmma_f16<n_value, 1>(&w.o[0][0][0], a, v_at + (u64)(k * 2048 >> 4), 1);
    }
    ptx_wgmma_commit();
}

QN_DEV void finish_values(running &w)
{
    ptx_wgmma_wait<0>();
    ptx_pin<n_value / 2>(&w.o[0][0][0]);
}

#endif
