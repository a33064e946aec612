#include <stdint.h>

#include "base/half.h"

/* 16 lanes in a fixed place each, whatever the machine has: the order of the exact arithmetic. */
typedef float vf4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef struct vf {
    vf4 part[4];
} vf;
enum { VF = 16, VQ = 1, VK = 2 };

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

#include "cpu/vec_kernels.h"
#include "cpu/vec_tables.h"

static float libm_exp_sum(float *x, int n, float max)
{
    for (int i = 0; i < n; i++) {
        x[i] = expf(x[i] - max);
    }
    return vec_sum(x, n);
}

static void libm_silu(float *x, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] = x[i] / (1.0f + expf(-x[i]));
    }
}

static void libm_gelu_tanh(float *x, int n)
{
    for (int i = 0; i < n; i++) {
        float u = 0.7978845608028654f * x[i] * (1.0f + 0.044715f * x[i] * x[i]);
        x[i] = 0.5f * x[i] * (1.0f + tanhf(u));
    }
}

static void to_half(uint16_t *y, const float *x, int n)
{
    for (int i = 0; i < n; i++) {
        y[i] = qn_f32_to_f16(x[i]);
    }
}

const qn_vec qn_vec_exact = {
    .dot = vec_dot,
    .scores = vec_scores,
    .mix = vec_mix,
    .max = vec_max,
    .exp_sum = libm_exp_sum,
    .silu = libm_silu,
    .gelu_tanh = libm_gelu_tanh,
    .add = vec_add,
    .mul = vec_mul,
    .scale = vec_scale,
    .to_half = to_half,
};

const qn_vec qn_vec_portable = {
    .dot = vec_dot,
    .scores = vec_scores,
    .mix = vec_mix,
    .max = vec_max,
    .exp_sum = vec_exp_sum,
    .silu = vec_silu,
    .gelu_tanh = vec_gelu_tanh,
    .add = vec_add,
    .mul = vec_mul,
    .scale = vec_scale,
    .to_half = to_half,
};
