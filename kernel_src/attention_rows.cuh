// attention_rows.cuh: what the kernels of attention over many query rows share: where a block stands, tiles
// of keys in shared memory, masks and caps of scores, the online softmax (Dao et al., FlashAttention, 2022;
// FlashAttention-2, 2023), results. defines: place, running, score_tile, weight_tile, load_keys, load_values,
// shape_scores, softmax_step, write_rows, ... One block: spec::heads query heads of one KV head at `tokens`
// positions, packed into the rows of one matrix, so that each tile of K and V serves the whole group.
// spec::warps; spec::tiles: 16-row tiles of a warp; spec::keys: keys of a tile; spec::v_part: dimensions of
// the values that a block sums; spec::kv_rows: rows of the cache, position p in row p % kv_rows; spec::q_vec:
// floats of q that one load may take; spec::swizzled: layout of tiles (chunk_at). Before it is
// included: first_thread, the first of the threads that have rows.
#ifndef QN_ATTENTION_ROWS_CUH
#define QN_ATTENTION_ROWS_CUH
#include "query_tile.cuh"
#include "reduce.cuh"

constexpr int group = spec::n_head / spec::n_head_kv;
constexpr int threads = WARP * spec::warps;
constexpr int warp_rows = 16 * spec::tiles, block_rows = spec::warps * warp_rows;
constexpr int tokens = block_rows / spec::heads;
constexpr int k_pad = (spec::k_dim + 15) / 16 * 16, v_pad = spec::v_part;
constexpr int k_chunks = k_pad / 8, v_chunks = v_pad / 8; // of 16 bytes
constexpr int k_row = spec::n_head_kv * spec::k_dim, v_row = spec::n_head_kv * spec::v_dim;
constexpr bool plain = spec::softcap == 0.0f && spec::alibi_max_bias == 0.0f;
constexpr float log2_e = 1.44269504088896340736f;

// Where a block stands.
struct place {
    int row0, pos0;   // its first row of the chunk, and that row's position
    int head0, g, v0; // its first query head, its KV head, its first dimension of the values
    int low, end;     // keys that some row sees: low <= key < end
};

// What a thread carries over the tiles: of its rows lane / 4 and lane / 4 + 8 of each 16-row tile the maximum
// (of scores as they come out of the product), its share of the sum, the factor of the scores (with log2 e)
// and the ALiBi slope; sums of values, 16 x 8 a fragment.
struct running {
    float m[spec::tiles][2], l[spec::tiles][2], factor[spec::tiles][2], slope[spec::tiles][2];
    float o[spec::tiles][v_pad / 8][4];
};

QN_DEV int row_of(int t, int half)
{
    return (int)((threadIdx.x - first_thread) / WARP) * warp_rows + t * 16 + half * 8 +
           (int)(threadIdx.x % WARP) / 4;
}

QN_DEV float quad_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

