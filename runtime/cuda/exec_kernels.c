/* exec_kernels.c: a session's kernels: lowered, with what was chosen for the card, compiled and loaded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/tune_kernels.h"

static void on_progress(void *user, const qn_jit_progress *p)
{
    const qn_cuda_exec *x = user;
    char line[160];
    if (x->base.opts.loading) {
        x->base.opts.loading(x->base.opts.loading_user, QN_LOADING_KERNELS, (uint64_t)p->done,
                             (uint64_t)p->total);
    }
    if (!x->base.opts.log) {
        return;
    }
    if (p->done == 0) {
        snprintf(line, sizeof line, "compiling %d kernels (%d in the cache)%s", p->total, p->cached,
                 p->kept ? ", cached next time" : "; they are not kept");
        x->base.opts.log(x->base.opts.log_user, 0, line);
    } else {
        snprintf(line, sizeof line, "%d/%d %.80s %.0f ms", p->done, p->total, p->name, 1e3 * p->seconds);
        x->base.opts.log(x->base.opts.log_user, 1, line);
    }
}

void qn_cuda_log(void *user, int level, const char *line)
{
    const qn_cuda_exec *x = user;
    if (x->base.opts.log) {
        x->base.opts.log(x->base.opts.log_user, level, line);
    }
}

static int load_module(qn_cuda_exec *x, const qn_kernel **k, int i, qn_err *err)
{
    const qn_cuda_api *cu = &x->cuda.api;
    for (int attempt = 0; attempt < 2; attempt++) {
        const qn_blob *image = (*k)->cubin.size ? &(*k)->cubin : &(*k)->ptx;
        qn_cu_result r = cu->ModuleLoadDataEx(&x->modules[i], image->data, 0, NULL, NULL);
        r = r ? r : cu->ModuleGetFunction(&x->functions[i], x->modules[i], x->low.programs[i].source.symbol);
        if (!r) {
            return 0;
        }
        qn_cuda_fail(&x->cuda, r, (*k)->name, err);
        qn_err why = *err;
        if (!(*k)->cached || qn_jit_replace(x->jit, k, why.text, err)) {
            break;
        }
    }
    return qn_fail_prefix(err, "card of compute capability %d.%d, driver of CUDA %d.%d, NVRTC %d.%d",
                          x->dev.cc / 10, x->dev.cc % 10, x->cuda.version / 1000, x->cuda.version % 1000 / 10,
                          x->nvrtc.major, x->nvrtc.minor);
}

qn_lower_opts qn_cuda_lower_opts(const qn_cuda_exec *x, int variant)
{
    const qn_exec_opts *o = &x->base.opts;
    return (qn_lower_opts){.exec = o,
                           .mem = &x->mem,
                           .variant = variant,
                           .multiprocessors = x->dev.multiprocessors,
                           .f32_activations = o->f32_activations,
                           .no_fuse = o->no_fuse,
                           .persistent = o->persistent};
}

/* The compiler for the card. */
static int open_compiler(qn_cuda_exec *x, qn_err *err)
{
    qn_arch arch;
    const qn_exec_opts *o = &x->base.opts;
    char place[QN_PATH_MAX];
    const char *why;
    if (qn_nvrtc_load(&x->nvrtc, x->cuda.version / 1000, err) ||
        qn_arch_for_device(&arch, &x->nvrtc, x->dev.cc, err) ||
        (o->variant && qn_variant_by_name(&arch.variant, &arch, o->variant, err))) {
        return -1;
    }
    if (o->tma_attention && arch.variant < QN_VARIANT_SM90A) {
        return qn_fail(err, "--attention tma is for sm_90a; this is %s, variant %s", arch.name,
                       qn_variant_name(arch.variant));
    }
    x->dependent = arch.variant >= QN_VARIANT_SM90A && x->cuda.api.LaunchKernelEx;
    bool kept = qn_cache_place(place, sizeof place, o->cache, &why);
    const qn_jit_opts jo = {.nvrtc = &x->nvrtc,
                            .arch = arch,
                            .cache_dir = kept ? place : NULL,
                            .kernel_src = o->kernel_src,
                            .log = qn_cuda_log,
                            .progress = on_progress,
                            .user = x};
    return qn_jit_new(&x->jit, &jo, err);
}

