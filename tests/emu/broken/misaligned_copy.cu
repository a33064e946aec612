// caught: misaligned
// launch: 1 8 256
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    ptx_copy_async16(qn_shared<float>(16 * threadIdx.x), in + 4 * threadIdx.x + 2, true); // <- here
    ptx_copy_commit();
    ptx_copy_wait<0>();
    out[threadIdx.x] = qn_shared<float>(0)[4 * threadIdx.x];
}
