/* emu_knobs_gen KERNEL_DIR OUT_DIR N_SHARD: writes the programs of emu_knobs.c as C++, spread over
 * OUT_DIR/knobs_NN.cpp. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu_knobs.h"
#include "emu_source.h"

enum { SOME_ADDRESS = 0x10000, FIRST_INDEX = 200000 };

typedef struct generator {
    qn_kernel_files files;
    struct {
        char *text, kernel[48], symbol[160];
        uint64_t key;
    } * programs;
    int n, cap, n_case;
} generator;

static uint64_t some_weight(const void *user, const qn_tensor *t)
{
    (void)user;
    (void)t;
    return SOME_ADDRESS;
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
    g->programs[g->n].text = strdup(p->source.text);
    g->programs[g->n].key = key;
    snprintf(g->programs[g->n].kernel, sizeof g->programs->kernel, "%s", kernel);
    snprintf(g->programs[g->n++].symbol, sizeof g->programs->symbol, "%s", p->source.symbol);
}

static int add_case(void *user, emu_case *c)
{
    generator *g = user;
    uint64_t none[CASE_BUFS] = {0};
    qn_cuda_mem mem = {.state = SOME_ADDRESS,
                       .tokens = SOME_ADDRESS,
                       .bufs = none,
                       .k = none,
                       .v = none,
                       .k_map = none,
                       .v_map = none,
                       .weight = some_weight,
                       .table = some_table};
    qn_err err;
    g->n_case++;
    for (int i = 0; i < EMU_KNOB_SETS * EMU_KNOB_ROUTES; i++) {
        int set = i / EMU_KNOB_ROUTES;
        qn_lowered low;
        qn_exec_opts o = c->exec;
        o.rows_attention = i % EMU_KNOB_ROUTES == 1;
        const qn_lower_opts lo = {.exec = &o,
                                  .mem = &mem,
                                  .variant = QN_VARIANT_SM80,
                                  .multiprocessors = CASE_MULTIPROCESSORS,
                                  .knobs = emu_knob_set,
                                  .knobs_user = &set};
        if (o.rows_attention && (o.k_type != QN_CACHE_F16 || o.v_type != QN_CACHE_F16)) {
            continue;
        }
        if (qn_lower(&low, &c->plans, &lo, &err)) {
            fprintf(stderr, "emu_knobs_gen: %s: %s\n", c->name, err.text);
            return 1;
        }
        for (int k = 0; k < low.n_program; k++) {
            add_program(g, &low.programs[k]);
        }
        qn_lowered_free(&low);
    }
    return 0;
}

static int write_shard(const generator *g, const char *kernel_dir, const char *out_dir, int shard,
                       int n_shard)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/knobs_%02d.cpp", out_dir, shard);
    FILE *f = fopen(path, "w");
    if (!f) {
        return -1;
    }
    fputs("// written by emu_knobs_gen\n", f);
    emu_source_headers(f, &g->files);
    fputs("#include \"emu.h\"\n", f);
    for (int i = shard; i < g->n; i += n_shard) {
        emu_source_program(f, &g->files, kernel_dir, g->programs[i].text, g->programs[i].kernel,
                           FIRST_INDEX + i);
    }
    fputs("\n#line 1 \"shard table\"\nstatic const emu_program table[] = {\n", f);
    for (int i = shard; i < g->n; i += n_shard) {
        fprintf(f, "    {0x%llxu, \"%s\", p%d::call},\n", (unsigned long long)g->programs[i].key,
                g->programs[i].symbol, FIRST_INDEX + i);
    }
    fputs("    {0, \"\", nullptr},\n};\nstatic const bool added = emu_add_programs(table);\n", f);
    return fclose(f);
}

int main(int argc, char **argv)
{
    static generator g;
    qn_err err;
    if (argc != 4) {
        fprintf(stderr, "usage: emu_knobs_gen KERNEL_DIR OUT_DIR N_SHARD\n");
        return 2;
    }
    if (qn_kernel_files_load(&g.files, argv[1], &err)) {
        fprintf(stderr, "emu_knobs_gen: %s\n", err.text);
        return 1;
    }
    int rc = emu_knob_cases(add_case, &g), n_shard = atoi(argv[3]);
    for (int i = 0; i < n_shard && rc == 0; i++) {
        rc = write_shard(&g, argv[1], argv[2], i, n_shard);
    }
    printf("emu_knobs_gen: %d cases, %d programs\n", g.n_case, g.n);
    qn_kernel_files_free(&g.files);
    return rc ? 1 : 0;
}
