// caught: mask
// launch: 1 48 0
// The last warp has 16 lanes only.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, in[threadIdx.x], 1); // <- here
}
