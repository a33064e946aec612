/* emu_internal.h: between the parts of the emulator: fibers and scheduling (emu_run.cpp), warp-wide
 * operations (emu_warp.cpp), memory checks (emu_memory.cpp), compiler hooks (emu_hooks.cpp). */
#ifndef QN_EMU_INTERNAL_H
#define QN_EMU_INTERNAL_H

#include <cstdarg>
#include <vector>

#include "emu.h"
#include "emu_runtime.h"

struct emu_site {
    const char *file; /* nullptr: pc is to be looked up */
    int line;
    const void *pc;
};

enum emu_state { EMU_READY, EMU_AT_BARRIER, EMU_IN_WARP_OP, EMU_EXITED };

struct emu_copy { /* cp.async */
    unsigned char *to;
    const unsigned char *from; /* nullptr: zeros */
};

struct emu_fiber {
    void *sp;
    unsigned char *stack, *stack_end;
    int tid;
    emu_state state;
    emu_site site;   /* of the call it waits in */
    uint64_t result; /* of the warp-wide operation that woke it */
    bool waited;     /* ptx_grid_wait called */
    bool fenced;     /* __threadfence since its last write to global memory */
    int at_named;    /* EMU_AT_BARRIER: at the named one of this number; 0: the block's */
    std::vector<std::vector<emu_copy>> groups;
    std::vector<emu_copy> open_group;
    uint32_t fences; /* ptx_fence_async so far */
    std::vector<std::vector<emu_product>> product_groups;
    std::vector<emu_product> open_products;
    bool product_fence; /* ptx_wgmma_fence since its last wait for products */
};

struct emu_pending { /* a warp-wide operation that some lanes have reached */
    const char *name;
    emu_warp_fn fn;
    uint32_t mask, arrived; /* mask 0: free */
    emu_site site;
    uint64_t in[32], out[32];
    int aux[32];
};

struct emu_warp {
    uint32_t exists, ready, exited;
    uint32_t epoch; /* __syncwarps passed */
    std::vector<emu_pending> pending;
};

struct emu_release { /* what a block did before its fence and atomic is visible to who acquires it */
    uint32_t seq, epoch, warp_epoch; /* warp_epoch: what its warp did before a __syncwarp that came before */
    int tid;
};

struct emu_box { /* a copy of a box of a tensor that has not arrived */
    const void *barrier;
    int32_t bytes;
    std::vector<emu_copy> rows;
};

struct emu_named { /* a named barrier: threads that wait at it, of how many */
    int n, n_thread;
    emu_site site;
};

enum { EMU_NAMED = 16 };

struct emu_block {
    uint32_t x, y, z;
    uint32_t seq;   /* counts blocks over all launches, from 1 */
    uint32_t epoch; /* barriers passed */
    int n_thread, n_exited, n_waiting;
    emu_site barrier;
    int n_named; /* threads that wait at named barriers */
    emu_named named[EMU_NAMED];
    unsigned char *shared; /* with EMU_SLACK bytes on both sides */
    struct emu_cell *shared_cells;
    std::vector<emu_fiber> fibers;
    std::vector<emu_warp> warps;
    std::vector<emu_release> known;
    std::vector<emu_box> boxes;
};

/* Shadow of one byte: last write and two reads. Stamps: emu_memory.cpp. */
struct emu_cell {
    uint64_t write, read[2];
    uint32_t write_pc, read_pc[2];
    uint32_t flags;
};

enum { EMU_SLACK = 1 << 16 };
/* TENSOR: written by the tensor memory accelerator. From bit 8 on: fences of the writer before the write. */
enum { EMU_CELL_ATOMIC = 1, EMU_CELL_ASYNC = 2, EMU_CELL_TENSOR = 4 };

struct emu_machine {
    emu_block *block; /* of the running fiber; nullptr: none runs */
    emu_fiber *fiber;
    const emu_launch *launch;
    uint32_t first_seq; /* of the launch's blocks */
    emu_report *report;
    bool failed, waited; /* waited: some thread of the launch has, for the launch before */
    emu_counts counts;
};
extern emu_machine emu_m;

/* Fills the report and leaves the launch; does not return while a fiber runs. */
void emu_fail(const char *kind, emu_site site, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* "file:line" of a program counter in this executable. */
void emu_find_line(const void *pc, char *file, size_t size, int *line);
uint32_t emu_pc_offset(const void *pc);

/* The running fiber waits until something makes it ready. */
void emu_wait(emu_state state, emu_site site);
void emu_wake(emu_block *b, int tid);
/* Lets others run where a launch is cooperative. */
void emu_yield(emu_site site);
/* A fiber has left the kernel. */
void emu_warp_exit(emu_block *b, int tid);
/* "thread 3 of block (0, 1, 0)" */
const char *emu_who();

enum emu_kind { EMU_READ, EMU_WRITE, EMU_ATOMIC };
void emu_access(const void *p, size_t bytes, emu_kind kind, emu_site site);
/* For emu_traffic_each: an access of the running thread; a launch has ended. */
void emu_traffic_note(const void *p, size_t bytes, bool shared, bool write, emu_site site);
void emu_traffic_end(void);
/* Bytes that a product of a warpgroup reads: who wrote them must have fenced since. */
void emu_check_fenced(const void *shared, size_t bytes, emu_site site);
/* Async copies: destination bytes are in flight; have arrived. */
void emu_async_begin(void *shared, size_t bytes, emu_site site);
void emu_async_end(void *shared, const void *from, size_t bytes, bool tensor);
void emu_sync_release(const void *at);
void emu_sync_acquire(const void *at);
void emu_sync_reset();

#endif
