// gemv_cols.cuh: rows of quantised weights times up to 8 rows of 8-bit activations (columns) by int8 tensor
// core products: each weight is read and unpacked once for all columns. A warp does units of 16 rows by a
// lap: four lanes' worth of a span, 16 groups where a span is whole. A lane has four groups of two rows of
// the next unit under way, which it takes as the kernels of a single row do; a step's worth of them goes
// through the warp's corner of shared memory, whence `ldmatrix` hands each lane the words that a product of
// 16 rows, 8 columns and one group takes of it. Scales go the same way. The activations of a phase (all of a
// row where they fit) stand in shared memory in the order of that product. Sums over a group are exact.
// defines: columns, begin_columns, run_columns, take_columns, column_sum, load_squares, column_factors
#ifndef QN_GEMV_COLS_CUH
#define QN_GEMV_COLS_CUH
#include "quantise.cuh"

// Bytes of shared memory: a place of activations (codes of 8 columns: words of values 4t.. and 16 + 4t.. side
// by side; d, d * sum of 8 columns, or two d and the sum of both halves' d * sum; 16 bytes so that places lie
// on different banks), a warp's corner.
enum { COLS = 8, TILE = 16, ACT_CODES = 256, CODES_BYTES = 2048, CORNER_BYTES = 3072, PAD = 4 };
constexpr bool fine = spec::fine_in;
constexpr int ACT_BYTES = ACT_CODES + COLS * (int)sizeof(q8_scales<fine>) + 16;

constexpr int n_group = spec::n_in / GROUP, n_place = n_places(n_group);
constexpr int n_span = (n_group + SPAN - 1) / SPAN;
constexpr span last_span = span_of(n_group, n_span - 1);
constexpr int whole_laps = SPAN / 16, n_lap = (n_span - 1) * whole_laps + (last_span.lanes + 3) / 4;
// spec::phase: spans whose activations stand in shared memory at a time.
constexpr int n_phase = (n_span + spec::phase - 1) / spec::phase;
constexpr int phase_laps = n_phase == 1 ? n_lap : spec::phase * whole_laps;
constexpr int phase_places = n_phase == 1 ? n_place : spec::phase * SPAN;
constexpr int corner_at = phase_places * ACT_BYTES, sums_at = corner_at + spec::warps * CORNER_BYTES;

// Types whose groups have two scales: values 0-15 and 16-31.
template <int DT> constexpr bool two_scales = DT == DT_Q2_K || DT == DT_Q3_K || DT == DT_Q6_K;
// Types without a minimum.
template <int DT>
constexpr bool no_min = two_scales<DT> || DT == DT_Q8_0 || DT == DT_IQ4_NL || DT == DT_IQ4_XS;
// Types whose words of codes hold both halves of a group: they are unpacked behind `ldmatrix`.
template <int DT> constexpr bool packed = planes<DT>::bits == 4;

struct unit {
    int phase, tile, lap;
};

// What a warp has under way, and where it is: rows lane / 4 and lane / 4 + 8 of the unit's tile.
template <int DT> struct columns {
    group<DT> c[2][4], head[2];
    plane_ptr p[2];
    unit u;
    int first, last;
    bool more;
};

QN_DEV span lap_span(int lap)
{
    if constexpr (fine && n_span == 1) { // known here: steps that no lane has cost nothing
        return span_of(n_group, 0);
    }
    return n_group % SPAN == 0 ? span{lap / whole_laps * SPAN, SPAN, 4, 32}
                               : span_of(n_group, lap / whole_laps);
}

// Is there a group at a lane's step?
QN_DEV bool is_there(const span &s, int lane, int step)
{
    return n_group % SPAN == 0 || (lane < s.lanes && lane * s.steps + step < s.n);
}

template <int DT, class W> QN_DEV void point_at_tile(columns<DT> &k, const W &w)
{
    // Where no unit is left all lanes read one place, so that the loads hang on no condition.
    const int row = k.more ? k.first + k.u.tile * TILE + threadIdx.x % WARP / 4 : k.last - 1;
    k.p[0] = w.row(min(row, k.last - 1));
    k.p[1] = w.row(min(row + 8, k.last - 1));
}

template <int DT> QN_DEV int my_lane(const columns<DT> &k)
{
    return k.more ? k.u.lap % whole_laps * 4 + threadIdx.x % 4 : 0;
}

