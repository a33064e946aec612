/* exec.c: the CUDA executor: walks the lowered lists. */
#include "cuda/tune_kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int cu_fail(const qn_cuda_exec *x, qn_cu_result r, const char *what, qn_err *err)
{
    return qn_cuda_fail(&x->cuda, r, what, err);
}

int qn_cuda_sync(qn_cuda_exec *x, qn_err *err)
{
    x->base.stats.syncs++;
    qn_cu_result r = x->cuda.api.StreamSynchronize(x->stream);
    return r ? cu_fail(x, r, "running kernels", err) : 0;
}

int qn_cuda_launch_as(qn_cuda_exec *x, qn_cu_function function, const qn_cuda_action *a, int rows,
                      qn_cu_stream stream, bool dependent, qn_err *err)
{
    uint32_t grid[3] = {a->grid[0], a->grid[1], a->grid[2]};
    void *params[QN_CUDA_ARGS + 1];
    for (int i = 0; i < a->n_arg; i++) {
        params[i] = (void *)(uintptr_t)&a->args[i];
    }
    params[a->n_arg] = (void *)(uintptr_t)a->words;
    if (a->rows_axis >= 0) {
        grid[a->rows_axis] = ((uint32_t)rows + a->rows_per - 1) / a->rows_per;
    }
    if (a->rows_share) {
        grid[1] = grid[1] > (uint32_t)rows ? grid[1] / (uint32_t)rows : 1;
    }
    qn_cu_result r;
    if (dependent || a->cooperative) {
        qn_cu_launch_attribute how = {.id = QN_CU_LAUNCH_PROGRAMMATIC_SERIALIZATION,
                                      .value.programmatic_serialization = 1};
        if (a->cooperative) {
            how = (qn_cu_launch_attribute){.id = QN_CU_LAUNCH_COOPERATIVE, .value.cooperative = 1};
        }
        qn_cu_launch_config c = {grid[0], grid[1], grid[2], a->threads, 1, 1, a->shared, stream, &how, 1};
        r = x->cuda.api.LaunchKernelEx(&c, function, params, NULL);
    } else {
        r = x->cuda.api.LaunchKernel(function, grid[0], grid[1], grid[2], a->threads, 1, 1, a->shared, stream,
                                     params, NULL);
    }
    return r ? cu_fail(x, r,
                       a->step     ? a->step->name
                       : a->repack ? a->repack->name
                                   : x->low.programs[a->program].name,
                       err)
             : 0;
}

static int launch_on(qn_cuda_exec *x, const qn_cuda_action *a, int rows, qn_cu_stream stream, bool dependent,
                     qn_err *err)
{
    return qn_cuda_launch_as(x, x->functions[a->program], a, rows, stream, dependent, err);
}

int qn_cuda_launch_one(qn_cuda_exec *x, const qn_cuda_action *a, int rows, qn_err *err)
{
    return launch_on(x, a, rows, x->stream, x->dependent, err);
}

int qn_cuda_action_run(qn_cuda_exec *x, const qn_cuda_action *a, int rows, bool in_turn, qn_err *err)
{
    const qn_cuda_api *cu = &x->cuda.api;
    bool beside = x->side && !in_turn && a->w16 > 0;
    int area = a->w16 - 1;
    qn_cu_result r = QN_CU_SUCCESS;
    if (beside && a->makes_w16) { /* once what the area held has been read */
        r = cu->StreamWaitEvent(x->side, x->w16_read[area], 0);
        int rc = r ? cu_fail(x, r, "waiting for a product", err) : launch_on(x, a, rows, x->side, false, err);
        r = rc ? r : cu->EventRecord(x->w16_made[area], x->side);
        return rc ? rc : r ? cu_fail(x, r, "events", err) : 0;
    }
    r = beside ? cu->StreamWaitEvent(x->stream, x->w16_made[area], 0) : r;
    if (r) {
        return cu_fail(x, r, "waiting for weights", err);
    }
    int rc = a->is_gemm ? qn_gemm_run(&x->gemm, &a->gemm, qn_cuda_product_rows(x, a, rows), x->stream, err)
                        : launch_on(x, a, rows, x->stream, x->dependent, err);
    r = beside && rc == 0 ? cu->EventRecord(x->w16_read[area], x->stream) : r;
    return rc ? rc : r ? cu_fail(x, r, "events", err) : 0;
}

