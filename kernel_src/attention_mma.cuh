// attention_mma.cuh: attention of few query rows on the tensor cores, keys split over blocks: what the
// kernels that read their queries (attention_mma.cu) and that finish them (attention_rope.cu) share. One
// block: one row, up to spec::heads query heads of one KV head, one part of the keys; each of its warps takes
// tiles of 16 keys on its own, with its own ring of copies in flight and its own online softmax (Dao et al.,
// FlashAttention, 2022). Products are made the other way round than for prompts (scores as keys x queries,
// results as dimensions x queries): then 8 query heads, not 16, fill a fragment. Warps are merged in shared
// memory, blocks by the one that finishes last. The result is f32 and, where spec::q8_out, 8-bit groups too
// (v_dim is a multiple of 32 then). k_dim and v_dim are multiples of 8. defines: place, running, find_heads,
// find_keys, fit_half, take_queries, take_ready, reset, all_tiles, ...
// grid: (n_head_kv * head_chunks, n_split, rows): with few keys, blocks that have any come first, for the
// others leave only when they know the position, and take places until then; block: 32 * spec::warps; shared:
// the larger of the warps' rings (warps * warp_bytes) and their records (warps * heads * (record + 2) + 4
// floats). parts: [rows][n_head][n_split][v_dim + 2]: maximum, sum, values not yet divided. arrived:
// [rows][n_head_kv * head_chunks] counters, zero before and after.
#ifndef QN_ATTENTION_MMA_CUH
#define QN_ATTENTION_MMA_CUH
#include "kv_q8.cuh"

constexpr int per_kv = spec::n_head / spec::n_head_kv;
constexpr int head_chunks = (per_kv + spec::heads - 1) / spec::heads;
constexpr int q_tiles = (spec::heads + 7) / 8; // of 8 query heads
constexpr int KEYS = 16;                       // of a tile
constexpr int k_pad = (spec::k_dim + 15) / 16 * 16, v_pad = (spec::v_dim + 15) / 16 * 16;
constexpr int k_steps = k_pad / 16, v_tiles = v_pad / 16;
constexpr int k_pitch = k_pad + 8, v_pitch = v_pad + 8; // odd numbers of 16 bytes: no bank conflicts
// Bytes of a tile as it is copied (halves, or in 8 bits: spec::k_q8, v_q8) and, in 8 bits, unpacked.
constexpr int k_tile = KEYS * (spec::k_q8 ? kv_unit<spec::k_dim, 1> : 2 * k_pitch);
constexpr int v_tile = KEYS * (spec::v_q8 ? kv_unit<spec::v_dim, 1> : 2 * v_pitch);
constexpr int k_open = spec::k_q8 ? 2 * KEYS * k_pitch : 0, v_open = spec::v_q8 ? 2 * KEYS * v_pitch : 0;
constexpr int warp_bytes = spec::stages * (k_tile + v_tile) + k_open + v_open;
constexpr int record = v_pad + 4; // a head's values of a warp
constexpr int part_size = spec::v_dim + 2;
constexpr int v_groups = (spec::v_dim + WARP - 1) / WARP;
constexpr bool plain = spec::softcap == 0.0f && spec::alibi_max_bias == 0.0f;
constexpr float log2_e = 1.44269504088896340736f;

// Where a block stands: its row and that row's position, its query heads, its KV head; keys seen: low .. pos,
// of which those up to `cached` are in the cache; its part, of how many, with tiles first .. end. column: its
// heads' number.
struct place {
    int row, pos, column, h0, n_h, g, low, cached, first, end, part, n_part;
    i64 seq_row; // first cache row of its sequence
};

// What a thread carries over its warp's tiles. Of queries 2 * (lane % 4) and the next of each 8: the maximum
// (of scores as they come out of the product), its share of the sum, the factor of the scores (with log2 e)
// and the ALiBi slope. Queries as fragments; sums of values, 16 dimensions x 8 queries a fragment.
struct running {
    float m[q_tiles][2], l[q_tiles][2], factor[q_tiles][2], slope[q_tiles][2];
    u32 q[k_steps][q_tiles][2];
    float o[v_tiles][q_tiles][4];
};

