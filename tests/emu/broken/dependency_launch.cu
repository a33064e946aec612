// caught: dependency
// launch: 1 32 0 dependent
// The launch after this one reads before its wait what all but this one have written: none may be open still.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    ptx_grid_launch(); // <- here
    ptx_grid_wait();
    out[threadIdx.x] = in[threadIdx.x];
}
