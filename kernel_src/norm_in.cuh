// norm_in.cuh: activations that each block of a product makes itself, of the f32 row that the product before
// left: that row is RMS-normed, scaled and added to the residual stream, and the stream times the weight of
// the norm behind it becomes 8-bit groups in shared memory. Of that norm's factor the sum of squares is known
// then, for the epilogue. So no launch waits for sums of its own blocks (row_sum.cuh). The new stream goes to
// memory too, a part from each block; not where the old one lies, which other blocks still read. Where not
// spec::in_norm, 8-bit groups lie in memory (load_slice). defines: norm_in, norm_in_args, load_norm_in,
// load_rows_in, make_norm_in, norm_in_factor, norm_in_bytes
#ifndef QN_NORM_IN_CUH
#define QN_NORM_IN_CUH
#include "gemv_q8.cuh"

constexpr int in_threads = WARP * spec::warps;
constexpr int in_quads = spec::in_norm ? spec::n_in / 4 : 1;                         // pieces of four values
constexpr int in_own = spec::in_norm ? (in_quads + in_threads - 1) / in_threads : 1; // a thread's, at most
constexpr int in_row = (n_places(n_group) * (spec::fine_in ? 48 : 40) + 15) / 16 * 16; // bytes: q8_row_bytes
// A warp's pieces at a time: each has a sum of its own, so that the order of sums hangs on no number of
// warps.
constexpr int in_chunks = (in_quads + WARP - 1) / WARP;
// What of shared memory it takes, from the beginning: the row, two floats a chunk.
constexpr int norm_in_bytes = spec::in_norm ? in_row + (8 * in_chunks + 15) / 16 * 16 : 0;
constexpr int LANES = GROUP / 4; // that hold a group

// A thread's own: weights of both norms, asked for before the kernel before has ended; the stream, and what
// the product before left.
struct norm_in {
    f32x4 post[in_own], w[in_own], x[in_own], y[in_own];
};

// The kernel's arguments for it.
struct norm_in_args {
    const float *x, *y; // the stream; what the product before left
    const float *post_w, *w;
    float *x_out;
};

// Piece i of a norm's weight; nullptr: ones.
QN_DEV f32x4 weight_quad(const float *w, int i)
{
    return w ? ((const f32x4 *)w)[i] : f32x4{1.0f, 1.0f, 1.0f, 1.0f};
}

QN_DEV void load_norm_in(norm_in &n, const norm_in_args &p)
{
#pragma unroll
    for (int i = 0; i < in_own; i++) {
        const int at = i * in_threads + threadIdx.x;
        if (at < in_quads) {
            n.post[i] = weight_quad(p.post_w, at);
            n.w[i] = weight_quad(p.w, at);
        }
    }
}

// Largest value and sum over the lanes that hold a group, or (FINE) half of one.
QN_DEV u32 lanes_max(u32 v)
{
    for (int d = 1; d < (spec::fine_in ? LANES / 2 : LANES); d *= 2) {
        v = max(v, __shfl_xor_sync(0xffffffffu, v, d));
    }
    return v;
}

QN_DEV int lanes_sum(int v)
{
    for (int d = 1; d < (spec::fine_in ? LANES / 2 : LANES); d *= 2) {
        v += __shfl_xor_sync(0xffffffffu, v, d);
    }
    return v;
}

// Piece `at` of the row at `q8` (quantise.cuh), by whole warps; `there`: the row has it.
QN_DEV void quantise_quad(const f32x4 &v, u8 *q8, int at, bool there)
{
    const int places = n_places(n_group), g = at / LANES, i = at % LANES;
    const float top =
        __uint_as_float(lanes_max(max(max(__float_as_uint(fabsf(v.x)), __float_as_uint(fabsf(v.y))),
                                      max(__float_as_uint(fabsf(v.z)), __float_as_uint(fabsf(v.w))))));
    const float d = step_of(top), f = code_factor(top);
    const int c[4] = {__float2int_rn(v.x * f), __float2int_rn(v.y * f), __float2int_rn(v.z * f),
                      __float2int_rn(v.w * f)};
    const float sum = d * (float)lanes_sum(c[0] + c[1] + c[2] + c[3]);
    if (!there) {
        return;
    }
    const int place = place_of(n_group, g);
    ((u32 *)q8)[(i / 4 * places + place) * 4 + i % 4] =
        (c[0] & 0xff) | (c[1] & 0xff) << 8 | (c[2] & 0xff) << 16 | (u32)c[3] << 24;
    float *scales = (float *)(q8 + places * 32);
    if (spec::fine_in && i % 4 == 0) {
        scales[4 * place + i / 4] = d;
        scales[4 * place + 2 + i / 4] = sum;
    } else if (!spec::fine_in && i == 0) {
        ((f32x2 *)scales)[place] = f32x2{d, sum};
    }
}

