/* bpe.c: byte-pair encoding: inside a word, the neighbours with the lowest merge rank are joined first.
 *
 * Strings are numbered once, when the tokenizer is made: every token and every side of a merge is a symbol,
 * and a merge is a pair of numbers. Of vocabularies over bytes the strings are held decoded, so that words
 * need not be spelt out. O(n log n) in the length of a word. */
#include <string.h>

#include "text/heap.h"
#include "text/tok_internal.h"
#include "text/utf8.h"

static const char key_merges[] = "tokenizer.ggml.merges";

struct merge_slot {
    uint64_t pair; /* left << 32 | right, plus 1; 0: free */
    int32_t rank, result;
};

struct qn_bpe {
    qn_arena arena;
    qn_strmap symbol; /* string to number */
    int32_t *token;   /* [n_symbols] -1: not a token */
    size_t n_symbols, size;
    struct merge_slot *merge;
    size_t mask;
    int32_t byte[256]; /* symbol of one byte; -1: none */
    qn_pairs pairs;    /* of merges over characters: neighbours inside what they make */
};

static size_t pair_hash(uint64_t pair)
{
    pair *= 0x9e3779b97f4a7c15u;
    return (size_t)(pair ^ pair >> 32);
}

static struct merge_slot *find_merge(const qn_bpe *b, int32_t left, int32_t right)
{
    uint64_t pair = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
    size_t i = pair_hash(pair) & b->mask;
    while (b->merge[i].pair && b->merge[i].pair != pair) {
        i = (i + 1) & b->mask;
    }
    return &b->merge[i];
}

/* The number of a string, new or old; -1: out of memory. The string is copied. */
static int32_t number(qn_bpe *b, const char *s, size_t len)
{
    int32_t old = qn_strmap_get(&b->symbol, s, len);
    if (old >= 0) {
        return old;
    }
    if (b->n_symbols == b->size) {
        size_t size = b->size * 2 + 1024;
        int32_t *token = realloc(b->token, size * sizeof *token);
        if (!token) {
            return -1;
        }
        b->token = token;
        b->size = size;
    }
    char *copy = qn_arena_strndup(&b->arena, s, len);
    int32_t n = (int32_t)b->n_symbols;
    if (!copy || qn_strmap_add(&b->symbol, copy, len, n, NULL) < 0) {
        return -1;
    }
    b->token[b->n_symbols++] = -1;
    return n;
}

/* Bytes that a spelling stands for, into out (at most len of them); -1 where a character spells no byte,
 * which no word can then contain. */
static int64_t spelt(const char *s, size_t len, char *out)
{
    int64_t n = 0;
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        int k = qn_utf8_next((const unsigned char *)s + i, len - i, &cp);
        int byte = k > 0 ? qn_byte_of_char(cp) : -1;
        if (byte < 0) {
            return -1;
        }
        out[n++] = (char)byte;
        i += (size_t)k;
    }
    return n;
}

static int number_tokens(qn_bpe *b, const qn_tokenizer *t, char *buf, qn_err *err)
{
    for (int32_t i = 0; i < t->vocab.n; i++) {
        qn_piece p = t->vocab.text[i];
        const char *s = p.data;
        int64_t len = p.len;
        if (t->pre->byte_encode) {
            s = buf;
            len = spelt(p.data, p.len, buf);
        }
        if (len < 0) {
            continue;
        }
        int32_t k = number(b, s, (size_t)len);
        if (k < 0) {
            return qn_fail(err, "out of memory");
        }
        b->token[k] = i;
    }
    return 0;
}

/* One side of a merge, decoded; its length, or -1. */
static int64_t side(const qn_tokenizer *t, const char *s, size_t len, char *out)
{
    if (t->pre->byte_encode) {
        return spelt(s, len, out);
    }
    memcpy(out, s, len);
    return (int64_t)len;
}

/* "left right": the blank is looked for from the second byte on. The first of equal merges counts. */
static int add_merge(qn_bpe *b, const qn_tokenizer *t, qn_str line, int32_t rank, char *buf, qn_err *err)
{
    const char *blank = line.len > 1 ? memchr(line.data + 1, ' ', line.len - 1) : NULL;
    if (!blank) {
        return 0;
    }
    size_t at = (size_t)(blank - line.data);
    int64_t n = side(t, line.data, at, buf);
    int64_t m = n < 0 ? -1 : side(t, blank + 1, line.len - at - 1, buf + n);
    if (n <= 0 || m <= 0) {
        return 0;
    }
    int32_t left = number(b, buf, (size_t)n);
    int32_t right = number(b, buf + n, (size_t)m);
    int32_t both = number(b, buf, (size_t)(n + m));
    bool ok = left >= 0 && right >= 0 && both >= 0;
    if (!ok || (!t->pre->byte_encode && qn_pairs_add(&b->pairs, buf, (size_t)(n + m)))) {
        return qn_fail(err, "out of memory");
    }
    struct merge_slot *s = find_merge(b, left, right);
    if (!s->pair) {
        s->pair = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
        s->rank = rank;
        s->result = both;
    }
    return 0;
}

