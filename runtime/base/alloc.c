#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

enum { ARENA_BLOCK = 64 * 1024 };

struct qn_arena_block {
    struct qn_arena_block *next;
    size_t used, size;
    _Alignas(16) unsigned char data[];
};

void *qn_calloc(size_t n, size_t size)
{
    return calloc(n ? n : 1, size ? size : 1);
}

void *qn_alloc64(size_t bytes)
{
    if (bytes > SIZE_MAX - 64) {
        return NULL;
    }
    size_t rounded = (bytes + 63) / 64 * 64;
    return aligned_alloc(64, rounded ? rounded : 64);
}

void *qn_arena_alloc(qn_arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) {
        return NULL;
    }
    size_t need = (bytes + 15) / 16 * 16;
    if (!a->head || a->head->size - a->head->used < need) {
        size_t size = need > ARENA_BLOCK ? need : ARENA_BLOCK;
        struct qn_arena_block *b = malloc(sizeof *b + size);
        if (!b) {
            return NULL;
        }
        b->next = a->head;
        b->used = 0;
        b->size = size;
        a->head = b;
    }
    void *p = a->head->data + a->head->used;
    a->head->used += need;
    memset(p, 0, need);
    return p;
}

char *qn_arena_strndup(qn_arena *a, const char *s, size_t len)
{
    if (len >= SIZE_MAX / 2) {
        return NULL;
    }
    char *p = qn_arena_alloc(a, len + 1);
    if (p) {
        memcpy(p, s, len);
    }
    return p;
}

void qn_arena_free(qn_arena *a)
{
    while (a->head) {
        struct qn_arena_block *next = a->head->next;
        free(a->head);
        a->head = next;
    }
}
