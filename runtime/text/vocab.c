/* vocab.c: the token table of a file. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tok_internal.h"
#include "text/utf8.h"

static const char key_tokens[] = "tokenizer.ggml.tokens";
static const char key_scores[] = "tokenizer.ggml.scores";
static const char key_types[] = "tokenizer.ggml.token_type";

int qn_ids_push(qn_ids *l, int32_t id, qn_err *err)
{
    if (l->n == l->size) {
        size_t size = l->size ? l->size * 2 : 64;
        int32_t *p = realloc(l->id, size * sizeof *p);
        if (!p) {
            return qn_fail(err, "out of memory for %zu token ids", size);
        }
        l->id = p;
        l->size = size;
    }
    l->id[l->n++] = id;
    return 0;
}

int qn_tok_warn(qn_tokenizer *t, qn_err *err, const char *fmt, ...)
{
    qn_err line;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line.text, sizeof line.text, fmt, ap);
    va_end(ap);
    qn_err clean;
    qn_fail(&clean, "%s", line.text); /* control bytes of the file's text become '?' */
    const char **list = qn_arena_alloc(&t->arena, (t->n_warnings + 1) * sizeof *list);
    char *copy = qn_arena_strndup(&t->arena, clean.text, strlen(clean.text));
    if (!list || !copy) {
        return qn_fail(err, "out of memory");
    }
    if (t->n_warnings) {
        memcpy(list, t->warning, t->n_warnings * sizeof *list);
    }
    list[t->n_warnings++] = copy;
    t->warning = list;
    return 0;
}

/* An array key with at least n elements; *kv is NULL where the file has none. */
static int find_array(const qn_gguf *g, const char *key, uint64_t n, const qn_kv **kv, qn_err *err)
{
    *kv = qn_gguf_find(g, key);
    if (!*kv) {
        return 0;
    }
    if ((*kv)->type != QN_KV_ARRAY) {
        return qn_fail(err, "%s: %s is %s, not an array", qn_gguf_path(g), key, qn_kv_type_name((*kv)->type));
    }
    if ((*kv)->count < n) {
        return qn_fail(err, "%s: %s has %llu entries, %s has %llu", qn_gguf_path(g), key,
                       (unsigned long long)(*kv)->count, key_tokens, (unsigned long long)n);
    }
    return 0;
}

static int load_texts(qn_tokenizer *t, const qn_gguf *g, const qn_kv *kv, qn_err *err)
{
    qn_vocab *v = &t->vocab;
    for (int32_t i = 0; i < v->n; i++) {
        qn_str s;
        char name[32];
        if (!qn_kv_str(kv, (uint64_t)i, &s) || s.len > UINT32_MAX / 4) {
            return qn_fail(err, "%s: %s[%d] is not a string", qn_gguf_path(g), key_tokens, i);
        }
        if (s.len == 0) {
            s = (qn_str){.data = name, .len = (uint64_t)snprintf(name, sizeof name, "[EMPTY_%d]", i)};
        }
        char *copy = qn_arena_strndup(&t->arena, s.data, s.len);
        if (!copy) {
            return qn_fail(err, "out of memory");
        }
        v->text[i] = (qn_piece){copy, (uint32_t)s.len};
        v->max_len = s.len > v->max_len ? (uint32_t)s.len : v->max_len;
        int added;
        int32_t other = qn_strmap_add(&v->by_text, copy, s.len, i, &added);
        if (other < 0) {
            return qn_fail(err, "out of memory");
        }
        if (!added) {
            return qn_fail(err, "%s: %s: \"%.64s\" is both token %d and token %d", qn_gguf_path(g),
                           key_tokens, copy, other, i);
        }
    }
    return 0;
}

static int load_scores(qn_tokenizer *t, const qn_gguf *g, const qn_kv *kv, qn_err *err)
{
    for (int32_t i = 0; kv && i < t->vocab.n; i++) {
        double score;
        if (!qn_kv_f64(kv, (uint64_t)i, &score) || isnan(score)) {
            return qn_fail(err, "%s: %s[%d] is not a number", qn_gguf_path(g), key_scores, i);
        }
        t->vocab.score[i] = (float)score;
    }
    return 0;
}

static int load_types(qn_tokenizer *t, const qn_gguf *g, const qn_kv *kv, qn_err *err)
{
    for (int32_t i = 0; i < t->vocab.n; i++) {
        int64_t type = QN_TOKEN_NORMAL;
        if (kv && !qn_kv_i64(kv, (uint64_t)i, &type)) {
            return qn_fail(err, "%s: %s[%d] is not an integer", qn_gguf_path(g), key_types, i);
        }
        t->vocab.attr[i] =
            type >= QN_TOKEN_NORMAL && type <= QN_TOKEN_BYTE ? (uint8_t)type : QN_TOKEN_UNDEFINED;
    }
    return 0;
}

int qn_vocab_load(qn_tokenizer *t, const qn_gguf *g, qn_err *err)
{
    qn_vocab *v = &t->vocab;
    const qn_kv *tokens, *scores, *types;
    if (find_array(g, key_tokens, 1, &tokens, err)) {
        return -1;
    }
    if (!tokens) {
        return qn_fail(err, "%s: %s is missing", qn_gguf_path(g), key_tokens);
    }
    if (tokens->count > INT32_MAX / 2) {
        return qn_fail(err, "%s: %s has %llu entries, too many", qn_gguf_path(g), key_tokens,
                       (unsigned long long)tokens->count);
    }
    v->n = (int32_t)tokens->count;
    if (find_array(g, key_scores, tokens->count, &scores, err) ||
        find_array(g, key_types, tokens->count, &types, err)) {
        return -1;
    }
    size_t n = (size_t)v->n;
    v->text = qn_arena_alloc(&t->arena, n * sizeof *v->text);
    v->bytes = qn_arena_alloc(&t->arena, n * sizeof *v->bytes);
    v->score = qn_arena_alloc(&t->arena, n * sizeof *v->score);
    v->attr = qn_arena_alloc(&t->arena, n);
    v->strip = qn_arena_alloc(&t->arena, n);
    v->guarded = qn_arena_alloc(&t->arena, n);
    if (!v->guarded || !v->text || !v->bytes || !v->score || !v->attr || !v->strip ||
        qn_strmap_init(&v->by_text, n)) {
        return qn_fail(err, "out of memory for a vocabulary of %zu tokens", n);
    }
    return load_texts(t, g, tokens, err) || load_scores(t, g, scores, err) || load_types(t, g, types, err)
               ? -1
               : 0;
}

