// ptx.cuh: every inline PTX of quern. The emulated build replaces this file by functions of the same meaning
// (tests/emu/ptx.cuh): a wrapper added here needs its twin there.
// defines: ptx_*
#pragma once

#ifdef QN_EMULATED
#include "emu_ptx.cuh"
#else

QN_DEV float ptx_half_to_float(half_t h)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}

QN_DEV half_t ptx_float_to_half(float f)
{
    half_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}

// Two floats as halves, `low` in the low 16 bits; sm_80 and newer.
QN_DEV u32 ptx_pack_half(float low, float high)
{
    u32 d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
}

// 2^x and 1 / x to about 2 and 1 units in the last place; results below 2^-126 become 0.
QN_DEV float ptx_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

QN_DEV float ptx_reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 1 / sqrt(x), to 2^-22.9 of it.
QN_DEV float ptx_rsqrt(float x)
{
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 16 bytes of data that is read once: streams past L1, and leaves L2 before anything else does, so that what
// launches hand each other, norm weights and code stay there. (With `.L2::256B` beside it 1.5 % slower.)
QN_DEV u32x4 ptx_load_stream(const void *p)
{
    u32x4 v;
#if QN_VARIANT >= 80
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p), "l"(policy));
#else
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
#endif
    return v;
}

// The same, but it stays where it is written: loads of constants are moved down to where registers are free,
// up to hundreds of instructions, which a loop that has the next turn's weights under way cannot bear.
QN_DEV u32x4 ptx_load_stream_here(const void *p)
{
    u32x4 v;
#if QN_VARIANT >= 80
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p), "l"(policy));
#else
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
#endif
    return v;
}

// The same number, of which the compiler knows nothing: constants that are added to an address made of it
// stay offsets of the loads (where it sees that bits are free it makes each address anew, by OR).
QN_DEV i64 ptx_opaque(i64 n)
{
    asm("" : "+l"(n));
    return n;
}

// The same number, made at this point of the program and not where it is used.
QN_DEV void ptx_here(u32 &v)
{
    asm volatile("" : "+r"(v));
}

// 4 signed products of bytes, summed into c.
QN_DEV i32 ptx_dp4a(u32 a, u32 b, i32 c)
{
    i32 d;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

// The same, bytes of `a` without a sign.
QN_DEV i32 ptx_dp4a_us(u32 a, u32 b, i32 c)
{
    i32 d;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

// Largest value, sum over the lanes of a warp.
QN_DEV u32 ptx_warp_max(u32 v)
{
#if QN_VARIANT >= 80
    u32 d;
    asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(d) : "r"(v));
    return d;
#else
    for (int i = 16; i > 0; i /= 2) {
        v = max(v, __shfl_xor_sync(0xffffffffu, v, i));
    }
    return v;
#endif
}

QN_DEV i32 ptx_warp_add(i32 v)
{
#if QN_VARIANT >= 80
    i32 d;
    asm volatile("redux.sync.add.s32 %0, %1, 0xffffffff;" : "=r"(d) : "r"(v));
    return d;
#else
    for (int i = 16; i > 0; i /= 2) {
        v += __shfl_xor_sync(0xffffffffu, v, i);
    }
    return v;
#endif
}

// Waits until the kernel before this one in the stream is done (programmatic dependent launch). Every kernel
// calls it before it reads or writes what the kernel before touches, in one block at least; before sm_90
// there is nothing to wait for.
QN_DEV void ptx_grid_wait()
{
#if QN_VARIANT >= 90
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel's blocks start. Every kernel calls it right behind its wait (or ends): so while a
// kernel runs, all but the one before it are done, and what those wrote may be read before the wait.
QN_DEV void ptx_grid_launch()
{
#if QN_VARIANT >= 90
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Barrier `id` (0 is that of __syncthreads) for the block's first n_thread threads.
QN_DEV void ptx_named_barrier(int id, int n_thread)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n_thread) : "memory");
}

