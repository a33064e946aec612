// emu_device.cuh: CUDA's words and functions for kernels that the host compiles. Included before everything
// else. defines: __global__, threadIdx.., __syncthreads, shuffles, votes, reductions, atomics, casts, math,
// qn_shared
#pragma once
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "emu_runtime.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict

#define threadIdx emu_builtin.thread_idx
#define blockIdx  emu_builtin.block_idx
#define blockDim  emu_builtin.block_dim
#define gridDim   emu_builtin.grid_dim

template <class T> static inline T *qn_shared(int byte_offset)
{
    return (T *)emu_shared(byte_offset);
}

static inline void __syncthreads(EMU_SITE)
{
    emu_barrier(file, line);
}
static inline int __syncthreads_count(int p, EMU_SITE)
{
    return emu_barrier_count(p, file, line);
}
static inline int __syncthreads_or(int p, EMU_SITE)
{
    return emu_barrier_count(p, file, line) > 0;
}
static inline int __syncthreads_and(int p, EMU_SITE)
{
    return emu_barrier_count(p, file, line) == (int)(blockDim.x * blockDim.y * blockDim.z);
}
static inline void __syncwarp(unsigned mask = 0xffffffffu, EMU_SITE)
{
    emu_warp_op("__syncwarp", emu_sync_warp, mask, 0, 0, file, line);
}

template <class T> static inline uint64_t emu_bits(T v)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    uint64_t u = 0;
    memcpy(&u, &v, sizeof v);
    return u;
}
template <class T> static inline T emu_from_bits(uint64_t u)
{
    T v;
    memcpy(&v, &u, sizeof v);
    return v;
}

// aux: argument of the shuffle in the low 16 bits, width above.
template <class T> static inline T __shfl_sync(unsigned mask, T v, int lane, int width = 32, EMU_SITE)
{
    return emu_from_bits<T>(
        emu_warp_op("__shfl_sync", emu_shfl_idx, mask, emu_bits(v), (lane & 31) | width << 16, file, line));
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T v, int d, int width = 32, EMU_SITE)
{
    return emu_from_bits<T>(
        emu_warp_op("__shfl_xor_sync", emu_shfl_xor, mask, emu_bits(v), d | width << 16, file, line));
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T v, unsigned d, int width = 32, EMU_SITE)
{
    return emu_from_bits<T>(
        emu_warp_op("__shfl_up_sync", emu_shfl_up, mask, emu_bits(v), (int)d | width << 16, file, line));
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T v, unsigned d, int width = 32, EMU_SITE)
{
    return emu_from_bits<T>(
        emu_warp_op("__shfl_down_sync", emu_shfl_down, mask, emu_bits(v), (int)d | width << 16, file, line));
}

static inline unsigned __ballot_sync(unsigned mask, int p, EMU_SITE)
{
    return (unsigned)emu_warp_op("__ballot_sync", emu_ballot, mask, p != 0, 0, file, line);
}
static inline int __any_sync(unsigned mask, int p, EMU_SITE)
{
    return emu_warp_op("__any_sync", emu_ballot, mask, p != 0, 0, file, line) != 0;
}
static inline int __all_sync(unsigned mask, int p, EMU_SITE)
{
    return emu_warp_op("__all_sync", emu_ballot, mask, p != 0, 0, file, line) == mask;
}
static inline unsigned __reduce_add_sync(unsigned mask, unsigned v, EMU_SITE)
{
    return (unsigned)emu_warp_op("__reduce_add_sync", emu_reduce, mask, v, EMU_ADD, file, line);
}
static inline int __reduce_add_sync(unsigned mask, int v, EMU_SITE)
{
    return (int)emu_warp_op("__reduce_add_sync", emu_reduce, mask, (uint32_t)v, EMU_ADD, file, line);
}
static inline unsigned __reduce_min_sync(unsigned mask, unsigned v, EMU_SITE)
{
    return (unsigned)emu_warp_op("__reduce_min_sync", emu_reduce, mask, v, EMU_UMIN, file, line);
}
static inline int __reduce_min_sync(unsigned mask, int v, EMU_SITE)
{
    return (int)emu_warp_op("__reduce_min_sync", emu_reduce, mask, (uint32_t)v, EMU_MIN, file, line);
}
static inline unsigned __reduce_max_sync(unsigned mask, unsigned v, EMU_SITE)
{
    return (unsigned)emu_warp_op("__reduce_max_sync", emu_reduce, mask, v, EMU_UMAX, file, line);
}
static inline int __reduce_max_sync(unsigned mask, int v, EMU_SITE)
{
    return (int)emu_warp_op("__reduce_max_sync", emu_reduce, mask, (uint32_t)v, EMU_MAX, file, line);
}
static inline unsigned __reduce_and_sync(unsigned mask, unsigned v, EMU_SITE)
{
    return (unsigned)emu_warp_op("__reduce_and_sync", emu_reduce, mask, v, EMU_AND, file, line);
}
static inline unsigned __reduce_or_sync(unsigned mask, unsigned v, EMU_SITE)
{
    return (unsigned)emu_warp_op("__reduce_or_sync", emu_reduce, mask, v, EMU_OR, file, line);
}
static inline unsigned __reduce_xor_sync(unsigned mask, unsigned v, EMU_SITE)
{
    return (unsigned)emu_warp_op("__reduce_xor_sync", emu_reduce, mask, v, EMU_XOR, file, line);
}

