// caught: barrier
// launch: 1 64 0
// A lane leaves the kernel while the rest of its warp waits at a barrier of the warp.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    if (threadIdx.x < 32 && threadIdx.x != 5) {
        ptx_named_barrier(1, 32); // <- here
    }
    out[threadIdx.x] = in[threadIdx.x];
}
