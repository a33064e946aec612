#include "cuda/programs.h"

#include "cuda/tune_kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* An H200's, for launch shapes where there is no device to ask. */
enum { DEFAULT_MULTIPROCESSORS = 132 };
static const uint64_t PLACEHOLDER = 1ull << 40; /* and from one address to the next */

static void find_device(qn_cuda_target *t, int device)
{
    qn_cuda cuda;
    qn_err ignored;
    if (qn_cuda_load(&cuda, &ignored) == 0 && qn_cuda_init(&cuda, &ignored) == 0 &&
        qn_cuda_device_get(&cuda, device, &t->device, &ignored) == 0) {
        t->has_device = true;
        t->driver_major = cuda.version / 1000;
        t->driver = cuda.version;
        t->multiprocessors = t->device.multiprocessors;
    }
}

/* Stands for NVRTC's list where NVRTC is missing: any architecture whose name reads like one. */
static void all_archs(qn_nvrtc *n, int cc)
{
    *n = (qn_nvrtc){.n_arch = 1, .archs = {cc}};
}

static int cc_of_name(const char *name)
{
    const char *digits = strpbrk(name, "0123456789");
    return digits ? (int)strtol(digits, NULL, 10) : 0;
}

int qn_cuda_target_find(qn_cuda_target *t, int device, const char *arch, const char *variant, bool need_nvrtc,
                        qn_err *err)
{
    *t = (qn_cuda_target){.multiprocessors = DEFAULT_MULTIPROCESSORS};
    find_device(t, device);
    t->has_nvrtc = qn_nvrtc_load(&t->nvrtc, t->driver_major, err) == 0;
    if (!t->has_nvrtc && need_nvrtc) {
        return -1;
    }
    if (!t->has_nvrtc) {
        all_archs(&t->nvrtc, arch ? cc_of_name(arch) : t->has_device ? t->device.cc : QN_VARIANT_SM90A);
    }
    int rc = arch            ? qn_arch_by_name(&t->arch, &t->nvrtc, arch, err)
             : t->has_device ? qn_arch_for_device(&t->arch, &t->nvrtc, t->device.cc, err)
                             : qn_arch_by_name(&t->arch, &t->nvrtc, "sm_90a", err);
    return rc == 0 && variant ? qn_variant_by_name(&t->arch.variant, &t->arch, variant, err) : rc;
}

/* Weights lie as in a run, from PLACEHOLDER on: which of them share a product hangs on that. */
typedef struct layout {
    qn_placed *placed;
    int n_placed;
    qn_half_cache halves;
    uint64_t *some; /* buffers and KV caches */
} layout;

static uint64_t weight_at(const void *user, const qn_tensor *t)
{
    const layout *l = user;
    return t ? PLACEHOLDER + qn_placed_at(l->placed, l->n_placed, t) : 0;
}

static uint64_t table_at(const void *user, const float *table)
{
    const layout *l = user;
    return table ? PLACEHOLDER + qn_placed_at(l->placed, l->n_placed, table) : 0;
}

static uint64_t half_at(const void *user, const qn_tensor *t)
{
    return qn_half_cache_at(&((const layout *)user)->halves, t);
}

static int fp8_of(const void *user, const qn_tensor *t)
{
    return qn_half_cache_fp8(&((const layout *)user)->halves, t);
}

void qn_cuda_placeholders(qn_cuda_mem *m, const qn_plans *plans)
{
    uint64_t *const each[] = {&m->state,      &m->tokens,    &m->k16,        &m->v16,         &m->parts,
                              &m->part_count, &m->w16[0],    &m->w16[1],     &m->a16,         &m->product,
                              &m->row_sums,   &m->row_scale, &m->squares[0], &m->squares[1],  &m->q8[0],
                              &m->q8[1],      &m->sampling,  &m->marks,      &m->history,     &m->found,
                              &m->arrived,    &m->ring,      &m->act_maps,   &m->sample_work, &m->q16,
                              &m->pairs,      &m->fp8_tops,  &m->stream};
    uint64_t at = 2 * PLACEHOLDER;
    for (size_t i = 0; i < sizeof each / sizeof *each; i++, at += PLACEHOLDER) {
        *each[i] = at;
    }
    for (int i = 0; i < plans->n_buf; i++, at += PLACEHOLDER) {
        m->bufs[i] = at;
    }
    for (int i = 0; i < plans->n_kv; i++, at += 4 * PLACEHOLDER) {
        m->k[i] = at;
        m->v[i] = at + PLACEHOLDER;
        m->k_map[i] = at + 2 * PLACEHOLDER;
        m->v_map[i] = at + 3 * PLACEHOLDER;
    }
}

