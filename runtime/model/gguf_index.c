#include <stdlib.h>
#include <string.h>

#include "model/gguf_internal.h"

/* FNV-1a, 64 bits, with the upper half folded in: the table takes the low bits. */
static uint64_t hash_name(const char *s)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *s; s++) {
        h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    }
    return h ^ h >> 32;
}

static const char *name_of(const qn_name_index *ix, uint64_t i)
{
    const char *name;
    memcpy(&name, ix->items + i * ix->stride, sizeof name);
    return name;
}

int qn_name_index_build(qn_name_index *ix, const void *items, size_t stride, uint64_t n, uint64_t *first,
                        uint64_t *second)
{
    if (n >= UINT32_MAX / 4) {
        return -1;
    }
    uint64_t size = 16;
    while (size < 2 * n) {
        size *= 2;
    }
    ix->slots = qn_calloc(size, sizeof *ix->slots);
    if (!ix->slots) {
        return -1;
    }
    ix->mask = size - 1;
    ix->items = items;
    ix->stride = stride;
    for (uint64_t i = 0; i < n; i++) {
        const char *name = name_of(ix, i);
        uint64_t at = hash_name(name) & ix->mask;
        while (ix->slots[at]) {
            if (strcmp(name_of(ix, ix->slots[at] - 1), name) == 0) {
                *first = ix->slots[at] - 1;
                *second = i;
                return 1;
            }
            at = (at + 1) & ix->mask;
        }
        ix->slots[at] = (uint32_t)(i + 1);
    }
    return 0;
}

const void *qn_name_index_find(const qn_name_index *ix, const char *name)
{
    if (!ix->slots) {
        return NULL;
    }
    uint64_t at = hash_name(name) & ix->mask;
    while (ix->slots[at]) {
        uint64_t i = ix->slots[at] - 1;
        if (strcmp(name_of(ix, i), name) == 0) {
            return ix->items + i * ix->stride;
        }
        at = (at + 1) & ix->mask;
    }
    return NULL;
}

void qn_name_index_free(qn_name_index *ix)
{
    free(ix->slots);
    *ix = (qn_name_index){0};
}
