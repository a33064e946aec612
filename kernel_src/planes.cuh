// planes.cuh: weights as the device keeps them: the blocks of a GGUF type split into planes, so that a warp
// reads consecutive 16-byte pieces. A group is 32 consecutive values of a row.
//
//   q   low bits of the codes: [row][group][q_bytes]
//         4 bits: byte j holds value j (low nibble) and j + 16 (high); 8 bits: value j in byte j; 2 bits: as
//         `pairs`
//   h   bits above: [row][place][h_bytes]
//         1 bit ("fifth"):  byte k, bit w: value 4w + k; bit 4 + w: value 16 + 4w + k      (w, k in 0..3)
//         2 bits ("pairs"): word 0, byte k, bits 2w..2w+1: value 4w + k; word 1: value 16 + 4w + k
//   s   scales: [row][place][s_bytes], or of K types [row][super-block of 8 groups][s_bytes]
//   d   factors of a super-block of 8 groups: [row][n_group / 8][d_bytes]
//
// The planes of a tensor of n_rows rows follow each other: all of q, all of h, all of s, all of d. repack.cu
// makes them. f32, f16 and bf16 rows stay as they are: a "plane" of 32 values a group. defines: planes<DT>,
// plane_ptr, group<DT>, load_group, dot_group, decode_group
#pragma once
#include "types.cuh"

enum { GROUP = 32, SPAN = 128 };

// One span: its groups [first, first + n), how many a lane takes, lanes that take any.
struct span {
    int first, n, steps, lanes;
};

__device__ __forceinline__ constexpr span span_of(int n_group, int index)
{
    const int first = index * SPAN, n = n_group - first < SPAN ? n_group - first : SPAN;
    const int shift = n > 64 ? 2 : n > 32 ? 1 : 0, steps = 1 << shift;
    return span{first, n, steps, (n + steps - 1) >> shift};
}

// Places of a row: more than its groups where the last span's lanes do not all take the same number.
__device__ __forceinline__ constexpr int n_places(int n_group)
{
    const span s = span_of(n_group, (n_group - 1) / SPAN);
    return s.first + s.steps * s.lanes;
}

__device__ __forceinline__ constexpr int place_of(int n_group, int g)
{
    const span s = span_of(n_group, g / SPAN);
    const int r = g - s.first, shift = s.steps >> 1; // steps is 1, 2 or 4
    return s.first + (r & (s.steps - 1)) * s.lanes + (r >> shift);
}

// q, h, s, d bytes; groups a scale unit; bits of a code; does the type run on 8-bit activations?
template <int Q, int H, int S, int SG, int D, int BITS> struct plane_shape {
    static constexpr int q_bytes = Q, h_bytes = H, s_bytes = S, s_groups = SG, d_bytes = D, bits = BITS;
    static constexpr bool integer = BITS > 0;
};
template <int DT> struct planes;
template <> struct planes<DT_F32> : plane_shape<128, 0, 0, 1, 0, 0> {
};
template <> struct planes<DT_F16> : plane_shape<64, 0, 0, 1, 0, 0> {
};
template <> struct planes<DT_BF16> : plane_shape<64, 0, 0, 1, 0, 0> {
};
template <> struct planes<DT_Q4_0> : plane_shape<16, 0, 2, 1, 0, 4> {
};
template <> struct planes<DT_Q4_1> : plane_shape<16, 0, 4, 1, 0, 4> {
};
template <> struct planes<DT_Q5_0> : plane_shape<16, 4, 2, 1, 0, 5> {
};
template <> struct planes<DT_Q5_1> : plane_shape<16, 4, 4, 1, 0, 5> {
};
template <> struct planes<DT_Q8_0> : plane_shape<32, 0, 2, 1, 0, 8> {
};
template <> struct planes<DT_Q2_K> : plane_shape<8, 0, 16, 8, 4, 2> {
};
template <> struct planes<DT_Q3_K> : plane_shape<8, 4, 16, 8, 2, 3> {
};
template <> struct planes<DT_Q4_K> : plane_shape<16, 0, 16, 8, 0, 4> {
};
template <> struct planes<DT_Q5_K> : plane_shape<16, 4, 16, 8, 0, 5> {
};
template <> struct planes<DT_Q6_K> : plane_shape<16, 8, 16, 8, 2, 6> {
};
template <> struct planes<DT_IQ4_NL> : plane_shape<16, 0, 2, 1, 0, 4> {
};
template <> struct planes<DT_IQ4_XS> : plane_shape<16, 0, 8, 8, 0, 4> {
};

