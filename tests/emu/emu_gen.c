/* emu_gen KERNEL_DIR OUT_DIR N_SHARD [MODEL.gguf...]: writes every program that the op cases and the models
 * need as C++, spread over OUT_DIR/shard_NN.cpp. A file whose text would not change is left alone.
 *
 * emu_gen KERNEL_DIR OUT_DIR N_PROGRAM --only TEMPLATE OP [MODEL.gguf...]: the programs of one template that
 * the cases of an op ("-": none) and the models need, N_PROGRAM a file, to be linked before the others
 * (mutate.py). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu_cases.h"
#include "emu_collect.h"
#include "emu_exec.h"
#include "emu_models.h"
#include "cuda/programs.h"

static uint64_t kept_at(const void *user, const qn_tensor *t)
{
    return qn_half_cache_at(user, t);
}

static int kept_fp8(const void *user, const qn_tensor *t)
{
    return qn_half_cache_fp8(user, t);
}

/* Ways of lowering that the tests of cases, and of models, have. */
typedef struct route {
    int variant;
    emu_route how;
    bool of_models, persistent;
} route;
static const route routes[] = {
    {QN_VARIANT_SM75, {.prefill = QN_PREFILL_AUTO}, false, false},
    {QN_VARIANT_SM75, {.f32 = true}, false, false},
    {QN_VARIANT_SM75, {.no_fuse = true}, false, false},
    {QN_VARIANT_SM75, {.prefill = QN_PREFILL_MMA}, false, false},
    {QN_VARIANT_SM75, {.prefill = QN_PREFILL_MMQ}, false, false},
    {QN_VARIANT_SM80, {.prefill = QN_PREFILL_AUTO}, true, false},
    {QN_VARIANT_SM80, {.f32 = true}, false, false},
    {QN_VARIANT_SM80, {.no_fuse = true}, true, false},
    {QN_VARIANT_SM80, {.f32_products = true}, false, false},
    {QN_VARIANT_SM80, {.prefill = QN_PREFILL_MMA}, true, false},
    {QN_VARIANT_SM80, {.prefill = QN_PREFILL_MMQ}, false, false},
    {QN_VARIANT_SM80, {.prefill = QN_PREFILL_FP8}, false, false},
    {QN_VARIANT_SM80, {.prefill = QN_PREFILL_AUTO}, true, true},
    {QN_VARIANT_SM90A,
     {.prefill = QN_PREFILL_AUTO},
     true,
     true}, /* of models that take weights through a ring */
    {QN_VARIANT_SM90A, {.prefill = QN_PREFILL_AUTO}, false, false},
    {QN_VARIANT_SM90A, {.f32 = true}, false, false},
    {QN_VARIANT_SM90A, {.no_fuse = true}, false, false},
    {QN_VARIANT_SM90A, {.tma = true}, false, false},
    {QN_VARIANT_SM90A, {.tma = true, .tokens = 64}, false, false},
    {QN_VARIANT_SM90A, {.prefill = QN_PREFILL_WGMMA, .tokens = 64}, false, false},
    {QN_VARIANT_SM90A, {.prefill = QN_PREFILL_WGMMA, .tokens = 128}, false, false},
    {QN_VARIANT_SM90A, {.prefill = QN_PREFILL_WGMMA, .tokens = 256}, false, false},
};

/* variant: of a case; 0: a model. */
static bool has_route(const route *r, const qn_plans *plans, int variant)
{
    if (variant == 0) {
        return r->of_models;
    }
    return r->variant == variant && !r->persistent && emu_case_has_route(plans, variant, &r->how);
}

/* Does the persistent kernel have a ring (kernel_src/ring.cuh)? */
static bool has_ring(const qn_lowered *low)
{
    const qn_source *src = &low->programs[low->persistent.actions[0].program].source;
    return !strstr(src->text, "#define QN_RING_BYTES 0\n");
}

static int add_plans(emu_collection *g, const qn_plans *plans, const qn_exec_opts *exec, int multiprocessors,
                     int variant, qn_err *err)
{
    qn_cuda_mem mem = {.weight = emu_some_weight, .table = emu_some_table};
    mem.bufs = calloc((size_t)plans->n_buf + 1, sizeof *mem.bufs);
    mem.k = calloc((size_t)plans->n_kv + 1, sizeof *mem.k);
    mem.v = calloc((size_t)plans->n_kv + 1, sizeof *mem.v);
    mem.k_map = calloc((size_t)plans->n_kv + 1, sizeof *mem.k_map);
    mem.v_map = calloc((size_t)plans->n_kv + 1, sizeof *mem.v_map);
    bool there = mem.bufs && mem.k && mem.v && mem.k_map && mem.v_map;
    int rc = there ? 0 : qn_fail(err, "out of memory");
    if (there) {
        qn_cuda_placeholders(&mem, plans);
    }
    for (size_t i = 0; i < sizeof routes / sizeof *routes && rc == 0; i++) {
        const route *r = &routes[i];
        qn_lowered low;
        qn_exec_opts o = *exec;
        o.flash_attention = !r->how.tma;
        o.tma_attention = r->how.tma && r->how.tokens == 0;
        o.prefill = r->how.prefill;
        o.f32_products = r->how.f32_products;
        qn_lower_opts lo = {.exec = &o,
                            .mem = &mem,
                            .variant = r->variant,
                            .multiprocessors = multiprocessors,
                            .f32_activations = r->how.f32,
                            .no_fuse = r->how.no_fuse,
                            .persistent = r->persistent,
                            .product_tokens = r->how.tokens};
        if (!has_route(r, plans, variant)) {
            continue;
        }
        lo.share_from = emu_share_from(lo.variant);
        qn_half_cache kept = {0};
        if (o.prefill == QN_PREFILL_FP8) { /* its weights are kept */
            rc = qn_half_cache_make(&kept, plans, &o, err);
            kept.base = EMU_SOME_ADDRESS;
            mem.half = kept_at;
            mem.fp8 = kept_fp8;
            mem.user = &kept;
        }
        rc = rc ? rc : qn_lower(&low, plans, &lo, err);
        qn_half_cache_free(&kept);
        mem.half = NULL;
        mem.fp8 = NULL;
        bool wanted = rc == 0 && !(r->persistent && r->variant == QN_VARIANT_SM90A && !has_ring(&low));
        for (int k = 0; wanted && k < low.n_program; k++) {
            emu_collect_add(g, &low.programs[k]);
        }
        if (rc == 0) {
            qn_lowered_free(&low);
        }
    }
    free(mem.bufs);
    free(mem.k);
    free(mem.v);
    free(mem.k_map);
    free(mem.v_map);
    return rc;
}

