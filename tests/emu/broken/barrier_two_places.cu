// caught: barrier
// launch: 1 64 0
// Both branches have a barrier, but it is not the same one.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    if (threadIdx.x % 2) {
        out[threadIdx.x] = 1.0f;
        __syncthreads(); // <- here
    } else {
        __syncthreads(); // <- here
    }
}