template <int DT> QN_DEV void load_step(columns<DT> &k, int step)
{
    const span s = lap_span(k.u.lap);
    const int lane = my_lane(k);
    for (int r = 0; r < 2; r++) {
        k.c[r][step] = group<DT>{};
        if (step < s.steps && is_there(s, lane, step)) {
            load_codes<DT, true>(k.c[r][step], k.p[r], s.first + step * s.lanes + lane);
        }
    }
}

template <int DT> QN_DEV void load_heads(columns<DT> &k)
{
    if constexpr (planes<DT>::s_groups == 8) {
        const span s = lap_span(k.u.lap);
        const int lane = my_lane(k);
        for (int r = 0; r < 2; r++) {
            k.head[r] = group<DT>{};
            const int index = s.first + lane * s.steps;
            if (!is_there(s, lane, 0)) {
                continue;
            }
            load_header<DT>(k.head[r].s, k.head[r].d, k.p[r], index / 8);
            if constexpr (two_scales<DT>) { // of 16 bytes those of this lane's half: the load becomes one of
                                            // 8
                const u32x2 half = *(const u32x2 *)(k.p[r].s + index / 4 * 8);
                k.head[r].s = u32x4{half.x, half.y, 0, 0};
            }
        }
    }
}

// The warp's next unit: laps of a tile, tiles of a phase, phases. spec::slices warps share a tile.
template <int DT, class W> QN_DEV void next_unit(columns<DT> &k, const W &w)
{
    const int warp = threadIdx.x / WARP, tiles = (k.last - k.first + TILE - 1) / TILE;
    k.u.lap += spec::slices;
    if (k.u.lap < n_lap && k.u.lap < (k.u.phase + 1) * phase_laps) {
        return;
    }
    k.u.tile += spec::warps / spec::slices;
    if (k.u.tile >= tiles) {
        k.u.tile = warp / spec::slices;
        k.u.phase++;
    }
    k.u.lap = k.u.phase * phase_laps + warp % spec::slices;
    k.more = k.u.phase < n_phase && k.u.lap < n_lap;
    k.u.lap = k.more ? k.u.lap : 0;
    point_at_tile(k, w);
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
        point_at_tile(k, w);
        load_heads(k);
#pragma unroll
        for (int step = 0; step < 4; step++) {
            load_step(k, step);
        }
    }
}

// Does a group stand at a place?
QN_DEV bool is_taken(int place)
{
    const span s = span_of(n_group, place / SPAN);
    return n_place == n_group || is_there(s, place % SPAN % s.lanes, place % SPAN / s.lanes);
}

// Activations of a phase, from rows as quantise.cuh has them; columns that are not there are zero.
template <bool FINE> QN_DEV void take_columns(const u8 *q8, int phase, int n_col)
{
    u8 *acts = qn_shared<u8>(0);
    const int first = phase * spec::phase * SPAN;
    const int n = n_phase == 1 ? n_place : min(phase_places, n_place - first);
    const i64 stride = q8_row_bytes<fine>(spec::n_in);
    constexpr int threads = WARP * spec::warps, all = (COLS * phase_places + threads - 1) / threads;
    constexpr int batch = all < 3 ? all : 3; // that many places are under way
    for (int i0 = threadIdx.x; i0 < COLS * n; i0 += batch * threads) {
        u32x4 lo[batch], hi[batch];
        q8_scales<FINE> ds[batch];
#pragma unroll
        for (int b = 0; b < batch; b++) {
            const int i = i0 + b * threads, col = i / n, at = i % n;
            lo[b] = hi[b] = u32x4{};
            ds[b] = q8_scales<FINE>{};
            if (i < COLS * n && col < n_col && is_taken(first + at)) {
                const u8 *row = q8 + col * stride;
                lo[b] = ((const u32x4 *)row)[first + at];
                hi[b] = ((const u32x4 *)row)[n_place + first + at];
                ds[b] = ((const q8_scales<FINE> *)(row + n_place * 32))[first + at];
            }
        }
#pragma unroll
        for (int b = 0; b < batch; b++) {
            const int i = i0 + b * threads, col = i / n, at = i % n;
            if (i >= COLS * n) {
                break;
            }
            u32x4 *to = (u32x4 *)(acts + at * ACT_BYTES + col * 32);
            to[0] = u32x4{lo[b].x, hi[b].x, lo[b].y, hi[b].y};
            to[1] = u32x4{lo[b].z, hi[b].z, lo[b].w, hi[b].w};
            if constexpr (FINE) {
                ds[b].z = q8_scales_of<FINE>::sum(ds[b]);
            }
            *(q8_scales<FINE> *)(acts + at * ACT_BYTES + ACT_CODES + col * (int)sizeof ds[b]) = ds[b];
        }
    }
}

