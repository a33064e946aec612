// launch: 1 64 0
// Shuffles with widths, votes, reductions, byte dot products, halves.
extern "C" __global__ void QN_KERNEL(const float *in, float *out, i64 n)
{
    const u32 all = 0xffffffffu;
    const int lane = threadIdx.x % 32;
    bool right = __shfl_up_sync(all, lane, 3, 8) == (lane % 8 < 3 ? lane : lane - 3);
    right = right && __shfl_down_sync(all, (i64)lane << 33, 5) == (i64)(lane + 5 < 32 ? lane + 5 : lane)
                                                                      << 33;
    right = right && __shfl_sync(all, 2 * lane, 5, 16) == (lane < 16 ? 10 : 42);
    right = right && __shfl_xor_sync(all, (float)lane, 17) == (float)(lane ^ 17);
    right = right && __ballot_sync(all, lane % 3 == 0) == 0x49249249u;
    right =
        right && __reduce_add_sync(all, lane - 20) == 496 - 640 && __reduce_min_sync(all, lane - 20) == -20;
    right =
        right && __reduce_max_sync(all, (u32)lane * 3u) == 93u && __reduce_or_sync(all, 1u << lane) == all;
    right = right && ptx_dp4a(0x807f01ffu, 0x7f80ff02u, 7) == 7 - 128 * 127 - 127 * 128 - 1 - 2;
    right = right && half_to_float(0x3c01) == 1.0009765625f && float_to_half(65520.0f) == 0x7c00 &&
            float_to_half(1.00048828125f) == 0x3c00 && float_to_half(5.9604645e-8f) == 1;
    right = right && float_to_bf16(1.00390625f) == 0x3f80 && bf16_to_float(0xc040) == -3.0f;
    if (lane < 6) { // a part of the warp on its own
        right = right && __shfl_xor_sync(0x3fu, lane, 1) == (lane ^ 1);
    }
    if (__syncthreads_and(right) && threadIdx.x == 0) {
        out[0] = 1.0f;
    }
}
