#include "codegen/cost.h"

/* Keys that n tokens after `depth` see in all; *most: the most that one of them sees. */
static double keys_seen(int n, int depth, int window, double *most)
{
    double sum = 0;
    *most = 0;
    for (int i = 0; i < n; i++) {
        double k = (double)depth + i + 1;
        k = window > 0 && k > window ? window : k;
        sum += k;
        *most = k > *most ? k : *most;
    }
    return sum;
}

qn_cost qn_step_cost(const qn_step *s, int n, int depth, int n_outputs)
{
    qn_cost c = {.bytes = (double)qn_step_weight_bytes(s)};
    double rows = s->rows == QN_ROWS_OUTPUTS ? n_outputs : n, most;
    if (rows == 0) {
        return (qn_cost){0};
    }
    if (s->op->id == QN_OP_LINEAR) {
        c.flop = 2.0 * s->spec.linear.n_in * s->spec.linear.n_out * rows;
    } else if (s->op->id == QN_OP_GLU) {
        c.flop = 4.0 * s->spec.glu.n_in * s->spec.glu.n_ff * rows;
    } else if (s->op->id == QN_OP_ATTENTION) {
        const qn_spec_attention *a = &s->spec.attention;
        double dims = (double)a->k_dim + a->v_dim;
        c.flop = 2.0 * a->n_head * dims * keys_seen(n, depth, a->window, &most);
        c.bytes += 2.0 * a->n_head_kv * dims * most;
    }
    return c;
}

qn_cost qn_plan_cost(const qn_plan *p, int n, int depth, int n_outputs)
{
    qn_cost sum = {0};
    for (int i = 0; i < p->n_step; i++) {
        qn_cost c = qn_step_cost(&p->steps[i], n, depth, n_outputs);
        sum.bytes += c.bytes;
        sum.flop += c.flop;
    }
    return sum;
}
