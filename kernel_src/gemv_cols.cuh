// gemv_cols.cuh: rows of quantised weights times up to spec::cols rows of 8-bit activations (columns) by int8
// tensor core products: each weight is read and unpacked once for all columns. A warp does units of
// spec::subs times 16 rows by a lap: four lanes' worth of a span, 16 groups where a span is whole. A lane has
// the next unit's weights under way, which it takes as the kernels of a single row do. What it has of a step,
// one group of each row, is its share of the left side of four products as it is. So the four lanes of a quad
// bring four groups, whose sums must stay apart: of the right side's 8 columns two are of each group, with
// the activations of two columns where the group's lane multiplies and zeros elsewhere. The sums, exact, come
// back to the lane whose group it is and which has its scales. A lane's sums are added to its quad's once a
// tile. defines: columns, begin_columns, run_columns
#ifndef QN_GEMV_COLS_CUH
#define QN_GEMV_COLS_CUH
#include "columns.cuh"

// Rows that a lane, a unit has.
constexpr int SUBS = spec::subs, ROWS = 2 * SUBS, TILE = 16 * SUBS;

// Types whose groups have two scales: values 0-15 and 16-31.
template <int DT> constexpr bool two_scales = DT == DT_Q2_K || DT == DT_Q3_K || DT == DT_Q6_K;
// Types without a minimum.
template <int DT>
constexpr bool no_min = two_scales<DT> || DT == DT_Q8_0 || DT == DT_IQ4_NL || DT == DT_IQ4_XS;
// Values 0-15 and 16-31 are summed apart.
template <int DT> constexpr bool split = two_scales<DT> || fine;

struct unit {
    int phase, tile, lap;
};

// What a warp has under way, and where it is: rows lane / 4 + 8r of the unit's tile. p: where
// this lane's pieces of the unit begin.
template <int DT> struct columns {
    group<DT> c[ROWS][4], head[ROWS];
    plane_ptr p[ROWS];
    unit u;
    int first, last;
    bool more;
};

// Moves by so many bytes, numbers of which the compiler knows nothing: what is added to the pointers
// afterwards is constant.
QN_DEV plane_ptr further(const plane_ptr &p, int q, int h, int s, int d)
{
    return plane_ptr{p.q + ptx_opaque(q), p.h + ptx_opaque(h), p.s + ptx_opaque(s), p.d + ptx_opaque(d),
                     p.n_group};
}

// To the pieces of lane t of a lap's four. Lanes without groups read another's: their activations are zero.
template <int DT> QN_DEV plane_ptr at_lap(const plane_ptr &p, int lap, int t)
{
    using P = planes<DT>;
    const span s = lap_span(lap);
    const int at = lap % whole_laps * 4 + t, lane = whole_spans ? at : min(at, s.lanes - 1);
    const int place = s.first + lane, index = s.first + lane * s.steps;
    // Of a header with two scales a group, the half that this lane's groups have.
    const int scale = P::s_groups == 1 ? place * P::s_bytes
                      : two_scales<DT> ? index / 4 * (P::s_bytes / 2)
                                       : index / 8 * P::s_bytes;
    return further(p, place * P::q_bytes, place * P::h_bytes, scale, index / 8 * P::d_bytes);
}

// Where all tiles are whole, the other rows' planes lie by constants behind the first's.
template <int DT, class W> QN_DEV plane_ptr row_of(const columns<DT> &k, int r)
{
    if constexpr (!W::whole_tiles) {
        return k.p[r];
    }
    using P = planes<DT>;
    constexpr int scales = P::s_groups == 8 ? n_group : 8 * n_place; // of eight rows
    const plane_ptr &p = k.p[0];
    return plane_ptr{p.q + r * 8 * n_place * P::q_bytes, p.h + r * 8 * n_place * P::h_bytes,
                     p.s + r * scales * P::s_bytes, p.d + r * n_group * P::d_bytes, p.n_group};
}

