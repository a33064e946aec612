// dequant.cu: rows first .. first + n - 1 of a weight of n_rows rows to f16 rows, for the matrix products of
// prefill; a thread decodes eight values. grid: (ceil(ceil(n_in / 8) * n / threads)); block: spec::threads;
// shared: none. spec::dtype; the shape is an argument, so that one program serves every weight of a type.
#include "planes.cuh"

QN_ENTRY(spec::threads)
QN_KERNEL(const u8 *w, u16 *out, i64 n_rows, i64 n_in, i64 first, i64 n)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const i64 per_row = (n_in + 7) / 8;
    const i64 unit = (i64)blockIdx.x * spec::threads + threadIdx.x;
    if (unit >= per_row * n) {
        return;
    }
    const i64 row = unit / per_row;
    const int k = (int)(unit % per_row) * 8;
    const plane_ptr p = row_planes<spec::dtype>(w, n_rows, (int)n_in, first + row);
    u16 *dst = out + row * n_in + k;
    if (n_in % 8 == 0) {
        float v[8];
        decode_group8<spec::dtype>(p, k / GROUP, k % GROUP / 8, v);
        u32 packed[4];
        for (int i = 0; i < 4; i++) {
            packed[i] = float_to_half(v[2 * i]) | (u32)float_to_half(v[2 * i + 1]) << 16;
        }
        *(u32x4 *)dst = u32x4{packed[0], packed[1], packed[2], packed[3]};
    } else {
        for (int i = 0; i < 8 && k + i < n_in; i++) {
            dst[i] = float_to_half(decode_value<spec::dtype>(p, k + i));
        }
    }
}
