// launch: 1 32 1024
// Two groups of async copies, each awaited in turn, rows past the end zero-filled.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    float *s = qn_shared<float>(0);
    const int lane = threadIdx.x;
    float sum = 0.0f;
    ptx_copy_async16(s + 4 * lane, in + 4 * lane, true);
    ptx_copy_commit();
    for (int i = 0; i < 6; i++) {
        ptx_copy_async16(s + 128 * ((i + 1) % 2) + 4 * lane, in + 128 * (i + 1) + 4 * lane, i < 5);
        ptx_copy_commit();
        ptx_copy_wait<1>();
        __syncwarp();
        sum += s[128 * (i % 2) + 127 - lane];
        __syncwarp();
    }
    float due = 0.0f;
    for (int i = 0; i < 6; i++) {
        due += in[128 * i + 127 - lane];
    }
    const int right = __all_sync(0xffffffffu, sum == due);
    ptx_copy_wait<0>();
    __syncwarp();
    if (lane == 0) {
        out[0] = right && s[0] == 0.0f;
    }
}