// The same in all lanes, and known to be: loops over it do not diverge.
QN_DEV int warp_index()
{
    return __shfl_sync(0xffffffffu, (int)(threadIdx.x / WARP), 0);
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

QN_DEV void take_part(place &p, u32 column, u32 part)
{
    p.column = column;
    p.part = part;
    p.g = column / head_chunks;
    p.h0 = p.g * per_kv + column % head_chunks * spec::heads;
    p.n_h = min(spec::heads, (p.g + 1) * per_kv - p.h0);
}

// The heads and the part of this block, as find_keys leaves them but where all blocks have keys.
QN_DEV void find_heads(place &p)
{
    p.row = blockIdx.z;
    take_part(p, blockIdx.x, blockIdx.y);
}

// Its keys. Up to spec::alone tiles stay in one block; a part has at least spec::least of them. false: it has
// nothing to do. Where all blocks have keys, those that start first take the parts of the first heads, so
// that not all heads end with the last blocks. cached: is the key of the row itself in the cache?
QN_DEV bool find_keys(place &p, const qn_state *st, bool cached)
{
    const u32 number = blockIdx.y * gridDim.x + blockIdx.x, column = number / gridDim.y;
    // All that may be asked for at once; there are at most 8 rows.
    const qn_row own = st->rows[p.row % 8];
    const int many = st->many, pos = st->pos + p.row, seq = st->seq, n_rows = st->n_rows;
    p.pos = many ? own.pos : pos;
    p.seq_row = (i64)(many ? own.seq : seq) * spec::kv_rows;
    p.low = spec::window > 0 ? max(0, p.pos - spec::window + 1) : 0;
    p.cached = cached ? p.pos : p.pos - 1;
    const int tile0 = p.low / KEYS, n_tile = p.pos / KEYS + 1 - tile0, n_block = gridDim.y;
    int share = n_tile;
    p.n_part = 1;
    if (n_tile > spec::alone) {
        share = max(spec::least, (n_tile + n_block - 1) / n_block);
        p.n_part = (n_tile + share - 1) / share;
    }
    if (p.n_part == n_block) {
        take_part(p, column, number - column * gridDim.y);
    }
    p.first = tile0 + p.part * share;
    p.end = min(tile0 + n_tile, p.first + share);
    return p.part < p.n_part && p.row < n_rows;
}

// Dimensions d and d + 1 of a query head, VEC floats a load; zero beyond k_dim and where there is no such
// head.
template <int VEC> QN_DEV void load_pair(float v[2], const float *q, int d, bool there)
{
    if constexpr (VEC == 2) {
        f32x2 x = {0.0f, 0.0f};
        if (there && d < spec::k_dim) {
            x = *(const f32x2 *)(q + d);
        }
        v[0] = x.x;
        v[1] = x.y;
    } else {
        v[0] = there && d < spec::k_dim ? q[d] : 0.0f;
        v[1] = there && d + 1 < spec::k_dim ? q[d + 1] : 0.0f;
    }
}

// A power of two that brings values of at most `top` into [2^14, 2^15), so that none leaves f16's range; *up
// takes it back exactly.
QN_DEV float fit_half(float top, float *up)
{
    int e = (int)((__float_as_uint(top) >> 23) & 0xff) - 127 - 14;
    e = top == 0.0f ? 0 : e < -100 ? -100 : e;
    *up = __uint_as_float((u32)(127 + e) << 23);
    return __uint_as_float((u32)(127 - e) << 23);
}

// Queries as halves, from rows of floats PITCH apart: of head lane / 4 of each 8, dimensions 2 * (lane % 4)
// and the next, and these + 8, of each 16. The scores, in f32, take fit_half's factor back.
template <int PITCH, int VEC> QN_DEV void take_queries(running &r, const float *q, const place &p)
{
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int t = 0; t < q_tiles; t++) {
        const int h = 8 * t + lane / 4;
        const float *from = q + h * PITCH;
        float top = 0.0f, v[4];
#pragma unroll 4
        for (int d = 2 * (lane % 4); d < k_pad; d += 8) {
            load_pair<VEC>(v, from, d, h < p.n_h);
            top = fmaxf(top, fmaxf(fabsf(v[0] * spec::scale), fabsf(v[1] * spec::scale)));
        }
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        float up;
        const float down = fit_half(top, &up);
#pragma unroll
        for (int k = 0; k < k_steps; k++) {
            load_pair<VEC>(v, from, 16 * k + 2 * (lane % 4), h < p.n_h);
            load_pair<VEC>(v + 2, from, 16 * k + 2 * (lane % 4) + 8, h < p.n_h);
            r.q[k][t][0] = ptx_pack_half(v[0] * spec::scale * down, v[1] * spec::scale * down);
            r.q[k][t][1] = ptx_pack_half(v[2] * spec::scale * down, v[3] * spec::scale * down);
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int query = 2 * (lane % 4) + i;
            r.factor[t][i] = __shfl_sync(0xffffffffu, up, 4 * query) * log2_e;
            r.slope[t][i] = spec::alibi_max_bias > 0.0f ? alibi_slope(p.h0 + 8 * t + query) * log2_e : 0.0f;
        }
    }
}

