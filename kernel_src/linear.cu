// linear.cu: the `linear` op for few rows: one warp an output row, any weights, f32 activations.
// grid: (ceil(n_out / warps), rows); block: 32 * spec::warps; shared: none.
#include "epilogue.cuh"
#include "gemv.cuh"

struct linear_segment {
    const u8 *w;
    const float *bias, *scale;
};

template <int SEG> QN_DEV float segment_row(const linear_segment *s, int local, const float *x)
{
    constexpr int dt = spec::seg_dtype[SEG] < 0 ? 0 : spec::seg_dtype[SEG];
    return gemv_row<dt>(s[SEG].w, spec::seg_out[SEG], local, x, spec::n_in);
}

QN_ENTRY(32 * spec::warps)
QN_KERNEL(const qn_state *st, const float *x, i64 x_stride, const float *base, i64 base_stride, float *out,
          i64 out_stride, const u8 *w0, const float *b0, const float *s0, const u8 *w1, const float *b1,
          const float *s1, const u8 *w2, const float *b2, const float *s2, const float *div)
{
    ptx_grid_launch();
    ptx_grid_wait();
    const int row = blockIdx.y, at = blockIdx.x * spec::warps + threadIdx.x / WARP;
    if (row >= (spec::outputs ? st->n_out : st->n_rows) || at >= spec::n_out) {
        return;
    }
    const linear_segment s[3] = {{w0, b0, s0}, {w1, b1, s1}, {w2, b2, s2}};
    constexpr int end0 = spec::seg_out[0], end1 = end0 + spec::seg_out[1];
    x += row * x_stride;
    const int seg = at < end0 ? 0 : at < end1 ? 1 : 2;
    const int local = seg == 0 ? at : seg == 1 ? at - end0 : at - end1;
    float y = seg == 0   ? segment_row<0>(s, local, x)
              : seg == 1 ? segment_row<1>(s, local, x)
                         : segment_row<2>(s, local, x);
    if (threadIdx.x % WARP == 0) {
        y = linear_epilogue(y, at, seg, local, s[seg].bias, s[seg].scale, div);
        out[row * out_stride + at] = spec::residual ? base[row * base_stride + at] + y : y;
    }
}
