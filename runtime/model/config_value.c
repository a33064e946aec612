/* config_value.c: what stands at a leaf: literals, keys of the file, formulas of the layer's shape. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/config_internal.h"

enum { FORMULA_DEPTH = 8 };

static const char *const value_keys[] = {"key",   "global_key", "formula", "default",
                                         "times", "plus",       "invert"};
enum { N_VALUE_KEYS = sizeof value_keys / sizeof value_keys[0] };

typedef int formula_fn(qn_eval *e, const qn_yaml_node *at, double *out, qn_err *err);

typedef struct formula {
    const char *name;
    formula_fn *fn;
    const char *leaf; /* of `leaf_value` formulas: the leaf that is asked for */
    bool root, inverse;
} formula;

/* One leaf as a number. */
static int leaf_number(qn_eval *e, const char *path, int il, const qn_yaml_node *at, double *out, qn_err *err)
{
    if (e->depth >= FORMULA_DEPTH) {
        return qn_yaml_fail(at, err, "the formula asks for itself (by way of %s)", path);
    }
    int row = qn_leaf_find(path), v = 0, was = e->il;
    e->il = il;
    e->depth++;
    int rc = qn_value_leaf_int(e, row, &v, err);
    e->depth--;
    e->il = was;
    *out = v;
    return rc;
}

/* n_embd / n_head, of the first layer (a later one may have other numbers, or no heads at all) */
static int divide_embd(qn_eval *e, const qn_yaml_node *at, bool whole, double *out, qn_err *err)
{
    double n_embd = 0, n_head = 0;
    if (leaf_number(e, "embedding.width", 0, at, &n_embd, err) ||
        leaf_number(e, "attention.n_head", 0, at, &n_head, err)) {
        return -1;
    }
    double v = n_head > 0 ? n_embd / n_head : 0.5;
    *out = floor(v);
    if (whole ? *out != v : *out == 0) {
        return qn_fail(err, "%s: n_embd %.0f is no multiple of n_head %.0f", qn_gguf_path(e->gguf), n_embd,
                       n_head);
    }
    return 0;
}

static int embd_per_head(qn_eval *e, const qn_yaml_node *at, double *out, qn_err *err)
{
    return divide_embd(e, at, true, out, err);
}

/* Of a scale: the whole part, since other engines divide integers there. */
static int embd_per_head_part(qn_eval *e, const qn_yaml_node *at, double *out, qn_err *err)
{
    return divide_embd(e, at, false, out, err);
}

static int layer_count(qn_eval *e, const qn_yaml_node *at, double *out, qn_err *err)
{
    (void)at;
    (void)err;
    *out = e->n_layer;
    return 0;
}

static const formula formulas[] = {
    {"n_embd", NULL, "embedding.width", false, false},
    {"n_layer", layer_count, NULL, false, false},
    {"n_head", NULL, "attention.n_head", false, false},
    {"n_head_kv", NULL, "attention.n_head_kv", false, false},
    {"head_dim", NULL, "attention.head_dim", false, false},
    {"value_dim", NULL, "attention.value_dim", false, false},
    {"n_embd_per_head", embd_per_head, NULL, false, false},
    {"sqrt_n_embd", NULL, "embedding.width", true, false},
    {"rsqrt_head_dim", NULL, "attention.head_dim", true, true},
    {"inv_head_dim", NULL, "attention.head_dim", false, true},
    {"rsqrt_n_embd_per_head", embd_per_head_part, NULL, true, true},
    {"rsqrt_n_layer", layer_count, NULL, true, true},
    {"inv_n_embd", NULL, "embedding.width", false, true},
};
enum { N_FORMULAS = sizeof formulas / sizeof formulas[0] };

static const formula *find_formula(const char *name)
{
    for (int i = 0; i < N_FORMULAS; i++) {
        if (strcmp(formulas[i].name, name) == 0) {
            return &formulas[i];
        }
    }
    return NULL;
}

static int apply_formula(qn_eval *e, const qn_yaml_node *at, double *out, qn_err *err)
{
    const formula *f = find_formula(at->text);
    double v = 0;
    if (f->fn ? f->fn(e, at, &v, err) : leaf_number(e, f->leaf, e->il, at, &v, err)) {
        return -1;
    }
    if (f->inverse && v == 0) {
        return qn_yaml_fail(at, err, "%s divides by zero", f->name);
    }
    v = f->root ? sqrt(v) : v;
    *out = f->inverse ? 1 / v : v;
    return 0;
}

