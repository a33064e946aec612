// quant.cuh: decoding of GGUF blocks on the device. One specialisation of `quant` a type:
//   values, bytes         of a block
//   decode8(block, i, v)  eight values i..i+7 of a block (i a multiple of 8), as floats
// Blocks may stand at any even address (f32: 4). Layouts: docs/quant-type.md and runtime/model/dtype_*.c.
// defines: quant<DT>, decode8<DT>(row, k, v), row_bytes<DT>(n)
#pragma once
#include "types.cuh"

template <int DT> struct quant;

QN_DEV u32 load_u16(const u8 *p)
{
    return *(const u16 *)p;
}

// Four bytes at an even address.
QN_DEV u32 load_u32(const u8 *p)
{
    return load_u16(p) | load_u16(p + 2) << 16;
}

QN_DEV float load_half(const u8 *p)
{
    return half_to_float(*(const half_t *)p);
}

QN_DEV u32 byte_of(u32 lo, u32 hi, int i)
{
    return (i < 4 ? lo >> (8 * i) : hi >> (8 * (i - 4))) & 0xff;
}

template <> struct quant<DT_F32> {
    static constexpr int values = 8, bytes = 32;
    QN_DEV void decode8(const u8 *b, int, float v[8])
    {
        for (int i = 0; i < 8; i++) {
            v[i] = ((const float *)b)[i];
        }
    }
};

template <> struct quant<DT_F16> {
    static constexpr int values = 8, bytes = 16;
    QN_DEV void decode8(const u8 *b, int, float v[8])
    {
        for (int i = 0; i < 8; i++) {
            v[i] = load_half(b + 2 * i);
        }
    }
};

template <> struct quant<DT_BF16> {
    static constexpr int values = 8, bytes = 16;
    QN_DEV void decode8(const u8 *b, int, float v[8])
    {
        for (int i = 0; i < 8; i++) {
            v[i] = bf16_to_float(*(const bf16_t *)(b + 2 * i));
        }
    }
};

// The five types of 32 with packed nibbles: value j < 16 is the low nibble of byte j, j >= 16 the high one of
// byte j - 16; the fifth bit of value j is bit j of a word.
template <bool FIFTH> QN_DEV void nibbles8(const u8 *qs, const u8 *qh, int i, u32 q[8])
{
    const int shift = i >= 16 ? 4 : 0, at = i & 15;
    const u32 lo = load_u32(qs + at) >> shift, hi = load_u32(qs + at + 4) >> shift;
    const u32 bits = FIFTH ? load_u32(qh) >> i : 0;
    for (int k = 0; k < 8; k++) {
        q[k] = (byte_of(lo, hi, k) & 15) | (FIFTH ? (bits >> k & 1) << 4 : 0);
    }
}

template <> struct quant<DT_Q4_0> {
    static constexpr int values = 32, bytes = 18;
    QN_DEV void decode8(const u8 *b, int i, float v[8])
    {
        u32 q[8];
        const float d = load_half(b);
        nibbles8<false>(b + 2, b, i, q);
        for (int k = 0; k < 8; k++) {
            v[k] = (float)((int)q[k] - 8) * d;
        }
    }
};

template <> struct quant<DT_Q4_1> {
    static constexpr int values = 32, bytes = 20;
    QN_DEV void decode8(const u8 *b, int i, float v[8])
    {
        u32 q[8];
        const float d = load_half(b), m = load_half(b + 2);
        nibbles8<false>(b + 4, b, i, q);
        for (int k = 0; k < 8; k++) {
            v[k] = (float)(int)q[k] * d + m;
        }
    }
};

template <> struct quant<DT_Q5_0> {
    static constexpr int values = 32, bytes = 22;
    QN_DEV void decode8(const u8 *b, int i, float v[8])
    {
        u32 q[8];
        const float d = load_half(b);
        nibbles8<true>(b + 6, b + 2, i, q);
        for (int k = 0; k < 8; k++) {
            v[k] = (float)((int)q[k] - 16) * d;
        }
    }
};

