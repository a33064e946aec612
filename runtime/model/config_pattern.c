/* config_pattern.c: which kind each layer is of. */
#include <math.h>
#include <string.h>

#include "model/config_internal.h"

static const char *const pattern_keys[] = {"kinds", "period", "array", "list"};
enum { N_PATTERN_KEYS = sizeof pattern_keys / sizeof pattern_keys[0] };

static int check_kinds(const qn_yaml_node *kinds, qn_err *err)
{
    if (kinds->kind != QN_YAML_SEQ || kinds->n_child < 2 || kinds->n_child > 16) {
        return qn_yaml_fail(kinds, err, "kinds must be a list of 2 to 16 names");
    }
    for (const qn_yaml_node *c = kinds->child; c; c = c->next) {
        const char *text = NULL;
        if (qn_yaml_text(c, &text, err)) {
            return -1;
        }
        if (!*text || c->len > 32) {
            return qn_yaml_fail(c, err, "\"%.64s\" is not a name of a kind", text);
        }
        for (const qn_yaml_node *d = kinds->child; d != c; d = d->next) {
            if (strcmp(text, d->text) == 0) {
                return qn_yaml_fail(c, err, "kind \"%s\" stands twice", text);
            }
        }
    }
    return 0;
}

static int check_list(const qn_yaml_node *list, size_t n_kinds, qn_err *err)
{
    if (list->kind != QN_YAML_SEQ || !list->child || list->n_child > 4096) {
        return qn_yaml_fail(list, err, "expected a list of 1 to 4096 numbers of kinds");
    }
    for (const qn_yaml_node *c = list->child; c; c = c->next) {
        int64_t v;
        if (qn_yaml_i64(c, &v, err)) {
            return -1;
        }
        if (v < 0 || v >= (int64_t)n_kinds) {
            return qn_yaml_fail(c, err, "kind %lld of %zu (they count from 0)", (long long)v, n_kinds);
        }
    }
    return 0;
}

int qn_pattern_check(const qn_yaml_node *pattern, qn_err *err)
{
    if (qn_yaml_check_keys(pattern, pattern_keys, N_PATTERN_KEYS, err)) {
        return -1;
    }
    const qn_yaml_node *kinds = qn_yaml_get(pattern, "kinds"), *period = qn_yaml_get(pattern, "period");
    const qn_yaml_node *array = qn_yaml_get(pattern, "array"), *list = qn_yaml_get(pattern, "list");
    const char *text = NULL;
    if (!kinds || !!period + !!array + !!list != 1) {
        return qn_yaml_fail(pattern, err, "a pattern needs kinds and exactly one of period, array and list");
    }
    if (check_kinds(kinds, err)) {
        return -1;
    }
    if (!list && kinds->n_child != 2) {
        return qn_yaml_fail(kinds, err, "a period or array tells two kinds apart, not %zu", kinds->n_child);
    }
    if (array) {
        return qn_yaml_text(array, &text, err);
    }
    return list ? check_list(list, kinds->n_child, err) : qn_value_check_number(period, err);
}

/* The array that a period's key holds in this file, where it holds one: whether each layer is of the first
 * kind. */
static const qn_kv *array_of(const qn_eval *e, const qn_yaml_node *period)
{
    while (period) {
        const qn_yaml_node *key = qn_yaml_get(period, "key");
        key = key ? key : qn_yaml_get(period, "global_key");
        const qn_kv *kv = key ? qn_value_find_key(e, key) : NULL;
        if (kv || !key) {
            return kv && qn_value_is_array(kv) ? kv : NULL;
        }
        period = qn_yaml_get(period, "default");
    }
    return NULL;
}

/* An array has an entry for each layer, a scalar stands for all of them. */
static int by_array(qn_eval *e, const qn_kv *kv, int *kind, qn_err *err)
{
    double v = 0;
    if (qn_value_is_array(kv) && kv->count < (uint64_t)e->n_layer) {
        return qn_fail(err, "%s: key %s has %llu values, the model has %d layers", qn_gguf_path(e->gguf),
                       kv->key, (unsigned long long)kv->count, e->n_layer);
    }
    if (!qn_value_kv_number(kv, qn_value_is_array(kv) ? (uint64_t)e->il : 0, &v)) {
        return qn_fail(err, "%s: key %s does not hold numbers", qn_gguf_path(e->gguf), kv->key);
    }
    *kind = v != 0 ? 0 : 1;
    return 0;
}

static int by_named_array(qn_eval *e, const qn_yaml_node *array, int *kind, qn_err *err)
{
    qn_yaml_node key = *array;
    key.key = "key";
    const qn_kv *kv = qn_value_find_key(e, &key);
    if (!kv) {
        return qn_fail(err, "%s: key %s.%s is missing", qn_gguf_path(e->gguf), e->arch, array->text);
    }
    return by_array(e, kv, kind, err);
}

static int by_period(qn_eval *e, const qn_yaml_node *period, int *kind, qn_err *err)
{
    const qn_kv *array = array_of(e, period);
    double p = 0;
    if (array) {
        return by_array(e, array, kind, err);
    }
    if (qn_value_number(e, period, true, &p, err)) {
        return -1;
    }
    if (p < 0 || p > 1e6 || p != floor(p)) {
        return qn_fail(err, "%s: the layers' period is %.10g, must be a whole number from 0",
                       qn_gguf_path(e->gguf), p);
    }
    *kind = p == 0 || e->il % (int)p < (int)p - 1 ? 0 : 1;
    return 0;
}

int qn_pattern_kind(qn_eval *e, const qn_yaml_node *pattern, const char **kind, qn_err *err)
{
    const qn_yaml_node *period = qn_yaml_get(pattern, "period"), *array = qn_yaml_get(pattern, "array");
    const qn_yaml_node *list = qn_yaml_get(pattern, "list");
    int i = 0;
    int64_t v = 0;
    if (list) {
        qn_yaml_i64(qn_yaml_at(list, (size_t)e->il % list->n_child), &v, err);
        i = (int)v;
    } else if (period ? by_period(e, period, &i, err) : by_named_array(e, array, &i, err)) {
        return -1;
    }
    *kind = qn_yaml_at(qn_yaml_get(pattern, "kinds"), (size_t)i)->text;
    return 0;
}
