/* jinja_value.c: failing, memory, text that knows its origins, lists and dicts. */
#include "text/jinja_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void qn_jfail(qn_jctx *c, const char *fmt, ...)
{
    char text[QN_ERR_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    qn_fail(c->err, "%s:%d: %s", c->label, c->line, text);
    longjmp(c->fail, 1);
}

void qn_jtick(qn_jctx *c, uint64_t n)
{
    c->steps += n;
    if (c->steps > c->limits.steps) {
        qn_jfail(c, "the template takes more than %llu steps", (unsigned long long)c->limits.steps);
    }
}

void *qn_jalloc(qn_jctx *c, size_t n, size_t size)
{
    uint64_t bytes;
    if (!qn_mul_u64(n, size, &bytes) || bytes > c->limits.memory - c->used) {
        qn_jfail(c, "the template needs more than %zu MiB of memory", c->limits.memory >> 20);
    }
    c->used += bytes + 16;
    c->used = c->used > c->limits.memory ? c->limits.memory : c->used;
    void *p = qn_arena_alloc(&c->arena, bytes > 0 ? bytes : 1);
    if (p == NULL) {
        qn_jfail(c, "out of memory");
    }
    return p;
}

char *qn_jsprintf(qn_jctx *c, const char *fmt, ...)
{
    char text[QN_ERR_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t n = strlen(text) + 1;
    char *p = qn_jalloc(c, n, 1);
    memcpy(p, text, n);
    return p;
}

/* --- text --- */

qn_jbuf *qn_jbuf_new(qn_jctx *c, size_t cap)
{
    qn_jbuf *b = qn_jalloc(c, 1, sizeof *b);
    b->data = qn_jalloc(c, cap, 1);
    b->cap = cap;
    return b;
}

static void add_run(qn_jctx *c, qn_jbuf *b, uint32_t origin)
{
    if (b->n_runs > 0 && b->run[b->n_runs - 1].origin == origin) {
        return;
    }
    if (b->n_runs == b->cap_runs) {
        size_t cap = b->cap_runs > 0 ? b->cap_runs * 2 : 1;
        qn_jrun *run = qn_jalloc(c, cap, sizeof *run);
        if (b->n_runs > 0) {
            memcpy(run, b->run, b->n_runs * sizeof *run);
        }
        b->run = run;
        b->cap_runs = cap;
    }
    b->run[b->n_runs++] = (qn_jrun){.start = b->len, .origin = origin};
}

void qn_jbuf_put(qn_jctx *c, qn_jbuf *b, const char *p, size_t n, uint32_t origin)
{
    if (n == 0) {
        return;
    }
    qn_jtick(c, n / 16);
    if (n > b->cap - b->len) {
        size_t cap = b->len + n > SIZE_MAX / 2 ? SIZE_MAX : 2 * (b->len + n);
        char *data = qn_jalloc(c, cap, 1);
        if (b->len > 0) {
            memcpy(data, b->data, b->len);
        }
        b->data = data;
        b->cap = cap;
    }
    add_run(c, b, origin);
    memcpy(b->data + b->len, p, n);
    b->len += n;
}

/* The run that byte `at` lies in. */
static size_t run_of(const qn_jbuf *b, size_t at)
{
    size_t lo = 0, hi = b->n_runs;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (b->run[mid].start <= at) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return lo;
}

void qn_jbuf_part(qn_jctx *c, qn_jbuf *b, const qn_jstr *s, size_t off, size_t len)
{
    const qn_jbuf *from = s->buf;
    size_t at = s->off + off, end = at + len;
    for (size_t r = len > 0 ? run_of(from, at) : 0; at < end; r++) {
        size_t stop = r + 1 < from->n_runs && from->run[r + 1].start < end ? from->run[r + 1].start : end;
        qn_jbuf_put(c, b, s->p + (at - s->off), stop - at, from->run[r].origin);
        at = stop;
    }
}

void qn_jbuf_str(qn_jctx *c, qn_jbuf *b, const qn_jstr *s)
{
    qn_jbuf_part(c, b, s, 0, s->len);
}

static qn_jval window(qn_jctx *c, qn_jbuf *b, const char *p, size_t off, size_t len)
{
    qn_jstr *s = qn_jalloc(c, 1, sizeof *s);
    *s = (qn_jstr){.buf = b, .p = p, .off = off, .len = len, .n_chars = len < 2 ? len : SIZE_MAX};
    return (qn_jval){.kind = QN_J_STR, .s = s};
}

qn_jval qn_jbuf_value(qn_jctx *c, qn_jbuf *b)
{
    return window(c, b, b->data, 0, b->len);
}

qn_jval qn_jstr_new(qn_jctx *c, const char *p, size_t len, uint32_t origin)
{
    qn_jbuf *b = qn_jbuf_new(c, len);
    qn_jbuf_put(c, b, p, len, origin);
    return qn_jbuf_value(c, b);
}

qn_jval qn_jstr_c(qn_jctx *c, const char *text)
{
    return qn_jstr_new(c, text, strlen(text), QN_ORIGIN_TEMPLATE);
}

qn_jval qn_jstr_part(qn_jctx *c, const qn_jstr *s, size_t off, size_t len)
{
    qn_jval v = window(c, s->buf, s->p + off, s->off + off, len);
    v.s->markup = s->markup;
    return v;
}

qn_jval qn_jstr_mark(qn_jctx *c, const qn_jstr *s, bool markup)
{
    qn_jval v = window(c, s->buf, s->p, s->off, s->len);
    v.s->n_chars = s->n_chars;
    v.s->markup = markup;
    return v;
}

qn_jval qn_jstr_concat(qn_jctx *c, const qn_jstr *a, const qn_jstr *b)
{
    qn_jbuf *to = a->buf;
    size_t off = a->off;
    if (b->len == 0 || a->len == 0) {
        const qn_jstr *s = b->len == 0 ? a : b;
        return s->markup == a->markup ? (qn_jval){.kind = QN_J_STR, .s = (qn_jstr *)s}
                                      : qn_jstr_mark(c, s, a->markup);
    }
    bool in_place = a->off + a->len == to->len && a->p == to->data + a->off && to->cap - to->len >= b->len;
    if (!in_place) {
        to = qn_jbuf_new(c, a->len + b->len + (a->len + b->len) / 2);
        off = 0;
        qn_jbuf_str(c, to, a);
    }
    qn_jbuf_str(c, to, b);
    qn_jval v = window(c, to, to->data + off, off, a->len + b->len);
    v.s->markup = a->markup;
    return v;
}

uint32_t qn_jstr_origin_at(const qn_jstr *s, size_t off)
{
    return off < s->len ? s->buf->run[run_of(s->buf, s->off + off)].origin : QN_ORIGIN_TEMPLATE;
}

bool qn_jstr_is(const qn_jstr *s, const char *text)
{
    return s->len == strlen(text) && memcmp(s->p, text, s->len) == 0;
}

bool qn_jstr_eq(const qn_jstr *a, const qn_jstr *b)
{
    return a == b || (a->len == b->len && memcmp(a->p, b->p, a->len) == 0);
}

int qn_jstr_cmp(const qn_jstr *a, const qn_jstr *b)
{
    int d = memcmp(a->p, b->p, a->len < b->len ? a->len : b->len);
    return d != 0 ? d : (a->len > b->len) - (a->len < b->len);
}

char *qn_jstr_cstr(qn_jctx *c, const qn_jstr *s)
{
    char *p = qn_jalloc(c, s->len + 1, 1);
    memcpy(p, s->p, s->len);
    return p;
}

/* --- lists and dicts --- */

static qn_jval new_list(qn_jctx *c, qn_jkind kind, size_t cap)
{
    qn_jlist *l = qn_jalloc(c, 1, sizeof *l);
    l->item = qn_jalloc(c, cap, sizeof *l->item);
    l->cap = cap;
    return (qn_jval){.kind = (uint8_t)kind, .l = l};
}

qn_jval qn_jlist_new(qn_jctx *c, size_t cap)
{
    return new_list(c, QN_J_LIST, cap);
}

qn_jval qn_jtuple_new(qn_jctx *c, size_t cap)
{
    return new_list(c, QN_J_TUPLE, cap);
}

qn_jval qn_jtuple2(qn_jctx *c, qn_jval a, qn_jval b)
{
    qn_jval v = qn_jtuple_new(c, 2);
    qn_jlist_push(c, v.l, a);
    qn_jlist_push(c, v.l, b);
    return v;
}

void qn_jlist_push(qn_jctx *c, qn_jlist *l, qn_jval v)
{
    if (l->n == l->cap) {
        size_t cap = l->cap > 0 ? 2 * l->cap : 4;
        qn_jval *item = qn_jalloc(c, cap, sizeof *item);
        if (l->n > 0) {
            memcpy(item, l->item, l->n * sizeof *item);
        }
        l->item = item;
        l->cap = cap;
    }
    l->item[l->n++] = v;
}

qn_jval qn_jdict_new(qn_jctx *c)
{
    return (qn_jval){.kind = QN_J_DICT, .d = qn_jalloc(c, 1, sizeof(qn_jdict))};
}

static uint64_t hash_bytes(const char *p, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ (unsigned char)p[i]) * 0x100000001b3u;
    }
    return h ^ h >> 29;
}

