// caught: barrier
// launch: 1 64 0
// The second warp leaves before the barrier.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    if (threadIdx.x >= 32) {
        return;
    }
    __syncthreads(); // <- here
    out[threadIdx.x] = in[threadIdx.x];
}
