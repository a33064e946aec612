// caught: bounds
// launch: 1 32 0
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    const float *none = (const float *)(n - n);
    out[threadIdx.x] = none[threadIdx.x]; // <- here
}
