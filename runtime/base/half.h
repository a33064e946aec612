/* half.h: binary16 and bfloat16 to and from binary32, rounding to nearest even, bit for bit on any host. */
#ifndef QN_BASE_HALF_H
#define QN_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float qn_f32_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t qn_f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float qn_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exp = (h >> 10) & 0x1fu;
    uint32_t man = h & 0x3ffu;
    if (exp == 0x1f) {
        return qn_f32_from_bits(sign | 0x7f800000u | (man << 13));
    }
    if (exp == 0) {
        float v = (float)man * 0x1p-24f; /* exact: subnormals are multiples of 2^-24 */
        return sign ? -v : v;
    }
    return qn_f32_from_bits(sign | ((exp + 112u) << 23) | (man << 13));
}

static inline uint16_t qn_f32_to_f16(float f)
{
    uint32_t u = qn_f32_bits(f);
    uint16_t sign = (uint16_t)((u >> 16) & 0x8000u);
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u);
    }
    if (u >= 0x47800000u) { /* 65536 and more; what rounds up to it is carried below */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (u < 0x38800000u) { /* result is subnormal or zero: let the FPU round at 2^-24 */
        float a = qn_f32_from_bits(u) + 0.5f;
        return (uint16_t)(sign | (qn_f32_bits(a) - 0x3f000000u));
    }
    uint32_t odd = (u >> 13) & 1u;
    u += 0xc8000fffu + odd; /* rebias the exponent by -112 and round */
    return (uint16_t)(sign | (u >> 13));
}

static inline float qn_bf16_to_f32(uint16_t h)
{
    return qn_f32_from_bits((uint32_t)h << 16);
}

static inline uint16_t qn_f32_to_bf16(float f)
{
    uint32_t u = qn_f32_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)((u >> 16) | 0x40u);
    }
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

#endif
