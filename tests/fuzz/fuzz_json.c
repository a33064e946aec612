// rooms: room_text
/* The JSON reader on arbitrary bytes; what it accepts is written and read again and must be the same tree. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

/* Depth is at most 64. */
static void write_tree(qn_json_out *o, const qn_json *v)
{
    switch (v->kind) {
    case QN_JSON_NULL:
        qn_json_null(o);
        return;
    case QN_JSON_BOOL:
        qn_json_bool(o, v->truth);
        return;
    case QN_JSON_NUMBER:
        if (v->is_int) {
            qn_json_int(o, v->integer);
        } else {
            qn_json_double(o, v->number);
        }
        return;
    case QN_JSON_STRING:
        qn_json_string(o, v->text, v->text_len);
        return;
    case QN_JSON_ARRAY:
    case QN_JSON_OBJECT:
        break;
    }
    qn_json_open(o, v->kind == QN_JSON_OBJECT ? '{' : '[');
    for (const qn_json *c = v->child; c; c = c->next) {
        if (c->key) {
            qn_json_key(o, c->key);
        }
        write_tree(o, c);
    }
    qn_json_close(o, v->kind == QN_JSON_OBJECT ? '}' : ']');
}

static void must_equal(const qn_json *a, const qn_json *b)
{
    if (a->kind == QN_JSON_NUMBER && isinf(a->number)) { /* beyond double's range: written as null */
        must(b->kind == QN_JSON_NULL);
        return;
    }
    must(a->kind == b->kind && a->truth == b->truth && a->number == b->number && a->n_child == b->n_child);
    must(!a->key == !b->key && (!a->key || strcmp(a->key, b->key) == 0));
    must(a->text_len == b->text_len && (!a->text_len || memcmp(a->text, b->text, a->text_len) == 0));
    const qn_json *x = a->child, *y = b->child;
    for (; x && y; x = x->next, y = y->next) {
        must_equal(x, y);
    }
    must(!x && !y);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qn_arena arena = {0};
    qn_err err;
    const qn_json *a, *b;
    if (qn_json_parse(&a, &arena, (const char *)data, size, &err) == 0) {
        qn_json_out o = {0};
        o.indented = size % 2;
        write_tree(&o, a);
        must(!o.failed && qn_json_parse(&b, &arena, o.text, o.len, &err) == 0);
        must_equal(a, b);
        qn_json_free(&o);
    }
    qn_arena_free(&arena);
    return 0;
}
