/* tok_internal.h: the parts of a tokenizer, shared by the files that build and run it. */
#ifndef QN_TEXT_TOK_INTERNAL_H
#define QN_TEXT_TOK_INTERNAL_H

#include "base/alloc.h"
#include "text/pairs.h"
#include "text/pretokenizer.h"
#include "text/strmap.h"
#include "text/tokenizer.h"

typedef struct qn_piece {
    const char *data;
    uint32_t len;
} qn_piece;

/* The token table. */
typedef struct qn_vocab {
    int32_t n;
    qn_piece *text;   /* [n] as in the file; an empty one is "[EMPTY_id]" */
    qn_piece *bytes;  /* [n] what it stands for; of BPE over bytes, decoded */
    float *score;     /* [n] */
    uint8_t *attr;    /* [n] qn_token_attr */
    uint8_t *guarded; /* [n] 1: a user-defined token that untrusted text must not spell */
    uint8_t *strip;   /* [n] 1: white space after the token is dropped where it is found in text */
    qn_strmap by_text;
    qn_pairs pairs;          /* of SentencePiece: neighbours inside tokens */
    int32_t byte_token[256]; /* the token of a single byte; -1: none */
    uint32_t max_len;        /* bytes of the longest text */
} qn_vocab;

/* A growing list of ids. */
typedef struct qn_ids {
    int32_t *id;
    size_t n, size;
} qn_ids;

int qn_ids_push(qn_ids *l, int32_t id, qn_err *err);

/* Special tokens, sorted so that those which begin at a place of the text are found by narrowing. */
typedef struct qn_specials {
    int32_t *by_text;    /* [n] ids sorted by text */
    int32_t *by_rank;    /* [n] ids in the order in which they claim text: longest first */
    int32_t *rank;       /* [n] of by_text[i], its place in by_rank */
    uint32_t first[257]; /* by_text[first[c]] .. by_text[first[c + 1] - 1] begin with byte c */
    size_t n;
} qn_specials;

/* A stretch of text, or a token found in it. */
typedef struct qn_fragment {
    size_t at, len;
    int32_t id; /* -1: text */
} qn_fragment;

typedef enum qn_algorithm {
    QN_ALG_BPE,
    QN_ALG_SPM,
} qn_algorithm;

typedef struct qn_bpe qn_bpe;

struct qn_tokenizer {
    qn_arena arena;
    const char *model;
    qn_algorithm algorithm;
    qn_vocab vocab;
    qn_specials specials;
    qn_pre *pre; /* of BPE */
    qn_bpe *bpe;
    bool add_bos, add_eos, add_space_prefix, remove_extra_spaces;
    int32_t role[QN_N_ROLES];
    int32_t *eog;
    size_t n_eog;
    const char **warning;
    size_t n_warnings;
};

int qn_tok_warn(qn_tokenizer *t, qn_err *err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* vocab.c: reads tokens, scores and types. */
int qn_vocab_load(qn_tokenizer *t, const qn_gguf *g, qn_err *err);
/* Fills bytes and byte_token; over_bytes: texts spell bytes with the 256 printable characters. */
int qn_vocab_decode(qn_tokenizer *t, bool over_bytes, bool escaped_spaces, qn_err *err);
/* The byte that a character of such a text stands for; -1: none. */
int qn_byte_of_char(uint32_t cp);

/* roles.c: ids and names of special tokens, from the file and vocabulary.yaml. */
struct qn_yaml_node;
int qn_roles_load(qn_tokenizer *t, const qn_gguf *g, const struct qn_yaml_node *rules,
                  const qn_tok_opts *opts, qn_err *err);

/* specials.c */
int qn_specials_build(qn_tokenizer *t, qn_err *err);
/* Cuts text into fragments; *out malloc'ed. spans: NULL, or what parts of the text are trusted; parse_special
 * counts where there are none. */
int qn_specials_split(const qn_tokenizer *t, const char *text, size_t len, bool parse_special,
                      const qn_span *spans, qn_fragment **out, size_t *n, qn_err *err);

/* bpe.c */
int qn_bpe_new(qn_bpe **out, const qn_tokenizer *t, const qn_gguf *g, qn_err *err);
void qn_bpe_free(qn_bpe *b);
int qn_bpe_encode(const qn_tokenizer *t, const char *text, size_t len, qn_ids *out, qn_err *err);

/* spm.c */
int qn_spm_init(qn_tokenizer *t, qn_err *err);
int qn_spm_encode(const qn_tokenizer *t, const char *text, size_t len, qn_ids *out, qn_err *err);

#endif
