// linear_q8.cu: the `linear` op for few rows with quantised weights and 8-bit activations.
// Where spec::norm_next, the RMS norm that follows is begun here: besides the new residual stream, x * norm
// weight goes out as 8-bit groups with the sum of squares of each group; the reader divides (rms_factor).
// grid: (blocks, rows); a block does `chunk` consecutive outputs (a multiple of 32 where norm_next).
// block: 32 * spec::warps; shared: chunk * slices floats.
#include "epilogue.cuh"
#include "gemv_q8.cuh"

constexpr int seg_end[3] = {spec::seg_out[0], spec::seg_out[0] + spec::seg_out[1],
                            spec::seg_out[0] + spec::seg_out[1] + spec::seg_out[2]};

// The block's outputs [first, last) that lie in segment SEG.
template <int SEG> struct segment {
    static constexpr bool there = SEG < spec::n_seg;
    static constexpr int begin = SEG == 0 ? 0 : seg_end[SEG == 0 ? 0 : SEG - 1];
    static constexpr int dt = spec::seg_dtype[SEG] < 0 ? DT_Q8_0 : spec::seg_dtype[SEG];
    rows_ahead<dt> next;
    int a, b;

    __device__ __forceinline__ void start(const u8 *w, int first, int last)
    {
        a = max(first, begin);
        b = min(last, seg_end[SEG]);
        if (there && a < b) {
            load_first(next, w, spec::seg_out[SEG], a - begin, b - begin);
        }
    }
    __device__ __forceinline__ void run(const u8 *w, int first, const slice &s, float *res)
    {
        if (there && a < b) {
            gemv_rows(w, spec::seg_out[SEG], a - begin, b - begin, next, s, res + (a - first) * spec::slices);
        }
    }
};

extern "C" __global__ void __launch_bounds__(32 * spec::warps)
    QN_KERNEL(const qn_state *st, const u8 *q8, i64 chunk, const float *base, i64 base_stride, float *out,
              i64 out_stride, const u8 *w0, const float *b0, const float *s0, const u8 *w1, const float *b1,
              const float *s1, const u8 *w2, const float *b2, const float *s2, const float *div,
              const float *squares, const float *norm_w, u8 *q8_next, float *squares_next)
{
    ptx_grid_launch();
    const int row = blockIdx.y, first = blockIdx.x * (int)chunk, last = min(spec::n_out, first + (int)chunk);
    float *res = qn_shared<float>(0);
    segment<0> p0;
    segment<1> p1;
    segment<2> p2;
    p0.start(w0, first, last); // weights do not depend on the kernel before
    ptx_grid_wait();
    if (row >= (spec::outputs ? st->n_out : st->n_rows)) {
        return;
    }
    slice s;
    load_slice(s, q8 + row * q8_row_bytes(spec::n_in));
    const float factor = rms_factor(squares + row * n_group);
    p0.run(w0, first, s, res);
    p1.start(w1, first, last);
    p1.run(w1, first, s, res);
    p2.start(w2, first, last);
    p2.run(w2, first, s, res);
    __syncthreads();
    for (int at = first + threadIdx.x; at < last; at += 32 * spec::warps) {
        const int seg = at < seg_end[0] ? 0 : at < seg_end[1] ? 1 : 2;
        const int local = seg == 0 ? at : at - seg_end[seg - 1];
        const float *bias = seg == 0 ? b0 : seg == 1 ? b1 : b2, *scale = seg == 0 ? s0 : seg == 1 ? s1 : s2;
        float y = linear_epilogue(row_sum(res, at - first) * factor, at, seg, local, bias, scale, div);
        y = spec::residual ? base[row * base_stride + at] + y : y;
        out[row * out_stride + at] = y;
        if (spec::norm_next) { // whole warps: chunk and n_out are multiples of 32
            const float square = warp_sum(y * y);
            quantise_group(norm_w ? y * norm_w[at] : y, q8_next + row * q8_row_bytes(spec::n_out),
                           spec::n_out, at / GROUP);
            if (threadIdx.x % WARP == 0) {
                squares_next[row * (spec::n_out / GROUP) + at / GROUP] = square;
            }
        }
    }
}
