/* embedded.h: kernel sources and model configs carried inside the binary (made at build time). */
#ifndef QN_MODEL_EMBEDDED_H
#define QN_MODEL_EMBEDDED_H

#include <stddef.h>

typedef struct qn_embedded {
    const char *name; /* path in the repository: "kernel_src/norm.cu", "model_configs/tokenizers/NAME.yaml" */
    const char *data; /* followed by a NUL that is not counted */
    size_t size;
} qn_embedded;

/* Ends with a row whose name is NULL. */
extern const qn_embedded qn_embedded_files[];

#endif
