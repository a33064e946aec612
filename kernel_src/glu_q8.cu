// glu_q8.cu: the `glu` op for few rows with quantised weights and 8-bit activations; the result goes out in
// f32 and, where spec::q8_out, as 8-bit groups for the product that follows. grid: (blocks, rows); a block
// does `chunk` consecutive outputs (a multiple of 32 where q8_out). block: 32 * spec::warps; shared: 2 *
// chunk * slices floats.
#include "gemv_q8.cuh"

extern "C" __global__ void __launch_bounds__(32 * spec::warps)
    QN_KERNEL(const qn_state *st, const u8 *q8, i64 chunk, float *out, i64 out_stride, u8 *q8_out,
              const u8 *wg, const float *bg, const float *sg, const u8 *wu, const float *bu, const float *su,
              const float *squares)
{
    constexpr int gate_dt = spec::fused ? spec::up_dtype : spec::gate_dtype;
    constexpr i64 up_rows = spec::fused ? 2 * spec::n_ff : spec::n_ff,
                  gate_rows = spec::fused ? up_rows : spec::n_ff;
    constexpr int up_first = spec::fused ? spec::n_ff : 0;
    ptx_grid_launch();
    const int row = blockIdx.y, first = blockIdx.x * (int)chunk, last = min(spec::n_ff, first + (int)chunk);
    float *res_g = qn_shared<float>(0), *res_u = res_g + (int)chunk * spec::slices;
    const u8 *gate_w = spec::fused ? wu : wg;
    rows_ahead<gate_dt> next_g;
    rows_ahead<spec::up_dtype> next_u;
    load_first(next_g, gate_w, gate_rows, first, last); // weights do not depend on the kernel before
    ptx_grid_wait();
    if (row >= st->n_rows) {
        return;
    }
    slice s;
    load_slice(s, q8 + row * q8_row_bytes(spec::n_in));
    const float factor = rms_factor(squares + row * n_group);
    gemv_rows(gate_w, gate_rows, first, last, next_g, s, res_g);
    load_first(next_u, wu, up_rows, up_first + first, up_first + last);
    gemv_rows(wu, up_rows, up_first + first, up_first + last, next_u, s, res_u);
    __syncthreads();
    for (int at = first + threadIdx.x; at < first + (int)chunk; at += 32 * spec::warps) {
        float y = 0.0f;
        if (at < last) {
            float g = row_sum(res_g, at - first) * factor, u = row_sum(res_u, at - first) * factor;
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
        if (spec::q8_out) { // whole warps: chunk, first and n_ff are multiples of 32
            if (at < last) {
                quantise_group(y, q8_out + row * q8_row_bytes(spec::n_ff), spec::n_ff, at / GROUP);
            }
        }
    }
}