template <int DT, class W> QN_DEV void point_at_unit(columns<DT> &k, const W &w)
{
    // Where no unit is left all lanes read one place, so that the loads hang on no condition and cost little.
    const int t = k.more ? threadIdx.x % 4 : 0;
    const int row =
        k.more ? k.first + k.u.tile * TILE + threadIdx.x % WARP / 4 : k.last - (W::whole_tiles ? TILE : 1);
    if constexpr (W::whole_tiles) {
        k.p[0] = at_lap<DT>(w.row(row), k.u.lap, t);
    } else {
        for (int r = 0; r < ROWS; r++) {
            k.p[r] = at_lap<DT>(w.row(min(row + 8 * r, k.last - 1)), k.u.lap, t);
        }
    }
}

template <int DT, class W> QN_DEV void load_step(columns<DT> &k, int step)
{
    const span s = lap_span(k.u.lap);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (is_step(s, step)) {
            load_codes<DT, STREAM_HERE>(k.c[r][step], row_of<DT, W>(k, r), step * s.lanes);
        }
    }
}

// The headers where p.s and p.d point. Two scales a group: 8 of 16 bytes.
template <int DT, class W> QN_DEV void load_heads(columns<DT> &k)
{
    if constexpr (planes<DT>::s_groups == 8) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const plane_ptr p = row_of<DT, W>(k, r);
            if constexpr (two_scales<DT>) {
                const u32x2 half = *(const u32x2 *)p.s;
                k.head[r].s = u32x4{half.x, half.y, 0, 0};
                k.head[r].d = planes<DT>::d_bytes == 4 ? *(const u32 *)p.d : *(const u16 *)p.d;
            } else {
                load_header<DT>(k.head[r].s, k.head[r].d, p, 0);
            }
        }
    }
}

// The warp's next unit: laps of a tile, tiles of a phase, phases. spec::slices warps share a tile.
template <int DT, class W> QN_DEV void next_unit(columns<DT> &k, const W &w)
{
    const int warp = threadIdx.x / WARP, tiles = (k.last - k.first + TILE - 1) / TILE;
    k.u.lap += spec::slices;
    if (k.u.lap >= (n_phase == 1 ? n_lap : min(n_lap, (k.u.phase + 1) * phase_laps))) {
        k.u.tile += spec::warps / spec::slices;
        if (k.u.tile >= tiles && n_phase > 1) {
            k.u.tile = warp / spec::slices;
            k.u.phase++;
        }
        k.u.lap = k.u.phase * phase_laps + warp % spec::slices;
        k.more = k.u.tile < tiles && k.u.phase < n_phase && k.u.lap < n_lap;
        k.u.lap = k.more ? k.u.lap : 0;
    }
    point_at_unit(k, w);
}

// Rows [first, last): asks for the first unit's weights. w.row(i) gives a row's planes.
template <int DT, class W> QN_DEV void begin_columns(columns<DT> &k, const W &w, int first, int last)
{
    const int warp = threadIdx.x / WARP;
    k.first = first;
    k.last = last;
    k.u = unit{0, warp / spec::slices, warp % spec::slices};
    k.more = first + k.u.tile * TILE < last && k.u.lap < n_lap;
    if (k.more) {
        point_at_unit(k, w);
        load_heads<DT, W>(k);
#pragma unroll
        for (int step = 0; step < 4; step++) {
            load_step<DT, W>(k, step);
        }
    }
}

// Types with twelve bytes of scales and minima. Those of a lane's groups are in one half of their
// super-block: four scales in s.y, four minima in s.z. Scales of two a group: four words, of s.x and s.y, of
// bytes without a sign; q2_K's minima in s.z and s.w.
template <int DT> constexpr bool twelve = DT == DT_Q4_K || DT == DT_Q5_K;
template <int DT> QN_DEV group<DT> ready_head(group<DT> g, const span &s, int lane0)
{
    if constexpr (twelve<DT>) {
        scales_mins(g.s, (s.first + (lane0 + threadIdx.x % 4) * s.steps & 4) != 0, &g.s.y, &g.s.z);
    } else if constexpr (DT == DT_Q2_K) {
        g.s = u32x4{g.s.x & 0x0f0f0f0fu, g.s.y & 0x0f0f0f0fu, g.s.x >> 4 & 0x0f0f0f0fu,
                    g.s.y >> 4 & 0x0f0f0f0fu};
    } else if constexpr (two_scales<DT>) {
        g.s.x ^= 0x80808080u;
        g.s.y ^= 0x80808080u;
    }
    return g;
}

