// caught: async
// launch: 1 32 136
// Bytes that a bulk copy brings are read before the barrier that says they are there.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    float *s = qn_shared<float>(0);
    u64 *barrier = (u64 *)(s + 32);
    if (threadIdx.x == 0) {
        ptx_barrier_init(barrier, 1);
        ptx_barrier_init_fence();
        ptx_barrier_expect(barrier, 128);
        ptx_bulk_load(s, in, barrier, 128);
    }
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x]; // <- here
}