static int run_action(qn_cuda_exec *x, const qn_plan *plan, const qn_cuda_action *a, int rows, int n_out,
                      bool in_turn, qn_err *err)
{
    bool head = a->step && a->step->out[0].buf == plan->logits_buf;
    int n = a->rows == QN_ROWS_OUTPUTS || head ? n_out : rows;
    if (n == 0 || !qn_cuda_runs(a, n, x->host_state->pos)) {
        return 0;
    }
    if (qn_cuda_action_run(x, a, n, in_turn, err)) {
        return a->step ? qn_fail_prefix(err, "step %s", a->step->name) : -1;
    }
    return 0;
}

int qn_cuda_launch(qn_cuda_exec *x, const qn_plan *plan, const qn_cuda_list *list, int rows, int n_out,
                   int first, int stop_after, qn_err *err)
{
    /* What both areas of 16-bit weights held has been read. This also draws the second stream into a capture,
     * and makes events usable again that were last recorded in one. */
    for (int i = 0; i < 2 && x->side && list == &x->low.prefill; i++) {
        qn_cu_result r = x->cuda.api.EventRecord(x->w16_read[i], x->stream);
        if (r) {
            return cu_fail(x, r, "events", err);
        }
    }
    for (int i = 0; i < list->n; i++) {
        const qn_cuda_action *a = &list->actions[i];
        if (first > 0 && (!a->step || a->step - plan->steps < first)) {
            continue;
        }
        if (stop_after >= 0 && (!a->step || a->step - plan->steps > stop_after)) {
            break;
        }
        if (run_action(x, plan, a, rows, n_out, false, err)) {
            return -1;
        }
    }
    return 0;
}

static int put_state(qn_cuda_exec *x, const qn_run *r, int n_out, qn_err *err)
{
    const qn_cuda_api *cu = &x->cuda.api;
    *x->host_state = (qn_cuda_state){.pos = r->pos,
                                     .n_rows = r->n,
                                     .n_out = n_out,
                                     .first_out = r->n - n_out,
                                     .token = r->tokens[0],
                                     .seq = x->base.seq};
    memcpy(x->host_tokens, r->tokens, sizeof(int32_t) * (size_t)r->n);
    qn_cu_result s = cu->MemcpyHtoDAsync(x->mem.state, x->host_state, sizeof *x->host_state, x->stream);
    if (!s && r->phase == QN_PHASE_PREFILL) {
        s = cu->MemcpyHtoDAsync(x->mem.tokens, x->host_tokens, sizeof(int32_t) * (size_t)r->n, x->stream);
    }
    return s ? cu_fail(x, s, "sending tokens", err) : 0;
}

static int take_logits(qn_cuda_exec *x, const qn_plan *plan, int n_out, float *out, qn_err *err)
{
    size_t n = (size_t)x->base.plans->model->n_vocab;
    qn_cu_result r = x->cuda.api.MemcpyDtoHAsync(x->host_logits, x->mem.bufs[plan->logits_buf],
                                                 sizeof(float) * n * (size_t)n_out, x->stream);
    if (r) {
        return cu_fail(x, r, "fetching logits", err);
    }
    if (qn_cuda_sync(x, err)) {
        return -1;
    }
    for (size_t i = 0; i < n * (size_t)n_out; i++) {
        if (!isfinite(x->host_logits[i])) {
            return qn_fail(err, "logits hold %s (output row %zu, token %zu)",
                           isnan(x->host_logits[i]) ? "NaN" : "infinity", i / n, i % n);
        }
    }
    memcpy(out, x->host_logits, sizeof(float) * n * (size_t)n_out);
    return 0;
}

const qn_cuda_list *qn_cuda_list_of(const qn_cuda_exec *x, const qn_run *r)
{
    bool few = r->n <= QN_CUDA_FEW, each = r->seqs && r->n > 1;
    return r->phase == QN_PHASE_DECODE ? &x->low.decode
           : few                       ? (each ? &x->low.each : &x->low.few)
                                       : &x->low.prefill;
}

