#include "cpu/matmul.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cpu/matmul_kernels.h"

struct qn_mm {
    qn_pool *pool;
    const qn_mm_kernels *k;
    bool exact;
    int max_n_in;
    size_t scratch_bytes; /* per worker */
    unsigned char *scratch;
};

static const qn_mm_kernels *kernels_of(qn_isa isa)
{
    switch (isa) {
#if defined(__x86_64__)
    case QN_ISA_AVX512:
        return &qn_mm_avx512;
    case QN_ISA_AVX2:
        return &qn_mm_avx2;
#endif
    default:
        return &qn_mm_portable;
    }
}

static size_t scratch_of(bool exact, int max_n_in)
{
    size_t b = exact ? sizeof(float) * (size_t)qn_mm_padded(max_n_in) : qn_mm_scratch_bytes(max_n_in);
    return (b + 63) / 64 * 64 + 64; /* workers' scratch never shares a line */
}

size_t qn_mm_bytes(int n_threads, bool exact, int max_n_in)
{
    return sizeof(qn_mm) + (size_t)n_threads * scratch_of(exact, max_n_in);
}

int qn_mm_new(qn_mm **out, qn_pool *pool, qn_isa isa, bool exact, int max_n_in, qn_err *err)
{
    *out = NULL;
    if (!qn_isa_usable(isa)) {
        return qn_fail(err, "this CPU has no %s", qn_isa_name(isa));
    }
    if (max_n_in < 1 || max_n_in > 1 << 24) {
        return qn_fail(err, "matrix rows of %d values: must be 1 to %d", max_n_in, 1 << 24);
    }
    qn_mm *mm = qn_calloc(1, sizeof *mm);
    size_t bytes = scratch_of(exact, max_n_in);
    unsigned char *scratch = qn_alloc64((size_t)qn_pool_size(pool) * bytes);
    if (!mm || !scratch) {
        free(mm);
        free(scratch);
        return qn_fail(err, "out of memory: %zu bytes of matrix scratch for %d threads", bytes,
                       qn_pool_size(pool));
    }
    *mm = (qn_mm){pool, kernels_of(isa), exact, max_n_in, bytes, scratch};
    *out = mm;
    return 0;
}

void qn_mm_free(qn_mm *mm)
{
    if (mm) {
        free(mm->scratch);
        free(mm);
    }
}

size_t qn_act_bytes(bool exact, int max_n_in, int max_tokens)
{
    return exact ? 0 : qn_q8_row_bytes(max_n_in) * (size_t)max_tokens;
}

int qn_act_init(qn_act *act, bool exact, int max_n_in, int max_tokens, qn_err *err)
{
    memset(act, 0, sizeof *act);
    act->q8_bytes = qn_act_bytes(exact, max_n_in, max_tokens);
    if (act->q8_bytes == 0) {
        return 0;
    }
    act->q8 = qn_alloc64(act->q8_bytes);
    if (!act->q8) {
        return qn_fail(err, "out of memory: %zu bytes for %d rows of %d activations", act->q8_bytes,
                       max_tokens, max_n_in);
    }
    return 0;
}

void qn_act_free(qn_act *act)
{
    free(act->q8);
    memset(act, 0, sizeof *act);
}

void qn_act_set(qn_act *act, const float *x, ptrdiff_t stride, int n_in, int n_tokens)
{
    act->x = x;
    act->stride = stride;
    act->n_in = n_in;
    act->n_tokens = n_tokens;
    act->q8_ready = false;
}

struct quantize_job {
    const qn_mm_kernels *k;
    const qn_act *act;
};

static void quantize_range(void *arg, int first, int last, int worker)
{
    (void)worker;
    const struct quantize_job *j = arg;
    for (int t = first; t < last; t++) {
        j->k->quantize(j->act->x + t * j->act->stride, j->act->n_in, qn_q8_row_at(j->act, t));
    }
}

static bool needs_q8(const qn_product *p, int n_products)
{
    for (int i = 0; i < n_products; i++) {
        if (qn_dtype_get(p[i].type)->block_values > 1) {
            return true;
        }
    }
    return false;
}

struct run_job {
    const qn_mm *mm;
    const qn_act *act;
    const qn_product *p;
    int n_products;
};

/* Index space: blocks of QN_MM_ROWS rows, product after product. */
static void run_range(void *arg, int first, int last, int worker)
{
    const struct run_job *j = arg;
    qn_mm_block b = {.act = j->act, .scratch = j->mm->scratch + (size_t)worker * j->mm->scratch_bytes};
    int base = 0;
    for (int i = 0; i < j->n_products && base < last; i++) {
        const qn_product *p = &j->p[i];
        const qn_dtype *type = qn_dtype_get(p->type);
        int n_blocks = (p->n_out + QN_MM_ROWS - 1) / QN_MM_ROWS;
        int lo = first > base ? first - base : 0, hi = last - base < n_blocks ? last - base : n_blocks;
        b.type = p->type;
        b.row_bytes = (size_t)(j->act->n_in / type->block_values) * type->block_bytes;
        b.y_stride = p->y_stride;
        for (int k = lo; k < hi; k++) {
            int row = k * QN_MM_ROWS;
            b.w = (const uint8_t *)p->w + (size_t)row * b.row_bytes;
            b.n_rows = p->n_out - row < QN_MM_ROWS ? p->n_out - row : QN_MM_ROWS;
            b.y = p->y + row;
            (j->mm->exact ? j->mm->k->exact : j->mm->k->rows)(&b);
        }
        base += n_blocks;
    }
}

void qn_mm_run(qn_mm *mm, qn_act *act, const qn_product *p, int n_products)
{
    if (act->n_tokens <= 0) {
        return;
    }
    if (!mm->exact && !act->q8_ready && needs_q8(p, n_products)) {
        struct quantize_job q = {mm->k, act};
        qn_parallel(mm->pool, act->n_tokens, 1 + 4096 / act->n_in, quantize_range, &q);
        act->q8_ready = true;
    }
    struct run_job j = {mm, act, p, n_products};
    int n_blocks = 0;
    for (int i = 0; i < n_products; i++) {
        n_blocks += (p[i].n_out + QN_MM_ROWS - 1) / QN_MM_ROWS;
    }
    qn_parallel(mm->pool, n_blocks, 1, run_range, &j);
}