template <class T> struct emu_type_of;
template <> struct emu_type_of<int> {
    static constexpr emu_type type = EMU_I32;
    static constexpr int min = EMU_MIN, max = EMU_MAX;
};
template <> struct emu_type_of<unsigned> {
    static constexpr emu_type type = EMU_U32;
    static constexpr int min = EMU_UMIN, max = EMU_UMAX;
};
template <> struct emu_type_of<unsigned long long> {
    static constexpr emu_type type = EMU_U64;
    static constexpr int min = EMU_UMIN, max = EMU_UMAX;
};
template <> struct emu_type_of<float> {
    static constexpr emu_type type = EMU_F32;
};

template <class T>
static inline T emu_atomic_of(volatile T *p, int op, T v, T compare, const char *file, int line)
{
    return emu_from_bits<T>(
        emu_atomic((void *)p, emu_type_of<T>::type, op, emu_bits(v), emu_bits(compare), file, line));
}
template <class T> static inline T atomicAdd(T *p, T v, EMU_SITE)
{
    return emu_atomic_of(p, EMU_ADD, v, T(), file, line);
}
template <class T> static inline T atomicSub(T *p, T v, EMU_SITE)
{
    return emu_atomic_of(p, EMU_ADD, (T)(0 - v), T(), file, line);
}
template <class T> static inline T atomicMin(T *p, T v, EMU_SITE)
{
    return emu_atomic_of(p, emu_type_of<T>::min, v, T(), file, line);
}
template <class T> static inline T atomicMax(T *p, T v, EMU_SITE)
{
    return emu_atomic_of(p, emu_type_of<T>::max, v, T(), file, line);
}
template <class T> static inline T atomicAnd(T *p, T v, EMU_SITE)
{
    return emu_atomic_of(p, EMU_AND, v, T(), file, line);
}
template <class T> static inline T atomicOr(T *p, T v, EMU_SITE)
{
    return emu_atomic_of(p, EMU_OR, v, T(), file, line);
}
template <class T> static inline T atomicXor(T *p, T v, EMU_SITE)
{
    return emu_atomic_of(p, EMU_XOR, v, T(), file, line);
}
template <class T> static inline T atomicExch(T *p, T v, EMU_SITE)
{
    return emu_atomic_of(p, EMU_EXCHANGE, v, T(), file, line);
}
template <class T> static inline T atomicCAS(T *p, T compare, T v, EMU_SITE)
{
    return emu_atomic_of(p, EMU_CAS, v, compare, file, line);
}

static inline void __threadfence()
{
    emu_fence();
}
static inline void __threadfence_block()
{
}
static inline void __threadfence_system()
{
    emu_fence();
}

