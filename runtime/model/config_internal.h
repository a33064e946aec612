/* config_internal.h: what the config*.c files share. */
#ifndef QN_MODEL_CONFIG_INTERNAL_H
#define QN_MODEL_CONFIG_INTERNAL_H

#include "base/alloc.h"
#include "model/config.h"
#include "model/yaml.h"

typedef enum leaf_type {
    LEAF_NAME, /* const char *: a tensor's base name; NULL: none */
    LEAF_INT,
    LEAF_FLOAT, /* double */
    LEAF_BOOL,
    LEAF_ENUM, /* int: index among the words of row.type, plus enum_base */
} leaf_type;

/* Where a leaf may be set. */
typedef enum leaf_level {
    LEVEL_LAYER, /* anywhere */
    LEVEL_MODEL, /* base and model-level variants */
    LEVEL_BASE,  /* base only: conditions and patterns hang on it */
} leaf_level;

typedef struct qn_leaf {
    qn_schema_row row;
    leaf_type type;
    leaf_level level;
    unsigned offset; /* in qn_layer_cfg */
    int enum_base;
    double lo, hi; /* inclusive; ints and floats */
} qn_leaf;

extern const qn_leaf qn_leaves[];
extern const int qn_n_leaves;

/* Row of a path; -1: none. */
int qn_leaf_find(const char *path);
/* Words of an enumeration ("no | yes | optional"): copies word i into buf; false past the end. */
bool qn_leaf_word(const qn_leaf *leaf, int i, char *buf, size_t size);

typedef struct qn_setting {
    int row;
    const qn_yaml_node *node;
} qn_setting;

typedef struct qn_group {
    qn_setting *set;
    int n;
} qn_group;

/* What base and each variant consist of. */
typedef struct qn_overlay {
    qn_group base;
    const qn_yaml_node *pattern; /* checked map; NULL: none */
    int n_kinds;
    const char **kind; /* names */
    qn_group *kind_set;
} qn_overlay;

typedef struct qn_variant {
    const qn_yaml_node *cond; /* checked: a map or a list of maps */
    bool layer_level;
    qn_overlay set;
} qn_variant;

struct qn_config {
    qn_yaml *doc, *defaults;
    const qn_yaml_node *fallback[QN_LEAF_MAX]; /* the schema's default of each row; NULL: required */
    const char *name;
    const char **arch; /* NULL-terminated */
    qn_overlay base;
    qn_variant *variant;
    int n_variants;
    qn_arena arena;
};

/* What values are evaluated against. */
typedef struct qn_eval {
    const qn_config *config;
    const qn_gguf *gguf;
    const char *arch;                      /* prefix of keys */
    const qn_yaml_node *node[QN_LEAF_MAX]; /* the setting in force of each row */
    int il, n_layer, n_ctx;
    int depth; /* of formulas that ask for leaves */
} qn_eval;

/* config_parse.c: takes the document, on failure too. */
int qn_config_from_tree(qn_config **out, qn_yaml *doc, const char *name, qn_err *err);

/* config_value.c */
/* Checks the form of a leaf's value; literals are range-checked here. */
int qn_value_check(const qn_leaf *leaf, const qn_yaml_node *node, qn_err *err);
/* The same for a number outside the schema (a condition's right side, a period): any number. */
int qn_value_check_number(const qn_yaml_node *node, qn_err *err);
/* Evaluates a number; `scalar` false lets an array give its element il. */
int qn_value_number(qn_eval *e, const qn_yaml_node *node, bool scalar, double *out, qn_err *err);
/* A whole number of a leaf of the schema, range-checked. */
int qn_value_leaf_int(qn_eval *e, int row, int *out, qn_err *err);
/* Fills the leaf's member of cfg. */
int qn_value_leaf(qn_eval *e, int row, qn_layer_cfg *cfg, qn_err *err);
/* The file's key that node (a `key` or `global_key` entry) names; NULL where the file lacks it. */
const qn_kv *qn_value_find_key(const qn_eval *e, const qn_yaml_node *key);
/* Any scalar or array element as a double; bools are 0 and 1. */
bool qn_value_kv_number(const qn_kv *kv, uint64_t i, double *out);
bool qn_value_is_array(const qn_kv *kv);

/* config_cond.c */
int qn_cond_check(const qn_yaml_node *cond, bool *layer_level, qn_err *err);
int qn_cond_test(qn_eval *e, const qn_yaml_node *cond, bool *holds, qn_err *err);

/* config_pattern.c */
int qn_pattern_check(const qn_yaml_node *pattern, qn_err *err);
/* Kind of layer e->il by the pattern. */
int qn_pattern_kind(qn_eval *e, const qn_yaml_node *pattern, const char **kind, qn_err *err);

#endif
