/* quern draft: a model config proposed for a file whose architecture has none. */
#include <stdlib.h>

#include "cli/commands.h"
#include "cli/opts.h"
#include "model/model_draft.h"

typedef struct draft_args {
    const char *output;
} draft_args;

static const qn_opt draft_opts[] = {
    {"-o, --output", "FILE", "Write there instead of to stdout.", QN_OPT_STR, offsetof(draft_args, output), 0,
     0, NULL},
    {0},
};

static int write_text(const draft_args *a, const char *text)
{
    if (a->output == NULL) {
        fputs(text, stdout);
        return QN_EXIT_OK;
    }
    FILE *f = fopen(a->output, "w");
    bool bad = f == NULL || fputs(text, f) < 0;
    bad = (f != NULL && fclose(f) != 0) || bad;
    return bad ? qn_cli_error("%s: cannot be written: %m", a->output) : QN_EXIT_OK;
}

static int run(const draft_args *a, const char *path)
{
    qn_gguf *g;
    qn_err err;
    char *text;
    if (qn_gguf_open(&g, path, &err) != 0) {
        return qn_cli_error("%s", err.text);
    }
    int rc = qn_model_draft(&text, g, &err) != 0 ? qn_cli_error("%s", err.text) : write_text(a, text);
    free(text);
    qn_gguf_close(g);
    return rc;
}

int qn_cmd_draft(int argc, char **argv)
{
    draft_args a = {0};
    const qn_opt_group groups[] = {{"Draft", draft_opts, &a}, qn_common_group};
    const qn_usage usage = {
        "draft",
        "MODEL.gguf [-o FILE.yaml]",
        "Proposes a model config from a file's tensor names, shapes and keys. What these do not "
        "say is listed at the end with the values that models are known to take.",
        groups,
        sizeof groups / sizeof *groups,
        1};
    const char *positional[1];
    int rc = qn_opts_parse(&usage, argc, argv, positional);
    if (rc < 0 && positional[0] == NULL) {
        return qn_cli_usage_error("draft", "no model");
    }
    return rc >= 0 ? rc : run(&a, positional[0]);
}
