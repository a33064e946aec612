/* persistent.h: several programs as one kernel whose phases they are (kernel_src/persistent.cu). */
#ifndef QN_CODEGEN_PERSISTENT_H
#define QN_CODEGEN_PERSISTENT_H

#include "codegen/source.h"

typedef struct qn_persistent_part {
    const qn_source *source; /* of qn_source_make */
    int threads;             /* a block of it; a multiple of 32, at most the kernel's */
} qn_persistent_part;

/* Writes the source of a kernel of `threads` threads a block: part i is what a phase with program i runs. All
 * parts are of the same variant. The symbol carries a hash of the text. */
int qn_source_persistent(qn_source *out, const qn_persistent_part *parts, int n_part, int threads,
                         int variant, qn_err *err);

#endif
