// emu_runtime.h: what emulated kernels call: the part of the emulator that emu_device.cuh and emu_ptx.cuh
// see. defines: emu_builtin, emu_barrier, emu_warp_op, emu_atomic, emu_fence, emu_shared, emu_copy_*
#pragma once
#include <cstddef>
#include <cstdint>

struct emu_dim3 {
    unsigned x, y, z;
};

// threadIdx and the like of the running fiber.
struct emu_builtins {
    emu_dim3 thread_idx, block_idx, block_dim, grid_dim;
};
extern emu_builtins emu_builtin;

#define EMU_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

void emu_barrier(const char *file, int line);
void emu_named_barrier(int id, int n_thread, const char *file, int line);
int emu_barrier_count(int predicate, const char *file, int line);

// A warp-wide operation: called once all lanes of mask have come; in, out and aux are indexed by lane.
typedef void (*emu_warp_fn)(uint32_t mask, const uint64_t *in, const int *aux, uint64_t *out);
uint64_t emu_warp_op(const char *name, emu_warp_fn fn, uint32_t mask, uint64_t in, int aux, const char *file,
                     int line);
void emu_shfl_idx(uint32_t mask, const uint64_t *in, const int *aux, uint64_t *out);
void emu_shfl_xor(uint32_t mask, const uint64_t *in, const int *aux, uint64_t *out);
void emu_shfl_up(uint32_t mask, const uint64_t *in, const int *aux, uint64_t *out);
void emu_shfl_down(uint32_t mask, const uint64_t *in, const int *aux, uint64_t *out);
void emu_ballot(uint32_t mask, const uint64_t *in, const int *aux, uint64_t *out);
void emu_reduce(uint32_t mask, const uint64_t *in, const int *aux, uint64_t *out);
void emu_sync_warp(uint32_t mask, const uint64_t *in, const int *aux, uint64_t *out);
void emu_mma_f16(uint32_t mask, const uint64_t *in, const int *aux, uint64_t *out);
void emu_mma_s8(uint32_t mask, const uint64_t *in, const int *aux, uint64_t *out);
void emu_movmatrix(uint32_t mask, const uint64_t *in, const int *aux, uint64_t *out);
void emu_ldmatrix(uint32_t mask, const uint64_t *in, const int *aux, uint64_t *out);
enum { EMU_ADD, EMU_MIN, EMU_MAX, EMU_AND, EMU_OR, EMU_XOR, EMU_UMIN, EMU_UMAX, EMU_EXCHANGE, EMU_CAS };

// Operands of one lane of a matrix product: d [4] f32, a [4] (k = 16) or [2] (k = 8), b [2] or [1].
struct emu_mma {
    float *d;
    const uint32_t *a, *b;
    int k;
    bool bf16;
};
// The same of bytes: d [4] i32, a [4] (k = 32) or [2] (k = 16), b [2] or [1].
struct emu_mma_bytes {
    int32_t *d;
    const uint32_t *a, *b;
    int k;
    bool no_sign; // of a
};
struct emu_matrices { // of ldmatrix
    uint32_t *r;
    const void *row;
    int trans;
    const char *file;
    int line;
};

// type: of the value in memory. Returns the old bits.
enum emu_type { EMU_I32, EMU_U32, EMU_U64, EMU_F32 };
uint64_t emu_atomic(void *p, emu_type type, int op, uint64_t operand, uint64_t compare, const char *file,
                    int line);
uint32_t emu_load_acquire(const uint32_t *p, const char *file, int line);
void emu_store_relaxed(uint32_t *p, uint32_t v, const char *file, int line);
uint32_t emu_load_relaxed(const uint32_t *p, const char *file, int line);
/* Whole words, which order nothing else. `align`: what the address must be a multiple of. */
uint64_t emu_load_word(const uint64_t *p, size_t align, const char *file, int line);
void emu_store_word(uint64_t *p, uint64_t v, const char *file, int line);
void emu_fence();
void emu_grid_wait();
void emu_grid_launch(const char *file, int line);

void *emu_shared(int byte_offset);
void emu_copy_async(void *shared, const void *global, bool valid, const char *file, int line);
void emu_copy_commit();
// Barriers in shared memory (8 bytes each), and copies of boxes of tensors that complete them. A completed
// phase stands between all accesses of the block before and after it.
void emu_mbarrier_init(void *barrier, uint32_t count, const char *file, int line);
void emu_mbarrier_arrive(void *barrier, uint32_t expect, const char *file, int line);
void emu_mbarrier_wait(void *barrier, uint32_t parity, const char *file, int line);
void emu_bulk_load(void *shared, const void *from, void *barrier, uint32_t bytes, const char *file, int line);
void emu_tensor_load(void *shared, const void *map, void *barrier, const int c[4], const char *file,
                     int line);
void emu_copy_wait(int n_in_flight);

// A thread's part of a product of a warpgroup. It is done when it is waited for, the latest time at which the
// card may do it: until then its operands must stay and its result is not there.
struct emu_product {
    void (*run)(const emu_product *p);
    float *d;
    float a[2][16];
    uint64_t a_at, b; // a_at: where a_shared
    bool a_shared;
    int add, n, trans;
    const char *file;
    int line;
};
void emu_product_fence(); // for registers, before the first product and after each wait
void emu_product_start(const emu_product *p);
void emu_product_commit();
void emu_product_wait(int n_in_flight);
// A product reads shared memory; the thread's writes are visible to products from here on.
void emu_product_reads(const void *shared, size_t bytes, const char *file, int line);
void emu_fence_async();

float emu_half_to_float(uint16_t h);
uint16_t emu_float_to_half(float f);
