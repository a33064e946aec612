/* quern draft: a model config proposed for a file whose architecture has none. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/opts.h"
#include "model/model_draft.h"

typedef struct draft_args {
    const char *output;
} draft_args;

static const qn_opt draft_opts[] = {
    {"-o, --output", "FILE", "Write there instead of to stdout. A file that is there is not replaced.",
     QN_OPT_STR, offsetof(draft_args, output), 0, 0, NULL},
    {0},
};

static int write_text(const draft_args *a, const char *text)
{
    if (a->output == NULL) {
        fputs(text, stdout);
        return QN_EXIT_OK;
    }
    /* A draft is filled in by hand: what is there may be an hour's work. Devices and pipes hold none. */
    struct stat st;
    bool made = true;
    FILE *f = fopen(a->output, "wx");
    if (f == NULL && errno == EEXIST) {
        made = false;
        if (stat(a->output, &st) != 0 || S_ISREG(st.st_mode)) {
            return qn_cli_error("%s is there already; give another name, or remove it first", a->output);
        }
        f = fopen(a->output, "w");
    }
    if (f == NULL) {
        return qn_cli_error("%s: cannot be written: %s", a->output, strerror(errno));
    }
    bool bad = fputs(text, f) < 0;
    int why = errno;
    if (fclose(f) != 0 && !bad) {
        bad = true;
        why = errno;
    }
    if (bad && made) {
        unlink(a->output);
    }
    return bad ? qn_cli_error("%s: cannot be written: %s", a->output, strerror(why)) : QN_EXIT_OK;
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
