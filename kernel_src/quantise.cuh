// quantise.cuh: activations as 8-bit groups of 32: code = round(x / d), d = max |x| / 127 in 22 bits, and d *
// sum of codes. A row: [place][16] codes of values 0-15, [place][16] codes of values 16-31, [place] {d, d *
// sum}; a group stands at the place that its weights have (planes.cuh), so that the lanes of a warp read 16
// bytes side by side (64 bytes apart: four times the cycles of L1). FINE rows (constants fine_in, fine_out;
// runtime/cuda/lower.h: qn_cuda_fine) have a d for values 0-15 and one for values 16-31: [place] {d, d, d *
// sum, d * sum}. Rows begin at multiples of 16 bytes. defines: q8_row_bytes, q8_scales, code_factor, step_of,
// quantise_group, quantise_groups, whole_group, load_act
#ifndef QN_QUANTISE_CUH
#define QN_QUANTISE_CUH
#include "planes.cuh"
#include "reduce.cuh"

template <bool FINE> QN_DEV i64 q8_row_bytes(int n)
{
    return ((i64)n_places(n / GROUP) * (FINE ? 48 : 40) + 15) / 16 * 16;
}

// What stands beside the codes of a place: {d, d * sum of codes}; FINE: {d of values 0-15, d of values 16-31,
// d * sum of each}. Members, so that a program of a persistent kernel finds its own.
template <bool FINE> struct q8_scales_of {
    typedef f32x2 type;

    QN_DEV_MEMBER static float upper_step(const type &v)
    {
        return v.x;
    }
    QN_DEV_MEMBER static float sum(const type &v)
    {
        return v.y;
    }
};
template <> struct q8_scales_of<true> {
    typedef f32x4 type;

    QN_DEV_MEMBER static float upper_step(const type &v)
    {
        return v.y;
    }
    QN_DEV_MEMBER static float sum(const type &v)
    {
        return v.z + v.w;
    }
};
template <bool FINE> using q8_scales = typename q8_scales_of<FINE>::type;

// What values whose largest is `top` are multiplied with to become codes. (A division by an unknown number is
// twenty instructions and a call, and each runs here once a launch, as fast as code comes from L2.)
QN_DEV float code_factor(float top)
{
    return top < 1e-30f ? 0.0f : 127.0f * ptx_reciprocal(top);
}

// The step of a group: of 22 bits, so that its product with 1.5 * 2^23 is exact (columns.cuh).
QN_DEV float step_of(float top)
{
    return __uint_as_float(__float_as_uint(top * (1.0f / 127.0f)) & ~3u);
}

// A warp writes group g of the row at `q8`, each half of it by its own largest value; lane i holds value i.
QN_DEV void quantise_halves(float v, u8 *q8, int n, int g)
{
    const int lane = threadIdx.x % WARP, places = n_places(n / GROUP), place = place_of(n / GROUP, g);
    const bool upper = lane >= WARP / 2;
    const u32 bits = __float_as_uint(fabsf(v));
    const float low = __uint_as_float(ptx_warp_max(upper ? 0u : bits));
    const float high = __uint_as_float(ptx_warp_max(upper ? bits : 0u)), top = upper ? high : low;
    const int code = __float2int_rn(v * code_factor(top));
    const int low_sum = ptx_warp_add(upper ? 0 : code), high_sum = ptx_warp_add(upper ? code : 0);
    q8[(lane / 16 * places + place) * 16 + lane % 16] = (u8)(i8)code;
    if (lane == 0) {
        const float d0 = step_of(low), d1 = step_of(high);
        ((f32x4 *)(q8 + places * 32))[place] = f32x4{d0, d1, d0 * (float)low_sum, d1 * (float)high_sum};
    }
}

// A warp writes groups g[0] .. g[N - 1] of the row at `q8`; lane i holds value i of each. Step by step, so
// that they do not wait one after the other.
template <bool FINE, int N> QN_DEV void quantise_groups(const float (&v)[N], u8 *q8, int n, const int (&g)[N])
{
    if constexpr (FINE) {
        for (int i = 0; i < N; i++) {
            quantise_halves(v[i], q8, n, g[i]);
        }
        return;
    }
    const int lane = threadIdx.x % WARP, places = n_places(n / GROUP);
    float top[N];
    int code[N], sum[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        // Bits of numbers that are not negative are in the numbers' order; those of NaN are above all.
        top[i] = __uint_as_float(ptx_warp_max(__float_as_uint(fabsf(v[i]))));
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        code[i] = __float2int_rn(v[i] * code_factor(top[i]));
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        sum[i] = ptx_warp_add(code[i]);
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int place = place_of(n / GROUP, g[i]);
        const float d = step_of(top[i]);
        q8[(lane / 16 * places + place) * 16 + lane % 16] = (u8)(i8)code[i];
        if (lane == 0) {
            ((f32x2 *)(q8 + places * 32))[place] = f32x2{d, d * (float)sum[i]};
        }
    }
}

template <bool FINE> QN_DEV void quantise_group(float v, u8 *q8, int n, int g)
{
    quantise_groups<FINE, 1>({v}, q8, n, {g});
}

// Of a group whose values several blocks make, lane i's value i if `mine`, else another block's: the block
// that brings the last of them goes on with all of them (true), the others are done with the group. group:
// the values in memory, where each block has put its own; count: values that are there, zero before and
// after.
QN_DEV bool whole_group(float *v, bool mine, const float *group, u32 *count)
{
    const int lane = threadIdx.x % WARP;
    const u32 n = __popc(__ballot_sync(0xffffffffu, mine));
    if (n == WARP) {
        return true;
    }
    __syncwarp();
    u32 before = 0;
    if (lane == 0) {
        before = ptx_add_acq_rel(count, n);
        if (before + n == WARP) {
            *count = 0;
        }
    }
    before = __shfl_sync(0xffffffffu, before, 0);
    __syncwarp();
    if (before + n < WARP) {
        return false;
    }
    *v = mine ? *v : group[lane];
    return true;
}

template <bool FINE> QN_DEV act_group load_act(const u8 *q8, int n, int place)
{
    typedef q8_scales_of<FINE> scales;
    const int places = n_places(n / GROUP);
    const u32x4 lo = ((const u32x4 *)q8)[place], hi = ((const u32x4 *)q8)[places + place];
    const q8_scales<FINE> ds = ((const q8_scales<FINE> *)(q8 + places * 32))[place];
    return act_group{
        {lo.x, lo.y, lo.z, lo.w}, {hi.x, hi.y, hi.z, hi.w}, ds.x, scales::sum(ds), scales::upper_step(ds)};
}

#endif
