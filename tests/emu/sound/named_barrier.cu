// launch: 1 96 256
// Two warps exchange values through a barrier of their own while the third waits at the block's.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    float *s = qn_shared<float>(0);
    if (threadIdx.x < 64) {
        s[threadIdx.x] = in[threadIdx.x];
        ptx_named_barrier(1, 64);
        const float other = s[63 - threadIdx.x];
        ptx_named_barrier(2, 64);
        s[threadIdx.x] = other;
    }
    __syncthreads();
    if (threadIdx.x == 95) {
        bool right = true;
        for (int i = 0; i < 64; i++) {
            right = right && s[i] == in[63 - i];
        }
        out[0] = right;
    }
}
