/* config_cond.c: `if` of a variant: a key, a number of the shape or a tensor, and what it is held against. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/config_internal.h"

static const char *const subjects[] = {"key", "global_key", "value", "tensor", "layer_tensor"};
static const char *const tests[] = {"eq", "ge", "gt", "lt", "is"};
static const char *const cond_keys[] = {"key", "global_key", "value", "tensor", "layer_tensor",
                                        "eq",  "ge",         "gt",    "lt",     "is"};

/* Numbers a condition may ask for; leaf NULL: known without the config's leaves. */
typedef struct shape_value {
    const char *name, *leaf;
    bool of_layer;
} shape_value;
static const shape_value shape_values[] = {
    {"n_layer", NULL, false},
    {"n_ctx", NULL, false},
    {"n_embd", "embedding.width", false},
    {"layer", NULL, true},
    {"n_head", "attention.n_head", true},
    {"n_head_kv", "attention.n_head_kv", true},
    {"n_ff", "ffn.n_ff", true},
};
enum {
    N_SUBJECTS = sizeof subjects / sizeof subjects[0],
    N_TESTS = sizeof tests / sizeof tests[0],
    N_COND_KEYS = sizeof cond_keys / sizeof cond_keys[0],
    N_VALUES = sizeof shape_values / sizeof shape_values[0],
};

/* The one entry of the map whose key is in the list; NULL where there are none or several. */
static const qn_yaml_node *only(const qn_yaml_node *map, const char *const *list, int n)
{
    const qn_yaml_node *found = NULL;
    for (int i = 0; i < n; i++) {
        const qn_yaml_node *c = qn_yaml_get(map, list[i]);
        if (c && found) {
            return NULL;
        }
        found = c ? c : found;
    }
    return found;
}

static const shape_value *find_value(const char *name)
{
    for (int i = 0; i < N_VALUES; i++) {
        if (strcmp(shape_values[i].name, name) == 0) {
            return &shape_values[i];
        }
    }
    return NULL;
}

static bool keyed(const qn_yaml_node *node, const char *key)
{
    return strcmp(node->key, key) == 0;
}

static int check_subject(const qn_yaml_node *subject, bool *layer_level, qn_err *err)
{
    const char *text = NULL;
    if (qn_yaml_text(subject, &text, err)) {
        return -1;
    }
    if (!*text || subject->len > 100) {
        return qn_yaml_fail(subject, err, "\"%.64s\" is not a name", text);
    }
    if (keyed(subject, "layer_tensor")) {
        *layer_level = true;
    }
    if (!keyed(subject, "value")) {
        return 0;
    }
    const shape_value *v = find_value(text);
    if (!v) {
        const char *names[N_VALUES];
        char hint[128];
        for (int i = 0; i < N_VALUES; i++) {
            names[i] = shape_values[i].name;
        }
        return qn_yaml_fail(subject, err, "unknown value \"%.64s\"%s", text,
                            qn_nearest_hint(text, names, N_VALUES, hint, sizeof hint));
    }
    *layer_level |= v->of_layer;
    return 0;
}

static bool is_number(const qn_yaml_node *node)
{
    qn_err ignored;
    double v;
    return qn_yaml_f64(node, &v, &ignored) == 0;
}

static int check_test(const qn_yaml_node *subject, const qn_yaml_node *test, qn_err *err)
{
    bool tensor = keyed(subject, "tensor") || keyed(subject, "layer_tensor"), is = keyed(test, "is");
    if (is) {
        bool word = test->kind == QN_YAML_SCALAR &&
                    (strcmp(test->text, "present") == 0 || strcmp(test->text, "absent") == 0);
        if (!word || keyed(subject, "value")) {
            return qn_yaml_fail(test, err, "%s",
                                word ? "a value is always present" : "must be present or absent");
        }
        return 0;
    }
    if (tensor) {
        return qn_yaml_fail_key(test, err, "a tensor can only be tested with is: present or is: absent");
    }
    if (test->kind == QN_YAML_SEQ) {
        return qn_yaml_fail(test, err, "a list cannot be compared with");
    }
    if (test->kind == QN_YAML_MAP) {
        return qn_value_check_number(test, err);
    }
    bool text_allowed = keyed(test, "eq") && !keyed(subject, "value");
    return !text_allowed && !is_number(test) ? qn_yaml_fail(test, err, "expected a number") : 0;
}

static int check_one(const qn_yaml_node *cond, bool *layer_level, qn_err *err)
{
    if (qn_yaml_check_keys(cond, cond_keys, N_COND_KEYS, err)) {
        return -1;
    }
    const qn_yaml_node *subject = only(cond, subjects, N_SUBJECTS), *test = only(cond, tests, N_TESTS);
    if (!subject) {
        return qn_yaml_fail(cond, err,
                            "a condition needs exactly one of key, global_key, value, tensor and "
                            "layer_tensor");
    }
    if (!test) {
        return qn_yaml_fail(cond, err, "a condition needs exactly one of eq, ge, gt, lt and is");
    }
    return check_subject(subject, layer_level, err) ? -1 : check_test(subject, test, err);
}

