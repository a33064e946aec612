/* utf8.h: decoding of text that may be malformed, and a stream that lets only whole code points out. */
#ifndef QN_TEXT_UTF8_H
#define QN_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QN_UTF8_REPLACEMENT 0xfffdu

/* Strict (RFC 3629): reads one code point of the n >= 1 bytes. Returns its length (1..4) and sets *cp; or 0
 * where the bytes are the beginning of a code point that needs more; or -k where the first k bytes (1..3) are
 * not the beginning of any (the maximal subpart, Unicode 15 section 3.9). */
int qn_utf8_next(const unsigned char *s, size_t n, uint32_t *cp);

/* Writes a code point (at most 0x10ffff) as 1..4 bytes; returns how many. */
int qn_utf8_put(uint32_t cp, unsigned char *out);

/* Bytes that a lead byte announces: 1 for ASCII and for continuation bytes, 2, 3 or 4 for the others. */
static inline size_t qn_utf8_lead_len(unsigned char lead)
{
    return lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/* Bytes held back until a code point is complete. Zero-initialised; no memory to free. */
typedef struct qn_utf8_stream {
    unsigned char held[4];
    int n_held;
} qn_utf8_stream;

/* Takes n bytes and writes the text that is certain by now into `out`, which has room for QN_UTF8_OUT(n)
 * bytes; returns how many were written. Whatever the input, the whole output is valid UTF-8: each malformed
 * piece becomes one U+FFFD. */
#define QN_UTF8_OUT(n) (3 * ((n) + 3))
size_t qn_utf8_feed(qn_utf8_stream *s, const void *bytes, size_t n, char *out);

/* Ends the text: an incomplete code point becomes U+FFFD. Writes at most 3 bytes; returns how many. */
size_t qn_utf8_flush(qn_utf8_stream *s, char *out);

#endif
