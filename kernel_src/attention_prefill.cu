// attention_prefill.cu: attention of many query rows on the tensor cores by mma.sync, keys in tiles.
// grid: (n_head / heads, blocks of tokens, parts of v_dim); block: 32 * spec::warps; shared: queries
// [block_rows][k_pitch], then spec::stages times K [keys][k_pitch] and V [keys][v_pitch], halves.
constexpr int first_thread = 0;
#include "attention_rows.cuh"

constexpr int k_pitch = k_pad + 8, v_pitch = v_pad + 8;

// Four values of a query row from dimension d on, times the scale; zero beyond k_dim and in rows that are not
// there.
QN_DEV void load_query(float v[4], const float *q, int d, bool there)
{
    if constexpr (spec::q_vec == 4) {
        f32x4 x = {0.0f, 0.0f, 0.0f, 0.0f};
        if (there && d < spec::k_dim) {
            x = *(const f32x4 *)(q + d);
        }
        v[0] = x.x * spec::scale;
        v[1] = x.y * spec::scale;
        v[2] = x.z * spec::scale;
        v[3] = x.w * spec::scale;
    } else {
        for (int e = 0; e < 4; e++) {
            v[e] = there && d + e < spec::k_dim ? q[d + e] * spec::scale : 0.0f;
        }
    }
}

// Queries of this warp's rows as halves in shared memory.
QN_DEV void load_queries(running &w, half_t *q_s, const float *q, i64 q_stride, const place &p, int n_rows)
{
    const int lane4 = threadIdx.x % 4;
#pragma unroll
    for (int t = 0; t < spec::tiles; t++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int r = row_of(t, half), token = r / spec::heads, h = p.head0 + r % spec::heads;
            const bool there = token < tokens && p.row0 + token < n_rows;
            const float *src = q + (i64)(there ? p.row0 + token : 0) * q_stride + h * spec::k_dim;
            float top = 0.0f, v[4];
#pragma unroll 8
            for (int d = 4 * lane4; d < k_pad; d += 16) {
                load_query(v, src, d, there);
                top = fmaxf(top, fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3]))));
            }
            top = quad_max(top);
            const float down = start_row(w, t, half, top, h);
#pragma unroll 8
            for (int d = 4 * lane4; d < k_pad; d += 16) {
                load_query(v, src, d, there);
                const u32x2 x = {pack_half(v[0] * down, v[1] * down), pack_half(v[2] * down, v[3] * down)};
                *(u32x2 *)(q_s + r * k_pitch + d) = x;
            }
        }
    }
    __syncwarp();
}

// All copies have landed and every thread has left the previous part of the loop.
QN_DEV void wait_copies()
{
    if constexpr (spec::variant >= 80) {
        ptx_copy_wait<0>();
    }
    __syncthreads();
}

// d += a * b of 16 x 16 x 8.
QN_DEV void mma(float d[4], const u32 a[4], const u32 b[2])
{
    if constexpr (spec::variant >= 80) {
        ptx_mma_f16(d, a, b);
    } else {
        ptx_mma_f16_k8(d, a, b[0]);
        ptx_mma_f16_k8(d, a + 2, b[1]);
    }
}

// s = q k^T of this warp's rows.
QN_DEV void scores(score_tile &s, const half_t *q_s, const half_t *k_s)
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const half_t *a_at = q_s + (warp * warp_rows + lane % 16) * k_pitch + lane / 16 * 8;
    const half_t *b_at = k_s + (lane % 8 + lane / 16 * 8) * k_pitch + lane / 8 % 2 * 8;
#pragma unroll
    for (int t = 0; t < spec::tiles; t++) {
#pragma unroll
        for (int j = 0; j < spec::keys / 8; j++) {
            s[t][j][0] = s[t][j][1] = s[t][j][2] = s[t][j][3] = 0.0f;
        }
    }
