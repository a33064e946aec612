#if defined(__x86_64__)
#include <immintrin.h>

#include "cpu/limits_kernels.h"

/* Registers under way at once: more than latency times throughput of a multiply-add. */
enum { N = 12, N8 = 8 };

static uint64_t read_bytes(const void *p, size_t bytes)
{
    const __m256i *v = p;
    __m256i s[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                    _mm256_setzero_si256()};
    for (size_t i = 0; i < bytes / sizeof *v; i += 4) {
        for (int k = 0; k < 4; k++) {
            s[k] = _mm256_add_epi64(s[k], _mm256_load_si256(v + i + (size_t)k));
        }
    }
    s[0] = _mm256_add_epi64(_mm256_add_epi64(s[0], s[1]), _mm256_add_epi64(s[2], s[3]));
    uint64_t lanes[4];
    _mm256_storeu_si256((__m256i *)(void *)lanes, s[0]);
    return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

static double f32(long rounds, double *ops)
{
    __m256 acc[N];
    for (int i = 0; i < N; i++) {
        acc[i] = _mm256_set1_ps((float)i);
    }
    const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
    for (long r = 0; r < rounds; r++) {
        for (int i = 0; i < N; i++) {
            acc[i] = _mm256_fmadd_ps(acc[i], a, b);
        }
    }
    for (int i = 1; i < N; i++) {
        acc[0] = _mm256_add_ps(acc[0], acc[i]);
    }
    float lanes[8], sum = 0;
    _mm256_storeu_ps(lanes, acc[0]);
    for (int i = 0; i < 8; i++) {
        sum += lanes[i];
    }
    *ops = 2.0 * 8 * N * (double)rounds;
    return (double)sum;
}

/* Products of bytes in pairs, pairs of these sums: three instructions for 32 products. */
static double int8(long rounds, double *ops)
{
    __m256i acc[N8];
    for (int i = 0; i < N8; i++) {
        acc[i] = _mm256_setzero_si256();
    }
    const __m256i ones = _mm256_set1_epi16(1), b = _mm256_set1_epi8(3);
    for (long r = 0; r < rounds; r++) {
        for (int i = 0; i < N8; i++) {
            /* Of the sum before, so that no product is made only once. */
            __m256i pairs = _mm256_maddubs_epi16(_mm256_xor_si256(acc[i], b), b);
            acc[i] = _mm256_add_epi32(acc[i], _mm256_madd_epi16(pairs, ones));
        }
    }
    for (int i = 1; i < N8; i++) {
        acc[0] = _mm256_add_epi32(acc[0], acc[i]);
    }
    *ops = 2.0 * 32 * N8 * (double)rounds;
    return _mm256_extract_epi32(acc[0], 0);
}

const qn_limits_kernels qn_limits_avx2 = {read_bytes, f32, int8};
#endif
