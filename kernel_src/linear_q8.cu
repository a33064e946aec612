// linear_q8.cu: the `linear` op for few rows with quantised weights and 8-bit activations.
// Where spec::norm_next, the RMS norm that follows is begun here: besides the new residual stream, x * norm
// weight goes out as 8-bit groups with the sum of squares of each group; the reader divides (rms_factor).
// grid: (blocks, rows); a block does consecutive outputs whose costs (spec::row_cost0.., by segment) add up
// to about `chunk`: `chunk` outputs where a cost is 1 (a multiple of 32 where norm_next). block: 32 *
// spec::warps; shared: outputs of a block * slices floats.
#include "epilogue.cuh"
#include "gemv_q8.cuh"

constexpr int seg_end[3] = {spec::seg_out[0], spec::seg_out[0] + spec::seg_out[1],
                            spec::seg_out[0] + spec::seg_out[1] + spec::seg_out[2]};

constexpr int dtype_of(int seg)
{
    return spec::seg_dtype[seg] < 0 ? DT_Q8_0 : spec::seg_dtype[seg];
}

// Rows of consecutive segments that have one type go through the same code: a row's weight is looked up.
template <int DT> struct weights_of {
    const u8 *w[3];

    __device__ __forceinline__ void load(row_slice<DT> &r, int at) const
    {
        if (spec::n_seg > 2 && at >= seg_end[1]) {
            load_row(r, w[2], spec::seg_out[2], at - seg_end[1]);
        } else if (spec::n_seg > 1 && at >= seg_end[0]) {
            load_row(r, w[1], spec::seg_out[1], at - seg_end[0]);
        } else {
            load_row(r, w[0], spec::seg_out[0], at);
        }
    }
};

// Outputs [A, B) of the op, segments of type DT, as far as they lie in the block's [first, last).
template <int DT, int A, int B> struct stretch {
    rows_ahead<DT> rows;
    int a, b;

    __device__ __forceinline__ void start(const weights_of<DT> &w, int first, int last)
    {
        a = max(first, A);
        b = min(last, B);
        load_first(rows, w, a, b);
    }
    __device__ __forceinline__ void run(const weights_of<DT> &w, int first, const slice &s, float *res)
    {
        gemv_rows(w, a, b, rows, s, res + (a - first) * spec::slices);
    }
};

constexpr int seg_last = seg_end[2]; // absent segments have no rows
constexpr bool same01 = spec::n_seg < 2 || spec::seg_dtype[0] == spec::seg_dtype[1];
constexpr bool same12 = spec::n_seg < 3 || spec::seg_dtype[1] == spec::seg_dtype[2];
constexpr int cut1 = same01 ? (same12 ? seg_last : seg_end[1]) : seg_end[0]; // end of the first stretch
constexpr int cut2 = same01 ? seg_last : (same12 ? seg_last : seg_end[1]);
constexpr int seg2nd = same01 ? 2 : 1; // a segment of the second stretch, if there is one

// First output of block b.
QN_DEV int first_output(int b, int chunk)
{
    constexpr int c0 = spec::row_cost0, c1 = spec::row_cost1, c2 = spec::row_cost2;
    const int p = b * chunk;
    if (c0 == 1) {
        return min(p, spec::n_out);
    }
    constexpr int e0 = spec::seg_out[0] * c0, e1 = e0 + spec::seg_out[1] * c1;
    const int at = p < e0   ? (p + c0 - 1) / c0
                   : p < e1 ? seg_end[0] + (p - e0 + c1 - 1) / c1
                            : seg_end[1] + (p - e1 + c2 - 1) / c2;
    return min(at, spec::n_out);
}

// Everything else that output `at` takes. The weights among it are asked for before the kernel before has
// ended.
struct output_tail {
    linear_tail own;
    float norm, base;
};

QN_ENTRY(32 * spec::warps, spec::per_sm)
QN_KERNEL(const qn_state *st, const u8 *q8, i64 chunk, const float *base, i64 base_stride, float *out,
          i64 out_stride, const u8 *w0, const float *b0, const float *s0, const u8 *w1, const float *b1,
          const float *s1, const u8 *w2, const float *b2, const float *s2, const float *div,
          const float *squares, const float *norm_w, u8 *q8_next, float *squares_next)
{
    ptx_grid_launch();
    const int row = spec::one_row ? 0 : blockIdx.y;
    const int first = first_output(blockIdx.x, (int)chunk), last = first_output(blockIdx.x + 1, (int)chunk);
    const auto weights = [=](int at) {
        const int seg = segment_of(at);
        output_tail t;
        t.own = load_tail(at, seg == 0 ? b0 : seg == 1 ? b1 : b2, seg == 0 ? s0 : seg == 1 ? s1 : s2, div);
        t.norm = spec::norm_next && norm_w ? norm_w[at] : 1.0f;
        return t;
    };
    float *res = qn_shared<float>(0);
    const weights_of<dtype_of(0)> of0 = {{w0, w1, w2}};
    stretch<dtype_of(0), 0, cut1> p0;
    p0.start(of0, first, last); // weights do not depend on the kernel before
    int at = first + threadIdx.x;
    output_tail tail;
    if (at < last) {
        tail = weights(at);
    }
    ptx_grid_wait();
    if (!spec::one_row && row >= (spec::outputs ? st->n_out : st->n_rows)) {
        return;
    }
    slice s;
    load_slice(s, q8 + row * q8_row_bytes(spec::n_in));
    const rms_share rms = load_rms(squares + row * n_group);
    if (spec::residual && at < last) {
        tail.base = base[row * base_stride + at];
    }
    p0.run(of0, first, s, res);
    if constexpr (cut1 < cut2) {
        const weights_of<dtype_of(seg2nd)> of1 = {{w0, w1, w2}};
        stretch<dtype_of(seg2nd), cut1, cut2> p1;
        p1.start(of1, first, last);
        p1.run(of1, first, s, res);
    }
    if constexpr (cut2 < seg_last) {
        const weights_of<dtype_of(2)> of2 = {{w0, w1, w2}};
        stretch<dtype_of(2), cut2, seg_last> p2;
        p2.start(of2, first, last);
        p2.run(of2, first, s, res);
    }
    const float factor = rms_factor(rms);
    __syncthreads();
#pragma unroll 1
    while (at < last) {
        float y = linear_epilogue(row_sum(res, at - first) * factor, at, tail.own);
        y = spec::residual ? tail.base + y : y;
        out[row * out_stride + at] = y;
        if (spec::norm_next) { // whole warps: chunk and n_out are multiples of 32
            const float square = warp_sum(y * y);
            quantise_group(y * tail.norm, q8_next + row * q8_row_bytes(spec::n_out), spec::n_out, at / GROUP);
            if (threadIdx.x % WARP == 0) {
                squares_next[row * (spec::n_out / GROUP) + at / GROUP] = square;
            }
        }
        at += 32 * spec::warps;
        if (at < last) {
            tail = weights(at);
            tail.base = spec::residual ? base[row * base_stride + at] : 0.0f;
        }
    }
}
