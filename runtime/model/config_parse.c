/* config_parse.c: a YAML tree checked against the schema and sorted into base, kinds and variants. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config_internal.h"

enum { MAX_NAMES = 64, PATH_MAX_LEN = 128 };

/* Where a group of settings stands, which decides what it may set. */
typedef enum place { IN_BASE, IN_MODEL_VARIANT, IN_LAYER_VARIANT, IN_KIND } place;

static const char *const place_text[] = {"the base", "a variant", "a variant that tests a layer", "a kind"};

typedef struct reader {
    qn_config *c;
    qn_setting *buf; /* QN_LEAF_MAX, of the group being read */
    int n;
    place place;
    qn_err *err;
} reader;

static bool may_stand(leaf_level level, place p)
{
    return level == LEVEL_LAYER || p == IN_BASE || (level == LEVEL_MODEL && p == IN_MODEL_VARIANT);
}

/* True if `path` (of length n) begins some row's path and is followed by a dot there. */
static bool is_section(const char *path, size_t n)
{
    for (int i = 0; i < qn_n_leaves; i++) {
        if (strncmp(qn_leaves[i].row.path, path, n) == 0 && qn_leaves[i].row.path[n] == '.') {
            return true;
        }
    }
    return false;
}

/* Keys that may stand under prefix ("" or "rope."), each once; returns how many. */
static int known_keys(const char *prefix, place p, char words[MAX_NAMES][48], const char **list)
{
    size_t n = strlen(prefix);
    int count = 0;
    for (int i = 0; i < qn_n_leaves && count < MAX_NAMES - 4; i++) {
        const char *path = qn_leaves[i].row.path;
        if (strncmp(path, prefix, n) != 0) {
            continue;
        }
        size_t len = strcspn(path + n, ".");
        if (count && strlen(words[count - 1]) == len && strncmp(words[count - 1], path + n, len) == 0) {
            continue;
        }
        snprintf(words[count], 48, "%.*s", (int)len, path + n);
        list[count] = words[count];
        count++;
    }
    if (n == 0 && p == IN_BASE) {
        list[count++] = "architecture";
        list[count++] = "when";
    }
    if (n == 0 && (p == IN_BASE || p == IN_MODEL_VARIANT)) {
        list[count++] = "kinds";
    }
    if (strcmp(prefix, "layers.") == 0) {
        list[count++] = "pattern";
    }
    return count;
}

static int unknown_key(reader *r, const qn_yaml_node *node, const char *prefix)
{
    char words[MAX_NAMES][48], hint[128];
    const char *list[MAX_NAMES];
    int n = known_keys(prefix, r->place, words, list);
    return qn_yaml_fail_key(node, r->err, "unknown key \"%.64s\"%s%.*s%s", node->key, *prefix ? " in " : "",
                            *prefix ? (int)strlen(prefix) - 1 : 0, prefix,
                            qn_nearest_hint(node->key, list, (size_t)n, hint, sizeof hint));
}

static int add_leaf(reader *r, const qn_yaml_node *node, int row)
{
    const qn_leaf *leaf = &qn_leaves[row];
    if (!may_stand(leaf->level, r->place)) {
        return qn_yaml_fail_key(node, r->err, "%s is one for the whole model and cannot be set in %s",
                                leaf->row.path, place_text[r->place]);
    }
    if (qn_value_check(leaf, node, r->err)) {
        return -1;
    }
    r->buf[r->n++] = (qn_setting){row, node};
    return 0;
}

/* All settings under `map`, whose keys continue `prefix`. */
static int read_section(reader *r, const qn_yaml_node *map, const char *prefix)
{
    if (map->kind != QN_YAML_MAP) {
        return qn_yaml_fail(map, r->err, "expected a map (key: value)%s%.*s", *prefix ? " in " : "",
                            *prefix ? (int)strlen(prefix) - 1 : 0, prefix);
    }
    for (const qn_yaml_node *n = map->child; n; n = n->next) {
        char path[PATH_MAX_LEN];
        bool top = *prefix == '\0';
        int len = snprintf(path, sizeof path, "%s%s", prefix, n->key);
        bool fits = len < (int)sizeof path - 1 && !strchr(n->key, '.');
        int row = fits ? qn_leaf_find(path) : -1;
        if (top && (strcmp(n->key, "kinds") == 0 || strcmp(n->key, "architecture") == 0 ||
                    strcmp(n->key, "when") == 0)) {
            if (r->place != IN_BASE && !(r->place == IN_MODEL_VARIANT && n->key[0] == 'k')) {
                return qn_yaml_fail_key(n, r->err, "%s cannot stand in %s", n->key, place_text[r->place]);
            }
        } else if (fits && strcmp(path, "layers.pattern") == 0) {
            if (r->place != IN_BASE && r->place != IN_MODEL_VARIANT) {
                return qn_yaml_fail_key(n, r->err, "layers.pattern cannot stand in %s", place_text[r->place]);
            }
        } else if (row >= 0) {
            if (add_leaf(r, n, row)) {
                return -1;
            }
        } else if (fits && is_section(path, (size_t)len)) {
            path[len] = '.';
            path[len + 1] = '\0';
            if (read_section(r, n, path)) {
                return -1;
            }
        } else {
            return unknown_key(r, n, prefix);
        }
    }
    return 0;
}

