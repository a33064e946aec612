// read_limit.cu: how fast the device's memory can be read. Every word of p once, in order over the grid,
// eight loads of a thread under way; the sums are written only where they have one value, which keeps the
// loads and costs nothing. grid: (any); block: spec::threads. p: [n] words of 16 bytes. spec::threads.
#include "types.cuh"

#include "ptx.cuh"

QN_ENTRY(spec::threads)
QN_KERNEL(const u32x4 *p, i64 n, u32 *sums)
{
    constexpr int under_way = 8;
    ptx_grid_wait();
    ptx_grid_launch();
    const i64 step = (i64)gridDim.x * spec::threads;
    i64 i = (i64)blockIdx.x * spec::threads + threadIdx.x;
    u32 sum = 0;
    for (; i + (under_way - 1) * step < n; i += under_way * step) {
        u32x4 v[under_way];
        for (int k = 0; k < under_way; k++) {
            v[k] = p[i + k * step];
        }
        for (int k = 0; k < under_way; k++) {
            sum += v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
        }
    }
    for (; i < n; i += step) {
        const u32x4 v = p[i];
        sum += v.x ^ v.y ^ v.z ^ v.w;
    }
    if (sum == 0x9e3779b9u) {
        sums[blockIdx.x] = sum;
    }
}
