/* place.c: where each weight and table lies on the device. */
#include "cuda/lower.h"

enum { ALIGN = 256 };

/* Adds a tensor or table once. */
static void place(qn_placed *p, int *n, qn_placed item, uint64_t device_bytes, uint64_t *end)
{
    for (int i = 0; i < *n; i++) {
        if (p[i].key == item.key) {
            return;
        }
    }
    item.address = *end;
    p[(*n)++] = item;
    *end += (device_bytes + ALIGN - 1) / ALIGN * ALIGN;
}

int qn_cuda_place(qn_placed **out, int *n, const qn_plans *plans, uint64_t *bytes, qn_err *err)
{
    const qn_plan *both[2] = {&plans->prefill, &plans->decode};
    size_t most = 0;
    for (int k = 0; k < 2; k++) {
        most += (size_t)both[k]->n_step * (QN_STEP_WEIGHTS + 1);
    }
    *out = qn_calloc(most + 1, sizeof **out);
    *n = 0;
    *bytes = 0;
    if (!*out) {
        return qn_fail(err, "out of memory");
    }
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < both[k]->n_step; i++) {
            const qn_step *s = &both[k]->steps[i];
            for (int w = 0; w < QN_STEP_WEIGHTS; w++) {
                const qn_tensor *t = s->w[w];
                if (t) {
                    place(*out, n, (qn_placed){t, t->data, t->n_bytes, 0, qn_cuda_is_planes(t)},
                          qn_cuda_weight_bytes(t), bytes);
                }
            }
            if (s->table) {
                size_t size = sizeof(float) * (size_t)(s->spec.rope_kv.n_rot / 2);
                place(*out, n, (qn_placed){s->table, s->table, size, 0, false}, size, bytes);
            }
        }
    }
    return 0;
}

uint64_t qn_placed_at(const qn_placed *p, int n, const void *key)
{
    for (int i = 0; i < n && key; i++) {
        if (p[i].key == key) {
            return p[i].address;
        }
    }
    return 0;
}
