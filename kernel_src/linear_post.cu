// linear_post.cu: the `linear` op after a matrix product of many rows: row factor (spec::scaled), then the
// epilogue.
// grid: (ceil(n_out / threads), rows); block: spec::threads; shared: none.
#include "epilogue.cuh"

QN_ENTRY(spec::threads)
QN_KERNEL(const qn_state *st, const float *y, const float *row_scale, const float *base, i64 base_stride,
          float *out, i64 out_stride, const float *b0, const float *s0, const float *b1, const float *s1,
          const float *b2, const float *s2, const float *div)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.y, at = blockIdx.x * spec::threads + threadIdx.x;
    if (row >= (spec::outputs ? st->n_out : st->n_rows) || at >= spec::n_out) {
        return;
    }
    const int seg = segment_of(at);
    const float *bias = seg == 0 ? b0 : seg == 1 ? b1 : b2, *scale = seg == 0 ? s0 : seg == 1 ? s1 : s2;
    const float product = y[(i64)row * spec::n_out + at] * (spec::scaled ? row_scale[row] : 1.0f);
    const float v = linear_epilogue(product, at, load_tail(at, bias, scale, div));
    out[row * out_stride + at] = spec::residual ? base[row * base_stride + at] + v : v;
}
