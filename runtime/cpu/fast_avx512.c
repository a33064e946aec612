#if defined(__x86_64__)
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/half.h"

typedef __m512 vf;
typedef int32_t vi __attribute__((vector_size(64)));
enum { VF = 16, VK = 4, VC = 4 };

static inline __m512 vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline __m512 vf_load_half(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline void vf_store(float *p, __m512 v)
{
    _mm512_storeu_ps(p, v);
}
static inline __m512 vf_set(float s)
{
    return _mm512_set1_ps(s);
}
static inline __m512 vf_mul_add(__m512 a, __m512 b, __m512 c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* Lane sums of four vectors, each in its place of every quarter. */
static inline __m512 sums4(const __m512 *v)
{
    __m512 a = _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
    __m512 b = _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
    __m512 lo = _mm512_shuffle_ps(a, b, 0x44), hi = _mm512_shuffle_ps(a, b, 0xee);
    return _mm512_add_ps(lo, hi);
}
static inline __attribute__((always_inline)) void vf_sums(const __m512 *v, int n, float *out)
{
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512 q[4];
        for (int j = 0; j < 4; j++) {
            q[j] = sums4(v + i + 4 * j);
        }
        __m512 a =
            _mm512_add_ps(_mm512_shuffle_f32x4(q[0], q[1], 0x88), _mm512_shuffle_f32x4(q[0], q[1], 0xdd));
        __m512 b =
            _mm512_add_ps(_mm512_shuffle_f32x4(q[2], q[3], 0x88), _mm512_shuffle_f32x4(q[2], q[3], 0xdd));
        __m512 s = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
        _mm512_storeu_ps(out + i, s);
    }
    for (; i + 4 <= n; i += 4) {
        __m512 q = sums4(v + i);
        __m256 h = _mm256_add_ps(_mm512_castps512_ps256(q), _mm512_extractf32x8_ps(q, 1));
        _mm_storeu_ps(out + i, _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1)));
    }
    for (; i < n; i++) {
        out[i] = _mm512_reduce_add_ps(v[i]);
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
        __m256i h = _mm512_cvtps_ph(_mm512_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
        _mm256_storeu_si256((__m256i *)(void *)(out + i), h);
    }
    for (; i < n; i++) {
        out[i] = qn_f32_to_f16(in[i]);
    }
}

#include "cpu/fast_kernels.h"

const qn_fast_kernels qn_fast_avx512 = {"avx512", attention, silu_mul, gelu_mul, silu, gelu, to_half};
#endif
