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

QN_DEV float ptx_rsqrt(float x)
{
    return 1.0f / sqrtf(x);
}

QN_DEV u32x4 ptx_load_stream(const void *p)
{
    return *(const u32x4 *)p;
}

QN_DEV u32x4 ptx_load_stream_here(const void *p)
{
    return *(const u32x4 *)p;
}

QN_DEV i64 ptx_opaque(i64 n)
{
    return n;
}

QN_DEV void ptx_here(u32 &)
{
}

QN_DEV i32 ptx_dp4a(u32 a, u32 b, i32 c)
{
    for (int i = 0; i < 32; i += 8) {
        c += (i8)(a >> i & 0xff) * (i8)(b >> i & 0xff);
    }
    return c;
}

QN_DEV i32 ptx_dp4a_us(u32 a, u32 b, i32 c)
{
    for (int i = 0; i < 32; i += 8) {
        c += (i32)(a >> i & 0xff) * (i8)(b >> i & 0xff);
    }
    return c;
}

static inline u32 ptx_warp_max(u32 v, EMU_SITE)
{
    return (u32)emu_warp_op("redux.max", emu_reduce, 0xffffffffu, v, EMU_UMAX, file, line);
}

static inline i32 ptx_warp_add(i32 v, EMU_SITE)
{
    return (i32)emu_warp_op("redux.add", emu_reduce, 0xffffffffu, (u32)v, EMU_ADD, file, line);
}

QN_DEV void ptx_grid_wait()
{
    emu_grid_wait();
}

static inline void ptx_grid_launch(EMU_SITE)
{
    emu_grid_launch(file, line);
}

static inline void ptx_named_barrier(int id, int n_thread, EMU_SITE)
{
    emu_named_barrier(id, n_thread, file, line);
}

static inline u32 ptx_load_acquire(const u32 *p, EMU_SITE)
{
    return emu_load_acquire(p, file, line);
}

static inline u32 ptx_load_relaxed(const u32 *p, EMU_SITE)
{
    return emu_load_relaxed(p, file, line);
}

static inline void ptx_store_word(u64 *p, u64 v, EMU_SITE)
{
    emu_store_word((uint64_t *)p, v, file, line);
}

static inline void ptx_load_words(u64 v[2], const u64 *p, EMU_SITE)
{
    v[0] = emu_load_word((const uint64_t *)p, 16, file, line);
    v[1] = emu_load_word((const uint64_t *)p + 1, 8, file, line);
}

static inline void ptx_mma_f16(float d[4], const u32 a[4], const u32 b[2], EMU_SITE)
{
    const emu_mma m = {d, a, b, 16};
    emu_warp_op("mma.m16n8k16", emu_mma_f16, 0xffffffffu, (uintptr_t)&m, 0, file, line);
}

static inline void ptx_mma_bf16(float d[4], const u32 a[4], const u32 b[2], EMU_SITE)
{
    const emu_mma m = {d, a, b, 16, true};
    emu_warp_op("mma.m16n8k16.bf16", emu_mma_f16, 0xffffffffu, (uintptr_t)&m, 0, file, line);
}

static inline void ptx_mma_s8_k16(i32 d[4], const u32 a[2], u32 b, EMU_SITE)
{
    const emu_mma_bytes m = {d, a, &b, 16};
    emu_warp_op("mma.m16n8k16.s8", emu_mma_s8, 0xffffffffu, (uintptr_t)&m, 0, file, line);
}

static inline void ptx_mma_f16_k8(float d[4], const u32 a[2], u32 b, EMU_SITE)
{
    const emu_mma m = {d, a, &b, 8};
    emu_warp_op("mma.m16n8k8", emu_mma_f16, 0xffffffffu, (uintptr_t)&m, 0, file, line);
}

static inline void ptx_mma_s8(i32 d[4], const u32 a[4], u32 b0, u32 b1, EMU_SITE)
{
    const u32 b[2] = {b0, b1};
    const emu_mma_bytes m = {d, a, b, 32};
    emu_warp_op("mma.m16n8k32", emu_mma_s8, 0xffffffffu, (uintptr_t)&m, 0, file, line);
}

