// product_wgmma.cu: out = a * w^T of f16 rows and a quantised weight as its planes (planes.cuh), or f16 rows,
// by the products of warpgroups (sm_90a): weights become f16 in the registers of those who multiply, the same
// bits as dequant.cu's, so no 16-bit copy of them is ever written. a: [rows][n_in], factors a row undone by
// who reads out. A warpgroup has 64 outputs (the left operand, in registers) and all spec::tokens rows of the
// tile (the right operand, in shared memory). Another warpgroup fetches: activations by tensor copies, codes
// by asynchronous copies, scales through registers, as float pairs. spec::stages steps of 64 values are under
// way, each with a full and an empty barrier. Up to three weights of one type side by side; blocks stay and
// take tiles in turns, outputs first. grid: as many blocks as fit; block: 128 * (spec::groups + 1); shared:
// 1024 to align, stages * stage_bytes, barriers. map: boxes of 64 values x 64 rows of a; rows: their number
// on the device. spec::dtype.
#include "planes.cuh"
#include "reduce.cuh"

constexpr int DT = spec::dtype;
typedef planes<spec::dtype> P;
enum { STEP = 64, PER_STEP = STEP / GROUP, BOX = 64, FETCHERS = 128 };
constexpr int tile_rows = 64 * spec::groups, multipliers = 128 * spec::groups, box_bytes = BOX * STEP * 2;
constexpr bool plain = DT == DT_F16, large = spec::groups > 1;
constexpr bool two_scales = DT == DT_Q6_K || DT == DT_Q3_K || DT == DT_Q2_K;
constexpr bool centred = DT == DT_Q4_0 || DT == DT_Q5_0; // value = (code - zero) * a
constexpr bool shifted = DT == DT_Q4_1 || DT == DT_Q5_1 || DT == DT_Q4_K || DT == DT_Q5_K || DT == DT_Q2_K;
constexpr bool is_signed =
    DT == DT_Q8_0 || DT == DT_Q6_K || DT == DT_Q3_K || DT == DT_IQ4_NL || DT == DT_IQ4_XS;
constexpr int n_affine = plain ? 0 : (two_scales ? 2 : 1) * (shifted ? 2 : 1);
constexpr bool copied = P::q_bytes >= 16; // codes go by asynchronous copies
// Bytes from one row to the next: eight rows' pieces lie in different banks.
constexpr int q_pitch = PER_STEP * P::q_bytes + (copied ? 16 : 0), h_pitch = PER_STEP * P::h_bytes,
              a_pitch = PER_STEP * n_affine * 4;
constexpr int q_at = spec::tokens * STEP * 2, h_at = q_at + tile_rows * q_pitch,
              a_at = h_at + tile_rows * h_pitch;
constexpr int stage_bytes = (a_at + tile_rows * a_pitch + 1023) / 1024 * 1024;
constexpr int items =
    tile_rows * PER_STEP / FETCHERS; // (row, group) pairs of a step that a fetching thread has

struct areas {
    u8 *stages;
    u64 *full, *empty;
};

QN_DEV areas find_areas()
{
    u8 *base = qn_shared<u8>(0);
    base += (1024 - ptx_shared_address(base) % 1024) % 1024;
    u64 *full = (u64 *)(base + spec::stages * stage_bytes);
    return areas{base, full, full + spec::stages};
}

// The tensors of a launch: up to three weights, their outputs side by side.
struct weights_of {
    const u8 *w[3];
    int n_out[3], n_in, n_group, n_rows, n_tile_out;
};

struct tile_place {
    const u8 *w;
    int n_out, out0, column, row0; // of the weight; of `out`; first row of activations
};

QN_DEV int tiles_of(int n_out)
{
    return (n_out + tile_rows - 1) / tile_rows;
}

