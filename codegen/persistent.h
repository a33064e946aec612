/* persistent.h: several programs as one kernel whose phases they are (kernel_src/persistent.cu). */
#ifndef QN_CODEGEN_PERSISTENT_H
#define QN_CODEGEN_PERSISTENT_H

#include "codegen/source.h"

/* Where an argument of a part comes from. */
typedef enum qn_persistent_from {
    QN_FROM_PHASE,  /* value: index of a word of the phase */
    QN_FROM_LAUNCH, /* value: index of a word of the launch */
    QN_FROM_SOURCE  /* value: itself */
} qn_persistent_from;

typedef struct qn_persistent_arg {
    qn_persistent_from from;
    uint64_t value;
} qn_persistent_arg;

enum { QN_PERSISTENT_ARGS = 28 };

typedef struct qn_persistent_part {
    const qn_source *source; /* of qn_source_make */
    int threads;             /* a block of it; a multiple of 32, at most the kernel's */
    uint32_t grid[3];
    bool passes; /* has the grid more blocks than the launch? */
    bool rings;  /* can its template bring weights through the ring (kernel_src/ring.cuh)? */
    qn_persistent_arg args[QN_PERSISTENT_ARGS];
    int n_arg;
} qn_persistent_part;

/* Threads behind those that do phases, where there is a ring. */
enum { QN_RING_WRITER = 32 };

/* The launch. Shared memory from ring_at on, ring_bytes of it, is a ring, which the writer fills; 0: there is
 * none. */
typedef struct qn_persistent_launch {
    int n_word;  /* words of the launch */
    int threads; /* of a block, that do phases */
    uint32_t ring_at, ring_bytes;
    int variant;
} qn_persistent_launch;

/* Writes the source of a kernel: part i is what a phase with program i runs. All parts are of the same
 * variant. The symbol carries a hash of the text. */
int qn_source_persistent(qn_source *out, const qn_persistent_part *parts, int n_part,
                         const qn_persistent_launch *launch, qn_err *err);

#endif