// magic + byte i of v.
QN_DEV float magic_byte(u32 v, int i)
{
    return __uint_as_float(__byte_perm(v, magic_bits, 0x7640u | i));
}

// d * byte i of v, exact: d is a half.
QN_DEV float times_byte(float d, u32 v, int i)
{
    return fmaf(magic_byte(v, i), d, d * -magic);
}

// Sums of nibbles are 16 times too large (unpack_words).
template <int DT> constexpr float code_unit = nibbles<DT> ? 0.0625f : 1.0f;

// Scales of a lane's group of a row; index: of the group. What does not hang on the step is made once.
template <int DT> QN_DEV affine step_affine(const group<DT> &c, const group<DT> &head, int index)
{
    affine f = {{0.0f, 0.0f}, {0.0f, 0.0f}};
    if constexpr (twelve<DT>) {
        f.a[0] = times_byte(low_half(head.s.x) * code_unit<DT>, head.s.y, index & 3);
        f.b[0] = times_byte(-high_half(head.s.x), head.s.z, index & 3);
    } else if constexpr (two_scales<DT>) {
        for (int k = 0; k < 2; k++) {
            const int at = 2 * (index & 1) + k;
            const u32 scales = index & 2 ? head.s.y : head.s.x, mins = index & 2 ? head.s.w : head.s.z;
            const float d = low_half(head.d);
            f.a[k] =
                DT == DT_Q2_K ? times_byte(d, scales, at) : d * (magic_byte(scales, at) - (magic + 128.0f));
            f.b[k] = DT == DT_Q2_K ? times_byte(-high_half(head.d), mins, at) : 0.0f;
        }
    } else {
        group<DT> g = c;
        if constexpr (planes<DT>::s_groups == 8) {
            g.s = head.s;
            g.d = head.d;
        }
        f = group_affine<DT>(g, index);
        f.a[0] *= code_unit<DT>;
    }
    return f;
}

// Codes of a lane's groups of both rows as the products take them: a[i] of words 2 * (i % 2) and the next, of
// values 0-15 (i < 2) or 16-31. Plain nibbles stay in the upper halves of their bytes, 16 times too large.
template <int DT> QN_DEV void unpack_words(u32 a[4][4], const group<DT> &g, int r)
{
#pragma unroll
    for (int w = 0; w < 4; w++) {
        u32 &low = a[w / 2][w % 2 * 2 + r], &high = a[2 + w / 2][w % 2 * 2 + r];
        if constexpr (nibbles<DT>) {
            low = word_of(g.q0, w) << 4 & 0xf0f0f0f0u;
            high = word_of(g.q0, w) & 0xf0f0f0f0u;
        } else if constexpr (DT == DT_IQ4_NL || DT == DT_IQ4_XS) {
            iq4_levels(word_of(g.q0, w), &low, &high);
        } else {
            low = code_word<DT>(g, w, false);
            high = code_word<DT>(g, w, true);
        }
    }
}