static inline float __int_as_float(int i)
{
    return emu_from_bits<float>(emu_bits(i));
}
static inline float __uint_as_float(unsigned u)
{
    return emu_from_bits<float>(u);
}
static inline int __float_as_int(float f)
{
    return (int)emu_bits(f);
}
static inline unsigned __float_as_uint(float f)
{
    return (unsigned)emu_bits(f);
}
static inline int __float2int_rn(float f)
{
    return (int)rintf(f);
}
static inline int __float2int_rz(float f)
{
    return (int)f;
}
static inline float __int2float_rn(int i)
{
    return (float)i;
}
static inline int __popc(unsigned u)
{
    return __builtin_popcount(u);
}
static inline int __clz(int u)
{
    return u ? __builtin_clz((unsigned)u) : 32;
}
static inline int __ffs(int u)
{
    return __builtin_ffs(u);
}
static inline unsigned __brev(unsigned u)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++) {
        r |= (u >> i & 1u) << (31 - i);
    }
    return r;
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
// Bytes of b:a picked by the nibbles of s; the sign bit of a nibble replicates the byte's sign.
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s)
{
    const uint64_t both = (uint64_t)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned pick = s >> (4 * i) & 15u;
        unsigned byte = (unsigned)(both >> (8 * (pick & 7u))) & 0xffu;
        byte = pick & 8u ? (byte & 0x80u ? 0xffu : 0u) : byte;
        r |= byte << (8 * i);
    }
    return r;
}
static inline unsigned emu_map4(unsigned a, unsigned b, int (*f)(int, int))
{
    unsigned r = 0;
    for (int i = 0; i < 32; i += 8) {
        r |= ((unsigned)f((signed char)(a >> i), (signed char)(b >> i)) & 0xffu) << i;
    }
    return r;
}
static inline unsigned __vsub4(unsigned a, unsigned b)
{
    return emu_map4(a, b, [](int x, int y) { return x - y; });
}
static inline unsigned __vadd4(unsigned a, unsigned b)
{
    return emu_map4(a, b, [](int x, int y) { return x + y; });
}
static inline unsigned __vsubss4(unsigned a, unsigned b)
{
    return emu_map4(a, b, [](int x, int y) { return x - y > 127 ? 127 : x - y < -128 ? -128 : x - y; });
}
static inline unsigned __vcmpne4(unsigned a, unsigned b)
{
    return emu_map4(a, b, [](int x, int y) { return x != y ? 0xff : 0; });
}

template <class T> static inline T __ldg(const T *p)
{
    return *p;
}
static inline float emu_rsqrt(float x)
{
    return 1.0f / sqrtf(x);
}
// the C library has these names for itself
#define rsqrtf(x) emu_rsqrt(x)
#define __expf(x) expf(x)
#define __logf(x) logf(x)
static inline void sincospif(float x, float *s, float *c)
{
    *s = (float)sin(3.14159265358979323846 * (double)x);
    *c = (float)cos(3.14159265358979323846 * (double)x);
}
static inline float __fdividef(float a, float b)
{
    return a / b;
}
static inline float __frcp_rn(float x)
{
    return 1.0f / x;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline double __dmul_rn(double a, double b)
{
    return a * b;
}
static inline double __dadd_rn(double a, double b)
{
    return a + b;
}
static inline double __dsub_rn(double a, double b)
{
    return a - b;
}
static inline double __longlong_as_double(long long i)
{
    return emu_from_bits<double>(emu_bits(i));
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}

#define EMU_MIN_MAX(T)                                                                                       \
    static inline T min(T a, T b)                                                                            \
    {                                                                                                        \
        return b < a ? b : a;                                                                                \
    }                                                                                                        \
    static inline T max(T a, T b)                                                                            \
    {                                                                                                        \
        return b > a ? b : a;                                                                                \
    }
EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long long)
EMU_MIN_MAX(unsigned long long)
EMU_MIN_MAX(float)
#undef EMU_MIN_MAX

// Calls a kernel with its arguments taken from words.
template <class T> struct emu_arg {
    static T of(uint64_t v)
    {
        if constexpr (std::is_class<T>::value) { // by value, from where the word points
            return *reinterpret_cast<const T *>((uintptr_t)v);
        } else {
            return (T)v;
        }
    }
};
template <class T> struct emu_arg<T *> {
    static T *of(uint64_t v)
    {
        return reinterpret_cast<T *>((uintptr_t)v);
    }
};
template <class... A, size_t... I>
static inline void emu_call_indexed(void (*f)(A...), const uint64_t *args, std::index_sequence<I...>)
{
    f(emu_arg<A>::of(args[I])...);
}
template <class... A> static inline void emu_call(void (*f)(A...), const uint64_t *args)
{
    emu_call_indexed(f, args, std::index_sequence_for<A...>());
}
