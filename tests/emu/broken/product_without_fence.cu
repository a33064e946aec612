// caught: async
// launch: 1 128 20480
// A second product starts after a wait, and no fence orders what was done to its registers.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    u16 *s = qn_shared<u16>(0);
    for (int i = threadIdx.x; i < 64 * 64; i += 128) {
        s[i] = float_to_half(in[i % 16]);
    }
    ptx_fence_async();
    __syncthreads();
    const u64 at =
        (u64)(ptx_shared_address(s) & 0x3ffff) >> 4 | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
    const u32 a[4] = {0, 0, 0, 0};
    float d[32];
    ptx_wgmma_fence();
    ptx_wgmma_f16<64, 0>(d, a, at, 0);
    ptx_wgmma_commit();
    ptx_wgmma_wait<0>();
    d[0] += 1.0f;
    ptx_wgmma_f16<64, 0>(d, a, at, 1); // <- here
    ptx_wgmma_commit();
    ptx_wgmma_wait<0>();
    out[threadIdx.x] = d[0];
}
