// emu_ptx.cuh: the twin of every wrapper of kernel_src/ptx.cuh, with the same meaning
// (tests/emu/check_wrappers.py compares the names). defines: ptx_*
#pragma once

QN_DEV float ptx_half_to_float(half_t h)
{
    return emu_half_to_float(h);
}

QN_DEV half_t ptx_float_to_half(float f)
{
    return emu_float_to_half(f);
}

QN_DEV u32 ptx_pack_half(float low, float high)
{
    return (u32)emu_float_to_half(low) | (u32)emu_float_to_half(high) << 16;
}

QN_DEV float ptx_exp2(float x)
{
    return exp2f(x);
}

QN_DEV float ptx_reciprocal(float x)
{
    return 1.0f / x;
}

QN_DEV u32x4 ptx_load_stream(const void *p)
{
    return *(const u32x4 *)p;
}

QN_DEV i32 ptx_dp4a(u32 a, u32 b, i32 c)
{
    for (int i = 0; i < 32; i += 8) {
        c += (i8)(a >> i & 0xff) * (i8)(b >> i & 0xff);
    }
    return c;
}

QN_DEV void ptx_grid_wait()
{
}

QN_DEV void ptx_grid_launch()
{
}

static inline void ptx_mma_f16(float d[4], const u32 a[4], const u32 b[2], EMU_SITE)
{
    const emu_mma m = {d, a, b, 16};
    emu_warp_op("mma.m16n8k16", emu_mma_f16, 0xffffffffu, (uintptr_t)&m, 0, file, line);
}

static inline void ptx_mma_f16_k8(float d[4], const u32 a[2], u32 b, EMU_SITE)
{
    const emu_mma m = {d, a, &b, 8};
    emu_warp_op("mma.m16n8k8", emu_mma_f16, 0xffffffffu, (uintptr_t)&m, 0, file, line);
}

// Only handed to wrappers; nothing in the emulated build dereferences it.
QN_DEV u32 ptx_shared_address(const void *p)
{
    return (u32)((const u8 *)p - (const u8 *)emu_shared(0));
}

static inline void ptx_ldmatrix_x4(u32 r[4], const void *row, EMU_SITE)
{
    const emu_matrices m = {r, row, 0, file, line};
    emu_warp_op("ldmatrix.x4", emu_ldmatrix, 0xffffffffu, (uintptr_t)&m, 0, file, line);
}

static inline void ptx_ldmatrix_x4_trans(u32 r[4], const void *row, EMU_SITE)
{
    const emu_matrices m = {r, row, 1, file, line};
    emu_warp_op("ldmatrix.x4.trans", emu_ldmatrix, 0xffffffffu, (uintptr_t)&m, 0, file, line);
}

static inline void ptx_copy_async16(void *shared, const void *global, bool valid, EMU_SITE)
{
    emu_copy_async(shared, global, valid, file, line);
}

QN_DEV void ptx_copy_commit()
{
    emu_copy_commit();
}

template <int N> QN_DEV void ptx_copy_wait()
{
    emu_copy_wait(N);
}
