// launch: 2 32 0
// A lane's count is for what its warp wrote before the __syncwarp in front of it, too: the block that counts
// last reads both blocks' values.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    const int lane = threadIdx.x, at = 2 + blockIdx.x * 32 + lane;
    u32 *count = (u32 *)(out + 1), before = 0;
    out[at] = in[1];
    __syncwarp();
    if (lane == 0) {
        before = ptx_add_acq_rel(count, 1);
    }
    before = __shfl_sync(0xffffffffu, before, 0);
    __syncwarp();
    if (before == 1 && lane == 31) {
        out[0] = out[2 + 31] * out[2 + 32 + 5];
    }
}
