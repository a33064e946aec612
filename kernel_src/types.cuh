// types.cuh: integers, limits, half and bf16, enumerators of the specialisation fields, device state.
// defines: i8..u64, half_t, bf16_t, half2float, float2half, QN_INF, no_value, qn_state, qn_shared,
// QN_ENTRY
#pragma once

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

typedef u16 half_t; // binary16 bits
typedef u16 bf16_t; // bfloat16 bits

#define QN_DEV        static __device__ __forceinline__
#define QN_DEV_MEMBER __device__ __forceinline__

// Head of a kernel: QN_ENTRY(threads a block) QN_KERNEL(parameters). The persistent kernel (persistent.cuh)
// makes functions of them.
#ifndef QN_ENTRY
#define QN_ENTRY(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__)
#endif

// What advances on the device. pos: position of row 0 of the current run; n_rows: its tokens; n_out,
// first_out: rows whose logits are asked for. token: the decode step's input id.
// seq: the sequence they belong to; where `many`, row r is one token of a sequence of its own, at rows[r].
struct qn_row {
    i32 pos, seq, step, reserved;
};
struct qn_state {
    i32 pos, n_rows, n_out, first_out;
    i32 token, step, seq, many;
    qn_row rows[8];
};

// Position of a row, and its sequence: row p % kv_rows of part `seq` of a KV cache is position p.
QN_DEV i32 row_pos(const qn_state *st, int row)
{
    return st->many ? st->rows[row].pos : st->pos + row;
}

QN_DEV i32 row_seq(const qn_state *st, int row)
{
    return st->many ? st->rows[row].seq : st->seq;
}

// Enumerators, in the order of runtime/model/model.h (a test compares them).
enum { NORM_NONE, NORM_RMS, NORM_LAYER };
enum { ACT_NONE, ACT_SILU, ACT_GELU, ACT_RELU, ACT_RELU2, ACT_XIELU };
enum { ROPE_NONE, ROPE_NEOX, ROPE_INTERLEAVED };
enum { QK_HEAD, QK_FULL };
enum { QK_BEFORE_ROPE, QK_AFTER_ROPE };
enum { QKW_CHANNEL, QKW_HEAD_CHANNEL, QKW_PER_HEAD };
// GGUF type numbers.
enum {
    DT_F32 = 0,
    DT_F16 = 1,
    DT_Q4_0 = 2,
    DT_Q4_1 = 3,
    DT_Q5_0 = 6,
    DT_Q5_1 = 7,
    DT_Q8_0 = 8,
    DT_Q2_K = 10,
    DT_Q3_K = 11,
    DT_Q4_K = 12,
    DT_Q5_K = 13,
    DT_Q6_K = 14,
    DT_IQ4_NL = 20,
    DT_IQ4_XS = 23,
    DT_BF16 = 30
};

#define QN_INF __int_as_float(0x7f800000)

#ifdef QN_PERSISTENT
constexpr bool qn_in_phase = true;
#else
constexpr bool qn_in_phase = false;
#endif

// For the branch that leaves `v` without a value which only the other branch uses. To the compiler its
// registers then hold something from before the branch on: in a kernel of many phases, through all of them.
template <class T> QN_DEV void no_value(T &v)
{
    if (qn_in_phase) {
        v = T{};
    }
}
template <class T, int N> QN_DEV void no_value(T (&v)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        no_value(v[i]);
    }
}

QN_DEV float bf16_to_float(bf16_t h)
{
    return __uint_as_float((u32)h << 16);
}

// Round to nearest even; NaN stays NaN.
QN_DEV bf16_t float_to_bf16(float f)
{
    u32 u = __float_as_uint(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return (bf16_t)((u >> 16) | 0x40u);
    }
    return (bf16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

struct alignas(8) u32x2 {
    u32 x, y;
};
struct alignas(8) f32x2 {
    float x, y;
};
struct alignas(16) u32x4 {
    u32 x, y, z, w;
};
struct alignas(16) f32x4 {
    float x, y, z, w;
};

#include "ptx.cuh"

QN_DEV float half_to_float(half_t h)
{
    return ptx_half_to_float(h);
}

QN_DEV half_t float_to_half(float f)
{
    return ptx_float_to_half(f);
}

#ifndef QN_EMULATED
extern __shared__ __align__(128) u8 qn_dynamic_shared[];
template <class T> QN_DEV T *qn_shared(int byte_offset)
{
    return (T *)(qn_dynamic_shared + byte_offset);
}
#endif

// Activation functions of the feed-forward.
// x / (1 + e^-up).
QN_DEV float act_sigmoid(float x, float up)
{
    return x * ptx_reciprocal(1.0f + ptx_exp2(-1.44269504088896340736f * up));
}

QN_DEV float act_silu(float x)
{
    return act_sigmoid(x, x);
}

// By (1 + tanh u) / 2 = 1 / (1 + e^-2u).
QN_DEV float act_gelu(float x)
{
    return act_sigmoid(x, 2.0f * 0.79788456080286535588f * x * (1.0f + 0.044715f * x * x));
}

template <int ACT> QN_DEV float activate(float x)
{
    float r = x > 0.0f ? x : 0.0f;
    return ACT == ACT_SILU    ? act_silu(x)
           : ACT == ACT_GELU  ? act_gelu(x)
           : ACT == ACT_RELU  ? r
           : ACT == ACT_RELU2 ? r * r
                              : x;
}