template <> struct quant<DT_Q5_1> {
    static constexpr int values = 32, bytes = 24;
    QN_DEV void decode8(const u8 *b, int i, float v[8])
    {
        u32 q[8];
        const float d = load_half(b), m = load_half(b + 2);
        nibbles8<true>(b + 8, b + 4, i, q);
        for (int k = 0; k < 8; k++) {
            v[k] = (float)(int)q[k] * d + m;
        }
    }
};

template <> struct quant<DT_Q8_0> {
    static constexpr int values = 32, bytes = 34;
    QN_DEV void decode8(const u8 *b, int i, float v[8])
    {
        const float d = load_half(b);
        const u32 lo = load_u32(b + 2 + i), hi = load_u32(b + 6 + i);
        for (int k = 0; k < 8; k++) {
            v[k] = (float)(i8)byte_of(lo, hi, k) * d;
        }
    }
};

template <> struct quant<DT_IQ4_NL> {
    static constexpr int values = 32, bytes = 18;
    QN_DEV void decode8(const u8 *b, int i, float v[8])
    {
        u32 q[8];
        const float d = load_half(b);
        nibbles8<false>(b + 2, b, i, q);
        for (int k = 0; k < 8; k++) {
            v[k] = d * (float)iq4_value(q[k]);
        }
    }
    // The 16 levels -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113, four bytes a word.
    QN_DEV int iq4_value(u32 q)
    {
        const u32 word = q < 8 ? (q < 4 ? 0xbfad9881u : 0xf6eaddcfu) : (q < 12 ? 0x26190d01u : 0x71594535u);
        return (i8)(word >> (8 * (q & 3)) & 0xff);
    }
};

template <> struct quant<DT_IQ4_XS> {
    static constexpr int values = 256, bytes = 136;
    QN_DEV void decode8(const u8 *b, int i, float v[8])
    {
        const int group = i / 32;
        const u32 low = b[4 + group / 2] >> (4 * (group & 1)) & 15, high = load_u16(b + 2) >> (2 * group) & 3;
        const float d = load_half(b) * (float)((int)(low | high << 4) - 32);
        u32 q[8];
        nibbles8<false>(b + 8 + 16 * group, b, i & 31, q);
        for (int k = 0; k < 8; k++) {
            v[k] = d * (float)quant<DT_IQ4_NL>::iq4_value(q[k]);
        }
    }
};

template <> struct quant<DT_Q2_K> {
    static constexpr int values = 256, bytes = 84;
    QN_DEV void decode8(const u8 *b, int i, float v[8])
    {
        const u32 sc = b[i / 16];
        const float d = load_half(b + 80) * (float)(int)(sc & 15),
                    m = load_half(b + 82) * (float)(int)(sc >> 4);
        const u8 *qs = b + 16 + 32 * (i / 128) + (i & 31);
        const int shift = i / 32 % 4 * 2;
        const u32 lo = load_u32(qs) >> shift, hi = load_u32(qs + 4) >> shift;
        for (int k = 0; k < 8; k++) {
            v[k] = d * (float)(int)(byte_of(lo, hi, k) & 3) - m;
        }
    }
};

template <> struct quant<DT_Q3_K> {
    static constexpr int values = 256, bytes = 110;
    QN_DEV void decode8(const u8 *b, int i, float v[8])
    {
        const u8 *scales = b + 96;
        const int is = i / 16;
        const u32 low = (is < 8 ? scales[is] : scales[is - 8] >> 4) & 15,
                  high = scales[8 + is % 4] >> (is / 4 * 2) & 3;
        const float d = load_half(b + 108) * (float)((int)(low | high << 4) - 32);
        const int shift = i / 32 % 4 * 2, bit = i / 32, l = i & 31;
        const u8 *qs = b + 32 + 32 * (i / 128) + l;
        const u32 lo = load_u32(qs) >> shift, hi = load_u32(qs + 4) >> shift;
        const u32 mlo = load_u32(b + l) >> bit, mhi = load_u32(b + l + 4) >> bit;
        for (int k = 0; k < 8; k++) {
            const int q = (int)(byte_of(lo, hi, k) & 3) - ((byte_of(mlo, mhi, k) & 1) ? 0 : 4);
            v[k] = d * (float)q;
        }
    }
};

