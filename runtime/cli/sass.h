/* sass.h: machine code as text, by NVIDIA's disassembler where one is installed. */
#ifndef QN_CLI_SASS_H
#define QN_CLI_SASS_H

#include "base/dynlib.h"
#include "codegen/cache.h"

typedef struct qn_disassembler {
    char path[QN_PATH_MAX];
    bool cuobjdump; /* which of the two programs it is */
} qn_disassembler;

/* nvdisasm, else cuobjdump: on PATH, then in the bin folders of the toolkits and pip packages where CUDA's
 * libraries are looked for. err says where it was looked for. */
int qn_disassembler_find(qn_disassembler *out, qn_err *err);

/* Text of a cubin, malloc'ed in *out. */
int qn_disassemble(const qn_disassembler *d, const qn_blob *cubin, qn_blob *out, qn_err *err);

#endif
