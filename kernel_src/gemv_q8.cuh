// gemv_q8.cuh: rows of quantised weights times one row of 8-bit activations. A warp keeps its slice of the
// activations in registers and streams rows, of which spec::ahead are on their way while one is multiplied.
// A long row is shared by spec::slices warps, some spans each. Partial sums go to shared memory.
// In a phase of the persistent kernel rows come through a ring in shared memory where they can (ring.cuh).
// defines: gemv_rows, rows_of, load_first, load_slice, row_sum, rms_factor, stage_rows, in_ring, stages_of,
// job_of
#ifndef QN_GEMV_Q8_CUH
#define QN_GEMV_Q8_CUH
#include "quantise.cuh"
#include "ring.cuh"

constexpr int n_group = spec::n_in / GROUP;
constexpr int n_span = (n_group + SPAN - 1) / SPAN;
constexpr int slice_spans = (n_span + spec::slices - 1) / spec::slices; // spans one warp does
constexpr int n_team = spec::warps / spec::slices;                      // rows a block works on at a time
constexpr bool whole_spans = n_group % SPAN == 0;                       // every span has 4 steps of 32 lanes

// Span i of this warp's slice.
QN_DEV span my_span(int i)
{
    if (whole_spans && n_span == 1) {
        return span{0, SPAN, 4, 32};
    }
    const int index = threadIdx.x / WARP % spec::slices * slice_spans + i;
    if (index >= n_span) {
        return span{0, 0, 1, 0};
    }
    return whole_spans ? span{index * SPAN, SPAN, 4, 32} : span_of(n_group, index);
}

// Where spans are not whole, four consecutive groups are a lane's unit, and slices have equal numbers of
// units: no warp has less to do, and no lane's groups hang on a condition each. Lanes without a unit read
// another's and multiply it with zeros.
constexpr bool by_units =
    !whole_spans && n_group % 4 == 0 && (spec::slices > 1 || (n_span == 1 && n_group > 64));
constexpr int n_unit = n_group / 4, slice_units = (n_unit + spec::slices - 1) / spec::slices;

// A lane's unit: group t of it stands at place + t % 2 * one + t / 2 * two.
struct unit {
    int number, place, one, two;
    bool there;
};

// Unit i of this lane.
QN_DEV unit my_unit(int i)
{
    constexpr int per_span = SPAN / 4;
    const span rest = span_of(n_group, n_span - 1);
    const int at = i * WARP + threadIdx.x % WARP, first = threadIdx.x / WARP % spec::slices * slice_units;
    const bool there = at < slice_units && first + at < n_unit;
    const int u = there ? first + at : min(first, n_unit - 1), v = u - (n_span - 1) * per_span;
    if (n_span > 1 && v < 0) {
        return unit{u, u / per_span * SPAN + u % per_span, WARP, 2 * WARP, there};
    }
    const int k = 4 / rest.steps; // lanes that the layout has for a unit
    return unit{u, rest.first + k * v, rest.steps == 1 ? 1 : rest.lanes,
                rest.steps == 4 ? 2 * rest.lanes : 3 - rest.steps, there};
}

QN_DEV int place_in_unit(const unit &u, int t)
{
    return u.place + t % 2 * u.one + t / 2 * u.two;
}

// Does this lane have a group in step t of a span?
QN_DEV bool has_group(const span &s, int t)
{
    const int lane = threadIdx.x % WARP;
    return whole_spans ? s.n > 0 : t < s.steps && lane < s.lanes && lane * s.steps + t < s.n;
}

constexpr int n_rms = spec::rms ? (n_group + WARP - 1) / WARP : 1; // sums of squares a lane adds up

struct slice {
    act_group x[slice_spans][4];
};

// Where the activations are x * w of an RMS norm not yet divided by the root of their mean square, that
// factor is made from the sums of squares of their groups (linear_q8.cu writes them). A lane's share of their
// sum: asked for with the activations, added up when the products are done.
struct rms_share {
    float v[n_rms];
};

