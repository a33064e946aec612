/* quern plan: the steps a model's tokens go through. */
#include <string.h>

#include "cli/commands.h"
#include "cli/programs.h"
#include "engine/memory.h"

typedef struct plan_args {
    qn_target_args target;
    int phase; /* index in `phases` */
    bool kernels;
} plan_args;

static const char *const phases[] = {"prefill", "decode", "both", NULL};

static const qn_opt plan_opts[] = {
    {"--phase", "NAME", "prefill, decode or both. Default: both.", QN_OPT_CHOICE, offsetof(plan_args, phase),
     0, 0, phases},
    {"--kernels", NULL,
     "The launches on a GPU instead: kernel, grid, block, shared memory, path, bytes read. Needs no GPU.",
     QN_OPT_FLAG, offsetof(plan_args, kernels)},
    {0},
};

static void print_steps(const plan_args *a, const qn_plans *plans)
{
    for (int phase = 0; phase < 2; phase++) {
        if (a->phase == phase || a->phase == 2) {
            printf("%s# %s\n", phase == 1 && a->phase == 2 ? "\n" : "", phases[phase]);
            qn_plan_print(plans, phase == 0 ? QN_PHASE_PREFILL : QN_PHASE_DECODE, stdout);
        }
    }
}

static int print_kernels(const plan_args *a, const qn_plans *plans, const qn_exec_opts *opts,
                         const qn_cuda_target *target)
{
    qn_lowered low;
    qn_err err;
    char text[192];
    qn_memory memory;
    if (qn_cuda_lower_only(&low, plans, opts, target, &err) != 0) {
        return qn_cli_error("%s", err.text);
    }
    printf("kernels for %s\n", qn_target_text(target, text));
    printf("memory for a context of %d, chunks of %d\n", opts->n_ctx, opts->n_ubatch);
    qn_memory_of(plans, opts, &memory);
    qn_print_memory(true, &memory, 0);
    if (a->phase != 1) {
        printf("\n# prefill, more than %d tokens%s\n", QN_CUDA_FEW,
               opts->no_graph || opts->no_prompt_graph
                   ? ""
                   : "; chunks of up to 512: a captured graph from the third of similar length on");
        qn_print_launches(plans, &low, &low.prefill);
        printf("\n# prefill, up to %d tokens\n", QN_CUDA_FEW);
        qn_print_launches(plans, &low, &low.few);
    }
    if (a->phase != 0) {
        printf("\n# decode\n");
        qn_print_launches(plans, &low, &low.decode);
    }
    if (a->phase == 2) {
        printf("\n# 2 to %d sequences at once\n", QN_CUDA_FEW);
        qn_print_launches(plans, &low, &low.each);
    }
    qn_lowered_free(&low);
    return QN_EXIT_OK;
}

static int run(const plan_args *a)
{
    static qn_cuda_target target;
    qn_exec_opts opts;
    qn_loaded l = {0};
    int rc = QN_EXIT_OK;
    if (!a->kernels) {
        rc = qn_cli_load(&l, &a->target.model, 0) == 0 ? QN_EXIT_OK : QN_EXIT_ERROR;
        if (rc == QN_EXIT_OK) {
            print_steps(a, l.model->plans);
        }
    } else {
        rc = qn_target_load(&a->target, false, &l, &opts, &target) == 0
                 ? print_kernels(a, l.model->plans, &opts, &target)
                 : QN_EXIT_ERROR;
    }
    qn_loaded_free(&l);
    return rc;
}

int qn_cmd_plan(int argc, char **argv)
{
    plan_args a = {.target = qn_target_args_defaults, .phase = 2};
    const qn_opt_group groups[] = {
        {"Plan", plan_opts, &a}, qn_load_group(&a.target.model), qn_target_group(&a.target), qn_common_group};
    const qn_usage usage = {"plan",
                            "MODEL [--phase prefill|decode|both] [--kernels [--arch sm_XY]]",
                            "Prints the plan quern makes for a model: one line a step.",
                            groups,
                            sizeof groups / sizeof *groups,
                            1};
    const char *positional[1];
    int rc = qn_opts_parse(&usage, argc, argv, positional);
    rc = rc >= 0 ? rc : qn_model_args_finish(&a.target.model, "plan", positional[0]);
    rc = rc >= 0 ? rc : run(&a);
    qn_ints_free(&a.target.model.end_tokens);
    return rc;
}
