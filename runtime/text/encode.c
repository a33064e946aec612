/* encode.c: text to ids and ids to bytes. */
#include <stdlib.h>
#include <string.h>

#include "text/tok_internal.h"

enum { MAX_TEXT = 1 << 28 }; /* a malformed byte grows to three, and positions are 32 bits */

static const char escaped_space[3] = {'\xe2', '\x96', '\x81'}; /* U+2581 */

/* One stretch of text as the algorithm wants it: a space in front, spaces escaped. malloc'ed. */
static char *prepare(const qn_tokenizer *t, const char *text, size_t len, bool prefix, bool escape,
                     size_t *out_len)
{
    bool squeeze = t->remove_extra_spaces && t->algorithm == QN_ALG_SPM;
    char *out = malloc(3 * (len + 1) + 1);
    size_t n = 0;
    bool last_space = true; /* squeezing drops leading spaces too */
    while (out && squeeze && len && text[len - 1] == ' ') {
        len--;
    }
    for (size_t i = prefix ? 0 : 1; out && i <= len; i++) {
        bool space = i == 0 || text[i - 1] == ' ';
        if (i && squeeze && space && last_space) {
            continue;
        }
        last_space = space;
        if (space && escape) {
            memcpy(out + n, escaped_space, 3);
            n += 3;
        } else {
            out[n++] = space ? ' ' : text[i - 1];
        }
    }
    *out_len = n;
    return out;
}

static int encode_text(const qn_tokenizer *t, const char *text, size_t len, bool prefix, qn_ids *out,
                       qn_err *err)
{
    bool spm = t->algorithm == QN_ALG_SPM;
    if (!spm && !t->pre->escape_spaces) {
        return qn_bpe_encode(t, text, len, out, err);
    }
    size_t n;
    char *p = prepare(t, text, len, prefix, true, &n);
    if (!p) {
        return qn_fail(err, "out of memory for %zu bytes of text", len);
    }
    int rc = spm ? qn_spm_encode(t, p, n, out, err) : qn_bpe_encode(t, p, n, out, err);
    free(p);
    return rc;
}

/* *after_special: whether the text follows a special token or begins; says the same of what comes next. */
static int encode_fragments(const qn_tokenizer *t, const char *text, const qn_fragment *f, size_t n,
                            bool *after_special, qn_ids *out, qn_err *err)
{
    for (size_t i = 0; i < n; i++) {
        if (f[i].id >= 0) {
            if (qn_ids_push(out, f[i].id, err)) {
                return -1;
            }
        } else if (encode_text(t, text + f[i].at, f[i].len, t->add_space_prefix && *after_special, out,
                               err)) {
            return -1;
        }
        *after_special = f[i].id >= 0;
    }
    return 0;
}

static int encode_stretch(const qn_tokenizer *t, const char *text, size_t len, bool parse_special,
                          const qn_span *spans, bool *after_special, qn_ids *out, qn_err *err)
{
    qn_fragment *f = NULL;
    size_t n = 0;
    if (len == 0) {
        return 0;
    }
    int rc = qn_specials_split(t, text, len, parse_special, spans, &f, &n, err);
    rc = rc ? rc : encode_fragments(t, text, f, n, after_special, out, err);
    free(f);
    return rc;
}

static int push_span_ids(const qn_tokenizer *t, const qn_span *s, qn_ids *out, qn_err *err)
{
    for (size_t i = 0; i < s->n_ids; i++) {
        if (s->ids[i] < 0 || s->ids[i] >= t->vocab.n) {
            return qn_fail(err, "token id %d of a span is outside the vocabulary of %d tokens", s->ids[i],
                           t->vocab.n);
        }
        if (qn_ids_push(out, s->ids[i], err)) {
            return -1;
        }
    }
    return 0;
}

/* Stretches of text between spans that bring their ids along. */
static int encode_spans(const qn_tokenizer *t, const char *text, const qn_span *span, size_t n_spans,
                        qn_ids *out, qn_err *err)
{
    bool after_special = true; /* the beginning counts as such */
    for (size_t i = 0; i < n_spans;) {
        size_t len = 0, first = i;
        while (i < n_spans && !span[i].ids) {
            len += span[i++].len;
        }
        if (encode_stretch(t, text, len, false, span + first, &after_special, out, err)) {
            return -1;
        }
        text += len;
        for (; i < n_spans && span[i].ids; i++) {
            if (push_span_ids(t, &span[i], out, err)) {
                return -1;
            }
            text += span[i].len;
            after_special = false;
        }
    }
    return 0;
}

