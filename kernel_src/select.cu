// select.cu: out[r] = in[first_out + r], the rows whose logits are asked for.
// grid: (rows); block: spec::threads; shared: none.
#include "types.cuh"

QN_ENTRY(spec::threads)
QN_KERNEL(const qn_state *st, const float *in, i64 in_stride, float *out, i64 out_stride)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.x;
    if (row >= st->n_out) {
        return;
    }
    for (int i = threadIdx.x; i < spec::n; i += spec::threads) {
        out[row * out_stride + i] = in[(st->first_out + row) * in_stride + i];
    }
}
