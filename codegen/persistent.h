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
    qn_persistent_arg args[QN_PERSISTENT_ARGS];
    int n_arg;
} qn_persistent_part;

/* Writes the source of a kernel of `threads` threads a block: part i is what a phase with program i runs. All
 * parts are of the same variant. n_word: words of the launch. The symbol carries a hash of the text. */
int qn_source_persistent(qn_source *out, const qn_persistent_part *parts, int n_part, int n_word, int threads,
                         int variant, qn_err *err);

#endif