// What other blocks wrote before they fenced and counted up is seen by those who read the count so.
QN_DEV u32 ptx_load_acquire(const u32 *p)
{
    u32 v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

// The same without that: for who looks often, and in the end once as above.
QN_DEV u32 ptx_load_relaxed(const u32 *p)
{
    u32 v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

// Words that blocks of a launch hand each other: each goes whole, in no order with what else is written.
QN_DEV void ptx_store_word(u64 *p, u64 v)
{
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(p), "l"(v) : "memory");
}

// Two of them that stand at a multiple of 16 bytes.
QN_DEV void ptx_load_words(u64 v[2], const u64 *p)
{
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(v[0]), "=l"(v[1]) : "l"(p) : "memory");
}

// d += a * b, 16x8x16, f16 operands, f32 accumulators (row-major a, column-major b); sm_80 and newer.
QN_DEV void ptx_mma_f16(float d[4], const u32 a[4], const u32 b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same with bf16 operands; sm_80 and newer.
QN_DEV void ptx_mma_bf16(float d[4], const u32 a[4], const u32 b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d += a * b, 16x8x16, signed bytes; sm_80 and newer.
QN_DEV void ptx_mma_s8_k16(i32 d[4], const u32 a[2], u32 b)
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}

// d += a * b, 16x8x8, f16 operands, f32 accumulators; sm_75 and newer.
QN_DEV void ptx_mma_f16_k8(float d[4], const u32 a[2], u32 b)
{
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}

// d = a * b + c, 16x8x32, exact: bytes, those of b signed, of a signed unless NO_SIGN; sm_80 and newer.
template <bool NO_SIGN> QN_DEV void ptx_mma_bytes(i32 d[4], const u32 a[4], u32 b0, u32 b1, const i32 c[4])
{
    if constexpr (NO_SIGN) {
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                     "{%10,%11,%12,%13};"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]),
                       "r"(c[2]), "r"(c[3]));
    } else {
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                     "{%10,%11,%12,%13};"
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]),
                       "r"(c[2]), "r"(c[3]));
    }
}

// The same of signed bytes, added to d.
QN_DEV void ptx_mma_s8(i32 d[4], const u32 a[4], u32 b0, u32 b1)
{
    ptx_mma_bytes<false>(d, a, b0, b1, d);
}

QN_DEV u32 ptx_shared_address(const void *p)
{
    return (u32)__cvta_generic_to_shared(p);
}

// 16 bytes of shared memory, AT behind p, where `there`; otherwise v stays what it is.
template <int AT> QN_DEV void ptx_load_shared_if(u32x4 &v, const void *p, bool there)
{
    asm volatile("{.reg .pred p;\nsetp.ne.u32 p, %5, 0;\n@p ld.shared.v4.u32 {%0,%1,%2,%3}, [%4+%6];}"
                 : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
                 : "r"(ptx_shared_address(p)), "r"((u32)there), "n"(AT));
}

// Four 8x8 matrices of 16-bit values from shared memory; lane i gives the address of row i % 8 of matrix i
// / 8.
QN_DEV void ptx_ldmatrix_x4(u32 r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(ptx_shared_address(row))
                 : "memory");
}

QN_DEV void ptx_ldmatrix_x4_trans(u32 r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(ptx_shared_address(row))
                 : "memory");
}

// Adds to *p and returns what was there. What this thread has seen before, also of its block's threads by a
// barrier, comes before the addition for all who see that; what it sees afterwards is no older.
QN_DEV u32 ptx_add_acq_rel(u32 *p, u32 v)
{
    u32 old;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
    return old;
}