// Of 16 bytes each: chunk `c` of a row of 4 (packed) or 8 chunks, so that neither a row's chunks nor a chunk
// of eight rows meet on a bank.
template <int DT> QN_DEV u32x4 *corner_chunk(u8 *corner, int row, int c)
{
    return (u32x4 *)corner + (packed<DT> ? row * 4 + (c ^ (row >> 1 & 3)) : row * 8 + (c ^ (row & 7)));
}

// Types with twelve bytes of scales and minima. Those of a lane's groups are in one half of their
// super-block: four scales in s.y, four minima in s.z.
template <int DT> constexpr bool twelve = DT == DT_Q4_K || DT == DT_Q5_K;
template <int DT> QN_DEV group<DT> ready_head(group<DT> g, const span &s, int lane0)
{
    if constexpr (twelve<DT>) {
        scales_mins(g.s, (s.first + (lane0 + threadIdx.x % 4) * s.steps & 4) != 0, &g.s.y, &g.s.z);
    }
    return g;
}

// This lane's groups of a step, codes and scales, into the warp's corner.
template <int DT>
QN_DEV void put_step(u8 *corner, const group<DT> c[2][4], const group<DT> head[2], const span &s, int lane0,
                     int step)
{
    const int lane = threadIdx.x % WARP, t = lane % 4;
    for (int r = 0; r < 2; r++) {
        const int row = lane / 4 + 8 * r;
        group<DT> g = c[r][step];
        if constexpr (packed<DT>) {
            *corner_chunk<DT>(corner, row, t) = g.q0;
        } else {
            for (int half = 0; half < 2; half++) {
                *corner_chunk<DT>(corner, row, 2 * t + half) =
                    u32x4{code_word<DT>(g, 0, half != 0), code_word<DT>(g, 1, half != 0),
                          code_word<DT>(g, 2, half != 0), code_word<DT>(g, 3, half != 0)};
            }
        }
        const int index = s.first + (lane0 + t) * s.steps + step;
        affine f;
        if constexpr (twelve<DT>) {
            const int shift = 8 * (index & 3);
            f.a[0] = low_half(head[r].s.x) * (float)(int)(head[r].s.y >> shift & 0xff);
            f.b[0] = -(high_half(head[r].s.x) * (float)(int)(head[r].s.z >> shift & 0xff));
        } else if constexpr (two_scales<DT>) {
            const u32 v = (index & 2 ? head[r].s.y : head[r].s.x) >> (16 * (index & 1));
            for (int k = 0; k < 2; k++) {
                const u32 byte = v >> (8 * k) & 0xff;
                f.a[k] = low_half(head[r].d) * (DT == DT_Q2_K ? (float)(int)(byte & 15) : (float)(i8)byte);
                f.b[k] = DT == DT_Q2_K ? -(high_half(head[r].d) * (float)(int)(byte >> 4)) : 0.0f;
            }
        } else {
            if constexpr (planes<DT>::s_groups == 8) {
                g.s = head[r].s;
                g.d = head[r].d;
            }
            f = group_affine<DT>(g, index);
        }
        float *to = (float *)(corner + CODES_BYTES);
        if constexpr (DT == DT_Q2_K) {
            ((f32x4 *)to)[t * TILE + row] = f32x4{f.a[0], f.a[1], f.b[0], f.b[1]};
        } else {
            ((f32x2 *)to)[t * TILE + row] = f32x2{f.a[0], two_scales<DT> ? f.a[1] : f.b[0]};
        }
    }
}

// Words of codes of group `i` of the step: of rows lane / 4, lane / 4 + 8 and values 4t.., of both and 16 +
// 4t...
template <int DT> QN_DEV void take_codes(u32 a[4], u8 *corner, int i)
{
    const int lane = threadIdx.x % WARP, row = lane % 8 + 8 * (lane / 8 & 1);
    if constexpr (packed<DT>) { // groups i and i + 1
        ptx_ldmatrix_x4(a, corner_chunk<DT>(corner, row, i + lane / 16));
    } else {
        ptx_ldmatrix_x4(a, corner_chunk<DT>(corner, row, 2 * i + lane / 16));
    }
}

template <int DT> QN_DEV void unpack_codes(u32 a[4], u32 upper, u32 lower)
{
    if constexpr (DT == DT_IQ4_NL || DT == DT_IQ4_XS) {
        iq4_levels(upper, &a[0], &a[2]);
        iq4_levels(lower, &a[1], &a[3]);
    } else {
        a[0] = upper & 0x0f0f0f0fu;
        a[1] = lower & 0x0f0f0f0fu;
        a[2] = upper >> 4 & 0x0f0f0f0fu;
        a[3] = lower >> 4 & 0x0f0f0f0fu;
    }
}

