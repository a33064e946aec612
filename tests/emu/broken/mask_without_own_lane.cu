// caught: mask
// launch: 1 32 0
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    out[threadIdx.x] = __any_sync(0x0000ffffu, in[threadIdx.x] > 3.0f); // <- here
}
