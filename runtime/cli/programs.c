#include "cli/programs.h"
#include "codegen/kv_type.h"

#include <limits.h>
#include <string.h>

#include "cli/cli.h"
#include "cuda/cublaslt.h"
#include "engine/memory.h"

const qn_target_args qn_target_args_defaults = {.model = {.n_ctx = -1}};

static const qn_opt target_opts[] = {
    {"--arch", "sm_XY", "Compile for this architecture. Default: the device's; sm_90a where there is none.",
     QN_OPT_STR, offsetof(qn_target_args, arch)},
    {"--variant", "NAME", "Kernels of an older card: sm75, sm80, sm90a. Default: the architecture's best.",
     QN_OPT_STR, offsetof(qn_target_args, model.variant)},
    {"--decode-attention", "NAME", "As of run: mma or rows. Default: mma.", QN_OPT_CHOICE,
     offsetof(qn_target_args, model.decode_attention), 0, 0, qn_decode_attentions},
    {"-ctk, --cache-type-k", "TYPE", "As of run: f16 or q8_0. Default: f16.", QN_OPT_CHOICE,
     offsetof(qn_target_args, model.k_type), 0, 0, qn_cache_type_names},
    {"-ctv, --cache-type-v", "TYPE", "As of run: f16 or q8_0. Default: f16.", QN_OPT_CHOICE,
     offsetof(qn_target_args, model.v_type), 0, 0, qn_cache_type_names},
    {"--no-fuse", NULL, "Every step a kernel of its own.", QN_OPT_FLAG,
     offsetof(qn_target_args, model.no_fuse)},
    {"--persistent", NULL, "The kernel of run --persistent too.", QN_OPT_FLAG,
     offsetof(qn_target_args, model.persistent)},
    {"--device", "N", "Which GPU decides --arch and launch shapes. Default: 0.", QN_OPT_INT,
     offsetof(qn_target_args, model.device), 0, INT_MAX},
    {"-ub, --ubatch-size", "N", "As in run: rings of windowed layers hang on it. Default: 512.", QN_OPT_INT,
     offsetof(qn_target_args, model.n_ubatch), 1, INT_MAX},
    {"--cache", "DIR", "Folder of compiled kernels, or none.", QN_OPT_STR,
     offsetof(qn_target_args, model.cache)},
    {"--weight-cache", "NAME",
     "As in run: on, off, serial, auto. Default: auto; on where there is no device.", QN_OPT_CHOICE,
     offsetof(qn_target_args, model.weight_cache), 0, 0, qn_weight_cache_names},
    {"--prefill", "NAME", "As in run. Default: auto.", QN_OPT_CHOICE, offsetof(qn_target_args, model.prefill),
     0, 0, qn_prefill_names},
    {"--attention", "NAME", "As in run. Default: auto.", QN_OPT_CHOICE,
     offsetof(qn_target_args, model.attention), 0, 0, qn_attention_names},
    {"--products", "NAME", "As in run. Default: f16.", QN_OPT_CHOICE,
     offsetof(qn_target_args, model.products), 0, 0, qn_product_names},
    {"--tune", "WHEN",
     "As in run: off shows kernels as shipped. Default: auto, with what is kept for the device.", QN_OPT_STR,
     offsetof(qn_target_args, model.tune)},
    {"-t, --threads", "N", "Compiles at a time. Default: all CPUs of this process.", QN_OPT_INT,
     offsetof(qn_target_args, model.n_threads), 1, 4096},
    {0},
};

qn_opt_group qn_target_group(qn_target_args *a)
{
    return (qn_opt_group){"Target", target_opts, a};
}

/* As a session on the device would decide; as one with memory to spare where there is no device. */
static void choose_weight_cache(const qn_loaded *l, qn_exec_opts *opts, const qn_cuda_target *target)
{
    uint64_t available = UINT64_MAX;
    qn_exec_opts whole = *opts;
    qn_err none;
    if (target->has_device && qn_cuda_available(opts->device, &available, &none) != 0) {
        available = UINT64_MAX;
    }
    bool fits = qn_memory_fit(l->model->plans, &whole, true, available, &none) == 0;
    opts->weight_cache = fits ? whole.weight_cache : QN_WEIGHT_CACHE_OFF;
}

int qn_target_load(const qn_target_args *a, bool need_nvrtc, qn_loaded *l, qn_exec_opts *opts,
                   qn_cuda_target *target)
{
    qn_err err;
    quern_session_params p = qn_cli_session_params(&a->model);
    p.backend = QUERN_BACKEND_CPU; /* asks for no device */
    if (qn_cuda_target_find(target, a->model.device, a->arch, a->model.variant, need_nvrtc, &err) != 0) {
        qn_cli_error("%s", err.text);
        return -1;
    }
    if (qn_cli_load(l, &a->model, 0) != 0) {
        return -1;
    }
    if (qn_session_opts(l->model, &p, opts, &err) != 0) {
        qn_cli_error("%s", err.text);
        qn_loaded_free(l);
        return -1;
    }
    opts->cuda = true;
    static qn_cublaslt lt;
    if (opts->prefill == QN_PREFILL_AUTO && target->has_device &&
        qn_cublaslt_load(&lt, target->driver_major, &err) != 0) {
        opts->prefill = QN_PREFILL_MMA; /* as a session on that device */
    }
    if (opts->weight_cache == QN_WEIGHT_CACHE_AUTO) {
        choose_weight_cache(l, opts, target);
    }
    return 0;
}

