#include "cpu/limits_kernels.h"

enum { LANES = 64 };

static uint64_t read_bytes(const void *p, size_t bytes)
{
    const uint64_t *w = p;
    uint64_t sums[8] = {0}, sum = 0;
    for (size_t i = 0; i < bytes / sizeof *w; i += 8) {
        for (int k = 0; k < 8; k++) {
            sums[k] += w[i + (size_t)k];
        }
    }
    for (int k = 0; k < 8; k++) {
        sum += sums[k];
    }
    return sum;
}

static double f32(long rounds, double *ops)
{
    float acc[LANES], sum = 0;
    for (int i = 0; i < LANES; i++) {
        acc[i] = (float)i;
    }
    for (long r = 0; r < rounds; r++) {
        for (int i = 0; i < LANES; i++) {
            acc[i] = acc[i] * 0.999f + 0.001f;
        }
    }
    for (int i = 0; i < LANES; i++) {
        sum += acc[i];
    }
    *ops = 2.0 * LANES * (double)rounds;
    return (double)sum;
}

static double int8(long rounds, double *ops)
{
    int32_t acc[LANES] = {0}, sum = 0;
    int8_t a[LANES], b[LANES];
    for (int i = 0; i < LANES; i++) {
        a[i] = (int8_t)i;
        b[i] = (int8_t)(i - 7);
    }
    for (long r = 0; r < rounds; r++) {
        for (int i = 0; i < LANES; i++) {
            acc[i] = (int32_t)((uint32_t)acc[i] + (uint32_t)(a[i] * b[i]));
            a[i] = (int8_t)(a[i] ^ 1); /* or the products would be made once */
        }
    }
    for (int i = 0; i < LANES; i++) {
        sum = (int32_t)((uint32_t)sum + (uint32_t)acc[i]);
    }
    *ops = 2.0 * LANES * (double)rounds;
    return sum;
}

const qn_limits_kernels qn_limits_portable = {read_bytes, f32, int8};
