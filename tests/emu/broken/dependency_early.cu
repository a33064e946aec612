// caught: dependency
// launch: 1 32 0 dependent
// What the launch before writes may not be read before it has ended.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    const float v = in[threadIdx.x] + out[threadIdx.x]; // <- here
    ptx_grid_wait();
    ptx_grid_launch();
    out[threadIdx.x] = v;
}
