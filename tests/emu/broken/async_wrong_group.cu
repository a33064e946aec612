// caught: async
// launch: 1 32 1024
// Two groups are in flight; the wait lets one of them stay so, and the second is read.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    float *s = qn_shared<float>(0);
    for (int i = 0; i < 2; i++) {
        ptx_copy_async16(s + 128 * i + 4 * threadIdx.x, in + 128 * i + 4 * threadIdx.x, true);
        ptx_copy_commit();
    }
    ptx_copy_wait<1>();
    __syncthreads();
    out[threadIdx.x] = s[4 * threadIdx.x] + s[128 + 4 * threadIdx.x]; // <- here
}
