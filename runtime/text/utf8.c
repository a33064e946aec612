#include "text/utf8.h"

#include <string.h>

/* Continuation bytes that follow a lead byte; -1 where it cannot lead. */
static int tail_len(unsigned char lead)
{
    if (lead < 0x80) {
        return 0;
    }
    if (lead < 0xc2 || lead > 0xf4) {
        return -1;
    }
    return lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
}

/* The second byte has a narrower range after four leads, which keeps overlong forms, surrogates and values
 * above U+10FFFF out. */
static bool second_ok(unsigned char lead, unsigned char c)
{
    unsigned char lo = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char hi = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    return c >= lo && c <= hi;
}

int qn_utf8_next(const unsigned char *s, size_t n, uint32_t *cp)
{
    int tail = tail_len(s[0]);
    if (tail < 0) {
        return -1;
    }
    if (tail == 0) {
        *cp = s[0];
        return 1;
    }
    uint32_t v = s[0] & (0x3fu >> tail);
    for (int i = 1; i <= tail; i++) {
        if ((size_t)i == n) {
            return 0;
        }
        bool ok = i == 1 ? second_ok(s[0], s[1]) : (s[i] & 0xc0) == 0x80;
        if (!ok) {
            return -i;
        }
        v = v << 6 | (s[i] & 0x3f);
    }
    *cp = v;
    return tail + 1;
}

int qn_utf8_put(uint32_t cp, unsigned char *out)
{
    if (cp < 0x80) {
        out[0] = (unsigned char)cp;
        return 1;
    }
    int tail = cp < 0x800 ? 1 : cp < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    out[0] = (unsigned char)(lead[tail] | cp >> (6 * tail));
    for (int i = 1; i <= tail; i++) {
        out[i] = (unsigned char)(0x80 | (cp >> (6 * (tail - i)) & 0x3f));
    }
    return tail + 1;
}

static const char replacement[3] = {'\xef', '\xbf', '\xbd'};

/* Moves everything certain out of the held bytes (at most 4). */
static size_t drain(qn_utf8_stream *s, char *out)
{
    size_t written = 0;
    while (s->n_held) {
        uint32_t cp;
        int k = qn_utf8_next(s->held, (size_t)s->n_held, &cp);
        if (k == 0) {
            break;
        }
        if (k > 0) {
            memcpy(out + written, s->held, (size_t)k);
            written += (size_t)k;
        } else {
            k = -k;
            memcpy(out + written, replacement, sizeof replacement);
            written += sizeof replacement;
        }
        s->n_held -= k;
        memmove(s->held, s->held + k, (size_t)s->n_held);
    }
    return written;
}

size_t qn_utf8_feed(qn_utf8_stream *s, const void *bytes, size_t n, char *out)
{
    const unsigned char *p = bytes;
    size_t written = 0;
    for (size_t i = 0; i < n; i++) {
        if (s->n_held == 0 && p[i] < 0x80) {
            out[written++] = (char)p[i];
            continue;
        }
        s->held[s->n_held++] = p[i];
        written += drain(s, out + written);
    }
    return written;
}

size_t qn_utf8_flush(qn_utf8_stream *s, char *out)
{
    if (s->n_held == 0) {
        return 0;
    }
    s->n_held = 0;
    memcpy(out, replacement, sizeof replacement);
    return sizeof replacement;
}