QN_DEV rms_share load_rms(const float *squares)
{
    rms_share r;
#pragma unroll
    for (int i = 0; i < n_rms; i++) {
        const int at = i * WARP + threadIdx.x % WARP;
        r.v[i] = spec::rms && at < n_group ? squares[at] : 0.0f;
    }
    return r;
}

QN_DEV float rms_factor(const rms_share &r)
{
    if (!spec::rms) {
        return 1.0f;
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < n_rms; i++) {
        sum += r.v[i];
    }
    return ptx_rsqrt(warp_sum(sum) / spec::n_in + __int_as_float(spec::rms_eps_bits));
}

// This warp's slice of a row of activations. (Staged in shared memory it was 5 % slower.)
QN_DEV void load_slice(slice &s, const u8 *q8)
{
#pragma unroll
    for (int i = 0; i < slice_spans; i++) {
        if constexpr (by_units) {
            const unit u = my_unit(i);
#pragma unroll
            for (int t = 0; t < 4; t++) {
                s.x[i][t] =
                    u.there ? load_act<spec::fine_in>(q8, spec::n_in, place_in_unit(u, t)) : act_group{};
            }
            continue;
        }
        const span sp = my_span(i);
#pragma unroll
        for (int t = 0; t < 4; t++) {
            s.x[i][t] =
                has_group(sp, t)
                    ? load_act<spec::fine_in>(q8, spec::n_in, sp.first + t * sp.lanes + threadIdx.x % WARP)
                    : act_group{};
        }
    }
}

// A lane's share of one row.
template <int DT> struct row_slice {
    group<DT> g[slice_spans][4]; // codes; scales where they stand beside them
    u32x4 s[slice_spans];        // headers of K types
    u32 d[slice_spans];
};

// Where this lane's pieces of its warp's slice begin. What is added to it is constant, so that a row's
// address is made once and not for each of its loads.
template <int DT> QN_DEV plane_ptr lane_planes(const plane_ptr &p)
{
    using P = planes<DT>;
    const int lane = threadIdx.x % WARP;
    const int first = n_span == 1 ? 0 : threadIdx.x / WARP % spec::slices * (slice_spans * SPAN);
    const int place = first + lane, scale = P::s_groups == 8 ? first / 8 + lane / 2 : place;
    return plane_ptr{p.q + ptx_opaque(place * P::q_bytes), p.h + ptx_opaque(place * P::h_bytes),
                     p.s + ptx_opaque(scale * P::s_bytes), p.d + ptx_opaque(scale * P::d_bytes), p.n_group};
}

template <int DT, int HOW> QN_DEV void load_planes(row_slice<DT> &r, const plane_ptr &p)
{
    if constexpr (whole_spans) {
        const plane_ptr mine = lane_planes<DT>(p);
#pragma unroll
        for (int i = 0; i < slice_spans; i++) {
            if (my_span(i).n == 0) {
                continue;
            }
#pragma unroll
            for (int t = 0; t < 4; t++) {
                load_codes<DT, HOW>(r.g[i][t], mine, i * SPAN + t * WARP);
            }
            if (planes<DT>::s_groups == 8) {
                load_header<DT>(r.s[i], r.d[i], mine, i * (SPAN / 8));
            }
        }
        return;
    }
    if constexpr (by_units) {
#pragma unroll
        for (int i = 0; i < slice_spans; i++) {
            const unit u = my_unit(i);
#pragma unroll
            for (int t = 0; t < 4; t++) {
                load_codes<DT, HOW>(r.g[i][t], p, ptx_opaque(place_in_unit(u, t)));
            }
            if (planes<DT>::s_groups == 8) {
                load_header<DT>(r.s[i], r.d[i], p, ptx_opaque(u.number / 2));
            }
        }
        return;
    }
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < slice_spans; i++) {
        const span sp = my_span(i);
#pragma unroll
        for (int t = 0; t < 4; t++) {
            if (has_group(sp, t)) {
                load_codes<DT, HOW>(r.g[i][t], p, sp.first + t * sp.lanes + lane);
            }
        }
        if (planes<DT>::s_groups == 8 && has_group(sp, 0)) {
            load_header<DT>(r.s[i], r.d[i], p, (sp.first + lane * sp.steps) / 8);
        }
    }
}

