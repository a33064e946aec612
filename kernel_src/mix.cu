// mix.cu: out = s0 * in0 + s1 * in1 (n_in1 values, repeated), s from one-element tensors where present.
// grid: (rows); block: spec::threads; shared: none.
#include "types.cuh"

QN_ENTRY(spec::threads)
QN_KERNEL(const qn_state *st, const float *in0, i64 in0_stride, const float *in1, i64 in1_stride, float *out,
          i64 out_stride, const float *s0, const float *s1)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.x;
    if (row >= st->n_rows) {
        return;
    }
    const float a = s0 ? *s0 : spec::a, b = s1 ? *s1 : spec::b;
    for (int i = threadIdx.x; i < spec::n; i += spec::threads) {
        const float x = a * in0[row * in0_stride + i];
        float y = x;
        if constexpr (spec::n_in1 > 0) {
            y += b * in1[row * in1_stride + i % spec::n_in1];
        }
        out[row * out_stride + i] = y;
    }
}
