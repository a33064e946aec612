#include "cli/load.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "cli/cli.h"
#include "codegen/kv_type.h"
#include "cli/progress.h"
#include "engine/memory.h"

const qn_model_args qn_model_args_defaults = {.n_ctx = -1};

enum { ATTENTION_AUTO, ATTENTION_FLASH, ATTENTION_PLAIN, ATTENTION_TMA };
enum { PRODUCTS_F16, PRODUCTS_F32 };
const char *const qn_product_names[] = {"f16", "f32", NULL};
const char *const qn_attention_names[] = {"auto", "flash", "plain", "tma", NULL};
enum { DECODE_MMA, DECODE_ROWS };
const char *const qn_decode_attentions[] = {"mma", "rows", NULL};
static const char *const backends[] = {"auto", "cpu", "cuda", NULL};

const char *const qn_weight_cache_names[] = {"auto", "on", "off", "serial", NULL};
const char *const qn_prefill_names[] = {"auto", "cublaslt", "mma", "mmq", "wgmma", "fp8", NULL};

static const qn_opt load_opts[] = {
    {"-m, --model", "FILE", "The GGUF file, instead of the first argument.", QN_OPT_STR,
     offsetof(qn_model_args, path)},
    {"-c, --ctx-size", "N", "Context in tokens. Default: the trained one, at most 4096; 0: the trained one.",
     QN_OPT_INT, offsetof(qn_model_args, n_ctx), 0, INT_MAX},
    {"--model-configs", "DIR", "Model configs that replace the built-in ones.", QN_OPT_STR,
     offsetof(qn_model_args, config_dir)},
    {"--kernel-src", "DIR", "Kernel sources that replace the built-in ones (backend cuda).", QN_OPT_STR,
     offsetof(qn_model_args, kernel_dir)},
    {"--end-token, --eos-token-id", "ID,...", "Ids that replace the model's list of end tokens.", QN_OPT_INTS,
     offsetof(qn_model_args, end_tokens), 0, INT_MAX},
    {0},
};