static int make_layout(layout *l, const qn_plans *plans, const qn_exec_opts *opts, qn_err *err)
{
    uint64_t bytes;
    l->some = qn_calloc((size_t)plans->n_buf + 4 * (size_t)plans->n_kv + 1, sizeof *l->some);
    if (!l->some) {
        return qn_fail(err, "out of memory");
    }
    bool kept = opts->weight_cache == QN_WEIGHT_CACHE_ON;
    if (qn_cuda_place(&l->placed, &l->n_placed, plans, &bytes, err) ||
        (kept && qn_half_cache_make(&l->halves, plans, opts, err))) {
        return -1;
    }
    l->halves.base = PLACEHOLDER;
    return 0;
}

/* What a session on the device would take: nothing where the target is another one. */
static int open_choices(qn_choices *c, const qn_exec_opts *opts, const qn_cuda_target *t, qn_err *err)
{
    char place[QN_PATH_MAX];
    const char *why;
    const qn_kernel_world w = {.card = t->device.name,
                               .cc = t->device.cc,
                               .driver = t->driver,
                               .nvrtc = {t->nvrtc.major, t->nvrtc.minor},
                               .arch = &t->arch,
                               .kernel_src = opts->kernel_src};
    memset(c, 0, sizeof *c);
    return opts->no_tune || !t->has_device || !t->has_nvrtc ||
                   !qn_cache_place(place, sizeof place, opts->cache, &why)
               ? 0
               : qn_kernel_choices_open(c, place, &w, err);
}

int qn_cuda_lower_only(qn_lowered *out, const qn_plans *plans, const qn_exec_opts *opts,
                       const qn_cuda_target *target, qn_err *err)
{
    layout l = {0};
    if (opts->prefill == QN_PREFILL_FP8 && target->arch.cc < QN_FP8_CC) {
        return qn_fail(err, "--prefill fp8 needs a card with fp8 products, sm_89 or newer; this is %s",
                       target->arch.name);
    }
    int rc = make_layout(&l, plans, opts, err);
    uint64_t *kv = l.some ? l.some + plans->n_buf : NULL;
    size_t n_kv = (size_t)plans->n_kv;
    qn_cuda_mem mem = {.bufs = l.some,
                       .fp8 = opts->prefill == QN_PREFILL_FP8 ? fp8_of : NULL,
                       .weight = weight_at,
                       .table = table_at,
                       .half = opts->weight_cache == QN_WEIGHT_CACHE_ON ? half_at : NULL,
                       .user = &l};
    if (kv) {
        mem.k = kv;
        mem.v = kv + n_kv;
        mem.k_map = kv + 2 * n_kv;
        mem.v_map = kv + 3 * n_kv;
        qn_cuda_placeholders(&mem, plans);
    }
    qn_lower_opts lo = {.exec = opts,
                        .mem = &mem,
                        .variant = target->arch.variant,
                        .multiprocessors = target->multiprocessors,
                        .f32_activations = opts->f32_activations,
                        .no_fuse = opts->no_fuse,
                        .persistent = opts->persistent};
    qn_choices choices;
    rc = rc || open_choices(&choices, opts, target, err) ? -1 : 0;
    if (rc == 0) {
        lo.knobs = qn_kernel_choice;
        lo.knobs_user = &choices;
        rc = qn_lower(out, plans, &lo, err);
        qn_choices_free(&choices);
    }
    free(l.placed);
    qn_half_cache_free(&l.halves);
    free(l.some);
    return rc;
}

uint32_t qn_cuda_dynamic_shared(const qn_lowered *l, int program)
{
    const qn_cuda_list *lists[] = {&l->decode,
                                   &l->few,
                                   &l->each,
                                   &l->prefill,
                                   &l->persistent,
                                   &l->choose[QN_CHOOSE_TOP_K],
                                   &l->choose[QN_CHOOSE_FULL]};
    uint32_t most = 0;
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        for (int i = 0; i < lists[k]->n; i++) {
            const qn_cuda_action *a = &lists[k]->actions[i];
            if (!a->is_gemm && a->program == program && a->shared > most) {
                most = a->shared;
            }
        }
    }
    return most;
}

