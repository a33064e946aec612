/* jinja_chars.c: characters of strings. */
#include "text/jinja_internal.h"

#include "text/unicode_class.h"
#include "text/utf8.h"

enum { BAD = 0xdc00 };

uint32_t qn_jchar(const char *p, size_t n, size_t *len)
{
    uint32_t cp = 0;
    int k = qn_utf8_next((const unsigned char *)p, n, &cp);
    *len = k > 0 ? (size_t)k : 1;
    return k > 0 ? cp : (uint32_t)BAD + (unsigned char)*p;
}

size_t qn_jchar_len(const char *p, size_t n)
{
    size_t len;
    if ((unsigned char)*p < 0x80) {
        return 1;
    }
    (void)qn_jchar(p, n, &len);
    return len;
}

void qn_jbuf_char(qn_jctx *c, qn_jbuf *b, uint32_t cp, uint32_t origin)
{
    unsigned char out[4];
    int n = 1;
    if (cp - BAD < 256) {
        out[0] = (unsigned char)(cp - BAD);
    } else {
        n = qn_utf8_put(cp, out);
    }
    qn_jbuf_put(c, b, (const char *)out, (size_t)n, origin);
}

size_t qn_jstr_chars(qn_jstr *s)
{
    if (s->n_chars == SIZE_MAX) {
        size_t n = 0;
        for (size_t i = 0; i < s->len; n++) {
            i += qn_jchar_len(s->p + i, s->len - i);
        }
        s->n_chars = n;
    }
    return s->n_chars;
}

size_t qn_jstr_at(qn_jstr *s, size_t i)
{
    if (qn_jstr_chars(s) == s->len) {
        return i;
    }
    size_t at = 0;
    for (; i > 0 && at < s->len; i--) {
        at += qn_jchar_len(s->p + at, s->len - at);
    }
    return at;
}

/* White space of Python's str. */
bool qn_jspace(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || (cp >= 0x1c && cp <= 0x20) || cp == 0x85 || cp == 0xa0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f ||
           cp == 0x3000;
}

/* Python's str.isprintable, of one character. */
bool qn_jprintable(uint32_t cp)
{
    if (cp < 0x80) {
        return cp >= 0x20 && cp < 0x7f;
    }
    qn_uclass u = qn_unicode_class(cp);
    return u != QN_UC_OTHER && u != QN_UC_SPACE;
}