QN_DEV tile_place place_of_tile(const weights_of &t, int tile)
{
    tile_place p;
    int i = tile % t.n_tile_out, column = 0, k = 0;
    p.row0 = tile / t.n_tile_out * spec::tokens;
    for (; k < 2 && i >= tiles_of(t.n_out[k]); k++) {
        i -= tiles_of(t.n_out[k]);
        column += t.n_out[k];
    }
    p.w = k == 0 ? t.w[0] : k == 1 ? t.w[1] : t.w[2];
    p.n_out = k == 0 ? t.n_out[0] : k == 1 ? t.n_out[1] : t.n_out[2];
    p.out0 = i * tile_rows;
    p.column = column + p.out0;
    return p;
}

// What a fetching thread has of the planes: row thread / 2 (and the one APART behind it), groups of its
// parity.
enum { APART = FETCHERS / PER_STEP };
struct source {
    plane_ptr p;
    int q, h, s, d; // bytes from its first row to its second
    bool there[items];
};

QN_DEV int item_row(int i)
{
    return (int)(threadIdx.x % FETCHERS) / PER_STEP + i * APART;
}

QN_DEV void find_source(source &s, const weights_of &t, const tile_place &p)
{
    const int places = n_places(t.n_group);
#pragma unroll
    for (int i = 0; i < items; i++) {
        s.there[i] = p.out0 + item_row(i) < p.n_out;
    }
    s.p = row_planes<DT>(p.w, p.n_out, t.n_in, p.out0 + (s.there[0] ? item_row(0) : 0));
    s.q = APART * places * P::q_bytes;
    s.h = APART * places * P::h_bytes;
    s.s = APART * (P::s_groups == 1 ? places : t.n_group / 8) * P::s_bytes;
    s.d = APART * (t.n_group / 8) * P::d_bytes;
}

QN_DEV plane_ptr item_planes(const source &s, int i)
{
    return plane_ptr{s.p.q + i * s.q, s.p.h + i * s.h, s.p.s + i * s.s, s.p.d + i * s.d, s.p.n_group};
}

// Through registers: everything but codes that are copied.
struct beside {
    group<spec::dtype> w[items];
    bool there[items];
};

QN_DEV void read_beside(beside &b, const source &s, const weights_of &t, int step)
{
    const int g = step * PER_STEP + (int)threadIdx.x % PER_STEP, place = place_of(t.n_group, g);
#pragma unroll
    for (int i = 0; i < items; i++) {
        b.there[i] = s.there[i] && g < t.n_group;
        if (!b.there[i]) {
            continue;
        }
        const plane_ptr p = item_planes(s, i);
        if constexpr (!copied) {
            load_short_codes(b.w[i], p, place);
        }
        load_beside(b.w[i], p, place);
        if constexpr (P::s_groups == 8) {
            load_header<DT>(b.w[i].s, b.w[i].d, p, g / 8);
        }
    }
}

// Rows and groups that are not there: factors of zero, so that whatever codes stand there count for nothing.
QN_DEV void put_beside(u8 *stage, const beside &b, int step)
{
    const int k = (int)threadIdx.x % PER_STEP, g = step * PER_STEP + k;
#pragma unroll
    for (int i = 0; i < items; i++) {
        const int r = item_row(i);
        affine f = {{0.0f, 0.0f}, {0.0f, 0.0f}};
        u32x2 q = {0, 0}, h = {0, 0};
        if (b.there[i]) {
            f = group_affine<DT>(b.w[i], g);
            q = u32x2{b.w[i].q0.x, b.w[i].q0.y};
            h = u32x2{b.w[i].h0, b.w[i].h1};
        }
        if constexpr (!copied) {
            *(u32x2 *)(stage + q_at + r * q_pitch + k * 8) = q;
        }
        if constexpr (P::h_bytes == 4) {
            *(u32 *)(stage + h_at + r * h_pitch + k * 4) = h.x;
        } else if constexpr (P::h_bytes == 8) {
            *(u32x2 *)(stage + h_at + r * h_pitch + k * 8) = h;
        }
        float *a = (float *)(stage + a_at + r * a_pitch) + k * n_affine;
        a[0] = f.a[0]; // of each half: a, then b where there is one
        if constexpr (shifted) {
            a[1] = f.b[0];
        }
        if constexpr (two_scales) {
            a[n_affine / 2] = f.a[1];
        }
        if constexpr (two_scales && shifted) {
            a[3] = f.b[1];
        }
    }
}