static int cuda_run(qn_exec *e, const qn_run *r, qn_err *err)
{
    qn_cuda_exec *x = (qn_cuda_exec *)e;
    int n_out = r->outputs == QN_OUT_ALL ? r->n : r->outputs == QN_OUT_LAST ? 1 : 0;
    bool decode = r->phase == QN_PHASE_DECODE;
    const qn_plan *plan = decode ? &e->plans->decode : &e->plans->prefill;
    if (qn_run_check(e, r, n_out, err)) {
        return -1;
    }
    x->cuda.api.CtxSetCurrent(x->ctx);
    int rc = r->seqs ? qn_cuda_put_rows(x, r->seqs, r->tokens, r->n, err) : put_state(x, r, n_out, err);
    bool whole = r->stop_after < 0 && r->first_step == 0;
    if (rc == 0 && whole && (decode || (r->seqs && r->n > 1))) {
        rc = qn_cuda_token(x, QN_CHOOSE_BEST, r->n, err);
    } else if (rc == 0 && whole) {
        rc = qn_cuda_prompt(x, r, n_out, err);
    } else if (rc == 0) {
        rc = qn_cuda_launch(x, plan, qn_cuda_list_of(x, r), r->n, n_out, r->first_step, r->stop_after, err);
    }
    if (rc == 0 && n_out > 0 && r->stop_after < 0) {
        rc = take_logits(x, plan, n_out, r->logits, err);
    } else if (rc == 0) {
        rc = qn_cuda_sync(x, err);
    }
    if (rc == 0) {
        qn_exec_advance(e, r);
    }
    return rc;
}

static int cuda_profile(qn_exec *e, const qn_run *r, float *ms, qn_err *err)
{
    qn_cuda_exec *x = (qn_cuda_exec *)e;
    const qn_cuda_api *cu = &x->cuda.api;
    const qn_cuda_list *list = qn_cuda_list_of(x, r);
    const qn_plan *plan = r->phase == QN_PHASE_DECODE ? &e->plans->decode : &e->plans->prefill;
    qn_cu_event *events = qn_calloc((size_t)list->n + 1, sizeof *events);
    cu->CtxSetCurrent(x->ctx);
    int rc = events ? qn_run_check(e, r, 1, err) : qn_fail(err, "out of memory"), made = 0;
    rc = rc ? rc : put_state(x, r, 1, err);
    for (; rc == 0 && made <= list->n; made++) {
        qn_cu_result s = cu->EventCreate(&events[made], QN_CU_EVENT_DEFAULT);
        rc = s ? cu_fail(x, s, "events", err) : 0;
    }
    for (int i = 0; rc == 0 && i <= list->n; i++) {
        cu->EventRecord(events[i], x->stream);
        rc = i < list->n ? run_action(x, plan, &list->actions[i], r->n, 1, true, err) : 0;
    }
    rc = rc ? rc : qn_cuda_sync(x, err);
    memset(ms, 0, sizeof *ms * (size_t)plan->n_step);
    for (int i = 0; rc == 0 && i < list->n; i++) {
        float t = 0;
        const qn_step *s = list->actions[i].step;
        cu->EventElapsedTime(&t, events[i], events[i + 1]);
        ms[s ? s - plan->steps : plan->n_step - 1] += t;
    }
    for (int i = 0; i < made; i++) {
        cu->EventDestroy(events[i]);
    }
    free(events);
    if (rc == 0) {
        qn_exec_advance(e, r);
    }
    return rc;
}

static int cuda_truncate(qn_exec *e, int length, qn_err *err)
{
    if (length < 0 || length > e->length) {
        return qn_fail(err, "cannot keep %d of %d positions", length, e->length);
    }
    if (qn_kv_check_truncate(e, length, err)) {
        return -1;
    }
    e->length = length;
    e->high = length == 0 ? 0 : e->high;
    return 0;
}

