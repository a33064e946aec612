// rooms: room_model
/* The YAML reader on arbitrary bytes: what it accepts keeps the promises of yaml.h. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

/* Depth is limited by the reader. */
static size_t walk(const qn_yaml_node *n, int depth)
{
    size_t nodes = 1, n_child = 0;
    must(depth <= QN_YAML_MAX_DEPTH && n->line >= 1 && n->column >= 1 && n->file);
    must((n->kind == QN_YAML_SCALAR) == (n->text != NULL));
    must(!n->text || strlen(n->text) == n->len);
    for (const qn_yaml_node *c = n->child; c; c = c->next) {
        must((n->kind == QN_YAML_MAP) == (c->key != NULL));
        must(!c->key || (*c->key && qn_yaml_get(n, c->key) == c));
        nodes += walk(c, depth + 1);
        n_child++;
        if (n_child > 300) { /* the look-up above is linear */
            return nodes;
        }
    }
    must(n_child == n->n_child);
    qn_err err;
    bool b;
    int64_t i;
    double d;
    must(qn_yaml_bool(n, &b, &err) == 0 || err.text[0]);
    must(qn_yaml_i64(n, &i, &err) == 0 || err.text[0]);
    must(qn_yaml_f64(n, &d, &err) == 0 || err.text[0]);
    return nodes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qn_yaml *doc;
    qn_err err = {""};
    if (qn_yaml_load(&doc, data, size, "fuzz.yaml", &err)) {
        must(!doc && strncmp(err.text, "fuzz.yaml:", 10) == 0);
        return 0;
    }
    static const char *const known[] = {"pre", "split", "ignore_merges"};
    const qn_yaml_node *root = qn_yaml_root(doc);
    must(walk(root, 0) <= QN_YAML_MAX_NODES);
    (void)qn_yaml_check_keys(root, known, 3, &err);
    qn_yaml_free(doc);
    return 0;
}