static void on_log(void *user, int level, const char *line)
{
    const qn_exec_opts *o = user;
    if (o->log) {
        o->log(o->log_user, level, line);
    }
}

static void on_progress(void *user, const qn_jit_progress *p)
{
    const qn_exec_opts *o = user;
    char line[320];
    if (o->loading) {
        o->loading(o->loading_user, QN_LOADING_KERNELS, (uint64_t)p->done, (uint64_t)p->total);
    }
    if (p->done > 0) {
        snprintf(line, sizeof line, "%d/%d %.200s %.0f ms", p->done, p->total, p->name, 1e3 * p->seconds);
        on_log(user, 1, line);
    } else if (p->total > 4) { /* a few are done before the line is read */
        snprintf(line, sizeof line, "compiling %d kernels (%d in the cache)", p->total, p->cached);
        on_log(user, 0, line);
    }
}

/* Compiles the programs whose place in `index` is listed. */
static int compile(qn_cuda_programs *out, const int *index, int n, qn_err *err)
{
    qn_jit_program *programs = qn_calloc((size_t)n + 1, sizeof *programs);
    const qn_kernel **kernels = qn_calloc((size_t)n + 1, sizeof *kernels);
    int rc = programs && kernels ? 0 : qn_fail(err, "out of memory");
    for (int i = 0; i < n && rc == 0; i++) {
        const qn_cuda_program *p = &out->low.programs[index[i]];
        programs[i] = (qn_jit_program){p->name, p->source.spec, p->source.text, p->source.symbol};
    }
    rc = rc || n == 0 ? rc : qn_jit_compile_all(out->jit, programs, n, kernels, err);
    for (int i = 0; i < n && rc == 0; i++) {
        out->kernels[index[i]] = kernels[i];
        out->n_cached += kernels[i]->cached;
    }
    out->n_compiled = out->jit ? qn_jit_compiles(out->jit) : 0;
    free(programs);
    free(kernels);
    return rc;
}

int qn_cuda_programs_make(qn_cuda_programs *out, const qn_plans *plans, const qn_exec_opts *opts,
                          const qn_cuda_target *target, bool (*wanted)(void *user, const qn_cuda_program *p),
                          void *user, qn_err *err)
{
    struct timespec t0, t1;
    const char *why;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    memset(out, 0, sizeof *out);
    if (qn_cuda_lower_only(&out->low, plans, opts, target, err)) {
        return -1;
    }
    if (!qn_cache_place(out->cache, sizeof out->cache, opts->cache, &why)) {
        out->cache[0] = '\0';
    }
    qn_jit_opts jo = {.nvrtc = &target->nvrtc,
                      .arch = target->arch,
                      .cache_dir = out->cache[0] ? out->cache : NULL,
                      .kernel_src = opts->kernel_src,
                      .n_threads = opts->n_threads,
                      .log = on_log,
                      .progress = on_progress,
                      .user = (void *)(uintptr_t)opts};
    int n = out->low.n_program, n_wanted = 0;
    int *index = qn_calloc((size_t)n + 1, sizeof *index);
    out->kernels = qn_calloc((size_t)n + 1, sizeof *out->kernels);
    int rc = index && out->kernels ? qn_jit_new(&out->jit, &jo, err) : qn_fail(err, "out of memory");
    for (int i = 0; i < n && rc == 0; i++) {
        if (!wanted || wanted(user, &out->low.programs[i])) {
            index[n_wanted++] = i;
        }
    }
    rc = rc ? rc : compile(out, index, n_wanted, err);
    free(index);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    out->seconds = (double)(t1.tv_sec - t0.tv_sec) + 1e-9 * (double)(t1.tv_nsec - t0.tv_nsec);
    if (rc) {
        qn_cuda_programs_free(out);
    }
    return rc;
}

void qn_cuda_programs_free(qn_cuda_programs *p)
{
    qn_jit_free(p->jit);
    qn_lowered_free(&p->low);
    free(p->kernels);
    memset(p, 0, sizeof *p);
}
