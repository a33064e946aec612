// to_half.cu: activation rows to f16, each scaled by a power of two so that its largest value lies in [1024,
// 2048): no activation overflows f16, and the factor is undone exactly in f32 afterwards. bf16 rows are not
// scaled. grid: (rows); block: spec::threads; shared: threads / 32 floats. spec::n, spec::outputs,
// spec::bf16.
#include "reduce.cuh"

QN_ENTRY(spec::threads)
QN_KERNEL(const qn_state *st, const float *x, i64 x_stride, u16 *out, float *row_scale)
{
    ptx_grid_launch();
    ptx_grid_wait();
    const int row = blockIdx.x;
    if (row >= (spec::outputs ? st->n_out : st->n_rows)) {
        return;
    }
    float *scratch = qn_shared<float>(0);
    x += row * x_stride;
    out += (i64)row * spec::n;
    float top = 0.0f;
    for (int i = threadIdx.x; i < spec::n; i += spec::threads) {
        top = fmaxf(top, fabsf(x[i]));
    }
    top = block_max<spec::threads>(top, scratch);
    // exponent of top, clamped so that both the factor and its inverse are normal floats
    int e = (int)((__float_as_uint(top) >> 23) & 0xff) - 127 - 10;
    e = top == 0.0f ? 0 : e < -100 ? -100 : e > 100 ? 100 : e;
    const float down = __uint_as_float((u32)(127 - e) << 23), up = __uint_as_float((u32)(127 + e) << 23);
    for (int i = threadIdx.x; i < spec::n; i += spec::threads) {
        out[i] = spec::bf16 ? float_to_bf16(x[i] * down) : float_to_half(x[i] * down);
    }
    if (threadIdx.x == 0) {
        row_scale[row] = up;
    }
}
