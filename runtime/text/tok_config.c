/* tok_config.c: finds and reads the YAML files of model_configs/tokenizers/. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "model/embedded.h"
#include "text/pretokenizer.h"

enum { MAX_FILES = 512 };

struct qn_tok_config {
    qn_arena arena;
    qn_yaml *doc[MAX_FILES];
    int n_docs;
    int vocabulary; /* index of vocabulary.yaml */
};

static const char embedded_dir[] = "model_configs/tokenizers/";
static const char vocabulary_file[] = "vocabulary.yaml";

static bool is_yaml(const char *name)
{
    size_t n = strlen(name);
    return name[0] != '.' && n > 5 && strcmp(name + n - 5, ".yaml") == 0;
}

static int add(qn_tok_config *c, qn_yaml *doc, const char *file, qn_err *err)
{
    if (c->n_docs == MAX_FILES) {
        qn_yaml_free(doc);
        return qn_fail(err, "more than %d tokenizer configs", MAX_FILES);
    }
    if (strcmp(file, vocabulary_file) == 0) {
        c->vocabulary = c->n_docs;
    }
    c->doc[c->n_docs++] = doc;
    return 0;
}

static int open_embedded(qn_tok_config *c, qn_err *err)
{
    for (const qn_embedded *e = qn_embedded_files; e->name; e++) {
        size_t n = sizeof embedded_dir - 1;
        if (strncmp(e->name, embedded_dir, n) != 0 || !is_yaml(e->name + n)) {
            continue;
        }
        qn_yaml *doc;
        if (qn_yaml_load(&doc, e->data, e->size, e->name, err) || add(c, doc, e->name + n, err)) {
            return -1;
        }
    }
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names of the YAML files of a directory, sorted, so that what is read first does not hang on the file
 * system. */
static int list_dir(qn_tok_config *c, const char *dir, const char **name, int *n, qn_err *err)
{
    DIR *d = opendir(dir);
    if (!d) {
        return qn_fail(err, "%s: %m", dir);
    }
    *n = 0;
    int rc = 0;
    for (struct dirent *e; !rc && (e = readdir(d));) {
        if (!is_yaml(e->d_name)) {
            continue;
        }
        if (*n == MAX_FILES) {
            rc = qn_fail(err, "%s: more than %d YAML files", dir, MAX_FILES);
        } else if (!(name[(*n)++] = qn_arena_strndup(&c->arena, e->d_name, strlen(e->d_name)))) {
            rc = qn_fail(err, "out of memory");
        }
    }
    closedir(d);
    qsort(name, (size_t)*n, sizeof *name, by_name);
    return rc;
}

static int open_dir(qn_tok_config *c, const char *dir, qn_err *err)
{
    const char *name[MAX_FILES];
    int n;
    if (list_dir(c, dir, name, &n, err)) {
        return -1;
    }
    for (int i = 0; i < n; i++) {
        char path[4096];
        if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name[i]) >= sizeof path) {
            return qn_fail(err, "%s/%s: path too long", dir, name[i]);
        }
        qn_yaml *doc;
        if (qn_yaml_load_file(&doc, path, err) || add(c, doc, name[i], err)) {
            return -1;
        }
    }
    return 0;
}

int qn_tok_config_open(qn_tok_config **out, const char *dir, qn_err *err)
{
    *out = NULL;
    qn_tok_config *c = qn_calloc(1, sizeof *c);
    if (!c) {
        return qn_fail(err, "out of memory");
    }
    c->vocabulary = -1;
    int rc = dir ? open_dir(c, dir, err) : open_embedded(c, err);
    if (!rc && c->vocabulary < 0) {
        rc = qn_fail(err, "%s: no %s there", dir ? dir : embedded_dir, vocabulary_file);
    }
    if (rc) {
        qn_tok_config_free(c);
        return -1;
    }
    *out = c;
    return 0;
}

void qn_tok_config_free(qn_tok_config *c)
{
    if (c) {
        for (int i = 0; i < c->n_docs; i++) {
            qn_yaml_free(c->doc[i]);
        }
        qn_arena_free(&c->arena);
        free(c);
    }
}

const qn_yaml_node *qn_tok_config_vocabulary(const qn_tok_config *c)
{
    return qn_yaml_root(c->doc[c->vocabulary]);
}

/* "a (did you mean b?)": the message for a name that no file serves. */
static void unknown_pre(const qn_tok_config *c, const char *name, qn_err *err)
{
    const char *known[1024];
    size_t n = 0;
    for (int i = 0; i < c->n_docs; i++) {
        const qn_yaml_node *list = qn_yaml_get(qn_yaml_root(c->doc[i]), "pre");
        for (const qn_yaml_node *x = list ? list->child : NULL; x && n < sizeof known / sizeof known[0];
             x = x->next) {
            if (x->kind == QN_YAML_SCALAR) {
                known[n++] = x->text;
            }
        }
    }
    char hint[128];
    qn_fail(err, "pre-tokenizer \"%.64s\" is not known%s; a YAML in model_configs/tokenizers/ would add it",
            name, qn_nearest_hint(name, known, n, hint, sizeof hint));
}

const qn_yaml_node *qn_tok_config_pre(const qn_tok_config *c, const char *name, qn_err *err)
{
    for (int i = 0; i < c->n_docs; i++) {
        const qn_yaml_node *root = qn_yaml_root(c->doc[i]);
        if (i == c->vocabulary) {
            continue;
        }
        const qn_yaml_node *list = qn_yaml_get(root, "pre");
        if (!list || list->kind != QN_YAML_SEQ || !list->child) {
            qn_yaml_fail(list ? list : root, err, "`pre` must be the list of names that this file serves");
            return NULL;
        }
        for (const qn_yaml_node *x = list->child; x; x = x->next) {
            if (x->kind == QN_YAML_SCALAR && strcmp(x->text, name) == 0) {
                return root;
            }
        }
    }
    unknown_pre(c, name, err);
    return NULL;
}

const qn_yaml_node *qn_tok_config_recognise(const qn_tok_config *c, size_t i, const char **name)
{
    for (int k = 0; k < c->n_docs; k++) {
        const qn_yaml_node *root = qn_yaml_root(c->doc[k]);
        const qn_yaml_node *list = qn_yaml_get(root, "recognise");
        const qn_yaml_node *pre = qn_yaml_get(root, "pre");
        if (list && pre && pre->child && pre->child->text && i-- == 0) {
            *name = pre->child->text;
            return list;
        }
    }
    return NULL;
}
