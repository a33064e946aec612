/* emu_gen KERNEL_DIR OUT_DIR N_SHARD [--only TEMPLATE] [MODEL.gguf...]: writes every program that the op
 * cases and the models need as C++, spread over OUT_DIR/shard_NN.cpp. A file whose text would not change is
 * left alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu_cases.h"
#include "emu_models.h"
#include "emu_source.h"
#include "cuda/lower.h"

typedef struct program {
    char *text, kernel[48], symbol[160];
    uint64_t key;
} program;

typedef struct generator {
    qn_kernel_files files;
    program *programs;
    int n, cap;
    int n_case;
    int first_index; /* of the programs' namespaces */
} generator;

/* Addresses only have to be there. */
enum { SOME_ADDRESS = 0x10000 };

static uint64_t some_weight(const void *user, const qn_tensor *t)
{
    (void)user;
    (void)t;
    return SOME_ADDRESS;
}

static uint64_t kept_at(const void *user, const qn_tensor *t)
{
    return qn_half_cache_at(user, t);
}

static int kept_fp8(const void *user, const qn_tensor *t)
{
    return qn_half_cache_fp8(user, t);
}

static uint64_t some_table(const void *user, const float *t)
{
    (void)user;
    (void)t;
    return SOME_ADDRESS;
}

static void add_program(generator *g, const qn_cuda_program *p)
{
    char kernel[48];
    snprintf(kernel, sizeof kernel, "%s.cu", p->name);
    uint64_t key = emu_source_key(p->source.text, !emu_source_has_variant(&g->files, kernel));
    for (int i = 0; i < g->n; i++) {
        if (g->programs[i].key == key) {
            return;
        }
    }
    if (g->n == g->cap) {
        g->cap = g->cap ? 2 * g->cap : 256;
        g->programs = realloc(g->programs, sizeof *g->programs * (size_t)g->cap);
    }
    program *q = &g->programs[g->n++];
    memset(q, 0, sizeof *q);
    q->text = strdup(p->source.text);
    q->key = key;
    snprintf(q->kernel, sizeof q->kernel, "%s", kernel);
    snprintf(q->symbol, sizeof q->symbol, "%s", p->source.symbol);
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
    o->tma_attention = i == 12;
    o->prefill = i == 9 || i == 11 ? QN_PREFILL_MMQ : i > 12 ? QN_PREFILL_WGMMA : QN_PREFILL_AUTO;
    if (i == 16) {
        lo->variant = QN_VARIANT_SM80;
        o->prefill = QN_PREFILL_FP8;
        return s->op->id != QN_OP_LINEAR;
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

static int add_plans(generator *g, const qn_plans *plans, const qn_exec_opts *exec, int multiprocessors,
                     bool persistent, qn_err *err)
{
    static const int variants[3] = {QN_VARIANT_SM75, QN_VARIANT_SM80, QN_VARIANT_SM90A};
    qn_cuda_mem mem = {.state = SOME_ADDRESS,
                       .tokens = SOME_ADDRESS,
                       .w16 = {SOME_ADDRESS, SOME_ADDRESS},
                       .a16 = SOME_ADDRESS,
                       .product = SOME_ADDRESS,
                       .weight = some_weight,
                       .table = some_table};
    mem.bufs = calloc((size_t)plans->n_buf + 1, sizeof *mem.bufs);
    mem.k = calloc((size_t)plans->n_kv + 1, sizeof *mem.k);
    mem.v = calloc((size_t)plans->n_kv + 1, sizeof *mem.v);
    mem.k_map = mem.k;
    mem.v_map = mem.v;
    int rc = mem.bufs && mem.k && mem.v ? 0 : qn_fail(err, "out of memory");
    for (int i = 0; i < 17 && rc == 0; i++) {
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
        qn_half_cache kept = {0};
        if (o.prefill == QN_PREFILL_FP8) { /* its weights are kept */
            rc = qn_half_cache_make(&kept, plans, &o, err);
            kept.base = SOME_ADDRESS;
            mem.half = kept_at;
            mem.fp8 = kept_fp8;
            mem.user = &kept;
        }
        rc = rc ? rc : qn_lower(&low, plans, &lo, err);
        qn_half_cache_free(&kept);
        for (int k = 0; rc == 0 && k < low.n_program; k++) {
            add_program(g, &low.programs[k]);
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
    generator *g = user;
    qn_err err;
    g->n_case++;
    if (add_plans(g, &c->plans, &c->exec, CASE_MULTIPROCESSORS, false, &err)) {
        fprintf(stderr, "emu_gen: %s: %s\n", c->name, err.text);
        return 1;
    }
    return 0;
}

static int add_model(generator *g, const char *path)
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
static int check_templates(const generator *g)
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
    const program *x = a, *y = b;
    int c = strcmp(x->kernel, y->kernel);
    return c ? c : x->key < y->key ? -1 : x->key > y->key;
}

static int write_if_new(const char *path, const char *text)
{
    FILE *f = fopen(path, "r");
    if (f) {
        size_t n = strlen(text);
        char *old = malloc(n + 2);
        size_t got = fread(old, 1, n + 1, f);
        bool same = got == n && memcmp(old, text, n) == 0;
        fclose(f);
        free(old);
        if (same) {
            return 0;
        }
    }
    f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f)) {
        fprintf(stderr, "emu_gen: cannot write %s\n", path);
        return -1;
    }
    return 0;
}

/* Every n_shard-th program, so that no shard holds all the costly ones. */
static int write_shard(const generator *g, const char *kernel_dir, const char *out_dir, int shard,
                       int n_shard)
{
    char path[4096], *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    fputs("// written by emu_gen\n", f);
    emu_source_headers(f, &g->files);
    fputs("#include \"emu.h\"\n", f);
    for (int i = shard; i < g->n; i += n_shard) {
        emu_source_program(f, &g->files, kernel_dir, g->programs[i].text, g->programs[i].kernel,
                           g->first_index + i);
    }
    fputs("\n#line 1 \"shard table\"\nstatic const emu_program table[] = {\n", f);
    for (int i = shard; i < g->n; i += n_shard) {
        fprintf(f, "    {0x%llxu, \"%s\", p%d::call},\n", (unsigned long long)g->programs[i].key,
                g->programs[i].symbol, g->first_index + i);
    }
    fputs("    {0, \"\", nullptr},\n};\nstatic const bool added = emu_add_programs(table);\n", f);
    fclose(f);
    snprintf(path, sizeof path, "%s/shard_%02d.cpp", out_dir, shard);
    int rc = write_if_new(path, text);
    free(text);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: emu_gen KERNEL_DIR OUT_DIR N_SHARD [MODEL.gguf...]\n");
        return 2;
    }
    static generator g;
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
        rc = write_shard(&g, argv[1], argv[2], i, n_shard);
    }
    printf("emu_gen: %d cases, %d programs\n", g.n_case, g.n);
    qn_kernel_files_free(&g.files);
    return rc ? 1 : 0;
}
