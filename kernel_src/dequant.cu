// dequant.cu: weight rows as GGUF blocks to f16 (or bf16) rows, for the matrix products of prefill.
// grid: (ceil(n_rows * n_in / 8 / threads)); block: spec::threads; shared: none.
// spec::dtype, spec::n_in, spec::n_rows, spec::bf16.
#include "quant.cuh"

extern "C" __global__ void __launch_bounds__(spec::threads) QN_KERNEL(const u8 *w, u16 *out)
{
    constexpr i64 per_row = spec::n_in / 8;
    const i64 unit = (i64)blockIdx.x * spec::threads + threadIdx.x;
    if (unit >= per_row * spec::n_rows) {
        return;
    }
    const i64 row = unit / per_row;
    const int k = (int)(unit % per_row) * 8;
    float v[8];
    decode8<spec::dtype>(w + row * row_bytes<spec::dtype>(spec::n_in), k, v);
    u32 packed[4];
    for (int i = 0; i < 4; i++) {
        const u32 lo = spec::bf16 ? float_to_bf16(v[2 * i]) : float_to_half(v[2 * i]);
        const u32 hi = spec::bf16 ? float_to_bf16(v[2 * i + 1]) : float_to_half(v[2 * i + 1]);
        packed[i] = lo | hi << 16;
    }
    *(u32x4 *)(out + row * spec::n_in + k) = u32x4{packed[0], packed[1], packed[2], packed[3]};
}
