#include <stdbool.h>
#include <stdint.h>

#include "base/half.h"

/* 16 lanes in four short vectors, which any machine has or the compiler makes up. */
typedef float vf4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef struct vf {
    vf4 part[4];
} vf;
enum { VF = 16, VK = 1, VC = 1 };

static inline vf vf_load(const float *p)
{
    vf v;
    for (int i = 0; i < 4; i++) {
        v.part[i] = *(const vf4 *)(p + 4 * i);
    }
    return v;
}
static inline vf vf_load_half(const uint16_t *p)
{
    float f[16];
    for (int i = 0; i < 16; i++) {
        f[i] = qn_f16_to_f32(p[i]);
    }
    return vf_load(f);
}
static inline void vf_store(float *p, vf v)
{
    for (int i = 0; i < 4; i++) {
        *(vf4 *)(p + 4 * i) = v.part[i];
    }
}
static inline vf vf_set(float s)
{
    vf4 v = {s, s, s, s};
    return (vf){{v, v, v, v}};
}
static inline vf vf_mul_add(vf a, vf b, vf c)
{
    for (int i = 0; i < 4; i++) {
        c.part[i] += a.part[i] * b.part[i];
    }
    return c;
}
static inline void vf_sums(const vf *v, int n, float *out)
{
    for (int i = 0; i < n; i++) {
        vf4 a = (v[i].part[0] + v[i].part[2]) + (v[i].part[1] + v[i].part[3]);
        out[i] = (a[0] + a[2]) + (a[1] + a[3]);
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
