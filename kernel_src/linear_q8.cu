// linear_q8.cu: the `linear` op for few rows with quantised weights and 8-bit activations.
// Where spec::norm_next, the RMS norm that follows is begun here: besides the new residual stream, x * norm
// weight goes out as 8-bit groups with the sum of squares of each group; the reader divides (rms_factor).
// Where spec::post, the outputs of the one row are RMS-normed (times post_w and a scale) before the residual
// takes them: blocks wait for each other's sums of squares (row_sum.cuh; `sums`: its words).
// Where spec::in_norm, each block makes its activations (norm_in.cuh): q8 is the product before, squares the
// residual stream.
// grid: (blocks, rows); a block does consecutive outputs of one type, so that it asks for the first of them
// before it waits: as many as `chunk` pays for at spec::row_cost0.. each (by segment): `chunk` of them where
// a cost is 1 (a multiple of 32 where post, and where norm_next but not spec::share_groups). Of the segments
// of a type come first all blocks, then those of the next type. block: 32 * spec::warps; shared:
// norm_in_bytes, outputs of a block * slices floats. counts: [rows][n_out / 32] (whole_group).
#include "epilogue.cuh"
#include "norm_in.cuh"
#include "row_sum.cuh"

constexpr int seg_end[3] = {spec::seg_out[0], spec::seg_out[0] + spec::seg_out[1],
                            spec::seg_out[0] + spec::seg_out[1] + spec::seg_out[2]};

constexpr int dtype_of(int seg)
{
    return spec::seg_dtype[seg] < 0 ? DT_Q8_0 : spec::seg_dtype[seg];
}

// Rows of consecutive segments that have one type go through the same code: a row's weight is looked up.
template <int DT> struct weights_of {
    static constexpr int step = 1;
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
    template <int ROWS> __device__ __forceinline__ static int place(int i)
    {
        return i;
    }
    template <int ROWS> __device__ __forceinline__ void plane(ring_job &j, int seg, int plane) const
    {
#pragma unroll
        for (int i = 0; i < spec::n_seg; i++) {
            if (seg == i) {
                ring_plane<DT, ROWS>(j, plane, w[i], spec::seg_out[i], spec::n_in, i > 0 ? seg_end[i - 1] : 0,
                                     seg_end[i], 0);
            }
        }
    }
};

// Outputs of a group may be several blocks'.
constexpr bool share_groups = spec::norm_next && !spec::post && spec::share_groups;

constexpr int seg_last = seg_end[2]; // absent segments have no rows
constexpr bool same01 = spec::n_seg < 2 || spec::seg_dtype[0] == spec::seg_dtype[1];
constexpr bool same12 = spec::n_seg < 3 || spec::seg_dtype[1] == spec::seg_dtype[2];
constexpr int cut1 = same01 ? (same12 ? seg_last : seg_end[1]) : seg_end[0]; // end of the first stretch
constexpr int cut2 = same01 ? seg_last : (same12 ? seg_last : seg_end[1]);
constexpr int seg2nd = same01 ? 2 : 1; // a segment of the second stretch, if there is one

// Outputs of a block in a stretch whose rows cost so much each.
QN_DEV int outputs_of_block(int chunk, int cost)
{
    return max(1, chunk / cost);
}

// Everything else that output `at` takes. The weights among it are asked for before the kernel before has
// ended.
struct output_tail {
    linear_tail own;
    float norm, post, base;
};

// The kernel's arguments.
struct linear_args {
    const qn_state *st;
    const u8 *q8;
    const float *base;
    i64 base_stride;
    float *out;
    i64 out_stride;
    const u8 *w[3];
    const float *b[3], *s[3];
    const float *div, *squares, *norm_w;
    u8 *q8_next;
    float *squares_next;
    u32 *counts;
    const float *post_w;
    u64 *sums;
    norm_in_args in;

    __device__ __forceinline__ output_tail tail(int at) const
    {
        const int seg = segment_of(at);
        output_tail t;
        t.own = load_tail(at,
                          seg == 0   ? b[0]
                          : seg == 1 ? b[1]
                                     : b[2],
                          seg == 0   ? s[0]
                          : seg == 1 ? s[1]
                                     : s[2],
                          div);
        no_value(t.base);
        t.norm = spec::norm_next && norm_w ? norm_w[at] : 1.0f;
        t.post = spec::post && post_w ? post_w[at] : 1.0f;
        return t;
    }