// The same from rows of halves k_pitch apart that have been brought there, and from what takes that back.
QN_DEV void take_ready(running &r, const half_t *q, const float *up, const place &p)
{
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int t = 0; t < q_tiles; t++) {
        const bool there = 8 * t + lane / 4 < p.n_h;
        const half_t *from = q + (there ? 8 * t + lane / 4 : 0) * k_pitch + 2 * (lane % 4);
#pragma unroll
        for (int k = 0; k < k_steps; k++) {
            r.q[k][t][0] = there ? *(const u32 *)(from + 16 * k) : 0;
            r.q[k][t][1] = there ? *(const u32 *)(from + 16 * k + 8) : 0;
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int query = 8 * t + 2 * (lane % 4) + i;
            r.factor[t][i] = query < p.n_h ? up[query] * log2_e : 1.0f;
            r.slope[t][i] = spec::alibi_max_bias > 0.0f ? alibi_slope(p.h0 + query) * log2_e : 0.0f;
        }
    }
}

QN_DEV void reset(running &r)
{
    no_value(r.q);
#pragma unroll
    for (int t = 0; t < q_tiles; t++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            r.m[t][i] = -QN_INF;
            r.l[t][i] = r.slope[t][i] = 0.0f;
            r.factor[t][i] = 1.0f;
        }
#pragma unroll
        for (int j = 0; j < v_tiles; j++) {
            r.o[j][t][0] = r.o[j][t][1] = r.o[j][t][2] = r.o[j][t][3] = 0.0f;
        }
    }
}

// The row of the cache that lies `n` behind row `ring`.
QN_DEV int wrapped(int ring, int n)
{
    const int row = ring + n;
    if constexpr (spec::kv_rows < KEYS) {
        return row % spec::kv_rows;
    } else {
        return row < spec::kv_rows ? row : row - spec::kv_rows;
    }
}

// This lane's chunks of 16 bytes, `across` apart, of row r of a tile; zero where !there.
template <int CHUNKS, int ACROSS, int DOWN>
QN_DEV void copy_chunks(u8 *to, const u8 *from, int r, int c0, bool there)
{
#pragma unroll
    for (int c = 0; c < CHUNKS; c += ACROSS) {
        if ((KEYS % DOWN == 0 || r < KEYS) && (CHUNKS % ACROSS == 0 || c + c0 < CHUNKS)) {
            ptx_copy_async16(to + 16 * c, from + 16 * c, there);
        }
    }
}

// Keys `first` and the next 15 of a KV head, BYTES each and ROW bytes apart in the cache, into a tile; those
// that are not seen become zero. Most tiles lie whole in the cache and are seen whole: there the rows need no
// care.
template <int BYTES, int PITCH, int ROW>
QN_DEV void copy_tile(u8 *tile, const u8 *head, int first, const place &p)
{
    constexpr int chunks = BYTES / 16, across = chunks < WARP ? chunks : WARP, down = WARP / across;
    const int lane = threadIdx.x % WARP, r0 = lane / across, c0 = lane % across;
    const int ring = first % spec::kv_rows;
    const bool whole = first >= p.low && first + KEYS <= p.cached + 1 && ring + KEYS <= spec::kv_rows;
    if (WARP % across != 0 && r0 >= down) {
        return;
    }
    u8 *to = tile + r0 * PITCH + 16 * c0;
    if (whole) {
        const u8 *from = head + (i64)(ring + r0) * ROW + 16 * c0;
#pragma unroll
        for (int r = 0; r < KEYS; r += down) {
            copy_chunks<chunks, across, down>(to + r * PITCH, from + r * ROW, r + r0, c0, true);
        }
    } else {
#pragma unroll
        for (int r = 0; r < KEYS; r += down) {
            const u8 *from = head + (i64)wrapped(ring, r + r0) * ROW + 16 * c0;
            const bool there = (u32)(first + r + r0 - p.low) < (u32)(p.cached + 1 - p.low);
            copy_chunks<chunks, across, down>(to + r * PITCH, from, r + r0, c0, there);
        }
    }
}

QN_DEV void copy_keys(u8 *tile, const u8 *head, int first, const place &p)
{
    copy_tile<kv_unit<spec::k_dim, spec::k_q8>, k_tile / KEYS, kv_row_bytes<spec::k_dim, spec::k_q8>>(
        tile, head, first, p);
}

