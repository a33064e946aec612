// glu_cols.cu: the `glu` op for up to 8 rows at once, quantised weights and 8-bit activations: as glu_q8.cu,
// with each weight read once for all rows. grid: (blocks); a block does `chunk` consecutive outputs (a
// multiple of 32 where q8_out). block: 32 * spec::warps; shared: sums_at bytes (columns.cuh) and cols *
// (slices * (2 * chunk + PAD) + 1) floats.
#include "gemv_cols.cuh"

constexpr int gate_dt = spec::fused ? spec::up_dtype : spec::gate_dtype;
constexpr i64 up_rows = spec::fused ? 2 * spec::n_ff : spec::n_ff;
constexpr int up_first = spec::fused ? spec::n_ff : 0;

// Rows [0, width) are of the gate's weights, [width, 2 * width) of those behind it, from output `first` on.
template <int DT> struct rows_of {
    const u8 *gate, *up;
    int first, width;
    static constexpr bool whole_tiles = spec::whole_tiles && spec::n_ff % TILE == 0;

    __device__ __forceinline__ plane_ptr row(int at) const
    {
        const bool is_up = at >= width;
        return row_planes<DT>(is_up ? up : gate, up_rows, spec::n_in,
                              first + (is_up ? up_first + at - width : at));
    }
};

QN_ENTRY(32 * spec::warps, spec::per_sm)
QN_KERNEL(const qn_state *st, const u8 *q8, i64 chunk, float *out, i64 out_stride, u8 *q8_out, const u8 *wg,
          const float *bg, const float *sg, const u8 *wu, const float *bu, const float *su,
          const float *squares)
{
    const int first = blockIdx.x * (int)chunk, last = min(spec::n_ff, first + (int)chunk),
              width = last - first;
    const rows_of<gate_dt> g_rows = {spec::fused ? wu : wg, wu, first, width};
    const rows_of<spec::up_dtype> u_rows = {wu, wu, first, width};
    constexpr bool one_type = gate_dt == spec::up_dtype;
    columns<gate_dt> of_gate;
    begin_columns(of_gate, g_rows, 0,
                  one_type ? 2 * width : width); // weights do not depend on the kernel before
    const int n_col = min((int)COLS, st->n_rows);
    prepare_columns();
    ptx_grid_wait();
    ptx_grid_launch();
    float *factor = qn_shared<float>(sums_at), *gate = factor + COLS, *up = gate + width;
    const int pitch = 2 * (int)chunk + PAD;
    squares_share shares;
    load_squares(shares, squares, n_col);
    take_columns(q8, 0, n_col);
    column_factors(factor, shares, n_col);
    columns_stand();
    run_columns(of_gate, g_rows, q8, n_col, true, gate, pitch);
    if constexpr (!one_type) {
        columns<spec::up_dtype> of_up;
        begin_columns(of_up, u_rows, width, 2 * width);
        run_columns(of_up, u_rows, q8, n_col, n_phase == 1, up, pitch);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < width * n_col; i += 32 * spec::warps) {
        const int row = i / width, k = i % width, at = first + k;
        float g = column_sum(gate, pitch, k, row) * factor[row];
        float u = column_sum(up, pitch, k, row) * factor[row];
        if (spec::has_scale) {
            g *= spec::fused ? *su : *sg;
            u *= *su;
        }
        if (spec::has_bias) {
            g += spec::fused ? bu[at] : bg[at];
            u += bu[up_first + at];
        }
        const float y = activate<spec::act>(g) * u;
        out[row * out_stride + at] = y;
        if (spec::q8_out) { // whole warps of one row: first and width are multiples of 32
            quantise_group<spec::fine_out>(y, q8_out + row * q8_row_bytes<spec::fine_out>(spec::n_ff),
                                           spec::n_ff, at / GROUP);
        }
    }
}
