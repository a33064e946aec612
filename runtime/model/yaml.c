#include "model/yaml.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

#include "base/alloc.h"

struct qn_yaml {
    qn_arena arena;
    const char *name;
    qn_yaml_node *root;
    size_t n_nodes;
};

/* One open map or sequence. */
struct level {
    qn_yaml_node *node;
    qn_yaml_node **tail;
    const char *key; /* of a map: the key whose value comes next */
    int key_line, key_column;
};

struct build {
    qn_yaml *doc;
    struct level level[QN_YAML_MAX_DEPTH];
    int depth;
    int n_documents;
    bool done;
};

static int fail_at(const qn_yaml *doc, yaml_mark_t mark, qn_err *err, const char *text)
{
    return qn_fail(err, "%s:%zu:%zu: %s", doc->name, mark.line + 1, mark.column + 1, text);
}

static qn_yaml_node *new_node(struct build *b, const yaml_event_t *ev, qn_yaml_kind kind, qn_err *err)
{
    if (b->doc->n_nodes >= QN_YAML_MAX_NODES) {
        qn_fail(err, "%s:%zu:%zu: more than %d nodes", b->doc->name, ev->start_mark.line + 1,
                ev->start_mark.column + 1, QN_YAML_MAX_NODES);
        return NULL;
    }
    qn_yaml_node *n = qn_arena_alloc(&b->doc->arena, sizeof *n);
    if (!n) {
        fail_at(b->doc, ev->start_mark, err, "out of memory");
        return NULL;
    }
    b->doc->n_nodes++;
    n->kind = kind;
    n->line = (int)ev->start_mark.line + 1;
    n->column = (int)ev->start_mark.column + 1;
    n->file = b->doc->name;
    return n;
}

/* Hangs a finished or just opened node under the innermost open container. */
static int attach(struct build *b, qn_yaml_node *n, const yaml_event_t *ev, qn_err *err)
{
    if (b->depth == 0) {
        b->doc->root = n;
        return 0;
    }
    struct level *top = &b->level[b->depth - 1];
    if (top->node->kind == QN_YAML_MAP) {
        if (!top->key) {
            return fail_at(b->doc, ev->start_mark, err, "a key must be a scalar");
        }
        n->key = top->key;
        n->key_line = top->key_line;
        n->key_column = top->key_column;
        top->key = NULL;
    }
    *top->tail = n;
    top->tail = &n->next;
    top->node->n_child++;
    return 0;
}

static int on_scalar(struct build *b, const yaml_event_t *ev, qn_err *err)
{
    const char *text = (const char *)ev->data.scalar.value;
    size_t len = ev->data.scalar.length;
    if (memchr(text, 0, len)) {
        return fail_at(b->doc, ev->start_mark, err, "NUL characters are not accepted");
    }
    struct level *top = b->depth ? &b->level[b->depth - 1] : NULL;
    bool is_key = top && top->node->kind == QN_YAML_MAP && !top->key;
    if (is_key && len == 0) {
        return fail_at(b->doc, ev->start_mark, err, "empty key");
    }
    char *copy = qn_arena_strndup(&b->doc->arena, text, len);
    if (!copy) {
        return fail_at(b->doc, ev->start_mark, err, "out of memory");
    }
    if (is_key) {
        top->key = copy;
        top->key_line = (int)ev->start_mark.line + 1;
        top->key_column = (int)ev->start_mark.column + 1;
        return 0;
    }
    qn_yaml_node *n = new_node(b, ev, QN_YAML_SCALAR, err);
    if (!n) {
        return -1;
    }
    n->plain = ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    n->text = copy;
    n->len = len;
    return attach(b, n, ev, err);
}

static int on_open(struct build *b, const yaml_event_t *ev, qn_yaml_kind kind, qn_err *err)
{
    if (b->depth == QN_YAML_MAX_DEPTH) {
        return qn_fail(err, "%s:%zu:%zu: nested deeper than %d", b->doc->name, ev->start_mark.line + 1,
                       ev->start_mark.column + 1, QN_YAML_MAX_DEPTH);
    }
    qn_yaml_node *n = new_node(b, ev, kind, err);
    if (!n || attach(b, n, ev, err)) {
        return -1;
    }
    struct level *l = &b->level[b->depth++];
    memset(l, 0, sizeof *l);
    l->node = n;
    l->tail = &n->child;
    return 0;
}

