/* config_resolve.c: the leaves of one layer: defaults, base, variants of the model, kind, variants of the
 * layer. */
#include <stdio.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>

#include "model/config_internal.h"
#include "model/model_internal.h"

static void apply(qn_eval *e, const qn_group *g)
{
    for (int i = 0; i < g->n; i++) {
        e->node[g->set[i].row] = g->set[i].node;
    }
}

static void apply_kind(qn_eval *e, const qn_overlay *o, const char *kind)
{
    for (int i = 0; i < o->n_kinds; i++) {
        if (strcmp(o->kind[i], kind) == 0) {
            apply(e, &o->kind_set[i]);
        }
    }
}

static int fail_at(const qn_yaml_node *at, qn_err *err)
{
    return qn_fail_prefix(err, "%s:%d:%d", at->file, at->line, at->column);
}

static int test(qn_eval *e, const qn_variant *v, bool *holds, qn_err *err)
{
    return qn_cond_test(e, v->cond, holds, err) ? fail_at(v->cond, err) : 0;
}

/* Puts the settings that hold for layer e->il in force; `on` has room for one flag a variant. */
static int overlay_all(qn_eval *e, bool *on, const char **kind, qn_err *err)
{
    const qn_config *c = e->config;
    const qn_yaml_node *pattern = c->base.pattern;
    for (int i = 0; i < c->n_variants; i++) {
        const qn_variant *v = &c->variant[i];
        if (v->layer_level) {
            continue;
        }
        if (test(e, v, &on[i], err)) {
            return -1;
        }
        if (on[i]) {
            apply(e, &v->set.base);
            pattern = v->set.pattern ? v->set.pattern : pattern;
        }
    }
    *kind = "";
    if (pattern) {
        if (qn_pattern_kind(e, pattern, kind, err)) {
            return fail_at(pattern, err);
        }
        apply_kind(e, &c->base, *kind);
        for (int i = 0; i < c->n_variants; i++) {
            if (on[i]) {
                apply_kind(e, &c->variant[i].set, *kind);
            }
        }
    }
    for (int i = 0; i < c->n_variants; i++) {
        if (c->variant[i].layer_level && test(e, &c->variant[i], &on[i], err)) {
            return -1;
        }
    }
    for (int i = 0; i < c->n_variants; i++) {
        if (c->variant[i].layer_level && on[i]) {
            apply(e, &c->variant[i].set.base);
        }
    }
    return 0;
}

/* Names of scaling types that need no tensor of their own stretch linearly. */
static int scaling_of_file(const qn_eval *e, qn_layer_cfg *cfg, qn_err *err)
{
    static const struct {
        const char *name;
        qn_rope_scaling scaling;
    } types[] = {{"none", QN_SCALING_NONE},
                 {"linear", QN_SCALING_LINEAR},
                 {"yarn", QN_SCALING_YARN},
                 {"longrope", QN_SCALING_LINEAR}};
    char key[128];
    snprintf(key, sizeof key, "%s.rope.scaling.type", e->arch);
    const qn_kv *kv = qn_gguf_find(e->gguf, key);
    qn_str s;
    cfg->rope.scaling = QN_SCALING_LINEAR;
    if (!kv) {
        return 0;
    }
    if (!qn_kv_str(kv, 0, &s)) {
        return qn_fail(err, "%s: key %s is %s, text is needed", qn_gguf_path(e->gguf), key,
                       qn_kv_type_name(kv->type));
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (s.len == strlen(types[i].name) && memcmp(s.data, types[i].name, s.len) == 0) {
            cfg->rope.scaling = types[i].scaling;
            return 0;
        }
    }
    return qn_fail(err, "%s: key %s is \"%.*s\", must be none, linear, yarn or longrope",
                   qn_gguf_path(e->gguf), key, (int)(s.len < 64 ? s.len : 64), s.data);
}

static void set_shared_norm(qn_layer_cfg *cfg)
{
    if (cfg->ffn.norm && strcmp(cfg->ffn.norm, "shared") == 0) {
        cfg->ffn.input_shared = true;
        cfg->ffn.norm = NULL;
    }
}

