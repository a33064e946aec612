// launch: 1 128 20480
// Products of a warpgroup: a constant row times a matrix in shared memory, swizzled; results are there after
// the wait and not before.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    u8 *s = qn_shared<u8>(0);
    for (int i = threadIdx.x; i < 64 * 64; i += 128) {
        const u32 at = (u32)(i / 64) * 128 + (u32)(i % 64) * 2;
        *(u16 *)(s + (at ^ (at >> 7 & 7) << 4)) =
            float_to_half((float)(i / 64) * (i % 64 < 16 ? 1.0f : 100.0f));
    }
    ptx_fence_async();
    __syncthreads();
    const u64 at =
        (u64)(ptx_shared_address(s) & 0x3ffff) >> 4 | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
    const u32 one = (u32)float_to_half(1.0f), a[4] = {one, one, one | one << 16, one};
    float d[32], before = -1.0f;
    for (int i = 0; i < 32; i++) {
        d[i] = before;
    }
    ptx_wgmma_fence();
    ptx_wgmma_f16<64, 0>(d, a, at, 0);
    ptx_wgmma_commit();
    ptx_wgmma_f16<64, 0>(d, a, at, 1);
    ptx_wgmma_commit();
    bool right = true;
    ptx_wgmma_wait<1>();
    ptx_wgmma_wait<0>();
    // Rows lane / 4 and lane / 4 + 8: 8 ones in the first 8 columns, then 8 (and 4 more) ones in the next;
    // twice.
    const int lane = threadIdx.x % 32;
    for (int j = 0; j < 8; j++) {
        for (int e = 0; e < 2; e++) {
            const float column = (float)(8 * j + lane % 4 * 2 + e);
            right =
                right && d[4 * j + e] == 2.0f * 12.0f * column && d[4 * j + 2 + e] == 2.0f * 8.0f * column;
        }
    }
    const bool all = __syncthreads_and(right) != 0;
    if (threadIdx.x == 0) {
        out[0] = all ? 1.0f : 0.0f;
    }
}
