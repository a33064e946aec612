// norm.cu: out = [base +] out_scale * (norm(x) * w + b); one block a row and group. Where spec::q8_out, the
// result goes out as 8-bit groups too; spec::half_out: as 16-bit rows (half_row.cuh), and as f32 only where
// spec::f32_out. spec::product: x is the product of the step before, times the row's factor (spec::scaled),
// plus x (spec::add); spec::sum_out: that goes to `sum`. grid: (rows, groups); block: spec::threads; shared:
// threads / 32 floats.
#include "half_row.cuh"
#include "quantise.cuh"

QN_ENTRY(spec::threads)
QN_KERNEL(const qn_state *st, const float *x, i64 x_stride, const float *base, i64 base_stride, float *out,
          i64 out_stride, const float *w, const float *b, u8 *q8_out, const float *product, float *row_scale,
          u16 *half, float *sum_out, i64 sum_stride)
{
    ptx_grid_launch();
    ptx_grid_wait();
    const int row = blockIdx.x;
    const int n_rows = spec::outputs ? st->n_out : st->n_rows;
    if (row >= n_rows) {
        return;
    }
    float *scratch = qn_shared<float>(0);
    x += row * x_stride + (i64)blockIdx.y * spec::n;
    out += row * out_stride + (i64)blockIdx.y * spec::n;
    constexpr int per_thread = (spec::n + spec::threads - 1) / spec::threads;
    float v[per_thread];
    float sum = 0.0f;
    const float factor = spec::scaled ? row_scale[row] : 1.0f;
    for (int i = 0; i < per_thread; i++) {
        const int at = threadIdx.x + i * spec::threads;
        v[i] = 0.0f;
        if (at < spec::n) {
            if (spec::product) {
                v[i] = product[(i64)row * spec::n + at] * factor;
                if (spec::add) {
                    v[i] = x[at] + v[i];
                }
                if (spec::sum_out) {
                    sum_out[row * sum_stride + at] = v[i];
                }
            } else {
                v[i] = x[at];
            }
        }
        sum += v[i];
    }
    float mean = 0.0f;
    if (spec::kind == NORM_LAYER) {
        mean = block_sum<spec::threads>(sum, scratch) / spec::n;
    }
    float square = 0.0f;
    for (int i = 0; i < per_thread; i++) {
        const int at = threadIdx.x + i * spec::threads;
        const float d = at < spec::n ? v[i] - mean : 0.0f;
        square += d * d;
    }
    const float scale = 1.0f / sqrtf(block_sum<spec::threads>(square, scratch) / spec::n + spec::eps);
    float top = 0.0f;
    for (int i = 0; i < per_thread; i++) {
        const int at = threadIdx.x + i * spec::threads;
        if (at < spec::n) {
            float y = (v[i] - mean) * scale;
            if (spec::has_w) {
                y *= w[at];
            }
            if (spec::has_b) {
                y += b[at];
            }
            y *= spec::out_scale;
            if (spec::residual) {
                y = base[row * base_stride + (i64)blockIdx.y * spec::n + at] + y;
            }
            if (spec::f32_out) {
                out[at] = y;
            }
            if (spec::q8_out) { // whole warps: n is a multiple of 32
                quantise_group(y, q8_out + row * q8_row_bytes(spec::n), spec::n, at / GROUP);
            }
            v[i] = y;
            top = fmaxf(top, fabsf(y));
        }
    }
    if constexpr (spec::half_out != 0) {
        write_half_row<spec::n, spec::threads, spec::half_out == 2>(v, top, half + (i64)row * spec::n,
                                                                    row_scale + row, scratch);
    }
}