int qn_cond_check(const qn_yaml_node *cond, bool *layer_level, qn_err *err)
{
    *layer_level = false;
    if (cond->kind != QN_YAML_SEQ) {
        return check_one(cond, layer_level, err);
    }
    if (!cond->child) {
        return qn_yaml_fail(cond, err, "an empty list of conditions");
    }
    for (const qn_yaml_node *c = cond->child; c; c = c->next) {
        if (check_one(c, layer_level, err)) {
            return -1;
        }
    }
    return 0;
}

static int value_number(qn_eval *e, const qn_yaml_node *subject, double *out, qn_err *err)
{
    const shape_value *v = find_value(subject->text);
    int n = 0;
    if (v->leaf) {
        if (qn_value_leaf_int(e, qn_leaf_find(v->leaf), &n, err)) {
            return -1;
        }
    } else {
        n = v->of_layer ? e->il : strcmp(v->name, "n_layer") == 0 ? e->n_layer : e->n_ctx;
    }
    *out = n;
    return 0;
}

static bool has_tensor(const qn_eval *e, const qn_yaml_node *subject)
{
    char name[160];
    if (keyed(subject, "tensor")) {
        return qn_gguf_find_tensor(e->gguf, subject->text);
    }
    snprintf(name, sizeof name, "blk.%d.%s", e->il, subject->text);
    return qn_gguf_find_tensor(e->gguf, name);
}

/* Text on the right side of `eq`: true and false are 1 and 0 where the key is a truth value or number. */
static int test_text(const qn_eval *e, const qn_kv *kv, const qn_yaml_node *test, bool *holds, qn_err *err)
{
    qn_str s;
    double v = 0;
    if (qn_kv_str(kv, 0, &s)) {
        *holds = s.len == test->len && memcmp(s.data, test->text, test->len) == 0;
        return 0;
    }
    bool yes = strcmp(test->text, "true") == 0;
    if (test->plain && (yes || strcmp(test->text, "false") == 0) && qn_value_kv_number(kv, 0, &v)) {
        *holds = (v != 0) == yes;
        return 0;
    }
    return qn_fail(err, "%s: key %s is %s, cannot be compared with \"%.64s\"", qn_gguf_path(e->gguf), kv->key,
                   qn_kv_type_name(kv->type), test->text);
}

static bool compare(const char *test, double a, double b)
{
    if (strcmp(test, "eq") == 0) {
        return a == b;
    }
    if (strcmp(test, "ge") == 0) {
        return a >= b;
    }
    return strcmp(test, "gt") == 0 ? a > b : a < b;
}

static int test_one(qn_eval *e, const qn_yaml_node *cond, bool *holds, qn_err *err)
{
    const qn_yaml_node *subject = only(cond, subjects, N_SUBJECTS), *test = only(cond, tests, N_TESTS);
    bool tensor = keyed(subject, "tensor") || keyed(subject, "layer_tensor"), value = keyed(subject, "value");
    const qn_kv *kv = tensor || value ? NULL : qn_value_find_key(e, subject);
    double a = 0, b = 0;
    *holds = false;
    if (keyed(test, "is")) {
        bool present = tensor ? has_tensor(e, subject) : kv != NULL;
        *holds = present == (strcmp(test->text, "present") == 0);
        return 0;
    }
    if (!value && (!kv || kv->count == 0)) {
        return 0;
    }
    if (!value && test->kind == QN_YAML_SCALAR && !is_number(test)) {
        return test_text(e, kv, test, holds, err);
    }
    if (value && value_number(e, subject, &a, err)) {
        return -1;
    }
    if (!value && !qn_value_kv_number(kv, 0, &a)) {
        return qn_fail(err, "%s: key %s is %s, a number is needed", qn_gguf_path(e->gguf), kv->key,
                       qn_kv_type_name(kv->type));
    }
    if (qn_value_number(e, test, true, &b, err)) {
        return -1;
    }
    *holds = compare(test->key, a, b);
    return 0;
}

int qn_cond_test(qn_eval *e, const qn_yaml_node *cond, bool *holds, qn_err *err)
{
    if (cond->kind != QN_YAML_SEQ) {
        return test_one(e, cond, holds, err);
    }
    *holds = true;
    for (const qn_yaml_node *c = cond->child; c && *holds; c = c->next) {
        if (test_one(e, c, holds, err)) {
            return -1;
        }
    }
    return 0;
}
