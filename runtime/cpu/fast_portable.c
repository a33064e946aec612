#include <stdbool.h>
#include <stdint.h>

#include "base/half.h"

/* Four lanes: what most machines have, and the compiler makes up elsewhere. */
typedef float vf __attribute__((vector_size(16)));
typedef float vf_anywhere __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(16)));
enum { VF = 4, VK = 2, VC = 2 };

static inline vf vf_load(const float *p)
{
    return *(const vf_anywhere *)p;
}
static inline vf vf_load_half(const uint16_t *p)
{
    return (vf){qn_f16_to_f32(p[0]), qn_f16_to_f32(p[1]), qn_f16_to_f32(p[2]), qn_f16_to_f32(p[3])};
}
static inline void vf_store(float *p, vf v)
{
    *(vf_anywhere *)p = v;
}
static inline vf vf_set(float s)
{
    return (vf){s, s, s, s};
}
static inline vf vf_mul_add(vf a, vf b, vf c)
{
    return a * b + c;
}
static inline void vf_sums(const vf *v, int n, float *out)
{
    for (int i = 0; i < n; i++) {
        out[i] = (v[i][0] + v[i][2]) + (v[i][1] + v[i][3]);
    }
}

static void half_row(const uint16_t *in, float *out, int n)
{
    for (int i = 0; i < n; i++) {
        out[i] = qn_f16_to_f32(in[i]);
    }
}

static void to_half(const float *in, uint16_t *out, int n)
{
    for (int i = 0; i < n; i++) {
        out[i] = qn_f32_to_f16(in[i]);
    }
}

#include "cpu/fast_kernels.h"

const qn_fast_kernels qn_fast_portable = {"portable", attention, silu_mul, gelu_mul, silu, gelu, to_half};