/* The first SIZES rows are of sizes that `bench` has lists of. */
enum { SIZES = 3 };
static const qn_opt backend_opts[] = {
    {"-t, --threads", "N", "CPU threads. Default: all CPUs of this process.", QN_OPT_INT,
     offsetof(qn_model_args, n_threads), 1, 4096},
    {"-ub, --ubatch-size", "N", "Prompt tokens processed at once. Default: 512.", QN_OPT_INT,
     offsetof(qn_model_args, n_ubatch), 1, INT_MAX},
    {"-b, --batch-size", "N", "The same as -ub; of both, the smaller counts. Default: 512.", QN_OPT_INT,
     offsetof(qn_model_args, n_batch), 1, INT_MAX},
    {"-ctk, --cache-type-k", "TYPE", "Keys of the KV cache: f16 or q8_0. Default: f16.", QN_OPT_CHOICE,
     offsetof(qn_model_args, k_type), 0, 0, qn_cache_type_names},
    {"-ctv, --cache-type-v", "TYPE", "Values of the KV cache: f16 or q8_0. Default: f16.", QN_OPT_CHOICE,
     offsetof(qn_model_args, v_type), 0, 0, qn_cache_type_names},
    {"--backend", "NAME", "auto, cpu or cuda. Default: auto.", QN_OPT_CHOICE,
     offsetof(qn_model_args, backend), 0, 0, backends},
    {"--device", "N", "Which GPU (backend cuda). Default: 0.", QN_OPT_INT, offsetof(qn_model_args, device), 0,
     INT_MAX},
    {"--cache", "DIR", "Folder of compiled kernels, or none (backend cuda).", QN_OPT_STR,
     offsetof(qn_model_args, cache)},
    {"--variant", "NAME", "Kernels of an older card: sm75, sm80, sm90a (backend cuda).", QN_OPT_STR,
     offsetof(qn_model_args, variant)},
    {"--attention", "NAME",
     "Of prompts: tma, a kernel of sm_90a whose keys and values a thread of its own fetches; flash, which "
     "serves "
     "all; plain, the kernels of decode (backend cuda). Default: auto, tma where it serves and flash "
     "elsewhere.",
     QN_OPT_CHOICE, offsetof(qn_model_args, attention), 0, 0, qn_attention_names},
    {"--prefill", "NAME",
     "Products of prompts: cublaslt; mma, an own kernel; mmq, 8-bit activations; wgmma, of sm_90a, from "
     "quantised "
     "weights; auto (backend cuda). Default: auto.",
     QN_OPT_CHOICE, offsetof(qn_model_args, prefill), 0, 0, qn_prefill_names},
    {"--products", "NAME",
     "Products of prompts between the library and the next kernel: f16 or f32 (backend cuda). Default: f16.",
     QN_OPT_CHOICE, offsetof(qn_model_args, products), 0, 0, qn_product_names},
    {"--weight-cache", "NAME",
     "Weights kept as f16 for prompts: on; off: made for each use, beside the products; serial: between them "
     "(backend cuda). Default: auto, on where memory allows.",
     QN_OPT_CHOICE, offsetof(qn_model_args, weight_cache), 0, 0, qn_weight_cache_names},
    {"--tune", "WHEN",
     "auto: choices kept by 'quern tune' serve, and algorithms of cuBLASLt are timed once; off: neither, all "
     "as "
     "shipped; a number: also measures decode's kernels for so many seconds, where nothing is kept for this "
     "card "
     "(backend cuda). Default: auto.",
     QN_OPT_STR, offsetof(qn_model_args, tune)},
    {"--no-tune", NULL, "The same as --tune off (backend cuda).", QN_OPT_FLAG,
     offsetof(qn_model_args, no_tune)},
    {"--decode-attention", "NAME",
     "mma, on the tensor cores, or rows, f32 on the plain ones (backend cuda). Default: mma.", QN_OPT_CHOICE,
     offsetof(qn_model_args, decode_attention), 0, 0, qn_decode_attentions},
    {"--f32-activations", NULL,
     "Decode quantised weights with f32 activations, not 8-bit ones (backend cuda).", QN_OPT_FLAG,
     offsetof(qn_model_args, f32_activations)},
    {"--no-fuse", NULL, "Every step a kernel of its own (backend cuda).", QN_OPT_FLAG,
     offsetof(qn_model_args, no_fuse)},
    {"--no-graph", NULL, "Decode and prompts by direct launches (backend cuda).", QN_OPT_FLAG,
     offsetof(qn_model_args, no_graph)},
    {"--no-prompt-graph", NULL, "Prompts by direct launches, decode by its graph (backend cuda).",
     QN_OPT_FLAG, offsetof(qn_model_args, no_prompt_graph)},
    {"--rows-apart", NULL,
     "Sequences and short prompts: each of up to 8 rows goes through the weights by itself (backend cuda).",
     QN_OPT_FLAG, offsetof(qn_model_args, rows_apart)},
    {"--plain-gemv", NULL, "Decode: f16 and bf16 weights by the kernels of f32 ones (backend cuda).",
     QN_OPT_FLAG, offsetof(qn_model_args, plain_gemv)},
    {"--persistent", NULL, "Decode with one launch a token, whose blocks wait for each other (backend cuda).",
     QN_OPT_FLAG, offsetof(qn_model_args, persistent)},
    {"--deterministic", NULL,
     "Only what gives equal results for equal input, whatever ran before: each prompt from its beginning, "
     "shipped "
     "kernels, no tuned choice (docs/reproducibility.md).",
     QN_OPT_FLAG, offsetof(qn_model_args, deterministic)},
    {"--exact", NULL, "CPU reference arithmetic: f32 throughout, slow.", QN_OPT_FLAG,
     offsetof(qn_model_args, exact)},
    {0},
};

qn_opt_group qn_load_group(qn_model_args *a)
{
    return (qn_opt_group){"Model", load_opts, a};
}

qn_opt_group qn_backend_group(qn_model_args *a)
{
    return (qn_opt_group){"Backend", backend_opts, a};
}

qn_opt_group qn_device_group(qn_model_args *a)
{
    return (qn_opt_group){"Backend", backend_opts + SIZES, a};
}

static int check_dir(const char *option, const char *dir)
{
    struct stat st;
    if (dir == NULL) {
        return -1;
    }
    if (stat(dir, &st) != 0) {
        return qn_cli_error("%s %s: %s", option, dir, strerror(errno));
    }
    return S_ISDIR(st.st_mode) ? -1 : qn_cli_error("%s %s: not a directory", option, dir);
}

/* auto, off or a number of seconds. -1: go on, else the exit status. */
static int read_tune(qn_model_args *a, const char *command)
{
    enum { MOST = 3600 };
    char *end;
    if (a->tune == NULL || strcmp(a->tune, "auto") == 0) {
        return -1;
    }
    if (strcmp(a->tune, "off") == 0) {
        a->no_tune = true;
        return -1;
    }
    double seconds = strtod(a->tune, &end);
    if (end == a->tune || *end != '\0' || !(seconds > 0 && seconds <= MOST)) {
        return qn_cli_usage_error(command, "--tune '%s' is not auto, off or a number of seconds up to %d",
                                  a->tune, MOST);
    }
    a->tune_seconds = seconds;
    return -1;
}