// Codes, or f16 values, on their way to a stage, by 16 bytes.
QN_DEV void copy_codes(u8 *stage, const weights_of &t, const tile_place &p, const source &s, int step)
{
    if constexpr (plain) {
        constexpr int pieces = STEP / 8;
#pragma unroll
        for (int i = 0; i < tile_rows * pieces / FETCHERS; i++) {
            const int c = (int)(threadIdx.x % FETCHERS) + i * FETCHERS, r = c / pieces,
                      k = step * STEP + c % pieces * 8;
            const bool there = p.out0 + r < p.n_out && k < t.n_in;
            const u16 *row = (const u16 *)p.w + (i64)(p.out0 + r) * t.n_in + k;
            ptx_copy_async16(stage + q_at + r * q_pitch + c % pieces * 16, there ? row : (const u16 *)p.w,
                             there);
        }
    } else if constexpr (copied) {
        const int k = (int)threadIdx.x % PER_STEP, g = step * PER_STEP + k, place = place_of(t.n_group, g);
#pragma unroll
        for (int i = 0; i < items; i++) {
            const bool there = s.there[i] && g < t.n_group;
#pragma unroll
            for (int part = 0; part < P::q_bytes / 16; part++) {
                ptx_copy_async16(stage + q_at + item_row(i) * q_pitch + k * P::q_bytes + part * 16,
                                 there ? item_planes(s, i).q + place * P::q_bytes + part * 16 : p.w, there);
            }
        }
    }
}

// The fetching warpgroup. `i` counts the block's steps over all its tiles; scales are read a step before they
// are put.
QN_DEV void fetch(const areas &s, const weights_of &t, const void *map)
{
    const int n_tile = t.n_tile_out * ((t.n_rows + spec::tokens - 1) / spec::tokens),
              n = (t.n_in + STEP - 1) / STEP;
    const bool first = threadIdx.x == multipliers;
    int i = 0;
    for (int tile = (int)blockIdx.x; tile < n_tile; tile += (int)gridDim.x) {
        const tile_place p = place_of_tile(t, tile);
        source from;
        beside now, next;
        if constexpr (!plain) {
            find_source(from, t, p);
            read_beside(now, from, t, 0);
        }
        for (int step = 0; step < n; step++, i++) {
            const int at = i % spec::stages;
            u8 *stage = s.stages + at * stage_bytes;
            if constexpr (!plain) {
                read_beside(next, from, t, step + 1 < n ? step + 1 : step);
            }
            ptx_barrier_wait(s.empty + at, (i / spec::stages & 1) ^ 1);
            if (first) {
                ptx_barrier_expect(s.full + at, spec::tokens * STEP * 2);
#pragma unroll
                for (int b = 0; b < spec::tokens / BOX; b++) {
                    ptx_tensor_load(stage + b * box_bytes, map, s.full + at, step * STEP, p.row0 + b * BOX, 0,
                                    0);
                }
            }
            copy_codes(stage, t, p, from, step);
            ptx_copy_commit();
            if constexpr (!plain) {
                put_beside(stage, now, step);
                now = next;
            }
            if (i > 0) { // the step before has landed
                ptx_copy_wait<1>();
                ptx_barrier_arrive(s.full + (i - 1) % spec::stages);
            }
        }
    }
    ptx_copy_wait<0>();
    if (i > 0) {
        ptx_barrier_arrive(s.full + (i - 1) % spec::stages);
    }
}

// A warpgroup's operand of a group of 32 values: two products' fragments.
typedef u32 fragments[GROUP / 16][4];

