#include "cli/model_facts.h"

#include <string.h>

void qn_model_facts_get(const qn_gguf *g, qn_model_facts *out)
{
    memset(out, 0, sizeof *out);
    out->main_type = "none";
    uint64_t most = 0;
    for (uint64_t i = 0; i < qn_gguf_n_tensors(g); i++) {
        const qn_tensor *t = qn_gguf_tensor(g, i);
        out->n_params += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]; /* checked when the file was opened */
        out->tensor_bytes += t->n_bytes;
        out->type_tensors[t->type]++;
        out->type_bytes[t->type] += t->n_bytes;
        if (out->type_bytes[t->type] > most) {
            most = out->type_bytes[t->type];
            out->main_type = qn_dtype_get(t->type)->name;
        }
    }
}