static int read_group(qn_config *c, const qn_yaml_node *map, place p, qn_group *out, qn_err *err)
{
    qn_setting buf[QN_LEAF_MAX];
    reader r = {.c = c, .buf = buf, .place = p, .err = err};
    if (read_section(&r, map, "")) {
        return -1;
    }
    out->n = r.n;
    out->set = qn_arena_alloc(&c->arena, (size_t)(r.n + 1) * sizeof *out->set);
    if (!out->set) {
        return qn_yaml_fail(map, err, "out of memory");
    }
    memcpy(out->set, buf, (size_t)r.n * sizeof *buf);
    return 0;
}

static int read_kinds(qn_config *c, const qn_yaml_node *kinds, qn_overlay *out, qn_err *err)
{
    if (kinds->kind != QN_YAML_MAP) {
        return qn_yaml_fail(kinds, err, "expected a map from kinds to settings");
    }
    out->kind = qn_arena_alloc(&c->arena, (kinds->n_child + 1) * sizeof *out->kind);
    out->kind_set = qn_arena_alloc(&c->arena, (kinds->n_child + 1) * sizeof *out->kind_set);
    if (!out->kind || !out->kind_set) {
        return qn_yaml_fail(kinds, err, "out of memory");
    }
    for (const qn_yaml_node *k = kinds->child; k; k = k->next) {
        out->kind[out->n_kinds] = k->key;
        if (read_group(c, k, IN_KIND, &out->kind_set[out->n_kinds], err)) {
            return -1;
        }
        out->n_kinds++;
    }
    return 0;
}

static int read_overlay(qn_config *c, const qn_yaml_node *map, place p, qn_overlay *out, qn_err *err)
{
    if (read_group(c, map, p, &out->base, err)) {
        return -1;
    }
    out->pattern = qn_yaml_get(qn_yaml_get(map, "layers"), "pattern");
    if (out->pattern && qn_pattern_check(out->pattern, err)) {
        return -1;
    }
    const qn_yaml_node *kinds = qn_yaml_get(map, "kinds");
    return kinds ? read_kinds(c, kinds, out, err) : 0;
}

static int read_variant(qn_config *c, const qn_yaml_node *node, qn_variant *out, qn_err *err)
{
    static const char *const keys[] = {"if", "set"};
    if (qn_yaml_check_keys(node, keys, 2, err)) {
        return -1;
    }
    const qn_yaml_node *cond = qn_yaml_get(node, "if"), *set = qn_yaml_get(node, "set");
    if (!cond || !set) {
        return qn_yaml_fail(node, err, "a variant needs if and set");
    }
    if (qn_cond_check(cond, &out->layer_level, err)) {
        return -1;
    }
    out->cond = cond;
    return read_overlay(c, set, out->layer_level ? IN_LAYER_VARIANT : IN_MODEL_VARIANT, &out->set, err);
}

static int read_variants(qn_config *c, const qn_yaml_node *when, qn_err *err)
{
    if (when->kind != QN_YAML_SEQ) {
        return qn_yaml_fail(when, err, "when must be a list of variants (- if: ... set: ...)");
    }
    c->variant = qn_arena_alloc(&c->arena, (when->n_child + 1) * sizeof *c->variant);
    if (!c->variant) {
        return qn_yaml_fail(when, err, "out of memory");
    }
    for (const qn_yaml_node *v = when->child; v; v = v->next) {
        if (read_variant(c, v, &c->variant[c->n_variants], err)) {
            return -1;
        }
        c->n_variants++;
    }
    return 0;
}

static int read_architectures(qn_config *c, const qn_yaml_node *root, qn_err *err)
{
    const qn_yaml_node *a = qn_yaml_get(root, "architecture");
    if (!a) {
        return qn_yaml_fail(root, err, "the key \"architecture\" is missing");
    }
    bool list = a->kind == QN_YAML_SEQ;
    c->arch = qn_arena_alloc(&c->arena, (a->n_child + 2) * sizeof *c->arch);
    if (!c->arch) {
        return qn_yaml_fail(a, err, "out of memory");
    }
    int n = 0;
    for (const qn_yaml_node *v = list ? a->child : a; v; v = list ? v->next : NULL) {
        const char *text = NULL;
        if (qn_yaml_text(v, &text, err)) {
            return -1;
        }
        if (!*text || v->len > 64) {
            return qn_yaml_fail(v, err, "\"%.64s\" is not the name of an architecture", text);
        }
        c->arch[n++] = text;
    }
    return n ? 0 : qn_yaml_fail(a, err, "an empty list of architectures");
}

