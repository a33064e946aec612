// attention_rope.cu: QK norm, RoPE, the store into the KV cache and attention of one row, in one launch.
// As attention_mma.cu; but each block finishes its query heads itself while its first keys are under way, a
// warp a head, and the blocks of the last part finish the row's own key and value too, use them from shared
// memory, and (those of the first query heads) store them. Without spec::has_kv the cache holds them already.
// The fields of both ops are there; no norm over the whole width. Frequencies and norm weights are fetched
// before the wait for the launch before, and so are keys and values where they are one block's. Shared
// memory: after the rings of attention_mma.cuh the turns of RoPE, (heads + 2) rows of x_pitch floats, key and
// value as halves, frequencies, weights of both norms.
#include "attention_mma.cuh"
#include "rope.cuh"

constexpr int x_pitch = spec::k_dim > spec::v_dim ? spec::k_dim : spec::v_dim;
constexpr int turn_rows = (half_rot + 1) / 2 * 2;
// Norm weights that all heads share.
constexpr bool q_channel = spec::q_has_w && spec::qk_weight == QKW_CHANNEL;
constexpr bool k_channel = spec::k_has_w && spec::qk_weight == QKW_CHANNEL;
constexpr int lane_values = (x_pitch + WARP - 1) / WARP;

// q, k, v: of this row; k and v of this block's KV head.
struct raw_rows {
    const float *q, *k, *v, *q_norm, *k_norm, *freq;
    u8 *k_cache, *v_cache;
    float first[lane_values]; // this lane's values of its warp's first unit, loaded early

    QN_DEV_MEMBER f32x2 *turns() const
    {
        return qn_shared<f32x2>(spec::warps * warp_bytes);
    }
    QN_DEV_MEMBER float *x() const
    {
        return (float *)(turns() + turn_rows);
    }
    QN_DEV_MEMBER half_t *new_key() const
    {
        return (half_t *)(x() + (spec::heads + 2) * x_pitch);
    }
    QN_DEV_MEMBER half_t *new_value() const
    {
        return new_key() + spec::k_dim;
    }
    QN_DEV_MEMBER float *frequencies() const
    {
        return (float *)(new_value() + spec::v_dim);
    }
    QN_DEV_MEMBER float *weights() const
    {
        return frequencies() + turn_rows;
    }

    // What no launch before this one writes. A thread takes the frequencies that find_turns has it use.
    QN_DEV_MEMBER void fetch_constants() const
    {
        for (int i = threadIdx.x; spec::rope_style != ROPE_NONE && i < half_rot; i += 32 * spec::warps) {
            frequencies()[i] = freq[i];
        }
        for (int i = threadIdx.x; i < spec::k_dim; i += 32 * spec::warps) {
            if (q_channel) {
                weights()[i] = q_norm[i];
            }
            if (k_channel) {
                weights()[spec::k_dim + i] = k_norm[i];
            }
        }
    }

    // Has this block the row's own key?
    QN_DEV_MEMBER bool owns_last(const place &p) const
    {
        return spec::has_kv && (int)blockIdx.x == p.n_part - 1;
    }

    // Units: the query heads, then k, then v.
    QN_DEV_MEMBER void load_unit(float *values, int u, const place &p) const
    {
        const bool is_v = u == p.n_h + 1;
        const float *src = u < p.n_h ? q + (p.h0 + u) * spec::k_dim : is_v ? v : k;
        const bool there = u < p.n_h + (spec::has_kv ? 2 : 0);
#pragma unroll
        for (int c = 0; c < lane_values; c++) {
            const int i = c * WARP + (int)(threadIdx.x % WARP);
            values[c] = there && i < (is_v ? spec::v_dim : spec::k_dim) ? src[i] : 0.0f;
        }
    }

    // The finished key or value of the row, to shared memory and to the cache.
    template <int DIM, int Q8>
    QN_DEV_MEMBER void keep(half_t *to, u8 *cache, const float *x_u, float mean, float scale,
                            const place &p) const
    {
        u8 *unit =
            cache + (p.seq_row + p.pos % spec::kv_rows) * kv_row_bytes<DIM, Q8> + p.g * kv_unit<DIM, Q8>;
        for (int i = threadIdx.x % WARP; i < DIM; i += WARP) {
            to[i] = kv_keep<DIM, Q8>((x_u[i] - mean) * scale, unit, i, p.h0 == p.g * per_kv);
        }
    }

