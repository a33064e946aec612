// attention_prefill.cu: attention of many query rows on the tensor cores, keys in tiles, online softmax
// (Dao et al., FlashAttention, 2022; FlashAttention-2, 2023).
// One block: spec::heads query heads of one KV head at `tokens` positions, packed into the rows of one
// matrix, so that each tile of K and V serves the whole group; spec::v_part of the values' dimensions. Blocks
// with the most keys start first. grid: (n_head / heads, blocks of tokens, parts of v_dim); block: 32 *
// spec::warps; shared: queries [block_rows][k_pitch], then spec::stages times K [keys][k_pitch] and V
// [keys][v_pitch], halves. spec::tiles: 16-row tiles of a warp; spec::keys: keys of a tile; spec::kv_rows:
// rows of the cache, position p in row p % kv_rows; spec::q_vec: floats of q that one load takes.
#include "reduce.cuh"

constexpr int group = spec::n_head / spec::n_head_kv;
constexpr int threads = WARP * spec::warps;
constexpr int warp_rows = 16 * spec::tiles, block_rows = spec::warps * warp_rows;
constexpr int tokens = block_rows / spec::heads;
constexpr int k_pad = (spec::k_dim + 15) / 16 * 16, v_pad = spec::v_part;
constexpr int k_pitch = k_pad + 8, v_pitch = v_pad + 8; // an odd number of 16-byte chunks: no bank conflicts
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
    return (int)(threadIdx.x / WARP) * warp_rows + t * 16 + half * 8 + (int)(threadIdx.x % WARP) / 4;
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

QN_DEV u32 pack_half(float low, float high)
{
    if constexpr (spec::variant >= 80) {
        return ptx_pack_half(low, high);
    } else {
        return (u32)float_to_half(low) | (u32)float_to_half(high) << 16;
    }
}

// Queries of this warp's rows as halves in shared memory. Each row is scaled by a power of two so that its
// largest value lies in [2^14, 2^15): none leaves f16's range, and the scores, in f32, take the factor back
// exactly.
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
            int e = (int)((__float_as_uint(top) >> 23) & 0xff) - 127 - 14;
            e = top == 0.0f ? 0 : e < -100 ? -100 : e;
            const float down = __uint_as_float((u32)(127 - e) << 23);
            w.factor[t][half] = __uint_as_float((u32)(127 + e) << 23) * log2_e;
            w.slope[t][half] = spec::alibi_max_bias > 0.0f ? alibi_slope(h) * log2_e : 0.0f;
            w.m[t][half] = -QN_INF;
            w.l[t][half] = 0.0f;
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

// Rows first .. first + keys - 1 of a cache into a tile, dimensions from d0 on, PAD of them; keys that no row
// sees become zero. Most tiles lie whole in the cache: there the rows need no care.
template <int DIM, int PAD, int ROW>
QN_DEV void load_tile(half_t *tile, const half_t *cache, int d0, int first, const place &p)
{
    constexpr int chunks = PAD / 8, n = spec::keys * chunks, pitch = PAD + 8,
                  passes = (n + threads - 1) / threads;
    constexpr bool even = threads % chunks == 0 && n % threads == 0; // a thread keeps its column
    const int ring = first % spec::kv_rows, r0 = (int)threadIdx.x / chunks, c0 = (int)threadIdx.x % chunks;
    if (even && first >= p.low && first + spec::keys <= p.end && ring + spec::keys <= spec::kv_rows) {
        const half_t *src = cache + (i64)(ring + r0) * ROW;
        half_t *dst = tile + r0 * pitch + 8 * c0;
#pragma unroll
        for (int k = 0; k < passes; k++) {
            constexpr int rows = threads / chunks;
            copy_chunk<DIM>(dst + k * rows * pitch, src + (i64)k * rows * ROW, c0 + d0 / 8, true);
        }
        return;
    }
#pragma unroll 2
    for (int k = 0; k < passes; k++) {
        const int i = k * threads + (int)threadIdx.x, r = i / chunks, c = i % chunks;
        if (n % threads == 0 || i < n) {
            const bool there = first + r >= p.low && first + r < p.end;
            const int row = (ring + r) % spec::kv_rows;
            copy_chunk<DIM>(tile + r * pitch + 8 * c, cache + (i64)(there ? row : 0) * ROW, c + d0 / 8,
                            there);
        }
    }
}

