// caught: bounds
// launch: 1 32 128
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    float *s = qn_shared<float>(0);
    s[threadIdx.x + 1] = in[threadIdx.x]; // <- here
    __syncthreads();
    out[threadIdx.x] = in[0];
}
