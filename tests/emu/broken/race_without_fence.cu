// caught: race
// launch: 4 32 4
// The last block reads what the others wrote, but they have not fenced it before they counted themselves.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    u32 *last = qn_shared<u32>(0);
    if (threadIdx.x == 0) {
        out[1 + blockIdx.x] = in[blockIdx.x];
        *last = atomicAdd((u32 *)out, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (*last && threadIdx.x < gridDim.x) {
        out[64 + threadIdx.x] = out[1 + threadIdx.x]; // <- here
    }
}
