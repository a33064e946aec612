// chunk.cuh: rows that a block reads in pieces of 16 or 8 bytes a thread, all of them asked for before the
// first is used, and keeps in registers. defines: products_up, chunk4, load4, value4, value_of,
// store4, store4_16bit, block_sum_max
#ifndef QN_CHUNK_CUH
#define QN_CHUNK_CUH
#include "half_row.cuh"

// Products that come as f16 were multiplied with 2^-12 (runtime/cuda/lower.h: QN_CUDA_PRODUCT_SHIFT): this
// brings them back.
constexpr float products_up = spec::half_in ? 4096.0f : 1.0f;

// Four values as they came: f32, or (HALF) f16 in the first two words.
struct chunk4 {
    u32 raw[4];
};

// Chunk c of a row of f32 (HALF: f16) at p.
template <int HALF> QN_DEV chunk4 load4(const void *p, int c)
{
    if constexpr (HALF) {
        const u32x2 x = ((const u32x2 *)p)[c];
        return chunk4{{x.x, x.y, 0, 0}};
    } else {
        const u32x4 x = ((const u32x4 *)p)[c];
        return chunk4{{x.x, x.y, x.z, x.w}};
    }
}

template <int HALF> QN_DEV float value4(const chunk4 &x, int e)
{
    if constexpr (HALF) {
        return half_to_float((half_t)(x.raw[e / 2] >> (e % 2 * 16)));
    } else {
        return __uint_as_float(x.raw[e]);
    }
}

// Value e of a piece of 16 bytes as it came: of four f32, or (HALF) of eight f16.
template <int HALF> QN_DEV float value_of(const u32x4 &x, int e)
{
    return value4<HALF>(chunk4{{x.x, x.y, x.z, x.w}}, e);
}

QN_DEV void store4(float *p, int c, const float v[4])
{
    ((f32x4 *)p)[c] = f32x4{v[0], v[1], v[2], v[3]};
}

template <bool BF16> QN_DEV u32 pack_pair(float low, float high)
{
    if constexpr (BF16) {
        return (u32)float_to_bf16(low) | (u32)float_to_bf16(high) << 16;
    } else if constexpr (spec::variant >= 80) {
        return ptx_pack_half(low, high);
    } else {
        return (u32)float_to_half(low) | (u32)float_to_half(high) << 16;
    }
}

template <bool BF16> QN_DEV void store4_16bit(u16 *p, int c, const float v[4], float down)
{
    ((u32x2 *)p)[c] =
        u32x2{pack_pair<BF16>(v[0] * down, v[1] * down), pack_pair<BF16>(v[2] * down, v[3] * down)};
}

// Sum and largest value over a block of THREADS threads at once; scratch: THREADS / 16 floats.
template <int THREADS> QN_DEV void block_sum_max(float &sum, float &top, float *scratch)
{
    constexpr int n_warp = THREADS / WARP;
    sum = warp_sum(sum);
    top = warp_max(top);
    if (n_warp == 1) {
        return;
    }
    __syncthreads(); // scratch may still be read from an earlier call
    if (threadIdx.x % WARP == 0) {
        scratch[threadIdx.x / WARP] = sum;
        scratch[n_warp + threadIdx.x / WARP] = top;
    }
    __syncthreads();
    sum = 0.0f;
    top = scratch[n_warp];
    for (int i = 0; i < n_warp; i++) {
        sum += scratch[i];
        top = fmaxf(top, scratch[n_warp + i]);
    }
}

#endif
