/* pretokenizer.h: cuts text into the words inside which BPE merges, by regular expressions from YAML.
 *
 * model_configs/tokenizers/NAME.yaml:
 *
 *     pre: [name, ...]          # tokenizer.ggml.pre of the files it serves
 *     split:                    # in order; each cuts the words that the one before left, every word on its
 * own
 *       - 'pattern'             # a PCRE2 pattern; its matches, and what lies between them, become words
 *       - [alternative, ...]    # the same as alternative|...
 *     ignore_merges: true       # a word that is a token is taken whole
 *     byte_encode: false        # merges run over raw UTF-8, not over bytes (default true)
 *     escape_spaces: true       # a space is written as U+2581
 *     whole_newlines: true      # a run of newlines that is a token is taken whole
 *     add_bos: true             # default of tokenizer.ggml.add_bos_token; `always`: whatever the file says
 *     recognise: [text, ...]    # serves a file that names no pre-tokenizer but has all these tokens
 *
 * What a pattern sees. A step whose pattern names Unicode properties (\p{L}, \p{N}, \p{P}, \p{M}, \p{S}) sees
 * the text with every character above U+007F replaced by one stand-in of its class (unicode_class.h), so that
 * the result hangs neither on the regex library's Unicode version nor on upper and lower case outside ASCII.
 * Any other step sees the characters themselves. In both, white space above U+007F is seen as U+000B. This is
 * how the reference tokenizer matches; see also its treatment of malformed text in qn_pre_split. */
#ifndef QN_TEXT_PRETOKENIZER_H
#define QN_TEXT_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/yaml.h"

enum { QN_PRE_MAX_STEPS = 16 };

typedef struct qn_pre_step {
    void *code; /* pcre2_code */
    bool by_class;
} qn_pre_step;

typedef enum qn_pre_bos {
    QN_PRE_BOS_NO,
    QN_PRE_BOS_YES,
    QN_PRE_BOS_ALWAYS,
} qn_pre_bos;

typedef struct qn_pre {
    char *name; /* the tokenizer.ggml.pre it was asked for */
    qn_pre_step step[QN_PRE_MAX_STEPS];
    int n_steps;
    bool ignore_merges, byte_encode, escape_spaces, whole_newlines;
    qn_pre_bos add_bos;
} qn_pre;

/* Makes the pre-tokenizer of a config. */
int qn_pre_new(qn_pre **out, const qn_yaml_node *config, const char *name, qn_err *err);
void qn_pre_free(qn_pre *p);

/* Words of a text. `text` is the input with each malformed byte replaced by U+FFFD and overlong forms made
 * short; the lengths of the words, in bytes of it, add up to its length. */
typedef struct qn_words {
    char *text;
    size_t len;
    uint32_t *word;
    size_t n;
} qn_words;

/* len is at most 2^28. Never loses text: where the regex engine gives up, it is an error. */
int qn_pre_split(const qn_pre *p, const char *text, size_t len, qn_words *out, qn_err *err);
void qn_words_free(qn_words *w);

/* tok_config.c: the YAML files, embedded or from a directory. */
typedef struct qn_tok_config qn_tok_config;
int qn_tok_config_open(qn_tok_config **out, const char *dir, qn_err *err);
void qn_tok_config_free(qn_tok_config *c);
const qn_yaml_node *qn_tok_config_vocabulary(const qn_tok_config *c);
/* The config that serves a pre-tokenizer name; NULL and a message with a hint where there is none. */
const qn_yaml_node *qn_tok_config_pre(const qn_tok_config *c, const char *name, qn_err *err);
/* Configs with a `recognise` list, one by one; NULL after the last. *name: its first `pre`. */
const qn_yaml_node *qn_tok_config_recognise(const qn_tok_config *c, size_t i, const char **name);

#endif