// 6-bit scale and minimum number `is` of the 12 bytes that q4_K and q5_K share.
QN_DEV void scale_min(const u8 *s, int is, u32 *scale, u32 *min)
{
    if (is < 4) {
        *scale = s[is] & 63;
        *min = s[is + 4] & 63;
    } else {
        *scale = (s[is + 4] & 15) | (s[is - 4] >> 6) << 4;
        *min = s[is + 4] >> 4 | (s[is] >> 6) << 4;
    }
}

template <> struct quant<DT_Q4_K> {
    static constexpr int values = 256, bytes = 144;
    QN_DEV void decode8(const u8 *b, int i, float v[8])
    {
        u32 sc, mn;
        scale_min(b + 4, i / 32, &sc, &mn);
        const float d = load_half(b) * (float)(int)sc, m = load_half(b + 2) * (float)(int)mn;
        const u8 *qs = b + 16 + 32 * (i / 64) + (i & 31);
        const int shift = i / 32 % 2 * 4;
        const u32 lo = load_u32(qs) >> shift, hi = load_u32(qs + 4) >> shift;
        for (int k = 0; k < 8; k++) {
            v[k] = d * (float)(int)(byte_of(lo, hi, k) & 15) - m;
        }
    }
};

template <> struct quant<DT_Q5_K> {
    static constexpr int values = 256, bytes = 176;
    QN_DEV void decode8(const u8 *b, int i, float v[8])
    {
        u32 sc, mn;
        const int is = i / 32, l = i & 31;
        scale_min(b + 4, is, &sc, &mn);
        const float d = load_half(b) * (float)(int)sc, m = load_half(b + 2) * (float)(int)mn;
        const u8 *qs = b + 48 + 32 * (i / 64) + l, *qh = b + 16 + l;
        const int shift = is % 2 * 4;
        const u32 lo = load_u32(qs) >> shift, hi = load_u32(qs + 4) >> shift;
        const u32 hlo = load_u32(qh) >> is, hhi = load_u32(qh + 4) >> is;
        for (int k = 0; k < 8; k++) {
            const u32 q = (byte_of(lo, hi, k) & 15) | (byte_of(hlo, hhi, k) & 1) << 4;
            v[k] = d * (float)(int)q - m;
        }
    }
};

template <> struct quant<DT_Q6_K> {
    static constexpr int values = 256, bytes = 210;
    QN_DEV void decode8(const u8 *b, int i, float v[8])
    {
        const int half = i / 128, quarter = i / 32 % 4, l = i & 31;
        const float d = load_half(b + 208) * (float)(i8)b[192 + i / 16];
        const u8 *ql = b + 64 * half + 32 * (quarter & 1) + l, *qh = b + 128 + 32 * half + l;
        const int shift = quarter / 2 * 4;
        const u32 lo = load_u32(ql) >> shift, hi = load_u32(ql + 4) >> shift;
        const u32 hlo = load_u32(qh) >> (2 * quarter), hhi = load_u32(qh + 4) >> (2 * quarter);
        for (int k = 0; k < 8; k++) {
            const u32 q = (byte_of(lo, hi, k) & 15) | (byte_of(hlo, hhi, k) & 3) << 4;
            v[k] = d * (float)((int)q - 32);
        }
    }
};

// Bytes of a row of n values.
template <int DT> QN_DEV i64 row_bytes(i64 n)
{
    return n / quant<DT>::values * quant<DT>::bytes;
}

// Values k..k+7 of a row of blocks; k a multiple of 8 and of the row's length a divisor where blocks are 8.
template <int DT> QN_DEV void decode8(const u8 *row, int k, float v[8])
{
    constexpr int n = quant<DT>::values;
    quant<DT>::decode8(row + (i64)(k / n) * quant<DT>::bytes, k % n, v);
}
