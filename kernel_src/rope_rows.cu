// rope_rows.cu: rope_kv.cu for many rows: QK norm of each head, RoPE, temperature; q as f32, k and v into an
// f16 cache. A block does a row: a lane has eight values that lie side by side, k_dim / 8 lanes a head, and
// asks for all of its heads before it uses the first. q, k and v come from a product (spec::scaled: times
// row_scale; spec::half_in: as f16, chunk.cuh). k_dim = v_dim of 64, 128 or 256; where pairs of a RoPE lie
// apart, n_rot is 16 times a power of two. spec::kv_rows: as in rope_kv.cu. grid: (rows); block:
// spec::threads; shared: 2 * half_rot floats.
#include "chunk.cuh"
#include "query_tile.cuh"
#include "rope.cuh"

constexpr int lanes = spec::k_dim / 8, per_step = spec::threads / lanes;
constexpr int n_unit = spec::n_head + (spec::has_kv ? 2 * spec::n_head_kv : 0);
constexpr int steps = (n_unit + per_step - 1) / per_step;
constexpr bool some_norm = spec::qk_norm != NORM_NONE || spec::v_norm != NORM_NONE;
constexpr bool some_mean = spec::qk_norm == NORM_LAYER || spec::v_norm == NORM_LAYER;

// Eight values as they came.
struct piece {
    u32x4 raw[spec::half_in ? 1 : 2];
};

// What a group of lanes does: query head, key head or value head h.
struct unit {
    bool there, is_q, is_v;
    int h;
};

QN_DEV unit unit_of(int step)
{
    const int at = step * per_step + (int)threadIdx.x / lanes;
    unit u;
    // Most steps are known to be of one kind only.
    const int first = step * per_step, end = first + per_step;
    u.there = end <= n_unit || at < n_unit;
    u.is_q = end <= spec::n_head || (first < spec::n_head && at < spec::n_head);
    u.is_v = end > spec::n_head + spec::n_head_kv &&
             (first >= spec::n_head + spec::n_head_kv || at >= spec::n_head + spec::n_head_kv);
    u.h = u.is_q ? at : u.is_v ? at - spec::n_head - spec::n_head_kv : at - spec::n_head;
    return u;
}

// Sum over the lanes of a head.
QN_DEV float head_sum(float v)
{
#pragma unroll
    for (int d = lanes / 2; d > 0; d /= 2) {
        v += __shfl_xor_sync(0xffffffffu, v, d);
    }
    return v;
}

// Largest value over the lanes of a head.
QN_DEV float head_max(float v)
{
#pragma unroll
    for (int d = lanes / 2; d > 0; d /= 2) {
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
    }
    return v;
}

QN_DEV void norm_head(float v[8], const unit &u, const float *q_norm, const float *k_norm)
{
    const int kind = u.is_v                                           ? spec::v_norm
                     : (u.is_q ? spec::q_has_norm : spec::k_has_norm) ? spec::qk_norm
                                                                      : NORM_NONE;
    float mean = 0.0f, square = 0.0f;
    if (some_mean) {
        float sum = 0.0f;
#pragma unroll
        for (int e = 0; e < 8; e++) {
            sum += v[e];
        }
        sum = head_sum(sum) / spec::k_dim;
        mean = kind == NORM_LAYER ? sum : 0.0f;
    }
#pragma unroll
    for (int e = 0; e < 8; e++) {
        square += (v[e] - mean) * (v[e] - mean);
    }
    square = head_sum(square);
    const float scale = kind == NORM_NONE ? 1.0f : 1.0f / sqrtf(square / spec::k_dim + spec::eps);
    const bool weighted = u.there && kind != NORM_NONE && !u.is_v && (u.is_q ? spec::q_has_w : spec::k_has_w);
    const float *w = u.is_q ? q_norm : k_norm;
    const int d0 = (int)threadIdx.x % lanes * 8 + (spec::qk_weight == QKW_CHANNEL ? 0 : u.h * spec::k_dim);
    chunk4 weights[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        weights[i] = chunk4{{0x3f800000u, 0x3f800000u, 0x3f800000u, 0x3f800000u}}; // ones
        if (weighted && spec::qk_weight != QKW_PER_HEAD) {
            weights[i] = load4<0>(w, d0 / 4 + i);
        }
    }
    const float factor = scale * (weighted && spec::qk_weight == QKW_PER_HEAD ? w[u.h] : 1.0f);
#pragma unroll
    for (int e = 0; e < 8; e++) {
        v[e] = (v[e] - mean) * factor * value4<0>(weights[e / 4], e % 4);
    }
}

// t: the turns of this lane's values (of pairs side by side: of its first four; else with the sign of a
// head's half).
QN_DEV void rotate_head(float v[8], const unit &u, const f32x2 t[8])
{
    const int d0 = (int)threadIdx.x % lanes * 8;
    if (spec::rope_style == ROPE_NEOX) {
        const bool turns = d0 < 2 * half_rot && !u.is_v;
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const float other = __shfl_xor_sync(0xffffffffu, v[e], half_rot / 8);
            v[e] = turns ? v[e] * t[e].x + other * t[e].y : v[e];
        }
    } else {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float a = v[2 * e], b = v[2 * e + 1];
            if (d0 / 2 + e < half_rot && !u.is_v) {
                v[2 * e] = a * t[e].x - b * t[e].y;
                v[2 * e + 1] = a * t[e].y + b * t[e].x;
            }
        }
    }
}

