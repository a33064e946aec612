// gemv.cuh: one warp's product of a weight row, as GGUF blocks, with up to COLS activation rows in f32.
// defines: gemv_row
#pragma once
#include "quant.cuh"
#include "reduce.cuh"

// sum[c] = w . x[c] over n values, all lanes; x rows are x_stride apart. Rows of n values need n % 8 == 0
// (f32, f16 and bf16 rows may end raggedly).
template <int DT, int COLS>
QN_DEV void gemv_row(const u8 *w, const float *x, i64 x_stride, int n, float sum[COLS])
{
    for (int c = 0; c < COLS; c++) {
        sum[c] = 0.0f;
    }
    for (int k = (threadIdx.x % WARP) * 8; k < n; k += WARP * 8) {
        float v[8];
        decode8<DT>(w, k, v);
        for (int c = 0; c < COLS; c++) {
            const f32x4 *p = (const f32x4 *)(x + c * x_stride + k);
            const f32x4 a = p[0], b = p[1];
            sum[c] += v[0] * a.x + v[1] * a.y + v[2] * a.z + v[3] * a.w + v[4] * b.x + v[5] * b.y +
                      v[6] * b.z + v[7] * b.w;
        }
    }
    for (int c = 0; c < COLS; c++) {
        sum[c] = warp_sum(sum[c]);
    }
}
