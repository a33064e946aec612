#include "text/strmap.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Multiply-and-fold over 8-byte words; only spread matters, nothing is stored on disk. */
static uint64_t hash_bytes(const char *p, size_t n)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ n;
    while (n >= 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        h = (h ^ w) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
        p += 8;
        n -= 8;
    }
    uint64_t w = 0;
    memcpy(&w, p, n);
    h = (h ^ w) * 0xc4ceb9fe1a85ec53u;
    h ^= h >> 29;
    h *= 0xff51afd7ed558ccdu;
    return h ^ h >> 32;
}

int qn_strmap_init(qn_strmap *m, size_t n_expected)
{
    size_t size = 16;
    while (size < n_expected * 2) {
        size *= 2;
    }
    m->slot = qn_calloc(size, sizeof *m->slot);
    m->mask = size - 1;
    m->n = 0;
    return m->slot ? 0 : -1;
}

void qn_strmap_free(qn_strmap *m)
{
    free(m->slot);
    memset(m, 0, sizeof *m);
}

static qn_strmap_slot *find(const qn_strmap *m, const char *key, size_t len, uint64_t hash)
{
    size_t i = hash & m->mask;
    for (;;) {
        qn_strmap_slot *s = &m->slot[i];
        if (!s->key || (s->hash == hash && s->len == len && memcmp(s->key, key, len) == 0)) {
            return s;
        }
        i = (i + 1) & m->mask;
    }
}

static int grow(qn_strmap *m)
{
    qn_strmap bigger;
    if (qn_strmap_init(&bigger, m->mask + 1)) {
        return -1;
    }
    for (size_t i = 0; i <= m->mask; i++) {
        if (m->slot[i].key) {
            *find(&bigger, m->slot[i].key, m->slot[i].len, m->slot[i].hash) = m->slot[i];
        }
    }
    bigger.n = m->n;
    free(m->slot);
    *m = bigger;
    return 0;
}

int32_t qn_strmap_add(qn_strmap *m, const char *key, size_t len, int32_t value, int *added)
{
    int dummy;
    added = added ? added : &dummy;
    *added = 0;
    if (len > UINT32_MAX || (m->n >= (m->mask + 1) / 2 && grow(m))) {
        return -1;
    }
    uint64_t hash = hash_bytes(key, len);
    qn_strmap_slot *s = find(m, key, len, hash);
    if (!s->key) {
        *s = (qn_strmap_slot){.key = key, .len = (uint32_t)len, .value = value, .hash = hash};
        m->n++;
        *added = 1;
    }
    return s->value;
}

int32_t qn_strmap_get(const qn_strmap *m, const char *key, size_t len)
{
    const qn_strmap_slot *s = find(m, key, len, hash_bytes(key, len));
    return s->key ? s->value : -1;
}
