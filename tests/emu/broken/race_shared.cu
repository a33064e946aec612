// caught: race
// launch: 1 64 256
// No barrier between the writes and the reads of another warp's values.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    float *s = qn_shared<float>(0);
    s[threadIdx.x] = in[threadIdx.x]; // <- here
    __syncthreads();
    const float v = s[63 - threadIdx.x]; // <- here
    s[threadIdx.x] = v;                  // <- here
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
}
