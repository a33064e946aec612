// norm.cu: out = [base +] out_scale * (norm(x) * w + b); one block a row and group. Where spec::q8_out, the
// result goes out as 8-bit groups too; spec::half_out: as 16-bit rows (half_row.cuh), and as f32 only where
// spec::f32_out. spec::product: x is the product of the step before, times the row's factor (spec::scaled),
// plus x (spec::add); spec::sum_out: that goes to `sum`. spec::next: the RMS norm of the result, times
// next_w, is what goes out as 8-bit groups. grid: (rows, groups); block: spec::threads; shared: threads / 32
// floats.
#include "half_row.cuh"
#include "quantise.cuh"

constexpr int per_thread = (spec::n + spec::threads - 1) / spec::threads;

struct norm_weights {
    float w[per_thread], b[per_thread], next[per_thread];
};

QN_DEV norm_weights load_weights(const float *w, const float *b, const float *next)
{
    norm_weights r;
    for (int i = 0; i < per_thread; i++) {
        const int at = threadIdx.x + i * spec::threads;
        r.w[i] = spec::has_w && at < spec::n ? w[at] : 1.0f;
        r.b[i] = spec::has_b && at < spec::n ? b[at] : 0.0f;
        r.next[i] = spec::next && next && at < spec::n ? next[at] : 1.0f;
    }
    return r;
}

// 8-bit groups of the RMS norm of v. Whole warps: n is a multiple of 32.
QN_DEV void norm_again(const float *v, const norm_weights &weights, u8 *q8, float *scratch)
{
    float square = 0.0f;
    for (int i = 0; i < per_thread; i++) {
        square += threadIdx.x + i * spec::threads < spec::n ? v[i] * v[i] : 0.0f;
    }
    const float mean = block_sum<spec::threads>(square, scratch) / spec::n;
    const float scale = 1.0f / sqrtf(mean + __int_as_float(spec::next_eps_bits));
    for (int i = 0; i < per_thread; i++) {
        const int at = threadIdx.x + i * spec::threads;
        if (at < spec::n) {
            quantise_group<spec::fine_out>(v[i] * scale * weights.next[i], q8, spec::n, at / GROUP);
        }
    }
}

QN_ENTRY(spec::threads)
QN_KERNEL(const qn_state *st, const float *x, i64 x_stride, const float *base, i64 base_stride, float *out,
          i64 out_stride, const float *w, const float *b, u8 *q8_out, const float *product, float *row_scale,
          u16 *half, float *sum_out, i64 sum_stride, const float *next_w)
{
    const norm_weights weights = load_weights(w, b, next_w); // they do not depend on the kernel before
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.x;
    const int n_rows = spec::outputs ? st->n_out : st->n_rows;
    if (row >= n_rows) {
        return;
    }
    float *scratch = qn_shared<float>(0);
    x += row * x_stride + (i64)blockIdx.y * spec::n;
    out += row * out_stride + (i64)blockIdx.y * spec::n;
    float v[per_thread], bases[per_thread];
    float sum = 0.0f;
    const float factor = spec::scaled ? row_scale[row] : 1.0f;
    for (int i = 0; i < per_thread; i++) {
        const int at = threadIdx.x + i * spec::threads;
        v[i] = 0.0f;
        bases[i] = 0.0f;
        if (spec::residual && at < spec::n) {
            bases[i] = base[row * base_stride + (i64)blockIdx.y * spec::n + at];
        }
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
                y *= weights.w[i];
            }
            if (spec::has_b) {
                y += weights.b[i];
            }
            y *= spec::out_scale;
            if (spec::residual) {
                y = bases[i] + y;
            }
            if (spec::f32_out) {
                out[at] = y;
            }
            if (spec::q8_out) { // whole warps: n is a multiple of 32
                quantise_group<spec::fine_out>(y, q8_out + row * q8_row_bytes<spec::fine_out>(spec::n),
                                               spec::n, at / GROUP);
            }
            v[i] = y;
            top = fmaxf(top, fabsf(y));
        }
    }
    if constexpr (spec::next != 0) {
        norm_again(v, weights, q8_out + row * q8_row_bytes<spec::fine_out>(spec::n), scratch);
    }
    if constexpr (spec::half_out != 0) {
        write_half_row<spec::n, spec::threads, spec::half_out == 2>(v, top, half + (i64)row * spec::n,
                                                                    row_scale + row, scratch);
    }
}
