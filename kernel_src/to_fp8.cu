// to_fp8.cu: activation rows to e4m3 (fp8.cuh), each scaled by a power of two. grid: (rows); block:
// spec::threads; shared: threads / 32 floats. spec::n, a multiple of 16.
#include "fp8.cuh"
#include "reduce.cuh"

QN_ENTRY(spec::threads)
QN_KERNEL(const qn_state *st, const float *x, i64 x_stride, u8 *out, float *row_scale)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.x;
    if (row >= st->n_rows) {
        return;
    }
    float *scratch = qn_shared<float>(0);
    x += row * x_stride;
    out += (i64)row * spec::n;
    const float top = largest_of_row<spec::threads>(x, spec::n, scratch);
    float up;
    const float down = fp8_scale(top, &up);
    for (int i = 4 * (int)threadIdx.x; i < spec::n; i += 4 * spec::threads) {
        u32 codes = 0;
        for (int k = 0; k < 4; k++) {
            codes |= float_to_e4m3(x[i + k] * down) << (8 * k);
        }
        *(u32 *)(out + i) = codes;
    }
    if (threadIdx.x == 0) {
        row_scale[row] = up;
    }
}
