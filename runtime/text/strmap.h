/* strmap.h: byte strings to numbers, open addressing. The strings are the caller's and must outlive the map.
 */
#ifndef QN_TEXT_STRMAP_H
#define QN_TEXT_STRMAP_H

#include <stddef.h>
#include <stdint.h>

typedef struct qn_strmap_slot {
    const char *key; /* NULL: free */
    uint32_t len;
    int32_t value;
    uint64_t hash;
} qn_strmap_slot;

typedef struct qn_strmap {
    qn_strmap_slot *slot;
    size_t mask; /* slots - 1, a power of two */
    size_t n;
} qn_strmap;

/* Room for n_expected entries without growing; -1: out of memory. A zeroed map may be freed. */
int qn_strmap_init(qn_strmap *m, size_t n_expected);
void qn_strmap_free(qn_strmap *m);

/* Adds the key unless it is there. Returns the slot's value, which is `value` if it was added; *added says
 * which (NULL: not wanted). -1 - out of memory - cannot be told from a stored -1: store values from 0 up. */
int32_t qn_strmap_add(qn_strmap *m, const char *key, size_t len, int32_t value, int *added);

/* -1 where the key is absent. */
int32_t qn_strmap_get(const qn_strmap *m, const char *key, size_t len);

#endif