/* Choices that were made on such a card; none where nobody wants any. */
static int open_choices(qn_cuda_exec *x, qn_choices *c, qn_err *err)
{
    char place[QN_PATH_MAX], line[sizeof c->why.text + 64];
    const char *why;
    const qn_kernel_world w = qn_kernel_world_of(x);
    memset(c, 0, sizeof *c);
    if (x->base.opts.no_tune || !qn_cache_place(place, sizeof place, x->base.opts.cache, &why)) {
        return 0;
    }
    if (qn_kernel_choices_open(c, place, &w, err)) {
        return -1;
    }
    if (c->why.text[0]) {
        snprintf(line, sizeof line, "%s and was ignored: kernels as shipped", c->why.text);
        qn_cuda_log(x, 0, line);
    }
    return 0;
}

static int lower(qn_cuda_exec *x, qn_err *err)
{
    qn_choices c;
    qn_lower_opts lo = qn_cuda_lower_opts(x, qn_jit_arch(x->jit)->variant);
    if (open_choices(x, &c, err)) {
        return -1;
    }
    lo.knobs = qn_kernel_choice;
    lo.knobs_user = &c;
    int rc = qn_lower(&x->low, x->base.plans, &lo, err), tuned = 0;
    for (int i = 0; rc == 0 && i < x->low.n_site; i++) {
        tuned += x->low.sites[i].tuned;
    }
    if (tuned > 0) {
        char line[96];
        snprintf(line, sizeof line, "kernels: %d of %d choices tuned on this card", tuned, x->low.n_site);
        qn_cuda_log(x, 1, line);
    }
    qn_choices_free(&c);
    return rc;
}

static int compile_and_load(qn_cuda_exec *x, qn_err *err)
{
    int n = x->low.n_program;
    qn_jit_program *programs = qn_calloc((size_t)n, sizeof *programs);
    const qn_kernel **kernels = qn_calloc((size_t)n, sizeof *kernels);
    x->modules = qn_calloc((size_t)n, sizeof *x->modules);
    x->functions = qn_calloc((size_t)n, sizeof *x->functions);
    int rc = programs && kernels && x->modules && x->functions ? 0 : qn_fail(err, "out of memory");
    for (int i = 0; i < n && rc == 0; i++) {
        const qn_cuda_program *p = &x->low.programs[i];
        programs[i] = (qn_jit_program){p->name, p->source.spec, p->source.text, p->source.symbol};
    }
    rc = rc ? rc : qn_jit_compile_all(x->jit, programs, n, kernels, err);
    for (int i = 0; i < n && rc == 0; i++) {
        rc = load_module(x, &kernels[i], i, err);
    }
    free(programs);
    free(kernels);
    return rc;
}

/* Blocks that ask for more shared memory than the default limit must say so beforehand. */
static int raise_shared_limits(qn_cuda_exec *x, qn_err *err)
{
    const qn_cuda_list *lists[] = {&x->low.decode,
                                   &x->low.few,
                                   &x->low.each,
                                   &x->low.prefill,
                                   &x->low.choose[QN_CHOOSE_TOP_K],
                                   &x->low.persistent,
                                   &x->low.persistent_steps};
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        for (int i = 0; i < lists[k]->n; i++) {
            const qn_cuda_action *a = &lists[k]->actions[i];
            if (a->is_gemm || a->shared <= 48 * 1024) {
                continue;
            }
            if (a->shared > (uint32_t)x->dev.smem_per_block) {
                return qn_fail(err, "%s needs %u bytes of shared memory a block; the card has %d",
                               a->step ? a->step->name : x->low.programs[a->program].name, a->shared,
                               x->dev.smem_per_block);
            }
            qn_cu_result r = x->cuda.api.FuncSetAttribute(x->functions[a->program],
                                                          QN_CU_FUNC_MAX_DYNAMIC_SMEM, (int)a->shared);
            if (r) {
                return qn_cuda_fail(&x->cuda, r, x->low.programs[a->program].name, err);
            }
        }
    }
    return 0;
}

