// caught: race
// launch: 1 64 4
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    u32 *count = qn_shared<u32>(0);
    if (threadIdx.x == 0) {
        *count = 0;
    }
    __syncthreads();
    atomicAdd(count, 1u);      // <- here
    out[threadIdx.x] = *count; // <- here
}