// y[r][e] += this lane's group of rows lane / 4 + 8r times column e of a pair.
template <int DT>
QN_DEV void add_pair(float *y0, float *y1, const u32 a[4][4], const affine f[2], const u32x4 &lo,
                     const u32x4 &hi, const pair_scales &s)
{
    constexpr bool no_sign = nibbles<DT>;
    const i32 start[4] = {magic_bits, magic_bits, magic_bits, magic_bits};
    i32 low[4], high[4], ones[2][4];
    ptx_mma_bytes<no_sign>(low, a[0], lo.x, lo.y, start);
    ptx_mma_bytes<no_sign>(low, a[1], lo.z, lo.w, low);
    ptx_mma_bytes<no_sign>(split<DT> ? high : low, a[2], hi.x, hi.y, split<DT> ? start : low);
    ptx_mma_bytes<no_sign>(split<DT> ? high : low, a[3], hi.z, hi.w, split<DT> ? high : low);
    if constexpr (DT == DT_Q2_K && !fine) {
        const u32 one[4] = {0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u};
        for (int k = 0; k < 2; k++) {
            const u32x4 x = k ? hi : lo;
            ptx_mma_bytes<false>(ones[k], one, x.x, x.y, start);
            ptx_mma_bytes<false>(ones[k], one, x.z, x.w, ones[k]);
        }
    }
    for (int r = 0; r < 2; r++) {
        for (int e = 0; e < 2; e++) {
            float &to = (r ? y1 : y0)[e];
            const float v = scaled(low[2 * r + e], s, e, 0);
            if constexpr (two_scales<DT>) {
                to += f[r].a[0] * v;
                to += f[r].a[1] * scaled(high[2 * r + e], s, e, 1);
            } else if constexpr (fine) {
                to += f[r].a[0] * (v + scaled(high[2 * r + e], s, e, 1));
            } else {
                to += f[r].a[0] * v;
            }
            if constexpr (DT == DT_Q2_K) {
                for (int k = 0; k < 2; k++) {
                    to += f[r].b[k] * (fine ? s.sum[e][k] : scaled(ones[k][e], s, e, k));
                }
            } else if constexpr (!no_min<DT>) {
                to += f[r].b[0] * (fine ? s.sum[e][0] + s.sum[e][1] : s.sum[e][0]);
            }
        }
    }
}

// Sums of two rows, over the four lanes of each quad: lane t has what belongs to row t % 2 and half t / 2 of
// the columns, in y[0][..].
QN_DEV void add_quad(float (*y)[COLS])
{
    const bool odd = threadIdx.x % 2 != 0, upper = threadIdx.x / 2 % 2 != 0;
#pragma unroll
    for (int i = 0; i < COLS; i++) {
        const float keep = odd ? y[1][i] : y[0][i], give = odd ? y[0][i] : y[1][i];
        y[0][i] = keep + __shfl_xor_sync(0xffffffffu, give, 1);
    }
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        const float keep = upper ? y[0][PAIRS + i] : y[0][i], give = upper ? y[0][i] : y[0][PAIRS + i];
        y[0][i] = keep + __shfl_xor_sync(0xffffffffu, give, 2);
    }
}

// What a warp has of a tile, to res[(slice * COLS + column) * pitch + row - first]: a pitch of 4 more than a
// multiple of 16, so that a warp's rows and columns lie on different banks, here and where they are added up.
template <int DT>
QN_DEV void keep_sums(float *res, int pitch, const columns<DT> &k, const unit &u, float y[ROWS][COLS],
                      int n_col)
{
    const int lane = threadIdx.x % WARP, slice = threadIdx.x / WARP % spec::slices;
    const int first = lane / 2 % 2 * PAIRS;
#pragma unroll
    for (int sub = 0; sub < SUBS; sub++) {
        float(*of)[COLS] = y + 2 * sub;
        const int row = u.tile * TILE + sub * 16 + lane / 4 + lane % 2 * 8;
        add_quad(of);
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            if (k.first + row < k.last && first + i < n_col) {
                float *to = &res[(slice * COLS + first + i) * pitch + row];
                *to = n_phase > 1 && u.phase > 0 ? *to + of[0][i] : of[0][i];
            }
        }
    }
}

// A lane's part of a unit: its lap's span, its lane there; its group's codes at step 0 of its column, and
// what is beside those of the first column.
struct lap_part {
    span s;
    int lane;
    const u8 *codes, *beside;
};

// Pairs PAIR and the following of a step; SET: where the activations of PAIR are.
template <int DT, int SET, int PAIR, int AT>
QN_DEV void add_pairs(float y[ROWS][COLS], const u32 a[SUBS][4][4], const affine f[ROWS], right_side &b,
                      const u8 *codes, const u8 *beside, bool there)
{
    if constexpr (PAIR < PAIRS) {
        const pair_scales scales = load_scales(beside, PAIR);
#pragma unroll
        for (int sub = 0; sub < SUBS; sub++) {
            add_pair<DT>(y[2 * sub] + 2 * PAIR, y[2 * sub + 1] + 2 * PAIR, a[sub], f + 2 * sub, b.lo[SET],
                         b.hi[SET], scales);
        }
        if constexpr (PAIR + 2 < PAIRS) {
            load_pair<SET, PAIR + 2, AT>(b, codes, there);
        }
        add_pairs<DT, 1 - SET, PAIR + 1, AT>(y, a, f, b, codes, beside, there);
    }
}

