/* info.h: what `quern info` found out about a file, for its two printers. */
#ifndef QN_CLI_INFO_H
#define QN_CLI_INFO_H

#include "cli/model_facts.h"
#include "engine/engine.h"

typedef struct qn_info {
    const char *path;
    const qn_gguf *gguf;
    const char *arch; /* general.architecture, malloc'ed; "" */
    qn_model_facts facts;
    const qn_model *model;   /* NULL: why is in model_why */
    const qn_plans *plans;   /* NULL: why is in plans_why */
    const qn_tokenizer *tok; /* NULL: why is in tok_why */
    const char *model_why, *plans_why, *tok_why;
    qn_exec_opts opts; /* the memory's context and chunk; with plans */
    qn_memory memory;
    uint64_t available; /* bytes on that backend */
    bool tensors;       /* list them */
} qn_info;

void qn_info_text(const qn_info *i);
int qn_info_json(const qn_info *i); /* the exit status */

#endif