static void cuda_free(qn_exec *e)
{
    qn_cuda_exec *x = (qn_cuda_exec *)e;
    const qn_cuda_api *cu = &x->cuda.api;
    if (x->ctx) {
        cu->CtxSetCurrent(x->ctx);
        if (x->stream) {
            cu->StreamSynchronize(x->stream);
        }
        for (int i = 0; i < QN_CHOOSE_COUNT * (QN_MAX_SEQ + 1); i++) {
            qn_cu_graph_exec g = x->graphs[i / (QN_MAX_SEQ + 1)][i % (QN_MAX_SEQ + 1)];
            if (g) {
                cu->GraphExecDestroy(g);
            }
        }
        qn_cuda_prompts_free(x);
        for (int i = 0; i < 2; i++) {
            if (x->w16_made[i]) {
                cu->EventDestroy(x->w16_made[i]);
            }
            if (x->w16_read[i]) {
                cu->EventDestroy(x->w16_read[i]);
            }
        }
        if (x->side) {
            cu->StreamSynchronize(x->side);
            cu->StreamDestroy(x->side);
        }
        qn_gemm_close(&x->gemm);
        for (int i = 0; x->modules && i < x->low.n_program; i++) {
            if (x->modules[i]) {
                cu->ModuleUnload(x->modules[i]);
            }
        }
        void *pinned[4] = {x->host_state, x->host_tokens, x->host_logits, (void *)x->ring};
        for (int i = 0; i < 4; i++) {
            if (pinned[i]) {
                cu->MemFreeHost(pinned[i]);
            }
        }
        for (int i = 0; i < x->n_alloc; i++) {
            cu->MemFree(x->allocs[i]);
        }
        if (x->stream) {
            cu->StreamDestroy(x->stream);
        }
        cu->DevicePrimaryCtxRelease(x->dev.handle);
    }
    free(x->modules);
    free(x->functions);
    qn_jit_free(x->jit);
    qn_lowered_free(&x->low);
    free(x->placed);
    qn_half_cache_free(&x->halves);
    free(x->fp8_up);
    free(x->mem.bufs);
    free(x->mem.k);
    free(x->mem.v);
    free(x->mem.k_map);
    free(x->mem.v_map);
    free(x);
}

int qn_cuda_exec_new(qn_exec **out, const qn_plans *plans, const qn_exec_opts *opts, qn_err *err)
{
    qn_cuda_exec *x = qn_calloc(1, sizeof *x);
    if (!x) {
        return qn_fail(err, "out of memory");
    }
    x->base = (qn_exec){.name = "cuda",
                        .plans = plans,
                        .opts = *opts,
                        .loop = qn_cuda_loop,
                        .run = cuda_run,
                        .truncate = cuda_truncate,
                        .read = qn_cuda_read,
                        .write = qn_cuda_write,
                        .kv_rows = qn_cuda_kv_rows,
                        .arith = qn_cuda_arith,
                        .round_input = qn_cuda_round_input,
                        .profile = cuda_profile,
                        .tune = qn_cuda_tune,
                        .knobs = qn_cuda_knobs_of,
                        .free = cuda_free};
    if (qn_cuda_setup(x, err)) {
        cuda_free(&x->base);
        return qn_fail_prefix(err, "backend cuda");
    }
    *out = &x->base;
    return 0;
}

/* The driver stays open; loading it again finds it open. */
static int find_device(qn_cuda *cuda, qn_cuda_device *dev, int device, qn_err *err)
{
    return qn_cuda_load(cuda, err) || qn_cuda_init(cuda, err) || qn_cuda_device_get(cuda, device, dev, err)
               ? -1
               : 0;
}

static int retain(const qn_cuda *cuda, const qn_cuda_device *dev, qn_cu_context *ctx, qn_err *err)
{
    qn_cu_result r = cuda->api.DevicePrimaryCtxRetain(ctx, dev->handle);
    return r ? qn_cuda_fail(cuda, r, "opening the device", err) : 0;
}

int qn_cuda_hold(int device, qn_err *err)
{
    qn_cuda cuda;
    qn_cuda_device dev;
    qn_cu_context ctx;
    return find_device(&cuda, &dev, device, err) || retain(&cuda, &dev, &ctx, err) ? -1 : 0;
}

void qn_cuda_release(int device)
{
    qn_cuda cuda;
    qn_cuda_device dev;
    qn_err ignored; /* what was there when it was held */
    if (find_device(&cuda, &dev, device, &ignored) == 0) {
        cuda.api.DevicePrimaryCtxRelease(dev.handle);
    }
}

int qn_cuda_available(int device, uint64_t *free_bytes, qn_err *err)
{
    qn_cuda cuda;
    qn_cuda_device dev;
    qn_cu_context ctx;
    size_t free_now = 0, total = 0;
    if (find_device(&cuda, &dev, device, err) || retain(&cuda, &dev, &ctx, err)) {
        return -1;
    }
    cuda.api.CtxSetCurrent(ctx);
    qn_cu_result r = cuda.api.MemGetInfo(&free_now, &total);
    cuda.api.DevicePrimaryCtxRelease(dev.handle);
    *free_bytes = free_now;
    return r ? qn_cuda_fail(&cuda, r, "asking for free memory", err) : 0;
}
