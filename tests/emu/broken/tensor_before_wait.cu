// caught: async
// launch: 1 64 10240
// A box that the tensor memory accelerator brings is read before the barrier that says it is there.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    u8 *s = qn_shared<u8>(0);
    s += (1024 - ptx_shared_address(s) % 1024) % 1024;
    u64 *barrier = (u64 *)(s + 8 * 128);
    const emu_tensor_map map = {(u64)in, {64, 8, 1, 1}, {128, 1024, 1024}, {64, 8, 1, 1}, {}};
    if (threadIdx.x == 0) {
        ptx_barrier_init(barrier, 1);
        ptx_barrier_init_fence();
        ptx_barrier_expect(barrier, 8 * 128);
        ptx_tensor_load(s, &map, barrier, 0, 0, 0, 0);
    }
    __syncthreads();
    out[threadIdx.x] = half_to_float(((const u16 *)s)[threadIdx.x]); // <- here
}
