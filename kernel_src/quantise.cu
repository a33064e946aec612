// quantise.cu: rows of activations to 8 bits (quantise.cuh); one warp a group.
// grid: (ceil(n / 32 / warps), rows); block: 32 * spec::warps; shared: none. spec::n, spec::outputs,
// spec::fine_out.
#include "quantise.cuh"

QN_ENTRY(32 * spec::warps)
QN_KERNEL(const qn_state *st, const float *x, i64 x_stride, u8 *q8)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.y, g = blockIdx.x * spec::warps + threadIdx.x / WARP;
    if (row >= (spec::outputs ? st->n_out : st->n_rows) || g >= spec::n / GROUP) {
        return;
    }
    quantise_group<spec::fine_out>(x[row * x_stride + g * GROUP + threadIdx.x % WARP],
                                   q8 + row * q8_row_bytes<spec::fine_out>(spec::n), spec::n, g);
}
