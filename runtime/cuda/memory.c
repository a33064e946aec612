/* memory.c: what a session will allocate, counted before it does. */
#include <stdlib.h>

#include "cuda/exec.h"

/* Of one allocation: a driver rounds up, and empty buffers take a piece too. */
static uint64_t rounded(uint64_t bytes)
{
    enum { PIECE = 512 };
    return (bytes / PIECE + 1) * PIECE;
}

/* Weights as they lie on the card, each once, and the largest that passes through the staging area. */
static void count_weights(const qn_plans *p, qn_memory *out, uint64_t *staging)
{
    const qn_plan *plans[2] = {&p->prefill, &p->decode};
    size_t most = (size_t)(p->prefill.n_step + p->decode.n_step) * QN_STEP_WEIGHTS, n = 0;
    const qn_tensor **seen = qn_calloc(most + 1, sizeof *seen);
    *staging = 0;
    out->weights = 0;
    for (int k = 0; k < 2 && seen; k++) {
        for (int i = 0; i < plans[k]->n_step * QN_STEP_WEIGHTS; i++) {
            const qn_tensor *t = plans[k]->steps[i / QN_STEP_WEIGHTS].w[i % QN_STEP_WEIGHTS];
            bool known = !t;
            for (size_t j = 0; j < n && !known; j++) {
                known = seen[j] == t;
            }
            if (!known) {
                seen[n++] = t;
                out->weights += rounded(qn_cuda_weight_bytes(t));
                *staging = qn_cuda_is_planes(t) && t->n_bytes > *staging ? t->n_bytes : *staging;
            }
        }
    }
    if (!seen) {
        out->weights = qn_model_weight_bytes(p->model);
    }
    free(seen);
}

void qn_cuda_memory(const qn_plans *p, const qn_exec_opts *opts, qn_memory *out)
{
    enum {
        OTHERS = 24,
        SMALL = 256 << 10
    }; /* allocations beside buffers; state, choices, tables of positions */
    qn_cuda_sizes z = qn_cuda_scratch_sizes(p, opts);
    uint64_t staging;
    *out = (qn_memory){0};
    count_weights(p, out, &staging);
    for (int i = 0; i < p->n_kv; i++) {
        const qn_kv_cache *k = &p->kv[i];
        uint64_t rows = (uint64_t)qn_n_seq(opts) * (uint64_t)qn_kv_rows(k, opts);
        out->kv += rounded(rows * qn_cuda_kv_bytes(opts->k_type, k->n_head_kv, k->k_dim)) +
                   rounded(rows * qn_cuda_kv_bytes(opts->v_type, k->n_head_kv, k->v_dim));
    }
    for (int i = 0; i < p->n_buf; i++) {
        out->activations +=
            rounded(4 * (uint64_t)p->bufs[i].width * (uint64_t)qn_buf_rows(&p->bufs[i], opts));
    }
    if (opts->weight_cache == QN_WEIGHT_CACHE_ON) {
        qn_half_cache halves;
        qn_err none;
        out->weight_cache = qn_half_cache_make(&halves, p, opts, &none) ? UINT64_MAX : rounded(halves.bytes);
        qn_half_cache_free(&halves);
    }
    out->other = z.k16 + z.v16 + z.parts + (uint64_t)z.n_w16 * rounded(z.w16) + z.a16 + z.q16 + z.row_scale +
                 z.part_count + 2 * z.q8 + 2 * z.squares + z.row_sums + z.stream + z.product + z.marks +
                 z.history + z.found + z.sample_work + (32 << 20) + OTHERS * rounded(0) + SMALL + staging +
                 4 * (uint64_t)opts->n_ubatch;
    if (opts->persistent) { /* a phase for each launch of decode: no step has more than three */
        uint64_t phases = 3 * (uint64_t)p->decode.n_step + 3;
        out->other += rounded(phases * sizeof(qn_cuda_phase)) + rounded((phases + 1) * QN_CUDA_COUNTER_BYTES);
    }
}
