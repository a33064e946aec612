// fp8.cuh: numbers of 8 bits with 4 of exponent and 3 of mantissa (e4m3), as FP8 products take them: largest
// 448, no infinity, 2^-9 the smallest. (Micikevicius et al., FP8 formats for deep learning, 2022.) defines:
// fp8_scale, float_to_e4m3
#pragma once
#include "types.cuh"

// The power of two that brings `top`, the largest magnitude, into [128, 256), and its inverse.
QN_DEV float fp8_scale(float top, float *up)
{
    int e = (int)((__float_as_uint(top) >> 23) & 0xff) - 127 - 7;
    e = top == 0.0f ? 0 : e < -100 ? -100 : e > 100 ? 100 : e;
    *up = __uint_as_float((u32)(127 + e) << 23);
    return __uint_as_float((u32)(127 - e) << 23);
}

// Rounded to nearest, ties to even; beyond 448: 448.
QN_DEV u32 float_to_e4m3(float x)
{
    const u32 bits = __float_as_uint(x), sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
    if (magnitude < (u32)(127 - 6) << 23) { // multiples of 2^-9, in the last bits of 2^23 + n
        return sign | (__float_as_uint(__uint_as_float(magnitude) * 512.0f + 8388608.0f) & 15);
    }
    const u32 rounded = magnitude + 0x7ffff + (magnitude >> 20 & 1);
    return sign | min((rounded >> 20) - ((127 - 7) << 3), 0x7eu);
}