const char *qn_target_text(const qn_cuda_target *t, char text[192])
{
    snprintf(text, 192, "%s, variant %s, %s%.100s", t->arch.name, qn_variant_name(t->arch.variant),
             t->has_device ? "" : "no device: launch shapes as for 132 multiprocessors",
             t->has_device ? t->device.name : "");
    return text;
}

const qn_site *qn_program_site(const qn_lowered *low, int program)
{
    const qn_cuda_list *lists[] = {&low->decode, &low->few, &low->each, &low->prefill};
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        for (int i = 0; i < lists[k]->n; i++) {
            const qn_cuda_action *a = &lists[k]->actions[i];
            if (!a->is_gemm && a->program == program && a->site) {
                return &low->sites[a->site - 1];
            }
        }
    }
    return NULL;
}

/* "rows x 4 x 1": the grid, with the axis that is set at run time named. */
static void grid_text(const qn_cuda_action *a, char text[64])
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < 3 && used < 50; i++) {
        const char *times = i ? "x" : "";
        if (a->rows_axis == i) {
            snprintf(text + used, 64 - used, "%s%s", times, a->rows == QN_ROWS_OUTPUTS ? "outs" : "rows");
        } else {
            snprintf(text + used, 64 - used, "%s%u%s", times, a->grid[i],
                     i == 1 && a->rows_share ? "/rows" : "");
        }
        used = strlen(text);
    }
}

static void print_action(const qn_lowered *low, const qn_cuda_action *a)
{
    char grid[64];
    if (a->is_gemm) {
        const qn_cuda_gemm *g = &a->gemm;
        snprintf(grid, sizeof grid, "%sx%dx%d", g->rows == QN_ROWS_OUTPUTS ? "outs" : "rows", g->n_out,
                 g->n_in);
        printf("     %-16s %5s %7s %-14s (library)\n", grid, "", "", a->path);
        return;
    }
    char knobs[QN_KNOB_TEXT];
    const qn_site *s = a->site ? &low->sites[a->site - 1] : NULL;
    grid_text(a, grid);
    printf("     %-16s %5u %7u %-14s %s\n", grid, a->threads, a->shared, a->path,
           low->programs[a->program].source.symbol);
    if (s != NULL) {
        printf("     %-16s %s (%s)\n", "", qn_knobs_text(s->kind, &s->now, knobs),
               s->tuned ? "tuned" : "shipped");
    }
}

void qn_print_launches(const qn_plans *plans, const qn_lowered *low, const qn_cuda_list *list)
{
    printf("     %-16s %5s %7s %-14s %s\n", "grid", "block", "shared", "path", "kernel");
    for (int i = 0; i < list->n; i++) {
        const qn_cuda_action *a = &list->actions[i];
        const qn_step *s = a->step;
        if (s == NULL) {
            puts("argmax: greedy choice, device state advances");
        } else if (i == 0 || s != a[-1].step) {
            uint64_t weights = qn_step_weight_bytes(s);
            printf("%s:", s->name);
            if (weights > 0) {
                printf(" reads %.3f MB of weights", 1e-6 * (double)weights);
            }
            if (s->op->id == QN_OP_ATTENTION) {
                const qn_kv_cache *kv = &plans->kv[s->kv];
                printf(" reads %d bytes of KV cache a position%s",
                       2 * kv->n_head_kv * (kv->k_dim + kv->v_dim),
                       s->spec.attention.window > 0 ? " of the window" : "");
            }
            putchar('\n');
        }
        print_action(low, a);
    }
}

int qn_cache_warm(const qn_target_args *a)
{
    qn_loaded l;
    qn_exec_opts opts;
    static qn_cuda_target target;
    static qn_cuda_programs programs;
    qn_err err;
    if (qn_target_load(a, true, &l, &opts, &target) != 0) {
        return QN_EXIT_ERROR;
    }
    int rc = QN_EXIT_OK;
    bool made = qn_cuda_programs_make(&programs, l.model->plans, &opts, &target, NULL, NULL, &err) == 0;
    qn_cli_progress_end();
    if (!made) {
        rc = qn_cli_error("%s", err.text);
    } else if (programs.cache[0] == '\0') {
        rc = qn_cli_error("there is no kernel cache on disk: give --cache DIR");
    } else {
        printf("%d kernels for %s: %d compiled, %d in the cache already, %.0f ms, in %s\n",
               programs.low.n_program, target.arch.name, programs.n_compiled, programs.n_cached,
               1e3 * programs.seconds, programs.cache);
    }
    if (rc == QN_EXIT_OK || programs.jit) {
        qn_cuda_programs_free(&programs);
    }
    qn_loaded_free(&l);
    return rc;
}