static int by_key(const void *a, const void *b)
{
    const qn_yaml_node *x = *(const qn_yaml_node *const *)a;
    const qn_yaml_node *y = *(const qn_yaml_node *const *)b;
    int c = strcmp(x->key, y->key);
    if (c) {
        return c;
    }
    if (x->key_line != y->key_line) {
        return x->key_line < y->key_line ? -1 : 1;
    }
    return (x->key_column > y->key_column) - (x->key_column < y->key_column);
}

static int refuse_duplicates(const qn_yaml_node *map, qn_err *err)
{
    if (map->n_child < 2) {
        return 0;
    }
    const qn_yaml_node **sorted = qn_calloc(map->n_child, sizeof *sorted);
    if (!sorted) {
        return qn_yaml_fail(map, err, "out of memory");
    }
    size_t n = 0;
    for (const qn_yaml_node *c = map->child; c; c = c->next) {
        sorted[n++] = c;
    }
    qsort(sorted, n, sizeof *sorted, by_key);
    int rc = 0;
    for (size_t i = 1; i < n && !rc; i++) {
        if (strcmp(sorted[i - 1]->key, sorted[i]->key) == 0) {
            rc = qn_yaml_fail_key(sorted[i], err, "duplicate key \"%.64s\" (first on line %d)",
                                  sorted[i]->key, sorted[i - 1]->key_line);
        }
    }
    free(sorted);
    return rc;
}

/* Whether the event carries an anchor or a tag, which only bring surprises to a config. */
static int refuse_properties(const struct build *b, const yaml_event_t *ev, qn_err *err)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    if (ev->type == YAML_SCALAR_EVENT) {
        anchor = ev->data.scalar.anchor;
        tag = ev->data.scalar.tag;
    } else if (ev->type == YAML_SEQUENCE_START_EVENT) {
        anchor = ev->data.sequence_start.anchor;
        tag = ev->data.sequence_start.tag;
    } else if (ev->type == YAML_MAPPING_START_EVENT) {
        anchor = ev->data.mapping_start.anchor;
        tag = ev->data.mapping_start.tag;
    }
    if (anchor) {
        return fail_at(b->doc, ev->start_mark, err, "anchors are not accepted");
    }
    if (tag) {
        return fail_at(b->doc, ev->start_mark, err, "tags are not accepted");
    }
    return 0;
}

static int on_document(struct build *b, const yaml_event_t *ev, qn_err *err)
{
    if (ev->data.document_start.version_directive ||
        ev->data.document_start.tag_directives.start != ev->data.document_start.tag_directives.end) {
        return fail_at(b->doc, ev->start_mark, err, "directives are not accepted");
    }
    if (++b->n_documents > 1) {
        return fail_at(b->doc, ev->start_mark, err, "a second document is not accepted");
    }
    return 0;
}

static int on_event(struct build *b, const yaml_event_t *ev, qn_err *err)
{
    if (refuse_properties(b, ev, err)) {
        return -1;
    }
    switch (ev->type) {
    case YAML_DOCUMENT_START_EVENT:
        return on_document(b, ev, err);
    case YAML_ALIAS_EVENT:
        return fail_at(b->doc, ev->start_mark, err, "aliases are not accepted");
    case YAML_SCALAR_EVENT:
        return on_scalar(b, ev, err);
    case YAML_SEQUENCE_START_EVENT:
        return on_open(b, ev, QN_YAML_SEQ, err);
    case YAML_MAPPING_START_EVENT:
        return on_open(b, ev, QN_YAML_MAP, err);
    case YAML_SEQUENCE_END_EVENT:
        b->depth--;
        return 0;
    case YAML_MAPPING_END_EVENT:
        b->depth--;
        return refuse_duplicates(b->level[b->depth].node, err);
    case YAML_STREAM_END_EVENT:
        b->done = true;
        return 0;
    default:
        return 0;
    }
}

/* libyaml gives a byte offset for malformed input and a mark for everything else. */
static int parser_failed(const qn_yaml *doc, const yaml_parser_t *p, const unsigned char *bytes, size_t size,
                         qn_err *err)
{
    const char *problem = p->problem ? p->problem : "cannot be read";
    if (p->error == YAML_MEMORY_ERROR) {
        return qn_fail(err, "%s: out of memory", doc->name);
    }
    if (p->error != YAML_READER_ERROR) {
        return fail_at(doc, p->problem_mark, err, problem);
    }
    size_t line = 1, column = 1;
    for (size_t i = 0; i < p->problem_offset && i < size; i++) {
        if (bytes[i] == '\n') {
            line++;
            column = 1;
        } else if ((bytes[i] & 0xc0) != 0x80) {
            column++;
        }
    }
    return qn_fail(err, "%s:%zu:%zu: not valid UTF-8 text: %s", doc->name, line, column, problem);
}

