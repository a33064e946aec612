/* lower_special.c: ops that only some models have, one block a row each. */
#include "cuda/lower_internal.h"

/* Threads for n values of one row, 32 to 512. */
static uint32_t row_threads(const lowerer *l, int n)
{
    uint32_t t = 32, most = qn_lower_rings(l) ? 256 : 512;
    while (t < most && (int64_t)t * 4 < n) {
        t *= 2;
    }
    return t;
}

/* A kernel over rows whose first parameters are the state and in0, in1, out0 with their strides. */
static launch row_launch(const lowerer *l, const char *kernel, uint32_t threads)
{
    const qn_step *s = l->step;
    return (launch){
        .kernel = kernel,
        .consts = {{"threads", (int)threads, false}, {"outputs", s->rows == QN_ROWS_OUTPUTS, false}},
        .n_const = 2,
        .threads = threads,
        .rows_axis = 0,
        .args = {l->opts->mem->state, qn_lower_at(l, s->in[0]), qn_lower_stride(l, s->in[0]),
                 qn_lower_at(l, s->in[1]), qn_lower_stride(l, s->in[1]), qn_lower_at(l, s->out[0]),
                 qn_lower_stride(l, s->out[0])},
        .n_arg = 7};
}

int qn_lower_mul(lowerer *l)
{
    launch k = row_launch(l, "mul.cu", row_threads(l, l->step->spec.mul.n));
    k.args[k.n_arg++] = qn_lower_weight(l, l->step->w[0]);
    return qn_lower_launch(l, &k);
}

int qn_lower_rescale(lowerer *l)
{
    uint32_t threads = row_threads(l, l->step->spec.rescale.n);
    launch k = row_launch(l, "rescale.cu", threads);
    k.shared = threads / 32 * 4;
    return qn_lower_launch(l, &k);
}

int qn_lower_altup(lowerer *l)
{
    const qn_spec_altup *sp = &l->step->spec.altup;
    uint32_t threads = row_threads(l, sp->n), s = (uint32_t)sp->n_stream;
    launch k = row_launch(l, "altup.cu", threads);
    k.shared = (threads / 32 + (sp->correct ? s : s * s)) * 4;
    for (int i = 0; i < 3; i++) {
        k.args[k.n_arg++] = qn_lower_weight(l, l->step->w[i]);
    }
    return qn_lower_launch(l, &k);
}

int qn_lower_latent_kv(lowerer *l)
{
    const qn_step *s = l->step;
    launch k = row_launch(l, "latent_kv.cu", 128);
    k.grid[1] = (uint32_t)s->spec.latent_kv.n_head;
    k.args[k.n_arg++] = qn_lower_at(l, s->out[1]);
    k.args[k.n_arg++] = qn_lower_stride(l, s->out[1]);
    return qn_lower_launch(l, &k);
}

int qn_lower_mix(lowerer *l)
{
    const qn_step *s = l->step;
    l->q8_view.buf = -1;
    launch k = {.kernel = "mix.cu",
                .consts = {{"threads", 256, false, false}},
                .n_const = 1,
                .threads = 256,
                .rows_axis = 0,
                .args = {l->opts->mem->state, qn_lower_at(l, s->in[0]), qn_lower_stride(l, s->in[0]),
                         qn_lower_at(l, s->in[1]), qn_lower_stride(l, s->in[1]), qn_lower_at(l, s->out[0]),
                         qn_lower_stride(l, s->out[0]), qn_lower_weight(l, s->w[0]),
                         qn_lower_weight(l, s->w[1])},
                .n_arg = 9};
    return qn_lower_launch(l, &k);
}
