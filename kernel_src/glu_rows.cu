// glu_rows.cu: glu_act.cu for many rows that 16 bytes fit: act(gate) * up of products side by side, as 16-bit
// rows (half_row.cuh), and as f32 where spec::f32_out. A thread asks for all of its pieces of 16 bytes before
// it uses the first: eight values of f16 (spec::half_in, chunk.cuh) or four of f32. spec::scaled: products
// times row_scale. grid: (rows); block: spec::threads; shared: threads / 32 floats.
#include "chunk.cuh"

constexpr int n = spec::n_ff, wide = spec::half_in ? 8 : 4, chunks = n / wide;
constexpr int per_thread = (chunks + spec::threads - 1) / spec::threads;

QN_ENTRY(spec::threads, spec::threads <= 512 ? 1024 / spec::threads : 1)
QN_KERNEL(const qn_state *st, const u8 *y, float *row_scale, float *out, i64 out_stride, const float *bg,
          const float *sg, const float *bu, const float *su, u16 *half)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.x;
    if (row >= st->n_rows) {
        return;
    }
    float *scratch = qn_shared<float>(0);
    const u32x4 *gates = (const u32x4 *)(y + (i64)row * 2 * n * (spec::half_in ? 2 : 4)),
                *ups = gates + chunks;
    u32x4 g[per_thread], u[per_thread];
#pragma unroll
    for (int k = 0; k < per_thread; k++) {
        const int c = threadIdx.x + k * spec::threads;
        g[k] = u[k] = u32x4{0, 0, 0, 0};
        if (chunks % spec::threads == 0 || c < chunks) {
            g[k] = gates[c];
            u[k] = ups[c];
        }
    }
    const float factor = (spec::scaled ? row_scale[row] : 1.0f) * products_up;
    const float gate_factor = factor * (spec::has_scale ? (spec::fused ? *su : *sg) : 1.0f);
    const float up_factor = factor * (spec::has_scale ? *su : 1.0f);
    const float *gate_bias = spec::fused ? bu : bg, *up_bias = spec::fused ? bu + n : bu;
    float v[per_thread][wide], top = 0.0f;
#pragma unroll
    for (int k = 0; k < per_thread; k++) {
        const int c = threadIdx.x + k * spec::threads;
        const bool there = chunks % spec::threads == 0 || c < chunks;
#pragma unroll
        for (int e = 0; e < wide; e++) {
            float a = value_of<spec::half_in>(g[k], e) * gate_factor,
                  b = value_of<spec::half_in>(u[k], e) * up_factor;
            if (spec::has_bias && there) {
                a += gate_bias[wide * c + e];
                b += up_bias[wide * c + e];
            }
            v[k][e] = activate<spec::act>(a) * b;
            top = fmaxf(top, there ? fabsf(v[k][e]) : 0.0f);
        }
    }
    float up;
    const float down = half_scale(block_max<spec::threads>(top, scratch), &up);
#pragma unroll
    for (int k = 0; k < per_thread; k++) {
        const int c = threadIdx.x + k * spec::threads;
        if (chunks % spec::threads != 0 && c >= chunks) {
            break;
        }
#pragma unroll
        for (int e = 0; e < wide; e += 4) {
            if (spec::f32_out) {
                store4(out + row * out_stride, c * (wide / 4) + e / 4, v[k] + e);
            }
        }
        u32 p[wide / 2];
#pragma unroll
        for (int e = 0; e < wide / 2; e++) {
            p[e] = pack_pair<spec::half_out == 2>(v[k][2 * e] * down, v[k][2 * e + 1] * down);
        }
        u16 *dst = half + (i64)row * n + wide * c;
        if constexpr (spec::half_in) {
            *(u32x4 *)dst = u32x4{p[0], p[1], p[2], p[3]};
        } else {
            *(u32x2 *)dst = u32x2{p[0], p[1]};
        }
    }
    if (spec::threads == WARP) {
        __syncwarp();
    }
    if (threadIdx.x == 0) { // all have read the factor of the row that came in
        row_scale[row] = up;
    }
}
