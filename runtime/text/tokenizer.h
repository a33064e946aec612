/* tokenizer.h: text to token ids and back, as a GGUF's metadata describes it.
 *
 * Two algorithms: byte-pair encoding by merge ranks (over the bytes of a word, or over raw UTF-8), and
 * SentencePiece BPE by score. Which one a file's `tokenizer.ggml.model` means, how each `tokenizer.ggml.pre`
 * cuts text into words, and which token names end a generation is data: model_configs/tokenizers/ (one YAML
 * a pre-tokenizer, and vocabulary.yaml), carried inside the binary and replaceable by a directory.
 *
 * A tokenizer copies what it needs from the file, never changes once made, and may be used by several threads
 * at once. Text is bytes; malformed UTF-8 is tokenised as the reference tokenizers do it. */
#ifndef QN_TEXT_TOKENIZER_H
#define QN_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/gguf.h"

typedef struct qn_tokenizer qn_tokenizer;

typedef struct qn_tok_opts {
    const char *config_dir; /* replaces the embedded model_configs/tokenizers/; NULL: embedded */
    const char *pre;        /* replaces the file's tokenizer.ggml.pre; NULL: the file's */
    const int32_t *eog; /* replaces the list of end-of-generation tokens; NULL: from the file and the data */
    size_t n_eog;
} qn_tok_opts;

/* opts may be NULL. Fails, naming file and key, where the file has no tokenizer ("no_vocab"), its kind or
 * pre-tokenizer is not known, or its tables do not fit together. */
int qn_tokenizer_new(qn_tokenizer **out, const qn_gguf *g, const qn_tok_opts *opts, qn_err *err);
void qn_tokenizer_free(qn_tokenizer *t);

/* Whether the file says it carries a tokenizer (of whatever kind). */
bool qn_tokenizer_present(const qn_gguf *g);

/* What was odd about the file but could be dealt with: n lines, for stderr. */
size_t qn_tokenizer_n_warnings(const qn_tokenizer *t);
const char *qn_tokenizer_warning(const qn_tokenizer *t, size_t i);

/* Ids of `len` bytes of text, malloc'ed (non-NULL even if *n is 0). add_special: the tokens that the model
 * wants at the beginning and end are added. parse_special: the text of a control token in `text` becomes that
 * token; user-defined tokens are always recognised. len is at most 2^28. */
int qn_tokenize(const qn_tokenizer *t, const char *text, size_t len, bool add_special, bool parse_special,
                int32_t **ids, size_t *n, qn_err *err);

/* One text of which parts are trusted: a chat template's own words are, what a user wrote is not. The spans'
 * lengths add up to `len`. In a span that is not trusted no control token is recognised, nor one that only
 * touches it, nor one that structures a conversation though the file calls it user-defined; other
 * user-defined tokens are. Otherwise the text is tokenised as a whole: words may cross from one span to the
 * next, but not over a span that brings its ids along. */
typedef struct qn_span {
    size_t len;
    bool trusted;
    const int32_t *ids; /* taken for the span instead of tokenising it, as they are; NULL: none */
    size_t n_ids;
} qn_span;

int qn_tokenize_spans(const qn_tokenizer *t, const char *text, size_t len, const qn_span *span,
                      size_t n_spans, bool add_special, int32_t **ids, size_t *n, qn_err *err);

/* Bytes of one token, which need not be whole code points; valid as long as the tokenizer. Control and
 * unknown tokens have bytes only if `special`; an id outside the vocabulary has none. */
const char *qn_token_piece(const qn_tokenizer *t, int32_t id, bool special, size_t *len);

/* The token's text as the file spells it; NULL outside the vocabulary. */
const char *qn_token_text(const qn_tokenizer *t, int32_t id, size_t *len);
/* The token that the file spells so; -1: none. */
int32_t qn_token_find(const qn_tokenizer *t, const char *text, size_t len);

typedef enum qn_detok_flags {
    QN_DETOK_SPECIAL = 1,     /* with the text of control tokens */
    QN_DETOK_KEEP_PREFIX = 2, /* with the space that some models put before a text */
} qn_detok_flags;

/* Bytes of n tokens, malloc'ed, with a NUL behind. An id outside the vocabulary is an error. Undoes the space
 * prefix of qn_tokenize at the beginning of the text. */
int qn_detokenize(const qn_tokenizer *t, const int32_t *ids, size_t n, unsigned flags, char **text,
                  size_t *len, qn_err *err);

typedef enum qn_token_attr {
    QN_TOKEN_NORMAL = 1,
    QN_TOKEN_UNKNOWN = 2,
    QN_TOKEN_CONTROL = 3,
    QN_TOKEN_USER_DEFINED = 4,
    QN_TOKEN_UNUSED = 5,
    QN_TOKEN_BYTE = 6,
    QN_TOKEN_UNDEFINED = 0,
} qn_token_attr;

qn_token_attr qn_token_get_attr(const qn_tokenizer *t, int32_t id);
const char *qn_token_attr_name(qn_token_attr a);

typedef enum qn_token_role {
    QN_ROLE_BOS,
    QN_ROLE_EOS,
    QN_ROLE_EOT,
    QN_ROLE_EOM,
    QN_ROLE_UNK,
    QN_ROLE_SEP,
    QN_ROLE_PAD,
    QN_ROLE_MASK,
    QN_ROLE_FIM_PRE,
    QN_ROLE_FIM_SUF,
    QN_ROLE_FIM_MID,
    QN_ROLE_FIM_PAD,
    QN_ROLE_FIM_REP,
    QN_ROLE_FIM_SEP,
    QN_N_ROLES,
} qn_token_role;

int32_t qn_tokenizer_n_vocab(const qn_tokenizer *t);
int32_t qn_tokenizer_role(const qn_tokenizer *t, qn_token_role role); /* -1: none */
const char *qn_token_role_name(qn_token_role role);                   /* "bos", "fim_pre", ... */
bool qn_tokenizer_add_bos(const qn_tokenizer *t);
bool qn_tokenizer_add_eos(const qn_tokenizer *t);
bool qn_tokenizer_add_space_prefix(const qn_tokenizer *t);
const char *qn_tokenizer_model(const qn_tokenizer *t); /* tokenizer.ggml.model */
const char *qn_tokenizer_pre(const qn_tokenizer *t);   /* the pre-tokenizer in use; "" where there is none */

/* Tokens that end a generation, ascending. */
const int32_t *qn_tokenizer_eog(const qn_tokenizer *t, size_t *n);
bool qn_tokenizer_is_eog(const qn_tokenizer *t, int32_t id);

#endif