static int load_merges(qn_bpe *b, const qn_tokenizer *t, const qn_gguf *g, const qn_kv *kv, char *buf,
                       qn_err *err)
{
    size_t size = 16;
    while (size < kv->count * 2) {
        size *= 2;
    }
    b->merge = qn_calloc(size, sizeof *b->merge);
    b->mask = size - 1;
    if (!b->merge) {
        return qn_fail(err, "out of memory");
    }
    for (uint64_t i = 0; i < kv->count; i++) {
        qn_str line;
        if (!qn_kv_str(kv, i, &line)) {
            return qn_fail(err, "%s: %s[%llu] is not a string", qn_gguf_path(g), key_merges,
                           (unsigned long long)i);
        }
        if (add_merge(b, t, line, (int32_t)i, buf, err)) {
            return -1;
        }
    }
    return 0;
}

static uint64_t longest(const qn_kv *merges, uint64_t at_least)
{
    qn_str s;
    for (uint64_t i = 0; i < merges->count; i++) {
        at_least = qn_kv_str(merges, i, &s) && s.len > at_least ? s.len : at_least;
    }
    return at_least;
}

int qn_bpe_new(qn_bpe **out, const qn_tokenizer *t, const qn_gguf *g, qn_err *err)
{
    *out = NULL;
    const qn_kv *merges = qn_gguf_find(g, key_merges);
    if (!merges || merges->type != QN_KV_ARRAY || merges->elem_type != QN_KV_STRING) {
        return qn_fail(err, "%s: %s %s", qn_gguf_path(g), key_merges,
                       merges ? "is not an array of strings" : "is missing");
    }
    if (merges->count > INT32_MAX / 4) {
        return qn_fail(err, "%s: %s has %llu entries, too many", qn_gguf_path(g), key_merges,
                       (unsigned long long)merges->count);
    }
    qn_bpe *b = qn_calloc(1, sizeof *b);
    char *buf = malloc(longest(merges, t->vocab.max_len) + 1);
    int rc = b && buf ? 0 : qn_fail(err, "out of memory");
    if (!rc && (qn_strmap_init(&b->symbol, (size_t)t->vocab.n + 256) || qn_pairs_init(&b->pairs))) {
        rc = qn_fail(err, "out of memory");
    }
    rc = rc ? rc : number_tokens(b, t, buf, err);
    rc = rc ? rc : load_merges(b, t, g, merges, buf, err);
    for (int c = 0; !rc && c < 256; c++) {
        char byte = (char)c;
        b->byte[c] = qn_strmap_get(&b->symbol, &byte, 1);
    }
    free(buf);
    if (rc) {
        qn_bpe_free(b);
        return -1;
    }
    *out = b;
    return 0;
}

void qn_bpe_free(qn_bpe *b)
{
    if (b) {
        qn_strmap_free(&b->symbol);
        qn_pairs_free(&b->pairs);
        free(b->token);
        free(b->merge);
        qn_arena_free(&b->arena);
        free(b);
    }
}

struct symbol {
    int32_t prev, next; /* -1: none */
    uint32_t at, len;   /* len 0: joined to the one before */
    int32_t number;     /* -1: part of no merge and no token */
};

struct run {
    const qn_tokenizer *t;
    const qn_bpe *b;
    struct symbol *sym;
    size_t size;
    qn_heap heap;
};

static int consider(struct run *r, int32_t left, int32_t right, qn_err *err)
{
    if (left < 0 || right < 0) {
        return 0;
    }
    const struct symbol *x = &r->sym[left], *y = &r->sym[right];
    if (x->number < 0 || y->number < 0) {
        return 0;
    }
    const struct merge_slot *s = find_merge(r->b, x->number, y->number);
    if (!s->pair) {
        return 0;
    }
    qn_merge m = {
        .order = s->rank, .left = left, .right = right, .len = x->len + y->len, .result = s->result};
    return qn_heap_push(&r->heap, m, err);
}

