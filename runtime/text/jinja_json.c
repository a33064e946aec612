/* jinja_json.c: values as JSON, as Python's json.dumps writes them. */
#include "text/jinja_internal.h"

#include <math.h>
#include <stdio.h>

static void put(qn_jctx *c, qn_jbuf *b, const char *text)
{
    qn_jbuf_put(c, b, text, strlen(text), QN_ORIGIN_TEMPLATE);
}

static void escape(qn_jctx *c, qn_jbuf *b, uint32_t cp, uint32_t origin)
{
    static const char plain[] = "\"\\\n\r\t\f\b", letter[] = "\"\\nrtfb";
    char text[16];
    const char *known = cp > 0 && cp < 0x80 ? strchr(plain, (int)cp) : NULL;
    if (known != NULL) {
        snprintf(text, sizeof text, "\\%c", letter[known - plain]);
    } else if (cp < 0x10000) {
        snprintf(text, sizeof text, "\\u%04x", cp);
    } else {
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10), 0xdc00 + (cp & 0x3ff));
    }
    qn_jbuf_put(c, b, text, strlen(text), origin);
}

static void put_str(qn_jctx *c, qn_jbuf *b, const qn_jstr *s, bool ascii)
{
    put(c, b, "\"");
    for (size_t i = 0, n; i < s->len; i += n) {
        size_t from = i;
        n = 0;
        while (i < s->len) { /* what needs no escape, in one piece */
            unsigned char ch = (unsigned char)s->p[i];
            if (ch < 0x20 || ch == '"' || ch == '\\' || (ascii && ch >= 0x80)) {
                break;
            }
            i++;
        }
        qn_jbuf_part(c, b, s, from, i - from);
        if (i < s->len) {
            uint32_t cp = qn_jchar(s->p + i, s->len - i, &n);
            escape(c, b, cp, qn_jstr_origin_at(s, i));
        }
    }
    put(c, b, "\"");
}

static void put_number(qn_jctx *c, qn_jbuf *b, qn_jval v)
{
    char text[QN_J_FLOAT_TEXT];
    if (v.kind == QN_J_INT) {
        snprintf(text, sizeof text, "%lld", (long long)v.i);
    } else if (isfinite(v.f)) {
        qn_jfloat_repr(v.f, text);
    } else {
        snprintf(text, sizeof text, "%s", isnan(v.f) ? "NaN" : v.f < 0 ? "-Infinity" : "Infinity");
    }
    put(c, b, text);
}

static void put_key(qn_jctx *c, qn_jbuf *b, qn_jval key, const qn_jjson *o)
{
    switch (key.kind) {
    case QN_J_STR:
        put_str(c, b, key.s, o->ascii);
        return;
    case QN_J_NONE:
    case QN_J_BOOL:
        put(c, b, key.kind == QN_J_NONE ? "\"null\"" : key.b ? "\"true\"" : "\"false\"");
        return;
    case QN_J_INT:
    case QN_J_FLOAT:
        put(c, b, "\"");
        put_number(c, b, key);
        put(c, b, "\"");
        return;
    default:
        qn_jfail(c, "keys must be str, int, float, bool or None, not %s", qn_jtype(key));
    }
}

static void new_line(qn_jctx *c, qn_jbuf *b, const qn_jjson *o, int level)
{
    if (o->indent != NULL) {
        put(c, b, "\n");
        for (int i = 0; i < level; i++) {
            qn_jbuf_str(c, b, o->indent);
        }
    }
}

/* Entries in the order that they are written in. */
static const qn_jentry **entries(qn_jctx *c, const qn_jdict *d, bool sort)
{
    qn_jval *key = qn_jalloc(c, d->n, sizeof *key), *at = qn_jalloc(c, d->n, sizeof *at);
    const qn_jentry **out = qn_jalloc(c, d->n, sizeof *out);
    for (size_t i = 0; i < d->n; i++) {
        key[i] = d->entry[i].key;
        at[i] = qn_jint((int64_t)i);
    }
    if (sort) {
        qn_jsort(c, key, at, d->n, false);
    }
    for (size_t i = 0; i < d->n; i++) {
        out[i] = &d->entry[at[i].i];
    }
    return out;
}

static void put_value(qn_jctx *c, qn_jbuf *b, qn_jval v, const qn_jjson *o, int level);

static void put_dict(qn_jctx *c, qn_jbuf *b, const qn_jdict *d, const qn_jjson *o, int level)
{
    const qn_jentry **e = entries(c, d, o->sort);
    put(c, b, "{");
    for (size_t i = 0; i < d->n; i++) {
        if (i > 0) {
            qn_jbuf_str(c, b, o->item_sep);
        }
        new_line(c, b, o, level + 1);
        put_key(c, b, e[i]->key, o);
        qn_jbuf_str(c, b, o->key_sep);
        put_value(c, b, e[i]->value, o, level + 1);
    }
    if (d->n > 0) {
        new_line(c, b, o, level);
    }
    put(c, b, "}");
}

static void put_list(qn_jctx *c, qn_jbuf *b, const qn_jlist *l, const qn_jjson *o, int level)
{
    put(c, b, "[");
    for (size_t i = 0; i < l->n; i++) {
        if (i > 0) {
            qn_jbuf_str(c, b, o->item_sep);
        }
        new_line(c, b, o, level + 1);
        put_value(c, b, l->item[i], o, level + 1);
    }
    if (l->n > 0) {
        new_line(c, b, o, level);
    }
    put(c, b, "]");
}

static void put_value(qn_jctx *c, qn_jbuf *b, qn_jval v, const qn_jjson *o, int level)
{
    qn_jenter(c);
    qn_jtick(c, 1);
    switch (v.kind) {
    case QN_J_NONE:
        put(c, b, "null");
        break;
    case QN_J_BOOL:
        put(c, b, v.b ? "true" : "false");
        break;
    case QN_J_INT:
    case QN_J_FLOAT:
        put_number(c, b, v);
        break;
    case QN_J_STR:
        put_str(c, b, v.s, o->ascii);
        break;
    case QN_J_LIST:
    case QN_J_TUPLE:
        put_list(c, b, v.l, o, level);
        break;
    case QN_J_DICT:
        put_dict(c, b, v.d, o, level);
        break;
    default:
        qn_jfail(c, "Object of type %s is not JSON serializable", qn_jtype(v));
    }
    c->depth--;
}

void qn_jput_json(qn_jctx *c, qn_jbuf *b, qn_jval v, const qn_jjson *o)
{
    put_value(c, b, v, o, 0);
}