    // What the residual stream has for this output; only once the kernel before has ended.
    __device__ __forceinline__ float base_of(int row, int at) const
    {
        return spec::residual || spec::post ? base[row * base_stride + at] : 0.0f;
    }

    // The output as it goes out, if `mine`. Whole warps where norm_next.
    __device__ __forceinline__ void put(int row, int at, float y, float norm, bool mine) const
    {
        if (mine) {
            out[row * out_stride + at] = y;
        }
        if (spec::norm_next) {
            const int g = at / GROUP;
            const float *group = out + row * out_stride + g * GROUP;
            if (!share_groups || whole_group(&y, mine, group, counts + row * (spec::n_out / GROUP) + g)) {
                const float square = warp_sum(y * y);
                quantise_group<spec::fine_out>(
                    y * norm, q8_next + row * q8_row_bytes<spec::fine_out>(spec::n_out), spec::n_out, g);
                if (threadIdx.x % WARP == 0) {
                    squares_next[row * (spec::n_out / GROUP) + g] = square;
                }
            }
        }
    }
};

// The thread's outputs of [first, last), from `at` on, normed: what comes out of the products waits in `res`
// until all blocks have theirs. Whole warps.
QN_DEV void put_normed(const linear_args &p, int at, int first, int last, output_tail tail, u32 turn,
                       float factor, float *res)
{
    if (at >= last) {
        return;
    }
#pragma unroll 1
    for (int i = at; i < last; i += 32 * spec::warps) {
        const linear_tail own = i == at ? tail.own : p.tail(i).own;
        const float z = linear_epilogue(row_sum(res, i - first) * factor, i, own);
        const float square = warp_sum(z * z);
        if (threadIdx.x % WARP == 0) {
            row_put(p.sums, i / GROUP, turn, square);
        }
        res[(i - first) * spec::slices] = z;
    }
    const float mean = row_total(p.sums, turn) / spec::n_out;
    const float scale = 1.0f / sqrtf(mean + __int_as_float(spec::post_eps_bits));
#pragma unroll 1
    while (at < last) {
        const float y = res[(at - first) * spec::slices] * scale * tail.post;
        p.put(0, at, tail.base + y * __int_as_float(spec::post_scale_bits), tail.norm, true);
        at += 32 * spec::warps;
        if (at < last) {
            tail = p.tail(at);
            tail.base = p.base_of(0, at);
        }
    }
}

// Outputs [first, last), all of type DT.
template <int DT> QN_DEV void do_outputs(const linear_args &p, int first, int last)
{
    const int row = spec::one_row ? 0 : blockIdx.y;
    float *res = qn_shared<float>(norm_in_bytes);
    const weights_of<DT> weights = {{p.w[0], p.w[1], p.w[2]}};
    const rows_from from = rows_of<DT>(weights, first, last);
    rows_ahead<DT> rows;
    load_first(rows, weights, from); // weights do not depend on the kernel before
    // Whole groups of outputs, of which the first and the last may be shared with other blocks.
    const int end = share_groups ? (last + GROUP - 1) / GROUP * GROUP : last;
    int at = (share_groups ? first / GROUP * GROUP : first) + threadIdx.x;
    output_tail tail;
    if (at < end) {
        tail = p.tail(at);
    } else {
        no_value(tail);
    }
    norm_in in;
    if (spec::in_norm) {
        load_norm_in(in, p.in);
    }
    ptx_grid_wait();
    ptx_grid_launch();
    if (!spec::one_row && row >= (spec::outputs ? p.st->n_out : p.st->n_rows)) {
        return;
    }
    u8 *made = qn_shared<u8>(0);
    float *made_sums = qn_shared<float>(spec::in_norm ? in_row : 0);
    slice s;
    if (spec::in_norm) {
        load_rows_in(in, p.in);
        load_first(rows, weights, from, early_rows, spec::ahead);
        make_norm_in(in, p.in, made, made_sums);
        load_slice(s, made);
    } else {
        load_first(rows, weights, from, early_rows, spec::ahead);
        load_slice(s, p.q8 + row * q8_row_bytes<spec::fine_in>(spec::n_in));
    }
    const rms_share rms = load_rms(p.squares + row * n_group);
    u32 turn = 0;
    if (at >= first && at < last) {
        tail.base = p.base_of(row, at);
        turn = spec::post ? row_turn(p.sums, at / GROUP) : 0;
    }
    gemv_rows(weights, from, rows, s, res);
    const float factor = spec::in_norm ? norm_in_factor(made_sums) : rms_factor(rms);
    __syncthreads();
    if constexpr (spec::post != 0) {
        put_normed(p, at, first, last, tail, turn, factor, res);
        return;
    }
#pragma unroll 1
    while (at < end) {
        const bool mine = !share_groups || (at >= first && at < last);
        float y = 0.0f;
        if (mine) {
            y = linear_epilogue(row_sum(res, at - first) * factor, at, tail.own);
            y = spec::residual ? tail.base + y : y;
        }
        p.put(row, at, y, tail.norm, mine);
        at += 32 * spec::warps;
        if (at < end) {
            tail = p.tail(at);
            tail.base = at < last ? p.base_of(row, at) : 0.0f;
        }
    }
}