static int join_all(struct run *r, qn_err *err)
{
    while (r->heap.n) {
        qn_merge m = qn_heap_pop(&r->heap);
        struct symbol *x = &r->sym[m.left], *y = &r->sym[m.right];
        if (!x->len || !y->len || x->len + y->len != m.len) {
            continue;
        }
        x->len = m.len;
        x->number = m.result;
        y->len = 0;
        x->next = y->next;
        if (y->next >= 0) {
            r->sym[y->next].prev = m.left;
        }
        if (consider(r, x->prev, m.left, err) || consider(r, m.left, x->next, err)) {
            return -1;
        }
    }
    return 0;
}

static int split_symbols(struct run *r, const char *word, size_t len, int32_t *n, qn_err *err)
{
    if (len > r->size) {
        size_t size = len * 2;
        struct symbol *sym = realloc(r->sym, size * sizeof *sym);
        if (!sym) {
            return qn_fail(err, "out of memory for a word of %zu bytes", len);
        }
        r->sym = sym;
        r->size = size;
    }
    *n = 0;
    for (size_t i = 0; i < len; (*n)++) {
        size_t k = r->t->pre->byte_encode ? 1 : qn_symbol_len(word + i, len - i);
        int32_t number =
            k == 1 ? r->b->byte[(unsigned char)word[i]] : qn_strmap_get(&r->b->symbol, word + i, k);
        r->sym[*n] = (struct symbol){
            .prev = *n - 1, .next = *n + 1, .at = (uint32_t)i, .len = (uint32_t)k, .number = number};
        i += k;
    }
    r->sym[*n - 1].next = -1;
    return 0;
}

static int emit(struct run *r, const char *word, qn_ids *out, qn_err *err)
{
    for (int32_t i = 0; i >= 0; i = r->sym[i].next) {
        const struct symbol *s = &r->sym[i];
        int32_t id = s->number < 0 ? -1 : r->b->token[s->number];
        if (id >= 0) {
            if (qn_ids_push(out, id, err)) {
                return -1;
            }
            continue;
        }
        /* A byte that has no token is dropped, as the reference does; qn_tokenizer_new has warned of it. */
        for (uint32_t k = 0; k < s->len; k++) {
            id = r->t->vocab.byte_token[(unsigned char)word[s->at + k]];
            if (id >= 0 && qn_ids_push(out, id, err)) {
                return -1;
            }
        }
    }
    return 0;
}

/* The token that a word is as a whole, where the model takes such words whole; else -1. */
static int32_t whole_word(const struct run *r, const char *word, size_t len)
{
    const qn_pre *p = r->t->pre;
    bool newlines = p->whole_newlines && word[0] == '\n' && memcmp(word, word + 1, len - 1) == 0;
    if (!p->ignore_merges && !newlines) {
        return -1;
    }
    int32_t number = qn_strmap_get(&r->b->symbol, word, len);
    return number < 0 ? -1 : r->b->token[number];
}

/* A word, or a part of one across whose ends nothing is joined. */
static int encode_part(struct run *r, const char *part, size_t len, qn_ids *out, qn_err *err)
{
    int32_t n = 0;
    if (split_symbols(r, part, len, &n, err)) {
        return -1;
    }
    for (int32_t i = 1; i < n; i++) {
        if (consider(r, i - 1, i, err)) {
            return -1;
        }
    }
    return join_all(r, err) || emit(r, part, out, err) ? -1 : 0;
}

static int encode_word(struct run *r, const char *word, size_t len, qn_ids *out, qn_err *err)
{
    int32_t id = whole_word(r, word, len);
    if (id >= 0) {
        return qn_ids_push(out, id, err);
    }
    while (len) {
        size_t k = r->t->pre->byte_encode ? len : qn_pairs_segment(&r->b->pairs, word, len);
        if (encode_part(r, word, k, out, err)) {
            return -1;
        }
        word += k;
        len -= k;
    }
    return 0;
}

int qn_bpe_encode(const qn_tokenizer *t, const char *text, size_t len, qn_ids *out, qn_err *err)
{
    qn_words w;
    if (qn_pre_split(t->pre, text, len, &w, err)) {
        return -1;
    }
    struct run r = {.t = t, .b = t->bpe};
    const char *word = w.text;
    int rc = 0;
    for (size_t i = 0; !rc && i < w.n; i++) {
        rc = encode_word(&r, word, w.word[i], out, err);
        word += w.word[i];
    }
    free(r.sym);
    free(r.heap.m);
    qn_words_free(&w);
    return rc;
}
