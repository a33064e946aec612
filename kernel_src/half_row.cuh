// half_row.cuh: rows of activations as 16-bit operands of a matrix product. f16 rows are scaled by a power of
// two each, so that the largest value lies in [1024, 2048): none leaves f16's range, and the factor is undone
// exactly in f32 afterwards. bf16 rows are scaled alike, which changes nothing in them.
// defines: half_scale, write_half_row
#ifndef QN_HALF_ROW_CUH
#define QN_HALF_ROW_CUH
#include "reduce.cuh"

// The factor of a row whose largest value is `top`, and its inverse; both are normal floats.
QN_DEV float half_scale(float top, float *up)
{
    int e = (int)((__float_as_uint(top) >> 23) & 0xff) - 127 - 10;
    e = top == 0.0f ? 0 : e < -100 ? -100 : e > 100 ? 100 : e;
    *up = __uint_as_float((u32)(127 + e) << 23);
    return __uint_as_float((u32)(127 - e) << 23);
}

// A block of THREADS threads writes a row of N values, of which v[i] is number threadIdx.x + i * THREADS;
// top: the thread's largest magnitude.
template <int N, int THREADS, bool BF16>
QN_DEV void write_half_row(const float *v, float top, u16 *out, float *row_scale, float *scratch)
{
    float up;
    const float down = half_scale(block_max<THREADS>(top, scratch), &up);
    __syncthreads(); // all have read the factor of the row that came in
    for (int i = 0; i < (N + THREADS - 1) / THREADS; i++) {
        const int at = (int)threadIdx.x + i * THREADS;
        if (at < N) {
            out[at] = BF16 ? float_to_bf16(v[i] * down) : float_to_half(v[i] * down);
        }
    }
    if (threadIdx.x == 0) {
        *row_scale = up;
    }
}

#endif
