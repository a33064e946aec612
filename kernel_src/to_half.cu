// to_half.cu: activation rows to f16 or bf16 (half_row.cuh). grid: (rows); block: spec::threads; shared:
// threads / 32 floats. spec::n, spec::outputs, spec::bf16.
#include "half_row.cuh"

QN_ENTRY(spec::threads)
QN_KERNEL(const qn_state *st, const float *x, i64 x_stride, u16 *out, float *row_scale)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.x;
    if (row >= (spec::outputs ? st->n_out : st->n_rows)) {
        return;
    }
    float *scratch = qn_shared<float>(0);
    x += row * x_stride;
    out += (i64)row * spec::n;
    const float top = largest_of_row<spec::threads>(x, spec::n, scratch);
    float up;
    const float down = half_scale(top, &up);
    for (int i = threadIdx.x; i < spec::n; i += spec::threads) {
        out[i] = spec::bf16 ? float_to_bf16(x[i] * down) : float_to_half(x[i] * down);
    }
    if (threadIdx.x == 0) {
        row_scale[row] = up;
    }
}
