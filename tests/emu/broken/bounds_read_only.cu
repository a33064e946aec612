// caught: bounds
// launch: 1 32 0
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    ((float *)in)[threadIdx.x] = 0.0f; // <- here
}
