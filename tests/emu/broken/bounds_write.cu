// caught: bounds
// launch: 2 32 0
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    out[(i64)threadIdx.x - 1] = in[0]; // <- here
}
