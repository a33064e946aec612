/* spm.c: SentencePiece BPE: of all neighbours that together are a token, those with the best score are joined
 * first; what is no token in the end is spelt in bytes. O(n log n) in the length of a segment (pairs.h). */
#include <string.h>

#include "text/heap.h"
#include "text/tok_internal.h"

struct symbol {
    int32_t prev, next; /* -1: none */
    uint32_t at, len;   /* len 0: joined to the one before */
};

struct run {
    const qn_tokenizer *t;
    const char *text;
    struct symbol *sym;
    qn_heap heap;
};

static int consider(struct run *r, int32_t left, int32_t right, qn_err *err)
{
    if (left < 0 || right < 0) {
        return 0;
    }
    const qn_vocab *v = &r->t->vocab;
    const struct symbol *a = &r->sym[left];
    uint32_t len = a->len + r->sym[right].len;
    int32_t id = len <= v->max_len ? qn_strmap_get(&v->by_text, r->text + a->at, len) : -1;
    if (id < 0) {
        return 0;
    }
    qn_merge m = {.order = -(double)v->score[id], .left = left, .right = right, .len = len, .result = id};
    return qn_heap_push(&r->heap, m, err);
}

static int join_all(struct run *r, qn_err *err)
{
    while (r->heap.n) {
        qn_merge m = qn_heap_pop(&r->heap);
        struct symbol *a = &r->sym[m.left], *b = &r->sym[m.right];
        if (!a->len || !b->len || a->len + b->len != m.len) {
            continue;
        }
        a->len = m.len;
        b->len = 0;
        a->next = b->next;
        if (b->next >= 0) {
            r->sym[b->next].prev = m.left;
        }
        if (consider(r, a->prev, m.left, err) || consider(r, m.left, a->next, err)) {
            return -1;
        }
    }
    return 0;
}

static int emit(const struct run *r, qn_ids *out, qn_err *err)
{
    const qn_vocab *v = &r->t->vocab;
    for (int32_t i = 0; i >= 0; i = r->sym[i].next) {
        const struct symbol *s = &r->sym[i];
        int32_t id = s->len <= v->max_len ? qn_strmap_get(&v->by_text, r->text + s->at, s->len) : -1;
        if (id >= 0) {
            if (qn_ids_push(out, id, err)) {
                return -1;
            }
            continue;
        }
        for (uint32_t k = 0; k < s->len; k++) {
            unsigned char byte = (unsigned char)r->text[s->at + k];
            id = v->byte_token[byte] >= 0 ? v->byte_token[byte] : r->t->role[QN_ROLE_UNK];
            if (id < 0) {
                return qn_fail(err, "the vocabulary has no token for byte 0x%02x and no unknown token", byte);
            }
            if (qn_ids_push(out, id, err)) {
                return -1;
            }
        }
    }
    return 0;
}

int qn_spm_init(qn_tokenizer *t, qn_err *err)
{
    if (qn_pairs_init(&t->vocab.pairs)) {
        return qn_fail(err, "out of memory");
    }
    for (int32_t i = 0; i < t->vocab.n; i++) {
        if (qn_pairs_add(&t->vocab.pairs, t->vocab.text[i].data, t->vocab.text[i].len)) {
            return qn_fail(err, "out of memory");
        }
    }
    return 0;
}

/* One stretch of text across whose ends nothing is joined. */
static int encode_segment(struct run *r, size_t *size, const char *text, size_t len, qn_ids *out, qn_err *err)
{
    if (len > *size) {
        struct symbol *sym = realloc(r->sym, 2 * len * sizeof *sym);
        if (!sym) {
            return qn_fail(err, "out of memory for %zu bytes of text", len);
        }
        r->sym = sym;
        *size = 2 * len;
    }
    r->text = text;
    int32_t n = 0;
    for (size_t i = 0; i < len; n++) {
        size_t k = qn_symbol_len(text + i, len - i);
        r->sym[n] = (struct symbol){.prev = n - 1, .next = n + 1, .at = (uint32_t)i, .len = (uint32_t)k};
        i += k;
    }
    r->sym[n - 1].next = -1;
    for (int32_t i = 1; i < n; i++) {
        if (consider(r, i - 1, i, err)) {
            return -1;
        }
    }
    return join_all(r, err) || emit(r, out, err) ? -1 : 0;
}

int qn_spm_encode(const qn_tokenizer *t, const char *text, size_t len, qn_ids *out, qn_err *err)
{
    struct run r = {.t = t};
    size_t size = 0;
    int rc = 0;
    while (!rc && len) {
        size_t k = qn_pairs_segment(&t->vocab.pairs, text, len);
        rc = encode_segment(&r, &size, text, k, out, err);
        text += k;
        len -= k;
    }
    free(r.heap.m);
    free(r.sym);
    return rc;
}