QN_DEV void load_keys(half_t *tile, const half_t *k_cache, int first, const place &p)
{
    load_tile<spec::k_dim, k_pad, k_row>(tile, k_cache + p.g * spec::k_dim, 0, first, p);
}

QN_DEV void load_values(half_t *tile, const half_t *v_cache, int first, const place &p)
{
    load_tile<spec::v_dim, v_pad, v_row>(tile, v_cache + p.g * spec::v_dim, p.v0, first, p);
}

QN_DEV void commit()
{
    if constexpr (spec::variant >= 80) {
        ptx_copy_commit();
    }
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

typedef float score_tile[spec::tiles][spec::keys / 8][4];
typedef u32 weight_tile[spec::tiles][spec::keys / 8][2];

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

// One step of the online softmax: weights of the tile as halves, sums so far brought to the new maximum.
QN_DEV void softmax_step(running &w, weight_tile &weights, const score_tile &s)
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
            const float base = top == -QN_INF ? 0.0f : top * f, keep = ptx_exp2(w.m[t][half] * f - base);
            w.m[t][half] = top;
#pragma unroll
            for (int j = 0; j < spec::keys / 8; j++) {
                const float x = ptx_exp2(s[t][j][2 * half] * f - base);
                const float y = ptx_exp2(s[t][j][2 * half + 1] * f - base);
                sum += x + y;
                weights[t][j][half] = pack_half(x, y);
            }
            w.l[t][half] = w.l[t][half] * keep + sum;
#pragma unroll
            for (int j = 0; j < v_pad / 8; j++) {
                w.o[t][j][2 * half] *= keep;
                w.o[t][j][2 * half + 1] *= keep;
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

QN_DEV void write_rows(const running &w, float *out, i64 out_stride, const place &p, int n_rows)
{
#pragma unroll
    for (int t = 0; t < spec::tiles; t++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float inverse = 1.0f / quad_sum(w.l[t][half]);
            const int r = row_of(t, half), token = r / spec::heads, h = p.head0 + r % spec::heads;
            if (token >= tokens || p.row0 + token >= n_rows) {
                continue;
            }
            float *dst = out + (p.row0 + token) * out_stride + h * spec::v_dim + p.v0;
#pragma unroll
            for (int j = 0; j < v_pad / 8; j++) {
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const int d = j * 8 + (int)threadIdx.x % 4 * 2 + e;
                    if (p.v0 + d < spec::v_dim) {
                        dst[d] = w.o[t][j][2 * half + e] * inverse;
                    }
                }
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
        softmax_step(w, weights, s);
        add_values(w, weights, v_s);
    }
}

extern "C" __global__ void __launch_bounds__(threads)
    QN_KERNEL(const qn_state *st, const float *q, i64 q_stride, const half_t *k_cache, const half_t *v_cache,
              float *out, i64 out_stride)
{
    const int n_rows = st->n_rows, n_block = (n_rows + tokens - 1) / tokens,
              block = n_block - 1 - (int)blockIdx.y;
    if (block < 0) {
        return;
    }
    place p;
    p.row0 = block * tokens;
    p.pos0 = st->pos + p.row0;
    p.head0 = (int)blockIdx.x * spec::heads;
    p.g = p.head0 / group;
    p.v0 = (int)blockIdx.z * v_pad;
    p.low = spec::window > 0 ? max(0, p.pos0 - spec::window + 1) : 0;
    p.end = min(p.pos0 + tokens, st->pos + n_rows);
    half_t *shared = qn_shared<half_t>(0);
    running w;
#pragma unroll
    for (int t = 0; t < spec::tiles; t++) {
#pragma unroll
        for (int j = 0; j < v_pad / 8; j++) {
            w.o[t][j][0] = w.o[t][j][1] = w.o[t][j][2] = w.o[t][j][3] = 0.0f;
        }
    }
    load_queries(w, shared, q, q_stride, p, n_rows);
    all_tiles(w, shared, k_cache, v_cache, p);
    write_rows(w, out, out_stride, p, n_rows);
}
