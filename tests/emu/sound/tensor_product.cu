// launch: 1 128 20480
// A matrix that the tensor memory accelerator brought, swizzled, needs no fence to be a product's operand.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    u8 *s = qn_shared<u8>(0);
    s += (1024 - ptx_shared_address(s) % 1024) % 1024;
    u64 *barrier = (u64 *)(s + 64 * 128);
    const emu_tensor_map map = {(u64)in, {64, 8, 1, 1}, {128, 1024, 1024}, {64, 64, 1, 1}, {}};
    if (threadIdx.x == 0) {
        ptx_barrier_init(barrier, 1);
        ptx_barrier_init_fence();
        ptx_barrier_expect(barrier, 64 * 128);
        ptx_tensor_load(s, &map, barrier, 0, 4, 0, 0); // rows 4 to 7, then zeros
    }
    __syncthreads();
    ptx_barrier_wait(barrier, 0);
    const u64 at =
        (u64)(ptx_shared_address(s) & 0x3ffff) >> 4 | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
    const u32 one = (u32)float_to_half(1.0f),
              a[4] = {one | one << 16, one | one << 16, one | one << 16, one | one << 16};
    float d[32];
    ptx_wgmma_fence();
    ptx_wgmma_f16<64, 0>(d, a, at, 0); // each of d's columns: the sum of 16 values of a row of the matrix
    ptx_wgmma_commit();
    ptx_wgmma_wait<0>();
    bool right = true;
    for (int j = 0; j < 8; j++) {
        for (int e = 0; e < 2; e++) {
            const int row = 8 * j + (int)threadIdx.x % 4 * 2 + e;
            float due = 0.0f;
            for (int k = 0; k < 16 && row < 4; k++) {
                due += half_to_float(((const u16 *)in)[64 * (row + 4) + k]);
            }
            right = right && d[4 * j + e] == due && d[4 * j + 2 + e] == due;
        }
    }
    const bool all = __syncthreads_and(right) != 0;
    if (threadIdx.x == 0) {
        out[0] = all ? 1.0f : 0.0f;
    }
}
