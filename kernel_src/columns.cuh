// columns.cuh: the activations of a product with columns (gemv_cols.cuh) in shared memory. Those of a phase
// (all of a row where they fit) stand there at a time. defines: lap_span, is_step, is_there, magic,
// prepare_columns, take_columns, columns_stand, span_stands, right_side, load_pair, pair_scales, load_scales,
// column_sum, load_squares, column_factors
#ifndef QN_COLUMNS_CUH
#define QN_COLUMNS_CUH
#include "quantise.cuh"

enum { PAD = 4 };
constexpr bool fine = spec::fine_in;
constexpr int COLS = spec::cols, PAIRS = COLS / 2, SCALE_BYTES = (int)sizeof(q8_scales<fine>);

constexpr int n_group = spec::n_in / GROUP, n_place = n_places(n_group);
constexpr int n_span = (n_group + SPAN - 1) / SPAN;
constexpr span last_span = span_of(n_group, n_span - 1);
constexpr int whole_laps = SPAN / 16, n_lap = (n_span - 1) * whole_laps + (last_span.lanes + 3) / 4;
// spec::phase: spans whose activations stand in shared memory at a time.
constexpr int n_phase = (n_span + spec::phase - 1) / spec::phase;
constexpr int phase_laps = n_phase == 1 ? n_lap : spec::phase * whole_laps;
constexpr int phase_places = n_phase == 1 ? n_place : spec::phase * SPAN;
// Bytes of shared memory. A column has its places' codes of values 0-15 and, from hi_at on, 16-31, then what
// quantise.cuh has beside codes, and behind it zeros; 64 more than a multiple of 128 bytes, so that what a
// quad's lanes read of two columns lies on different banks.
constexpr int hi_at = phase_places * 16, beside_at = 2 * hi_at;
constexpr int none_at = (beside_at + phase_places * SCALE_BYTES + 15) / 16 * 16;
constexpr int COL_BYTES = (none_at + 16 + 63) / 128 * 128 + 64;
// Long rows come by bulk copies, with a barrier for each span, from barriers_at on: a unit waits for its own
// (rows of one span are there sooner by copies of 16 bytes).
constexpr bool odd = !fine && n_place % 2 != 0; // the last of what is beside codes is half of 16 bytes
constexpr bool bulk = QN_VARIANT >= 90 && n_phase == 1 && n_span > 1 && !odd;
constexpr int barriers_at = COLS * COL_BYTES, sums_at = barriers_at + (n_span + 1) / 2 * 16;
constexpr bool whole_spans = n_group % SPAN == 0;

QN_DEV span lap_span(int lap)
{
    if constexpr (n_span == 1) { // known here: steps that no lane has cost nothing
        return span_of(n_group, 0);
    }
    return whole_spans ? span{lap / whole_laps * SPAN, SPAN, 4, 32} : span_of(n_group, lap / whole_laps);
}

// Do lanes have a group at a step? Does this one?
QN_DEV bool is_step(const span &s, int step)
{
    return whole_spans || (n_span > 1 && last_span.steps == 4) || step < s.steps;
}

QN_DEV bool is_there(const span &s, int lane, int step)
{
    return whole_spans || (lane < s.lanes && lane * s.steps + step < s.n);
}

// Sums start from the bits of 1.5 * 2^23, so that they are a float's: that number plus the sum. What this
// adds is taken away in the multiplication with the activations' factor d: d * bits - d * 1.5 * 2^23, exact
// but for one rounding, since d has 22 bits. |sum| < 2^22: 32 * 240 * 127 at most.
constexpr float magic = 12582912.0f;
constexpr i32 magic_bits = 0x4b400000;

// What activations are read of where there is no group; barriers. Before the wait.
QN_DEV void prepare_columns()
{
    if (!whole_spans && threadIdx.x < COLS) {
        *qn_shared<q8_scales<fine>>(threadIdx.x * COL_BYTES + none_at) = q8_scales<fine>{};
    }
    if constexpr (bulk) {
        if (threadIdx.x == 0) {
            for (int i = 0; i < n_span; i++) {
                ptx_barrier_init(qn_shared<u64>(barriers_at) + i, 1);
            }
            ptx_barrier_init_fence();
        }
        __syncthreads();
    }
}

// A span's activations by the lanes of a warp; columns that are not there are as the first.
QN_DEV void take_span(const u8 *q8, int index, int n_col)
{
    const span s = span_of(n_group, index);
    const int n = s.steps * s.lanes, lane = threadIdx.x % WARP, n_beside = (n * SCALE_BYTES + 15) / 16 * 16;
    u64 *barrier = qn_shared<u64>(barriers_at) + index;
    if (lane == 0) {
        ptx_barrier_expect(barrier, COLS * (32 * n + n_beside));
    }
    __syncwarp();
    if (lane < 3 * COLS) {
        const int col = lane / 3, piece = lane % 3;
        const u8 *row = q8 + (col < n_col ? col : 0) * q8_row_bytes<fine>(spec::n_in);
        const int from = piece * n_place * 16 + s.first * (piece == 2 ? SCALE_BYTES : 16);
        const int to = piece * hi_at + s.first * (piece == 2 ? SCALE_BYTES : 16);
        ptx_bulk_load(qn_shared<u8>(col * COL_BYTES + to), row + from, barrier,
                      piece == 2 ? n_beside : n * 16);
    }
}