    QN_DEV_MEMBER void finish_unit(float *values, int u, const place &p) const
    {
        const int lane = threadIdx.x % WARP;
        const bool is_q = u < p.n_h, is_v = u == p.n_h + 1;
        float *x_u = x() + u * x_pitch;
#pragma unroll
        for (int c = 0; c < lane_values; c++) {
            if (c * WARP + lane < x_pitch) {
                x_u[c * WARP + lane] = values[c];
            }
        }
        __syncwarp();
        if (is_v) {
            float mean = 0.0f, scale = 1.0f;
            if (spec::v_norm != NORM_NONE) {
                scale = norm_scale<WARP>(x_u, 1.0f, spec::v_dim, spec::v_norm, &mean, nullptr);
            }
            keep<spec::v_dim, spec::v_q8>(new_value(), v_cache, x_u, mean, scale, p);
            return;
        }
        const float *w_q = q_channel ? weights() : spec::q_has_w ? q_norm : nullptr;
        const float *w_k = k_channel ? weights() + spec::k_dim : spec::k_has_w ? k_norm : nullptr;
        const bool norm = spec::qk_norm != NORM_NONE && (is_q ? spec::q_has_norm : spec::k_has_norm);
        finish_heads<WARP>(x_u, 1, is_q ? p.h0 + u : p.g, norm, is_q ? w_q : w_k, turns(), nullptr);
        if (!is_q) {
            keep<spec::k_dim, spec::k_q8>(new_key(), k_cache, x_u, 0.0f, 1.0f, p);
        } else if (spec::temp_scale != 0.0f) {
            const float factor = query_factor(p.pos);
            for (int i = lane; i < spec::k_dim; i += WARP) {
                x_u[i] *= factor;
            }
        }
    }

    // What the launch before made. With keys enough for several blocks it is asked for ahead of them, or it
    // would stand in line behind them; few keys are asked for before the wait.
    QN_DEV_MEMBER void wait(const place &p)
    {
        ptx_grid_wait();
        ptx_grid_launch();
        load_unit(first, warp_index(), p);
    }

    QN_DEV_MEMBER void queries(running &r, const place &p)
    {
        const int n_unit = p.n_h + (owns_last(p) ? 2 : 0);
        if (p.n_part == 1) {
            wait(p);
        }
        if (spec::rope_style != ROPE_NONE) {
            find_turns<32 * spec::warps>(turns(), p.pos, frequencies());
        }
        __syncthreads();
        for (int u = warp_index(); u < n_unit; u += spec::warps) {
            if (u >= spec::warps) {
                load_unit(first, u, p);
            }
            finish_unit(first, u, p);
        }
        __syncthreads();
        take_queries<x_pitch, 2>(r, x(), p);
    }

    // The row's own key or value into its place in a tile, over the zeros that stand there.
    template <int DIM> QN_DEV_MEMBER void put(half_t *row, const half_t *from) const
    {
        for (int c = threadIdx.x % WARP; c < DIM / 8; c += WARP) {
            *(u32x4 *)(row + 8 * c) = *(const u32x4 *)(from + 8 * c);
        }
        __syncwarp();
    }
    QN_DEV_MEMBER void put_key(half_t *k_at, int tile, const place &p) const
    {
        if (spec::has_kv && tile == p.pos / KEYS) {
            put<spec::k_dim>(k_at + p.pos % KEYS * k_pitch, new_key());
        }
    }
    QN_DEV_MEMBER void put_value(half_t *v_at, int tile, const place &p) const
    {
        if (spec::has_kv && tile == p.pos / KEYS) {
            put<spec::v_dim>(v_at + p.pos % KEYS * v_pitch, new_value());
        }
    }
};

QN_ENTRY(32 * spec::warps, 1)
QN_KERNEL(const qn_state *st, const float *q, i64 stride, const float *k, const float *v, u8 *k_cache,
          u8 *v_cache, const float *q_norm, const float *k_norm, const float *freq, float *parts,
          u32 *arrived, float *out, i64 out_stride, u8 *q8_out)
{
    place p;
    running r;
    find_heads(p);
    const i64 at = p.row * stride;
    raw_rows rows = {
        q + at, k + at + p.g * spec::k_dim, v + at + p.g * spec::v_dim, q_norm, k_norm, freq, k_cache,
        v_cache};
    if (!find_keys(p, st, !spec::has_kv)) {
        return;
    }
    rows.fetch_constants();
    if (p.n_part > 1) {
        rows.wait(p);
    }
    reset(r);
    all_tiles(r, rows, k_cache, v_cache, p);
    finish(r, parts, arrived, out, out_stride, q8_out, p);
}