// Square of a piece, summed up over the warp, goes to its chunk's place.
QN_DEV void put_square(float *sums, int at, const f32x4 &v)
{
    const float square = warp_sum(v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w);
    if (threadIdx.x % WARP == 0 && at < in_quads) {
        sums[at / WARP] = square;
    }
}

// Sum of all chunks.
QN_DEV float sum_of_chunks(const float *sums)
{
    float v = 0.0f;
#pragma unroll
    for (int i = 0; i < in_chunks; i += WARP) {
        const int at = i + threadIdx.x % WARP;
        v += at < in_chunks ? sums[at] : 0.0f;
    }
    return warp_sum(v);
}

// Factor of the product before: of the root of its mean square, and the norm's scale.
QN_DEV float post_factor(const f32x4 *y, float *sums)
{
#pragma unroll
    for (int i = 0; i < in_own; i++) {
        put_square(sums, i * in_threads + threadIdx.x, y[i]);
    }
    __syncthreads();
    return ptx_rsqrt(sum_of_chunks(sums) / spec::n_in + __int_as_float(spec::in_post_eps_bits));
}

QN_DEV float next_value(float x, float y, float factor, float post)
{
    return x + y * factor * post * __int_as_float(spec::in_post_scale_bits);
}

// Behind the wait. Plain loads: all blocks read these rows, so they are to stay in L2.
QN_DEV void load_rows_in(norm_in &n, const norm_in_args &p)
{
#pragma unroll
    for (int i = 0; i < in_own; i++) {
        const int at = i * in_threads + threadIdx.x;
        n.x[i] = n.y[i] = f32x4{0.0f, 0.0f, 0.0f, 0.0f};
        if (at < in_quads) {
            n.y[i] = ((const f32x4 *)p.y)[at];
            n.x[i] = ((const f32x4 *)p.x)[at];
        }
    }
}

// By all threads of the block: the row as 8-bit groups at q8, in shared memory; sums: two floats a chunk.
QN_DEV void make_norm_in(const norm_in &n, const norm_in_args &p, u8 *q8, float *sums)
{
    const float factor = post_factor(n.y, sums);
#pragma unroll
    for (int i = 0; i < in_own; i++) {
        const int at = i * in_threads + threadIdx.x;
        const bool there = at < in_quads;
        f32x4 h = {0.0f, 0.0f, 0.0f, 0.0f};
        if (there) {
            h = f32x4{next_value(n.x[i].x, n.y[i].x, factor, n.post[i].x),
                      next_value(n.x[i].y, n.y[i].y, factor, n.post[i].y),
                      next_value(n.x[i].z, n.y[i].z, factor, n.post[i].z),
                      next_value(n.x[i].w, n.y[i].w, factor, n.post[i].w)};
            if (at / LANES % gridDim.x == blockIdx.x) {
                ((f32x4 *)p.x_out)[at] = h;
            }
        }
        put_square(sums + in_chunks, at, h);
        if (there) {
            h = f32x4{h.x * n.w[i].x, h.y * n.w[i].y, h.z * n.w[i].z, h.w * n.w[i].w};
        }
        quantise_quad(h, q8, at, there);
    }
    __syncthreads();
}

// What products with the row are still to be multiplied with.
QN_DEV float norm_in_factor(const float *sums)
{
    return ptx_rsqrt(sum_of_chunks(sums + in_chunks) / spec::n_in + __int_as_float(spec::in_eps_bits));
}

#endif
