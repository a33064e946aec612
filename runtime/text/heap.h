/* heap.h: the queue of candidate merges: what should be merged first is on top, ties go to the left. */
#ifndef QN_TEXT_HEAP_H
#define QN_TEXT_HEAP_H

#include <stdint.h>
#include <stdlib.h>

#include "base/error.h"

typedef struct qn_merge {
    double order; /* least first */
    int32_t left, right;
    uint32_t len; /* bytes of both sides when it was queued: a later merge makes the candidate stale */
    int32_t result;
} qn_merge;

typedef struct qn_heap {
    qn_merge *m;
    size_t n, size;
} qn_heap;

static inline int qn_heap_before(const qn_merge *a, const qn_merge *b)
{
    return a->order < b->order || (a->order == b->order && a->left < b->left);
}

static inline int qn_heap_push(qn_heap *h, qn_merge m, qn_err *err)
{
    if (h->n == h->size) {
        size_t size = h->size ? h->size * 2 : 64;
        qn_merge *p = realloc(h->m, size * sizeof *p);
        if (!p) {
            return qn_fail(err, "out of memory while merging");
        }
        h->m = p;
        h->size = size;
    }
    size_t i = h->n++;
    while (i && qn_heap_before(&m, &h->m[(i - 1) / 2])) {
        h->m[i] = h->m[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    h->m[i] = m;
    return 0;
}

/* The heap is not empty. */
static inline qn_merge qn_heap_pop(qn_heap *h)
{
    qn_merge top = h->m[0], last = h->m[--h->n];
    size_t i = 0;
    for (;;) {
        size_t c = 2 * i + 1;
        if (c >= h->n) {
            break;
        }
        if (c + 1 < h->n && qn_heap_before(&h->m[c + 1], &h->m[c])) {
            c++;
        }
        if (!qn_heap_before(&h->m[c], &last)) {
            break;
        }
        h->m[i] = h->m[c];
        i = c;
    }
    h->m[i] = last;
    return top;
}

#endif
