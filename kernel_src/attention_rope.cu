// attention_rope.cu: QK norm, RoPE, the store into the KV cache and attention of one row, in one launch.
// As attention_mma.cu; but each block finishes its query heads itself while its first keys are under way, a
// warp a head, and the blocks of the last part finish the row's own key and value too, use them from shared
// memory, and (those of the first query heads) store them. Without spec::has_kv the cache holds them already.
// The fields of both ops are there; no norm over the whole width. Frequencies and norm weights are asked
// for before the wait for the launch before, and so are keys and values where they are one block's. Shared
// memory: after the rings of attention_mma.cuh the turns of RoPE, (heads + 2) rows of x_pitch floats, key and
// value as halves, queries as halves (heads rows of k_pitch) with a float each.
#include "attention_merge.cuh"
#include "rope.cuh"

constexpr int x_pitch = spec::k_dim > spec::v_dim ? spec::k_dim : spec::v_dim;
constexpr int turn_rows = (half_rot + 1) / 2 * 2;
constexpr int lane_values = (x_pitch + WARP - 1) / WARP;
constexpr int own_turns = (half_rot + WARP * spec::warps - 1) / (WARP * spec::warps); // a thread's
// Pairs that turn together lie in registers of one lane, or of neighbours.
constexpr bool turn_in_lane =
    spec::rope_style == ROPE_NEOX && spec::rot_at % WARP == 0 && half_rot % WARP == 0;
constexpr bool turn_in_pairs = spec::rope_style == ROPE_INTERLEAVED && spec::rot_at % 2 == 0;

// q, k, v: of this row; k and v of this block's KV head.
struct raw_rows {
    const float *q, *k, *v, *q_norm, *k_norm, *freq;
    u8 *k_cache, *v_cache;
    // This lane's of its warp's first unit, and this thread's frequencies: asked for early.
    float first[lane_values], weight[lane_values], own_freq[own_turns];

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

    // The finished queries as halves, each head's times a power of two, and what takes that back (fit_half).
    QN_DEV_MEMBER half_t *ready() const
    {
        return new_value() + spec::v_dim;
    }
    QN_DEV_MEMBER float *ready_up() const
    {
        return (float *)(ready() + spec::heads * k_pitch);
    }

    QN_DEV_MEMBER static bool has_weight(bool is_q)
    {
        return spec::qk_norm != NORM_NONE &&
               (is_q ? spec::q_has_norm && spec::q_has_w : spec::k_has_norm && spec::k_has_w);
    }

    // Of a unit's norm weights this lane's.
    QN_DEV_MEMBER void load_weight(int u, const place &p)
    {
        const bool is_q = u < p.n_h;
        const float *w = is_q ? q_norm : k_norm;
        const int head = is_q ? p.h0 + u : p.g;
#pragma unroll
        for (int c = 0; c < lane_values; c++) {
            const int i = c * WARP + (int)(threadIdx.x % WARP);
            weight[c] = 1.0f;
            if (u <= p.n_h && has_weight(is_q) && i < spec::k_dim) {
                weight[c] = w[spec::qk_weight == QKW_PER_HEAD  ? head
                              : spec::qk_weight == QKW_CHANNEL ? i
                                                               : head * spec::k_dim + i];
            }
        }
    }

    // What no launch before this one writes.
    QN_DEV_MEMBER void fetch_constants(const place &p)
    {
        load_weight(warp_index(), p);
#pragma unroll
        for (int k = 0; k < own_turns; k++) {
            const int i = k * WARP * spec::warps + (int)threadIdx.x;
            own_freq[k] = spec::rope_style != ROPE_NONE && i < half_rot ? freq[i] : 0.0f;
        }
    }

    // Has this block the row's own key?
    QN_DEV_MEMBER bool owns_last(const place &p) const
    {
        return spec::has_kv && p.part == p.n_part - 1;
    }