// Where the planes of one row begin.
struct plane_ptr {
    const u8 *q, *h, *s, *d;
    int n_group;
};

// Bytes of a row in each plane.
struct plane_row {
    int q, h, s, d;

    __device__ __forceinline__ constexpr int all() const
    {
        return q + h + s + d;
    }
};

template <int DT> __device__ __forceinline__ constexpr plane_row plane_row_of(int n_in)
{
    using P = planes<DT>;
    const int n_group = n_in / GROUP, places = n_places(n_group);
    return plane_row{places * P::q_bytes, places * P::h_bytes,
                     (P::s_groups == 1 ? places : n_group / 8) * P::s_bytes, n_group / 8 * P::d_bytes};
}

template <int DT> QN_DEV plane_ptr row_planes(const u8 *w, i64 n_rows, int n_in, i64 row)
{
    using P = planes<DT>;
    if constexpr (!P::integer) { // rows of plain numbers need not end with a group
        return plane_ptr{w + row * n_in * (P::q_bytes / GROUP), w, w, w, 0};
    }
    const plane_row b = plane_row_of<DT>(n_in);
    const i64 rq = b.q, rh = b.h, rs = b.s, rd = b.d;
    const u8 *h = w + n_rows * rq, *s = h + n_rows * rh, *d = s + n_rows * rs;
    return plane_ptr{w + row * rq, h + row * rh, s + row * rs, d + row * rd, n_in / GROUP};
}

// One group of one row in registers.
template <int DT> struct group {
    u32x4 q0, q1, s;
    u32 h0, h1, d;
};

// Codes of 8 bytes a group.
template <int DT> QN_DEV void load_short_codes(group<DT> &r, const plane_ptr &p, int place)
{
    const u32x2 v = *(const u32x2 *)(p.q + place * 8);
    r.q0.x = v.x;
    r.q0.y = v.y;
}

// What stands at a place beside the low bits: bits above them, and the scales of types that have them there.
template <int DT> QN_DEV void load_beside(group<DT> &r, const plane_ptr &p, int place)
{
    using P = planes<DT>;
    if constexpr (P::h_bytes == 4) {
        r.h0 = *(const u32 *)(p.h + place * 4);
    } else if constexpr (P::h_bytes == 8) {
        const u32x2 v = *(const u32x2 *)(p.h + place * 8);
        r.h0 = v.x;
        r.h1 = v.y;
    }
    if constexpr (P::s_bytes == 4) {
        r.s.x = *(const u32 *)(p.s + place * 4);
    } else if constexpr (P::s_bytes == 2) {
        r.s.x = *(const u16 *)(p.s + place * 2);
    }
}

// How codes are asked for: past the cache, the same at this point of the program, or out of shared memory.
enum { STREAM, STREAM_HERE, FROM_SHARED };

template <int HOW> QN_DEV u32x4 load_piece(const void *p)
{
    return HOW == FROM_SHARED   ? *(const u32x4 *)p
           : HOW == STREAM_HERE ? ptx_load_stream_here(p)
                                : ptx_load_stream(p);
}

// All that stands at a place.
template <int DT, int HOW = STREAM> QN_DEV void load_codes(group<DT> &r, const plane_ptr &p, int place)
{
    using P = planes<DT>;
    if constexpr (P::q_bytes == 8) {
        load_short_codes(r, p, place);
    } else if constexpr (P::q_bytes == 32) { // the two halves of a warp's step stand apart
        r.q0 = load_piece<HOW>(p.q + place * 32);
        r.q1 = load_piece<HOW>(p.q + place * 32 + 16);
    } else {
        r.q0 = load_piece<HOW>(p.q + place * P::q_bytes);
    }
    load_beside(r, p, place);
}

// The header of a K type's super-block.
template <int DT> QN_DEV void load_header(u32x4 &s, u32 &d, const plane_ptr &p, int block)
{
    using P = planes<DT>;
    if constexpr (P::s_bytes == 16) {
        s = *(const u32x4 *)(p.s + block * 16);
    } else if constexpr (P::s_bytes == 8) {
        const u32x2 v = *(const u32x2 *)(p.s + block * 8);
        s.x = v.x;
        s.y = v.y;
    }
    if constexpr (P::d_bytes == 4) {
        d = *(const u32 *)(p.d + block * 4);
    } else if constexpr (P::d_bytes == 2) {
        d = *(const u16 *)(p.d + block * 2);
    }
}

