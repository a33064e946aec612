// repack.cu: GGUF blocks to planes (planes.cuh); one thread a group.
// grid: (ceil(n_rows * n_in / 32 / threads)); block: spec::threads; shared: none.
// spec::dtype; the shape is an argument.
#include "planes.cuh"

using P = planes<spec::dtype>;
constexpr bool k_type = P::s_groups == 8; // blocks of 256
constexpr int block_bytes = spec::dtype == DT_Q4_0     ? 18
                            : spec::dtype == DT_Q4_1   ? 20
                            : spec::dtype == DT_Q5_0   ? 22
                            : spec::dtype == DT_Q5_1   ? 24
                            : spec::dtype == DT_Q8_0   ? 34
                            : spec::dtype == DT_IQ4_NL ? 18
                            : spec::dtype == DT_Q2_K   ? 84
                            : spec::dtype == DT_Q3_K   ? 110
                            : spec::dtype == DT_Q4_K   ? 144
                            : spec::dtype == DT_Q5_K   ? 176
                            : spec::dtype == DT_Q6_K   ? 210
                                                       : 136;

// Nibble of value i of 32 packed as in q4_0: low nibbles of 16 bytes, then their high ones.
QN_DEV u32 nibble(const u8 *qs, int i)
{
    return qs[i & 15] >> (i >= 16 ? 4 : 0) & 15;
}

// Code of value i (0..31) of group j (0..7) of block b, before centring.
QN_DEV u32 code(const u8 *b, int j, int i)
{
    const int dt = spec::dtype, l = i, e = 32 * j + i;
    if (dt == DT_Q4_0 || dt == DT_IQ4_NL) {
        return nibble(b + 2, i);
    }
    if (dt == DT_Q4_1) {
        return nibble(b + 4, i);
    }
    if (dt == DT_Q5_0 || dt == DT_Q5_1) {
        const u8 *qh = b + (dt == DT_Q5_0 ? 2 : 4);
        return nibble(qh + 4, i) | (u32)(qh[i / 8] >> (i & 7) & 1) << 4;
    }
    if (dt == DT_Q8_0) {
        return b[2 + i];
    }
    if (dt == DT_IQ4_XS) {
        return nibble(b + 8 + 16 * j, i);
    }
    if (dt == DT_Q4_K || dt == DT_Q5_K) {
        const u8 *qs = b + (dt == DT_Q4_K ? 16 : 48) + 32 * (j / 2) + l;
        const u32 low = *qs >> (j & 1 ? 4 : 0) & 15;
        return dt == DT_Q4_K ? low : low | (u32)(b[16 + l] >> j & 1) << 4;
    }
    if (dt == DT_Q6_K) {
        const int quarter = j & 3, half = j / 4;
        const u32 low = b[64 * half + 32 * (quarter & 1) + l] >> (quarter / 2 * 4) & 15;
        return low | (u32)(b[128 + 32 * half + l] >> (2 * quarter) & 3) << 4;
    }
    if (dt == DT_Q2_K) {
        return b[16 + 32 * (e / 128) + l] >> (2 * (j & 3)) & 3;
    }
    const u32 low = b[32 + 32 * (e / 128) + l] >> (2 * (j & 3)) & 3; // q3_K
    return low | (u32)(b[l] >> j & 1) << 2;
}

QN_DEV void copy_bytes(u8 *dst, const u8 *src, int n)
{
    for (int i = 0; i < n; i++) {
        dst[i] = src[i];
    }
}

// Scale bytes of a block, in the order that group_affine reads.
QN_DEV void put_scales(const u8 *b, u8 *s, u8 *d)
{
    const int dt = spec::dtype;
    if (dt == DT_Q4_K || dt == DT_Q5_K) {
        copy_bytes(s, b, 16); // d, dmin, 12 packed bytes
    } else if (dt == DT_Q6_K) {
        copy_bytes(s, b + 192, 16);
        copy_bytes(d, b + 208, 2);
    } else if (dt == DT_Q2_K) {
        copy_bytes(s, b, 16);
        copy_bytes(d, b + 80, 4);
    } else if (dt == DT_Q3_K) {
        const u8 *p = b + 96;
        for (int i = 0; i < 16; i++) {
            const u32 low = (i < 8 ? p[i] : p[i - 8] >> 4) & 15, high = p[8 + i % 4] >> (i / 4 * 2) & 3;
            s[i] = (u8)((low | high << 4) - 32);
        }
        copy_bytes(d, b + 108, 2);
    } else if (dt == DT_IQ4_XS) {
        copy_bytes(s, b, 8); // d, scales_h, scales_l
    } else {
        copy_bytes(s, b, P::s_bytes); // d, or d and m
    }
}

QN_ENTRY(spec::threads)
QN_KERNEL(const u8 *w, u8 *out, i64 n_rows, i64 n_in)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const i64 n_group = n_in / GROUP;
    const i64 unit = (i64)blockIdx.x * spec::threads + threadIdx.x;
    if (unit >= n_group * n_rows) {
        return;
    }
    const i64 row = unit / n_group;
    const int g = (int)(unit % n_group), j = k_type ? g & 7 : 0;
    const u8 *b = w + (row * (n_group / P::s_groups) + g / P::s_groups) * block_bytes;
    const plane_ptr p = row_planes<spec::dtype>(out, n_rows, (int)n_in, row);
    const int place = place_of((int)n_group, g);
    u8 *q = (u8 *)p.q + place * P::q_bytes, *h = (u8 *)p.h + place * P::h_bytes;
    u32 fifth = 0, pairs[2] = {0, 0};
    for (int i = 0; i < GROUP; i++) {
        const u32 c = code(b, j, i);
        const int upper = i / 16, word = i % 16 / 4, byte = i % 4;
        if (P::bits == 8) {
            q[i] = (u8)c;
        } else if (P::bits >= 4 && upper) {
            q[i - 16] = (u8)(code(b, j, i - 16) & 15) | (u8)((c & 15) << 4);
        }
        if (P::bits == 5 || P::bits == 3) {
            fifth |= (c >> (P::bits - 1) & 1) << (8 * byte + word + 4 * upper);
        }
        const u32 two = P::bits == 6 ? c >> 4 : c & 3;
        pairs[upper] |= (two & 3) << (8 * byte + 2 * word);
    }
    if (P::bits == 5 || P::bits == 3) {
        *(u32 *)h = fifth;
    }
    if (P::bits == 6) {
        *(u32x2 *)h = u32x2{pairs[0], pairs[1]};
    }
    if (P::bits == 2 || P::bits == 3) {
        *(u32x2 *)q = u32x2{pairs[0], pairs[1]};
    }
    if (j == 0) {
        put_scales(b, (u8 *)p.s + (k_type ? g / 8 : place) * P::s_bytes, (u8 *)p.d + g / 8 * P::d_bytes);
    }
}
