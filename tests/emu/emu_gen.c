/* emu_gen KERNEL_DIR OUT_DIR N_SHARD [--only TEMPLATE] [MODEL.gguf...]: writes every program that the op
 * cases and the models need as C++, spread over OUT_DIR/shard_NN.cpp. A file whose text would not change is
 * left alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu_cases.h"
#include "emu_collect.h"
#include "emu_exec.h"
#include "emu_models.h"

static uint64_t kept_at(const void *user, const qn_tensor *t)
{
    return qn_half_cache_at(user, t);
}

static int kept_fp8(const void *user, const qn_tensor *t)
{
    return qn_half_cache_fp8(user, t);
}

/* Routes beside the usual ones, on the variants where they differ. Returns nonzero where there is nothing to
 * add.
 */
static int add_route(int i, qn_lower_opts *lo, qn_exec_opts *o, const qn_plans *plans, bool persistent)
{
    const qn_step *s = &plans->prefill.steps[0];
    qn_type type = s->op->id == QN_OP_LINEAR ? s->w[0]->type : QN_F32;
    lo->variant = i == 9 ? QN_VARIANT_SM75 : i >= 12 ? QN_VARIANT_SM90A : QN_VARIANT_SM80;
    lo->persistent = i == 10;
    o->flash_attention = i != 12;
    o->prefill = i == 9 || i == 11 ? QN_PREFILL_MMQ : i > 12 ? QN_PREFILL_WGMMA : QN_PREFILL_AUTO;
    if (i == 16) {
        lo->variant = QN_VARIANT_SM80;
        o->prefill = QN_PREFILL_FP8;
        return s->op->id != QN_OP_LINEAR;
    }
    if (i == 17) { /* products and what reads them */
        lo->variant = QN_VARIANT_SM80;
        o->prefill = QN_PREFILL_AUTO;
        o->f32_products = true;
        return persistent || plans->prefill.n_step == 1 ||
               (s->op->id != QN_OP_LINEAR && s->op->id != QN_OP_GLU);
    }
    lo->product_tokens = i > 12 ? 64 << (i - 13) : 0;
    if (i > 13) { /* wider tiles: a type of each kind will do */
        return type != QN_Q4_K && type != QN_Q6_K && type != QN_Q2_K && type != QN_F16;
    }
    if (i == 9) { /* without tensor cores for bytes: a type of each kind will do */
        return type != QN_F16 && type != QN_BF16 && type != QN_Q8_0 && type != QN_Q4_K && type != QN_Q6_K &&
               type != QN_Q2_K;
    }
    return i == 10 && !persistent;
}

static int add_plans(emu_collection *g, const qn_plans *plans, const qn_exec_opts *exec, int multiprocessors,
                     bool persistent, qn_err *err)
{
    static const int variants[3] = {QN_VARIANT_SM75, QN_VARIANT_SM80, QN_VARIANT_SM90A};
    qn_cuda_mem mem = {.state = EMU_SOME_ADDRESS,
                       .tokens = EMU_SOME_ADDRESS,
                       .w16 = {EMU_SOME_ADDRESS, EMU_SOME_ADDRESS},
                       .a16 = EMU_SOME_ADDRESS,
                       .product = EMU_SOME_ADDRESS,
                       .weight = emu_some_weight,
                       .table = emu_some_table};
    mem.bufs = calloc((size_t)plans->n_buf + 1, sizeof *mem.bufs);
    mem.k = calloc((size_t)plans->n_kv + 1, sizeof *mem.k);
    mem.v = calloc((size_t)plans->n_kv + 1, sizeof *mem.v);
    mem.k_map = mem.k;
    mem.v_map = mem.v;
    int rc = mem.bufs && mem.k && mem.v ? 0 : qn_fail(err, "out of memory");
    for (int i = 0; i < 18 && rc == 0; i++) {
        qn_lowered low;
        qn_exec_opts o = *exec;
        qn_lower_opts lo = {.exec = &o,
                            .mem = &mem,
                            .variant = variants[i % 3],
                            .multiprocessors = multiprocessors,
                            .f32_activations = i / 3 == 1,
                            .no_fuse = i / 3 == 2};
        if (i >= 9 && add_route(i, &lo, &o, plans, persistent)) {
            continue;
        }
        if ((o.k_type != QN_CACHE_F16 || o.v_type != QN_CACHE_F16) && lo.variant < QN_VARIANT_SM80) {
            continue; /* 8-bit caches are not served before sm_80 */
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
        for (int k = 0; rc == 0 && k < low.n_program; k++) {
            emu_collect_add(g, &low.programs[k]);
        }
        if (rc == 0) {
            qn_lowered_free(&low);
        }
    }
    free(mem.bufs);
    free(mem.k);
    free(mem.v);
    return rc;
}

static int add_case(void *user, emu_case *c)
{
    emu_collection *g = user;
    qn_err err;
    g->n_case++;
    if (add_plans(g, &c->plans, &c->exec, CASE_MULTIPROCESSORS, false, &err)) {
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
    int rc = qn_plans_build(&p, m, &err) || add_plans(g, p, &o, EMU_MULTIPROCESSORS, true, &err) ? -1 : 0;
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
        fprintf(stderr, "usage: emu_gen KERNEL_DIR OUT_DIR N_SHARD [MODEL.gguf...]\n");
        return 2;
    }
    static emu_collection g;
    qn_err err;
    if (qn_kernel_files_load(&g.files, argv[1], &err)) {
        fprintf(stderr, "emu_gen: %s\n", err.text);
        return 1;
    }
    int rc = 0, n_shard = atoi(argv[3]), first_model = 4;
    const char *only = NULL; /* programs of one template, to be linked before the others (mutate.py) */
    if (argc > 5 && strcmp(argv[4], "--only") == 0) {
        only = argv[5];
        g.first_index = 100000;
        first_model = 6;
    }
    for (const char *const *op = emu_case_ops(); *op && rc == 0; op++) {
        int before = g.n_case;
        rc = emu_cases(*op, add_case, &g);
        if (rc == 0 && g.n_case == before) {
            fprintf(stderr, "emu_gen: the op '%s' has no case (tests/emu/emu_case_ops.c)\n", *op);
            rc = -1;
        }
    }
    rc = rc ? rc : check_templates(&g);
    for (int i = first_model; i < argc && rc == 0; i++) {
        rc = add_model(&g, argv[i]);
    }
    for (int i = g.n - 1; only && i >= 0; i--) {
        if (strcmp(g.programs[i].kernel, only) != 0) {
            g.programs[i] = g.programs[--g.n];
        }
    }
    qsort(g.programs, (size_t)g.n, sizeof *g.programs, by_kernel);
    for (int i = 0; i < n_shard && rc == 0; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/shard_%02d.cpp", argv[2], i);
        rc = emu_collect_write(&g, argv[1], path, i, n_shard);
    }
    printf("emu_gen: %d cases, %d programs\n", g.n_case, g.n);
    qn_kernel_files_free(&g.files);
    return rc ? 1 : 0;
}
