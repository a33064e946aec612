// kv_q8.cuh: KV cache of 8 bits. A head of a row: DIM signed bytes, then a half d for each 32 of them, zeros
// up to a multiple of 16 bytes; a value is d times its byte, d = largest magnitude / 127. defines: kv_unit,
// kv_row_bytes, kv_keep, kv_unpack16
#ifndef QN_KV_Q8_CUH
#define QN_KV_Q8_CUH
#include "reduce.cuh"

// Bytes of a head of a row, and of a row; Q8: in 8 bits, else halves.
template <int DIM, int Q8> constexpr int kv_unit = Q8 ? DIM + (DIM / 16 + 15) / 16 * 16 : 2 * DIM;
template <int DIM, int Q8> constexpr int kv_row_bytes = spec::n_head_kv *kv_unit<DIM, Q8>;

// Value d of a head into the cache at `unit` (where `store`), and as the cache gives it back. Q8: a warp has
// 32 values that share a scale.
template <int DIM, int Q8> QN_DEV half_t kv_keep(float x, u8 *unit, int d, bool store)
{
    if constexpr (!Q8) {
        const half_t h = float_to_half(x);
        if (store) {
            ((half_t *)unit)[d] = h;
        }
        return h;
    } else {
        const float top = warp_max(fabsf(x));
        const half_t scale = float_to_half(top * (1.0f / 127.0f));
        const int code = __float2int_rn(top > 0.0f ? x * (127.0f / top) : 0.0f);
        if (store) {
            unit[d] = (u8)(i8)code;
            if (d % 32 == 0) {
                ((half_t *)(unit + DIM))[d / 32] = scale;
            }
        }
        return float_to_half(half_to_float(scale) * (float)code);
    }
}

// 16 codes times their scale as 16 halves.
QN_DEV void kv_unpack16(u32x4 out[2], const u32x4 &codes, half_t scale)
{
    const u32 in[4] = {codes.x, codes.y, codes.z, codes.w}, d = (u32)scale << 16 | scale;
    u32 h[8];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 x = in[i] ^ 0x80808080u; // code + 128; as the low bits of a half: 1024 + that
        h[2 * i] = ptx_half2_mul(ptx_half2_add(__byte_perm(x, 0x64646464u, 0x4140), 0xe480e480u), d);
        h[2 * i + 1] = ptx_half2_mul(ptx_half2_add(__byte_perm(x, 0x64646464u, 0x4342), 0xe480e480u), d);
    }
    out[0] = u32x4{h[0], h[1], h[2], h[3]};
    out[1] = u32x4{h[4], h[5], h[6], h[7]};
}

#endif
