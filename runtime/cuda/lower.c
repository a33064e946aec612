/* lower.c: what is common to all ops: lists, programs, launches. lower_ops.c has one function an op. */
#include "cuda/lower_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

qn_cuda_sizes qn_cuda_scratch_sizes(const qn_plans *p, const qn_exec_opts *opts)
{
    qn_cuda_sizes z = {0};
    size_t rows = (size_t)opts->n_ubatch;
    int n_in = 1;
    for (int i = 0; i < p->prefill.n_step; i++) {
        const qn_step *s = &p->prefill.steps[i];
        size_t out = 0, in = 0;
        if (s->op->id == QN_OP_LINEAR) {
            in = (size_t)s->spec.linear.n_in;
            out = (size_t)s->spec.linear.n_out;
        } else if (s->op->id == QN_OP_GLU) {
            in = (size_t)s->spec.glu.n_in;
            out = 2 * (size_t)s->spec.glu.n_ff;
        } else if (s->op->id == QN_OP_ATTENTION) {
            const qn_spec_attention *a = &s->spec.attention;
            size_t per = (size_t)a->n_head * (size_t)(a->v_dim + 2) * sizeof(float);
            size_t most = QN_CUDA_FEW * QN_CUDA_MAX_SPLIT;
            z.parts = max_size(z.parts, per * (opts->plain_attention ? max_size(most, rows) : most));
        }
        z.w16 = max_size(z.w16, in * out * 2);
        z.product = max_size(z.product, out * rows * sizeof(float));
        n_in = max_int(n_in, (int)in);
    }
    z.a16 = (size_t)n_in * rows * 2;
    z.row_scale = rows * sizeof(float);
    return z;
}

/* Index of the program with this source; it is added where it is new. Takes the source. */
static int find_program(lowerer *l, const char *name, qn_source *src)
{
    qn_lowered *out = l->out;
    for (int i = 0; i < out->n_program; i++) {
        if (strcmp(out->programs[i].source.text, src->text) == 0) {
            qn_source_free(src);
            out->programs[i].n_use++;
            return i;
        }
    }
    if (out->n_program == out->cap_program) {
        int cap = out->cap_program ? 2 * out->cap_program : 32;
        qn_cuda_program *p = realloc(out->programs, sizeof *p * (size_t)cap);
        if (!p) {
            qn_source_free(src);
            return qn_fail(l->err, "out of memory for programs");
        }
        out->programs = p;
        out->cap_program = cap;
    }
    qn_cuda_program *p = &out->programs[out->n_program];
    memset(p, 0, sizeof *p);
    p->source = *src;
    snprintf(p->name, sizeof p->name, "%s", name);
    p->first = l->step;
    p->n_use = 1;
    return out->n_program++;
}

static qn_cuda_action *add_action(lowerer *l)
{
    qn_cuda_list *list = l->list;
    if (list->n == list->cap) {
        int cap = list->cap ? 2 * list->cap : 128;
        qn_cuda_action *a = realloc(list->actions, sizeof *a * (size_t)cap);
        if (!a) {
            qn_fail(l->err, "out of memory for launches");
            return NULL;
        }
        list->actions = a;
        list->cap = cap;
    }
    qn_cuda_action *a = &list->actions[list->n++];
    memset(a, 0, sizeof *a);
    a->step = l->step;
    a->rows_axis = -1;
    a->rows = l->step ? l->step->rows : QN_ROWS_TOKENS;
    return a;
}

int qn_lower_launch(lowerer *l, const launch *k)
{
    qn_source src;
    char name[40];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(k->kernel, "."), k->kernel);
    qn_source_request r = {.name = name,
                           .kernel = k->kernel,
                           .op = k->bare ? NULL : l->step->op,
                           .spec = k->bare ? NULL : &l->step->spec,
                           .variant = l->opts->variant,
                           .consts = k->consts,
                           .n_const = k->n_const};
    if (qn_source_make(&src, &r, l->err)) {
        return l->step ? qn_fail_prefix(l->err, "step %s", l->step->name) : -1;
    }
    int program = find_program(l, name, &src);
    qn_cuda_action *a = program < 0 ? NULL : add_action(l);
    if (!a) {
        return -1;
    }
    a->program = program;
    a->path = k->path ? k->path : "";
    a->grid[0] = k->grid[0] ? k->grid[0] : 1;
    a->grid[1] = k->grid[1] ? k->grid[1] : 1;
    a->grid[2] = k->grid[2] ? k->grid[2] : 1;
    a->threads = k->threads;
    a->shared = k->shared;
    a->rows_axis = k->rows_axis;
    a->rows_per = k->rows_per ? k->rows_per : 1;
    a->n_arg = k->n_arg;
    memcpy(a->args, k->args, sizeof a->args);
    return 0;
}

int qn_lower_gemm(lowerer *l, const qn_cuda_gemm *g)
{
    qn_cuda_action *a = add_action(l);
    if (!a) {
        return -1;
    }
    a->is_gemm = true;
    a->path = g->bf16 ? "cuBLASLt bf16" : "cuBLASLt f16";
    a->gemm = *g;
    return 0;
}

uint64_t qn_lower_at(const lowerer *l, qn_view v)
{
    return v.buf < 0 ? 0 : l->opts->mem->bufs[v.buf] + 4 * (uint64_t)v.col;
}

uint64_t qn_lower_stride(const lowerer *l, qn_view v)
{
    return v.buf < 0 ? 0 : (uint64_t)l->plans->bufs[v.buf].width;
}

uint64_t qn_lower_weight(const lowerer *l, const qn_tensor *t)
{
    return t ? l->opts->mem->weight(l->opts->mem->user, t) : 0;
}

static int lower_plan(lowerer *l, const qn_plan *plan, qn_cuda_list *list, lower_mode mode)
{
    l->list = list;
    l->mode = mode;
    for (int i = 0; i < plan->n_step; i++) {
        l->step = &plan->steps[i];
        if (qn_lower_ops[l->step->op->id](l)) {
            return -1;
        }
    }
    l->step = NULL;
    return 0;
}

int qn_lower(qn_lowered *out, const qn_plans *plans, const qn_lower_opts *opts, qn_err *err)
{
    memset(out, 0, sizeof *out);
    lowerer l = {.out = out, .plans = plans, .opts = opts, .err = err};
    if (lower_plan(&l, &plans->decode, &out->decode, LOWER_DECODE) || qn_lower_argmax(&l, &plans->decode) ||
        lower_plan(&l, &plans->prefill, &out->few, LOWER_FEW) ||
        lower_plan(&l, &plans->prefill, &out->prefill, LOWER_PREFILL)) {
        qn_lowered_free(out);
        return -1;
    }
    return 0;
}

void qn_lowered_free(qn_lowered *l)
{
    for (int i = 0; i < l->n_program; i++) {
        qn_source_free(&l->programs[i].source);
    }
    free(l->programs);
    free(l->decode.actions);
    free(l->few.actions);
    free(l->prefill.actions);
    memset(l, 0, sizeof *l);
}
