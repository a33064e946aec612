// caught: race
// launch: 1 32 512
// A wait serves the thread that issued the copy; others need a barrier after it.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    float *s = qn_shared<float>(0);
    ptx_copy_async16(s + 4 * threadIdx.x, in + 4 * threadIdx.x, true);
    ptx_copy_commit();
    ptx_copy_wait<0>();
    float v = __shfl_sync(0xffffffffu, in[0], 0); // all copies have arrived, but nothing orders them
    out[threadIdx.x] = v + s[127 - threadIdx.x];  // <- here
}