/* ---- form ---- */

static int check_formula(const qn_yaml_node *node, qn_err *err)
{
    const char *name = NULL;
    if (qn_yaml_text(node, &name, err)) {
        return -1;
    }
    if (!find_formula(name)) {
        const char *names[N_FORMULAS];
        char hint[128];
        for (int i = 0; i < N_FORMULAS; i++) {
            names[i] = formulas[i].name;
        }
        return qn_yaml_fail(node, err, "unknown formula \"%.64s\"%s", name,
                            qn_nearest_hint(name, names, N_FORMULAS, hint, sizeof hint));
    }
    return 0;
}

static int check_key_name(const qn_yaml_node *node, qn_err *err)
{
    const char *name = NULL;
    if (qn_yaml_text(node, &name, err)) {
        return -1;
    }
    if (!*name || strlen(name) > 100) {
        return qn_yaml_fail(node, err, "\"%.64s\" is not the name of a key", name);
    }
    return 0;
}

static int check_literal(const qn_leaf *leaf, const qn_yaml_node *node, qn_err *err)
{
    bool b;
    int64_t i = 0;
    double v = 0;
    if (leaf && leaf->type == LEAF_BOOL) {
        return qn_yaml_bool(node, &b, err);
    }
    if (leaf && leaf->type == LEAF_INT) {
        if (qn_yaml_i64(node, &i, err)) {
            return -1;
        }
        v = (double)i;
    } else if (qn_yaml_f64(node, &v, err)) {
        return -1;
    }
    if (leaf && (v < leaf->lo || v > leaf->hi)) {
        return qn_yaml_fail(node, err, "%s is %.40s, must be %.10g to %.10g", leaf->row.path, node->text,
                            leaf->lo, leaf->hi);
    }
    return 0;
}

static int check_computed(const qn_leaf *leaf, const qn_yaml_node *node, qn_err *err)
{
    if (qn_yaml_check_keys(node, value_keys, N_VALUE_KEYS, err)) {
        return -1;
    }
    const qn_yaml_node *key = qn_yaml_get(node, "key"), *global = qn_yaml_get(node, "global_key");
    const qn_yaml_node *form = qn_yaml_get(node, "formula"), *dflt = qn_yaml_get(node, "default");
    const qn_yaml_node *times = qn_yaml_get(node, "times"), *plus = qn_yaml_get(node, "plus");
    const qn_yaml_node *invert = qn_yaml_get(node, "invert");
    bool is_bool = leaf && leaf->type == LEAF_BOOL;
    double v;
    bool b;
    if (!!key + !!global + !!form != 1) {
        return qn_yaml_fail(node, err, "a value needs exactly one of key, global_key and formula");
    }
    if (dflt && form) {
        return qn_yaml_fail_key(dflt, err, "a formula needs no default");
    }
    if (is_bool && (form || times || plus || invert)) {
        return qn_yaml_fail(node, err, "a truth value comes from a literal or a key alone");
    }
    if (form ? check_formula(form, err) : check_key_name(key ? key : global, err)) {
        return -1;
    }
    if ((times && qn_yaml_f64(times, &v, err)) || (plus && qn_yaml_f64(plus, &v, err)) ||
        (invert && qn_yaml_bool(invert, &b, err))) {
        return -1;
    }
    if (!dflt) {
        return 0;
    }
    /* a fallback that is transformed afterwards is not itself the leaf's value */
    bool plain = !times && !plus && !invert;
    return dflt->kind == QN_YAML_MAP ? check_computed(plain ? leaf : NULL, dflt, err)
                                     : check_literal(plain ? leaf : NULL, dflt, err);
}

static int check_word(const qn_leaf *leaf, const qn_yaml_node *node, qn_err *err)
{
    char word[16][32];
    const char *words[16];
    int n = 0;
    while (n < 16 && qn_leaf_word(leaf, n, word[n], sizeof word[n])) {
        words[n] = word[n];
        if (node->kind == QN_YAML_SCALAR && strcmp(word[n], node->text) == 0) {
            return 0;
        }
        n++;
    }
    char hint[128] = "";
    const char *shown = "a list or map";
    if (node->kind == QN_YAML_SCALAR) {
        shown = node->text;
        qn_nearest_hint(shown, words, (size_t)n, hint, sizeof hint);
    }
    return qn_yaml_fail(node, err, "%s is \"%.64s\", must be %s%s", leaf->row.path, shown,
                        strcmp(leaf->row.type, "need") == 0 ? "no | yes | optional" : leaf->row.type, hint);
}

