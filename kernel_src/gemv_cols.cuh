// gemv_cols.cuh: rows of quantised weights times up to 8 rows of 8-bit activations (columns) by int8 tensor
// core products: each weight is read and unpacked once for all columns. A warp does a tile of 16 rows, or
// with others a part of it. Of the plane of codes, the four lanes of a row read four places side by side, 64
// bytes, so that each holds another group; a product of 16 x 8 x 32 takes a quarter of each of the four
// groups. To keep their sums apart, its eight columns are two columns of the caller times four groups: the
// activations of a group stand in the lanes that hold its weights, and zeros elsewhere. Sums over a group are
// exact. defines: col_tile, tile_columns, sum_columns, column_factors
#ifndef QN_GEMV_COLS_CUH
#define QN_GEMV_COLS_CUH
#include "quantise.cuh"

enum { COLS = 8, TILE = 16, PAIRS = COLS / 2 };

constexpr int n_group = spec::n_in / GROUP;
constexpr int n_span = (n_group + SPAN - 1) / SPAN;
// A lap is four lanes' worth of a span: 16 places where a span is whole.
constexpr span last_span = span_of(n_group, n_span - 1);
constexpr int whole_laps = SPAN / 16, n_lap = (n_span - 1) * whole_laps + (last_span.lanes + 3) / 4;

// Types whose groups have two scales: values 0-15 and 16-31.
template <int DT> constexpr bool two_scales = DT == DT_Q2_K || DT == DT_Q3_K || DT == DT_Q6_K;

// The codes of a lap for one row: a group a step.
template <int DT> struct lap_codes {
    group<DT> g[4];
};

QN_DEV span lap_span(int lap)
{
    return n_group % SPAN == 0 ? span{lap / whole_laps * SPAN, SPAN, 4, 32}
                               : span_of(n_group, lap / whole_laps);
}

template <int DT> QN_DEV void load_lap(lap_codes<DT> &r, const plane_ptr &p, const span &s, int lane)
{
    for (int step = 0; step < 4; step++) {
        r.g[step] = group<DT>{};
        if (step < s.steps && lane < s.lanes && lane * s.steps + step < s.n) {
            load_codes(r.g[step], p, s.first + step * s.lanes + lane);
        }
    }
}

// Four products: words of both rows' groups against the activations. LOW, HIGH: of values 0-15, of 16-31.
template <int DT>
QN_DEV void multiply_low(i32 d[4], const group<DT> &g0, const group<DT> &g1, const u32 x[4], bool high)
{
    for (int w = 0; w < 4; w += 2) {
        const u32 a[4] = {code_word<DT>(g0, w, high), code_word<DT>(g1, w, high),
                          code_word<DT>(g0, w + 1, high), code_word<DT>(g1, w + 1, high)};
        ptx_mma_s8(d, a, x[w], x[w + 1]);
    }
}

// Sums of activation codes over the halves of the groups.
QN_DEV void sum_codes(i32 d[4], const u32 x[4])
{
    const u32 ones[4] = {0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u};
    ptx_mma_s8(d, ones, x[0], x[1]);
    ptx_mma_s8(d, ones, x[2], x[3]);
}

// Scale and minimum of this lane's two groups (of columns 2t and 2t + 1) in one row.
template <int DT>
QN_DEV affine lap_affine(const plane_ptr &p, const group<DT> &header, const span &s, int lane, int step)
{
    const int index = s.first + lane * s.steps + step;
    group<DT> g = header;
    if (planes<DT>::s_groups == 1) {
        const int place = s.first + step * s.lanes + lane;
        g.s.x = planes<DT>::s_bytes == 4 ? *(const u32 *)(p.s + place * 4) : *(const u16 *)(p.s + place * 2);
    }
    return group_affine<DT>(g, index);
}

