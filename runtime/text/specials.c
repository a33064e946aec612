/* specials.c: finds special tokens in text before anything else looks at it.
 *
 * The longest special token claims its occurrences first, from left to right, then the next longest what is
 * left, and so on. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "text/tok_internal.h"

/* qsort has no argument for the table, so what is sorted carries what it is sorted by. */
struct entry {
    qn_piece text;
    int32_t id, rank;
};

static int by_text(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    uint32_t n = x->text.len < y->text.len ? x->text.len : y->text.len;
    int c = memcmp(x->text.data, y->text.data, n);
    return c ? c : (x->text.len > y->text.len) - (x->text.len < y->text.len);
}

static int by_length(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->text.len != y->text.len) {
        return x->text.len > y->text.len ? -1 : 1;
    }
    return (x->id > y->id) - (x->id < y->id);
}

static bool is_special(uint8_t attr)
{
    return attr == QN_TOKEN_CONTROL || attr == QN_TOKEN_USER_DEFINED || attr == QN_TOKEN_UNKNOWN;
}

static void fill(qn_specials *s, struct entry *e)
{
    qsort(e, s->n, sizeof *e, by_length);
    for (size_t i = 0; i < s->n; i++) {
        e[i].rank = (int32_t)i;
        s->by_rank[i] = e[i].id;
    }
    qsort(e, s->n, sizeof *e, by_text);
    size_t k = 0;
    for (int c = 0; c < 256; c++) {
        s->first[c] = (uint32_t)k;
        while (k < s->n && (unsigned char)e[k].text.data[0] == c) {
            s->by_text[k] = e[k].id;
            s->rank[k] = e[k].rank;
            k++;
        }
    }
    s->first[256] = (uint32_t)k;
}

int qn_specials_build(qn_tokenizer *t, qn_err *err)
{
    qn_specials *s = &t->specials;
    const qn_vocab *v = &t->vocab;
    for (int32_t i = 0; i < v->n; i++) {
        s->n += is_special(v->attr[i]);
    }
    struct entry *e = qn_calloc(s->n, sizeof *e);
    s->by_text = qn_arena_alloc(&t->arena, s->n * sizeof *s->by_text);
    s->by_rank = qn_arena_alloc(&t->arena, s->n * sizeof *s->by_rank);
    s->rank = qn_arena_alloc(&t->arena, s->n * sizeof *s->rank);
    if (!e || !s->by_text || !s->by_rank || !s->rank) {
        free(e);
        return qn_fail(err, "out of memory");
    }
    size_t n = 0;
    for (int32_t i = 0; i < v->n; i++) {
        if (is_special(v->attr[i])) {
            e[n++] = (struct entry){.text = v->text[i], .id = i};
        }
    }
    fill(s, e);
    free(e);
    return 0;
}

/* First of by_text[lo, hi) whose byte k is at least c; all of them agree in the bytes before and are longer.
 */