static int encode(const qn_tokenizer *t, const char *text, size_t len, bool add_special, bool parse_special,
                  const qn_span *spans, size_t n_spans, int32_t **ids, size_t *n, qn_err *err)
{
    *ids = NULL;
    *n = 0;
    if (len > MAX_TEXT) {
        return qn_fail(err, "%zu bytes of text, more than can be tokenised at once (%d)", len, MAX_TEXT);
    }
    qn_ids out = {0};
    bool begins = true;
    int rc = add_special && t->add_bos ? qn_ids_push(&out, t->role[QN_ROLE_BOS], err) : 0;
    if (!rc) {
        rc = spans ? encode_spans(t, text, spans, n_spans, &out, err)
                   : encode_stretch(t, text, len, parse_special, NULL, &begins, &out, err);
    }
    if (!rc && add_special && t->add_eos) {
        rc = qn_ids_push(&out, t->role[QN_ROLE_EOS], err);
    }
    if (!rc && !out.id && !(out.id = malloc(sizeof *out.id))) {
        rc = qn_fail(err, "out of memory");
    }
    if (rc) {
        free(out.id);
        return -1;
    }
    *ids = out.id;
    *n = out.n;
    return 0;
}

int qn_tokenize(const qn_tokenizer *t, const char *text, size_t len, bool add_special, bool parse_special,
                int32_t **ids, size_t *n, qn_err *err)
{
    return encode(t, text, len, add_special, parse_special, NULL, 0, ids, n, err);
}

int qn_tokenize_spans(const qn_tokenizer *t, const char *text, size_t len, const qn_span *span,
                      size_t n_spans, bool add_special, int32_t **ids, size_t *n, qn_err *err)
{
    size_t sum = 0;
    for (size_t i = 0; i < n_spans && sum <= len; i++) {
        sum = span[i].len > len - sum ? len + 1 : sum + span[i].len;
    }
    if (sum != len) {
        *ids = NULL;
        *n = 0;
        return qn_fail(err, "the spans of a text do not add up to its %zu bytes", len);
    }
    return encode(t, text, len, add_special, false, span, n_spans, ids, n, err);
}

static bool in_vocab(const qn_tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->vocab.n;
}

const char *qn_token_piece(const qn_tokenizer *t, int32_t id, bool special, size_t *len)
{
    *len = 0;
    if (!in_vocab(t, id)) {
        return "";
    }
    uint8_t attr = t->vocab.attr[id];
    if (!special && (attr == QN_TOKEN_CONTROL || attr == QN_TOKEN_UNKNOWN)) {
        return "";
    }
    *len = t->vocab.bytes[id].len;
    return t->vocab.bytes[id].data;
}

const char *qn_token_text(const qn_tokenizer *t, int32_t id, size_t *len)
{
    *len = in_vocab(t, id) ? t->vocab.text[id].len : 0;
    return in_vocab(t, id) ? t->vocab.text[id].data : NULL;
}

int32_t qn_token_find(const qn_tokenizer *t, const char *text, size_t len)
{
    return qn_strmap_get(&t->vocab.by_text, text, len);
}

qn_token_attr qn_token_get_attr(const qn_tokenizer *t, int32_t id)
{
    return in_vocab(t, id) ? (qn_token_attr)t->vocab.attr[id] : QN_TOKEN_UNDEFINED;
}

const char *qn_token_attr_name(qn_token_attr a)
{
    static const char *const name[] = {
        [QN_TOKEN_UNDEFINED] = "undefined", [QN_TOKEN_NORMAL] = "normal",
        [QN_TOKEN_UNKNOWN] = "unknown",     [QN_TOKEN_CONTROL] = "control",
        [QN_TOKEN_UNUSED] = "unused",       [QN_TOKEN_USER_DEFINED] = "user-defined",
        [QN_TOKEN_BYTE] = "byte",
    };
    return (unsigned)a < sizeof name / sizeof name[0] ? name[a] : "?";
}

int qn_detokenize(const qn_tokenizer *t, const int32_t *ids, size_t n, unsigned flags, char **text,
                  size_t *len, qn_err *err)
{
    *text = NULL;
    *len = 0;
    bool special = flags & QN_DETOK_SPECIAL;
    size_t total = 0, k;
    for (size_t i = 0; i < n; i++) {
        if (!in_vocab(t, ids[i])) {
            return qn_fail(err, "token id %d is outside the vocabulary of %d tokens", ids[i], t->vocab.n);
        }
        (void)qn_token_piece(t, ids[i], special, &k);
        total += k;
    }
    char *out = malloc(total + 1);
    if (!out) {
        return qn_fail(err, "out of memory for %zu bytes of text", total);
    }
    bool strip = t->add_space_prefix && !(flags & QN_DETOK_KEEP_PREFIX);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const char *p = qn_token_piece(t, ids[i], special, &k);
        bool text_token = t->vocab.attr[ids[i]] != QN_TOKEN_CONTROL;
        size_t skip = strip && text_token && k && *p == ' ';
        strip = strip && !text_token;
        memcpy(out + at, p + skip, k - skip);
        at += k - skip;
    }
    out[at] = '\0';
    *text = out;
    *len = at;
    return 0;
}
