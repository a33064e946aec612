#if defined(__x86_64__)
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/half.h"

typedef __m256 vf;
typedef int32_t vi __attribute__((vector_size(32)));
enum { VF = 8, VK = 2, VC = 2 };

static inline __m256 vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline __m256 vf_load_half(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
static inline void vf_store(float *p, __m256 v)
{
    _mm256_storeu_ps(p, v);
}
static inline __m256 vf_set(float s)
{
    return _mm256_set1_ps(s);
}
static inline __m256 vf_mul_add(__m256 a, __m256 b, __m256 c)
{
    return _mm256_fmadd_ps(a, b, c);
}
/* Four at a time: two levels of pairwise sums leave a quarter of each in its own place. */
static inline __attribute__((always_inline)) void vf_sums(const __m256 *v, int n, float *out)
{
    int i = 0;
    for (; i + 4 <= n; i += 4) {
        __m256 q = _mm256_hadd_ps(_mm256_hadd_ps(v[i], v[i + 1]), _mm256_hadd_ps(v[i + 2], v[i + 3]));
        _mm_storeu_ps(out + i, _mm_add_ps(_mm256_castps256_ps128(q), _mm256_extractf128_ps(q, 1)));
    }
    for (; i < n; i++) {
        __m128 a = _mm_add_ps(_mm256_castps256_ps128(v[i]), _mm256_extractf128_ps(v[i], 1));
        a = _mm_add_ps(a, _mm_movehl_ps(a, a));
        out[i] = _mm_cvtss_f32(_mm_add_ss(a, _mm_shuffle_ps(a, a, 1)));
    }
}

static void half_row(const uint16_t *in, float *out, int n)
{
    int i = 0;
    for (; i + VF <= n; i += VF) {
        vf_store(out + i, vf_load_half(in + i));
    }
    for (; i < n; i++) {
        out[i] = qn_f16_to_f32(in[i]);
    }
}

static void to_half(const float *in, uint16_t *out, int n)
{
    int i = 0;
    for (; i + VF <= n; i += VF) {
        __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(out + i), h);
    }
    for (; i < n; i++) {
        out[i] = qn_f32_to_f16(in[i]);
    }
}

#include "cpu/fast_kernels.h"

const qn_fast_kernels qn_fast_avx2 = {"avx2", attention, silu_mul, gelu_mul, silu, gelu, to_half};
#endif
