/* emu_knobs_gen KERNEL_DIR OUT_DIR N_SHARD: writes the programs of emu_knobs.c as C++, spread over
 * OUT_DIR/knobs_NN.cpp. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu_knobs.h"
#include "emu_collect.h"
#include "emu_exec.h"

static int add_case(void *user, emu_case *c)
{
    emu_collection *g = user;
    uint64_t none[CASE_BUFS] = {0};
    qn_cuda_mem mem = {.state = EMU_SOME_ADDRESS,
                       .tokens = EMU_SOME_ADDRESS,
                       .bufs = none,
                       .k = none,
                       .v = none,
                       .k_map = none,
                       .v_map = none,
                       .weight = emu_some_weight,
                       .table = emu_some_table};
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
                                  .share_from = emu_share_from(QN_VARIANT_SM80),
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
            emu_collect_add(g, &low.programs[k]);
        }
        qn_lowered_free(&low);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static emu_collection g = {.prefix = "k"};
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
        char path[4096];
        snprintf(path, sizeof path, "%s/knobs_%02d.cpp", argv[2], i);
        rc = emu_collect_write(&g, argv[1], path, i, n_shard);
    }
    printf("emu_knobs_gen: %d cases, %d programs\n", g.n_case, g.n);
    qn_kernel_files_free(&g.files);
    return rc ? 1 : 0;
}
