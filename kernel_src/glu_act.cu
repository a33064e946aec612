// glu_act.cu: the `glu` op after its products: y holds gate and up side by side. One block a row.
// spec::raw: the products come from glu.cu, biases and scales done; else from a matrix product (spec::scaled:
// times row_scale). spec::half_out: the result goes out as 16-bit rows (half_row.cuh), as f32 where
// spec::f32_out. grid: (rows); block: spec::threads; shared: threads / 32 floats.
#include "half_row.cuh"

QN_ENTRY(spec::threads)
QN_KERNEL(const qn_state *st, const float *y, float *row_scale, float *out, i64 out_stride, const float *bg,
          const float *sg, const float *bu, const float *su, u16 *half)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.x;
    if (row >= st->n_rows) {
        return;
    }
    constexpr int n = spec::n_ff;
    constexpr bool scales = spec::has_scale && !spec::raw, biases = spec::has_bias && !spec::raw;
    float *scratch = qn_shared<float>(0);
    y += (i64)row * 2 * n;
    const float factor = spec::scaled ? row_scale[row] : 1.0f;
    const float gate_factor = factor * (scales ? (spec::fused ? *su : *sg) : 1.0f);
    const float up_factor = factor * (scales ? *su : 1.0f);
    const float *gate_bias = spec::fused ? bu : bg, *up_bias = spec::fused ? bu + n : bu;
    float cut = 0.0f;
    if (spec::sparsity_std > 0.0f) {
        float sum = 0.0f, square = 0.0f;
        for (int i = threadIdx.x; i < n; i += spec::threads) {
            sum += y[i] * gate_factor + (biases ? gate_bias[i] : 0.0f);
        }
        const float mean = block_sum<spec::threads>(sum, scratch) / n;
        for (int i = threadIdx.x; i < n; i += spec::threads) {
            const float d = y[i] * gate_factor + (biases ? gate_bias[i] : 0.0f) - mean;
            square += d * d;
        }
        cut = mean + spec::sparsity_std * sqrtf(block_sum<spec::threads>(square, scratch) / (n - 1));
    }
    constexpr int per_thread = (n + spec::threads - 1) / spec::threads;
    float v[spec::half_out ? per_thread : 1], top = 0.0f;
#pragma unroll 4
    for (int k = 0; k < per_thread; k++) {
        const int i = threadIdx.x + k * spec::threads;
        if (i >= n) {
            break;
        }
        float g = y[i] * gate_factor, u = y[n + i] * up_factor;
        if (biases) {
            g += gate_bias[i];
            u += up_bias[i];
        }
        if (spec::sparsity_std > 0.0f) {
            g = fmaxf(g - cut, 0.0f);
        }
        const float r = activate<spec::act>(g) * u;
        if (spec::f32_out) {
            out[row * out_stride + i] = r;
        }
        if constexpr (spec::half_out != 0) {
            v[k] = r;
            top = fmaxf(top, fabsf(r));
        }
    }
    if constexpr (spec::half_out != 0) {
        write_half_row<n, spec::threads, spec::half_out == 2>(v, top, half + (i64)row * n, row_scale + row,
                                                              scratch);
    }
}
