/* emu.h: runs CUDA kernels on the host, one fiber a thread, and checks every memory access and barrier.
 *
 * Kernels are compiled from kernel_src/ by the host's C++ compiler with the stand-ins of emu_device.cuh and
 * emu_ptx.cuh (docs/emulation.md). One launch at a time; nothing here is safe to call from two threads. */
#ifndef QN_EMU_H
#define QN_EMU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A compiled kernel. call(args): runs one thread of it; every argument is a word (a pointer or an i64). */
typedef struct emu_program {
    uint64_t key; /* emu_source_key of its source text; 0: none */
    const char *name;
    void (*call)(const uint64_t *args);
} emu_program;

typedef struct emu_launch {
    const emu_program *program;
    uint32_t grid[3], threads, shared; /* shared: bytes a block */
    bool cooperative;                  /* all blocks are resident at once */
    bool by_shape;  /* that they are is seen to by the launch's shape: a card is not asked for it */
    bool dependent; /* may start before the launch before it ends (ptx_grid_wait) */
    int variant;    /* QN_VARIANT_* that it was lowered for: a card overlaps launches of the last one */
    uint64_t seed;  /* of the order of blocks, warps and lanes */
    const uint64_t *args;
    int n_arg; /* at most 32 */
} emu_launch;

/* What a check found. kind: "race", "barrier", "mask", "uninitialised", "bounds", "misaligned", "async",
 * "arithmetic", "dependency", "deadlock". file and line: of the kernel source, "" and 0 where unknown. text:
 * the whole message. */
typedef struct emu_report {
    char kind[16], file[256], text[1024];
    int line;
} emu_report;

/* Runs a launch to its end. 0: no check failed; -1: one did, and `report` says which; the launch was ended
 * there. */
int emu_run(const emu_launch *l, emu_report *report);

/* tests/gpu/card.c puts a card behind the functions of this header; under emulation these have nothing to do.
 * The program is about to be launched: it is compiled and loaded now, so that launches follow each other. */
int emu_prepare(const emu_program *p, emu_report *report);
/* Waits for what was launched, and makes the checks that a card allows only then. */
int emu_settle(emu_report *report);

/* Device memory: `bytes` bytes at an address that is a multiple of 256, with unowned space on both sides. A
 * kernel may touch nothing else. EMU_READ_ONLY: kernels may not write it. EMU_UNWRITTEN: reading a byte that
 * neither a kernel nor emu_written has written is an error (the bytes are 0xff until then). EMU_SETTLED:
 * the launch before does not write it, so that it may be read before the wait for that. NULL: out of emulated
 * memory. */
enum { EMU_READ_ONLY = 1, EMU_UNWRITTEN = 2, EMU_SETTLED = 4 };
void *emu_alloc(const char *name, size_t bytes, int flags);
/* From now on kernels may not write the buffer that starts there. */
void emu_freeze(void *start);
/* Gives back everything that emu_alloc gave. */
void emu_reset(void);
/* Stands for a tensor map: f16 values, four dimensions; strides (in bytes) of all but the first. Rows of a
 * box in shared memory have 128 bytes and are swizzled. */
typedef struct emu_tensor_map {
    uint64_t base, dims[4], strides[3];
    uint32_t box[4];
    uint32_t reserved[12];
} emu_tensor_map;

/* Makes a tensor map of 128 bytes at `to`, which lies in a buffer. */
int emu_write_map(void *to, const emu_tensor_map *map, emu_report *report);

/* The host is about to write, or to read, a range: it must lie in one buffer. -1: it does not (report
 * filled). */
int emu_written(const void *p, size_t bytes, emu_report *report);
int emu_readable(const void *p, size_t bytes, emu_report *report);
/* Has every byte of a range been written? A card does not know, and says yes. */
int emu_all_written(const void *p, size_t bytes, emu_report *report);

/* How the lanes of warps share their accesses, a row for each line of a kernel that loads or stores: counted
 * once emu_traffic_on was called (which slows launches down). `sectors` of 32 bytes: of global memory;
 * `passes`: of 128 bytes through L1 or shared memory; `least_`: for the same bytes side by side. Rows stay
 * valid. */
typedef struct emu_traffic {
    const char *program, *file;
    int line;
    bool shared, write;
    uint64_t accesses, lanes, bytes, sectors, least_sectors, passes, least_passes;
} emu_traffic;
typedef void (*emu_traffic_fn)(const emu_traffic *row, void *ctx);
void emu_traffic_on(void);
int emu_traffic_each(emu_traffic_fn fn, void *ctx); /* number of rows */
void emu_traffic_print(void);                       /* lines that move more than the least, to stdout */

/* Offset of the first byte of a range that a kernel has written; `bytes` where none has. */
size_t emu_first_stored(const void *p, size_t bytes);

/* Compiled kernels add themselves (a table that an empty name ends) before main. */
bool emu_add_programs(const emu_program *table);
const emu_program *emu_programs(int *n);

/* Counters since the start of the process, for summaries. */
typedef struct emu_counts {
    uint64_t launches, blocks, threads, accesses;
} emu_counts;
emu_counts emu_totals(void);

#ifdef __cplusplus
}
#endif
#endif