QN_DEV float quad_sum(float v)
{
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

QN_DEV float alibi_slope(int h)
{
    int n2 = 1;
    while (2 * n2 <= spec::n_head) {
        n2 *= 2;
    }
    const float m = spec::alibi_max_bias / (float)n2;
    return h < n2 ? exp2f(-m * (float)(h + 1)) : exp2f(-0.5f * m * (float)(2 * (h - n2) + 1));
}

// Where this block stands. false: the grid has more blocks than the rows need. Blocks with the most keys come
// first.
QN_DEV bool find_place(place &p, const qn_state *st)
{
    const int n_block = (st->n_rows + tokens - 1) / tokens, block = n_block - 1 - (int)blockIdx.y;
    p.row0 = block * tokens;
    p.pos0 = st->pos + p.row0;
    p.head0 = (int)blockIdx.x * spec::heads;
    p.g = p.head0 / group;
    p.v0 = (int)blockIdx.z * v_pad;
    p.low = spec::window > 0 ? max(0, p.pos0 - spec::window + 1) : 0;
    p.end = min(p.pos0 + tokens, st->pos + st->n_rows);
    return block >= 0;
}

// What the scores of a thread's row are multiplied with, whose queries must be with `up`; its ALiBi slope.
QN_DEV void take_factor(running &w, int t, int half, float up, int h)
{
    w.factor[t][half] = up * log2_e;
    w.slope[t][half] = spec::alibi_max_bias > 0.0f ? alibi_slope(h) * log2_e : 0.0f;
}

// Nothing seen so far.
QN_DEV void clear_row(running &w, int t, int half)
{
    w.m[t][half] = -QN_INF;
    w.l[t][half] = 0.0f;
#pragma unroll
    for (int j = 0; j < v_pad / 8; j++) {
        w.o[t][j][2 * half] = w.o[t][j][2 * half + 1] = 0.0f;
    }
}

// A row whose largest query value is `top` begins. Returns what they must be multiplied with to fit into
// f16; the scores, in f32, take it back exactly.
QN_DEV float start_row(running &w, int t, int half, float top, int h)
{
    float up;
    const float down = query_power(top, &up);
    take_factor(w, t, half, up, h);
    clear_row(w, t, half);
    return down;
}

QN_DEV u32 pack_half(float low, float high)
{
    if constexpr (spec::variant >= 80) {
        return ptx_pack_half(low, high);
    } else {
        return (u32)float_to_half(low) | (u32)float_to_half(high) << 16;
    }
}

// Chunk c (8 halves) of a row of DIM values that starts at src; zero beyond DIM and where !there.
template <int DIM> QN_DEV void copy_chunk(half_t *dst, const half_t *src, int c, bool there)
{
    const bool whole = there && 8 * c + 8 <= DIM;
    if constexpr (DIM % 8 == 0 && spec::variant >= 80) {
        ptx_copy_async16(dst, whole ? src + 8 * c : src, whole);
    } else if constexpr (DIM % 8 == 0) {
        u32x4 x = {0, 0, 0, 0};
        if (whole) {
            x = *(const u32x4 *)(src + 8 * c);
        }
        *(u32x4 *)dst = x;
    } else {
        for (int e = 0; e < 8; e++) {
            dst[e] = there && 8 * c + e < DIM ? src[8 * c + e] : (half_t)0;
        }
    }
}

// Halves from a tile's start to chunk c of row r. Swizzled: blocks of 64 dimensions with rows of 128 bytes,
// in which chunk c of row r stands at c ^ (r % 8), as the tensor cores of sm_90 read it; else rows of an odd
// number of chunks. In both, eight rows' chunks c lie in different banks.
template <int CHUNKS> QN_DEV int chunk_at(int r, int c)
{
    return spec::swizzled ? c / 8 * (spec::keys * 64) + r * 64 + ((c % 8) ^ (r % 8)) * 8
                          : (r * (CHUNKS + 1) + c) * 8;
}

// Rows first .. first + keys - 1 of a cache into a tile, dimensions from d0 on; keys that no row sees become
// zero. A thread keeps its column. Most tiles lie whole in the cache: there the rows need no care.
template <int DIM, int CHUNKS, int ROW>
QN_DEV void load_tile(half_t *tile, const half_t *cache, int d0, int first, const place &p)
{
    constexpr int rows = threads / CHUNKS, passes = (spec::keys + rows - 1) / rows;
    const int ring = first % spec::kv_rows, r0 = (int)threadIdx.x / CHUNKS, c = (int)threadIdx.x % CHUNKS;
    if (threads % CHUNKS != 0 && r0 >= rows) {
        return;
    }
    if (first >= p.low && first + spec::keys <= p.end && ring + spec::keys <= spec::kv_rows) {
        const half_t *src = cache + (i64)(ring + r0) * ROW;
#pragma unroll
        for (int k = 0; k < passes; k++) {
            const int r = r0 + k * rows;
            if (spec::keys % rows == 0 || r < spec::keys) {
                copy_chunk<DIM>(tile + chunk_at<CHUNKS>(r, c), src + (i64)k * rows * ROW, c + d0 / 8, true);
            }
        }
        return;
    }
#pragma unroll 2
    for (int k = 0; k < passes; k++) {
        const int r = r0 + k * rows;
        if (spec::keys % rows == 0 || r < spec::keys) {
            const bool there = first + r >= p.low && first + r < p.end;
            const int row = (ring + r) % spec::kv_rows;
            copy_chunk<DIM>(tile + chunk_at<CHUNKS>(r, c), cache + (i64)(there ? row : 0) * ROW, c + d0 / 8,
                            there);
        }
    }
}

QN_DEV void load_keys(half_t *tile, const half_t *k_cache, int first, const place &p)
{
    load_tile<spec::k_dim, k_chunks, k_row>(tile, k_cache + p.g * spec::k_dim, 0, first, p);
}

QN_DEV void load_values(half_t *tile, const half_t *v_cache, int first, const place &p)
{
    load_tile<spec::v_dim, v_chunks, v_row>(tile, v_cache + p.g * spec::v_dim, p.v0, first, p);
}

QN_DEV void commit()
{
    if constexpr (spec::variant >= 80) {
        ptx_copy_commit();
    }
}

// Scores of 16 rows and 8 keys a fragment, weights of the same as halves, values of the two rows of a thread.
typedef float score_tile[spec::tiles][spec::keys / 8][4];
typedef u32 weight_tile[spec::tiles][spec::keys / 8][2];
typedef float row_pair[spec::tiles][2];

// tanh by one exponential; its absolute error, some 1e-7, is what counts before a soft-cap's factor.
QN_DEV float tanh_exp2(float x)
{
    return 1.0f - 2.0f * ptx_reciprocal(1.0f + ptx_exp2(2.0f * log2_e * x));
}

// Soft-cap and ALiBi where there are any (the scores then hold log2 of the weights); -inf where a row does
// not see a key.
QN_DEV void shape_scores(score_tile &s, const running &w, int first, const place &p)
{
    const int col = first + (int)threadIdx.x % 4 * 2;
    const bool edge =
        first + spec::keys - 1 > p.pos0 || (spec::window > 0 && first <= p.pos0 + tokens - 1 - spec::window);
    if (plain && !edge) {
        return;
    }
#pragma unroll
    for (int t = 0; t < spec::tiles; t++) {
#pragma unroll
        for (int j = 0; j < spec::keys / 8; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int back = p.pos0 + row_of(t, e / 2) / spec::heads - (col + 8 * j + e % 2);
                float x = s[t][j][e];
                if constexpr (!plain) {
                    x *= w.factor[t][e / 2];
                }
                if constexpr (spec::softcap > 0.0f) {
                    x = spec::softcap * log2_e * tanh_exp2(x * (1.0f / (log2_e * spec::softcap)));
                }
                if constexpr (spec::alibi_max_bias > 0.0f) {
                    x -= w.slope[t][e / 2] * (float)back;
                }
                s[t][j][e] = back < 0 || (spec::window > 0 && back >= spec::window) ? -QN_INF : x;
            }
        }
    }
}