bool qn_jhashable(qn_jctx *c, qn_jval v)
{
    bool yes = v.kind != QN_J_LIST && v.kind != QN_J_DICT && v.kind != QN_J_VIEW;
    qn_jtick(c, 1);
    qn_jenter(c);
    for (size_t i = 0; v.kind == QN_J_TUPLE && yes && i < v.l->n; i++) {
        yes = qn_jhashable(c, v.l->item[i]);
    }
    c->depth--;
    return yes;
}

/* Equal values have equal hashes: 1, 1.0 and true are equal. */
uint64_t qn_jhash(qn_jctx *c, qn_jval v)
{
    uint64_t h = 7;
    qn_jtick(c, 1);
    switch (v.kind) {
    case QN_J_STR:
        qn_jtick(c, v.s->len / 16);
        return hash_bytes(v.s->p, v.s->len);
    case QN_J_BOOL:
        return (uint64_t)v.b * 0x9e3779b97f4a7c15u;
    case QN_J_INT:
        return (uint64_t)v.i * 0x9e3779b97f4a7c15u;
    case QN_J_FLOAT:
        return v.f >= -9e18 && v.f <= 9e18 && (double)(int64_t)v.f == v.f
                   ? (uint64_t)(int64_t)v.f * 0x9e3779b97f4a7c15u
                   : hash_bytes((const char *)&v.f, sizeof v.f);
    case QN_J_TUPLE:
        qn_jenter(c);
        for (size_t i = 0; i < v.l->n; i++) {
            h = h * 31 + qn_jhash(c, v.l->item[i]);
        }
        c->depth--;
        return h;
    case QN_J_UNDEFINED:
    case QN_J_NONE:
        return v.kind;
    default:
        break;
    }
    if (!qn_jhashable(c, v)) {
        qn_jfail(c, "unhashable type: '%s'", qn_jtype(v));
    }
    return (uint64_t)(uintptr_t)v.d;
}

