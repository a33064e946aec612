// caught: misaligned
// launch: 1 8 0
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    out[threadIdx.x] = (float)*(const u32 *)((const u8 *)in + 2 + 4 * threadIdx.x); // <- here
}
