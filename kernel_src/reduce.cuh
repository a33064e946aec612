// reduce.cuh: sums and maxima over a warp and over a block.
// defines: warp_sum, warp_max, block_sum, block_max, largest_of_row
#ifndef QN_REDUCE_CUH
#define QN_REDUCE_CUH
#include "types.cuh"

enum { WARP = 32 };

QN_DEV float warp_sum(float v)
{
    for (int d = WARP / 2; d > 0; d /= 2) {
        v += __shfl_xor_sync(0xffffffffu, v, d);
    }
    return v;
}

QN_DEV float warp_max(float v)
{
    for (int d = WARP / 2; d > 0; d /= 2) {
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
    }
    return v;
}

// Sum over a block of THREADS threads; `scratch` has THREADS / 32 floats of shared memory. All threads get
// it.
template <int THREADS> QN_DEV float block_sum(float v, float *scratch)
{
    constexpr int n_warp = THREADS / WARP;
    v = warp_sum(v);
    if (n_warp == 1) {
        return v;
    }
    __syncthreads(); // scratch may still be read from an earlier call
    if (threadIdx.x % WARP == 0) {
        scratch[threadIdx.x / WARP] = v;
    }
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < n_warp; i++) {
        sum += scratch[i];
    }
    return sum;
}

// Largest value over a block; as block_sum.
template <int THREADS> QN_DEV float block_max(float v, float *scratch)
{
    constexpr int n_warp = THREADS / WARP;
    v = warp_max(v);
    if (n_warp == 1) {
        return v;
    }
    __syncthreads();
    if (threadIdx.x % WARP == 0) {
        scratch[threadIdx.x / WARP] = v;
    }
    __syncthreads();
    float top = scratch[0];
    for (int i = 1; i < n_warp; i++) {
        top = fmaxf(top, scratch[i]);
    }
    return top;
}

// Largest magnitude of n values; as block_sum.
template <int THREADS> QN_DEV float largest_of_row(const float *x, int n, float *scratch)
{
    float top = 0.0f;
    for (int i = threadIdx.x; i < n; i += THREADS) {
        top = fmaxf(top, fabsf(x[i]));
    }
    return block_max<THREADS>(top, scratch);
}

#endif