// A block's outputs [first, last), all of one type.
struct block_part {
    int first, last;
};

// The block's part of a stretch [A, B) of outputs of one type, whose blocks begin with number 0; false: it
// has none there, and `block` counts on from the stretch's end.
template <int A, int B, int COST> QN_DEV bool part_of_stretch(int *block, int chunk, block_part *part)
{
    static_assert(B == spec::n_out || !(spec::norm_next || spec::post), "groups of 32 outputs have one type");
    const int n = outputs_of_block(chunk, COST), blocks = (B - A + n - 1) / n;
    if (B < spec::n_out && *block >= blocks) {
        *block -= blocks;
        return false;
    }
    *part = block_part{min(A + *block * n, B), min(A + *block * n + n, B)};
    return true;
}

// Calls f with the type and the part of the block and returns what it did; false: there is no part.
template <class F> QN_DEV bool for_part(int block, int chunk, const F &f)
{
    block_part part;
    if (part_of_stretch<0, cut1, spec::row_cost0>(&block, chunk, &part)) {
        return f.template go<dtype_of(0)>(part);
    }
    if constexpr (cut1 < cut2) {
        constexpr int cost = seg2nd == 1 ? spec::row_cost1 : spec::row_cost2;
        if (part_of_stretch<cut1, cut2, cost>(&block, chunk, &part)) {
            return f.template go<dtype_of(seg2nd)>(part);
        }
    }
    if constexpr (cut2 < seg_last) {
        if (part_of_stretch<cut2, seg_last, spec::row_cost2>(&block, chunk, &part)) {
            return f.template go<dtype_of(2)>(part);
        }
    }
    return false;
}

struct doing {
    const linear_args &p;

    template <int DT> __device__ __forceinline__ bool go(const block_part &part) const
    {
        do_outputs<DT>(p, part.first, part.last);
        return true;
    }
};

struct bringing {
    ring_job &job;
    const u8 *w[3];
    int lane;

    template <int DT> __device__ __forceinline__ bool go(const block_part &part) const
    {
        return job_of<DT>(job, weights_of<DT>{{w[0], w[1], w[2]}}, part.first, part.last, lane);
    }
};

// What the ring's writer brings for a block, of the kernel's arguments; number: of its jobs. False: no such.
QN_DEV bool bring(ring_job &job, const u64 *args, int number, int lane)
{
    const bringing b = {job, {(const u8 *)args[7], (const u8 *)args[10], (const u8 *)args[13]}, lane};
    return number == 0 && for_part((int)blockIdx.x, (int)args[2], b);
}

QN_ENTRY(32 * spec::warps, spec::per_sm)
QN_KERNEL(const qn_state *st, const u8 *q8, i64 chunk, const float *base, i64 base_stride, float *out,
          i64 out_stride, const u8 *w0, const float *b0, const float *s0, const u8 *w1, const float *b1,
          const float *s1, const u8 *w2, const float *b2, const float *s2, const float *div,
          const float *squares, const float *norm_w, u8 *q8_next, float *squares_next, u32 *counts,
          const float *post_w, u64 *sums, const float *in_post_w, const float *in_w, float *in_x_out)
{
    const linear_args p = {
        st,           q8,           base,
        base_stride,  out,          out_stride,
        {w0, w1, w2}, {b0, b1, b2}, {s0, s1, s2},
        div,          squares,      norm_w,
        q8_next,      squares_next, counts,
        post_w,       sums,         {squares, (const float *)q8, in_post_w, in_w, in_x_out}};
    for_part((int)blockIdx.x, (int)chunk, doing{p});
}
