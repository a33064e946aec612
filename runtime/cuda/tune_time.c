/* tune_time.c: builds launches of decode with some knobs and times them. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cuda/tune_kernels.h"

/* Is an action one of those that are built? */
static bool is_wanted(const qn_cuda_action *a, const bool *sites)
{
    return a->step && !a->is_gemm && (!sites || (a->site > 0 && sites[a->site - 1]));
}

static int compile(qn_tune_build *b, qn_jit *jit, const bool *sites, qn_err *err)
{
    int n = 0, total = b->low.n_program;
    qn_jit_program *programs = qn_calloc((size_t)total + 1, sizeof *programs);
    const qn_kernel **kernels = qn_calloc((size_t)total + 1, sizeof *kernels);
    int *index = qn_calloc((size_t)total + 1, sizeof *index);
    bool *seen = qn_calloc((size_t)total + 1, sizeof *seen);
    int rc = programs && kernels && index && seen ? 0 : qn_fail(err, "out of memory");
    for (int i = 0; rc == 0 && i < b->low.decode.n; i++) {
        const qn_cuda_action *a = &b->low.decode.actions[i];
        if (is_wanted(a, sites) && !seen[a->program]) {
            const qn_cuda_program *p = &b->low.programs[a->program];
            seen[a->program] = true;
            index[n] = a->program;
            programs[n++] = (qn_jit_program){p->name, p->source.spec, p->source.text, p->source.symbol};
        }
    }
    rc = rc || n == 0 ? rc : qn_jit_compile_all(jit, programs, n, kernels, err);
    for (int i = 0; rc == 0 && i < n; i++) {
        b->kernels[index[i]] = kernels[i];
    }
    free(programs);
    free(kernels);
    free(index);
    free(seen);
    return rc;
}

static int load(qn_tune_build *b, qn_cuda_exec *x, qn_err *err)
{
    enum { DEFAULT_SHARED = 48 * 1024 };
    const qn_cuda_api *cu = &x->cuda.api;
    for (int i = 0; i < b->low.n_program; i++) {
        if (!b->kernels[i]) {
            continue;
        }
        const qn_blob *image = b->kernels[i]->cubin.size ? &b->kernels[i]->cubin : &b->kernels[i]->ptx;
        qn_cu_result r = cu->ModuleLoadDataEx(&b->modules[i], image->data, 0, NULL, NULL);
        r = r ? r : cu->ModuleGetFunction(&b->functions[i], b->modules[i], b->low.programs[i].source.symbol);
        uint32_t shared = 0;
        for (int k = 0; k < b->low.decode.n; k++) {
            const qn_cuda_action *a = &b->low.decode.actions[k];
            shared = a->program == i && a->shared > shared ? a->shared : shared;
        }
        if (!r && shared > DEFAULT_SHARED && shared <= (uint32_t)x->dev.smem_per_block) {
            r = cu->FuncSetAttribute(b->functions[i], QN_CU_FUNC_MAX_DYNAMIC_SMEM, (int)shared);
        }
        if (r) {
            return qn_cuda_fail(&x->cuda, r, b->kernels[i]->name, err);
        }
    }
    return 0;
}

int qn_tune_build_make(qn_tune_build *b, qn_cuda_exec *x, qn_jit *jit,
                       bool (*knobs)(void *user, const qn_site *site, qn_knobs *k), void *user,
                       const bool *sites, qn_err *err)
{
    memset(b, 0, sizeof *b);
    qn_lower_opts lo = qn_cuda_lower_opts(x, qn_jit_arch(jit)->variant);
    lo.knobs = knobs;
    lo.knobs_user = user;
    if (qn_lower(&b->low, x->base.plans, &lo, err)) {
        return -1;
    }
    size_t n = (size_t)b->low.n_program + 1;
    b->modules = qn_calloc(n, sizeof *b->modules);
    b->functions = qn_calloc(n, sizeof *b->functions);
    b->kernels = qn_calloc(n, sizeof *b->kernels);
    int rc = b->modules && b->functions && b->kernels ? 0 : qn_fail(err, "out of memory");
    rc = rc ? rc : compile(b, jit, sites, err);
    rc = rc ? rc : load(b, x, err);
    if (rc) {
        qn_tune_build_free(b, x);
    }
    return rc;
}