template <int DT> QN_DEV void load_row(row_slice<DT> &r, const u8 *w, i64 n_rows, i64 row)
{
    load_planes<DT, STREAM>(r, row_planes<DT>(w, n_rows, spec::n_in, row));
}

// This lane's part of the product.
template <int DT> QN_DEV float dot_row(const row_slice<DT> &r, const slice &s)
{
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < slice_spans; i++) {
        const span sp = my_span(i);
#pragma unroll
        for (int t = 0; t < 4; t++) {
            if (by_units || has_group(sp, t)) {
                group<DT> g = r.g[i][t];
                if (planes<DT>::s_groups == 8) {
                    g.s = r.s[i];
                    g.d = r.d[i];
                }
                const int first =
                    threadIdx.x % WARP * sp.steps; // of a whole span's 4 groups: 0 or 4 modulo 8
                const int index = by_units      ? (my_unit(i).number & 1) * 4 + t
                                  : whole_spans ? (first & 4) + t
                                                : sp.first + first + t;
                sum += dot_group<DT, spec::fine_in>(g, index, s.x[i][t]);
            }
        }
    }
    return sum;
}

// Rows that a warp has under way. Sets of registers take turns without ever being copied: a copy would wait
// for the loads that were just sent.
template <int DT> struct rows_ahead {
    row_slice<DT> r[spec::ahead];
};

// Rows of a team that are asked of memory before the wait. In a phase of the persistent kernel its signals
// stand in line behind them.
constexpr int early_rows = qn_in_phase ? 1 : spec::ahead;

// Rows of a stage of the ring; 0: they are asked for by those who multiply them. W::step: rows that must be
// in one stage, 1 or 2.
template <int DT, class W>
constexpr int stage_rows = ring_rows(plane_row_of<DT>(spec::n_in), n_team, W::step, qn_ring_bytes);
template <int DT, class W> constexpr bool in_ring = stage_rows<DT, W> != 0;

// Rows [first, last) as what a lane of the ring's writer brings. w.plane<ROWS>(job, tensor, plane): a plane
// of the tensors that the rows are of. False: they do not come through the ring.
template <int DT, class W> QN_DEV bool job_of(ring_job &j, const W &w, int first, int last, int lane)
{
    constexpr int rows = stage_rows<DT, W>;
    static_assert(spec::warps % spec::slices == 0 && spec::warps < RING_READERS, "each row has one team");
    if constexpr (rows > 0) {
        j = ring_job{
            first, last, rows, plane_row_of<DT>(spec::n_in).all(), spec::slices, W::step - 1, nullptr, 0,
            0,     0,    0};
        w.template plane<rows>(j, lane / RING_PLANES, lane % RING_PLANES);
    }
    return rows > 0;
}

// Where a team's rows come from: `first` is the first of its block, which begins stage `stage` of the ring,
// if there is one.
struct rows_from {
    int first, last;
    u32 stage;
};

// `before`: stages of this phase before the first row's.
template <int DT, class W> QN_DEV rows_from rows_of(const W &, int first, int last, u32 before = 0)
{
    rows_from from = {first, last, 0};
    if constexpr (in_ring<DT, W>) {
        from.stage = ((const ring_head *)qn_ring())->first + before;
    }
    return from;
}

// A row into registers: out of the ring, or on its way. w.load(r, row) asks memory for it; w.place<ROWS>(i):
// where the i-th row of a stage of the ring stands in it.
template <int DT, class W> QN_DEV void bring_row(row_slice<DT> &r, const W &w, int row, const rows_from &from)
{
    if constexpr (in_ring<DT, W>) {
        constexpr int rows = stage_rows<DT, W>;
        constexpr u32 slots = ring_slots(qn_ring_bytes);
        const int at = row - from.first;
        const u32 stage = from.stage + at / rows;
        const u8 *weights = ring_wait(qn_ring(), stage, slots);
        load_planes<DT, FROM_SHARED>(
            r, row_planes<DT>(weights, rows, spec::n_in, w.template place<rows>(at % rows)));
        ring_done(qn_ring(), stage, slots);
    } else {
        w.load(r, row);
    }
}

