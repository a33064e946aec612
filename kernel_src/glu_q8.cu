// glu_q8.cu: the `glu` op for few rows with quantised weights and 8-bit activations; the result goes out in
// f32 and, where spec::q8_out, as 8-bit groups for the product that follows. grid: (blocks, rows); a block
// does `chunk` consecutive outputs (a multiple of 32 where q8_out and not spec::share_groups). block: 32 *
// spec::warps; shared: norm_in_bytes, 2 * chunk * slices floats. counts: [rows][n_ff / 32] (whole_group).
#include "norm_in.cuh"

constexpr int gate_dt = spec::fused ? spec::up_dtype : spec::gate_dtype;
constexpr i64 up_rows = spec::fused ? 2 * spec::n_ff : spec::n_ff, gate_rows = up_rows;
constexpr int up_first = spec::fused ? spec::n_ff : 0;
constexpr bool one_type = gate_dt == spec::up_dtype;
constexpr bool share_groups = spec::q8_out && spec::share_groups;

// WHICH 0: gate rows, 1: up rows, 2: both, taking turns (they have one type then).
template <int DT, int WHICH> struct glu_weights {
    static constexpr int step = WHICH == 2 ? 2 : 1;
    const u8 *gate, *up;

    __device__ __forceinline__ void load(row_slice<DT> &r, int v) const
    {
        const int row = WHICH == 2 ? v / 2 : v;
        // A warp whose rows are an even number apart has only gate rows or only up rows.
        const int turn = n_team % 2 == 0 ? threadIdx.x / WARP / spec::slices : v;
        const bool is_gate = WHICH == 2 ? turn % 2 == 0 : WHICH == 0;
        load_row(r, is_gate ? gate : up, up_rows, is_gate ? row : up_first + row);
    }
    // In a stage stand first the gate rows, then the up rows.
    template <int ROWS> __device__ __forceinline__ static int place(int i)
    {
        return WHICH == 2 ? i % 2 * (ROWS / 2) + i / 2 : i;
    }
    template <int ROWS> __device__ __forceinline__ void plane(ring_job &j, int tensor, int plane) const
    {
        const bool is_up = WHICH == 1 || (WHICH == 2 && tensor == 1);
        if (tensor < step) {
            ring_plane<DT, ROWS>(j, plane, is_up ? up : gate, up_rows, spec::n_in, 0, spec::n_ff,
                                 WHICH == 2 && is_up ? ROWS / 2 : 0);
            j.from += is_up ? (i64)up_first * j.width : 0;
        }
    }
};

// What the ring's writer brings for a block, of the kernel's arguments; number: of its jobs. False: no such.
QN_DEV bool bring(ring_job &job, const u64 *args, int number, int lane)
{
    const int chunk = (int)args[2], first = blockIdx.x * chunk, last = min(spec::n_ff, first + chunk);
    const u8 *wu = (const u8 *)args[9], *gate = spec::fused ? wu : (const u8 *)args[6];
    if constexpr (one_type) {
        return number == 0 &&
               job_of<gate_dt>(job, glu_weights<gate_dt, 2>{gate, wu}, 2 * first, 2 * last, lane);
    }
    // Either may go past the ring.
    constexpr int gates = in_ring<gate_dt, glu_weights<gate_dt, 0>> ? 1 : 0;
    if (number < gates) {
        return job_of<gate_dt>(job, glu_weights<gate_dt, 0>{gate, wu}, first, last, lane);
    }
    return number == gates &&
           job_of<spec::up_dtype>(job, glu_weights<spec::up_dtype, 1>{gate, wu}, first, last, lane);
}