// y[row half][pair]: this lane's share of rows g and g + 8 of the tile and column 2 * pair + t / 2, from lap
// `first` on in steps of `laps`. p: the two rows; q8: the columns.
template <int DT>
QN_DEV void tile_columns(float y[2][PAIRS], const plane_ptr p[2], const u8 *q8, int n_col, int first,
                         int laps)
{
    const int lane = threadIdx.x % WARP, col = lane / 4, t = lane % 4, pair_col = t / 2, upper = 2 * (t & 1);
    const i64 stride = q8_row_bytes(spec::n_in);
    for (int lap = first; lap < n_lap; lap += laps) {
        const span s = lap_span(lap);
        const int lane0 = lap % whole_laps * 4; // of the span's lanes: this lap has four of them
        lap_codes<DT> c[2];
        group<DT> header[2] = {};
        for (int r = 0; r < 2; r++) {
            load_lap(c[r], p[r], s, lane0 + t);
            if (planes<DT>::s_groups == 8 && lane0 + upper < s.lanes) {
                load_header<DT>(header[r].s, header[r].d, p[r], (s.first + (lane0 + upper) * s.steps) / 8);
            }
        }
#pragma unroll
        for (int step = 0; step < 4; step++) {
            if (step >= s.steps) {
                break;
            }
            const int mine = (lane0 + t) * s.steps + step; // group of this lane's weights, in the span
            const bool holds = t == (col & 3) && lane0 + t < s.lanes && mine < s.n;
            affine f[2][2];
            bool there[2];
            for (int e = 0; e < 2; e++) {
                const int l = lane0 + upper + e;
                there[e] = l < s.lanes && l * s.steps + step < s.n;
                for (int r = 0; r < 2; r++) {
                    f[r][e] = there[e] ? lap_affine(p[r], header[r], s, l, step) : affine{};
                }
            }
#pragma unroll
            for (int pair = 0; pair < PAIRS; pair++) {
                if (2 * pair >= n_col) {
                    break;
                }
                act_group x = {};
                if (holds && 2 * pair + col / 4 < n_col) {
                    const u32x4 *row = (const u32x4 *)(q8 + (2 * pair + col / 4) * stride);
                    const int place = s.first + step * s.lanes + lane0 + t;
                    const u32x4 lo = row[place], hi = row[n_places(n_group) + place];
                    x = act_group{{lo.x, lo.y, lo.z, lo.w}, {hi.x, hi.y, hi.z, hi.w}, 0.0f, 0.0f};
                }
                i32 low[4] = {0, 0, 0, 0}, high[4] = {0, 0, 0, 0}, ones[2][4] = {};
                multiply_low<DT>(low, c[0].g[step], c[1].g[step], x.lo, false);
                multiply_low<DT>(two_scales<DT> ? high : low, c[0].g[step], c[1].g[step], x.hi, true);
                if (DT == DT_Q2_K) {
                    sum_codes(ones[0], x.lo);
                    sum_codes(ones[1], x.hi);
                }
                const int m = 2 * pair + pair_col;
                for (int e = 0; e < 2; e++) {
                    if (!there[e] || m >= n_col) {
                        continue;
                    }
                    const int place = s.first + step * s.lanes + lane0 + upper + e;
                    const f32x2 ds = ((const f32x2 *)(q8 + m * stride + n_places(n_group) * 32))[place];
                    for (int r = 0; r < 2; r++) {
                        const affine &a = f[r][e];
                        const float sum =
                            two_scales<DT> ? a.a[0] * (float)low[2 * r + e] + a.a[1] * (float)high[2 * r + e]
                                           : a.a[0] * (float)low[2 * r + e];
                        if (DT == DT_Q2_K) {
                            y[r][pair] +=
                                ds.x * (sum + a.b[0] * (float)ones[0][e] + a.b[1] * (float)ones[1][e]);
                        } else if (two_scales<DT> || DT == DT_Q8_0 || DT == DT_IQ4_NL || DT == DT_IQ4_XS) {
                            y[r][pair] += ds.x * sum;
                        } else {
                            y[r][pair] += ds.x * sum + a.b[0] * ds.y;
                        }
                    }
                }
            }
        }
    }
}

// Tiles of rows [first, last), their sums to res[((row - first) * COLS + column) * slices + slice]. w.row(i)
// gives a row's planes. Warps: spec::slices of them, a divisor of spec::warps, share a tile.
template <int DT, class W>
QN_DEV void gemv_columns(const W &w, int first, int last, const u8 *q8, int n_col, float *res)
{
    constexpr int slices = spec::slices;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, slice = warp % slices;
    const int teams = spec::warps / slices, tiles = (last - first + TILE - 1) / TILE;
    for (int tile = warp / slices; tile < tiles; tile += teams) {
        const int row = first + tile * TILE + lane / 4;
        const plane_ptr p[2] = {w.row(min(row, last - 1)), w.row(min(row + 8, last - 1))};
        float y[2][PAIRS] = {};
        tile_columns<DT>(y, p, q8, n_col, slice, slices);
        for (int r = 0; r < 2; r++) {
#pragma unroll
            for (int pair = 0; pair < PAIRS; pair++) {
                const float sum = y[r][pair] + __shfl_xor_sync(0xffffffffu, y[r][pair], 1);
                const int col = 2 * pair + lane % 4 / 2, at = row + 8 * r;
                if ((lane & 1) == 0 && at < last && col < n_col) {
                    res[((at - first) * COLS + col) * slices + slice] = sum;
                }
            }
        }
    }
}

// A row's sum of slices in a column.
QN_DEV float column_sum(const float *res, int i, int col)
{
    constexpr int slices = spec::slices;
    float y = 0.0f;
    for (int k = 0; k < slices; k++) {
        y += res[(i * COLS + col) * slices + k];
    }
    return y;
}

// Where the activations are x * w of an RMS norm not yet divided by the root of their mean square: that
// factor of each column, from the sums of squares of their groups (linear_cols.cu and linear_q8.cu write
// them). Otherwise 1.
QN_DEV void column_factors(float *factor, const float *squares, int n_col)
{
    for (int col = threadIdx.x / WARP; col < n_col; col += spec::warps) {
        float sum = 0.0f;
        for (int i = threadIdx.x % WARP; spec::rms && i < n_group; i += WARP) {
            sum += squares[col * n_group + i];
        }
        sum = warp_sum(sum);
        if (threadIdx.x % WARP == 0) {
            factor[col] =
                spec::rms ? 1.0f / sqrtf(sum / spec::n_in + __int_as_float(spec::rms_eps_bits)) : 1.0f;
        }
    }
}
#endif
