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

// 16 bytes of data that is read once: streams past L1.
QN_DEV u32x4 ptx_load_stream(const void *p)
{
    u32x4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

// 4 signed products of bytes, summed into c.
QN_DEV i32 ptx_dp4a(u32 a, u32 b, i32 c)
{
    i32 d;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

// Waits for the kernel before this one in the stream (programmatic dependent launch); sm_90 and newer.
QN_DEV void ptx_grid_wait()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Lets the next kernel's blocks start; sm_90 and newer.
QN_DEV void ptx_grid_launch()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// d += a * b, 16x8x16, f16 operands, f32 accumulators (row-major a, column-major b); sm_80 and newer.
QN_DEV void ptx_mma_f16(float d[4], const u32 a[4], const u32 b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d += a * b, 16x8x8, f16 operands, f32 accumulators; sm_75 and newer.
QN_DEV void ptx_mma_f16_k8(float d[4], const u32 a[2], u32 b)
{
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}

QN_DEV u32 ptx_shared_address(const void *p)
{
    return (u32)__cvta_generic_to_shared(p);
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

#endif
