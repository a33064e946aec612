// gemv.cuh: one warp's product of a weight row (planes.cuh) with one activation row in f32.
// defines: gemv_row
#ifndef QN_GEMV_CUH
#define QN_GEMV_CUH
#include "planes.cuh"
#include "reduce.cuh"

// w . x over n values, in all lanes. Quantised rows have n % 32 == 0; plain rows may end anywhere.
template <int DT> QN_DEV float gemv_row(const u8 *w, i64 n_rows, i64 row, const float *x, int n)
{
    const plane_ptr p = row_planes<DT>(w, n_rows, n, row);
    const int lane = threadIdx.x % WARP, n_eight = n / 8;
    float sum = 0.0f;
    for (int e = lane; e < n_eight; e += WARP) {
        float v[8];
        decode_group8<DT>(p, e / 4, e % 4, v);
        for (int i = 0; i < 8; i++) {
            sum += v[i] * x[8 * e + i];
        }
    }
    if constexpr (!planes<DT>::integer) {
        const int i = n_eight * 8 + lane;
        if (i < n) {
            sum += plain_value<DT>(p, i) * x[i];
        }
    }
    return warp_sum(sum);
}

#endif
