/* pairs.h: which characters stand next to each other inside the strings of a vocabulary.
 *
 * Where two neighbours of a text do so in no string, nothing is ever joined across them, so both sides can be
 * worked on apart: the queue of merges stays as small as a word, however long the text. */
#ifndef QN_TEXT_PAIRS_H
#define QN_TEXT_PAIRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct qn_pairs {
    uint64_t *slot; /* both characters' bytes, never 0; 0: free */
    size_t mask, n;
} qn_pairs;

int qn_pairs_init(qn_pairs *p); /* -1: out of memory */
void qn_pairs_free(qn_pairs *p);

/* Adds the neighbours of a string; -1: out of memory. */
int qn_pairs_add(qn_pairs *p, const char *s, size_t len);

/* Bytes from s up to the first place where nothing can be joined; at least one character, at most len. */
size_t qn_pairs_segment(const qn_pairs *p, const char *s, size_t len);

/* Bytes of the character at s, as texts are taken apart into symbols: what the lead byte announces, or the
 * rest. */
size_t qn_symbol_len(const char *s, size_t len);

#endif