// One step of the online softmax: s becomes the weights, not yet divided; `keep` is what sums so far must be
// multiplied with.
QN_DEV void softmax_step(running &w, score_tile &s, row_pair &keep)
{
#pragma unroll
    for (int t = 0; t < spec::tiles; t++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float f = plain ? w.factor[t][half] : 1.0f;
            float top = w.m[t][half], sum = 0.0f;
#pragma unroll
            for (int j = 0; j < spec::keys / 8; j++) {
                top = fmaxf(top, fmaxf(s[t][j][2 * half], s[t][j][2 * half + 1]));
            }
            top = quad_max(top);
            const float base = top == -QN_INF ? 0.0f : top * f;
            keep[t][half] = ptx_exp2(w.m[t][half] * f - base);
            w.m[t][half] = top;
#pragma unroll
            for (int j = 0; j < spec::keys / 8; j++) {
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; e++) {
                    s[t][j][e] = ptx_exp2(s[t][j][e] * f - base);
                    sum += s[t][j][e];
                }
            }
            w.l[t][half] = w.l[t][half] * keep[t][half] + sum;
        }
    }
}

// Weights as halves; sums of values brought to the new maximum.
QN_DEV void take_weights(running &w, weight_tile &weights, const score_tile &s, const row_pair &keep)
{
#pragma unroll
    for (int t = 0; t < spec::tiles; t++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int j = 0; j < spec::keys / 8; j++) {
                weights[t][j][half] = pack_half(s[t][j][2 * half], s[t][j][2 * half + 1]);
            }
#pragma unroll
            for (int j = 0; j < v_pad / 8; j++) {
                w.o[t][j][2 * half] *= keep[t][half];
                w.o[t][j][2 * half + 1] *= keep[t][half];
            }
        }
    }
}

