/* quern check: a model config alone, or against a file. */
#include <stdlib.h>

#include "cli/commands.h"
#include "cli/opts.h"
#include "codegen/plan.h"
#include "model/model_check.h"

typedef struct check_args {
    int n_ctx;
} check_args;

static const qn_opt check_opts[] = {
    {"-c, --ctx-size", "N",
     "Context of the run that long RoPE factors and variants are chosen by. Default: as a run.", QN_OPT_INT,
     offsetof(check_args, n_ctx), 1, 1 << 30, NULL},
    {0},
};

static void print_finding(void *user, bool fault, const char *text)
{
    (void)user;
    printf("%s: %s\n", fault ? "fault" : "note", text);
}

static int check_plans(const qn_config *c, qn_gguf *g, int n_ctx, int n_bound)
{
    qn_model *m;
    qn_plans *plans = NULL;
    qn_err err;
    const qn_model_opts opts = {.n_ctx = n_ctx};
    int rc = QN_EXIT_OK;
    if (qn_model_bind_config(&m, g, c, &opts, &err) != 0 || qn_plans_build(&plans, m, &err) != 0) {
        printf("fault: %s\n", err.text);
        rc = QN_EXIT_ERROR;
    } else {
        printf("%s: fits, %d layers, %d of %d tensors taken, %d steps a token\n", qn_gguf_path(g), m->n_layer,
               n_bound, (int)qn_gguf_n_tensors(g), plans->decode.n_step);
    }
    qn_plans_free(plans);
    if (m != NULL) {
        m->gguf = NULL; /* the caller's */
        qn_model_free(m);
    }
    return rc;
}

static int run(const check_args *a, const char *config, const char *model)
{
    qn_config *c;
    qn_gguf *g;
    qn_err err;
    int n_bound = 0;
    if (qn_config_load(&c, config, &err) != 0) {
        return qn_cli_error("%s", err.text);
    }
    if (model == NULL) {
        printf("%s: valid, serves", config);
        for (int i = 0; qn_config_arch(c, i) != NULL; i++) {
            printf(" %s", qn_config_arch(c, i));
        }
        puts("");
        qn_config_free(c);
        return QN_EXIT_OK;
    }
    int rc = QN_EXIT_ERROR;
    if (qn_gguf_open(&g, model, &err) != 0) {
        rc = qn_cli_error("%s", err.text);
    } else {
        int n = qn_model_check(c, g, a->n_ctx, print_finding, NULL, &n_bound, &err);
        if (n < 0) {
            rc = qn_cli_error("%s", err.text);
        } else if (n > 0) {
            printf("%s: does not fit %s, %d fault%s\n", model, config, n, n > 1 ? "s" : "");
        } else {
            rc = check_plans(c, g, a->n_ctx, n_bound);
        }
        qn_gguf_close(g);
    }
    qn_config_free(c);
    return rc;
}

int qn_cmd_check(int argc, char **argv)
{
    check_args a = {0};
    const qn_opt_group groups[] = {{"Check", check_opts, &a}, qn_common_group};
    const qn_usage usage = {
        "check",
        "CONFIG.yaml [MODEL.gguf] [-c N]",
        "Checks a model config by itself, or against a file: every missing or mis-shaped "
        "tensor and missing key is a fault; tensors and keys that the config leaves alone "
        "are notes. Exit status 0: no fault.",
        groups,
        sizeof groups / sizeof *groups,
        2};
    const char *positional[2];
    int rc = qn_opts_parse(&usage, argc, argv, positional);
    if (rc < 0 && positional[0] == NULL) {
        return qn_cli_usage_error("check", "no config");
    }
    return rc >= 0 ? rc : run(&a, positional[0], positional[1]);
}
