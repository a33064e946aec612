/* quern plan: the steps a model's tokens go through. */
#include <string.h>

#include "cli/commands.h"
#include "cli/load.h"

typedef struct plan_args {
    qn_model_args model;
    int phase; /* index in `phases` */
} plan_args;

static const char *const phases[] = {"prefill", "decode", "both", NULL};

static const qn_opt plan_opts[] = {
    {"--phase", "NAME", "prefill, decode or both. Default: both.", QN_OPT_CHOICE, offsetof(plan_args, phase),
     0, 0, phases},
    {0},
};

int qn_cmd_plan(int argc, char **argv)
{
    plan_args a = {.model = qn_model_args_defaults, .phase = 2};
    const qn_opt_group groups[] = {{"Plan", plan_opts, &a}, qn_load_group(&a.model), qn_common_group};
    const qn_usage usage = {"plan",
                            "MODEL [--phase prefill|decode|both]",
                            "Prints the plan quern makes for a model: one line a step.",
                            groups,
                            sizeof groups / sizeof *groups,
                            1};
    const char *positional[1];
    qn_loaded l = {0};
    int rc = qn_opts_parse(&usage, argc, argv, positional);
    rc = rc >= 0 ? rc : qn_model_args_finish(&a.model, "plan", positional[0]);
    if (rc < 0) {
        rc = qn_cli_load(&l, &a.model, 0) == 0 ? QN_EXIT_OK : QN_EXIT_ERROR;
        for (int phase = 0; rc == QN_EXIT_OK && phase < 2; phase++) {
            if (a.phase == phase || a.phase == 2) {
                printf("%s# %s\n", phase == 1 && a.phase == 2 ? "\n" : "", phases[phase]);
                qn_plan_print(l.model->plans, phase == 0 ? QN_PHASE_PREFILL : QN_PHASE_DECODE, stdout);
            }
        }
    }
    qn_loaded_free(&l);
    qn_ints_free(&a.model.end_tokens);
    return rc;
}
