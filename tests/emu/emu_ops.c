/* emu_ops OP [WORD [VARIANT]] [--added]: the cases of an op (those whose name contains WORD, of one hardware
 * variant: sm75, sm80, sm90a): its kernels under emulation against its reference function in exact
 * arithmetic, through the lists for one row (decode), few rows and many rows (prefill). Prints NMSE and the
 * worst element (of the outputs' root mean square) of the worst cases.
 *
 * With --added only runs that launch a program which stands twice in the table, up to the first that fails
 * (tests/emu/mutate.py).
 *
 * emu_ops --list-is OP...: are these the ops that have cases? (That each template is launched by a case:
 * emu_gen.c.) */
#include "emu_ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct runner {
    ops_runner ops;
    const char *word;
    int variant; /* only cases of this one; 0: all */
    int n_run, n_failed;
    double worst_nmse[OPS_WAYS], worst_element[OPS_WAYS];
    char worst_name[OPS_WAYS][176];
    int runs[OPS_WAYS];
} runner;

static void note(runner *r, const emu_case *c, int way, const ops_result *o)
{
    const ops_error *e = &o->error;
    r->n_run++;
    r->runs[way]++;
    if (o->failed) {
        r->n_failed++;
        printf("FAILED %s, %s %s: %s NMSE %.2e (at most %.0e), worst element %.2e%s\n", c->name,
               ops_ways[way].name, qn_variant_name(c->variant), o->err.text, e->nmse, o->tolerance,
               e->element, e->bad ? ", not finite" : "");
    }
    if (e->nmse >= r->worst_nmse[way]) {
        r->worst_nmse[way] = e->nmse;
        r->worst_element[way] = e->element;
        snprintf(r->worst_name[way], sizeof r->worst_name[way], "%s, %s", c->name,
                 qn_variant_name(c->variant));
    }
}

static int run_case(void *user, emu_case *c)
{
    runner *r = user;
    if ((r->word && !strstr(c->name, r->word)) || (r->variant && r->variant != c->variant)) {
        return 0;
    }
    r->ops.n_seen = 0;
    for (int i = 0; i < OPS_WAYS; i++) {
        ops_result o;
        if (ops_has_way(c, i) && ops_run(&r->ops, c, i, &o) == 0) {
            note(r, c, i, &o);
        }
        if (r->n_failed && r->ops.only_added) {
            return 1;
        }
    }
    return 0;
}

static int list_is(int n, char **names)
{
    int found = 0, due = 0, rc = 0;
    for (const char *const *op = emu_case_ops(); *op; op++, due++) {
        bool there = false;
        for (int i = 0; i < n; i++) {
            there = there || strcmp(names[i], *op) == 0;
        }
        found += there;
        if (!there) {
            printf("FAILED: no test runs the cases of '%s' (tests/emu.cmake)\n", *op);
            rc = 1;
        }
    }
    return rc || found != n || found != due;
}

int main(int argc, char **argv)
{
    static runner r;
    if (argc > 1 && strcmp(argv[1], "--list-is") == 0) {
        return list_is(argc - 2, argv + 2);
    }
    const bool traffic = argc > 1 && strcmp(argv[1], "--traffic") == 0;
    if (traffic) {
        emu_traffic_on();
        argv++;
        argc--;
    }
    if (argc > 1 && strcmp(argv[argc - 1], "--added") == 0) {
        r.ops.only_added = true;
        argc--;
    }
    if (argc < 2) {
        fprintf(stderr, "usage: emu_ops [--traffic] OP [WORD [VARIANT]] [--added]\n");
        return 2;
    }
    r.word = argc > 2 ? argv[2] : NULL;
    const qn_arch any = {.name = "sm_90a", .cc = 90, .variant = QN_VARIANT_SM90A};
    qn_err err;
    if (argc > 3 && qn_variant_by_name(&r.variant, &any, argv[3], &err)) {
        fprintf(stderr, "emu_ops: %s\n", err.text);
        return 2;
    }
    r.ops.emu.programs = emu_programs(&r.ops.emu.n_program);
    emu_cases(argv[1], run_case, &r);
    for (int i = 0; i < OPS_WAYS; i++) {
        printf("%-12s %4d runs, worst NMSE %.2e, its worst element %.2e: %s\n", ops_ways[i].name, r.runs[i],
               r.worst_nmse[i], r.worst_element[i], r.worst_name[i]);
    }
    if (traffic) {
        emu_traffic_print();
    }
    emu_counts n = emu_totals();
    printf("%s: %d runs, %d failed; %llu launches, %llu blocks, %llu threads, %.1f M accesses checked\n",
           argv[1], r.n_run, r.n_failed, (unsigned long long)n.launches, (unsigned long long)n.blocks,
           (unsigned long long)n.threads, 1e-6 * (double)n.accesses);
    return r.n_failed || (r.n_run == 0 && !r.ops.only_added);
}