// A row's values as f16, 8 bytes a lane: neighbours swap halves, so that a quad fills whole sectors. dst: of
// the row's first value.
QN_DEV void write_half_row16(const float (*o)[4], int half, float inverse, half_t *dst, bool there)
{
    const int lane = (int)threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < v_pad / 8; j += 2) {
        const u32 a = pack_half(o[j][2 * half] * inverse, o[j][2 * half + 1] * inverse),
                  b = pack_half(o[j + 1][2 * half] * inverse, o[j + 1][2 * half + 1] * inverse),
                  other = __shfl_xor_sync(0xffffffffu, lane & 1 ? a : b, 1);
        const int d = 8 * j + (lane & 1) * 8 + (lane & 2) * 2;
        if (there && d < spec::v_dim) {
            *(u64 *)(dst + d) = (u64)(lane & 1 ? b : other) << 32 | (lane & 1 ? other : a);
        }
    }
}

// Where spec::half_out, results go out as the next product's 16-bit rows: they lie between the values, which
// are f16, so that no factor is needed (1 in row_scale); as f32 where spec::f32_out.
QN_DEV void write_rows(const running &w, float *out, i64 out_stride, half_t *half_rows, float *row_scale,
                       const place &p, int n_rows)
{
#pragma unroll
    for (int t = 0; t < spec::tiles; t++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float inverse = 1.0f / quad_sum(w.l[t][half]);
            const int r = row_of(t, half), token = r / spec::heads, h = p.head0 + r % spec::heads;
            const bool there = token < tokens && p.row0 + token < n_rows;
            if constexpr (spec::half_out == 1 && !spec::f32_out && spec::v_dim % 16 == 0 && v_pad % 16 == 0 &&
                          spec::v_dim % v_pad == 0) {
                const i64 row = there ? p.row0 + token : 0;
                write_half_row16(w.o[t], half, inverse,
                                 half_rows + row * (spec::n_head * spec::v_dim) + h * spec::v_dim + p.v0,
                                 there);
                if (there && h == 0 && p.v0 == 0 && threadIdx.x % 4 == 0) {
                    row_scale[row] = 1.0f;
                }
                continue;
            }
            if (!there) {
                continue;
            }
            float *dst = out + (p.row0 + token) * out_stride + h * spec::v_dim + p.v0;
            half_t *dst16 =
                half_rows + (i64)(p.row0 + token) * (spec::n_head * spec::v_dim) + h * spec::v_dim + p.v0;
            if (spec::half_out && h == 0 && p.v0 == 0 && threadIdx.x % 4 == 0) {
                row_scale[p.row0 + token] = 1.0f;
            }
#pragma unroll
            for (int j = 0; j < v_pad / 8; j++) {
                const int d = j * 8 + (int)threadIdx.x % 4 * 2;
                const float a = w.o[t][j][2 * half] * inverse, b = w.o[t][j][2 * half + 1] * inverse;
                if (spec::half_out && p.v0 + d < spec::v_dim) { // v_dim is even
                    *(u32 *)(dst16 + d) = spec::half_out == 2
                                              ? (u32)float_to_bf16(a) | (u32)float_to_bf16(b) << 16
                                              : pack_half(a, b);
                }
                if (spec::f32_out && p.v0 + d < spec::v_dim) {
                    dst[d] = a;
                }
                if (spec::f32_out && p.v0 + d + 1 < spec::v_dim) {
                    dst[d + 1] = b;
                }
            }
        }
    }
}

#endif
