/* The tensor table of one file. */
#include <stdlib.h>

#include "model/dtype.h"
#include "model/gguf_internal.h"

/* The format's limit is 64 bytes; some writers go beyond. */
enum { NAME_MAX_BYTES = 255, DIMS_MAX = 4 };

typedef struct extent {
    uint64_t begin, end; /* in the file */
    uint64_t tensor;     /* index in g->tensors */
} extent;

/* ne, and from it and the type n_bytes; no product wraps. */
static int check_shape(const qn_gguf_file *f, qn_tensor *t, qn_err *err)
{
    uint64_t elements = 1;
    for (uint32_t d = 0; d < t->n_dims; d++) {
        if (t->ne[d] == 0) {
            return qn_fail(err, "%s: tensor %s: dimension %u is 0", f->shown, t->name, d);
        }
        if (!qn_mul_u64(elements, t->ne[d], &elements) || elements > INT64_MAX) {
            return qn_fail(err,
                           "%s: tensor %s: the product of its dimensions %llu x %llu x %llu x %llu overflows",
                           f->shown, t->name, (unsigned long long)t->ne[0], (unsigned long long)t->ne[1],
                           (unsigned long long)t->ne[2], (unsigned long long)t->ne[3]);
        }
    }
    const qn_dtype *row = qn_dtype_get(t->type);
    if (!row) {
        return qn_fail(err, "%s: tensor %s has type number %u, which is unknown; supported types: %s",
                       f->shown, t->name, t->type, qn_dtype_supported());
    }
    if (t->ne[0] % row->block_values != 0) {
        return qn_fail(err,
                       "%s: tensor %s: row length %llu is not a multiple of %u, the block of its type %s",
                       f->shown, t->name, (unsigned long long)t->ne[0], row->block_values, row->name);
    }
    if (!qn_mul_u64(elements / row->block_values, row->block_bytes, &t->n_bytes)) {
        return qn_fail(err, "%s: tensor %s: the size of %llu values of type %s overflows", f->shown, t->name,
                       (unsigned long long)elements, row->name);
    }
    return 0;
}

/* One record of the table; the offset, relative to the data section, goes to *offset. */
static int take_tensor(qn_gguf_file *f, qn_arena *arena, uint64_t i, qn_tensor *t, uint64_t *offset,
                       qn_err *err)
{
    if (qn_gguf_take_name(f, arena, NAME_MAX_BYTES, "tensor", i, f->n_tensors, &t->name, err) != 0) {
        return -1;
    }
    if (!qn_gguf_take_u32(f, &t->n_dims)) {
        return qn_gguf_cut_short(f, "the table entry of tensor", i, f->n_tensors, err);
    }
    if (t->n_dims < 1 || t->n_dims > DIMS_MAX) {
        return qn_fail(err, "%s: tensor %s has %u dimensions; 1 to %d are supported", f->shown, t->name,
                       t->n_dims, DIMS_MAX);
    }
    for (uint32_t d = 0; d < DIMS_MAX; d++) {
        t->ne[d] = 1;
        if (d < t->n_dims && !qn_gguf_take_u64(f, &t->ne[d])) {
            return qn_gguf_cut_short(f, "the table entry of tensor", i, f->n_tensors, err);
        }
    }
    if (!qn_gguf_take_u32(f, &t->type) || !qn_gguf_take_u64(f, offset)) {
        return qn_gguf_cut_short(f, "the table entry of tensor", i, f->n_tensors, err);
    }
    if (*offset % f->alignment != 0) {
        return qn_fail(err, "%s: tensor %s: offset %llu is not a multiple of the alignment %llu", f->shown,
                       t->name, (unsigned long long)*offset, (unsigned long long)f->alignment);
    }
    return check_shape(f, t, err);
}

/* Turns an offset into a place in the file. */
static int place_tensor(const qn_gguf_file *f, uint64_t data_start, uint64_t offset, qn_tensor *t, extent *e,
                        qn_err *err)
{
    if (!qn_add_u64(data_start, offset, &e->begin) || !qn_add_u64(e->begin, t->n_bytes, &e->end)) {
        return qn_fail(err, "%s: tensor %s: offset %llu plus size %llu overflows", f->shown, t->name,
                       (unsigned long long)offset, (unsigned long long)t->n_bytes);
    }
    if (e->end > f->size) {
        return qn_fail(
            err,
            "%s: tensor %s does not fit: its %llu bytes end at byte %llu, but the file has %llu bytes; the "
            "file is probably incomplete",
            f->shown, t->name, (unsigned long long)t->n_bytes, (unsigned long long)e->end,
            (unsigned long long)f->size);
    }
    t->data = f->data + e->begin;
    return 0;
}

static int by_begin(const void *a, const void *b)
{
    const extent *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static int check_overlap(const qn_gguf *g, const qn_gguf_file *f, extent *e, uint64_t n, qn_err *err)
{
    if (n < 2) {
        return 0;
    }
    qsort(e, (size_t)n, sizeof *e, by_begin);
    for (uint64_t i = 1; i < n; i++) {
        if (e[i].begin < e[i - 1].end) {
            return qn_fail(err,
                           "%s: tensors %s and %s overlap (one ends at byte %llu, the other begins at %llu)",
                           f->shown, g->tensors[e[i - 1].tensor].name, g->tensors[e[i].tensor].name,
                           (unsigned long long)e[i - 1].end, (unsigned long long)e[i].begin);
        }
    }
    return 0;
}

/* Second pass, when the end of the table and so the start of the data is known. e[i].begin holds the offset.
 */
static int place_tensors(qn_gguf *g, const qn_gguf_file *f, uint64_t first, extent *e, qn_err *err)
{
    uint64_t data_start;
    if (!qn_add_u64(f->pos, f->alignment - 1, &data_start)) {
        return qn_fail(err, "%s: the start of the tensor data overflows", f->shown);
    }
    data_start -= data_start % f->alignment;
    for (uint64_t i = 0; i < f->n_tensors; i++) {
        e[i].tensor = first + i;
        if (place_tensor(f, data_start, e[i].begin, &g->tensors[first + i], &e[i], err) != 0) {
            return -1;
        }
    }
    return check_overlap(g, f, e, f->n_tensors, err);
}

int qn_gguf_read_tensors(qn_gguf *g, uint64_t shard, qn_err *err)
{
    qn_gguf_file *f = &g->files[shard];
    uint64_t first = g->n_tensors, capacity = g->n_tensors, extents_capacity = 0;
    extent *e = NULL;
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < f->n_tensors; i++) {
        qn_tensor *tensors = qn_gguf_grow(g->tensors, g->n_tensors, &capacity, sizeof *tensors);
        g->tensors = tensors ? tensors : g->tensors;
        extent *extents = qn_gguf_grow(e, i, &extents_capacity, sizeof *extents);
        e = extents ? extents : e;
        if (!tensors || !extents) {
            rc = qn_fail(err, "%s: out of memory", f->shown);
            break;
        }
        qn_tensor *t = &g->tensors[g->n_tensors];
        *t = (qn_tensor){.shard = (int)shard};
        rc = take_tensor(f, &g->arena, i, t, &e[i].begin, err);
        g->n_tensors += rc == 0;
    }
    if (rc == 0) {
        rc = place_tensors(g, f, first, e, err);
    }
    free(e);
    return rc;
}