// A code as it stands in byte j of a word, exactly: 2^23 + code has it in its last bits.
QN_DEV float code_of(u32 bytes, int j)
{
    constexpr float zero = 8388608.0f + (is_signed       ? 128.0f
                                         : DT == DT_Q4_0 ? 8.0f
                                         : DT == DT_Q5_0 ? 16.0f
                                                         : 0.0f);
    return __uint_as_float(__byte_perm(bytes, 0x4b000000u, 0x7440u | (u32)j)) - zero;
}

// Four codes to four halves: value = a * code + b.
QN_DEV void decode_word(u32 &low, u32 &high, u32 bytes, float a, float b)
{
    float v[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float c = code_of(bytes ^ (is_signed ? 0x80808080u : 0u), j);
        v[j] = shifted ? a * c + b : c * a;
    }
    low = ptx_pack_half(v[0], v[1]);
    high = ptx_pack_half(v[2], v[3]);
}

// What thread t of a quad needs of group k of row r: values 2t, 2t + 1, 2t + 8, 2t + 9 (byte order) of each
// half as a group whose first word holds them, so that code_word knows how the bits lie.
QN_DEV group<spec::dtype> own_codes(const u8 *stage, int r, int k)
{
    const int t = (int)threadIdx.x % 4, w = t / 2;
    const u32 pick = t % 2 ? 0x7632u : 0x5410u; // bytes 2 (t % 2) and the next of two words
    const u8 *q = stage + q_at + r * q_pitch + k * P::q_bytes;
    group<spec::dtype> g = {};
    if constexpr (P::q_bytes == 8) {
        const u32x2 both = *(const u32x2 *)q;
        g.q0.x = __byte_perm(both.x >> (2 * w), both.x >> (2 * w + 4), pick);
        g.q0.y = __byte_perm(both.y >> (2 * w), both.y >> (2 * w + 4), pick);
    } else {
        g.q0.x = __byte_perm(*(const u32 *)(q + 4 * w), *(const u32 *)(q + 4 * w + 8), pick);
        if constexpr (P::q_bytes == 32) {
            g.q1.x = __byte_perm(*(const u32 *)(q + 16 + 4 * w), *(const u32 *)(q + 24 + 4 * w), pick);
        }
    }
    if constexpr (P::h_bytes == 4) {
        const u32 h = *(const u32 *)(stage + h_at + r * h_pitch + k * 4);
        g.h0 = __byte_perm(h >> w, h >> (w + 2), pick);
    } else if constexpr (P::h_bytes == 8) {
        const u32x2 h = *(const u32x2 *)(stage + h_at + r * h_pitch + k * 8);
        g.h0 = __byte_perm(h.x >> (2 * w), h.x >> (2 * w + 4), pick);
        g.h1 = __byte_perm(h.y >> (2 * w), h.y >> (2 * w + 4), pick);
    }
    return g;
}

// Group k of a step, 16 rows a warp.
QN_DEV void take_weights(fragments &a, const u8 *stage, int k)
{
    const int lane = (int)threadIdx.x % WARP, row0 = (int)threadIdx.x / WARP * 16 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int r = row0 + half * 8;
        if constexpr (plain) {
            const u8 *q = stage + q_at + r * q_pitch + k * P::q_bytes + lane % 4 * 4;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                a[j / 2][half + j % 2 * 2] = *(const u32 *)(q + 16 * j);
            }
        } else {
            const group<spec::dtype> g = own_codes(stage, r, k);
            const float *f = (const float *)(stage + a_at + r * a_pitch) + k * n_affine;
#pragma unroll
            for (int upper = 0; upper < 2; upper++) {
                const int at = two_scales ? upper * (n_affine / 2) : 0;
                decode_word(a[upper][half], a[upper][half + 2], code_word<DT>(g, 0, upper != 0), f[at],
                            shifted ? f[at + 1] : 0.0f);
            }
        }
    }
}

