#include "text/pairs.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/utf8.h"

size_t qn_symbol_len(const char *s, size_t len)
{
    size_t k = qn_utf8_lead_len((unsigned char)*s);
    return k < len ? k : len;
}

int qn_pairs_init(qn_pairs *p)
{
    p->mask = 4095;
    p->n = 0;
    p->slot = qn_calloc(p->mask + 1, sizeof *p->slot);
    return p->slot ? 0 : -1;
}

void qn_pairs_free(qn_pairs *p)
{
    free(p->slot);
    memset(p, 0, sizeof *p);
}

/* Two characters of at most four bytes as one number; 0 only of two NUL bytes, which gets another bit. */
static uint64_t pair_key(const char *a, size_t n, const char *b, size_t m)
{
    uint32_t x = 0, y = 0;
    memcpy(&x, a, n);
    memcpy(&y, b, m);
    uint64_t key = (uint64_t)x << 32 | y;
    return key ? key : (uint64_t)1 << 63 | 1;
}

static size_t place(const qn_pairs *p, uint64_t key)
{
    uint64_t h = key * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(h ^ h >> 32) & p->mask;
    while (p->slot[i] && p->slot[i] != key) {
        i = (i + 1) & p->mask;
    }
    return i;
}

static int grow(qn_pairs *p)
{
    qn_pairs bigger = {.mask = p->mask * 2 + 1, .n = p->n};
    bigger.slot = qn_calloc(bigger.mask + 1, sizeof *bigger.slot);
    if (!bigger.slot) {
        return -1;
    }
    for (size_t i = 0; i <= p->mask; i++) {
        if (p->slot[i]) {
            bigger.slot[place(&bigger, p->slot[i])] = p->slot[i];
        }
    }
    free(p->slot);
    *p = bigger;
    return 0;
}

int qn_pairs_add(qn_pairs *p, const char *s, size_t len)
{
    size_t n = len ? qn_symbol_len(s, len) : 0;
    for (size_t i = 0; i + n < len;) {
        size_t m = qn_symbol_len(s + i + n, len - i - n);
        uint64_t key = pair_key(s + i, n, s + i + n, m);
        size_t at = place(p, key);
        if (!p->slot[at]) {
            p->slot[at] = key;
            p->n++;
            if (p->n > p->mask / 2 && grow(p)) {
                return -1;
            }
        }
        i += n;
        n = m;
    }
    return 0;
}

size_t qn_pairs_segment(const qn_pairs *p, const char *s, size_t len)
{
    size_t n = qn_symbol_len(s, len);
    size_t i = 0;
    while (i + n < len) {
        size_t m = qn_symbol_len(s + i + n, len - i - n);
        if (!p->slot[place(p, pair_key(s + i, n, s + i + n, m))]) {
            return i + n;
        }
        i += n;
        n = m;
    }
    return len;
}
