/* yaml.h: a strict YAML subset, read into a tree in which every node knows its line and column.
 *
 * Config files are untrusted and are written by hand, so what YAML leaves to the reader's taste is an error
 * here: duplicate keys, anchors, aliases, tags, directives, a second document, keys that are not scalars,
 * NUL characters, anything but UTF-8. A byte-order mark and CRLF line ends are accepted. Scalars stay text:
 * `no` is the two letters, not false; the typed readers below decide what a place accepts.
 *
 * Format: YAML 1.1 as libyaml reads it (https://yaml.org/spec/1.1/). */
#ifndef QN_MODEL_YAML_H
#define QN_MODEL_YAML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    QN_YAML_MAX_BYTES = 1 << 20,
    QN_YAML_MAX_DEPTH = 32, /* nested maps and sequences */
    QN_YAML_MAX_NODES = 100000,
};

typedef enum qn_yaml_kind {
    QN_YAML_SCALAR,
    QN_YAML_SEQ,
    QN_YAML_MAP,
} qn_yaml_kind;

/* Lives until its document is freed. Loops read:  for (n = map->child; n; n = n->next) ... n->key ... */
typedef struct qn_yaml_node {
    qn_yaml_kind kind;
    bool plain;       /* of a scalar: written without quotes and not as a block */
    int line, column; /* from 1; the column counts characters */
    const char *text; /* of a scalar: UTF-8, NUL-terminated, without NUL inside; NULL otherwise */
    size_t len;       /* bytes of text */
    size_t n_child;   /* items of a sequence, entries of a map */
    const char *key;  /* of a map's entry: its key; NULL otherwise */
    int key_line, key_column;
    const char *file;           /* the document's name, for messages */
    struct qn_yaml_node *child; /* first item or entry, in file order */
    struct qn_yaml_node *next;
} qn_yaml_node;

typedef struct qn_yaml qn_yaml;

/* Reads `size` bytes (which need not outlive the call). `name` stands in messages as "name:line:column: ...".
 * An empty document is an error. On failure *out is NULL. */
int qn_yaml_load(qn_yaml **out, const void *bytes, size_t size, const char *name, qn_err *err);
/* The same from a regular file; its path is the name. */
int qn_yaml_load_file(qn_yaml **out, const char *path, qn_err *err);
void qn_yaml_free(qn_yaml *doc);
const qn_yaml_node *qn_yaml_root(const qn_yaml *doc); /* never NULL */

/* The value of `key` in a map; NULL where it is absent or `map` is not a map. */
const qn_yaml_node *qn_yaml_get(const qn_yaml_node *map, const char *key);
/* Item i of a sequence or entry i of a map, O(i); NULL past the end. */
const qn_yaml_node *qn_yaml_at(const qn_yaml_node *node, size_t i);

/* Writes "file:line:column: ..." for the node and returns -1. */
int qn_yaml_fail(const qn_yaml_node *at, qn_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same at the node's key. */
int qn_yaml_fail_key(const qn_yaml_node *at, qn_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Fails unless `map` is a map all of whose keys are among the n known ones; the message suggests the nearest.
 */
int qn_yaml_check_keys(const qn_yaml_node *map, const char *const *known, size_t n, qn_err *err);

/* Typed readers: the node must be a plain scalar of exactly that form. Bool: true or false. Integer: decimal
 * with an optional sign. Number: decimal with optional fraction and exponent, finite, whatever the locale. */
int qn_yaml_bool(const qn_yaml_node *node, bool *out, qn_err *err);
int qn_yaml_i64(const qn_yaml_node *node, int64_t *out, qn_err *err);
int qn_yaml_f64(const qn_yaml_node *node, double *out, qn_err *err);
/* A scalar of any style. */
int qn_yaml_text(const qn_yaml_node *node, const char **out, qn_err *err);

/* The candidate with the least Damerau-Levenshtein distance (optimal string alignment) to `name`, if it is
 * near enough to be a likely slip (at most a third of the name's length, at least 1); else NULL. */
const char *qn_nearest(const char *name, const char *const *candidates, size_t n);

/* " (did you mean \"x\"?)" or "" in `buf`; returns buf. */
const char *qn_nearest_hint(const char *name, const char *const *candidates, size_t n, char *buf,
                            size_t size);

#endif