static int parse(qn_yaml *doc, const unsigned char *bytes, size_t size, qn_err *err)
{
    yaml_parser_t p;
    struct build b = {.doc = doc};
    if (!yaml_parser_initialize(&p)) {
        return qn_fail(err, "%s: out of memory", doc->name);
    }
    yaml_parser_set_encoding(&p, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&p, bytes, size);
    int rc = 0;
    while (!rc && !b.done) {
        yaml_event_t ev;
        if (!yaml_parser_parse(&p, &ev)) {
            rc = parser_failed(doc, &p, bytes, size, err);
            break;
        }
        rc = on_event(&b, &ev, err);
        yaml_event_delete(&ev);
    }
    yaml_parser_delete(&p);
    if (!rc && !doc->root) {
        rc = qn_fail(err, "%s:1:1: empty document", doc->name);
    }
    return rc;
}

int qn_yaml_load(qn_yaml **out, const void *bytes, size_t size, const char *name, qn_err *err)
{
    *out = NULL;
    if (size > QN_YAML_MAX_BYTES) {
        return qn_fail(err, "%s: %zu bytes, more than a config may have (%d)", name, size, QN_YAML_MAX_BYTES);
    }
    qn_yaml *doc = qn_calloc(1, sizeof *doc);
    if (!doc) {
        return qn_fail(err, "%s: out of memory", name);
    }
    doc->name = qn_arena_strndup(&doc->arena, name, strlen(name));
    const unsigned char *p = bytes;
    if (size >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0) {
        p += 3;
        size -= 3;
    }
    if (!doc->name || parse(doc, p, size, err)) {
        if (!doc->name) {
            qn_fail(err, "%s: out of memory", name);
        }
        qn_yaml_free(doc);
        return -1;
    }
    *out = doc;
    return 0;
}

/* The whole of an open regular file of `size` bytes; fewer bytes (a file that shrank) are an error. */
static int read_whole(int fd, char *buf, size_t size)
{
    for (size_t got = 0; got < size;) {
        ssize_t n = read(fd, buf + got, size - got);
        if (n <= 0) {
            return -1;
        }
        got += (size_t)n;
    }
    return 0;
}

int qn_yaml_load_file(qn_yaml **out, const char *path, qn_err *err)
{
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return qn_fail(err, "%s: %m", path);
    }
    struct stat st;
    int rc = -1;
    char *buf = NULL;
    if (fstat(fd, &st)) {
        qn_fail(err, "%s: %m", path);
    } else if (!S_ISREG(st.st_mode)) {
        qn_fail(err, "%s: not a regular file", path);
    } else if (st.st_size > QN_YAML_MAX_BYTES) {
        qn_fail(err, "%s: %lld bytes, more than a config may have (%d)", path, (long long)st.st_size,
                QN_YAML_MAX_BYTES);
    } else if (!(buf = malloc((size_t)st.st_size + 1))) {
        qn_fail(err, "%s: out of memory", path);
    } else if (read_whole(fd, buf, (size_t)st.st_size)) {
        qn_fail(err, "%s: cannot be read to its end (%lld bytes)", path, (long long)st.st_size);
    } else {
        rc = qn_yaml_load(out, buf, (size_t)st.st_size, path, err);
    }
    free(buf);
    close(fd);
    return rc;
}

void qn_yaml_free(qn_yaml *doc)
{
    if (doc) {
        qn_arena arena = doc->arena;
        free(doc);
        qn_arena_free(&arena);
    }
}

const qn_yaml_node *qn_yaml_root(const qn_yaml *doc)
{
    return doc->root;
}

const qn_yaml_node *qn_yaml_get(const qn_yaml_node *map, const char *key)
{
    if (!map || map->kind != QN_YAML_MAP) {
        return NULL;
    }
    for (const qn_yaml_node *c = map->child; c; c = c->next) {
        if (strcmp(c->key, key) == 0) {
            return c;
        }
    }
    return NULL;
}

const qn_yaml_node *qn_yaml_at(const qn_yaml_node *node, size_t i)
{
    const qn_yaml_node *c = node ? node->child : NULL;
    while (c && i--) {
        c = c->next;
    }
    return c;
}
