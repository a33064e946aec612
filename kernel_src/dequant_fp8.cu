// dequant_fp8.cu: a weight of n_rows rows as rows of e4m3 (fp8.cuh), scaled by the power of two that the
// largest value of its product asks for; or (spec::find) that value, joined to *top, whose bits order as
// numbers do. A thread decodes eight values. grid: (ceil(n_in / 8 * n_rows / threads)); block: spec::threads;
// shared: threads / 32 floats. spec::dtype; n_in: a multiple of 16.
#include "fp8.cuh"
#include "planes.cuh"
#include "reduce.cuh"

QN_ENTRY(spec::threads)
QN_KERNEL(const u8 *w, u8 *out, i64 n_rows, i64 n_in, u32 *top)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const i64 per_row = n_in / 8, unit = (i64)blockIdx.x * spec::threads + threadIdx.x;
    const bool there = unit < per_row * n_rows;
    const i64 row = there ? unit / per_row : 0;
    const int k = there ? (int)(unit % per_row) * 8 : 0;
    float v[8], up;
    decode_group8<spec::dtype>(row_planes<spec::dtype>(w, n_rows, (int)n_in, row), k / GROUP, k % GROUP / 8,
                               v);
    if constexpr (spec::find) {
        float largest = 0.0f;
        for (int i = 0; i < 8; i++) {
            largest = fmaxf(largest, fabsf(v[i]));
        }
        largest = block_max<spec::threads>(largest, qn_shared<float>(0));
        if (threadIdx.x == 0) {
            atomicMax(top, __float_as_uint(largest));
        }
    } else if (there) {
        const float down = fp8_scale(__uint_as_float(*top), &up);
        u32 codes[2] = {0, 0};
        for (int i = 0; i < 8; i++) {
            codes[i / 4] |= float_to_e4m3(v[i] * down) << (8 * (i % 4));
        }
        *(u32x2 *)(out + row * n_in + k) = u32x2{codes[0], codes[1]};
    }
}