int qn_model_args_finish(qn_model_args *a, const char *command, const char *positional)
{
    if (a->path != NULL && positional != NULL && qn_opt_from_env(a->path)) {
        a->path = positional;
    } else if (a->path != NULL && positional != NULL) {
        return qn_cli_usage_error(command, "two models: '%s' and -m '%s'", positional, a->path);
    }
    a->path = a->path != NULL ? a->path : positional;
    if (a->path == NULL) {
        return qn_cli_usage_error(command, "no model: give a GGUF file");
    }
    int rc = check_dir("--kernel-src", a->kernel_dir);
    rc = rc >= 0 ? rc : check_dir("--model-configs", a->config_dir);
    return rc >= 0 ? rc : read_tune(a, command);
}

static void log_line(void *user, int level, const char *line)
{
    (void)user;
    if (qn_cli_debugs(QN_DEBUG_ENGINE)) {
        qn_cli_debug(QN_DEBUG_ENGINE, "%s", line);
    } else {
        (level > 0 ? qn_cli_detail : qn_cli_note)("%s", line);
    }
}

quern_model_params qn_cli_model_params(const qn_model_args *a)
{
    return (quern_model_params){
        .config_dir = a->config_dir,
        .n_ctx = a->n_ctx > 0 ? a->n_ctx : 0,
        .log = log_line,
        .end_tokens = a->end_tokens.items,
        .n_end_tokens = a->end_tokens.n,
    };
}

quern_session_params qn_cli_session_params(const qn_model_args *a)
{
    int n = a->n_ubatch;
    if (a->n_batch > 0 && (n == 0 || a->n_batch < n)) {
        n = a->n_batch;
    }
    return (quern_session_params){
        .backend = (quern_backend)a->backend,
        .device = a->device,
        .n_ubatch = n,
        .n_threads = a->n_threads,
        .exact = a->exact,
        .cache_type_k = (quern_cache_type)a->k_type,
        .cache_type_v = (quern_cache_type)a->v_type,
        .loading = qn_progress_loading,
        .n_outputs = a->n_outputs,
        .n_sequences = a->n_sequences,
        .cache = a->cache,
        .kernel_src = a->kernel_dir,
        .variant = a->variant,
        .no_graph = a->no_graph,
        .no_prompt_graph = a->no_prompt_graph,
        .persistent = a->persistent,
        .rows_apart = a->rows_apart,
        .plain_gemv = a->plain_gemv,
        .f32_products = a->products == PRODUCTS_F32,
        .plain_attention = a->attention == ATTENTION_PLAIN,
        .flash_attention = a->attention == ATTENTION_FLASH,
        .tma_attention = a->attention == ATTENTION_TMA,
        .weight_cache = (quern_weight_cache)a->weight_cache,
        .prefill = (quern_prefill)a->prefill,
        .no_tune = a->no_tune || a->deterministic,
        .tune_seconds = a->tune_seconds,
        .rows_attention = a->decode_attention == DECODE_ROWS,
        .no_fuse = a->no_fuse,
        .f32_activations = a->f32_activations,
    };
}

double qn_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

uint64_t qn_peak_memory(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (uint64_t)u.ru_maxrss * 1024 : 0;
}

void qn_print_memory(bool to_stdout, const qn_memory *m, uint64_t available)
{
    const struct {
        const char *what;
        uint64_t bytes;
    } rows[] = {
        {"weights", m->weights},  {"weight cache", m->weight_cache},
        {"KV cache", m->kv},      {"activations", m->activations},
        {"other", m->other},      {"total", qn_memory_total(m)},
        {"available", available},
    };
    size_t n = sizeof rows / sizeof *rows - (available == 0);
    for (size_t i = 0; i < n; i++) {
        char text[24];
        qn_memory_text(rows[i].bytes, text);
        if (to_stdout) {
            printf("  %-12s %12s\n", rows[i].what, text);
        } else {
            qn_cli_detail("  %-12s %12s", rows[i].what, text);
        }
    }
}

/* Biases and scales of the file that the config does not apply would be missed in the text. */
static void warn_of_unused(const qn_model *m)
{
    const char *first = NULL;
    int n = 0;
    for (const char *const *name = (const char *const *)m->unused; name && *name; name++) {
        const char *suffix = strrchr(*name, '.');
        if (suffix && (strcmp(suffix, ".bias") == 0 || strcmp(suffix, ".scale") == 0)) {
            first = first ? first : *name;
            n++;
        }
    }
    if (n == 1) {
        qn_cli_note("warning: tensor %s is in the file, but %s does not apply it", first, m->config_name);
    } else if (n > 1) {
        qn_cli_note(
            "warning: tensor %s and %d more biases and scales are in the file, but %s does not apply them",
            first, n - 1, m->config_name);
    }
}