// Asks for the activations of a phase, from rows as quantise.cuh has them; columns that are not there are
// zero, or as the first. They stand when columns_stand returns, and in it span_stands.
QN_DEV void take_columns(const u8 *q8, int phase, int n_col)
{
    if constexpr (bulk) {
        for (int i = threadIdx.x / WARP; i < n_span; i += spec::warps) {
            take_span(q8, i, n_col);
        }
        return;
    }
    u8 *acts = qn_shared<u8>(0);
    const int first = phase * spec::phase * SPAN;
    const int n = n_phase == 1 ? n_place : min(phase_places, n_place - first);
    const int n_beside = n * SCALE_BYTES / 16, pieces = 2 * n + n_beside;
    const i64 stride = q8_row_bytes<fine>(spec::n_in);
    for (int i = threadIdx.x; i < COLS * pieces; i += WARP * spec::warps) {
        const int col = i / pieces, at = i % pieces, hi = at >= n, beside = at >= 2 * n;
        const int from = n_phase == 1 ? at * 16
                         : beside     ? n_place * 32 + first * SCALE_BYTES + (at - 2 * n) * 16
                                      : ((hi ? n_place - n : 0) + first + at) * 16;
        const int to = beside ? beside_at + (at - 2 * n) * 16 : hi ? hi_at + (at - n) * 16 : at * 16;
        ptx_copy_async16(acts + col * COL_BYTES + to, q8 + (col < n_col ? col * stride + from : 0),
                         col < n_col);
    }
    if constexpr (odd) {
        if (n % 2 != 0 && threadIdx.x < COLS) {
            const int at = (n - 1) * SCALE_BYTES, from = n_place * 32 + first * SCALE_BYTES + at;
            const u8 *row = q8 + threadIdx.x * stride;
            *(q8_scales<fine> *)(acts + threadIdx.x * COL_BYTES + beside_at + at) =
                (int)threadIdx.x < n_col ? *(const q8_scales<fine> *)(row + from) : q8_scales<fine>{};
        }
    }
    ptx_copy_commit();
}

QN_DEV void columns_stand()
{
    if constexpr (!bulk) {
        ptx_copy_wait<0>();
        __syncthreads();
    }
}

// The activations of a unit's span stand.
QN_DEV void span_stands(int lap)
{
    if constexpr (bulk) {
        ptx_barrier_wait(qn_shared<u64>(barriers_at) + lap / whole_laps, 0);
    }
}

// Activations on their way to the products: a lane has words where the column is of its group, and zeros
// otherwise, from the start and for good. Two sets take turns.
struct right_side {
    u32x4 lo[2], hi[2];
};

// Is the column of this lane (lane / 4) one of its group's (lane % 4)? Two times, so that the compiler does
// not see that they are one: of two loads on one condition it makes a branch.
QN_DEV bool is_mine()
{
    return threadIdx.x % 4 == threadIdx.x % WARP / 8;
}

QN_DEV bool is_mine_too()
{
    return (0x88442211u >> threadIdx.x % WARP & 1) != 0;
}

// Codes of columns 2 * PAIR and the next, to set SET. codes: of this lane's group's place, AT bytes before,
// and column; there: is there a group?
template <int SET, int PAIR, int AT> QN_DEV void load_pair(right_side &b, const u8 *codes, bool there)
{
    constexpr int at = AT + PAIR * 2 * COL_BYTES;
    ptx_load_shared_if<at>(b.lo[SET], codes, is_mine() && there);
    ptx_load_shared_if<at + hi_at>(b.hi[SET], codes, is_mine_too() && there);
}

// Factors of two columns, values 0-15 and 16-31, each with that by which `magic` is taken away; and d * sum.
struct pair_scales {
    float d[2][2], less[2][2], sum[2][2];
};

QN_DEV pair_scales load_scales(const u8 *beside, int pair)
{
    pair_scales s;
    for (int e = 0; e < 2; e++) {
        const u8 *at = beside + (2 * pair + e) * COL_BYTES;
        if constexpr (fine) {
            const f32x4 v = *(const f32x4 *)at;
            s.d[e][0] = v.x;
            s.d[e][1] = v.y;
            s.sum[e][0] = v.z;
            s.sum[e][1] = v.w;
        } else {
            const f32x2 v = *(const f32x2 *)at;
            s.d[e][0] = s.d[e][1] = v.x;
            s.sum[e][0] = v.y;
        }
        for (int k = 0; k < 2; k++) {
            s.less[e][k] = s.d[e][k] * -magic;
        }
    }
    return s;
}

// d * a sum of codes.
QN_DEV float scaled(i32 bits, const pair_scales &s, int e, int half)
{
    return fmaf(__int_as_float(bits), s.d[e][half], s.less[e][half]);
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
