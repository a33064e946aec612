#include <immintrin.h>

#define QN_F16_LOAD8(in, out)  _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(in))))
#define QN_F16_STORE8(in, out) _mm_storeu_si128((__m128i *)(out), _mm256_cvtps_ph(_mm256_loadu_ps(in), 0))
#define QN_FAST_NAME           qn_fast_avx512
#define QN_FAST_LABEL          "avx512"
#include "cpu/fast_impl.h"
