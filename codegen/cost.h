/* cost.h: what a step cannot do without: bytes it must read and floating-point operations it must do. */
#ifndef QN_CODEGEN_COST_H
#define QN_CODEGEN_COST_H

#include "codegen/plan.h"

typedef struct qn_cost {
    double bytes; /* weights once, and once the KV rows that the chunk's last token sees, as f16 */
    double flop;  /* of products and attention; a multiply and an add are two */
} qn_cost;

/* For n tokens after `depth` positions; n_outputs of them have logits. */
qn_cost qn_step_cost(const qn_step *s, int n, int depth, int n_outputs);
/* Sum over a plan's steps. */
qn_cost qn_plan_cost(const qn_plan *p, int n, int depth, int n_outputs);

#endif
