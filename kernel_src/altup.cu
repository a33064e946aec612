// altup.cu: prediction of all residual streams from the first's modalities, or their correction by z's. One
// block a row. grid: (rows); block: spec::threads; shared: threads / 32 + n_coef floats.
#include "reduce.cuh"

constexpr int n_coef = spec::correct ? spec::n_stream : spec::n_stream * spec::n_stream;

// Value i of a matrix of plain numbers.
template <int DT> QN_DEV float value_at(const u8 *w, i64 i)
{
    if constexpr (DT == DT_F32) {
        return ((const float *)w)[i];
    } else {
        const u16 h = ((const u16 *)w)[i];
        return DT == DT_F16 ? half_to_float(h) : bf16_to_float(h);
    }
}

QN_ENTRY(spec::threads)
QN_KERNEL(const qn_state *st, const float *x, i64 x_stride, const float *z, i64 z_stride, float *out,
          i64 out_stride, const float *norm, const u8 *router, const u8 *coef)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.x;
    if (row >= st->n_rows) {
        return;
    }
    float *scratch = qn_shared<float>(0);
    float *c = scratch + spec::threads / WARP;
    x += row * x_stride;
    out += row * out_stride;
    const float *y = spec::correct ? z + row * z_stride : x;
    float square = 0.0f;
    for (int i = threadIdx.x; i < spec::n; i += spec::threads) {
        square += y[i] * y[i];
    }
    const float scale = 1.0f / sqrtf(block_sum<spec::threads>(square, scratch) / spec::n + spec::eps);
    float m[spec::n_stream];
    for (int k = 0; k < spec::n_stream; k++) {
        float dot = 0.0f;
        for (int i = threadIdx.x; i < spec::n; i += spec::threads) {
            dot += y[i] * scale * norm[i] * value_at<spec::router_dtype>(router, (i64)k * spec::n + i);
        }
        m[k] = tanhf(block_sum<spec::threads>(dot, scratch) / spec::n);
    }
    for (int r = threadIdx.x; r < n_coef; r += spec::threads) {
        float sum = spec::correct ? 1.0f : 0.0f;
        for (int k = 0; k < spec::n_stream; k++) {
            sum += value_at<spec::coef_dtype>(coef, r * spec::n_stream + k) * m[k];
        }
        c[r] = sum;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < spec::n; i += spec::threads) {
        for (int o = 0; o < spec::n_stream; o++) {
            float v = x[o * spec::n + i];
            if (spec::correct) {
                v += (y[i] - x[i]) * c[o];
            } else {
                for (int k = 0; k < spec::n_stream; k++) {
                    v += c[o * spec::n_stream + k] * x[k * spec::n + i];
                }
            }
            out[o * spec::n + i] = v;
        }
    }
}