/* Vocabularies over bytes spell each byte as a printable character: those that are printable in Latin-1 as
 * themselves, the other 68 as U+0100 and on, in order (GPT-2's encoder). */
static bool is_printable_latin1(int b)
{
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
}

int qn_byte_of_char(uint32_t cp)
{
    if (cp < 0x100) {
        return is_printable_latin1((int)cp) ? (int)cp : -1;
    }
    if (cp < 0x100 + 0x21) {
        return (int)cp - 0x100;
    }
    if (cp < 0x100 + 0x21 + 0x22) { /* 0x7f .. 0xa0 */
        return (int)cp - 0x100 - 0x21 + 0x7f;
    }
    return cp == 0x143 ? 0xad : -1;
}

static uint32_t char_of_byte(int b)
{
    if (is_printable_latin1(b)) {
        return (uint32_t)b;
    }
    return b < 0x21 ? 0x100u + (uint32_t)b : b == 0xad ? 0x143u : 0x121u + (uint32_t)b - 0x7f;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* The byte of "<0xXX>"; -1: not of that form. */
static int byte_of_name(qn_piece p)
{
    if (p.len != 6 || memcmp(p.data, "<0x", 3) != 0 || p.data[5] != '>') {
        return -1;
    }
    int hi = hex_digit(p.data[3]), lo = hex_digit(p.data[4]);
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

/* Characters that spell bytes become those bytes; any other stays. Writes at most p.len bytes. */
static size_t decode_bytes(qn_piece p, char *out)
{
    size_t n = 0;
    for (uint32_t i = 0; i < p.len;) {
        uint32_t cp;
        int k = qn_utf8_next((const unsigned char *)p.data + i, p.len - i, &cp);
        int b = k > 0 ? qn_byte_of_char(cp) : -1;
        if (b >= 0) {
            out[n++] = (char)b;
            i += (uint32_t)k;
        } else {
            int len = k > 0 ? k : 1;
            memcpy(out + n, p.data + i, (size_t)len);
            n += (size_t)len;
            i += (uint32_t)len;
        }
    }
    return n;
}

static size_t unescape_spaces(qn_piece p, char *out)
{
    size_t n = 0;
    for (uint32_t i = 0; i < p.len;) {
        if (p.len - i >= 3 && memcmp(p.data + i, "\xe2\x96\x81", 3) == 0) {
            out[n++] = ' ';
            i += 3;
        } else {
            out[n++] = p.data[i++];
        }
    }
    return n;
}

static int decode_token(qn_tokenizer *t, int32_t i, bool over_bytes, bool escaped_spaces, qn_err *err)
{
    qn_vocab *v = &t->vocab;
    qn_piece p = v->text[i];
    switch (v->attr[i]) {
    case QN_TOKEN_CONTROL:
    case QN_TOKEN_UNKNOWN:
    case QN_TOKEN_USER_DEFINED:
        v->bytes[i] = p;
        return 0;
    case QN_TOKEN_BYTE:
    case QN_TOKEN_NORMAL:
        break;
    default: /* unused and undefined tokens stand for nothing */
        v->bytes[i] = (qn_piece){"", 0};
        return 0;
    }
    char *out = qn_arena_alloc(&t->arena, (size_t)p.len + 1);
    if (!out) {
        return qn_fail(err, "out of memory");
    }
    size_t n = 0;
    if (v->attr[i] == QN_TOKEN_BYTE) {
        int b = byte_of_name(p);
        out[0] = (char)b;
        n = b >= 0;
    } else if (escaped_spaces) {
        n = unescape_spaces(p, out);
    } else if (over_bytes) {
        n = decode_bytes(p, out);
    } else {
        memcpy(out, p.data, p.len);
        n = p.len;
    }
    v->bytes[i] = (qn_piece){out, (uint32_t)n};
    return 0;
}

static int32_t find_byte_token(const qn_vocab *v, int b, bool over_bytes)
{
    unsigned char spelt[4];
    if (over_bytes) {
        return qn_strmap_get(&v->by_text, (char *)spelt, (size_t)qn_utf8_put(char_of_byte(b), spelt));
    }
    char name[8];
    snprintf(name, sizeof name, "<0x%02X>", b);
    int32_t id = qn_strmap_get(&v->by_text, name, 6);
    spelt[0] = (unsigned char)b;
    return id >= 0 ? id : qn_strmap_get(&v->by_text, (char *)spelt, 1);
}

int qn_vocab_decode(qn_tokenizer *t, bool over_bytes, bool escaped_spaces, qn_err *err)
{
    for (int32_t i = 0; i < t->vocab.n; i++) {
        if (decode_token(t, i, over_bytes, escaped_spaces, err)) {
            return -1;
        }
    }
    for (int b = 0; b < 256; b++) {
        t->vocab.byte_token[b] = find_byte_token(&t->vocab, b, over_bytes);
    }
    return 0;
}
