/* shape_model.h: models that have the shapes of real ones and no data (tests/tools/make_shape_models.py). */
#ifndef QN_SHAPE_MODEL_H
#define QN_SHAPE_MODEL_H

#include "codegen/plan.h"

typedef struct shape_model {
    char name[64]; /* "qwen3-8b-q4_k_m"; of a whole GGUF file: its name without folder and suffix */
    qn_model *model;
    qn_plans *plans;
    void *map;
    size_t size;
} shape_model;

/* Opens a head (NAME.head) with zeros in the place of its data, which take no memory, or a whole GGUF file.
 * n_ctx: qn_model_opts. */
int shape_model_open(shape_model *out, const char *path, int n_ctx, qn_err *err);
void shape_model_close(shape_model *s);

/* Calls fn for every .head and .gguf file of a folder in the order of their names, until it returns non-zero,
 * which is returned; -1 where the folder has none. */
int shape_models_each(const char *dir, int (*fn)(void *user, const char *path), void *user, qn_err *err);

#endif
