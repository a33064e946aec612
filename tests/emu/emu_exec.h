/* emu_exec.h: an executor that runs the lowered lists of the CUDA executor under emulation. */
#ifndef QN_EMU_EXEC_H
#define QN_EMU_EXEC_H

#include "cuda/lower.h"
#include "emu.h"

typedef enum emu_list { EMU_LIST_AUTO, EMU_LIST_FEW, EMU_LIST_PREFILL } emu_list;

typedef struct emu_exec_opts {
    int variant, multiprocessors; /* qn_lower_opts */
    uint64_t seed;
    bool padded; /* grids as in a captured prompt: of the bucket's rows (runtime/cuda/prompt_graph.c) */
    int product_tokens; /* qn_lower_opts */
    emu_list list;      /* of prefill runs; AUTO: as the CUDA executor chooses */
    const emu_program *programs;
    int n_program;
    bool (*knobs)(void *user, const qn_site *site, qn_knobs *k); /* qn_lower_opts */
    void *knobs_user;
    /* A card's (tests/gpu/card.h): in place of the table, and of a plain loop for what the library multiplies
     * (out of a device's addresses; up: the power of two that brings e4m3 weights back). */
    const emu_program *(*find)(const qn_cuda_program *p);
    int (*product)(const qn_cuda_gemm *g, int rows, float up, qn_err *err);
    bool as_sessions; /* products share groups and heads come in pieces as in a session, not everywhere */
} emu_exec_opts;

/* qn_lower_opts.share_from: one variant's blocks share groups of outputs wherever that leaves them more even,
 * the others' nowhere, since no case is as large as real products. */
static inline int64_t emu_share_from(int variant)
{
    return variant == QN_VARIANT_SM80 ? 1 : 0;
}

/* Takes all of the emulated device memory: one executor at a time. A program that the table lacks is an
 * error. */
int emu_exec_new(qn_exec **out, const qn_plans *plans, const qn_exec_opts *opts, const emu_exec_opts *emu,
                 qn_err *err);
/* Launches a choice for so many rows of logits. */
int emu_exec_choose(qn_exec *e, qn_cuda_choice how, int rows, qn_err *err);
/* Which list the next prefill runs take. */
void emu_exec_set_list(qn_exec *e, emu_list list);
/* Its device memory, which the host may read and write. */
const qn_cuda_mem *emu_exec_mem(const qn_exec *e);
const qn_lowered *emu_exec_lowered(const qn_exec *e);
/* What stands in the table for a program of the lowered lists. */
const emu_program *emu_exec_program(const qn_exec *e, int program);
/* Writes `bytes` bytes there. */
void emu_put(uint64_t at, const void *from, size_t bytes);
/* Writes `rows` rows of `heads` heads of a cache, from[row][head][dim], as the device has them. */
void emu_put_cache(uint64_t at, qn_cache_type type, const float *from, int rows, int heads, int dim);
/* Launches so far whose template is `name` ("linear"). */
int emu_exec_launches(const qn_exec *e, const char *name);

#endif