template <bool NO_SIGN>
static inline void ptx_mma_bytes(i32 d[4], const u32 a[4], u32 b0, u32 b1, const i32 c[4], EMU_SITE)
{
    const u32 b[2] = {b0, b1};
    for (int i = 0; i < 4; i++) {
        d[i] = c[i];
    }
    const emu_mma_bytes m = {d, a, b, 32, NO_SIGN};
    emu_warp_op("mma.m16n8k32.bytes", emu_mma_s8, 0xffffffffu, (uintptr_t)&m, 0, file, line);
}

template <int AT> QN_DEV void ptx_load_shared_if(u32x4 &v, const void *p, bool there)
{
    if (there) {
        v = *(const u32x4 *)((const u8 *)p + AT);
    }
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

static inline u32 ptx_add_acq_rel(u32 *p, u32 v, EMU_SITE)
{
    emu_fence();
    return atomicAdd(p, v, file, line);
}

static inline void ptx_add_release(u32 *p, u32 v, EMU_SITE)
{
    emu_fence();
    atomicAdd(p, v, file, line);
}

QN_DEV u32 ptx_thread_here()
{
    return threadIdx.x;
}

#define ptx_hidden_for(k, n, ...)                                                                            \
    for (u32 k = 0; k < (u32)(n); k++) {                                                                     \
        __VA_ARGS__                                                                                          \
    }

QN_DEV u32 ptx_half2_add(u32 a, u32 b)
{
    return (u32)emu_float_to_half(emu_half_to_float((u16)a) + emu_half_to_float((u16)b)) |
           (u32)emu_float_to_half(emu_half_to_float((u16)(a >> 16)) + emu_half_to_float((u16)(b >> 16)))
               << 16;
}

QN_DEV u32 ptx_half2_mul(u32 a, u32 b)
{
    return (u32)emu_float_to_half(emu_half_to_float((u16)a) * emu_half_to_float((u16)b)) |
           (u32)emu_float_to_half(emu_half_to_float((u16)(a >> 16)) * emu_half_to_float((u16)(b >> 16)))
               << 16;
}

static inline u32 ptx_transpose(u32 a, EMU_SITE)
{
    return (u32)emu_warp_op("movmatrix", emu_movmatrix, 0xffffffffu, a, 0, file, line);
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

QN_DEV void ptx_wgmma_fence()
{
    emu_product_fence();
}

QN_DEV void ptx_wgmma_commit()
{
    emu_product_commit();
}

template <int N> QN_DEV void ptx_wgmma_wait()
{
    emu_product_wait(N);
}

QN_DEV void ptx_fence_async()
{
    emu_fence_async();
}

template <int N> QN_DEV void ptx_pin(float *d)
{
}

static inline void ptx_barrier_init(void *barrier, u32 count, EMU_SITE)
{
    emu_mbarrier_init(barrier, count, file, line);
}

static inline void ptx_barrier_wait(void *barrier, u32 parity, EMU_SITE)
{
    emu_mbarrier_wait(barrier, parity, file, line);
}

QN_DEV void ptx_barrier_init_fence()
{
}

static inline void ptx_barrier_arrive(void *barrier, EMU_SITE)
{
    emu_mbarrier_arrive(barrier, 0, file, line);
}

static inline u32 ptx_peek(const u32 *shared, EMU_SITE)
{
    return emu_load_relaxed(shared, file, line);
}

static inline void ptx_note(u32 *shared, u32 v, EMU_SITE)
{
    emu_store_relaxed(shared, v, file, line);
}

static inline void ptx_barrier_arrive_many(void *barrier, u32 n, EMU_SITE)
{
    for (u32 i = 0; i < n; i++) {
        emu_mbarrier_arrive(barrier, 0, file, line);
    }
}

static inline void ptx_barrier_expect(void *barrier, u32 bytes, EMU_SITE)
{
    emu_mbarrier_arrive(barrier, bytes, file, line);
}

static inline void ptx_tensor_load(void *shared, const void *map, void *barrier, int c0, int c1, int c2,
                                   int c3, EMU_SITE)
{
    const int c[4] = {c0, c1, c2, c3};
    emu_tensor_load(shared, map, barrier, c, file, line);
}

QN_DEV void ptx_tensor_prefetch(const void *)
{
}

static inline void ptx_bulk_load_once(void *shared, const void *from, void *barrier, u32 bytes, EMU_SITE)
{
    emu_bulk_load(shared, from, barrier, bytes, file, line);
}

static inline void ptx_bulk_load(void *shared, const void *from, void *barrier, u32 bytes, EMU_SITE)
{
    emu_bulk_load(shared, from, barrier, bytes, file, line);
}

template <int N> QN_DEV void ptx_fewer_registers()
{
}

template <int N> QN_DEV void ptx_more_registers()
{
}

// Row r, column c of a matrix of 16-bit values in shared memory by its descriptor, 128-byte swizzle. mn: rows
// along k, blocks of 64 columns `leading` bytes apart.
QN_DEV float emu_matrix(const emu_product *p, u64 descriptor, int r, int c, int mn)
{
    const u32 start = (u32)(descriptor & 0x3fff) << 4, leading = (u32)(descriptor >> 16 & 0x3fff) << 4;
    const u32 stride = (u32)(descriptor >> 32 & 0x3fff) << 4;
    const u32 at = start + (mn ? (u32)(c / 64) * leading : 0) + (u32)(r / 8) * stride + (u32)(r % 8) * 128 +
                   (u32)(mn ? c % 64 : c) * 2;
    const half_t *value = (const half_t *)emu_shared((int)(at ^ (at >> 7 & 7) << 4));
    const float v = emu_half_to_float(*value);
    emu_product_reads(value, sizeof *value, p->file, p->line);
    return v;
}

// d = a * b (+ d) for this thread's elements; a: rows lane / 4 and lane / 4 + 8 of its warp's 16.
static inline void emu_wgmma(const emu_product *p)
{
    float a[2][16];
    for (int half = 0; half < 2; half++) {
        for (int k = 0; k < 16; k++) {
            const int row = (int)threadIdx.x % 128 / 32 * 16 + half * 8 + (int)threadIdx.x % 32 / 4;
            a[half][k] = p->a_shared ? emu_matrix(p, p->a_at, row, k, 0) : p->a[half][k];
        }
    }
    for (int j = 0; j < p->n / 8; j++) {
        for (int e = 0; e < 2; e++) {
            const int col = 8 * j + (int)threadIdx.x % 4 * 2 + e;
            float sum[2] = {p->add ? p->d[4 * j + e] : 0.0f, p->add ? p->d[4 * j + 2 + e] : 0.0f};
            for (int k = 0; k < 16; k++) {
                const float v = p->trans ? emu_matrix(p, p->b, k, col, 1) : emu_matrix(p, p->b, col, k, 0);
                sum[0] += a[0][k] * v;
                sum[1] += a[1][k] * v;
            }
            p->d[4 * j + e] = sum[0];
            p->d[4 * j + 2 + e] = sum[1];
        }
    }
}

template <int N, int TRANS>
static inline void ptx_wgmma_f16(float *d, const u32 a[4], u64 b, int add, EMU_SITE)
{
    emu_product p = {emu_wgmma, d, {}, 0, b, false, add, N, TRANS, file, line};
    for (int lane = 0; lane < 4; lane++) {
        for (int i = 0; i < 4; i++) {
            const u32 v = (u32)emu_from_bits<u32>(
                emu_warp_op("wgmma", emu_shfl_idx, 0xffffffffu, emu_bits(a[i]),
                            ((int)threadIdx.x % 32 / 4 * 4 + lane) | 32 << 16, file, line));
            p.a[i % 2][i / 2 * 8 + 2 * lane] = emu_half_to_float((half_t)(v & 0xffff));
            p.a[i % 2][i / 2 * 8 + 2 * lane + 1] = emu_half_to_float((half_t)(v >> 16));
        }
    }
    emu_product_start(&p);
}

static inline void ptx_wgmma_f16_shared_n80(float *d, u64 a, u64 b, int add, EMU_SITE)
{
    const emu_product p = {emu_wgmma, d, {}, a, b, true, add, 80, 0, file, line};
    emu_product_start(&p);
}
