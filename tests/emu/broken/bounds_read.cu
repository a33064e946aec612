// caught: bounds
// launch: 1 32 0
// One value past the end.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    out[threadIdx.x] = in[n - 31 + threadIdx.x]; // <- here
}
