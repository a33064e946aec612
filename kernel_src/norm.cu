// norm.cu (where spec::q8_out, the result goes out as 8-bit groups too): out = [base +] out_scale * (norm(x)
// * w + b); one block a row and group. grid: (rows, groups); block: spec::threads; shared: threads / 32
// floats.
#include "quantise.cuh"

QN_ENTRY(spec::threads)
QN_KERNEL(const qn_state *st, const float *x, i64 x_stride, const float *base, i64 base_stride, float *out,
          i64 out_stride, const float *w, const float *b, u8 *q8_out)
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
    for (int i = 0; i < per_thread; i++) {
        const int at = threadIdx.x + i * spec::threads;
        v[i] = at < spec::n ? x[at] : 0.0f;
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
            out[at] = spec::residual ? base[row * base_stride + (i64)blockIdx.y * spec::n + at] + y : y;
            if (spec::q8_out) { // whole warps: n is a multiple of 32
                quantise_group(y, q8_out + row * q8_row_bytes(spec::n), spec::n, at / GROUP);
            }
        }
    }
}
