/* prompt_graph.c: chunks of a prompt as captured graphs. One graph serves all lengths of a bucket: the number
 * of rows lies in device memory, blocks beyond it end at once, and the library's products, whose rows are the
 * host's, always take the bucket's (in direct launches too, so that both ways give the same bits). Rows
 * beyond the prompt hold anything; no row is read by another's, and none of them reaches a KV cache.
 *
 * The first chunk of a bucket is launched directly; the second too, and is captured behind that, while the
 * card works on it. So a single prompt never pays for a capture (some 10 us a launch), and whoever pays waits
 * little. */
#include <stdio.h>

#include "cuda/exec.h"

enum { FINE = 128, STEP = 64 };

int qn_cuda_bucket(int rows, int n_ubatch)
{
    int bucket = QN_CUDA_FEW;
    if (rows > QN_CUDA_PROMPT_ROWS) {
        return rows;
    }
    while (bucket < rows && bucket < FINE) {
        bucket *= 2;
    }
    bucket = rows > FINE ? (rows + STEP - 1) / STEP * STEP : bucket;
    return bucket < n_ubatch ? bucket : n_ubatch;
}

int qn_cuda_product_rows(const qn_cuda_exec *x, const qn_cuda_action *a, int rows)
{
    enum { FP8_GRAIN = 16 };
    int most = x->base.opts.n_ubatch;
    bool pad = a->rows == QN_ROWS_TOKENS && rows > QN_CUDA_FEW;
    rows = pad ? qn_cuda_bucket(rows, most) : rows;
    int whole = (rows + FP8_GRAIN - 1) / FP8_GRAIN * FP8_GRAIN;
    return a->gemm.fp8 && whole <= most ? whole : rows;
}

/* Does the bucket run other launches behind the first tokens than among them? */
static bool by_depth(const qn_cuda_exec *x, int bucket)
{
    const qn_cuda_list *list = &x->low.prefill;
    bool found = false;
    for (int i = 0; i < list->n && bucket > QN_CUDA_FEW && !found; i++) {
        const qn_cuda_action *a = &list->actions[i];
        found =
            a->depth != QN_DEPTH_ANY && bucket >= a->min_rows && (a->max_rows == 0 || bucket <= a->max_rows);
    }
    return found;
}

/* The graph of a bucket with or without logits; NULL: the last place is taken. */
static qn_prompt_graph *find(qn_cuda_exec *x, int bucket, int n_out, int pos)
{
    bool deep = pos > QN_CUDA_SHALLOW && by_depth(x, bucket);
    for (int i = 0; i < QN_CUDA_PROMPT_GRAPHS; i++) {
        qn_prompt_graph *g = &x->prompts[i];
        if (g->bucket == 0 || (g->bucket == bucket && g->n_out == n_out && g->deep == deep)) {
            g->bucket = bucket;
            g->n_out = n_out;
            g->deep = deep;
            return g;
        }
    }
    return NULL;
}

static int launch(qn_cuda_exec *x, const qn_run *r, int rows, int n_out, qn_err *err)
{
    return qn_cuda_launch(x, &x->base.plans->prefill, qn_cuda_list_of(x, r), rows, n_out, 0, -1, err);
}

static void say(const qn_cuda_exec *x, int level, const char *line)
{
    if (x->base.opts.log) {
        x->base.opts.log(x->base.opts.log_user, level, line);
    }
}

/* A failure leaves base.stats.prompt_graph_off filled and is no error. */
static void capture(qn_cuda_exec *x, qn_prompt_graph *g, const qn_run *r)
{
    qn_exec_stats *s = &x->base.stats;
    double start = qn_cuda_seconds();
    qn_err err = {""};
    char line[220];
    qn_cu_result rc = qn_cuda_capture_begin(x);
    if (rc == QN_CU_SUCCESS) {
        bool ok = launch(x, r, g->bucket, g->n_out, &err) == 0;
        rc = qn_cuda_capture_end(x, ok ? &g->exec : NULL);
    }
    double ms = 1e3 * (qn_cuda_seconds() - start);
    s->capture += 1e-3 * ms;
    if (g->exec) {
        s->prompt_captures++;
        snprintf(line, sizeof line, "graph of prompts of up to %d tokens%s: captured in %.1f ms", g->bucket,
                 g->n_out ? "" : " (no logits)", ms);
        say(x, 1, line);
        return;
    }
    if (!err.text[0]) {
        qn_cuda_fail(&x->cuda, rc, "capturing a prompt", &err);
    }
    snprintf(s->prompt_graph_off, sizeof s->prompt_graph_off, "%.150s", err.text);
    snprintf(line, sizeof line, "graphs of prompts: off (%s)", s->prompt_graph_off);
    say(x, 0, line);
}

int qn_cuda_prompt(qn_cuda_exec *x, const qn_run *r, int n_out, qn_err *err)
{
    const qn_exec_opts *o = &x->base.opts;
    qn_exec_stats *s = &x->base.stats;
    if (!s->prompt_graph_off[0] && (o->no_graph || o->no_prompt_graph)) {
        snprintf(s->prompt_graph_off, sizeof s->prompt_graph_off, "%s",
                 o->no_graph ? "--no-graph" : "--no-prompt-graph");
    }
    bool serves = r->n <= QN_CUDA_PROMPT_ROWS && n_out <= 1 && !s->prompt_graph_off[0];
    qn_prompt_graph *g = serves ? find(x, qn_cuda_bucket(r->n, o->n_ubatch), n_out, r->pos) : NULL;
    if (g && g->exec) {
        qn_cu_result rc = x->cuda.api.GraphLaunch(g->exec, x->stream);
        s->prompt_replays++;
        return rc ? qn_cuda_fail(&x->cuda, rc, "launching the graph of a prompt", err) : 0;
    }
    int rc = launch(x, r, r->n, n_out, err);
    if (rc == 0 && g && ++g->uses == 2) {
        capture(x, g, r);
    }
    return rc;
}

void qn_cuda_prompts_free(qn_cuda_exec *x)
{
    for (int i = 0; i < QN_CUDA_PROMPT_GRAPHS; i++) {
        if (x->prompts[i].exec) {
            x->cuda.api.GraphExecDestroy(x->prompts[i].exec);
        }
    }
}