enum { FEW = 8 };

static void index_entry(qn_jdict *d, size_t i)
{
    size_t at = d->entry[i].hash & d->mask;
    while (d->slot[at] != 0) {
        at = (at + 1) & d->mask;
    }
    d->slot[at] = (uint32_t)(i + 1);
}

static qn_jentry *find(qn_jctx *c, const qn_jdict *d, qn_jval key, uint64_t hash)
{
    if (d->slot == NULL) {
        for (size_t i = 0; i < d->n; i++) {
            if (d->entry[i].hash == hash && qn_jequal(c, d->entry[i].key, key)) {
                return &d->entry[i];
            }
        }
        return NULL;
    }
    for (size_t at = hash & d->mask; d->slot[at] != 0; at = (at + 1) & d->mask) {
        qn_jentry *e = &d->entry[d->slot[at] - 1];
        qn_jtick(c, 1);
        if (e->hash == hash && qn_jequal(c, e->key, key)) {
            return e;
        }
    }
    return NULL;
}

void qn_jdict_set(qn_jctx *c, qn_jdict *d, qn_jval key, qn_jval value)
{
    if (!qn_jhashable(c, key)) {
        qn_jfail(c, "unhashable type: '%s'", qn_jtype(key));
    }
    uint64_t hash = qn_jhash(c, key);
    qn_jentry *e = find(c, d, key, hash);
    if (e != NULL) {
        e->value = value;
        return;
    }
    if (d->n == d->cap) {
        size_t cap = d->cap > 0 ? 2 * d->cap : 4;
        qn_jentry *entry = qn_jalloc(c, cap, sizeof *entry);
        if (d->n > 0) {
            memcpy(entry, d->entry, d->n * sizeof *entry);
        }
        d->entry = entry;
        d->cap = cap;
        if (cap > FEW) {
            d->slot = qn_jalloc(c, 2 * cap, sizeof *d->slot);
            d->mask = 2 * cap - 1;
            for (size_t i = 0; i < d->n; i++) {
                index_entry(d, i);
            }
        }
    }
    d->entry[d->n] = (qn_jentry){.key = key, .value = value, .hash = hash};
    if (d->slot != NULL) {
        index_entry(d, d->n);
    }
    d->n++;
}

const qn_jval *qn_jdict_get(qn_jctx *c, const qn_jdict *d, qn_jval key)
{
    const qn_jentry *e = find(c, d, key, qn_jhash(c, key));
    return e != NULL ? &e->value : NULL;
}

const qn_jval *qn_jdict_find_str(qn_jctx *c, const qn_jdict *d, const qn_jstr *key)
{
    return qn_jdict_get(c, d, (qn_jval){.kind = QN_J_STR, .s = (qn_jstr *)key});
}