static bool among(const char *text, const char *const *list)
{
    for (; *list; list++) {
        if (strcmp(text, *list) == 0) {
            return true;
        }
    }
    return false;
}

static int check_name(const qn_leaf *leaf, const qn_yaml_node *node, qn_err *err)
{
    static const char *const truths[] = {"no",    "off", "false", "No",   "Off",  "False", "NO",   "OFF",
                                         "FALSE", "yes", "on",    "true", "Yes",  "On",    "True", "n",
                                         "y",     "~",   "null",  "Null", "NULL", "",      NULL};
    if (node->kind != QN_YAML_SCALAR) {
        return qn_yaml_fail(node, err, "%s must be the name of a tensor, or none", leaf->row.path);
    }
    if (among(node->text, truths)) {
        return qn_yaml_fail(node, err,
                            "%s is \"%s\", must be the name of a tensor (for no tensor write none)",
                            leaf->row.path, node->text);
    }
    size_t good = strspn(node->text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
    if (good != node->len || node->len > 63 || node->text[0] == '.' || strstr(node->text, "..")) {
        return qn_yaml_fail(node, err, "%s: \"%.64s\" is not the name of a tensor", leaf->row.path,
                            node->text);
    }
    const char *dot = strrchr(node->text, '.');
    if (dot && (strcmp(dot, ".weight") == 0 || strcmp(dot, ".bias") == 0)) {
        return qn_yaml_fail(node, err, "%s: \"%.64s\" must stand without %s", leaf->row.path, node->text,
                            dot);
    }
    return 0;
}

int qn_value_check(const qn_leaf *leaf, const qn_yaml_node *node, qn_err *err)
{
    switch (leaf->type) {
    case LEAF_NAME:
        return check_name(leaf, node, err);
    case LEAF_ENUM:
        return check_word(leaf, node, err);
    default:
        return node->kind == QN_YAML_MAP ? check_computed(leaf, node, err) : check_literal(leaf, node, err);
    }
}

int qn_value_check_number(const qn_yaml_node *node, qn_err *err)
{
    return node->kind == QN_YAML_MAP ? check_computed(NULL, node, err) : check_literal(NULL, node, err);
}

/* ---- evaluation ---- */

bool qn_value_is_array(const qn_kv *kv)
{
    return kv->type == QN_KV_ARRAY;
}

bool qn_value_kv_number(const qn_kv *kv, uint64_t i, double *out)
{
    int64_t whole;
    bool truth;
    if (qn_kv_f64(kv, i, out)) {
        return true;
    }
    if (qn_kv_i64(kv, i, &whole)) {
        *out = (double)whole;
        return true;
    }
    if (qn_kv_bool(kv, i, &truth)) {
        *out = truth;
        return true;
    }
    return false;
}

static void full_key(const qn_eval *e, const qn_yaml_node *key, char *buf, size_t size)
{
    bool global = strcmp(key->key, "global_key") == 0;
    snprintf(buf, size, "%s%s%s", global ? "" : e->arch, global ? "" : ".", key->text);
}

const qn_kv *qn_value_find_key(const qn_eval *e, const qn_yaml_node *key)
{
    char name[256];
    full_key(e, key, name, sizeof name);
    return qn_gguf_find(e->gguf, name);
}

/* The number at a `key` or `global_key` entry that the file has. */
static int key_number(const qn_eval *e, const qn_kv *kv, bool scalar, double *out, qn_err *err)
{
    const char *file = qn_gguf_path(e->gguf);
    uint64_t i = 0;
    if (qn_value_is_array(kv)) {
        if (scalar) {
            return qn_fail(err, "%s: key %s is an array, a single value is needed", file, kv->key);
        }
        if (kv->count < (uint64_t)e->n_layer) {
            return qn_fail(err, "%s: key %s has %llu values, the model has %d layers", file, kv->key,
                           (unsigned long long)kv->count, e->n_layer);
        }
        i = (uint64_t)e->il;
    }
    if (!qn_value_kv_number(kv, i, out)) {
        return qn_fail(err, "%s: key %s is %s, a number is needed", file, kv->key,
                       qn_kv_type_name(qn_value_is_array(kv) ? kv->elem_type : kv->type));
    }
    if (!isfinite(*out)) {
        return qn_fail(err, "%s: key %s is not finite", file, kv->key);
    }
    return 0;
}

static int transform(const qn_yaml_node *node, double *v, qn_err *err)
{
    const qn_yaml_node *times = qn_yaml_get(node, "times"), *plus = qn_yaml_get(node, "plus");
    const qn_yaml_node *invert = qn_yaml_get(node, "invert");
    double x;
    bool b = false;
    if (times) {
        qn_yaml_f64(times, &x, err);
        *v *= x;
    }
    if (plus) {
        qn_yaml_f64(plus, &x, err);
        *v += x;
    }
    if (invert) {
        qn_yaml_bool(invert, &b, err);
    }
    if (b && *v == 0) {
        return qn_yaml_fail(invert, err, "the value to invert is 0");
    }
    *v = b ? 1 / *v : *v;
    return isfinite(*v) ? 0 : qn_yaml_fail(node, err, "the value is not finite");
}

int qn_value_number(qn_eval *e, const qn_yaml_node *node, bool scalar, double *out, qn_err *err)
{
    if (node->kind == QN_YAML_SCALAR) {
        if (strcmp(node->text, "true") == 0 || strcmp(node->text, "false") == 0) {
            *out = node->text[0] == 't';
            return 0;
        }
        return qn_yaml_f64(node, out, err);
    }
    const qn_yaml_node *form = qn_yaml_get(node, "formula"), *dflt = qn_yaml_get(node, "default");
    const qn_yaml_node *key = qn_yaml_get(node, "key");
    key = key ? key : qn_yaml_get(node, "global_key");
    if (form) {
        return apply_formula(e, form, out, err) ? -1 : transform(node, out, err);
    }
    const qn_kv *kv = qn_value_find_key(e, key);
    if (!kv && !dflt) {
        char name[256];
        full_key(e, key, name, sizeof name);
        return qn_fail(err, "%s: key %s is missing", qn_gguf_path(e->gguf), name);
    }
    int rc = kv ? key_number(e, kv, scalar, out, err) : qn_value_number(e, dflt, scalar, out, err);
    return rc ? rc : transform(node, out, err);
}

static int leaf_value_number(qn_eval *e, int row, double *v, qn_err *err)
{
    const qn_leaf *leaf = &qn_leaves[row];
    if (qn_value_number(e, e->node[row], leaf->level != LEVEL_LAYER, v, err)) {
        return -1;
    }
    if (leaf->type == LEAF_INT && *v != floor(*v)) {
        return qn_fail(err, "%s: %s is %.10g, must be a whole number", qn_gguf_path(e->gguf), leaf->row.path,
                       *v);
    }
    if (leaf->type != LEAF_BOOL && (*v < leaf->lo || *v > leaf->hi)) {
        return qn_fail(err, "%s: %s of layer %d is %.10g, must be %.10g to %.10g", qn_gguf_path(e->gguf),
                       leaf->row.path, e->il, *v, leaf->lo, leaf->hi);
    }
    return 0;
}

int qn_value_leaf_int(qn_eval *e, int row, int *out, qn_err *err)
{
    double v = 0;
    if (leaf_value_number(e, row, &v, err)) {
        return -1;
    }
    *out = (int)v;
    return 0;
}

static int word_index(const qn_leaf *leaf, const char *text)
{
    char word[32];
    int i = 0;
    while (qn_leaf_word(leaf, i, word, sizeof word) && strcmp(word, text) != 0) {
        i++;
    }
    return i + leaf->enum_base;
}

int qn_value_leaf(qn_eval *e, int row, qn_layer_cfg *cfg, qn_err *err)
{
    const qn_leaf *leaf = &qn_leaves[row];
    const qn_yaml_node *node = e->node[row];
    void *member = (char *)cfg + leaf->offset;
    double v = 0;
    if (leaf->type == LEAF_NAME) {
        *(const char **)member = strcmp(node->text, "none") == 0 ? NULL : node->text;
        return 0;
    }
    if (leaf->type == LEAF_ENUM) {
        *(int *)member = word_index(leaf, node->text);
        return 0;
    }
    if (leaf_value_number(e, row, &v, err)) {
        char where[128];
        cfg->from[row] = node;
        return qn_fail_prefix(err, "%s", qn_config_origin(e->config, cfg, member, where, sizeof where));
    }
    if (leaf->type == LEAF_INT) {
        *(int *)member = (int)v;
    } else if (leaf->type == LEAF_FLOAT) {
        *(double *)member = v;
    } else {
        *(bool *)member = v != 0;
    }
    return 0;
}
