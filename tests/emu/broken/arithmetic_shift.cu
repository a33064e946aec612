// caught: arithmetic
// launch: 1 64 0
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    out[threadIdx.x] = (float)(1u << threadIdx.x); // <- here
}
