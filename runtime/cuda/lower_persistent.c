/* lower_persistent.c: the decode list as phases of one launch. */
#include "base/alloc.h"
#include "codegen/persistent.h"
#include "cuda/lower_internal.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)QN_PERSISTENT_ARGS == (int)QN_CUDA_ARGS, "arguments of a phase");
_Static_assert(2 * sizeof(qn_cuda_phase) + 32 <= QN_CUDA_PHASE_SHARED,
               "two descriptors and what is the phase's own");

/* Words of the launch: a kernel's parameters are at most 4096 bytes. */
enum { MOST_WORDS = 496 };

/* Smaller rings are left out, and where a block has more threads than keep their registers beside a writer.
 */
enum { RING_ALIGN = 128, LEAST_RING = 88 * 1024, MOST_THREADS = 512 };

/* The distinct programs of the decode list, in the order of their first use. */
typedef struct part_list {
    qn_persistent_part *parts; /* [n] */
    int *programs;             /* index of each in the lowered programs */
    int *first;                /* the first phase of each */
    int n, threads;            /* threads: of the largest block */
    uint32_t shared;           /* of the phase with the largest need */
    uint32_t ring_at, ring_bytes;
} part_list;

static uint32_t blocks_of_launch(const lowerer *l)
{
    return (uint32_t)(l->opts->multiprocessors > 0 ? l->opts->multiprocessors : 1);
}

/* The grid of an action for one row. */
static void grid_of(const qn_cuda_action *a, uint32_t grid[3])
{
    for (int k = 0; k < 3; k++) {
        grid[k] = a->rows_axis == k ? 1 : a->grid[k];
    }
}

/* Index of the part that an action runs; -1 after an error. */
static int part_of(lowerer *l, part_list *p, const qn_cuda_action *a)
{
    const char *name = a->step ? a->step->name : "the choice of a token";
    if (a->is_gemm) {
        return qn_fail(l->err, "step %s is a library's product: no phase of a persistent kernel", name);
    }
    uint32_t grid[3];
    grid_of(a, grid);
    p->shared = a->shared > p->shared ? a->shared : p->shared;
    p->threads = (int)a->threads > p->threads ? (int)a->threads : p->threads;
    for (int i = 0; i < p->n; i++) {
        if (p->programs[i] == a->program && p->parts[i].threads == (int)a->threads &&
            memcmp(p->parts[i].grid, grid, sizeof grid) == 0) {
            return i;
        }
    }
    qn_persistent_part *part = &p->parts[p->n];
    p->programs[p->n] = a->program;
    part->threads = (int)a->threads;
    memcpy(part->grid, grid, sizeof grid);
    part->passes = grid[0] * grid[1] * grid[2] > blocks_of_launch(l);
    part->rings = a->rings;
    return p->n++;
}

/* The parts' arguments, by the first phase of each: those that another phase of the part has differently are
 * words of the phase, numbers stand in the source, and what is left, addresses, are words of the launch. */
static void sort_args(qn_lowered *out, part_list *p)
{
    for (int i = 0; i < p->n; i++) {
        p->first[i] = -1;
    }
    for (int i = 0; i < out->decode.n; i++) {
        int at = out->phases[i].program;
        qn_persistent_part *part = &p->parts[at];
        const qn_cuda_action *a = &out->decode.actions[i];
        if (p->first[at] < 0) {
            p->first[at] = i;
            part->n_arg = a->n_arg;
            for (int k = 0; k < a->n_arg; k++) {
                part->args[k] = (qn_persistent_arg){QN_FROM_LAUNCH, 0};
            }
        }
        for (int k = 0; k < a->n_arg; k++) {
            if (a->args[k] != out->decode.actions[p->first[at]].args[k]) {
                part->args[k].from = QN_FROM_PHASE;
            }
        }
    }
    for (int i = 0; i < p->n; i++) {
        uint64_t n_own = 0;
        for (int k = 0; k < p->parts[i].n_arg; k++) {
            qn_persistent_arg *arg = &p->parts[i].args[k];
            uint64_t v = out->decode.actions[p->first[i]].args[k];
            if (arg->from == QN_FROM_LAUNCH && v <= UINT32_MAX) {
                *arg = (qn_persistent_arg){QN_FROM_SOURCE, v};
            } else if (arg->from == QN_FROM_LAUNCH && out->n_word < MOST_WORDS) {
                arg->value = (uint64_t)out->n_word;
                out->words[out->n_word++] = v;
            } else {
                *arg = (qn_persistent_arg){QN_FROM_PHASE, n_own++};
            }
        }
    }
}