#pragma unroll
    for (int d = 0; d < k_pad; d += 16) {
        u32 a[spec::tiles][4];
#pragma unroll
        for (int t = 0; t < spec::tiles; t++) {
            ptx_ldmatrix_x4(a[t], a_at + t * 16 * k_pitch + d);
        }
#pragma unroll
        for (int j = 0; j < spec::keys / 16; j++) {
            u32 b[4];
            ptx_ldmatrix_x4(b, b_at + j * 16 * k_pitch + d);
#pragma unroll
            for (int t = 0; t < spec::tiles; t++) {
                mma(s[t][2 * j], a[t], b);
                mma(s[t][2 * j + 1], a[t], b + 2);
            }
        }
    }
}

// o += weights * v.
QN_DEV void add_values(running &w, const weight_tile &weights, const half_t *v_s)
{
    const int lane = threadIdx.x % WARP;
    const half_t *b_at = v_s + lane % 16 * v_pitch + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < spec::keys / 16; k++) {
#pragma unroll
        for (int j = 0; j < v_pad / 16; j++) {
            u32 b[4];
            ptx_ldmatrix_x4_trans(b, b_at + k * 16 * v_pitch + j * 16);
#pragma unroll
            for (int t = 0; t < spec::tiles; t++) {
                const u32 a[4] = {weights[t][2 * k][0], weights[t][2 * k][1], weights[t][2 * k + 1][0],
                                  weights[t][2 * k + 1][1]};
                mma(w.o[t][2 * j], a, b);
                mma(w.o[t][2 * j + 1], a, b + 2);
            }
        }
    }
}

// The tiles of keys, from the newest to the oldest. With two stages tile n - 1 is copied while tile n is
// used; with one, values are copied while scores are made, and the next keys while values are summed.
QN_DEV void all_tiles(running &w, half_t *shared, const half_t *k_cache, const half_t *v_cache,
                      const place &p)
{
    constexpr int v_at = spec::keys * k_pitch, stage = v_at + spec::keys * v_pitch;
    constexpr bool two = spec::stages == 2;
    half_t *q_s = shared, *tiles = q_s + block_rows * k_pitch;
    const int oldest = p.low / spec::keys;
    int n = (p.end - 1) / spec::keys;
    load_keys(tiles, k_cache, n * spec::keys, p);
    if (two) {
        load_values(tiles + v_at, v_cache, n * spec::keys, p);
    }
    commit();
    for (int turn = 0; n >= oldest; n--, turn ^= two) {
        half_t *k_s = tiles + turn * stage, *v_s = k_s + v_at, *next = tiles + (turn ^ two) * stage;
        score_tile s;
        weight_tile weights;
        row_pair keep;
        wait_copies();
        if (two && n > oldest) {
            load_keys(next, k_cache, (n - 1) * spec::keys, p);
            load_values(next + v_at, v_cache, (n - 1) * spec::keys, p);
        } else if (!two) {
            load_values(v_s, v_cache, n * spec::keys, p);
        }
        commit();
        scores(s, q_s, k_s);
        if (!two) {
            wait_copies();
            if (n > oldest) {
                load_keys(next, k_cache, (n - 1) * spec::keys, p);
            }
            commit();
        }
        shape_scores(s, w, n * spec::keys, p);
        softmax_step(w, s, keep);
        take_weights(w, weights, s, keep);
        add_values(w, weights, v_s);
    }
}

QN_ENTRY(threads)
QN_KERNEL(const qn_state *st, const float *q, i64 q_stride, const half_t *k_cache, const half_t *v_cache,
          float *out, i64 out_stride, half_t *half_rows, float *row_scale)
{
    ptx_grid_wait();
    ptx_grid_launch();
    place p;
    if (!find_place(p, st)) {
        return;
    }
    k_cache += (i64)st->seq * (spec::kv_rows * spec::n_head_kv * spec::k_dim);
    v_cache += (i64)st->seq * (spec::kv_rows * spec::n_head_kv * spec::v_dim);
    half_t *shared = qn_shared<half_t>(0);
    running w;
    load_queries(w, shared, q, q_stride, p, st->n_rows);
    all_tiles(w, shared, k_cache, v_cache, p);
    write_rows(w, out, out_stride, half_rows, row_scale, p, st->n_rows);
}