// The same, for who does not ask what was there: nothing is waited for but what this thread and its block
// have written.
QN_DEV void ptx_add_release(u32 *p, u32 v)
{
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

// threadIdx.x, read where it stands: nothing that was made of it before is used.
QN_DEV u32 ptx_thread_here()
{
    u32 t;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
    return t;
}

// for (u32 k = 0; k < n; k++) { ... }, n > 0, once a kernel, as a loop of which the compiler does not know:
// what is alike in all turns (hundreds of values of a thread's number, where each turn does one of many
// things) would be made before the loop and kept. Between turns nothing is handed on but memory. What the
// kernel makes before the loop and uses in it could be changed by the first turn, since for the compiler
// there is no second: so it must read threadIdx by ptx_thread_here there, and the condition keeps what is
// made in the loop behind its beginning (a test reads the PTX).
#define ptx_hidden_for(k, n, ...)                                                                            \
    asm volatile(".reg .u32 qn_turn;\nmov.u32 qn_turn, 0;\nQN_TURN:" ::: "memory");                          \
    {                                                                                                        \
        u32 k;                                                                                               \
        asm volatile("mov.u32 %0, qn_turn;" : "=r"(k));                                                      \
        if (k < (u32)(n)) {                                                                                  \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }                                                                                                        \
    asm volatile("{.reg .pred p;\nadd.u32 qn_turn, qn_turn, 1;\nsetp.lt.u32 p, qn_turn, %0;\n"               \
                 "@p bra QN_TURN;}" ::"r"((u32)(n))                                                          \
                 : "memory")

// Two sums and two products of halves.
QN_DEV u32 ptx_half2_add(u32 a, u32 b)
{
    u32 d;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

QN_DEV u32 ptx_half2_mul(u32 a, u32 b)
{
    u32 d;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

// A matrix of 8x8 16-bit values, of which lane i holds values 2 * (i % 4) and the next of row i / 4,
// transposed.
QN_DEV u32 ptx_transpose(u32 a)
{
    u32 d;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(a));
    return d;
}

// 16 bytes from global to shared memory without registers; zero-filled where !valid. sm_80 and newer.
QN_DEV void ptx_copy_async16(void *shared, const void *global, bool valid)
{
    int n = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(ptx_shared_address(shared)),
                 "l"(global), "r"(n)
                 : "memory");
}

QN_DEV void ptx_copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most N committed groups are in flight.
template <int N> QN_DEV void ptx_copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Products of a warpgroup (4 warps), sm_90a. They run by themselves: ptx_wgmma_fence before the first of a
// group that follows writes to its registers, ptx_wgmma_commit after the last, ptx_wgmma_wait<n> until at
// most n groups run, and ptx_pin for what they write, since the compiler does not know that the registers
// change. Shared memory that threads have written needs ptx_fence_async and a barrier first. Matrices in
// shared memory are given by descriptors.
QN_DEV void ptx_wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

QN_DEV void ptx_wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N> QN_DEV void ptx_wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

QN_DEV void ptx_fence_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

template <int N> QN_DEV void ptx_pin(float *d)
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        asm volatile("" : "+f"(d[i])::"memory");
    }
}

// A barrier in shared memory (8 bytes): `count` arrivals complete a phase. Waiting for the parity of the
// phase before the first returns at once.
QN_DEV void ptx_barrier_init(void *barrier, u32 count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(ptx_shared_address(barrier)), "r"(count)
                 : "memory");
}

QN_DEV void ptx_barrier_wait(void *barrier, u32 parity)
{
    asm volatile(
        "{.reg .pred p;\nAGAIN_%=: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@!p bra AGAIN_%=;}" ::
            "r"(ptx_shared_address(barrier)),
        "r"(parity)
        : "memory");
}

// Barriers that threads have started are seen by copies of tensors too.
QN_DEV void ptx_barrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

QN_DEV void ptx_barrier_arrive(void *barrier)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(ptx_shared_address(barrier)) : "memory");
}

// A word of shared memory that one thread writes and another looks at whenever it likes.
QN_DEV u32 ptx_peek(const u32 *shared)
{
    u32 v;
    asm volatile("ld.relaxed.cta.shared.u32 %0, [%1];"
                 : "=r"(v)
                 : "r"(ptx_shared_address(shared))
                 : "memory");
    return v;
}

QN_DEV void ptx_note(u32 *shared, u32 v)
{
    asm volatile("st.relaxed.cta.shared.u32 [%0], %1;" ::"r"(ptx_shared_address(shared)), "r"(v) : "memory");
}

// `n` arrivals at once. sm_90.
QN_DEV void ptx_barrier_arrive_many(void *barrier, u32 n)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0], %1;" ::"r"(ptx_shared_address(barrier)), "r"(n)
                 : "memory");
}

