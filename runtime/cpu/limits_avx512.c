#if defined(__x86_64__)
#include <immintrin.h>

#include "cpu/limits_kernels.h"

/* Registers under way at once: more than latency times throughput of a multiply-add. */
enum { N = 16 };

static uint64_t read_bytes(const void *p, size_t bytes)
{
    const __m512i *v = p;
    __m512i s[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                    _mm512_setzero_si512()};
    for (size_t i = 0; i < bytes / sizeof *v; i += 4) {
        for (int k = 0; k < 4; k++) {
            s[k] = _mm512_add_epi64(s[k], _mm512_load_si512(v + i + (size_t)k));
        }
    }
    s[0] = _mm512_add_epi64(_mm512_add_epi64(s[0], s[1]), _mm512_add_epi64(s[2], s[3]));
    uint64_t lanes[8], sum = 0; /* the intrinsic for it adds signed numbers, which may overflow */
    _mm512_storeu_si512(lanes, s[0]);
    for (int i = 0; i < 8; i++) {
        sum += lanes[i];
    }
    return sum;
}

static double f32(long rounds, double *ops)
{
    __m512 acc[N];
    for (int i = 0; i < N; i++) {
        acc[i] = _mm512_set1_ps((float)i);
    }
    const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
    for (long r = 0; r < rounds; r++) {
        for (int i = 0; i < N; i++) {
            acc[i] = _mm512_fmadd_ps(acc[i], a, b);
        }
    }
    for (int i = 1; i < N; i++) {
        acc[0] = _mm512_add_ps(acc[0], acc[i]);
    }
    *ops = 2.0 * 16 * N * (double)rounds;
    return (double)_mm512_reduce_add_ps(acc[0]);
}

static double int8(long rounds, double *ops)
{
    __m512i acc[N];
    for (int i = 0; i < N; i++) {
        acc[i] = _mm512_set1_epi32(i);
    }
    const __m512i a = _mm512_set1_epi8(5), b = _mm512_set1_epi8(-3);
    for (long r = 0; r < rounds; r++) {
        for (int i = 0; i < N; i++) {
            acc[i] = _mm512_dpbusd_epi32(acc[i], a, b);
        }
    }
    for (int i = 1; i < N; i++) {
        acc[0] = _mm512_add_epi32(acc[0], acc[i]);
    }
    *ops = 2.0 * 64 * N * (double)rounds;
    return _mm_cvtsi128_si32(_mm512_castsi512_si128(acc[0]));
}

const qn_limits_kernels qn_limits_avx512 = {read_bytes, f32, int8};
#endif
