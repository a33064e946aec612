// glu.cu: the `glu` op for few rows: one warp computes a gate row and its up row; any weights, f32
// activations. Sparse gates need the whole row's statistics: the products go out unactivated (spec::raw) and
// glu_act.cu follows. grid: (ceil(n_ff / warps), rows); block: 32 * spec::warps; shared: none.
#include "gemv.cuh"

QN_ENTRY(32 * spec::warps)
QN_KERNEL(const qn_state *st, const float *x, i64 x_stride, float *out, i64 out_stride, const u8 *wg,
          const float *bg, const float *sg, const u8 *wu, const float *bu, const float *su)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.y, at = blockIdx.x * spec::warps + threadIdx.x / WARP;
    if (row >= st->n_rows || at >= spec::n_ff) {
        return;
    }
    constexpr int gate_dt = spec::fused ? spec::up_dtype : spec::gate_dtype;
    const int up_row = spec::fused ? spec::n_ff + at : at;
    const u8 *gate_w = spec::fused ? wu : wg;
    x += row * x_stride;
    float g = gemv_row<gate_dt>(gate_w, spec::fused ? 2 * spec::n_ff : spec::n_ff, at, x, spec::n_in);
    float u = gemv_row<spec::up_dtype>(wu, spec::fused ? 2 * spec::n_ff : spec::n_ff, up_row, x, spec::n_in);
    if (threadIdx.x % WARP != 0) {
        return;
    }
    if (spec::has_scale) {
        g *= spec::fused ? *su : *sg;
        u *= *su;
    }
    if (spec::has_bias) {
        g += spec::fused ? bu[at] : bg[at];
        u += bu[up_row];
    }
    if (spec::raw) {
        out[row * out_stride + at] = g;
        out[row * out_stride + spec::n_ff + at] = u;
    } else {
        out[row * out_stride + at] = activate<spec::act>(g) * u;
    }
}
