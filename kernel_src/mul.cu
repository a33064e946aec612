// mul.cu: out = in0 * in1 (or * w), element by element.
// grid: (rows); block: spec::threads; shared: none.
#include "types.cuh"

QN_ENTRY(spec::threads)
QN_KERNEL(const qn_state *st, const float *in0, i64 in0_stride, const float *in1, i64 in1_stride, float *out,
          i64 out_stride, const float *w)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.x;
    if (row >= st->n_rows) {
        return;
    }
    const float *by = spec::has_w ? w : in1 + row * in1_stride;
    for (int i = threadIdx.x; i < spec::n; i += spec::threads) {
        out[row * out_stride + i] = in0[row * in0_stride + i] * by[i];
    }
}