QN_ENTRY(32 * spec::warps, spec::per_sm)
QN_KERNEL(const qn_state *st, const u8 *q8, i64 chunk, float *out, i64 out_stride, u8 *q8_out, const u8 *wg,
          const float *bg, const float *sg, const u8 *wu, const float *bu, const float *su,
          const float *squares, u32 *counts, const float *in_post_w, const float *in_w, float *in_x_out)
{
    const int row = spec::one_row ? 0 : blockIdx.y;
    const int first = blockIdx.x * (int)chunk, last = min(spec::n_ff, first + (int)chunk);
    float *res = qn_shared<float>(norm_in_bytes);
    const u8 *gate_w = spec::fused ? wu : wg;
    const glu_weights<gate_dt, one_type ? 2 : 0> w = {gate_w, wu};
    const int turn = one_type ? 2 : 1;
    const rows_from from = rows_of<gate_dt>(w, turn * first, turn * last);
    rows_ahead<gate_dt> rows;
    if (!spec::in_norm) {          // the row that is to be made would stand in line behind them
        load_first(rows, w, from); // weights do not depend on the kernel before
    }
    const norm_in_args in_args = {squares, (const float *)q8, in_post_w, in_w, in_x_out};
    norm_in in;
    if (spec::in_norm) {
        load_norm_in(in, in_args);
    }
    ptx_grid_wait();
    ptx_grid_launch();
    if (!spec::one_row && row >= st->n_rows) {
        return;
    }
    u8 *made = qn_shared<u8>(0);
    float *made_sums = qn_shared<float>(spec::in_norm ? in_row : 0);
    slice s;
    if (spec::in_norm) {
        load_rows_in(in, in_args);
        make_norm_in(in, in_args, made, made_sums);
        load_slice(s, made);
    } else {
        load_first(rows, w, from, early_rows, spec::ahead);
        load_slice(s, q8 + row * q8_row_bytes<spec::fine_in>(spec::n_in));
    }
    const rms_share rms = load_rms(squares + row * n_group);
    if (spec::in_norm) {
        load_first(rows, w, from, 0, spec::ahead);
    }
    gemv_rows(w, from, rows, s, res);
    if constexpr (!one_type) {
        const glu_weights<spec::up_dtype, 1> w1 = {gate_w, wu};
        const rows_from from1 = rows_of<spec::up_dtype>(
            w1, first, last, stages_of<gate_dt, glu_weights<gate_dt, 0>>(first, last));
        rows_ahead<spec::up_dtype> rows1;
        load_first(rows1, w1, from1, 0, spec::ahead);
        gemv_rows(w1, from1, rows1, s, res + (int)chunk * spec::slices);
    }
    const float factor = spec::in_norm ? norm_in_factor(made_sums) : rms_factor(rms);
    __syncthreads();
    const int begin = share_groups ? first / GROUP * GROUP : first;
    const int end = share_groups ? (last + GROUP - 1) / GROUP * GROUP : first + (int)chunk;
#pragma unroll 1
    for (int at = begin + threadIdx.x; at < end; at += 32 * spec::warps) {
        const bool mine = at >= first && at < last;
        float y = 0.0f;
        if (mine) {
            const int i = at - first;
            float g = row_sum(res, one_type ? 2 * i : i) * factor;
            float u = row_sum(res, one_type ? 2 * i + 1 : (int)chunk + i) * factor;
            if (spec::has_scale) {
                g *= spec::fused ? *su : *sg;
                u *= *su;
            }
            if (spec::has_bias) {
                g += spec::fused ? bu[at] : bg[at];
                u += bu[up_first + at];
            }
            y = activate<spec::act>(g) * u;
            out[row * out_stride + at] = y;
        }
        if (spec::q8_out) { // whole warps: begin and end, or chunk and first, and n_ff are multiples of 32
            const int g = at / GROUP;
            const float *group = out + row * out_stride + g * GROUP;
            if (share_groups ? whole_group(&y, mine, group, counts + row * (spec::n_ff / GROUP) + g)
                             : at < last) {
                quantise_group<spec::fine_out>(y, q8_out + row * q8_row_bytes<spec::fine_out>(spec::n_ff),
                                               spec::n_ff, g);
            }
        }
    }
}