// What a group adds to one sum: scales f of a row, sums over values 0-15 and 16-31 (of the activations' codes
// too: ones), and what fine activations have beside their codes at `beside`.
template <int DT>
QN_DEV float fine_term(const f32x4 &f, i32 low, i32 high, i32 low_ones, i32 high_ones, const u8 *beside)
{
    const f32x2 d = *(const f32x2 *)beside;
    if constexpr (DT == DT_Q2_K) {
        return d.x * (f.x * (float)low + f.z * (float)low_ones) +
               d.y * (f.y * (float)high + f.w * (float)high_ones);
    } else if constexpr (two_scales<DT>) {
        return d.x * (f.x * (float)low) + d.y * (f.y * (float)high);
    } else {
        const float y = f.x * (d.x * (float)low + d.y * (float)high);
        return no_min<DT> ? y : y + f.y * *(const float *)(beside + 8);
    }
}

// y[2 * r + e] += rows lane / 4 + 8r times columns 2t + e: group `i` of a step, whose activations stand at
// `act`.
template <int DT> QN_DEV void add_group(float y[4], const u32 a[4], const u8 *corner, const u8 *act, int i)
{
    const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    const u32x2 x = *(const u32x2 *)(act + lane * 8);
    const f32x4 ds = *(const f32x4 *)(act + ACT_CODES + t * 16);
    i32 low[4] = {0, 0, 0, 0}, high[4] = {0, 0, 0, 0}, ones[2][4] = {};
    if constexpr (two_scales<DT> || fine) {
        ptx_mma_s8_k16(low, a, x.x);
        ptx_mma_s8_k16(high, a + 2, x.y);
    } else {
        ptx_mma_s8(low, a, x.x, x.y);
    }
    if constexpr (DT == DT_Q2_K) {
        const u32 one[2] = {0x01010101u, 0x01010101u};
        ptx_mma_s8_k16(ones[0], one, x.x);
        ptx_mma_s8_k16(ones[1], one, x.y);
    }
    for (int r = 0; r < 2; r++) {
        f32x4 f;
        if constexpr (DT == DT_Q2_K) {
            f = ((const f32x4 *)(corner + CODES_BYTES))[i * TILE + g + 8 * r];
        } else {
            const f32x2 v = ((const f32x2 *)(corner + CODES_BYTES))[i * TILE + g + 8 * r];
            f = f32x4{v.x, v.y, 0.0f, 0.0f};
        }
        for (int e = 0; e < 2; e++) {
            if constexpr (fine) {
                y[2 * r + e] += fine_term<DT>(f, low[2 * r + e], high[2 * r + e], ones[0][e], ones[1][e],
                                              act + ACT_CODES + (2 * t + e) * 16);
                continue;
            }
            const float d = e ? ds.z : ds.x, dsum = e ? ds.w : ds.y;
            const float sum = two_scales<DT> ? f.x * (float)low[2 * r + e] + f.y * (float)high[2 * r + e]
                                             : f.x * (float)low[2 * r + e];
            float &to = y[2 * r + e];
            if constexpr (DT == DT_Q2_K) {
                to += d * (sum + f.z * (float)ones[0][e] + f.w * (float)ones[1][e]);
            } else {
                to += d * sum;
                to += no_min<DT> ? 0.0f : f.y * dsum;
            }
        }
    }
}

template <int DT>
QN_DEV void add_step(float y[4], u8 *corner, const u8 *acts, const span &s, int lane0, int step)
{
    const u8 *act = acts + (step * s.lanes + lane0) * ACT_BYTES;
    u32 a[4], w[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if constexpr (packed<DT>) {
            if (i % 2 == 0) {
                take_codes<DT>(w, corner, i);
            }
            unpack_codes<DT>(a, w[i % 2 * 2], w[i % 2 * 2 + 1]);
        } else {
            take_codes<DT>(a, corner, i);
        }
        if (is_there(s, lane0 + i, step)) { // the same for all lanes
            add_group<DT>(y, a, corner, act + i * ACT_BYTES, i);
        }
    }
}