// This lane's turns, from those of the row.
QN_DEV void take_turns(f32x2 t[8], const f32x2 *turns)
{
    const int d0 = (int)threadIdx.x % lanes * 8;
    const int first = spec::rope_style == ROPE_NEOX ? d0 % half_rot : d0 / 2;
#pragma unroll
    for (int e = 0; e < (spec::rope_style == ROPE_NEOX ? 8 : 4); e++) {
        t[e] = f32x2{1.0f, 0.0f};
        if (first + e < half_rot) {
            t[e] = turns[first + e];
            t[e].y = spec::rope_style == ROPE_NEOX && d0 < half_rot ? -t[e].y : t[e].y;
        }
    }
}

QN_ENTRY(spec::threads, 1024 / spec::threads)
QN_KERNEL(const qn_state *st, const u8 *q, const u8 *k, const u8 *v, i64 stride, float *q_out, i64 q_stride,
          u8 *q_tiles, u8 *k_cache, u8 *v_cache, const float *q_norm, const float *k_norm, const float *freq,
          const float *row_scale)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.x, d0 = (int)threadIdx.x % lanes * 8;
    if (row >= st->n_rows) {
        return;
    }
    constexpr int bytes = spec::half_in ? 2 : 4;
    const int pos = row_pos(st, row);
    piece in[steps];
#pragma unroll
    for (int s = 0; s < steps; s++) {
        const unit u = unit_of(s);
        const u8 *src = (u.is_q ? q : u.is_v ? v : k) + (row * stride + u.h * spec::k_dim + d0) * bytes;
#pragma unroll
        for (int i = 0; i < bytes / 2; i++) {
            in[s].raw[i] = u32x4{0, 0, 0, 0};
            if (u.there) {
                in[s].raw[i] = ((const u32x4 *)src)[i];
            }
        }
    }
    const float factor = (spec::scaled ? row_scale[row] : 1.0f) * products_up;
    const i64 slot = (i64)row_seq(st, row) * spec::kv_rows + pos % spec::kv_rows;
    const float temperature = query_factor(pos);
    f32x2 *turns = qn_shared<f32x2>(0), mine[8];
    if (spec::rope_style != ROPE_NONE) {
        find_turns<spec::threads>(turns, pos, freq);
        __syncthreads();
        take_turns(mine, turns);
    }
#pragma unroll
    for (int s = 0; s < steps; s++) {
        const unit u = unit_of(s);
        float x[8];
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const u32x4 &r = in[s].raw[spec::half_in ? 0 : e / 4];
            const u32 words[4] = {r.x, r.y, r.z, r.w};
            x[e] = factor * (spec::half_in ? half_to_float((half_t)(words[e / 2] >> (e % 2 * 16)))
                                           : __uint_as_float(words[e % 4]));
        }
        if (some_norm && spec::qk_order == QK_BEFORE_ROPE) {
            norm_head(x, u, q_norm, k_norm);
        }
        if (spec::rope_style != ROPE_NONE) {
            rotate_head(x, u, mine);
        }
        if (some_norm && spec::qk_order == QK_AFTER_ROPE) {
            norm_head(x, u, q_norm, k_norm);
        }
        float up = 1.0f, down = temperature;
        if constexpr (spec::q_tiles) {
            float top = 0.0f;
#pragma unroll
            for (int e = 0; e < 8; e++) {
                top = fmaxf(top, fabsf(x[e]));
            }
            down = query_power(head_max(top) * fabsf(temperature), &up) * temperature;
        }
        if (!u.there) {
            continue;
        }
        if (u.is_q && spec::q_tiles) {
            const int r = row % query_tile_rows, lane = (int)threadIdx.x % lanes;
            u8 *tile =
                q_tiles + (i64)(row / query_tile_rows * spec::n_head + u.h) * query_tile_bytes(spec::k_dim);
            *(u32x4 *)(tile + query_piece_at(r, lane)) =
                u32x4{pack_pair<false>(x[0] * down, x[1] * down), pack_pair<false>(x[2] * down, x[3] * down),
                      pack_pair<false>(x[4] * down, x[5] * down), pack_pair<false>(x[6] * down, x[7] * down)};
            if (lane == 0) {
                *(float *)(tile + query_factor_at(spec::k_dim) + 4 * r) = up;
            }
        } else if (u.is_q) {
            f32x4 *dst = (f32x4 *)(q_out + row * q_stride + u.h * spec::k_dim + d0);
            dst[0] = f32x4{x[0] * temperature, x[1] * temperature, x[2] * temperature, x[3] * temperature};
            dst[1] = f32x4{x[4] * temperature, x[5] * temperature, x[6] * temperature, x[7] * temperature};
        } else {
            u16 *head =
                (u16 *)(u.is_v ? v_cache : k_cache) + (slot * spec::n_head_kv + u.h) * spec::k_dim + d0;
            *(u32x4 *)head = u32x4{pack_pair<false>(x[0], x[1]), pack_pair<false>(x[2], x[3]),
                                   pack_pair<false>(x[4], x[5]), pack_pair<false>(x[6], x[7])};
        }
    }
}