// A matrix of 64 values a row as a product takes it: 128-byte swizzle, 1024 bytes between eight rows.
QN_DEV u64 matrix_at(u32 address)
{
    return (u64)((address & 0x3ffff) >> 4) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

// Decodes group k of a stage and starts its products; `add`: to what is there.
QN_DEV void multiply_group(float *sums, fragments &a, const u8 *stage, int k, int add)
{
    take_weights(a, stage, k);
    const u64 x = matrix_at(ptx_shared_address(stage)) + (u64)(k * GROUP * 2 >> 4);
    ptx_wgmma_fence();
    ptx_wgmma_f16<spec::tokens, 0>(sums, a[0], x, add);
    ptx_wgmma_f16<spec::tokens, 0>(sums, a[1], x + (32 >> 4), 1);
    ptx_wgmma_commit();
}

// A warp is done with a step.
QN_DEV void release(const areas &s, int i)
{
    __syncwarp();
    if (threadIdx.x % WARP == 0) {
        ptx_barrier_arrive(s.empty + i % spec::stages);
    }
}

// Products of a tile from step i on: each group's weights are decoded while the group before is multiplied.
QN_DEV void multiply_tile(float *sums, const areas &s, int i, int n)
{
    fragments a, b;
    for (int k = 0; k < n; k++, i++) {
        const int at = i % spec::stages;
        const u8 *stage = s.stages + at * stage_bytes;
        ptx_barrier_wait(s.full + at, i / spec::stages & 1);
        multiply_group(sums, a, stage, 0, k > 0);
        ptx_wgmma_wait<1>();
        if (k > 0) {
            release(s, i - 1);
        }
        multiply_group(sums, b, stage, 1, 1);
        ptx_wgmma_wait<1>();
    }
    ptx_wgmma_wait<0>();
    ptx_pin<spec::tokens / 2>(sums);
    release(s, i - 1);
}

// Eight lanes have outputs side by side: whole sectors of 32 bytes.
QN_DEV void write_tile(const float *sums, float *out, i64 ld_out, const tile_place &p, int n_rows)
{
    const int lane = (int)threadIdx.x % WARP, o = (int)threadIdx.x / WARP * 16 + lane / 4;
    float *to = out + (i64)p.row0 * ld_out + p.column + o;
#pragma unroll
    for (int j = 0; j < spec::tokens / 8; j++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = 8 * j + lane % 4 * 2 + e % 2;
            if (p.row0 + row < n_rows && p.out0 + o + e / 2 * 8 < p.n_out) {
                to[row * ld_out + e / 2 * 8] = sums[4 * j + e];
            }
        }
    }
}

QN_ENTRY(128 * (spec::groups + 1), large ? 1 : 2)
QN_KERNEL(const i32 *rows, const void *map, const u8 *w0, const u8 *w1, const u8 *w2, i64 n0, i64 n1, i64 n2,
          i64 n_in, float *out, i64 ld_out)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const areas s = find_areas();
    if (threadIdx.x == 0) {
        for (int i = 0; i < spec::stages; i++) {
            ptx_barrier_init(s.full + i, FETCHERS + 1);
            ptx_barrier_init(s.empty + i, multipliers / WARP);
        }
        ptx_barrier_init_fence();
    }
    __syncthreads();
    weights_of t = {{w0, w1, w2}, {(int)n0, (int)n1, (int)n2}, (int)n_in, (int)n_in / GROUP, *rows, 0};
    t.n_tile_out = tiles_of(t.n_out[0]) + tiles_of(t.n_out[1]) + tiles_of(t.n_out[2]);
    if (threadIdx.x >= multipliers) {
        if constexpr (large) {
            ptx_fewer_registers<72>();
        }
        fetch(s, t, map);
        return;
    }
    if constexpr (large) {
        ptx_more_registers<216>();
    }
    const int n_tile = t.n_tile_out * ((t.n_rows + spec::tokens - 1) / spec::tokens),
              n = (t.n_in + STEP - 1) / STEP;
    int i = 0;
    for (int tile = (int)blockIdx.x; tile < n_tile; tile += (int)gridDim.x, i += n) {
        const tile_place p = place_of_tile(t, tile);
        float sums[spec::tokens / 2];
        multiply_tile(sums, s, i, n);
        write_tile(sums, out, ld_out, p, t.n_rows);
    }
}
