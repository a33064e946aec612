/* unicode_class.h: what kind of character a code point is.
 *
 * Pre-tokenizer patterns speak of letters, numbers, punctuation, marks, symbols and white space. The answer
 * must not hang on the Unicode version of the regex library that happens to be installed, so the table is our
 * own: general categories of Unicode 15.1, the version that the reference tokenizers use. */
#ifndef QN_TEXT_UNICODE_CLASS_H
#define QN_TEXT_UNICODE_CLASS_H

#include <stddef.h>
#include <stdint.h>

typedef enum qn_uclass {
    QN_UC_OTHER =
        0, /* control, format, surrogate, private use, unassigned, separators that are not white space */
    QN_UC_NUMBER = 1,
    QN_UC_LETTER = 2,
    QN_UC_PUNCT = 3,
    QN_UC_MARK = 4,
    QN_UC_SYMBOL = 5,
    QN_UC_SPACE = 6,
} qn_uclass;

/* Of a code point from U+0080 up; anything else is QN_UC_OTHER. O(log n). */
qn_uclass qn_unicode_class(uint32_t cp);

/* First code point of each run << 3 | class, ascending; the first run begins at U+0080. */
extern const uint32_t qn_unicode_runs[];
extern const size_t qn_unicode_n_runs;

#endif
