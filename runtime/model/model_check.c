#include "model/model_check.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config_internal.h"
#include "model/model_internal.h"

/* One finding; layers that share it are counted. */
typedef struct finding {
    char *text, *shape; /* as found first; with `*` for the layer's number */
    bool fault;
    int n;
} finding;

typedef struct checker {
    finding *list;
    int n, cap;
    bool failed; /* out of memory */
} checker;

/* Copy of text with the digits behind each "blk." and "layer " replaced by `*`. */
static char *without_layer(const char *text)
{
    static const char *const marks[] = {"blk.", "layer "};
    char *out = malloc(strlen(text) + 3);
    size_t at = 0;
    for (const char *p = text; out && *p;) {
        out[at++] = *p++;
        for (int k = 0; k < 2; k++) {
            size_t len = strlen(marks[k]);
            bool here =
                at >= len && strncmp(out + at - len, marks[k], len) == 0 && isdigit((unsigned char)*p);
            if (here) {
                while (isdigit((unsigned char)*p)) {
                    p++;
                }
                out[at++] = '*';
            }
        }
    }
    if (out) {
        out[at] = '\0';
    }
    return out;
}

static void add(checker *c, bool fault, const char *text)
{
    char *shape = without_layer(text);
    for (int i = 0; shape && i < c->n; i++) {
        if (strcmp(c->list[i].shape, shape) == 0) {
            c->list[i].n += strcmp(c->list[i].text, text) != 0; /* the same twice is one */
            free(shape);
            return;
        }
    }
    if (c->n == c->cap) {
        int cap = c->cap ? 2 * c->cap : 32;
        finding *bigger = realloc(c->list, sizeof *bigger * (size_t)cap);
        c->list = bigger ? bigger : c->list;
        c->cap = bigger ? cap : c->cap;
    }
    char *copy = strdup(text);
    if (!shape || !copy || c->n == c->cap) {
        free(shape);
        free(copy);
        c->failed = true;
        return;
    }
    c->list[c->n++] = (finding){copy, shape, fault, 1};
}

static void add_fault(void *user, const char *text)
{
    add(user, true, text);
}

int qn_config_load(qn_config **out, const char *path, qn_err *err)
{
    qn_yaml *doc;
    *out = NULL;
    return qn_yaml_load_file(&doc, path, err) ? -1 : qn_config_from_tree(out, doc, path, err);
}

/* Does a value somewhere below read this key? */
static bool reads(const qn_yaml_node *n, const char *key, const char *bare)
{
    if (n->kind == QN_YAML_SCALAR) {
        bool own = n->key && (strcmp(n->key, "key") == 0 || strcmp(n->key, "array") == 0);
        return (own && strcmp(n->text, bare) == 0) ||
               (n->key && strcmp(n->key, "global_key") == 0 && strcmp(n->text, key) == 0);
    }
    for (const qn_yaml_node *c = n->child; c; c = c->next) {
        if (reads(c, key, bare)) {
            return true;
        }
    }
    return false;
}

/* Keys that are read without a word in any config, or say nothing about the arithmetic. */
static bool is_common(const char *bare)
{
    static const char *const names[] = {"context_length",        "vocab_size",        "rope.scaling.type",
                                        "expert_count",          "expert_used_count", "attention.causal",
                                        "rope.scaling.finetuned"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(bare, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void check_keys(checker *k, const qn_config *c, const qn_gguf *g, const char *arch)
{
    size_t len = strlen(arch);
    for (uint64_t i = 0; i < qn_gguf_n_kv(g); i++) {
        const char *key = qn_gguf_kv(g, i)->key;
        if (strncmp(key, arch, len) != 0 || key[len] != '.' || is_common(key + len + 1)) {
            continue;
        }
        if (!reads(qn_yaml_root(c->doc), key, key + len + 1) &&
            !reads(qn_yaml_root(c->defaults), key, key + len + 1)) {
            char text[512];
            snprintf(text, sizeof text, "key %.200s is in the file, but no value of %.200s reads it", key,
                     c->name);
            add(k, false, text);
        }
    }
}

static bool serves(const qn_config *c, const char *arch)
{
    for (int i = 0; qn_config_arch(c, i); i++) {
        if (strcmp(qn_config_arch(c, i), arch) == 0) {
            return true;
        }
    }
    return false;
}

static void check_arch(checker *k, const qn_config *c, const qn_gguf *g, char *arch, size_t size)
{
    const qn_kv *kv = qn_gguf_find(g, "general.architecture");
    qn_str s = {"", 0};
    char text[600];
    if (kv) {
        qn_kv_str(kv, 0, &s);
    }
    snprintf(arch, size, "%.*s", (int)(s.len < 64 ? s.len : 64), s.data);
    if (!serves(c, arch)) {
        snprintf(text, sizeof text, "%.200s: architecture is \"%s\", %.200s serves \"%s\"", qn_gguf_path(g),
                 arch, c->name, qn_config_arch(c, 0));
        add(k, true, text);
    }
}

/* Calls back and frees. Returns the number of faults. */
static int hand_over(checker *k, qn_check_report report, void *user)
{
    int faults = 0;
    for (int i = 0; i < k->n; i++) {
        finding *f = &k->list[i];
        char text[QN_ERR_MAX + 64];
        if (f->n > 1) {
            snprintf(text, sizeof text, "%.*s (and %d more alike)", QN_ERR_MAX, f->text, f->n - 1);
        } else {
            snprintf(text, sizeof text, "%.*s", QN_ERR_MAX, f->text);
        }
        report(user, f->fault, text);
        faults += f->fault;
        free(f->text);
        free(f->shape);
    }
    free(k->list);
    return faults;
}

int qn_model_check(const qn_config *c, qn_gguf *g, int n_ctx, qn_check_report report, void *user,
                   int *n_bound, qn_err *err)
{
    checker k = {0};
    char arch[65];
    qn_model *m;
    qn_faults faults = {add_fault, &k, 0};
    const qn_model_opts opts = {.n_ctx = n_ctx};
    *n_bound = 0;
    check_arch(&k, c, g, arch, sizeof arch);
    int rc = qn_model_with_faults(&m, g, c, &opts, &faults, err);
    for (int i = 0; !rc && m && m->unused[i]; i++) {
        char text[400];
        snprintf(text, sizeof text, "tensor %.200s is in the file, but nothing in %.150s takes it",
                 m->unused[i], c->name);
        add(&k, false, text);
        --*n_bound;
    }
    if (!rc && m) {
        *n_bound += (int)qn_gguf_n_tensors(g);
        m->gguf = NULL;
        qn_model_free(m);
    }
    if (!rc) {
        check_keys(&k, c, g, arch);
    }
    bool failed = k.failed;
    int n = hand_over(&k, report, user);
    return failed ? qn_fail(err, "out of memory") : rc ? -1 : n;
}

int qn_model_bind_config(qn_model **out, qn_gguf *g, const qn_config *c, const qn_model_opts *opts,
                         qn_err *err)
{
    return qn_model_with_config(out, g, c, opts, err);
}
