// glu_half.cu: the `glu` op for few rows, f16 or bf16 weights (spec::bf16) of one type, f32 activations: a
// pair is an output's gate row and up row. grid: (blocks, ceil(rows / spec::cols)); a block does `chunk`
// consecutive outputs. block: 32 * spec::warps; shared: 2 * chunk * cols * slices floats.
#include "gemv_half.cuh"

constexpr int up_first = spec::fused ? spec::n_ff : 0;

struct half_weights {
    const u16 *gate, *up;
    int first; // output of the block's first pair

    __device__ __forceinline__ const u16 *row(int pair, int r) const
    {
        return r == 0 ? gate + (i64)(first + pair) * spec::n_in
                      : up + (i64)(up_first + first + pair) * spec::n_in;
    }
};

QN_ENTRY(32 * spec::warps, spec::per_sm)
QN_KERNEL(const qn_state *st, const float *x, i64 x_stride, i64 chunk, float *out, i64 out_stride,
          const u16 *wg, const float *bg, const float *sg, const u16 *wu, const float *bu, const float *su)
{
    const int first = blockIdx.x * (int)chunk, width = min((int)chunk, spec::n_ff - first);
    float *res = qn_shared<float>(0);
    const half_weights w = {spec::fused ? wu : wg, wu, first};
    const int n_col = gemv_half(w, width, x, x_stride, &st->n_rows, res);
    __syncthreads();
    for (int i = threadIdx.x; i < width * n_col; i += 32 * spec::warps) {
        const int col = i / width, k = i % width, at = first + k;
        float g = half_sum(res, 2 * k, col), u = half_sum(res, 2 * k + 1, col);
        if (spec::has_scale) {
            g *= spec::fused ? *su : *sg;
            u *= *su;
        }
        if (spec::has_bias) {
            g += spec::fused ? bu[at] : bg[at];
            u += bu[up_first + at];
        }
        out[(i64)(blockIdx.y * spec::cols + col) * out_stride + at] = activate<spec::act>(g) * u;
    }
}
