// caught: dependency
// launch: 1 32 0 dependent
// A kernel that ends without waiting lets the one after it overtake the one before it.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    if (n > 5) {
        return;
    }
    ptx_grid_wait();
    ptx_grid_launch();
    out[threadIdx.x] = in[threadIdx.x];
}
