/* quern info: what a file says and what quern makes of it, without running anything. */
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "cli/commands.h"
#include "cli/info.h"
#include "cli/load.h"
#include "engine/memory.h"

typedef struct info_args {
    qn_model_args model;
    bool tensors, json;
} info_args;

static const qn_opt info_opts[] = {
    {"--tensors", NULL, "List every tensor: type, shape, bytes.", QN_OPT_FLAG, offsetof(info_args, tensors)},
    {"--json", NULL, "Print one JSON object instead.", QN_OPT_FLAG, offsetof(info_args, json)},
    {0},
};

/* What the pieces of an answer are freed by. */
typedef struct opened {
    qn_gguf *gguf; /* NULL once the model owns it */
    qn_model *model;
    qn_plans *plans;
    qn_tokenizer *tok;
    char *arch;
    qn_err model_err, plans_err, tok_err;
} opened;

static void close_all(opened *o)
{
    qn_plans_free(o->plans);
    qn_tokenizer_free(o->tok);
    qn_model_free(o->model);
    if (o->gguf != NULL) {
        qn_gguf_close(o->gguf);
    }
    free(o->arch);
}

static void describe_tokenizer(const info_args *a, opened *o, qn_info *info)
{
    quern_model_params p = qn_cli_model_params(&a->model);
    info->tok_why = "none in the file";
    if (qn_tokenizer_present(o->gguf)) {
        if (qn_engine_tokenizer(&o->tok, o->gguf, &p, &o->tok_err) != 0) {
            info->tok_why = o->tok_err.text;
        }
    }
    info->tok = o->tok;
}

/* As far as a config, the tensors and the ops carry; the reason why not is kept for the printers. */
static void describe_model(const info_args *a, opened *o, qn_info *info)
{
    info->plans_why = "the model did not load";
    if (qn_gguf_n_tensors(o->gguf) == 0) {
        info->model_why = "the file holds a vocabulary only, no tensors";
        return;
    }
    qn_model_opts opts = {.config_dir = a->model.config_dir,
                          .n_ctx = a->model.n_ctx > 0 ? a->model.n_ctx : 0};
    if (a->model.n_ctx == 0) { /* the trained context, which the first reading tells */
        const qn_gguf *g = o->gguf;
        char key[300];
        int64_t v;
        snprintf(key, sizeof key, "%.250s.context_length", o->arch);
        const qn_kv *kv = qn_gguf_find(g, key);
        opts.n_ctx = kv != NULL && qn_kv_i64(kv, 0, &v) && v > 0 && v < INT32_MAX ? (int)v : 0;
    }
    if (qn_model_from_gguf(&o->model, o->gguf, &opts, &o->model_err) != 0) {
        info->model_why = o->model_err.text;
        return;
    }
    o->gguf = NULL;
    info->model = o->model;
    if (qn_plans_build(&o->plans, o->model, &o->plans_err) != 0) {
        info->plans_why = o->plans_err.text;
        return;
    }
    info->plans = o->plans;
    quern_model whole = {.model = o->model, .plans = o->plans};
    quern_session_params p = qn_cli_session_params(&a->model);
    if (qn_session_opts(&whole, &p, &info->opts, &o->plans_err) != 0) {
        info->plans = NULL;
        info->plans_why = o->plans_err.text;
        return;
    }
    qn_memory_of(o->plans, &info->opts, &info->memory);
    info->available = qn_memory_available();
    if (info->opts.cuda && qn_cuda_available(info->opts.device, &info->available, &o->plans_err) != 0) {
        info->available = 0;
    }
}

static int run(const info_args *a)
{
    opened o = {0};
    qn_err err;
    if (qn_gguf_open(&o.gguf, a->model.path, &err) != 0) {
        return qn_cli_error("%s", err.text);
    }
    qn_info info = {.path = a->model.path, .gguf = o.gguf, .tensors = a->tensors};
    const qn_kv *kv = qn_gguf_find(o.gguf, "general.architecture");
    qn_str arch = {"", 0};
    if (kv != NULL) {
        qn_kv_str(kv, 0, &arch);
    }
    o.arch = strndup(arch.data, arch.len);
    info.arch = o.arch != NULL ? o.arch : "";
    qn_model_facts_get(o.gguf, &info.facts);
    describe_tokenizer(a, &o, &info);
    describe_model(a, &o, &info);
    int rc = QN_EXIT_OK;
    if (a->json) {
        rc = qn_info_json(&info);
    } else {
        qn_info_text(&info);
    }
    close_all(&o);
    return rc;
}

int qn_cmd_info(int argc, char **argv)
{
    info_args a = {.model = qn_model_args_defaults};
    const qn_opt_group groups[] = {
        {"Info", info_opts, &a}, qn_load_group(&a.model), qn_backend_group(&a.model), qn_common_group};
    const qn_usage usage = {"info",
                            "MODEL [--tensors] [--json] [-c N]",
                            "Shows a file's metadata, tensors, tokenizer, and the memory a run with -c "
                            "tokens of context takes. Works for "
                            "files that quern cannot run, and says why.",
                            groups,
                            sizeof groups / sizeof *groups,
                            1};
    const char *positional[1];
    int rc = qn_opts_parse(&usage, argc, argv, positional);
    rc = rc >= 0 ? rc : qn_model_args_finish(&a.model, "info", positional[0]);
    rc = rc >= 0 ? rc : run(&a);
    qn_ints_free(&a.model.end_tokens);
    return rc;
}
