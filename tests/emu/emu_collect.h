/* emu_collect.h: programs that emulated tests need, each once, and their sources. */
#ifndef QN_EMU_COLLECT_H
#define QN_EMU_COLLECT_H

#include "emu_source.h"
#include "cuda/lower.h"

typedef struct emu_listed {
    char *text, kernel[48], symbol[160];
    uint64_t key;
} emu_listed;

typedef struct emu_collection {
    qn_kernel_files files;
    emu_listed *programs;
    int n, cap;
    int n_case;
    const char *only;   /* the one template that is wanted; NULL: all */
    const char *prefix; /* of the programs' namespaces, before the key */
} emu_collection;

/* Addresses only have to be there: for qn_cuda_mem's weight and table. */
enum { EMU_SOME_ADDRESS = 0x10000 };
uint64_t emu_some_weight(const void *user, const qn_tensor *t);
uint64_t emu_some_table(const void *user, const float *t);

/* A program, unless one of its source is there. */
void emu_collect_add(emu_collection *l, const qn_cuda_program *p);

/* One of n_shard files as C++ at `path`. Programs are spread by their keys, so that one more, or less, leaves
 * the other files as they are; those of one template in their order. A file whose text would not change is
 * left alone. -1: cannot be written, which is told. */
int emu_collect_write(const emu_collection *l, const char *kernel_dir, const char *path, int shard,
                      int n_shard);

#endif