// What a warp has of a tile, to res[(slice * COLS + column) * pitch + row - first]: a pitch of 4 more than a
// multiple of 16, so that a warp's rows and columns lie on different banks, here and where they are added up.
template <int DT>
QN_DEV void keep_sums(float *res, int pitch, const columns<DT> &k, const unit &u, const float y[4], int n_col)
{
    const int lane = threadIdx.x % WARP, slice = threadIdx.x / WARP % spec::slices;
    for (int i = 0; i < 4; i++) {
        const int row = u.tile * TILE + lane / 4 + 8 * (i / 2), col = lane % 4 * 2 + i % 2;
        if (k.first + row < k.last && col < n_col) {
            float *to = &res[(slice * COLS + col) * pitch + row];
            *to = n_phase > 1 && u.phase > 0 ? *to + y[i] : y[i];
        }
    }
}

// One unit, while the next one's weights come.
template <int DT, class W> QN_DEV void do_unit(columns<DT> &k, const W &w, float y[4])
{
    u8 *corner = qn_shared<u8>(corner_at + threadIdx.x / WARP * CORNER_BYTES);
    const span s = lap_span(k.u.lap);
    const int lane0 = k.u.lap % whole_laps * 4;
    const u8 *acts = qn_shared<u8>(0) + (s.first - k.u.phase * spec::phase * SPAN) * ACT_BYTES;
    const group<DT> head[2] = {ready_head(k.head[0], s, lane0), ready_head(k.head[1], s, lane0)};
    next_unit(k, w);
    load_heads(k);
#pragma unroll
    for (int step = 0; step < 4; step++) {
        const bool now = n_group % SPAN == 0 || step < s.steps;
        if (now) {
            put_step<DT>(corner, k.c, head, s, lane0, step);
        }
        load_step(k, step);
        if (now) {
            __syncwarp();
            add_step<DT>(y, corner, acts, s, lane0, step);
            __syncwarp();
        }
    }
}

// The rows that begin_columns was given, n_col columns. `taken`: the first phase's activations stand, and all
// threads know. On return others may still be at work.
template <int DT, class W>
QN_DEV void run_columns(columns<DT> &k, const W &w, const u8 *q8, int n_col, bool taken, float *res,
                        int pitch)
{
    for (int phase = 0; phase < n_phase; phase++) {
        if (phase > 0 || !taken) {
            __syncthreads();
            take_columns<fine>(q8, phase, n_col);
            __syncthreads();
        }
        float y[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        while (k.more && k.u.phase == phase) {
            const unit u = k.u;
            do_unit(k, w, y);
            if (!k.more || k.u.tile != u.tile || k.u.phase != u.phase) {
                keep_sums(res, pitch, k, u, y, n_col);
                y[0] = y[1] = y[2] = y[3] = 0.0f;
            }
        }
    }
}

// A row's sum of slices in a column.
QN_DEV float column_sum(const float *res, int pitch, int i, int col)
{
    constexpr int slices = spec::slices;
    float y = 0.0f;
    for (int k = 0; k < slices; k++) {
        y += res[(k * COLS + col) * pitch + i];
    }
    return y;
}

// Where the activations are x * w of an RMS norm not yet divided by the root of their mean square: that
// factor of each column, from the sums of squares of their groups (linear_cols.cu and linear_q8.cu write
// them). Otherwise 1. A warp makes a column's; a lane's share of the sums is asked for at once, before the
// activations are, and added up behind them.
constexpr int n_share = spec::rms ? (n_group + WARP - 1) / WARP : 1;
constexpr int warp_cols = (COLS + spec::warps - 1) / spec::warps; // columns a warp has

struct squares_share {
    float v[warp_cols][n_share];
};

QN_DEV void load_squares(squares_share &s, const float *squares, int n_col)
{
#pragma unroll
    for (int c = 0; c < warp_cols; c++) {
        const int col = threadIdx.x / WARP + c * spec::warps;
#pragma unroll
        for (int k = 0; k < n_share; k++) {
            const int i = threadIdx.x % WARP + k * WARP;
            s.v[c][k] = spec::rms && col < n_col && i < n_group ? squares[col * n_group + i] : 0.0f;
        }
    }
}

QN_DEV void column_factors(float *factor, const squares_share &s, int n_col)
{
#pragma unroll
    for (int c = 0; c < warp_cols; c++) {
        const int col = threadIdx.x / WARP + c * spec::warps;
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < n_share; k++) {
            sum += s.v[c][k];
        }
        sum = warp_sum(sum);
        if (col < n_col && threadIdx.x % WARP == 0) {
            factor[col] =
                spec::rms ? 1.0f / sqrtf(sum / spec::n_in + __int_as_float(spec::rms_eps_bits)) : 1.0f;
        }
    }
}
#endif
