// linear_rows.cu: linear_post.cu for rows that 16 bytes fit: a block a row, in pieces of 16 bytes, all asked
// for before the first is used: eight products of f16 (spec::half_in, chunk.cuh) or four of f32.
// spec::scaled: products times row_scale. What comes out is f32 (spec::f32_out), 16-bit rows (spec::half_out:
// 1 f16, 2 bf16; half_row.cuh), whose factor takes row_scale's place, or both. A piece lies within a segment.
// grid: (rows); block: spec::threads; shared: threads / 32 floats.
#include "chunk.cuh"
#include "epilogue.cuh"

constexpr int wide = spec::half_in ? 8 : 4, chunks = spec::n_out / wide;
constexpr int per_thread = (chunks + spec::threads - 1) / spec::threads;

QN_ENTRY(spec::threads, spec::threads <= 512 ? 1024 / spec::threads : 1)
QN_KERNEL(const qn_state *st, const u8 *y, float *row_scale, const float *base, i64 base_stride, float *out,
          i64 out_stride, const float *b0, const float *s0, const float *b1, const float *s1, const float *b2,
          const float *s2, const float *div, u16 *half)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.x;
    if (row >= st->n_rows) {
        return;
    }
    float *scratch = qn_shared<float>(0);
    const u32x4 *products = (const u32x4 *)(y + (i64)row * spec::n_out * (spec::half_in ? 2 : 4));
    u32x4 x[per_thread];
    chunk4 sum[per_thread][wide / 4];
#pragma unroll
    for (int k = 0; k < per_thread; k++) {
        const int c = threadIdx.x + k * spec::threads;
        x[k] = u32x4{0, 0, 0, 0};
        if (chunks % spec::threads == 0 || c < chunks) {
            x[k] = products[c];
            for (int e = 0; spec::residual && e < wide / 4; e++) {
                sum[k][e] = load4<0>(base + row * base_stride, c * (wide / 4) + e);
            }
        }
    }
    const float factor = (spec::scaled ? row_scale[row] : 1.0f) * products_up;
    float v[per_thread][wide], top = 0.0f;
#pragma unroll
    for (int k = 0; k < per_thread; k++) {
        const int c = threadIdx.x + k * spec::threads;
        if (chunks % spec::threads != 0 && c >= chunks) {
            break;
        }
        const int seg = segment_of(wide * c);
        const float *bias = seg == 0 ? b0 : seg == 1 ? b1 : b2, *scale = seg == 0 ? s0 : seg == 1 ? s1 : s2;
#pragma unroll
        for (int e = 0; e < wide; e++) {
            const int at = wide * c + e;
            v[k][e] = linear_epilogue(value_of<spec::half_in>(x[k], e) * factor, at,
                                      load_tail(at, bias, scale, div));
            if (spec::residual) {
                v[k][e] = value4<0>(sum[k][e / 4], e % 4) + v[k][e];
            }
            top = fmaxf(top, fabsf(v[k][e]));
        }
    }
    float up = 1.0f, down = 1.0f;
    if (spec::half_out) {
        down = half_scale(block_max<spec::threads>(top, scratch), &up);
    }
#pragma unroll
    for (int k = 0; k < per_thread; k++) {
        const int c = threadIdx.x + k * spec::threads;
        if (chunks % spec::threads != 0 && c >= chunks) {
            break;
        }
#pragma unroll
        for (int e = 0; e < wide / 4; e++) {
            if (spec::f32_out) {
                store4(out + row * out_stride, c * (wide / 4) + e, v[k] + 4 * e);
            }
            if (spec::half_out) {
                store4_16bit<spec::half_out == 2>(half + (i64)row * spec::n_out, c * (wide / 4) + e,
                                                  v[k] + 4 * e, down);
            }
        }
    }
    if (spec::half_out) {
        if (spec::threads == WARP) {
            __syncwarp();
        }
        if (threadIdx.x == 0) { // all have read the factor of the row that came in
            row_scale[row] = up;
        }
    }
}