/* One line on what was loaded; the memory table under -v. */
static void describe(const quern_session *s)
{
    const qn_model *m = s->m->model;
    qn_memory mem;
    char weights[24], kv[24], scratch[24], cache[24], cached[48] = "", trained[48] = "";
    qn_memory_of(s->m->plans, &s->exec->opts, &mem);
    if (m->n_ctx_train > 0) {
        snprintf(trained, sizeof trained, " of %d trained", m->n_ctx_train);
    }
    if (mem.weight_cache > 0) {
        snprintf(cached, sizeof cached, " + weight cache %s", qn_memory_text(mem.weight_cache, cache));
    }
    qn_cli_note("%s, context %d%s, %s%s with %d threads; memory: weights %s%s + KV cache %s + scratch %s",
                m->arch, s->exec->opts.n_ctx, trained, s->exec->name, s->exec->opts.exact ? " exact" : "",
                s->exec->opts.n_threads, qn_memory_text(mem.weights, weights), cached,
                qn_memory_text(mem.kv, kv), qn_memory_text(mem.activations + mem.other, scratch));
    if (s->exec->stats.n_compiled > 0) {
        qn_cli_note("%d kernels compiled in %.1f s, %d from the cache", s->exec->stats.n_compiled,
                    s->exec->stats.kernels, s->exec->stats.n_kernels - s->exec->stats.n_compiled);
    }
    if (m->n_ctx_train > 0 && s->exec->opts.n_ctx > m->n_ctx_train) {
        qn_cli_note("warning: a context of %d is more than the %d the model was trained for",
                    s->exec->opts.n_ctx, m->n_ctx_train);
    }
    warn_of_unused(m);
    if (qn_cli_wants(1)) {
        /* What a card has free by now is what the session left. */
        qn_print_memory(false, &mem, s->exec->opts.cuda ? 0 : qn_memory_available());
    }
}

static int load_model(qn_loaded *out, const qn_model_args *a, bool text, quern_error *err)
{
    quern_model_params p = qn_cli_model_params(a);
    p.no_tokenizer = !text;
    if (quern_model_load(&out->model, a->path, &p, err) != 0) {
        return -1;
    }
    int trained = quern_model_n_ctx_train(out->model);
    if (a->n_ctx != 0 || trained <= quern_model_n_ctx(out->model)) {
        return 0;
    }
    /* Choices hang on the context, so the trained one, known now, takes a second reading of the header. */
    quern_model_free(out->model);
    out->model = NULL;
    p.n_ctx = trained;
    return quern_model_load(&out->model, a->path, &p, err);
}

int qn_cli_load(qn_loaded *out, const qn_model_args *a, unsigned what)
{
    quern_error err;
    double start = qn_seconds();
    memset(out, 0, sizeof *out);
    /* A backend that is not there is known before any file is read. */
    qn_err gone;
    out->device = a->device;
    out->held = a->backend == QUERN_BACKEND_CUDA && qn_cuda_hold(a->device, &gone) == 0;
    if (a->backend == QUERN_BACKEND_CUDA && !out->held) {
        qn_cli_error("backend cuda: %s", gone.text);
        return -1;
    }
    if (a->device != 0 && a->backend == QUERN_BACKEND_CPU) {
        qn_cli_note("--device %d has no effect on backend cpu", a->device);
    }
    if (load_model(out, a, (what & QN_LOAD_TEXT) != 0, &err) != 0) {
        qn_cli_error("%s", err.text);
        qn_loaded_free(out);
        return -1;
    }
    if ((what & QN_LOAD_SESSION) != 0) {
        quern_session_params p = qn_cli_session_params(a);
        qn_progress_loading_begin();
        int rc = quern_session_new(&out->session, out->model, &p, &err);
        qn_cli_progress_end();
        if (rc != 0) {
            qn_cli_error("%s", err.text);
            qn_loaded_free(out);
            return -1;
        }
        describe(out->session);
    }
    out->seconds = qn_seconds() - start;
    return 0;
}

void qn_loaded_free(qn_loaded *l)
{
    quern_session_free(l->session);
    quern_model_free(l->model);
    if (l->held) {
        qn_cuda_release(l->device);
    }
    memset(l, 0, sizeof *l);
}
