/* model_facts.h: numbers about a file that several commands print. */
#ifndef QN_CLI_MODEL_FACTS_H
#define QN_CLI_MODEL_FACTS_H

#include <stdint.h>

#include "model/dtype.h"
#include "model/gguf.h"

typedef struct qn_model_facts {
    uint64_t n_params;     /* elements of all tensors */
    uint64_t tensor_bytes; /* of all tensors */
    uint64_t type_tensors[QN_TYPE_COUNT], type_bytes[QN_TYPE_COUNT];
    const char *main_type; /* the type with the most bytes; "none" */
} qn_model_facts;

void qn_model_facts_get(const qn_gguf *g, qn_model_facts *out);

#endif
