// caught: deadlock
// launch: 2 32 0
// Blocks that wait for each other need to be resident together.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    u32 *count = (u32 *)out;
    if (threadIdx.x == 0) {
        atomicAdd(count, 1u);
        while (atomicAdd(count, 0u) < gridDim.x) { // <- here
        }
    }
    __syncthreads();
}
