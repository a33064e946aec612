// launch: 1 96 256
// A warp that the barrier is not of leaves while the others wait there.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    if (threadIdx.x >= 64) {
        return;
    }
    float *s = qn_shared<float>(0);
    bool right = true;
    for (int i = 0; i < 4; i++) {
        s[threadIdx.x] = in[threadIdx.x + i];
        ptx_named_barrier(1, 64);
        right = right && s[63 - threadIdx.x] == in[63 - threadIdx.x + i];
        ptx_named_barrier(2, 64);
    }
    if (threadIdx.x == 0) {
        out[0] = right;
    }
}
