// linear.cu: the `linear` op for few rows: one warp an output row, any weights, f32 activations.
// grid: (ceil(n_out / warps), rows); block: 32 * spec::warps; shared: none.
#include "epilogue.cuh"
#include "gemv.cuh"

template <int SEG> QN_DEV float segment_row(const u8 *w, int local, const float *x)
{
    constexpr int dt = spec::seg_dtype[SEG] < 0 ? 0 : spec::seg_dtype[SEG];
    return gemv_row<dt>(w, spec::seg_out[SEG], local, x, spec::n_in);
}

QN_ENTRY(32 * spec::warps)
QN_KERNEL(const qn_state *st, const float *x, i64 x_stride, const float *base, i64 base_stride, float *out,
          i64 out_stride, const u8 *w0, const float *b0, const float *s0, const u8 *w1, const float *b1,
          const float *s1, const u8 *w2, const float *b2, const float *s2, const float *div)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.y, at = blockIdx.x * spec::warps + threadIdx.x / WARP;
    if (row >= (spec::outputs ? st->n_out : st->n_rows) || at >= spec::n_out) {
        return;
    }
    x += row * x_stride;
    const int seg = segment_of(at), local = segment_row_of(at);
    float y = seg == 0   ? segment_row<0>(w0, local, x)
              : seg == 1 ? segment_row<1>(w1, local, x)
                         : segment_row<2>(w2, local, x);
    if (threadIdx.x % WARP == 0) {
        const float *bias = seg == 0 ? b0 : seg == 1 ? b1 : b2, *scale = seg == 0 ? s0 : seg == 1 ? s1 : s2;
        y = linear_epilogue(y, at, load_tail(at, bias, scale, div));
        out[row * out_stride + at] = spec::residual ? base[row * base_stride + at] + y : y;
    }
}
