/* lower_norm_in.c: norms between two products of decode that the second one's blocks make (norm_in.cuh). */
#include "cuda/lower_internal.h"

#include <string.h>

/* A thread of 12 warps keeps so many pieces of four values of the row, at most. */
enum { MOST_OWN = 4, WARPS = 12 };

/* Does the step behind this norm take its result, and nobody else, and neither read the views besides nor
 * write where its blocks read (the stream, and what the product left)? */
static bool sole_reader(const lowerer *l, const qn_step *next, qn_view stream)
{
    const qn_step *r = next + 1, *end = l->plan->steps + l->plan->n_step;
    if (r == end || (r->op->id != QN_OP_LINEAR && r->op->id != QN_OP_GLU) || r->rows != next->rows ||
        !qn_lower_same_view(r->in[0], next->out[0]) || qn_lower_read_later(l, r, next->out[0])) {
        return false;
    }
    for (int i = 1; i < QN_STEP_VIEWS; i++) {
        if (r->in[i].buf >= 0 && (r->in[i].buf == stream.buf || r->in[i].buf == next->out[0].buf)) {
            return false;
        }
    }
    for (int i = 0; i < QN_STEP_VIEWS; i++) {
        if (r->out[i].buf >= 0 && (r->out[i].buf == stream.buf || r->out[i].buf == l->step->out[0].buf)) {
            return false;
        }
    }
    return true;
}

bool qn_lower_leave_norm(lowerer *l, const qn_step *post, const qn_step *next)
{
    if (!post || !next || l->mode != LOWER_DECODE || l->opts->no_fuse) {
        return false;
    }
    qn_view from = post->in[1], to = post->out[0];
    bool in_place = from.buf == to.buf,
         whole = from.col == 0 && to.col == 0 && qn_lower_same_view(next->in[0], to);
    bool free_turn = !in_place || l->stream_buf < 0 || l->stream_buf == to.buf;
    if (!whole || !free_turn || to.width % 32 != 0 || to.width > MOST_OWN * 4 * 32 * WARPS ||
        !sole_reader(l, next, to)) {
        return false;
    }
    l->left = (left_norm){
        .next = next, .post = post, .x = qn_lower_at(l, from), .y = qn_lower_at(l, l->step->out[0])};
    if (in_place) {
        uint64_t own = l->opts->mem->bufs[to.buf];
        l->stream_at = l->stream_buf == to.buf && l->stream_at != own ? own : l->opts->mem->stream;
        l->stream_buf = to.buf;
    }
    l->left.x_out = qn_lower_at(l, to);
    l->done = next;
    return true;
}

left_norm qn_lower_left(const lowerer *l)
{
    bool is_reader = l->mode == LOWER_DECODE && l->left.next && l->step == l->left.next + 1;
    return is_reader ? l->left : (left_norm){0};
}

uint32_t qn_lower_norm_in(const lowerer *l, launch *k, const left_norm *in)
{
    const qn_step *next = in->next, *post = in->post;
    int32_t post_eps = 0, post_scale = 0, eps = 0;
    uint32_t bytes = 0;
    if (next) {
        int n = next->spec.norm.n, places = (int)qn_lower_places((uint64_t)n / 32);
        int each = qn_cuda_fine(l->opts->exec, n) ? 48 : 40;
        bytes = (uint32_t)((places * each + 15) / 16 * 16 + (8 * ((n + 127) / 128) + 15) / 16 * 16);
        memcpy(&eps, &next->spec.norm.eps, sizeof eps);
        memcpy(&post_eps, &post->spec.norm.eps, sizeof post_eps);
        memcpy(&post_scale, &post->spec.norm.out_scale, sizeof post_scale);
    }
    k->consts[k->n_const++] = (qn_source_const){"in_norm", next != NULL, true, false};
    k->consts[k->n_const++] = (qn_source_const){"in_eps_bits", eps, false, false};
    k->consts[k->n_const++] = (qn_source_const){"in_post_eps_bits", post_eps, false, false};
    k->consts[k->n_const++] = (qn_source_const){"in_post_scale_bits", post_scale, false, false};
    k->args[k->n_arg++] = next ? qn_lower_weight(l, post->w[0]) : 0;
    k->args[k->n_arg++] = next ? qn_lower_weight(l, next->w[0]) : 0;
    k->args[k->n_arg++] = in->x_out;
    return bytes;
}