void qn_tune_build_free(qn_tune_build *b, qn_cuda_exec *x)
{
    for (int i = 0; b->modules && i < b->low.n_program; i++) {
        if (b->modules[i]) {
            x->cuda.api.ModuleUnload(b->modules[i]);
        }
    }
    free(b->modules);
    free(b->functions);
    free(b->kernels);
    qn_lowered_free(&b->low);
    memset(b, 0, sizeof *b);
}

static int launch_all(const qn_tune_build *b, qn_cuda_exec *x, int site, qn_err *err)
{
    for (int i = 0; i < b->low.decode.n; i++) {
        const qn_cuda_action *a = &b->low.decode.actions[i];
        bool ours = a->step && (site < 0 || a->site == site + 1) && qn_cuda_runs(a, 1, 0);
        if (ours && !b->functions[a->program]) {
            return qn_fail(err, "step %s was not built", a->step->name);
        }
        if (ours && qn_cuda_launch_as(x, b->functions[a->program], a, 1, x->stream, x->dependent, err)) {
            return -1;
        }
    }
    return 0;
}

qn_cu_graph_exec qn_tune_capture(const qn_tune_build *b, qn_cuda_exec *x, int site, qn_err *err)
{
    const qn_cuda_api *cu = &x->cuda.api;
    qn_cu_graph graph = NULL;
    qn_cu_graph_exec out = NULL;
    qn_cu_result r = cu->StreamBeginCapture(x->stream, QN_CU_CAPTURE_THREAD_LOCAL);
    if (r) {
        qn_cuda_fail(&x->cuda, r, "capturing launches", err);
        return NULL;
    }
    int rc = launch_all(b, x, site, err);
    r = cu->StreamEndCapture(x->stream, &graph);
    if (rc == 0 && !r) {
        r = cu->GraphInstantiateWithFlags(&out, graph, 0);
        r = r ? r : cu->GraphUpload(out, x->stream);
    }
    if (graph) {
        cu->GraphDestroy(graph);
    }
    if (rc == 0 && r) {
        qn_cuda_fail(&x->cuda, r, "capturing launches", err);
    }
    if (out && r) {
        cu->GraphExecDestroy(out);
        out = NULL;
    }
    return out;
}

/* Milliseconds of one launch of a graph behind one of `before`; 0: it failed. */
static float time_one(const qn_tune_clock *c, qn_cu_graph_exec g)
{
    const qn_cuda_api *cu = &c->x->cuda.api;
    float ms = 0;
    qn_cu_result r = cu->GraphLaunch(c->before, c->x->stream);
    r = r ? r : cu->EventRecord(c->from, c->x->stream);
    r = r ? r : cu->GraphLaunch(g, c->x->stream);
    r = r ? r : cu->EventRecord(c->to, c->x->stream);
    r = r ? r : cu->EventSynchronize(c->to);
    r = r ? r : cu->EventElapsedTime(&ms, c->from, c->to);
    return r ? 0 : ms;
}

/* The device's state for one row at a position. */
static bool set_position(const qn_tune_clock *c, int pos)
{
    qn_cuda_exec *x = c->x;
    *x->host_state = (qn_cuda_state){.pos = pos, .n_rows = 1, .n_out = 1, .seq = x->base.seq};
    return !x->cuda.api.MemcpyHtoDAsync(x->mem.state, x->host_state, sizeof *x->host_state, x->stream) &&
           !x->cuda.api.StreamSynchronize(x->stream);
}

void qn_tune_time(const qn_tune_clock *c, qn_cu_graph_exec a, qn_cu_graph_exec b, int runs, float *ms)
{
    for (int i = 0; i < 2 * runs; i++) {
        ms[i] = 0;
    }
    bool failed[2] = {false, false};
    for (int p = 0; p < c->n_position; p++) {
        bool there = set_position(c, c->positions[p]);
        for (int i = -1; i < runs; i++) { /* the first turn is not counted */
            for (int turn = 0; turn < 2; turn++) {
                int which = (i + 1 + turn) % 2; /* each goes first every other time */
                float one = there ? time_one(c, which ? b : a) : 0;
                failed[which] = failed[which] || !(one > 0);
                if (i >= 0) {
                    ms[which * runs + i] += one;
                }
            }
        }
    }
    for (int i = 0; i < 2 * runs; i++) {
        ms[i] = failed[i / runs] ? 0 : ms[i];
    }
}