static int add_case(void *user, emu_case *c)
{
    emu_collection *g = user;
    qn_err err;
    g->n_case++;
    if (add_plans(g, &c->plans, &c->exec, CASE_MULTIPROCESSORS, c->variant, &err)) {
        fprintf(stderr, "emu_gen: %s: %s\n", c->name, err.text);
        return 1;
    }
    return 0;
}

static int add_model(emu_collection *g, const char *path)
{
    qn_err err;
    qn_model *m;
    qn_plans *p = NULL;
    qn_model_opts mo = {.n_ctx = EMU_MODEL_CTX};
    qn_exec_opts o = {.n_ctx = EMU_MODEL_CTX, .n_ubatch = EMU_MODEL_UBATCH};
    if (qn_model_load(&m, path, &mo, &err)) {
        fprintf(stderr, "emu_gen: %s\n", err.text);
        return -1;
    }
    int rc = qn_plans_build(&p, m, &err) || add_plans(g, p, &o, EMU_MULTIPROCESSORS, 0, &err) ? -1 : 0;
    if (rc) {
        fprintf(stderr, "emu_gen: %s: %s\n", path, err.text);
    }
    qn_plans_free(p);
    qn_model_free(m);
    return rc;
}

/* Every template must be launched by some case; the others have tests of their own: whole models, emu_limits.
 */
static int check_templates(const emu_collection *g)
{
    int missing = 0;
    for (int i = g->files.n_header; i < g->files.n; i++) {
        int uses = 0;
        for (int k = 0; k < g->n; k++) {
            uses += strcmp(g->programs[k].kernel, g->files.names[i]) == 0;
        }
        bool elsewhere = strcmp(g->files.names[i], "persistent.cu") == 0 ||
                         strcmp(g->files.names[i], "read_limit.cu") == 0;
        if (uses == 0 && !elsewhere) {
            fprintf(stderr, "emu_gen: no case launches %s (tests/emu/emu_case_ops.c)\n", g->files.names[i]);
            missing++;
        }
    }
    return missing ? -1 : 0;
}

static int by_kernel(const void *a, const void *b)
{
    const emu_listed *x = a, *y = b;
    int c = strcmp(x->kernel, y->kernel);
    return c ? c : x->key < y->key ? -1 : x->key > y->key;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: emu_gen KERNEL_DIR OUT_DIR N_SHARD [--only TEMPLATE OP] [MODEL.gguf...]\n");
        return 2;
    }
    static emu_collection g = {.prefix = "p"};
    qn_err err;
    if (qn_kernel_files_load(&g.files, argv[1], &err)) {
        fprintf(stderr, "emu_gen: %s\n", err.text);
        return 1;
    }
    int rc = 0, n_shard = atoi(argv[3]), first_model = 4;
    const char *one_op = NULL;
    if (argc > 6 && strcmp(argv[4], "--only") == 0) {
        g.only = argv[5];
        g.prefix = "m";
        one_op = argv[6];
        first_model = 7;
    }
    for (const char *const *op = emu_case_ops(); *op && rc == 0; op++) {
        int before = g.n_case;
        if (one_op && strcmp(one_op, *op) != 0) {
            continue;
        }
        rc = emu_cases(*op, add_case, &g);
        if (rc == 0 && g.n_case == before) {
            fprintf(stderr, "emu_gen: the op '%s' has no case (tests/emu/emu_case_ops.c)\n", *op);
            rc = -1;
        }
    }
    rc = rc || g.only ? rc : check_templates(&g);
    for (int i = first_model; i < argc && rc == 0; i++) {
        rc = add_model(&g, argv[i]);
    }
    for (int i = g.n - 1; g.only && i >= 0; i--) {
        if (strcmp(g.programs[i].kernel, g.only) != 0) {
            g.programs[i] = g.programs[--g.n];
        }
    }
    qsort(g.programs, (size_t)g.n, sizeof *g.programs, by_kernel);
    n_shard = g.only ? (g.n + n_shard - 1) / n_shard : n_shard;
    for (int i = 0; i < n_shard && rc == 0; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/shard_%02d.cpp", argv[2], i);
        rc = emu_collect_write(&g, argv[1], path, i, n_shard);
    }
    printf("emu_gen: %d cases, %d programs\n", g.n_case, g.n);
    qn_kernel_files_free(&g.files);
    return rc ? 1 : 0;
}