QN_DEV void copy_values(u8 *tile, const u8 *head, int first, const place &p)
{
    copy_tile<kv_unit<spec::v_dim, spec::v_q8>, v_tile / KEYS, kv_row_bytes<spec::v_dim, spec::v_q8>>(
        tile, head, first, p);
}

// A tile as halves: as it was copied, or (Q8) unpacked to `open`.
template <int DIM, int PITCH, int Q8> QN_DEV half_t *open_tile(u8 *tile, half_t *open)
{
    if constexpr (Q8) {
        constexpr int chunks = DIM / 16, unit = kv_unit<DIM, 1>;
#pragma unroll
        for (int i = threadIdx.x % WARP; i < KEYS * chunks; i += WARP) {
            const int r = i / chunks, c = i % chunks;
            const u8 *from = tile + r * unit;
            u32x4 h[2];
            kv_unpack16(h, ((const u32x4 *)from)[c], ((const half_t *)(from + DIM))[c / 2]);
            u32x4 *to = (u32x4 *)(open + r * PITCH) + 2 * c;
            to[0] = h[0];
            to[1] = h[1];
        }
        __syncwarp();
        return open;
    } else {
        return (half_t *)tile;
    }
}

// Columns beyond DIM of n_row rows become zero: nothing else writes there.
template <int DIM, int PITCH> QN_DEV void clear_padding(half_t *rows, int n_row)
{
    if constexpr (DIM % 16 != 0) {
        for (int r = threadIdx.x % WARP; r < n_row; r += WARP) {
            *(u32x4 *)(rows + r * PITCH + DIM) = u32x4{0, 0, 0, 0};
        }
    }
}

typedef float score_tile[q_tiles][4];

// s = k q^T: of keys lane / 4 and lane / 4 + 8, queries 2 * (lane % 4) and the next. Two sums, for a shorter
// chain.
QN_DEV void scores(score_tile &s, const running &r, const half_t *k_s)
{
    const int lane = threadIdx.x % WARP;
    const half_t *at = k_s + lane % 16 * k_pitch + lane / 16 * 8;
    score_tile odd;
#pragma unroll
    for (int t = 0; t < q_tiles; t++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s[t][i] = odd[t][i] = 0.0f;
        }
    }
#pragma unroll
    for (int k = 0; k < k_steps; k++) {
        u32 a[4];
        ptx_ldmatrix_x4(a, at + 16 * k);
#pragma unroll
        for (int t = 0; t < q_tiles; t++) {
            ptx_mma_f16(k % 2 ? odd[t] : s[t], a, r.q[k][t]);
        }
    }
#pragma unroll
    for (int t = 0; t < q_tiles; t++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s[t][i] += odd[t][i];
        }
    }
}

// Soft-cap and ALiBi where there are any (the scores then hold log2 of the weights); -inf where a key is not
// seen.
QN_DEV void shape_scores(score_tile &s, const running &r, int first, const place &p)
{
    if (plain && first >= p.low && first + KEYS - 1 <= p.pos) {
        return;
    }
#pragma unroll
    for (int t = 0; t < q_tiles; t++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int key = first + (int)(threadIdx.x % WARP) / 4 + i / 2 * 8;
            float x = s[t][i];
            if constexpr (!plain) {
                x *= r.factor[t][i % 2];
            }
            if constexpr (spec::softcap > 0.0f) {
                x = spec::softcap * log2_e * tanhf(x * (1.0f / (log2_e * spec::softcap)));
            }
            if constexpr (spec::alibi_max_bias > 0.0f) {
                x -= r.slope[t][i % 2] * (float)(p.pos - key);
            }
            s[t][i] = key >= p.low && key <= p.pos ? x : -QN_INF;
        }
    }
}

// One step of the online softmax, and o += v^T weights.
QN_DEV void softmax_step(running &r, score_tile &s)
{
#pragma unroll
    for (int t = 0; t < q_tiles; t++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float f = plain ? r.factor[t][i] : 1.0f;
            float top = fmaxf(s[t][i], s[t][i + 2]);
#pragma unroll
            for (int d = 4; d < WARP; d *= 2) {
                top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, d));
            }
            top = fmaxf(top, r.m[t][i]);
            const float base = top == -QN_INF ? 0.0f : top * f, keep = ptx_exp2(r.m[t][i] * f - base);
            r.m[t][i] = top;
            s[t][i] = ptx_exp2(s[t][i] * f - base);
            s[t][i + 2] = ptx_exp2(s[t][i + 2] * f - base);
            r.l[t][i] = r.l[t][i] * keep + s[t][i] + s[t][i + 2];
