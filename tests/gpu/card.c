/* card.c: see card.h. */
#include "card.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "card_internal.h"
#include "codegen/jit.h"

enum { PLAIN_SHARED = 48 * 1024, WORKSPACE = 32 << 20 };

typedef struct card_program {
    emu_program base; /* the first member: what the tests see */
    char *text, *spec, *symbol, *name;
    qn_cu_module module;
    qn_cu_function function;
    uint32_t shared; /* that the function may ask for */
} card_program;

card_device card_dev;
static struct {
    qn_nvrtc nvrtc;
    qn_jit *jit;
    qn_gemm gemm;
    qn_cu_ptr workspace;
    card_program **programs;
    int n_program, cap_program;
    card_counts counts;
    void (*on_program)(void *user, const char *name);
    void *user;
} card;

int card_report(emu_report *r, const char *kind, const char *text)
{
    memset(r, 0, sizeof *r);
    snprintf(r->kind, sizeof r->kind, "%s", kind);
    snprintf(r->text, sizeof r->text, "%s: %.990s", kind, text);
    return -1;
}

int card_driver_failed(qn_cu_result code, const char *what, emu_report *r)
{
    qn_err err;
    card_dev.lost = code != QN_CU_INVALID_VALUE && code != QN_CU_OUT_OF_MEMORY;
    qn_cuda_fail(&card_dev.cuda, code, what, &err);
    return card_report(r, "card", err.text);
}

static int open_device(qn_err *err)
{
    if (qn_cuda_load(&card_dev.cuda, err) || qn_cuda_init(&card_dev.cuda, err) ||
        qn_cuda_device_get(&card_dev.cuda, 0, &card_dev.dev, err)) {
        return -1;
    }
    const qn_cuda_api *cu = &card_dev.cuda.api;
    qn_cu_result r = cu->DevicePrimaryCtxRetain(&card_dev.ctx, card_dev.dev.handle);
    r = r ? r : cu->CtxSetCurrent(card_dev.ctx);
    r = r ? r : cu->StreamCreate(&card_dev.stream, QN_CU_STREAM_NON_BLOCKING);
    r = r ? r : cu->MemAlloc(&card.workspace, WORKSPACE);
    return r ? qn_cuda_fail(&card_dev.cuda, r, "opening the device", err) : 0;
}

int card_open(const char *cache, card_info *info, qn_err *err)
{
    qn_arch arch;
    if (card_memory_open(err) || open_device(err) ||
        qn_nvrtc_load(&card.nvrtc, card_dev.cuda.version / 1000, err) ||
        qn_arch_for_device(&arch, &card.nvrtc, card_dev.dev.cc, err) ||
        qn_gemm_open(&card.gemm, card_dev.cuda.version / 1000, card.workspace, WORKSPACE, err)) {
        return -1;
    }
    const qn_jit_opts jo = {.nvrtc = &card.nvrtc, .arch = arch, .cache_dir = cache, .n_threads = 1};
    if (qn_jit_new(&card.jit, &jo, err)) {
        return -1;
    }
    memset(info, 0, sizeof *info);
    snprintf(info->name, sizeof info->name, "%s", card_dev.dev.name);
    snprintf(info->arch, sizeof info->arch, "%s", arch.name);
    snprintf(info->nvrtc, sizeof info->nvrtc, "%d.%d", card.nvrtc.major, card.nvrtc.minor);
    info->cc = card_dev.dev.cc;
    info->driver = card_dev.cuda.version;
    info->variant = arch.variant;
    info->multiprocessors = card_dev.dev.multiprocessors;
    return 0;
}

void card_close(void)
{
    for (int i = 0; i < card.n_program; i++) {
        card_program *p = card.programs[i];
        if (p->module && !card_dev.lost) {
            card_dev.cuda.api.ModuleUnload(p->module);
        }
        free(p->text);
        free(p->spec);
        free(p->symbol);
        free(p->name);
        free(p);
    }
    free(card.programs);
    card_memory_close();
    if (!card_dev.lost && card_dev.ctx) {
        qn_gemm_close(&card.gemm);
        card_dev.cuda.api.MemFree(card.workspace);
        card_dev.cuda.api.StreamDestroy(card_dev.stream);
        card_dev.cuda.api.DevicePrimaryCtxRelease(card_dev.dev.handle);
    }
    qn_jit_free(card.jit);
    memset(&card, 0, sizeof card);
    memset(&card_dev, 0, sizeof card_dev);
}

bool card_is_lost(void)
{
    return card_dev.lost;
}

card_counts card_totals(void)
{
    return card.counts;
}

void card_on_program(void (*fn)(void *user, const char *template_name), void *user)
{
    card.on_program = fn;
    card.user = user;
}

/* --- Programs --- */

const emu_program *emu_programs(int *n)
{
    *n = 0;
    return NULL;
}

static char *copy(const char *s)
{
    char *p = s ? strdup(s) : NULL;
    if (s && !p) {
        abort();
    }
    return p;
}