// Arrives, and the phase also waits for so many bytes of copies.
QN_DEV void ptx_barrier_expect(void *barrier, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(ptx_shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

// A box of a tensor of four dimensions to shared memory, from coordinates c on, zero outside the tensor; its
// bytes count for the barrier. map: a tensor map in global memory (128 bytes, made by the driver). sm_90.
QN_DEV void ptx_tensor_load(void *shared, const void *map, void *barrier, int c0, int c1, int c2, int c3)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
        "{%3,%4,%5,%6}], [%2];" ::"r"(ptx_shared_address(shared)),
        "l"(map), "r"(ptx_shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
        : "memory");
}

// A tensor map comes to where the copies that use it look for it. sm_90.
QN_DEV void ptx_tensor_prefetch(const void *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// `bytes` (a multiple of 16) that lie together, to shared memory as they are; they count for the barrier.
// sm_90.
QN_DEV void ptx_bulk_load(void *shared, const void *from, void *barrier, u32 bytes)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            ptx_shared_address(shared)),
        "l"(from), "r"(bytes), "r"(ptx_shared_address(barrier))
        : "memory");
}

// The same of data that is read once: it leaves L2 before anything else does.
QN_DEV void ptx_bulk_load_once(void *shared, const void *from, void *barrier, u32 bytes)
{
    asm volatile("{.reg .b64 p;\ncreatepolicy.fractional.L2::evict_first.b64 p, 1.0;\n"
                 "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
                 "[%1], %2, [%3], p;}" ::"r"(ptx_shared_address(shared)),
                 "l"(from), "r"(bytes), "r"(ptx_shared_address(barrier))
                 : "memory");
}

// All threads of a warpgroup: from now on N registers a thread, less or more than before. sm_90a.
template <int N> QN_DEV void ptx_fewer_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> QN_DEV void ptx_more_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

// Operands d[i], d[i + 1], ...
#define QN_F4(i)  "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define QN_F16(i) QN_F4(i), QN_F4((i) + 4), QN_F4((i) + 8), QN_F4((i) + 12)

// d = a * b (+ d where add), 64 x N x 16, f16 operands, f32 accumulators: d as of 16 x 8 fragments side by
// side, a in registers as of ptx_mma_f16 (each warp 16 rows), b in shared memory with its columns' values
// (TRANS 0) or its rows' (TRANS 1) side by side.
template <int N, int TRANS> QN_DEV void ptx_wgmma_f16(float *d, const u32 a[4], u64 b, int add)
{
    static_assert(N == 64 || N == 96 || N == 128 || N == 256, "a width with a wrapper");
    if constexpr (N == 64) {
        asm volatile(
            "{.reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
            "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%"
            "26,%27,%28,%29,%30,%31}, "
            "{%32,%33,%34,%35}, %36, p, 1, 1, %38;}"
            : QN_F16(0), QN_F16(16)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TRANS));
    } else if constexpr (N == 96) {
        asm volatile(
            "{.reg .pred p; setp.ne.b32 p, %53, 0; wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 "
            "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%"
            "26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47}, "
            "{%48,%49,%50,%51}, %52, p, 1, 1, %54;}"
            : QN_F16(0), QN_F16(16), QN_F16(32)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TRANS));
    } else if constexpr (N == 128) {
        asm volatile(
            "{.reg .pred p; setp.ne.b32 p, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
            "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%"
            "26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%"
            "50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
            "{%64,%65,%66,%67}, %68, p, 1, 1, %70;}"
            : QN_F16(0), QN_F16(16), QN_F16(32), QN_F16(48)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TRANS));
    } else if constexpr (N == 256) {
        asm volatile(
            "{.reg .pred p; setp.ne.b32 p, %133, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 "
            "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%"
            "26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%"
            "50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%"
            "74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%"
            "98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%"
            "117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}, "
            "{%128,%129,%130,%131}, %132, p, 1, 1, %134;}"
            : QN_F16(0), QN_F16(16), QN_F16(32), QN_F16(48), QN_F16(64), QN_F16(80), QN_F16(96), QN_F16(112)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TRANS));
    }
}

// The same with a in shared memory, its rows' values side by side; N = 80.
QN_DEV void ptx_wgmma_f16_shared_n80(float *d, u64 a, u64 b, int add)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %42, 0; wgmma.mma_async.sync.aligned.m64n80k16.f32.f16.f16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"
                 "%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39}, "
                 "%40, %41, p, 1, 1, 0, 0;}"
                 : QN_F16(0), QN_F16(16), QN_F4(32), QN_F4(36)
                 : "l"(a), "l"(b), "r"(add));
}

#undef QN_F4
#undef QN_F16
#endif