int qn_cuda_build_kernels(qn_cuda_exec *x, qn_err *err)
{
    double start = qn_cuda_seconds();
    if ((!x->jit && open_compiler(x, err)) || lower(x, err) || compile_and_load(x, err) ||
        raise_shared_limits(x, err)) {
        return -1;
    }
    x->base.stats.kernels += qn_cuda_seconds() - start;
    x->base.stats.n_kernels = x->low.n_program;
    x->base.stats.n_compiled = qn_jit_compiles(x->jit);
    return 0;
}

static void drop_kernels(qn_cuda_exec *x)
{
    for (int i = 0; i < x->low.n_program; i++) {
        x->cuda.api.ModuleUnload(x->modules[i]);
    }
    free(x->modules);
    free(x->functions);
    x->modules = NULL;
    x->functions = NULL;
    qn_lowered_free(&x->low);
}

static void on_measured(void *user, int done, int total)
{
    const qn_exec_opts *o = &((const qn_cuda_exec *)user)->base.opts;
    if (o->loading) {
        o->loading(o->loading_user, QN_LOADING_CHOICES, (uint64_t)done, (uint64_t)total);
    }
}

/* Is there a launch of decode of which nothing is known yet? */
static bool has_news(qn_cuda_exec *x, qn_err *err)
{
    qn_choices c;
    bool news = false;
    qn_knobs candidates[QN_KNOB_CANDIDATES];
    if (open_choices(x, &c, err)) {
        return false;
    }
    for (int i = 0; i < x->low.decode.n && !news; i++) {
        const qn_cuda_action *a = &x->low.decode.actions[i];
        const qn_site *s = a->site ? &x->low.sites[a->site - 1] : NULL;
        news = s && !qn_choices_get(&c, s->key) && qn_knobs_candidates(s, candidates) > 0;
    }
    qn_choices_free(&c);
    return news;
}

int qn_cuda_tune_at_load(qn_cuda_exec *x, qn_err *err)
{
    const qn_exec_opts *o = &x->base.opts;
    const qn_tune_opts t = {.seconds = o->tune_seconds, .progress = on_measured, .user = x};
    qn_tune_result r;
    qn_err why;
    char line[640], place[QN_PATH_MAX];
    const char *rule;
    if (o->no_tune || !(o->tune_seconds > 0) || o->persistent ||
        !qn_cache_place(place, sizeof place, o->cache, &rule) || !has_news(x, &why)) {
        return 0;
    }
    snprintf(line, sizeof line, "measuring kernels of decode for about %.0f s, remembered for next time",
             o->tune_seconds);
    qn_cuda_log(x, 0, line);
    if (qn_cuda_tune(&x->base, &t, &r, &why)) { /* what is shipped serves */
        snprintf(line, sizeof line, "kernels as shipped: %.500s", why.text);
        qn_cuda_log(x, 0, line);
        return 0;
    }
    snprintf(line, sizeof line, "kernels: %d of %d choices tuned in %.1f s", r.n_tuned, r.n_row, r.seconds);
    qn_cuda_log(x, 0, line);
    if (r.n_tuned == 0) {
        return 0;
    }
    drop_kernels(x);
    return qn_cuda_build_kernels(x, err);
}

bool qn_cuda_knobs_of(const qn_exec *e, const qn_step *s, char *text, size_t size)
{
    const qn_cuda_exec *x = (const qn_cuda_exec *)e;
    char knobs[QN_KNOB_TEXT];
    for (int i = 0; i < x->low.decode.n; i++) {
        const qn_cuda_action *a = &x->low.decode.actions[i];
        if (a->step == s && a->site) {
            const qn_site *site = &x->low.sites[a->site - 1];
            snprintf(text, size, "%s (%s)", qn_knobs_text(site->kind, &site->now, knobs),
                     site->tuned ? "tuned" : "shipped");
            return true;
        }
    }
    return false;
}
