#include "text/stop.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

struct needle {
    const char *text;
    size_t len;
    size_t *border; /* Knuth-Morris-Pratt: longest proper border of each prefix, [len] */
    size_t matched; /* bytes of it that the end of the text so far equals */
};

struct qn_stop {
    qn_arena arena;
    struct needle *needle;
    size_t n_needles;
    char *buf; /* text not yet let out, then room for the next piece */
    size_t n_held, size;
    size_t n_out; /* bytes at the start of buf that were handed out by the last call */
    bool stopped;
};

static void make_border(struct needle *d)
{
    size_t k = 0;
    for (size_t i = 1; i < d->len; i++) {
        while (k && d->text[i] != d->text[k]) {
            k = d->border[k - 1];
        }
        k += d->text[i] == d->text[k];
        d->border[i] = k;
    }
}

int qn_stop_new(qn_stop **out, const char *const *strings, size_t n, qn_err *err)
{
    *out = NULL;
    qn_stop *s = qn_calloc(1, sizeof *s);
    if (!s) {
        return qn_fail(err, "out of memory");
    }
    s->n_needles = n;
    s->needle = qn_arena_alloc(&s->arena, n * sizeof *s->needle);
    bool ok = s->needle != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        struct needle *d = &s->needle[i];
        d->len = strlen(strings[i]);
        if (d->len == 0) {
            qn_stop_free(s);
            return qn_fail(err, "a stop string is empty");
        }
        d->text = qn_arena_strndup(&s->arena, strings[i], d->len);
        d->border = qn_arena_alloc(&s->arena, d->len * sizeof *d->border);
        ok = d->text && d->border;
        if (ok) {
            make_border(d);
        }
    }
    if (!ok) {
        qn_stop_free(s);
        return qn_fail(err, "out of memory");
    }
    *out = s;
    return 0;
}

void qn_stop_free(qn_stop *s)
{
    if (s) {
        qn_arena_free(&s->arena);
        free(s->buf);
        free(s);
    }
}

/* Drops what the last call handed out and appends n bytes. */
static int take(qn_stop *s, const void *bytes, size_t n, qn_err *err)
{
    s->n_held -= s->n_out;
    if (s->n_out) {
        memmove(s->buf, s->buf + s->n_out, s->n_held);
    }
    s->n_out = 0;
    if (n > s->size - s->n_held) {
        size_t size = (s->n_held + n) * 2;
        char *buf = size > n ? realloc(s->buf, size) : NULL;
        if (!buf) {
            return qn_fail(err, "out of memory");
        }
        s->buf = buf;
        s->size = size;
    }
    memcpy(s->buf + s->n_held, bytes, n);
    s->n_held += n;
    return 0;
}

/* One more byte of text; the index of a stop string that it completes, else -1. Where several are completed
 * at once, the one that began first is the longest. */
static int advance(qn_stop *s, char c)
{
    int found = -1;
    for (size_t i = 0; i < s->n_needles; i++) {
        struct needle *d = &s->needle[i];
        while (d->matched && d->text[d->matched] != c) {
            d->matched = d->border[d->matched - 1];
        }
        d->matched += d->text[d->matched] == c;
        if (d->matched == d->len) {
            if (found < 0 || d->len > s->needle[found].len) {
                found = (int)i;
            }
            d->matched = d->border[d->len - 1];
        }
    }
    return found;
}

int qn_stop_feed(qn_stop *s, const void *bytes, size_t n, const char **text, size_t *len, int *found,
                 qn_err *err)
{
    *text = "";
    *len = 0;
    *found = -1;
    if (s->stopped || n == 0) {
        return 0;
    }
    if (take(s, bytes, n, err)) {
        return -1;
    }
    size_t held = 0;
    for (size_t i = s->n_held - n; i < s->n_held; i++) {
        int hit = advance(s, s->buf[i]);
        if (hit >= 0) {
            *found = hit;
            *text = s->buf;
            *len = i + 1 - s->needle[hit].len;
            s->stopped = true;
            return 0;
        }
    }
    for (size_t i = 0; i < s->n_needles; i++) {
        held = s->needle[i].matched > held ? s->needle[i].matched : held;
    }
    *text = s->buf;
    *len = s->n_out = s->n_held - held;
    return 0;
}

void qn_stop_flush(qn_stop *s, const char **text, size_t *len)
{
    bool none = s->stopped || s->n_held == s->n_out;
    *text = none ? "" : s->buf + s->n_out;
    *len = none ? 0 : s->n_held - s->n_out;
    s->stopped = true;
}