static size_t lower(const qn_tokenizer *t, size_t lo, size_t hi, uint32_t k, int c)
{
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if ((unsigned char)t->vocab.text[t->specials.by_text[mid]].data[k] < c) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

/* Marks the ranks of the special tokens that begin at text[0]. */
static void mark_at(const qn_tokenizer *t, const char *text, size_t len, uint8_t *met)
{
    const qn_specials *s = &t->specials;
    size_t lo = s->first[(unsigned char)text[0]], hi = s->first[(unsigned char)text[0] + 1];
    for (uint32_t k = 1; lo < hi; k++) {
        if (t->vocab.text[s->by_text[lo]].len == k) {
            met[s->rank[lo]] = 1;
            lo++;
        }
        if (k == len || lo == hi) {
            return;
        }
        int c = (unsigned char)text[k];
        lo = lower(t, lo, hi, k, c);
        hi = lower(t, lo, hi, k, c + 1);
    }
}

struct fragments {
    qn_fragment *f;
    size_t n, size;
};

static int push(struct fragments *l, size_t at, size_t len, int32_t id, qn_err *err)
{
    if (id < 0 && len == 0) {
        return 0;
    }
    if (l->n == l->size) {
        size_t size = l->size ? l->size * 2 : 16;
        qn_fragment *f = realloc(l->f, size * sizeof *f);
        if (!f) {
            return qn_fail(err, "out of memory");
        }
        l->f = f;
        l->size = size;
    }
    l->f[l->n++] = (qn_fragment){.at = at, .len = len, .id = id};
    return 0;
}

/* What a search knows besides the token. */
struct search {
    const qn_tokenizer *t;
    const char *text;
    const qn_span *span; /* NULL: the whole text is as one */
};

/* Whether text[at, at + len) lies in trusted spans. */
static bool trusted(const qn_span *span, size_t at, size_t len)
{
    size_t begin = 0;
    for (; begin < at + len; begin += span++->len) {
        if (begin + span->len > at && !span->trusted) {
            return false;
        }
    }
    return true;
}

/* The next place in text[from, end) where the token may be taken; NULL: none. */
static const char *next_hit(const struct search *s, int32_t id, size_t from, size_t end)
{
    const qn_vocab *v = &s->t->vocab;
    qn_piece p = v->text[id];
    bool guarded = v->attr[id] != QN_TOKEN_USER_DEFINED || v->guarded[id];
    while (from < end) {
        const char *hit = memmem(s->text + from, end - from, p.data, p.len);
        if (!hit || !s->span || !guarded || trusted(s->span, (size_t)(hit - s->text), p.len)) {
            return hit;
        }
        from = (size_t)(hit - s->text) + 1;
    }
    return NULL;
}

/* Cuts all occurrences of a token out of one stretch of text. */
static int cut(const struct search *s, int32_t id, qn_fragment f, struct fragments *out, qn_err *err)
{
    size_t at = f.at, end = f.at + f.len, len = s->t->vocab.text[id].len;
    for (;;) {
        const char *hit = next_hit(s, id, at, end);
        if (!hit) {
            return push(out, at, end - at, -1, err);
        }
        size_t pos = (size_t)(hit - s->text);
        if (push(out, at, pos - at, -1, err) || push(out, pos, len, id, err)) {
            return -1;
        }
        at = pos + len;
        while (s->t->vocab.strip[id] && at < end && isspace((unsigned char)s->text[at])) {
            at++;
        }
    }
}

static int cut_all(const struct search *s, int32_t id, struct fragments *l, struct fragments *spare,
                   qn_err *err)
{
    spare->n = 0;
    for (size_t i = 0; i < l->n; i++) {
        qn_fragment f = l->f[i];
        if (f.id >= 0 ? push(spare, f.at, f.len, f.id, err) : cut(s, id, f, spare, err)) {
            return -1;
        }
    }
    struct fragments tmp = *l;
    *l = *spare;
    *spare = tmp;
    return 0;
}

int qn_specials_split(const qn_tokenizer *t, const char *text, size_t len, bool parse_special,
                      const qn_span *spans, qn_fragment **out, size_t *n, qn_err *err)
{
    const qn_specials *s = &t->specials;
    const struct search search = {.t = t, .text = text, .span = spans};
    struct fragments l = {0}, spare = {0};
    uint8_t *met = qn_calloc(s->n, 1);
    int rc = met ? push(&l, 0, len, -1, err) : qn_fail(err, "out of memory");
    for (size_t i = 0; !rc && i < len; i++) {
        mark_at(t, text + i, len - i, met);
    }
    for (size_t r = 0; !rc && r < s->n; r++) {
        int32_t id = s->by_rank[r];
        if (met[r] && (spans || parse_special || t->vocab.attr[id] == QN_TOKEN_USER_DEFINED)) {
            rc = cut_all(&search, id, &l, &spare, err);
        }
    }
    free(met);
    free(spare.f);
    if (rc) {
        free(l.f);
        return -1;
    }
    *out = l.f;
    *n = l.n;
    return 0;
}