// This team's first rows, before the activations are there: from the i-th on, `to` in all; out of the ring
// all of them at the first call.
template <int DT, class W>
QN_DEV void load_first(rows_ahead<DT> &r, const W &w, const rows_from &from, int i = 0, int to = early_rows)
{
    constexpr bool ring = in_ring<DT, W>;
    const int row = from.first + threadIdx.x / WARP / spec::slices;
#pragma unroll
    for (int k = 0; k < spec::ahead; k++) {
        if (ring ? i > 0 : k < i || k >= to) {
            continue;
        }
        if (row + k * n_team < from.last) {
            bring_row(r.r[k], w, row + k * n_team, from);
        } else {
            no_value(r.r[k]);
        }
    }
}

// Sums of two rows over the warp in five shuffles: the lower half of the lanes gets a's, the upper half b's.
QN_DEV float warp_sum_pair(float a, float b)
{
    const bool upper = threadIdx.x % WARP >= WARP / 2;
    float v = (upper ? b : a) + __shfl_xor_sync(0xffffffffu, upper ? a : b, WARP / 2);
    for (int d = WARP / 4; d > 0; d /= 2) {
        v += __shfl_xor_sync(0xffffffffu, v, d);
    }
    return v;
}

// Stages that rows [first, last) take.
template <int DT, class W> QN_DEV u32 stages_of(int first, int last)
{
    constexpr int rows = stage_rows<DT, W>;
    return rows > 0 ? (u32)(last - first + rows - 1) / (rows > 0 ? rows : 1) : 0;
}

// This lane's part of a row's product; the row that its registers hold next is sent for.
template <int DT, class W>
QN_DEV float next_row(const W &w, row_slice<DT> &r, int row, const rows_from &from, const slice &s)
{
    const float sum = dot_row(r, s);
    if (row + spec::ahead * n_team < from.last) {
        bring_row(r, w, row + spec::ahead * n_team, from);
    }
    return sum;
}

// A team's rows I and I + 1, n_team apart, of the spec::ahead that it has under way; `row`: row I.
template <int I, int DT, class W>
QN_DEV void gemv_turn(const W &w, int row, const rows_from &from, rows_ahead<DT> &r, const slice &s,
                      float *res)
{
    const int part = threadIdx.x / WARP % spec::slices, lane = threadIdx.x % WARP;
    const int first = from.first, last = from.last;
    const float a = next_row(w, r.r[I], row, from, s);
    if constexpr (I + 1 == spec::ahead) { // the last one of an odd number
        const float sum = warp_sum(a);
        if (lane == 0) {
            res[(row - first) * spec::slices + part] = sum;
        }
    } else {
        float b = 0.0f;
        if (row + n_team < last) {
            b = next_row(w, r.r[I + 1], row + n_team, from, s);
        }
        const float sum = warp_sum_pair(a, b);
        const int mine = lane < WARP / 2 ? row : row + n_team;
        if (lane % (WARP / 2) == 0 && mine < last) {
            res[(mine - first) * spec::slices + part] = sum;
        }
        if constexpr (I + 2 < spec::ahead) {
            if (row + 2 * n_team < last) {
                gemv_turn<I + 2>(w, row + 2 * n_team, from, r, s, res);
            }
        }
    }
}

// The block's rows; row i's sums go to res[(i - first) * slices + slice]. load_first has sent for this team's
// first ones.
template <int DT, class W>
QN_DEV void gemv_rows(const W &w, const rows_from &from, rows_ahead<DT> &r, const slice &s, float *res)
{
    if (in_ring<DT, W> && threadIdx.x == 0) {
        ((ring_head *)qn_ring())->next += stages_of<DT, W>(from.first, from.last);
    }
    const int team = threadIdx.x / WARP / spec::slices;
    for (int row = from.first + team; row < from.last; row += spec::ahead * n_team) {
        gemv_turn<0>(w, row, from, r, s, res);
    }
}

// Sum of a row's slices.
QN_DEV float row_sum(const float *res, int i)
{
    float y = 0.0f;
    for (int k = 0; k < spec::slices; k++) {
        y += res[i * spec::slices + k];
    }
    return y;
}

#endif
