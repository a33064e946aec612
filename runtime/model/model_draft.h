/* model_draft.h: a model config proposed from what a file says. */
#ifndef QN_MODEL_MODEL_DRAFT_H
#define QN_MODEL_MODEL_DRAFT_H

#include "model/gguf.h"

/* Writes into *text (free() it) a config for g, from its tensors' names and shapes and its keys. What they do
 * not say stands at the end as comments, one a choice: "#   leaf.path: value | value". The result parses;
 * where it does not fit the file, or leaves tensors alone, further comments say so. -1: g is no dense
 * decoder, or a key that all need is missing (err). */
int qn_model_draft(char **text, qn_gguf *g, qn_err *err);

#endif