    // Units: the query heads, then k, then v.
    QN_DEV_MEMBER void load_unit(int u, const place &p)
    {
        const bool is_v = u == p.n_h + 1;
        const float *src = u < p.n_h ? q + (p.h0 + u) * spec::k_dim : is_v ? v : k;
        const bool there = u < p.n_h + (spec::has_kv ? 2 : 0);
#pragma unroll
        for (int c = 0; c < lane_values; c++) {
            const int i = c * WARP + (int)(threadIdx.x % WARP);
            first[c] = there && i < (is_v ? spec::v_dim : spec::k_dim) ? src[i] : 0.0f;
        }
    }

    // The finished key or value of the row, to shared memory and to the cache.
    template <int DIM, int Q8> QN_DEV_MEMBER void keep(half_t *to, u8 *cache, const place &p) const
    {
        u8 *unit =
            cache + (p.seq_row + p.pos % spec::kv_rows) * kv_row_bytes<DIM, Q8> + p.g * kv_unit<DIM, Q8>;
#pragma unroll
        for (int c = 0; c < (DIM + WARP - 1) / WARP; c++) {
            const int i = c * WARP + (int)(threadIdx.x % WARP);
            if (i < DIM) {
                to[i] = kv_keep<DIM, Q8>(first[c], unit, i, p.h0 == p.g * per_kv);
            }
        }
    }

    // RMS or layer norm of the unit's `n` values.
    QN_DEV_MEMBER void normalise_unit(int n, int kind)
    {
        const int lane = threadIdx.x % WARP;
        float sum = 0.0f, square = 0.0f;
        if (kind == NORM_LAYER) {
#pragma unroll
            for (int c = 0; c < lane_values; c++) {
                sum += first[c]; // 0 beyond n
            }
            sum = warp_sum(sum) / n;
        }
#pragma unroll
        for (int c = 0; c < lane_values; c++) {
            first[c] = c * WARP + lane < n ? first[c] - sum : 0.0f;
            square += first[c] * first[c];
        }
        const float scale = ptx_rsqrt(warp_sum(square) / n + spec::eps);
#pragma unroll
        for (int c = 0; c < lane_values; c++) {
            first[c] *= scale;
        }
    }

    QN_DEV_MEMBER void norm_head()
    {
        normalise_unit(spec::k_dim, spec::qk_norm);
#pragma unroll
        for (int c = 0; c < lane_values; c++) {
            first[c] *= weight[c];
        }
    }

    QN_DEV_MEMBER void turn_head(float *x_u)
    {
        const int lane = threadIdx.x % WARP;
        if constexpr (turn_in_lane) {
#pragma unroll
            for (int c = 0; c < half_rot / WARP; c++) {
                constexpr int at = spec::rot_at / WARP, apart = half_rot / WARP;
                const f32x2 turn = turns()[c * WARP + lane];
                const float a = first[at + c], b = first[at + c + apart];
                first[at + c] = a * turn.x - b * turn.y;
                first[at + c + apart] = a * turn.y + b * turn.x;
            }
        } else if constexpr (turn_in_pairs) {
#pragma unroll
            for (int c = 0; c < lane_values; c++) {
                const int i = c * WARP + lane - spec::rot_at;
                const float other = __shfl_xor_sync(0xffffffffu, first[c], 1);
                if (i >= 0 && i < spec::n_rot) {
                    const f32x2 turn = turns()[i / 2];
                    first[c] = first[c] * turn.x + (lane % 2 ? other : -other) * turn.y;
                }
            }
        } else {
#pragma unroll
            for (int c = 0; c < lane_values; c++) {
                if (c * WARP + lane < x_pitch) {
                    x_u[c * WARP + lane] = first[c];
                }
            }
            __syncwarp();
            rotate<WARP>(x_u, 1, turns());
#pragma unroll
            for (int c = 0; c < lane_values; c++) {
                first[c] = c * WARP + lane < x_pitch ? x_u[c * WARP + lane] : 0.0f;
            }
        }
    }

