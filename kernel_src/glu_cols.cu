// glu_cols.cu: the `glu` op for up to 8 rows at once, quantised weights and 8-bit activations: as glu_q8.cu,
// with each weight read once for all rows. grid: (blocks); a block does `chunk` consecutive outputs (a
// multiple of 32 where q8_out). block: 32 * spec::warps; shared: 8 * (2 * chunk * slices + 1) floats.
#include "gemv_cols.cuh"

constexpr int gate_dt = spec::fused ? spec::up_dtype : spec::gate_dtype;
constexpr i64 up_rows = spec::fused ? 2 * spec::n_ff : spec::n_ff;
constexpr int up_first = spec::fused ? spec::n_ff : 0;

template <int DT> struct rows_of {
    const u8 *w;
    int first; // row of output 0

    __device__ __forceinline__ plane_ptr row(int at) const
    {
        return row_planes<DT>(w, up_rows, spec::n_in, first + at);
    }
};

QN_ENTRY(32 * spec::warps, spec::per_sm)
QN_KERNEL(const qn_state *st, const u8 *q8, i64 chunk, float *out, i64 out_stride, u8 *q8_out, const u8 *wg,
          const float *bg, const float *sg, const u8 *wu, const float *bu, const float *su,
          const float *squares)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int first = blockIdx.x * (int)chunk, last = min(spec::n_ff, first + (int)chunk),
              width = last - first;
    const int n_col = min((int)COLS, st->n_rows);
    float *factor = qn_shared<float>(0), *gate = factor + COLS, *up = gate + width * COLS * spec::slices;
    column_factors(factor, squares, n_col);
    const rows_of<gate_dt> g_rows = {spec::fused ? wu : wg, 0};
    const rows_of<spec::up_dtype> u_rows = {wu, up_first};
    gemv_columns<gate_dt>(g_rows, first, last, q8, n_col, gate);
    gemv_columns<spec::up_dtype>(u_rows, first, last, q8, n_col, up);
    __syncthreads();
    for (int i = threadIdx.x; i < width * n_col; i += 32 * spec::warps) {
        const int row = i / width, k = i % width, at = first + k;
        float g = column_sum(gate, k, row) * factor[row];
        float u = column_sum(up, k, row) * factor[row];
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
            quantise_group(y, q8_out + row * q8_row_bytes(spec::n_ff), spec::n_ff, at / GROUP);
        }
    }
}
