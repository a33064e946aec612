// attention_wgmma.cu: attention of many query rows by the products of warpgroups (sm_90a), after the pattern
// of FlashAttention-3 (Shah et al., 2024): scores of the next tile and the values' sum of this one run while
// the softmax of the next is made. One or two warpgroups of 64 query rows; queries in registers, or in shared
// memory where k_dim is over 128. Two tiles of K and two of V in shared memory, filled by cp.async. grid:
// (n_head / heads, blocks of tokens, 1); block: 32 * spec::warps; shared: 1024 bytes to align, K and V twice
// [keys][64] a 64 dimensions, where q_shared the queries [block_rows][64] a 64 dimensions, a barrier of 8
// bytes.
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

// This thread's copies have landed, the tensor cores may read them, and all threads are here.
QN_DEV void wait_copies()
{
    ptx_copy_wait<0>();
    ptx_fence_async();
    __syncthreads();
}

QN_ENTRY(threads, 8 / spec::warps)
QN_KERNEL(const qn_state *st, const float *q, i64 q_stride, const half_t *k_cache, const half_t *v_cache,
          float *out, i64 out_stride, half_t *half_rows, float *row_scale)
{
    ptx_grid_launch();
    ptx_grid_wait();
    place p;
    if (!find_place(p, st)) {
        return;
    }
    k_cache += (i64)st->seq * (spec::kv_rows * spec::n_head_kv * spec::k_dim);
    v_cache += (i64)st->seq * (spec::kv_rows * spec::n_head_kv * spec::v_dim);
    const int n_rows = st->n_rows;
    u8 *base = qn_shared<u8>(0);
    half_t *k_s = (half_t *)(base + (1024 - ptx_shared_address(base) % 1024) % 1024), *v_s = k_s + 2 * k_tile;
    half_t *q_s = v_s + 2 * v_tile;
    const u64 k_at = matrix_at(ptx_shared_address(k_s), 16),
              v_at = matrix_at(ptx_shared_address(v_s), spec::keys * 128);
    const u64 q_at = matrix_at(ptx_shared_address(q_s) + threadIdx.x / 128 * (64 * 128), 16);
    u64 *passed = (u64 *)(q_s + (q_shared ? block_rows * ((k_pad + 63) / 64 * 64) : 0));
    if (threadIdx.x == 0) {
        ptx_barrier_init(passed, 1);
    }
    running w;
    query_tile qf;
    score_tile s;
    weight_tile weights;
    row_pair keep;
    const int oldest = p.low / spec::keys;
    int n = (p.end - 1) / spec::keys, turn = 0;
    load_keys(k_s, k_cache, n * spec::keys, p);
    commit();
    load_queries(w, qf, q_s, q, q_stride, p, n_rows);
    wait_copies();
    load_values(v_s, v_cache, n * spec::keys, p);
    if (n > oldest) {
        load_keys(k_s + k_tile, k_cache, (n - 1) * spec::keys, p);
    }
    commit();
    start_scores(s, qf, q_at, k_at);
    ptx_wgmma_wait<0>();
    ptx_pin<spec::keys / 2>(&s[0][0][0]);
    shape_scores(s, w, n * spec::keys, p);
    softmax_step(w, s, keep);
    take_weights(w, weights, s, keep);
    // Here and in each turn: weights are those of tile n; its values and the keys of tile n - 1 are on their
    // way.
    for (; n > oldest; n--, turn ^= 1) {
        wait_copies();
        start_scores(s, qf, q_at, k_at + (u64)((turn ^ 1) * k_tile * 2 >> 4));
        start_values(w, weights, v_at + (u64)(turn * v_tile * 2 >> 4));
        load_values(v_s + (turn ^ 1) * v_tile, v_cache, (n - 1) * spec::keys, p);
        if (n - 1 > oldest) {
            load_keys(k_s + turn * k_tile, k_cache, (n - 2) * spec::keys, p);
        }
        commit();
        ptx_wgmma_wait<1>();
        ptx_pin<spec::keys / 2>(&s[0][0][0]);
        shape_scores(s, w, (n - 1) * spec::keys, p);
        softmax_step(w, s, keep);
        ptx_pin<spec::keys / 2>(&s[0][0][0]);
        // A loop, left at once: without one the compiler moves the wait above the exponentials, and nothing
        // overlaps.
        ptx_barrier_wait(passed, 1);
        finish_values(w);
        take_weights(w, weights, s, keep);
    }
    wait_copies();
    start_values(w, weights, v_at + (u64)(turn * v_tile * 2 >> 4));
    finish_values(w);
    write_rows(w, out, out_stride, half_rows, row_scale, p, n_rows);
}
