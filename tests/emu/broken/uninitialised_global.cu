// caught: uninitialised
// launch: 1 32 0
// Nothing has written the second half of out.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    out[threadIdx.x] = in[threadIdx.x];
    out[threadIdx.x] += out[n / 2 + threadIdx.x]; // <- here
}
