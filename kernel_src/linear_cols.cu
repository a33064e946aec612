// linear_cols.cu: the `linear` op for up to 8 rows at once, quantised weights and 8-bit activations: as
// linear_q8.cu, with each weight read once for all rows. grid: (blocks); a block does `chunk` consecutive
// outputs (a multiple of 32 where norm_next). block: 32 * spec::warps; shared: sums_at bytes (columns.cuh)
// and cols * (slices * (chunk + PAD) + 1) floats.
#include "epilogue.cuh"
#include "gemv_cols.cuh"

constexpr int seg_end[3] = {spec::seg_out[0], spec::seg_out[0] + spec::seg_out[1],
                            spec::seg_out[0] + spec::seg_out[1] + spec::seg_out[2]};

constexpr int dtype_of(int seg)
{
    return spec::seg_dtype[seg] < 0 ? DT_Q8_0 : spec::seg_dtype[seg];
}

// Rows of consecutive segments that have one type go through the same code: a row's weight is looked up.
template <int DT> struct weights_of {
    const u8 *w[3];
    static constexpr bool whole_tiles =
        spec::whole_tiles && seg_end[0] % TILE == 0 && seg_end[1] % TILE == 0 && seg_end[2] % TILE == 0;

    __device__ __forceinline__ plane_ptr row(int at) const
    {
        const int seg = spec::n_seg > 2 && at >= seg_end[1] ? 2 : spec::n_seg > 1 && at >= seg_end[0] ? 1 : 0;
        return seg == 2   ? row_planes<DT>(w[2], spec::seg_out[2], spec::n_in, at - seg_end[1])
               : seg == 1 ? row_planes<DT>(w[1], spec::seg_out[1], spec::n_in, at - seg_end[0])
                          : row_planes<DT>(w[0], spec::seg_out[0], spec::n_in, at);
    }
};

constexpr int seg_last = seg_end[2]; // absent segments have no rows
constexpr bool same01 = spec::n_seg < 2 || spec::seg_dtype[0] == spec::seg_dtype[1];
constexpr bool same12 = spec::n_seg < 3 || spec::seg_dtype[1] == spec::seg_dtype[2];
constexpr int cut1 = same01 ? (same12 ? seg_last : seg_end[1]) : seg_end[0]; // end of the first stretch
constexpr int cut2 = same01 ? seg_last : (same12 ? seg_last : seg_end[1]);
constexpr int seg2nd = same01 ? 2 : 1; // a segment of the second stretch, if there is one

// Outputs [A, B) of the op, of type DT, as far as they lie in [first, last).
template <int DT, int A, int B> struct stretch {
    weights_of<DT> of;
    columns<DT> k;
    int a, b;

    __device__ __forceinline__ stretch(const u8 *const w[3], int first, int last)
        : of{{w[0], w[1], w[2]}}, a(max(first, A)), b(max(a, min(last, B)))
    {
        begin_columns(k, of, a, b);
    }
    __device__ __forceinline__ void run(const u8 *q8, int first, int n_col, bool taken, float *res, int pitch)
    {
        run_columns(k, of, q8, n_col, taken, res + (a - first), pitch);
    }
};

// What result i of a block, of output first + i % width, takes besides its sums.
struct beside {
    float base, norm_w;

    __device__ __forceinline__ beside(int i, int first, int width, int n_col, const float *base_rows,
                                      i64 base_stride, const float *weights)
    {
        const int at = first + i % width;
        const bool there = i < width * n_col;
        base = spec::residual && there ? base_rows[i / width * base_stride + at] : 0.0f;
        norm_w = spec::norm_next && weights && there ? weights[at] : 1.0f;
    }
};

QN_ENTRY(32 * spec::warps, spec::per_sm)
QN_KERNEL(const qn_state *st, const u8 *q8, i64 chunk, const float *base, i64 base_stride, float *out,
          i64 out_stride, const u8 *w0, const float *b0, const float *s0, const u8 *w1, const float *b1,
          const float *s1, const u8 *w2, const float *b2, const float *s2, const float *div,
          const float *squares, const float *norm_w, u8 *q8_next, float *squares_next)
{
    const int first = blockIdx.x * (int)chunk, last = min(spec::n_out, first + (int)chunk);
    const u8 *const w[3] = {w0, w1, w2};
    stretch<dtype_of(0), 0, cut1> part0(w, first, last); // weights do not depend on the kernel before
    const int n_col = min((int)COLS, spec::outputs ? st->n_out : st->n_rows), width = last - first;
    prepare_columns();
    ptx_grid_wait();
    ptx_grid_launch();
    const beside of_first(threadIdx.x, first, width, n_col, base, base_stride,
                          norm_w); // used behind the sums
    float *factor = qn_shared<float>(sums_at), *res = factor + COLS;
    const int pitch = (int)chunk + PAD;
    squares_share shares;
    load_squares(shares, squares, n_col);
    take_columns(q8, 0, n_col);
    column_factors(factor, shares, n_col);
    columns_stand();
    part0.run(q8, first, n_col, true, res, pitch);
    if constexpr (cut1 < cut2) {
        stretch<dtype_of(seg2nd), cut1, cut2> part1(w, first, last);
        part1.run(q8, first, n_col, n_phase == 1, res, pitch);
    }
    if constexpr (cut2 < seg_last) {
        stretch<dtype_of(2), cut2, seg_last> part2(w, first, last);
        part2.run(q8, first, n_col, n_phase == 1, res, pitch);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < width * n_col; i += 32 * spec::warps) {
        const int row = i / width, at = first + i % width;
        const beside b =
            i == (int)threadIdx.x ? of_first : beside(i, first, width, n_col, base, base_stride, norm_w);
        const int seg = segment_of(at);
        const float *bias = seg == 0 ? b0 : seg == 1 ? b1 : b2, *scale = seg == 0 ? s0 : seg == 1 ? s1 : s2;
        float y = linear_epilogue(column_sum(res, pitch, at - first, row) * factor[row], at,
                                  load_tail(at, bias, scale, div));
        y = spec::residual ? b.base + y : y;
        out[row * out_stride + at] = y;
        if (spec::norm_next) { // whole warps of one row: first and width are multiples of 32
            const float square = warp_sum(y * y);
            quantise_group<spec::fine_out>(norm_w ? y * b.norm_w : y,
                                           q8_next + row * q8_row_bytes<spec::fine_out>(spec::n_out),
                                           spec::n_out, at / GROUP);
            if (threadIdx.x % WARP == 0) {
                squares_next[row * (spec::n_out / GROUP) + at / GROUP] = square;
            }
        }
    }
}