/* A factor of 0 would silence the model; in a file it says that there is none. */
static void set_zero_factors(qn_layer_cfg *cfg)
{
    double *ones[] = {&cfg->embedding.scale, &cfg->residual.scale, &cfg->output.scale};
    for (size_t i = 0; i < sizeof ones / sizeof ones[0]; i++) {
        *ones[i] = *ones[i] != 0 ? *ones[i] : 1;
    }
    if (cfg->attention.scale == 0) {
        cfg->attention.scale = 1 / sqrt((double)cfg->attention.head_dim);
    }
}

static int start(qn_eval *e, const qn_config *c, const qn_gguf *g, char *arch, size_t size, qn_err *err)
{
    const qn_kv *kv = qn_gguf_find(g, "general.architecture");
    qn_str s;
    if (!kv || !qn_kv_str(kv, 0, &s) || s.len == 0 || s.len >= size || memchr(s.data, 0, s.len)) {
        return qn_fail(err, "%s: key general.architecture is %s", qn_gguf_path(g),
                       kv ? "no name" : "missing");
    }
    memcpy(arch, s.data, s.len);
    arch[s.len] = '\0';
    e->config = c;
    e->gguf = g;
    e->arch = arch;
    memcpy(e->node, c->fallback, sizeof e->node);
    apply(e, &c->base.base);
    return 0;
}

int qn_config_resolve(const qn_config *c, const qn_gguf *g, int il, int n_ctx, qn_layer_cfg *out,
                      const char **kind, qn_err *err)
{
    return qn_config_resolve_all(c, g, il, n_ctx, out, kind, NULL, err);
}

int qn_config_resolve_all(const qn_config *c, const qn_gguf *g, int il, int n_ctx, qn_layer_cfg *out,
                          const char **kind, qn_faults *faults, qn_err *err)
{
    char arch[65];
    qn_eval e = {.il = 0, .n_ctx = n_ctx};
    memset(out, 0, sizeof *out);
    *kind = "";
    if (start(&e, c, g, arch, sizeof arch, err)) {
        return -1;
    }
    int count_row = qn_leaf_find("layers.count"), skip_row = qn_leaf_find("layers.skip_last");
    if (qn_value_leaf(&e, count_row, out, err) || qn_value_leaf(&e, skip_row, out, err)) {
        return -1;
    }
    if (out->layers.skip_last >= out->layers.count) {
        return qn_fail(err, "%s: %d of %d blocks are said to be no layers", qn_gguf_path(g),
                       out->layers.skip_last, out->layers.count);
    }
    e.n_layer = out->n_layer = out->layers.count - out->layers.skip_last;
    if (il < 0 || il >= e.n_layer) {
        return qn_fail(err, "%s: layer %d of %d asked for", qn_gguf_path(g), il, e.n_layer);
    }
    e.il = il;
    bool *on = qn_calloc((size_t)c->n_variants, sizeof *on);
    if (!on) {
        return qn_fail(err, "%s: out of memory", qn_gguf_path(g));
    }
    int rc = overlay_all(&e, on, kind, err);
    free(on);
    if (rc) {
        return -1;
    }
    int before = faults ? faults->n : 0;
    for (int row = 0; row < qn_n_leaves; row++) {
        out->from[row] = e.node[row];
        if (qn_value_leaf(&e, row, out, err)) {
            if (!faults) {
                return -1;
            }
            faults->report(faults->user, err->text);
            faults->n++;
        }
    }
    if (faults && faults->n > before) {
        return qn_fail(err, "%s: layer %d: %s does not fit its keys", qn_gguf_path(g), il, c->name);
    }
    set_shared_norm(out);
    set_zero_factors(out);
    return out->rope.scaling == QN_SCALING_FILE ? scaling_of_file(&e, out, err) : 0;
}

const char *qn_config_origin(const qn_config *c, const qn_layer_cfg *cfg, const void *member, char *buf,
                             size_t size)
{
    size_t offset = (size_t)((const char *)member - (const char *)cfg);
    int row = 0;
    while (row < qn_n_leaves && qn_leaves[row].offset != offset) {
        row++;
    }
    const qn_yaml_node *n = row < qn_n_leaves ? cfg->from[row] : NULL;
    const char *path = row < qn_n_leaves ? qn_leaves[row].row.path : "?";
    if (!n || n == c->fallback[row]) {
        snprintf(buf, size, "%s, the default in %s", path, c->name);
    } else {
        snprintf(buf, size, "%s, %s:%d:%d", path, n->file, n->line, n->column);
    }
    return buf;
}