/* ---- checks of the whole ---- */

static bool pattern_has(const qn_yaml_node *pattern, const char *kind)
{
    const qn_yaml_node *kinds = pattern ? qn_yaml_get(pattern, "kinds") : NULL;
    for (const qn_yaml_node *k = kinds ? kinds->child : NULL; k; k = k->next) {
        if (strcmp(k->text, kind) == 0) {
            return true;
        }
    }
    return false;
}

/* A kind that no pattern names is a slip. */
static int check_kinds(const qn_config *c, const qn_yaml_node *kinds, qn_err *err)
{
    for (const qn_yaml_node *k = kinds ? kinds->child : NULL; k; k = k->next) {
        bool found = pattern_has(c->base.pattern, k->key);
        for (int i = 0; i < c->n_variants && !found; i++) {
            found = pattern_has(c->variant[i].set.pattern, k->key);
        }
        if (!found) {
            return qn_yaml_fail_key(k, err, "no layers.pattern has a kind \"%.64s\"", k->key);
        }
    }
    return 0;
}

static int check_whole(const qn_config *c, const qn_yaml_node *root, qn_err *err)
{
    if (check_kinds(c, qn_yaml_get(root, "kinds"), err)) {
        return -1;
    }
    const qn_yaml_node *when = qn_yaml_get(root, "when");
    for (const qn_yaml_node *v = when ? when->child : NULL; v; v = v->next) {
        if (check_kinds(c, qn_yaml_get(qn_yaml_get(v, "set"), "kinds"), err)) {
            return -1;
        }
    }
    for (int row = 0; row < qn_n_leaves; row++) {
        bool set = qn_leaves[row].row.default_text;
        for (int i = 0; i < c->base.base.n && !set; i++) {
            set = c->base.base.set[i].row == row;
        }
        if (!set) {
            return qn_yaml_fail(root, err, "%s must be set (%s)", qn_leaves[row].row.path,
                                qn_leaves[row].row.type);
        }
    }
    return 0;
}

/* The schema's defaults are YAML texts; they are read like a config's own values. */
static int read_defaults(qn_config *c, qn_err *err)
{
    char text[16 * 1024] = "";
    size_t n = 0;
    for (int i = 0; i < qn_n_leaves; i++) {
        if (qn_leaves[i].row.default_text) {
            n += (size_t)snprintf(text + n, sizeof text - n, "- %s\n", qn_leaves[i].row.default_text);
        }
        if (n >= sizeof text) {
            return qn_fail(err, "%s: the schema's defaults are too long", c->name);
        }
    }
    if (qn_yaml_load(&c->defaults, text, n, "schema", err)) {
        return -1;
    }
    const qn_yaml_node *d = qn_yaml_root(c->defaults)->child;
    for (int i = 0; i < qn_n_leaves; i++) {
        if (!qn_leaves[i].row.default_text) {
            continue;
        }
        if (qn_value_check(&qn_leaves[i], d, err)) {
            return -1;
        }
        c->fallback[i] = d;
        d = d->next;
    }
    return 0;
}

int qn_config_from_tree(qn_config **out, qn_yaml *doc, const char *name, qn_err *err)
{
    *out = NULL;
    qn_config *c = qn_calloc(1, sizeof *c);
    if (!c) {
        qn_yaml_free(doc);
        return qn_fail(err, "%s: out of memory", name);
    }
    c->doc = doc;
    c->name = qn_arena_strndup(&c->arena, name, strlen(name));
    const qn_yaml_node *root = qn_yaml_root(doc), *when = qn_yaml_get(root, "when");
    int rc = c->name ? 0 : qn_fail(err, "%s: out of memory", name);
    if (rc || read_defaults(c, err) || read_overlay(c, root, IN_BASE, &c->base, err) ||
        read_architectures(c, root, err) || (when && read_variants(c, when, err)) ||
        check_whole(c, root, err)) {
        qn_config_free(c);
        return -1;
    }
    *out = c;
    return 0;
}

int qn_config_parse(qn_config **out, const char *text, size_t len, const char *name, qn_err *err)
{
    qn_yaml *doc;
    *out = NULL;
    return qn_yaml_load(&doc, text, len, name, err) ? -1 : qn_config_from_tree(out, doc, name, err);
}

void qn_config_free(qn_config *c)
{
    if (c) {
        qn_yaml_free(c->doc);
        qn_yaml_free(c->defaults);
        qn_arena_free(&c->arena);
        free(c);
    }
}

const char *qn_config_name(const qn_config *c)
{
    return c->name;
}

const char *qn_config_arch(const qn_config *c, int i)
{
    for (int k = 0; k < i; k++) {
        if (!c->arch[k]) {
            return NULL;
        }
    }
    return i < 0 ? NULL : c->arch[i];
}
