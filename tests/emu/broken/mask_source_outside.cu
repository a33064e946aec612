// caught: mask
// launch: 1 32 0
// Lane 15 reads lane 16, which is not in the mask.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    float v = in[threadIdx.x];
    if (threadIdx.x < 16) {
        v = __shfl_down_sync(0x0000ffffu, v, 1); // <- here
    }
    out[threadIdx.x] = v;
}
