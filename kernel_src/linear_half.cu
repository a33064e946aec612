// linear_half.cu: the `linear` op for few rows, f16 or bf16 weights (spec::bf16) of one type, f32
// activations. grid: (blocks, ceil(rows / spec::cols)); a block does `chunk` pairs of consecutive outputs,
// which may belong to different segments. block: 32 * spec::warps; shared: 2 * chunk * cols * slices floats.
#include "epilogue.cuh"
#include "gemv_half.cuh"

constexpr int seg_end[3] = {spec::seg_out[0], spec::seg_out[0] + spec::seg_out[1],
                            spec::seg_out[0] + spec::seg_out[1] + spec::seg_out[2]};

struct half_weights {
    const u16 *w0, *w1, *w2;
    int first; // output of the block's first row

    __device__ __forceinline__ const u16 *row(int pair, int r) const
    {
        const int at = min(first + 2 * pair + r, spec::n_out - 1);
        return spec::n_seg > 2 && at >= seg_end[1]   ? w2 + (i64)(at - seg_end[1]) * spec::n_in
               : spec::n_seg > 1 && at >= seg_end[0] ? w1 + (i64)(at - seg_end[0]) * spec::n_in
                                                     : w0 + (i64)at * spec::n_in;
    }
};

QN_ENTRY(32 * spec::warps, spec::per_sm)
QN_KERNEL(const qn_state *st, const float *x, i64 x_stride, i64 chunk, const float *base, i64 base_stride,
          float *out, i64 out_stride, const u16 *w0, const float *b0, const float *s0, const u16 *w1,
          const float *b1, const float *s1, const u16 *w2, const float *b2, const float *s2, const float *div)
{
    const int first = blockIdx.x * 2 * (int)chunk, width = min(2 * (int)chunk, spec::n_out - first);
    float *res = qn_shared<float>(0);
    const half_weights w = {w0, w1, w2, first};
    const int n_col =
        gemv_half(w, (width + 1) / 2, x, x_stride, spec::outputs ? &st->n_out : &st->n_rows, res);
    __syncthreads();
    for (int i = threadIdx.x; i < width * n_col; i += 32 * spec::warps) {
        const int col = i / width, at = first + i % width, row = blockIdx.y * spec::cols + col;
        const int seg = segment_of(at);
        const float *bias = seg == 0 ? b0 : seg == 1 ? b1 : b2, *scale = seg == 0 ? s0 : seg == 1 ? s1 : s2;
        const float y = linear_epilogue(half_sum(res, at - first, col), at, load_tail(at, bias, scale, div));
        out[row * out_stride + at] = spec::residual ? base[row * base_stride + at] + y : y;
    }
}