    QN_DEV_MEMBER void finish_unit(int u, const place &p)
    {
        const int lane = threadIdx.x % WARP;
        const bool is_q = u < p.n_h;
        float *x_u = x() + u * x_pitch;
        if (u == p.n_h + 1) {
            if (spec::v_norm != NORM_NONE) {
                normalise_unit(spec::v_dim, spec::v_norm);
            }
            keep<spec::v_dim, spec::v_q8>(new_value(), v_cache, p);
            return;
        }
        const bool norm = spec::qk_norm != NORM_NONE && (is_q ? spec::q_has_norm : spec::k_has_norm);
        if (norm && spec::qk_order == QK_BEFORE_ROPE) {
            norm_head();
        }
        if (spec::rope_style != ROPE_NONE) {
            turn_head(x_u);
        }
        if (norm && spec::qk_order == QK_AFTER_ROPE) {
            norm_head();
        }
        if (!is_q) {
            keep<spec::k_dim, spec::k_q8>(new_key(), k_cache, p);
            return;
        }
        const float factor = spec::temp_scale != 0.0f ? query_factor(p.pos) * spec::scale : spec::scale;
        float top = 0.0f, up;
#pragma unroll
        for (int c = 0; c < lane_values; c++) {
            first[c] = c * WARP + lane < spec::k_dim ? first[c] * factor : 0.0f;
            top = fmaxf(top, fabsf(first[c]));
        }
        const float down = fit_half(__uint_as_float(ptx_warp_max(__float_as_uint(top))), &up);
#pragma unroll
        for (int c = 0; c < (k_pad + WARP - 1) / WARP; c++) {
            if (k_pad % WARP == 0 || c * WARP + lane < k_pad) {
                ready()[u * k_pitch + c * WARP + lane] =
                    float_to_half(c < lane_values ? first[c] * down : 0.0f);
            }
        }
        if (lane == 0) {
            ready_up()[u] = up;
        }
    }

    // What the launch before made. With keys enough for several blocks it is asked for ahead of them, or it
    // would stand in line behind them; few keys are asked for before the wait.
    QN_DEV_MEMBER void wait(const place &p)
    {
        ptx_grid_wait();
        ptx_grid_launch();
        load_unit(warp_index(), p);
    }

    QN_DEV_MEMBER void queries(running &r, const place &p)
    {
        const int n_unit = p.n_h + (owns_last(p) ? 2 : 0);
        if (p.n_part == 1) {
            wait(p);
        }
        if (spec::rope_style != ROPE_NONE) {
#pragma unroll
            for (int k = 0; k < own_turns; k++) {
                const int i = k * WARP * spec::warps + (int)threadIdx.x;
                if (i < half_rot) {
                    turns()[i] = find_turn(p.pos, own_freq[k]);
                }
            }
        }
        __syncthreads();
#pragma unroll 1
        for (int u = warp_index(); u < n_unit; u += spec::warps) {
            if (u >= spec::warps) {
                load_unit(u, p);
                load_weight(u, p);
            }
            finish_unit(u, p);
        }
        __syncthreads();
        take_ready(r, ready(), ready_up(), p);
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
    raw_rows rows = {q + at, k + at, v + at, q_norm, k_norm, freq, k_cache, v_cache};
    // It has keys whatever the position is, which is still on its way, and constants whatever its heads are.
    const bool always = blockIdx.y == 0 && spec::qk_weight == QKW_CHANNEL && per_kv % spec::heads == 0;
    if (always) {
        rows.fetch_constants(p);
    }
    if (!find_keys(p, st, !spec::has_kv)) {
        return;
    }
    rows.k += p.g * spec::k_dim;
    rows.v += p.g * spec::v_dim;
    if (!always) {
        rows.fetch_constants(p);
    }
    if (p.n_part > 1) {
        rows.wait(p);
    }
    reset(r);
    all_tiles(r, rows, k_cache, v_cache, p);
    finish(r, parts, arrived, out, out_stride, q8_out, p);
}
