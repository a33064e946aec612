// caught: misaligned
// launch: 1 8 0
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    const f32x4 v = *(const f32x4 *)(in + 4 * threadIdx.x + 1); // <- here
    out[threadIdx.x] = v.x + v.w;
}
