/* half_cache.c: weights kept as 16-bit rows for the products of prompts: which, and where each begins. */
#include <stdlib.h>

#include "cuda/lower.h"

/* The weights of a step that prefill multiplies, in the order of their outputs. */
int qn_product_weights(const qn_step *s, const qn_tensor *w[3])
{
    if (s->op->id == QN_OP_LINEAR) {
        w[0] = s->w[0];
        w[1] = s->w[3];
        w[2] = s->w[6];
        return s->spec.linear.n_seg;
    }
    if (s->op->id == QN_OP_GLU) {
        w[0] = s->spec.glu.fused ? s->w[3] : s->w[0];
        w[1] = s->w[3];
        return s->spec.glu.fused ? 1 : 2;
    }
    return 0;
}

bool qn_half_kept(const qn_step *s, const qn_tensor *t, const qn_exec_opts *opts)
{
    if (qn_cuda_takes_fp8(s, opts)) {
        return true;
    }
    return s->rows == QN_ROWS_TOKENS && t->type != QN_F16 && t->type != QN_BF16 &&
           !qn_cuda_takes_mmq(s, opts) && !qn_cuda_takes_wgmma(t, opts);
}

/* NULL: it is not kept. */
static const qn_half_item *find(const qn_half_cache *c, const qn_tensor *t)
{
    for (int i = 0; i < c->n; i++) {
        if (c->items[i].tensor == t) {
            return &c->items[i];
        }
    }
    return NULL;
}

int qn_half_cache_make(qn_half_cache *c, const qn_plans *p, const qn_exec_opts *opts, qn_err *err)
{
    enum { ALIGN = 256 };
    *c = (qn_half_cache){.items = qn_calloc(3 * (size_t)p->prefill.n_step + 1, sizeof *c->items)};
    if (!c->items) {
        return qn_fail(err, "out of memory for the weight cache");
    }
    for (int i = 0; i < p->prefill.n_step; i++) {
        const qn_step *s = &p->prefill.steps[i];
        const qn_tensor *w[3];
        int n = qn_product_weights(s, w);
        bool fp8 = qn_cuda_takes_fp8(s, opts);
        int before = c->n;
        c->bytes = (c->bytes + ALIGN - 1) / ALIGN * ALIGN;
        for (int k = 0; k < n; k++) { /* back to back, so that one product takes them all */
            if (qn_half_kept(s, w[k], opts) && !find(c, w[k])) {
                c->items[c->n++] = (qn_half_item){w[k], c->bytes, fp8 ? 1 + c->n_fp8 : 0};
                c->bytes += (fp8 ? 1 : 2) * w[k]->ne[0] * w[k]->ne[1];
            }
        }
        c->n_fp8 += fp8 && c->n > before;
    }
    return 0;
}

uint64_t qn_half_cache_at(const qn_half_cache *c, const qn_tensor *t)
{
    const qn_half_item *item = find(c, t);
    return item ? c->base + item->at : 0;
}

int qn_half_cache_fp8(const qn_half_cache *c, const qn_tensor *t)
{
    const qn_half_item *item = find(c, t);
    return item ? item->fp8 : 0;
}

void qn_half_cache_free(qn_half_cache *c)
{
    free(c->items);
    *c = (qn_half_cache){0};
}