const emu_program *card_find(const qn_cuda_program *q)
{
    for (int i = 0; i < card.n_program; i++) {
        if (strcmp(card.programs[i]->text, q->source.text) == 0) {
            return &card.programs[i]->base;
        }
    }
    if (card.n_program == card.cap_program) {
        card.cap_program = card.cap_program ? 2 * card.cap_program : 256;
        card.programs = realloc(card.programs, sizeof(card_program *) * (size_t)card.cap_program);
    }
    card_program *p = calloc(1, sizeof *p);
    if (!card.programs || !p) {
        abort();
    }
    p->text = copy(q->source.text);
    p->spec = copy(q->source.spec);
    p->symbol = copy(q->source.symbol);
    p->name = copy(q->name);
    p->base.name = p->symbol;
    p->base.key = 1 + (uint64_t)card.n_program;
    card.programs[card.n_program++] = p;
    return &p->base;
}

static int load(card_program *p, qn_err *err)
{
    const qn_cuda_api *cu = &card_dev.cuda.api;
    const qn_jit_program one = {p->name, p->spec, p->text, p->symbol};
    const qn_kernel *k;
    const int before = qn_jit_compiles(card.jit);
    const double start = qn_cuda_seconds();
    if (qn_jit_compile_all(card.jit, &one, 1, &k, err)) {
        return -1;
    }
    card.counts.compiled += qn_jit_compiles(card.jit) - before;
    card.counts.compile_seconds += qn_cuda_seconds() - start;
    const qn_blob *image = k->cubin.size ? &k->cubin : &k->ptx;
    qn_cu_result r = cu->ModuleLoadDataEx(&p->module, image->data, 0, NULL, NULL);
    r = r ? r : cu->ModuleGetFunction(&p->function, p->module, p->symbol);
    if (r) {
        return qn_cuda_fail(&card_dev.cuda, r, p->symbol, err);
    }
    card.counts.programs++;
    if (card.on_program) {
        card.on_program(card.user, p->name);
    }
    return 0;
}

int emu_prepare(const emu_program *program, emu_report *r)
{
    card_program *p = (card_program *)(uintptr_t)program;
    qn_err err;
    return p->function || load(p, &err) == 0 ? 0 : card_report(r, "compile", err.text);
}

/* Shared memory beyond what every card gives must be asked for. */
static int allow_shared(card_program *p, uint32_t bytes, emu_report *r)
{
    if (bytes <= PLAIN_SHARED || bytes <= p->shared) {
        return 0;
    }
    qn_cu_result s = card_dev.cuda.api.FuncSetAttribute(p->function, QN_CU_FUNC_MAX_DYNAMIC_SMEM, (int)bytes);
    p->shared = bytes;
    return s ? card_driver_failed(s, p->symbol, r) : 0;
}

int emu_run(const emu_launch *l, emu_report *r)
{
    card_program *p = (card_program *)(uintptr_t)l->program;
    const qn_cuda_api *cu = &card_dev.cuda.api;
    uint64_t args[QN_CUDA_ARGS];
    void *params[QN_CUDA_ARGS];
    if (l->n_arg > QN_CUDA_ARGS) {
        return card_report(r, "card", "too many arguments");
    }
    if (emu_prepare(&p->base, r) || card_send(r) || allow_shared(p, l->shared, r)) {
        return -1;
    }
    for (int i = 0; i < l->n_arg; i++) {
        args[i] = card_there(l->args[i]);
        params[i] = &args[i];
    }
    const bool cooperative = l->cooperative && !l->by_shape,
               overlaps = l->dependent && l->variant >= QN_VARIANT_SM90A;
    qn_cu_result s;
    card.counts.launches++;
    if ((cooperative || overlaps) && cu->LaunchKernelEx) {
        qn_cu_launch_attribute how = {.id = QN_CU_LAUNCH_PROGRAMMATIC_SERIALIZATION,
                                      .value.programmatic_serialization = 1};
        if (cooperative) {
            how = (qn_cu_launch_attribute){.id = QN_CU_LAUNCH_COOPERATIVE, .value.cooperative = 1};
        }
        const qn_cu_launch_config c = {l->grid[0], l->grid[1], l->grid[2],      l->threads, 1,
                                       1,          l->shared,  card_dev.stream, &how,       1};
        s = cu->LaunchKernelEx(&c, p->function, params, NULL);
    } else {
        s = cu->LaunchKernel(p->function, l->grid[0], l->grid[1], l->grid[2], l->threads, 1, 1, l->shared,
                             card_dev.stream, params, NULL);
    }
    return s ? card_driver_failed(s, p->symbol, r) : 0;
}

int card_product(const qn_cuda_gemm *g, int rows, float up, qn_err *err)
{
    emu_report r;
    qn_cuda_gemm q = *g;
    if (card_send(&r)) {
        return qn_fail(err, "%s", r.text);
    }
    q.a = card_there(g->a);
    q.w = card_there(g->w);
    q.out = card_there(g->out);
    q.fp8 = g->fp8 ? 1 : 0;
    card.gemm.fp8_up = &up;
    card.counts.products++;
    int rc = qn_gemm_run(&card.gemm, &q, rows, card_dev.stream, err);
    card.gemm.fp8_up = NULL;
    return rc;
}
