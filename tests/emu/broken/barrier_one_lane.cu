// caught: mask
// launch: 1 32 0
// One lane waits at a barrier while the others are in a shuffle that names it.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    float v = in[threadIdx.x];
    if (threadIdx.x == 5) {
        __syncthreads();
    }
    out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, v, 1); // <- here
}
