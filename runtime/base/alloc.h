/* alloc.h: allocation that cannot overflow, and a growing arena for what lives as long as its owner. */
#ifndef QN_BASE_ALLOC_H
#define QN_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* a * b into *out; false where the product does not fit. Same for sums. */
static inline bool qn_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool qn_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Zeroed memory for n objects of the given size; NULL on overflow or exhaustion. Free with free(). */
void *qn_calloc(size_t n, size_t size);

/* Memory aligned to 64 bytes (vector loads), not zeroed; NULL on failure. Free with free(). */
void *qn_alloc64(size_t bytes);

/* Arena: pieces live until the arena is freed. */
typedef struct qn_arena {
    struct qn_arena_block *head;
} qn_arena;

/* Zeroed piece, aligned to 16; NULL on failure. */
void *qn_arena_alloc(qn_arena *a, size_t bytes);
/* NUL-terminated copy of len bytes; NULL on failure. */
char *qn_arena_strndup(qn_arena *a, const char *s, size_t len);
void qn_arena_free(qn_arena *a);

#endif