template <int DT> QN_DEV group<DT> load_group(const plane_ptr &p, int g)
{
    group<DT> r;
    load_codes(r, p, place_of(p.n_group, g));
    if constexpr (planes<DT>::s_groups == 8) {
        load_header<DT>(r.s, r.d, p, g / 8);
    }
    return r;
}

QN_DEV float low_half(u32 v)
{
    return half_to_float((half_t)(v & 0xffff));
}

QN_DEV float high_half(u32 v)
{
    return half_to_float((half_t)(v >> 16));
}

QN_DEV u32 word_of(const u32x4 &v, int i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

QN_DEV u32 scale_byte(const u32x4 &v, int i)
{
    return word_of(v, i >> 2) >> (8 * (i & 3)) & 0xff;
}

// Four scales and four minima, of the lower or the upper half, of the 12 packed bytes of q4_K and q5_K, which
// stand in words y, z, w behind d and dmin.
QN_DEV void scales_mins(const u32x4 &s, bool upper, u32 *scales, u32 *mins)
{
    const u32 y = s.y, z = s.z;
    *scales = upper ? (s.w & 0x0f0f0f0fu) | (y >> 2 & 0x30303030u) : y & 0x3f3f3f3fu;
    *mins = upper ? (s.w >> 4 & 0x0f0f0f0fu) | (z >> 2 & 0x30303030u) : z & 0x3f3f3f3fu;
}

// Scale and minimum `j` of them. A lane whose groups are of one half of the super-block unpacks once.
QN_DEV void scale_min(const u32x4 &s, int j, u32 *scale, u32 *min)
{
    u32 scales, mins;
    scales_mins(s, (j & 4) != 0, &scales, &mins);
    *scale = scales >> (8 * (j & 3)) & 0xff;
    *min = mins >> (8 * (j & 3)) & 0xff;
}

// The 16 levels of iq4: -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113, four bytes a word.
// Levels of the four nibbles of v's lower half: bytes of the two halves of the table, and of them the one
// that a nibble's upper bit says.
QN_DEV u32 iq4_quad(u32 v)
{
    const u32 low = __byte_perm(0xbfad9881u, 0xf6eaddcfu, v & 0x7777u);
    const u32 high = __byte_perm(0x26190d01u, 0x71594535u, v & 0x7777u);
    return __byte_perm(low, high, (v >> 1 & 0x4444u) | 0x3210u);
}

// Levels of a word of codes: of the low nibbles of its bytes, and of the high ones.
QN_DEV void iq4_levels(u32 v, u32 *low, u32 *high)
{
    const u32 a = iq4_quad(v & 0xffffu), b = iq4_quad(v >> 16);
    *low = __byte_perm(a, b, 0x6420u);
    *high = __byte_perm(a, b, 0x7531u);
}

// Codes of values 4w..4w+3 (upper: of 16 + 4w..) as four bytes, signed where the type's codes are centred.
template <int DT> QN_DEV u32 code_word(const group<DT> &g, int w, bool upper)
{
    using P = planes<DT>;
    if constexpr (P::bits == 8) {
        return word_of(upper ? g.q1 : g.q0, w);
    } else if constexpr (P::bits == 2 || P::bits == 3) {
        const u32 low = (upper ? g.q0.y : g.q0.x) >> (2 * w) & 0x03030303u;
        if constexpr (P::bits == 2) {
            return low;
        }
        const u32 v = low | (g.h0 >> (w + (upper ? 4 : 0)) & 0x01010101u) << 2;
        return (v + 0x7c7c7c7cu) ^ 0x80808080u; // v - 4
    } else {
        const u32 low = word_of(g.q0, w) >> (upper ? 4 : 0) & 0x0f0f0f0fu;
        if constexpr (P::bits == 5) {
            return low | (g.h0 >> (w + (upper ? 4 : 0)) & 0x01010101u) << 4;
        } else if constexpr (P::bits == 6) {
            const u32 v = low | ((upper ? g.h1 : g.h0) >> (2 * w) & 0x03030303u) << 4;
            return (v + 0x60606060u) ^ 0x80808080u; // v - 32
        } else if constexpr (DT == DT_IQ4_NL || DT == DT_IQ4_XS) {
            u32 levels[2];
            iq4_levels(word_of(g.q0, w), &levels[0], &levels[1]);
            return levels[upper ? 1 : 0];
        }
        return low;
    }
}

// value = a[half] * code + b[half], half: values 0-15 | 16-31 of the group.
struct affine {
    float a[2], b[2];
};

template <int DT> QN_DEV affine group_affine(const group<DT> &g, int index)
{
    affine f = {{0.0f, 0.0f}, {0.0f, 0.0f}};
    const int j = index & 7;
    if constexpr (DT == DT_Q4_K || DT == DT_Q5_K) {
        u32 sc, mn;
        scale_min(g.s, j, &sc, &mn);
        f.a[0] = f.a[1] = low_half(g.s.x) * (float)(int)sc;
        f.b[0] = f.b[1] = -(high_half(g.s.x) * (float)(int)mn);
    } else if constexpr (DT == DT_Q6_K || DT == DT_Q3_K) {
        const float d = low_half(g.d);
        for (int k = 0; k < 2; k++) {
            f.a[k] = d * (float)(i8)scale_byte(g.s, 2 * j + k);
        }
    } else if constexpr (DT == DT_Q2_K) {
        for (int k = 0; k < 2; k++) {
            const u32 v = scale_byte(g.s, 2 * j + k);
            f.a[k] = low_half(g.d) * (float)(int)(v & 15);
            f.b[k] = -(high_half(g.d) * (float)(int)(v >> 4));
        }
    } else if constexpr (DT == DT_IQ4_XS) {
        const u32 low = g.s.y >> (4 * j) & 15, high = g.s.x >> (16 + 2 * j) & 3;
        f.a[0] = f.a[1] = low_half(g.s.x) * (float)((int)(low | high << 4) - 32);
    } else if constexpr (DT == DT_Q4_1 || DT == DT_Q5_1) {
        f.a[0] = f.a[1] = low_half(g.s.x);
        f.b[0] = f.b[1] = high_half(g.s.x);
    } else {
        const float d = low_half(g.s.x);
        const float zero = DT == DT_Q4_0 ? 8.0f : DT == DT_Q5_0 ? 16.0f : 0.0f;
        f.a[0] = f.a[1] = d;
        f.b[0] = f.b[1] = -(d * zero);
    }
    return f;
}

// Activations of one group: codes of values 4w.. in lo[w], 16 + 4w.. in hi[w]; d * code is the value; ds = d
// * sum.
struct act_group {
    u32 lo[4], hi[4];
    float d, ds, d_hi; // d_hi: of values 16-31, where those have a step of their own (FINE)
};

// Types whose codes are the plain nibbles: upper ones are multiplied where they lie, 16 times too large.
template <int DT> constexpr bool nibbles = DT == DT_Q4_0 || DT == DT_Q4_1 || DT == DT_Q4_K;

// Contribution of one group to a dot product, of its integer sums over values 0-15 and 16-31.
template <int DT> QN_DEV float scale_halves(const affine &f, i32 lo, i32 hi, const act_group &x)
{
    if constexpr (DT == DT_Q6_K || DT == DT_Q3_K) {
        return x.d * (f.a[0] * (float)lo) + x.d_hi * (f.a[1] * (float)hi);
    } else if constexpr (DT == DT_Q2_K) {
        i32 slo = 0, shi = 0;
        for (int w = 0; w < 4; w++) {
            slo = ptx_dp4a(0x01010101u, x.lo[w], slo);
            shi = ptx_dp4a(0x01010101u, x.hi[w], shi);
        }
        return x.d * (f.a[0] * (float)lo + f.b[0] * (float)slo) +
               x.d_hi * (f.a[1] * (float)hi + f.b[1] * (float)shi);
    } else {
        const float y = f.a[0] * (x.d * (float)lo + x.d_hi * (float)hi);
        return DT == DT_Q8_0 || DT == DT_IQ4_NL || DT == DT_IQ4_XS ? y : y + f.b[0] * x.ds;
    }
}

// Contribution of one group to a dot product. Integer sums are exact. FINE: activations as in quantise.cuh.
template <int DT, bool FINE> QN_DEV float dot_group(const group<DT> &g, int index, const act_group &x)
{
    i32 lo = 0, hi = 0;
#pragma unroll
    for (int w = 0; w < 4; w++) {
        lo = ptx_dp4a(code_word<DT>(g, w, false), x.lo[w], lo);
        if constexpr (nibbles<DT>) {
            hi = ptx_dp4a_us(word_of(g.q0, w) & 0xf0f0f0f0u, x.hi[w], hi);
        } else {
            hi = ptx_dp4a(code_word<DT>(g, w, true), x.hi[w], hi);
        }
    }
    hi = nibbles<DT> ? hi >> 4 : hi;
    const affine f = group_affine<DT>(g, index);
    if constexpr (FINE) {
        return scale_halves<DT>(f, lo, hi, x);
    } else if constexpr (DT == DT_Q6_K || DT == DT_Q3_K) {
        return x.d * (f.a[0] * (float)lo + f.a[1] * (float)hi);
    } else if constexpr (DT == DT_Q2_K) {
        i32 slo = 0, shi = 0;
        for (int w = 0; w < 4; w++) {
            slo = ptx_dp4a(0x01010101u, x.lo[w], slo);
            shi = ptx_dp4a(0x01010101u, x.hi[w], shi);
        }
        return x.d * (f.a[0] * (float)lo + f.a[1] * (float)hi + f.b[0] * (float)slo + f.b[1] * (float)shi);
    } else if constexpr (DT == DT_Q8_0 || DT == DT_IQ4_NL || DT == DT_IQ4_XS) {
        return x.d * (f.a[0] * (float)(lo + hi));
    } else {
        return x.d * (f.a[0] * (float)(lo + hi)) + f.b[0] * x.ds;
    }
}

// The eight values 8k..8k+7 of a group as floats, in the reference's order of operations.
template <int DT> QN_DEV void decode_group8(const plane_ptr &p, int index, int k, float v[8])
{
    if constexpr (DT == DT_F32) {
        const float *f = (const float *)p.q + index * GROUP + 8 * k;
        for (int i = 0; i < 8; i++) {
            v[i] = f[i];
        }
    } else if constexpr (DT == DT_F16 || DT == DT_BF16) {
        const u16 *at = (const u16 *)p.q + index * GROUP + 8 * k;
        if ((u64)at % 16 != 0) { // rows of a length that is no multiple of 8
            for (int i = 0; i < 8; i++) {
                v[i] = DT == DT_F16 ? half_to_float(at[i]) : bf16_to_float(at[i]);
            }
            return;
        }
        const u32x4 r = *(const u32x4 *)at;
        for (int i = 0; i < 8; i++) {
            const u16 bits = (u16)(word_of(r, i / 2) >> (16 * (i & 1)));
            v[i] = DT == DT_F16 ? half_to_float(bits) : bf16_to_float(bits);
        }
    } else {
        const group<DT> g = load_group<DT>(p, index);
        const affine f = group_affine<DT>(g, index);
        const int half = k / 2;
        for (int i = 0; i < 2; i++) {
            const u32 word = code_word<DT>(g, 2 * (k & 1) + i, half != 0);
            for (int j = 0; j < 4; j++) {
                const int code = planes<DT>::bits == 4 && DT != DT_IQ4_NL && DT != DT_IQ4_XS
                                     ? (int)(word >> (8 * j) & 0xff)
                                     : (int)(i8)(word >> (8 * j) & 0xff);
                // Products and sums as the reference has them: q4_0 and q5_0 centre the code first.
                if constexpr (DT == DT_Q4_0 || DT == DT_Q5_0) {
                    v[4 * i + j] = (float)(code - (DT == DT_Q4_0 ? 8 : 16)) * f.a[0];
                } else {
                    v[4 * i + j] = f.a[half] * (float)code + f.b[half];
                }
            }
        }
    }
}

// Value i of a plain row.
template <int DT> QN_DEV float plain_value(const plane_ptr &p, int i)
{
    if constexpr (DT == DT_F32) {
        return ((const float *)p.q)[i];
    } else if constexpr (DT == DT_F16) {
        return half_to_float(((const half_t *)p.q)[i]);
    } else {
        return bf16_to_float(((const bf16_t *)p.q)[i]);
    }
}

// Value i of any row.
template <int DT> QN_DEV float decode_value(const plane_ptr &p, int i)
{
    if constexpr (planes<DT>::integer) {
        float v[8];
        decode_group8<DT>(p, i / GROUP, i % GROUP / 8, v);
        const int k = i % 8;
        return k < 4 ? (k < 2 ? (k == 0 ? v[0] : v[1]) : (k == 2 ? v[2] : v[3]))
                     : (k < 6 ? (k == 4 ? v[4] : v[5]) : (k == 6 ? v[6] : v[7]));
    } else {
        return plain_value<DT>(p, i);
    }
}