// Steps STEP to 3 of a unit, whose weights k.c has; in their places come the next unit's.
template <int STEP, int DT, class W>
QN_DEV void do_steps(columns<DT> &k, const group<DT> head[ROWS], const lap_part &part, right_side &b,
                     float y[ROWS][COLS])
{
    constexpr int SET = STEP * PAIRS % 2, AT = whole_spans ? STEP * WARP * 16 : 0;
    const bool now = is_step(part.s, STEP), there = is_there(part.s, part.lane, STEP);
    const u8 *codes = part.codes + (whole_spans ? 0 : STEP * part.s.lanes * 16);
    const u8 *beside = there ? part.beside + STEP * part.s.lanes * SCALE_BYTES : qn_shared<u8>(none_at);
    u32 a[SUBS][4][4] = {};
    affine f[ROWS];
    if (now) {
        load_pair<SET, 0, AT>(b, codes, there);
        if constexpr (PAIRS > 1) {
            load_pair<1 - SET, 1, AT>(b, codes, there);
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            unpack_words(a[r / 2], k.c[r][STEP], r % 2);
            f[r] = step_affine(k.c[r][STEP], head[r],
                               whole_spans ? part.lane % 2 * 4 + STEP
                                           : part.s.first + part.lane * part.s.steps + STEP);
        }
    }
#pragma unroll
    for (int i = 0; i < 16 * SUBS; i++) {
        ptx_here(a[i / 16][i / 4 % 4][i % 4]); // so that the registers are free for what is loaded
    }
    load_step<DT, W>(k, STEP);
    __syncwarp(); // the loads stay here
    if (now) {
        add_pairs<DT, SET, 0, AT>(y, a, f, b, codes, beside, there);
    }
    if constexpr (STEP < 3) {
        do_steps<STEP + 1, DT, W>(k, head, part, b, y);
    }
}

// One unit, while the next one's weights come.
template <int DT, class W> QN_DEV void do_unit(columns<DT> &k, const W &w, right_side &b, float y[ROWS][COLS])
{
    const span s = lap_span(k.u.lap);
    const int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4, lane0 = k.u.lap % whole_laps * 4;
    const int place = s.first - (n_phase == 1 ? 0 : k.u.phase * spec::phase * SPAN) + lane0 + t;
    const lap_part part = {s, lane0 + t, qn_shared<u8>(g % 2 * COL_BYTES + place * 16),
                           qn_shared<u8>(beside_at + place * SCALE_BYTES)};
    group<DT> head[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        head[r] = ready_head(k.head[r], s, lane0);
    }
    span_stands(k.u.lap);
    next_unit(k, w);
    load_heads<DT, W>(k);
    do_steps<0, DT, W>(k, head, part, b, y);
}

// The rows that begin_columns was given, n_col columns. `taken`: the first phase's activations stand, and all
// threads know. On return others may still be at work.
template <int DT, class W>
QN_DEV void run_columns(columns<DT> &k, const W &w, const u8 *q8, int n_col, bool taken, float *res,
                        int pitch)
{
    right_side b = {};
    for (int phase = 0; phase < n_phase; phase++) {
        if (phase > 0 || !taken) {
            __syncthreads();
            take_columns(q8, phase, n_col);
            columns_stand();
        }
        float y[ROWS][COLS] = {};
        while (k.more && k.u.phase == phase) {
            const unit u = k.u;
            do_unit(k, w, b, y);
            if (!k.more || k.u.tile != u.tile || k.u.phase != u.phase) {
                keep_sums(res, pitch, k, u, y, n_col);
#pragma unroll
                for (int i = 0; i < ROWS * COLS; i++) {
                    y[i / COLS][i % COLS] = 0.0f;
                }
            }
        }
    }
}

#endif