#pragma unroll
            for (int j = 0; j < v_tiles; j++) {
                r.o[j][t][i] *= keep;
                r.o[j][t][i + 2] *= keep;
            }
        }
    }
}

QN_DEV void add_values(running &r, const score_tile &s, const half_t *v_s)
{
    const int lane = threadIdx.x % WARP;
    const half_t *at = v_s + (lane % 8 + lane / 16 * 8) * v_pitch + lane / 8 % 2 * 8;
    u32 w[q_tiles][2];
#pragma unroll
    for (int t = 0; t < q_tiles; t++) {
        w[t][0] = ptx_transpose(ptx_pack_half(s[t][0], s[t][1]));
        w[t][1] = ptx_transpose(ptx_pack_half(s[t][2], s[t][3]));
    }
#pragma unroll
    for (int j = 0; j < v_tiles; j++) {
        u32 a[4];
        ptx_ldmatrix_x4_trans(a, at + 16 * j);
#pragma unroll
        for (int t = 0; t < q_tiles; t++) {
            ptx_mma_f16(r.o[j][t], a, w[t]);
        }
    }
}

// This warp's tiles. A place in the ring is filled again as soon as it has been read: 2 * stages copies
// (keys, values, keys, ...) are under way, and the oldest is waited for. The first `stages` turns, which
// every warp makes, only fill; then `rows` gives the queries (with keys enough for several blocks after the
// first turn: a block's loads take turns, and it would stand and wait until it may send the second's), and
// later the keys and values that are not in the cache.
template <class ROWS>
QN_DEV void all_tiles(running &r, ROWS &rows, const u8 *k_cache, const u8 *v_cache, const place &p)
{
    constexpr int IN_FLIGHT = 2 * spec::stages - 1, AHEAD = spec::stages * spec::warps;
    const int warp = warp_index(), first = p.first + warp;
    u8 *k_s = qn_shared<u8>(0) + warp * warp_bytes, *v_s = k_s + spec::stages * k_tile;
    half_t *k_out = (half_t *)(v_s + spec::stages * v_tile), *v_out = k_out + k_open / 2;
    const u8 *k_head = k_cache + (p.seq_row * spec::n_head_kv + p.g) * kv_unit<spec::k_dim, spec::k_q8>;
    const u8 *v_head = v_cache + (p.seq_row * spec::n_head_kv + p.g) * kv_unit<spec::v_dim, spec::v_q8>;
    int turn = 0;
    if (!spec::k_q8) { // 8-bit heads have a multiple of 32 values
        clear_padding<spec::k_dim, k_pitch>((half_t *)k_s, spec::stages * KEYS);
    }
    if (!spec::v_q8) {
        clear_padding<spec::v_dim, v_pitch>((half_t *)v_s, spec::stages * KEYS);
    }
#pragma unroll 1
    for (int next = first; next < p.end + AHEAD; next += spec::warps) {
        u8 *k_at = k_s + turn * k_tile, *v_at = v_s + turn * v_tile;
        const int tile = next - AHEAD;
        score_tile s;
        if (tile >= first) {
            ptx_copy_wait<IN_FLIGHT>();
            __syncwarp();
            half_t *keys = open_tile<spec::k_dim, k_pitch, spec::k_q8>(k_at, k_out);
            rows.put_key(keys, tile, p);
            scores(s, r, keys);
            __syncwarp();
        } else {
            no_value(s);
        }
        if (next < p.end) {
            copy_keys(k_at, k_head, next * KEYS, p);
        }
        ptx_copy_commit();
        if (tile >= first) {
            shape_scores(s, r, tile * KEYS, p);
            softmax_step(r, s);
            ptx_copy_wait<IN_FLIGHT>();
            __syncwarp();
            half_t *values = open_tile<spec::v_dim, v_pitch, spec::v_q8>(v_at, v_out);
            rows.put_value(values, tile, p);
            add_values(r, s, values);
            __syncwarp();
        }
        if (next < p.end) {
            copy_values(v_at, v_head, next * KEYS, p);
        }
        ptx_copy_commit();
        if (next == first + (p.n_part > 1 ? 0 : AHEAD - spec::warps)) {
            rows.queries(r, p);
        }
        turn = turn + 1 == spec::stages ? 0 : turn + 1;
    }
}

#endif
