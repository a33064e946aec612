/* lower_persistent.c: the decode list as phases of one launch. */
#include "base/alloc.h"
#include "codegen/persistent.h"
#include "cuda/lower_internal.h"

#include <stdlib.h>
#include <string.h>

/* The distinct programs of the decode list, in the order of their first use. */
typedef struct part_list {
    qn_persistent_part *parts; /* [n] */
    int *programs;             /* index of each in the lowered programs */
    int n, threads;            /* of the largest block */
    uint32_t shared;           /* of the phase with the largest need */
} part_list;

/* Index of the part that an action runs; -1 after an error. */
static int part_of(lowerer *l, part_list *p, const qn_cuda_action *a)
{
    const char *name = a->step ? a->step->name : "the choice of a token";
    if (a->is_gemm) {
        return qn_fail(l->err, "step %s is a library's product: no phase of a persistent kernel", name);
    }
    p->shared = a->shared > p->shared ? a->shared : p->shared;
    p->threads = (int)a->threads > p->threads ? (int)a->threads : p->threads;
    for (int i = 0; i < p->n; i++) {
        if (p->programs[i] == a->program) {
            return p->parts[i].threads == (int)a->threads
                       ? i
                       : qn_fail(l->err, "step %s: blocks of %u and of %d threads of one program", name,
                                 a->threads, p->parts[i].threads);
        }
    }
    p->programs[p->n] = a->program;
    p->parts[p->n].threads = (int)a->threads;
    return p->n++;
}

static int make_phases(lowerer *l, part_list *p)
{
    qn_lowered *out = l->out;
    uint32_t blocks = (uint32_t)(l->opts->multiprocessors > 0 ? l->opts->multiprocessors : 1), before = 0;
    for (int i = 0; i < out->decode.n; i++) {
        const qn_cuda_action *a = &out->decode.actions[i];
        qn_cuda_phase *ph = &out->phases[out->n_phase++];
        int part = part_of(l, p, a);
        if (part < 0) {
            return -1;
        }
        *ph = (qn_cuda_phase){.program = part, .threads = (int32_t)a->threads, .before = before};
        ph->n_block = 1;
        for (int k = 0; k < 3; k++) {
            ph->grid[k] = a->rows_axis == k ? 1 : a->grid[k]; /* one row */
            ph->n_block *= ph->grid[k];
        }
        memcpy(ph->args, a->args, sizeof ph->args);
        before = ph->n_block < blocks ? ph->n_block : blocks;
    }
    return 0;
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
    a->grid[0] = (uint32_t)(l->opts->multiprocessors > 0 ? l->opts->multiprocessors : 1);
    a->grid[1] = a->grid[2] = 1;
    a->threads = (uint32_t)p->threads;
    a->shared = QN_CUDA_PHASE_SHARED + p->shared;
    a->cooperative = true;
    a->rows_per = 1;
    a->args[1] = (uint64_t)n_phase;
    a->n_arg = 3;
    return 0;
}

static int add_launch(lowerer *l, part_list *p)
{
    qn_source src;
    for (int i = 0; i < p->n; i++) {
        p->parts[i].source = &l->out->programs[p->programs[i]].source;
    }
    if (qn_source_persistent(&src, p->parts, p->n, p->threads, l->opts->variant, l->err)) {
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
    part_list p = {qn_calloc(n, sizeof *p.parts), qn_calloc(n, sizeof *p.programs), 0, 0, 0};
    l->out->phases = qn_calloc(n, sizeof *l->out->phases);
    int rc = p.parts && p.programs && l->out->phases ? 0 : qn_fail(l->err, "out of memory");
    rc = rc ? rc : make_phases(l, &p);
    rc = rc ? rc : add_launch(l, &p);
    free(p.parts);
    free(p.programs);
    return rc;
}
