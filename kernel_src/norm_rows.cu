// norm_rows.cu: norm.cu for many rows that 16 bytes fit: out = [base +] out_scale * (norm(x) * w + b). A row
// is read once, in pieces that are all asked for before the first is used, and stays in registers.
// spec::product: x is the product of the step before (spec::half_in: as f16, chunk.cuh), times the row's
// factor (spec::scaled), plus x (spec::add); spec::sum_out: that goes to `sum`. spec::half_out: the result
// goes out as 16-bit rows (half_row.cuh), as f32 where spec::f32_out. grid: (rows); block: spec::threads;
// shared: threads / 16 floats.
#include "chunk.cuh"

constexpr int chunks = spec::n / 4, per_thread = (chunks + spec::threads - 1) / spec::threads;
constexpr bool one_pass = spec::kind == NORM_RMS && !spec::has_b && !spec::residual; // largest known before

// Does the thread have a piece i?
QN_DEV bool has_piece(int i)
{
    return chunks % spec::threads == 0 || (int)threadIdx.x + i * spec::threads < chunks;
}

// Pieces of a weight, or `other` where there is none.
QN_DEV void load_weights(float v[per_thread][4], const float *w, bool there, float other)
{
#pragma unroll
    for (int i = 0; i < per_thread; i++) {
        chunk4 x = {{0, 0, 0, 0}};
        if (there && has_piece(i)) {
            x = load4<0>(w, threadIdx.x + i * spec::threads);
        }
#pragma unroll
        for (int e = 0; e < 4; e++) {
            v[i][e] = there ? value4<0>(x, e) : other;
        }
    }
}

QN_DEV void load_pieces(chunk4 v[per_thread], const float *row)
{
#pragma unroll
    for (int i = 0; i < per_thread; i++) {
        v[i] = chunk4{{0, 0, 0, 0}};
        if (has_piece(i)) {
            v[i] = load4<0>(row, threadIdx.x + i * spec::threads);
        }
    }
}

// The row that is to be normed: zero in pieces that the thread does not have.
QN_DEV void load_row(float v[per_thread][4], const float *x, const void *product, float factor,
                     float *sum_out)
{
    chunk4 xs[per_thread], ys[per_thread];
    if (!spec::product || spec::add) {
        load_pieces(xs, x);
    }
#pragma unroll
    for (int i = 0; spec::product && i < per_thread; i++) {
        ys[i] = chunk4{{0, 0, 0, 0}};
        if (has_piece(i)) {
            ys[i] = load4<spec::half_in>(product, threadIdx.x + i * spec::threads);
        }
    }
#pragma unroll
    for (int i = 0; i < per_thread; i++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            if (!spec::product) {
                v[i][e] = value4<0>(xs[i], e);
            } else {
                v[i][e] = value4<spec::half_in>(ys[i], e) * factor;
                v[i][e] += spec::add ? value4<0>(xs[i], e) : 0.0f;
            }
        }
        if (spec::sum_out && has_piece(i)) {
            store4(sum_out, threadIdx.x + i * spec::threads, v[i]);
        }
    }
}

// Mean (of a layer norm), factor and, where it is known already, the largest magnitude of the result.
QN_DEV float norm_factor(const float v[per_thread][4], const float w[per_thread][4], float *mean, float *top,
                         float *scratch)
{
    float sum = 0.0f, square = 0.0f, largest = 0.0f;
    *mean = 0.0f;
    if (spec::kind == NORM_LAYER) {
#pragma unroll
        for (int i = 0; i < per_thread; i++) {
            sum += (v[i][0] + v[i][1]) + (v[i][2] + v[i][3]);
        }
        *mean = block_sum<spec::threads>(sum, scratch) / spec::n;
    }
#pragma unroll
    for (int i = 0; i < per_thread; i++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float d = has_piece(i) ? v[i][e] - *mean : 0.0f;
            square += d * d;
            largest = fmaxf(largest, fabsf(d * w[i][e]));
        }
    }
    if (one_pass && spec::half_out) {
        block_sum_max<spec::threads>(square, largest, scratch);
    } else {
        square = block_sum<spec::threads>(square, scratch);
    }
    const float scale = 1.0f / sqrtf(square / spec::n + spec::eps);
    *top = largest * scale * fabsf(spec::out_scale);
    return scale;
}

QN_ENTRY(spec::threads, spec::threads <= 256 ? 1024 / spec::threads : 1)
QN_KERNEL(const qn_state *st, const float *x, i64 x_stride, const float *base, i64 base_stride, float *out,
          i64 out_stride, const float *w, const float *b, const u8 *product, float *row_scale, u16 *half,
          float *sum_out, i64 sum_stride)
{
    float weights[per_thread][4], v[per_thread][4], mean, top;
    load_weights(weights, w, spec::has_w, 1.0f); // they do not depend on the kernel before
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.x, n_rows = spec::outputs ? st->n_out : st->n_rows;
    if (row >= n_rows) {
        return;
    }
    float *scratch = qn_shared<float>(0);
    const float factor = (spec::scaled ? row_scale[row] : 1.0f) * products_up;
    chunk4 bases[spec::residual ? per_thread : 1];
    if constexpr (spec::residual != 0) {
        load_pieces(bases, base + row * base_stride);
    }
    load_row(v, x + row * x_stride, product + (i64)row * spec::n * (spec::half_in ? 2 : 4), factor,
             sum_out + row * sum_stride);
    const float scale = norm_factor(v, weights, &mean, &top, scratch);
    if constexpr (!one_pass) {
        float biases[per_thread][4];
        load_weights(biases, b, spec::has_b, 0.0f);
        top = 0.0f;
#pragma unroll
        for (int i = 0; i < per_thread; i++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float y = ((v[i][e] - mean) * scale * weights[i][e] + biases[i][e]) * spec::out_scale;
                if constexpr (spec::residual != 0) {
                    y = value4<0>(bases[i], e) + y;
                }
                v[i][e] = y;
                top = fmaxf(top, has_piece(i) ? fabsf(y) : 0.0f);
            }
        }
        if (spec::half_out) {
            top = block_max<spec::threads>(top, scratch);
        }
    } else {
#pragma unroll
        for (int i = 0; i < per_thread; i++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                v[i][e] = v[i][e] * scale * weights[i][e] * spec::out_scale;
            }
        }
    }
    float up;
    const float down = half_scale(top, &up);
#pragma unroll
    for (int i = 0; i < per_thread; i++) {
        const int c = threadIdx.x + i * spec::threads;
        if (spec::f32_out && has_piece(i)) {
            store4(out + row * out_stride, c, v[i]);
        }
        if (spec::half_out && has_piece(i)) {
            store4_16bit<spec::half_out == 2>(half + (i64)row * spec::n, c, v[i], down);
        }
    }
    if (spec::threads == WARP) {
        __syncwarp();
    }
    if (spec::half_out && threadIdx.x == 0) { // all have read the factor of the row that came in
        row_scale[row] = up;
    }
}
