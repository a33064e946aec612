// caught: uninitialised
// launch: 1 32 256
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    float *s = qn_shared<float>(0);
    s[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x + 1]; // <- here
}
