/* draft_internal.h: between model_draft.c (what can be told), draft_open.c (what cannot) and draft_print.c.
 */
#ifndef QN_MODEL_DRAFT_INTERNAL_H
#define QN_MODEL_DRAFT_INTERNAL_H

#include "model/model_draft.h"

enum { DRAFT_SETTINGS = 96, DRAFT_VALUE = 160 };

typedef struct draft_setting {
    const char *path; /* of the leaf; "layers.pattern" too */
    char value[DRAFT_VALUE];
} draft_setting;

/* Settings of the base, or of one kind of layer. */
typedef struct draft_group {
    draft_setting set[DRAFT_SETTINGS];
    int n;
} draft_group;

typedef struct draft {
    const qn_gguf *g;
    char arch[65];
    int n_layer; /* blocks in the file */
    int n_head, head_dim;
    draft_group base, local, global; /* kinds: where base has layers.pattern */
    const char *when[8];             /* entries of `when`, as YAML flow text */
    int n_when;
    char open[4096]; /* undecided choices, one line each */
} draft;

/* A setting of a leaf; the last of a path wins. */
void draft_set(draft_group *d, const char *path, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool draft_is_set(const draft_group *d, const char *path);

/* Key <arch>.NAME; NULL: absent. */
const qn_kv *draft_key(const draft *d, const char *name);
/* Tensor blk.il.NAME.SUFFIX (or NAME alone for "weight"); il < 0: without "blk.". */
const qn_tensor *draft_tensor(const draft *d, int il, const char *name, const char *suffix);
/* In how many layers it is. */
int draft_count(const draft *d, const char *name, const char *suffix);

/* draft_open.c: lists the choices that the file leaves open. */
void draft_list_open(draft *d);
/* draft_print.c: the YAML text, malloc'ed; NULL: out of memory. `remarks`: comment lines for the end. */
char *draft_print(const draft *d, const char *remarks);

#endif
