/* lower_post.c: RMS norms behind a product, before the residual: made inside the product's launch. */
#include "cuda/lower_internal.h"

#include <string.h>

/* Of every card: threads and bytes of shared memory that a multiprocessor has for blocks. */
enum { THREADS = 1024, SHARED = 64 << 10, RESERVED = 1 << 10 };

const qn_step *qn_lower_post_norm(const lowerer *l)
{
    const qn_step *s = l->step, *end = l->plan->steps + l->plan->n_step, *n = s + 1;
    const qn_spec_norm *sp = &n->spec.norm;
    const qn_spec_linear *lin = &s->spec.linear;
    if (l->mode != LOWER_DECODE || l->opts->no_fuse || l->apart == s || n == end || n->op->id != QN_OP_NORM) {
        return NULL;
    }
    bool whole = lin->n_seg == 1 && !lin->residual && lin->n_out % 32 == 0 && s->rows == n->rows &&
                 memcmp(&n->in[0], &s->out[0], sizeof n->in[0]) == 0;
    bool takes = sp->kind == QN_NORM_RMS && !sp->has_b && sp->groups == 1 && sp->residual &&
                 n->in[1].buf != s->out[0].buf && n->out[0].buf != s->out[0].buf;
    bool width = l->post_width == 0 || l->post_width == lin->n_out; /* all launches share their words */
    return whole && takes && width && !qn_lower_read_later(l, n, s->out[0]) ? n : NULL;
}

bool qn_lower_all_resident(const lowerer *l, const launch *k, int per_sm)
{
    uint32_t places = (uint32_t)(l->opts->multiprocessors > 0 ? l->opts->multiprocessors : 1);
    uint32_t each = l->opts->persistent ? 1 : (uint32_t)per_sm; /* a phase's blocks are the launch's */
    return k->threads * each <= THREADS && (k->shared + RESERVED) * each <= SHARED &&
           (uint64_t)k->grid[0] <= (uint64_t)places * each;
}

void qn_lower_add_post(lowerer *l, launch *k, const qn_step *post)
{
    int32_t eps = 0, scale = 0;
    if (post) {
        memcpy(&eps, &post->spec.norm.eps, sizeof eps);
        memcpy(&scale, &post->spec.norm.out_scale, sizeof scale);
        l->post_width = post->spec.norm.n;
    }
    k->consts[k->n_const++] = (qn_source_const){"post", post != NULL, true, false};
    k->consts[k->n_const++] = (qn_source_const){"post_eps_bits", eps, false, false};
    k->consts[k->n_const++] = (qn_source_const){"post_scale_bits", scale, false, false};
    k->args[k->n_arg++] = post ? qn_lower_weight(l, post->w[0]) : 0;
    k->args[k->n_arg++] = l->opts->mem->row_sums;
}