static int make_phases(lowerer *l, part_list *p)
{
    qn_lowered *out = l->out;
    uint32_t blocks = blocks_of_launch(l), before = 0;
    for (int i = 0; i < out->decode.n; i++) {
        qn_cuda_phase *ph = &out->phases[out->n_phase++];
        int part = part_of(l, p, &out->decode.actions[i]);
        if (part < 0) {
            return -1;
        }
        const uint32_t *grid = p->parts[part].grid;
        *ph = (qn_cuda_phase){.program = part,
                              .n_block = grid[0] * grid[1] * grid[2],
                              .before = before,
                              .waiter = (uint32_t)p->parts[part].threads - 32};
        before = ph->n_block < blocks ? ph->n_block : blocks;
    }
    sort_args(out, p);
    for (int i = 0; i < out->n_phase; i++) {
        const qn_persistent_part *part = &p->parts[out->phases[i].program];
        for (int k = 0; k < part->n_arg; k++) {
            if (part->args[k].from == QN_FROM_PHASE) {
                out->phases[i].own[part->args[k].value] = out->decode.actions[i].args[k];
            }
        }
    }
    return 0;
}

bool qn_lower_rings(const lowerer *l)
{
    bool may = l->opts->persistent && l->mode == LOWER_DECODE && l->opts->variant >= QN_VARIANT_SM90A &&
               !l->opts->f32_activations;
    const qn_plan *plan = &l->plans->decode;
    for (int i = 0; may && i < plan->n_step; i++) {
        const qn_tensor *w[3];
        for (int k = qn_product_weights(&plan->steps[i], w); k > 0; k--) {
            if (qn_cuda_is_planes(w[k - 1])) {
                return true;
            }
        }
    }
    return false;
}

/* What the phases leave of shared memory is the ring, where a product takes it. */
static void place_ring(const lowerer *l, part_list *p)
{
    size_t limit = qn_lower_shared_limit(l->opts->variant), end = QN_CUDA_PHASE_SHARED + p->shared;
    size_t at = (end + RING_ALIGN - 1) / RING_ALIGN * RING_ALIGN;
    bool wanted = false, room = p->threads + QN_RING_WRITER <= MOST_THREADS;
    for (int i = 0; i < p->n; i++) {
        wanted = wanted || (p->parts[i].rings && !p->parts[i].passes);
    }
    if (wanted && room && qn_lower_rings(l) && at + LEAST_RING <= limit) {
        p->ring_at = (uint32_t)at;
        p->ring_bytes = (uint32_t)((limit - at) / RING_ALIGN * RING_ALIGN);
    }
}

static int add_action(lowerer *l, const part_list *p, int program, qn_cuda_list *list, int n_phase)
{
    l->list = list;
    qn_cuda_action *a = qn_lower_add(l);
    if (!a) {
        return -1;
    }
    a->program = program;
    a->path = "persistent";
    a->grid[0] = blocks_of_launch(l);
    a->grid[1] = a->grid[2] = 1;
    a->threads = (uint32_t)p->threads + (p->ring_bytes ? QN_RING_WRITER : 0);
    a->shared = p->ring_bytes ? p->ring_at + p->ring_bytes : QN_CUDA_PHASE_SHARED + p->shared;
    a->cooperative = true;
    a->rows_per = 1;
    a->args[1] = (uint64_t)n_phase;
    a->n_arg = 3;
    a->words = l->out->words;
    return 0;
}

static int add_launch(lowerer *l, part_list *p)
{
    qn_source src;
    for (int i = 0; i < p->n; i++) {
        p->parts[i].source = &l->out->programs[p->programs[i]].source;
    }
    place_ring(l, p);
    const qn_persistent_launch launch = {.n_word = l->out->n_word,
                                         .threads = p->threads,
                                         .ring_at = p->ring_at,
                                         .ring_bytes = p->ring_bytes,
                                         .variant = l->opts->variant};
    if (qn_source_persistent(&src, p->parts, p->n, &launch, l->err)) {
        return -1;
    }
    l->step = NULL;
    int program = qn_lower_program(l, "persistent", &src);
    return program < 0 || add_action(l, p, program, &l->out->persistent, l->out->n_phase) ||
                   add_action(l, p, program, &l->out->persistent_steps, l->out->n_phase - 1)
               ? -1
               : 0;
}

int qn_lower_persistent(lowerer *l)
{
    if (l->opts->variant < QN_VARIANT_SM80) { /* phases are fetched by asynchronous copies */
        return qn_fail(l->err, "--persistent: not for kernels of variant %s, only from sm80 on",
                       qn_variant_name(l->opts->variant));
    }
    size_t n = (size_t)l->out->decode.n;
    part_list p = {.parts = qn_calloc(n, sizeof *p.parts),
                   .programs = qn_calloc(n, sizeof *p.programs),
                   .first = qn_calloc(n, sizeof *p.first)};
    l->out->phases = qn_calloc(n, sizeof *l->out->phases);
    l->out->words = qn_calloc(MOST_WORDS, sizeof *l->out->words);
    bool there = p.parts && p.programs && p.first && l->out->phases && l->out->words;
    int rc = there ? 0 : qn_fail(l->err, "out of memory");
    rc = rc ? rc : make_phases(l, &p);
    rc = rc ? rc : add_launch(l, &p);
    free(p.parts);
    free(p.programs);
    free(p.first);
    return rc;
}
