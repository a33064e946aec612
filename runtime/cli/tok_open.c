#include "cli/tok_open.h"

#include "cli/cli.h"

qn_tokenizer *qn_tok_open(const char *path, const char *configs, const char *pre)
{
    qn_gguf *g;
    qn_err err;
    char dir[4096];
    qn_tok_opts opts = {.pre = pre};
    qn_tokenizer *t = NULL;
    if (configs) {
        if ((size_t)snprintf(dir, sizeof dir, "%s/tokenizers", configs) >= sizeof dir) {
            qn_cli_error("--model-configs: the path is too long");
            return NULL;
        }
        opts.config_dir = dir;
    }
    if (qn_gguf_open(&g, path, &err)) {
        qn_cli_error("%s", err.text);
        return NULL;
    }
    if (qn_tokenizer_new(&t, g, &opts, &err)) {
        qn_cli_error("%s", err.text);
    } else {
        for (size_t i = 0; i < qn_tokenizer_n_warnings(t); i++) {
            qn_cli_note("%s: %s", path, qn_tokenizer_warning(t, i));
        }
    }
    qn_gguf_close(g);
    return t;
}

void qn_print_ids(FILE *f, const char *before, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        fprintf(f, "%s%d", before, ids[i]);
        before = " ";
    }
}
