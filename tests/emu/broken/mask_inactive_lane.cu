// caught: mask
// launch: 1 32 0
// The mask names lanes that never reach the shuffle.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    float v = in[threadIdx.x];
    if (threadIdx.x < 20) {
        v += __shfl_down_sync(0xffffffffu, v, 1); // <- here
    }
    out[threadIdx.x] = v;
}
