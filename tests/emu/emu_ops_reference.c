/* emu_ops_reference.c: the reference's side of a case (emu_ops.h): it gets the operands that the kernels had.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "cpu/cpu.h"
#include "emu_operands.h"
#include "emu_ops.h"
#include "emu_q8.h"

/* Gives the reference the rows of a view as they stand in 8 bits, times a factor a row (NULL: 1). */
static void take_q8_from(qn_cpu *x, qn_view v, uint64_t at, int first, int rows, const float *factor)
{
    for (int r = 0; r < rows; r++) {
        float *row = qn_cpu_at(x, v, r);
        emu_q8_row(at, v.width, first + r, qn_cuda_fine(&x->base.opts, v.width), row);
        for (int i = 0; factor && i < v.width; i++) {
            row[i] *= factor[r];
        }
    }
}

static void take_q8(qn_cpu *x, qn_view v, uint64_t at, int rows, const float *factor)
{
    take_q8_from(x, v, at, 0, rows, factor);
}

/* Rows of a view of the emulated run against their 8-bit form. */
static int check_view(qn_exec *emu, qn_view v, uint64_t at, int rows, const float *w, qn_err *err)
{
    float *x = malloc(sizeof(float) * (size_t)rows * (size_t)v.width);
    int rc = emu->read(emu, v, 0, rows, x, err);
    for (int r = 0; r < rows && rc == 0; r++) {
        for (int i = 0; w && i < v.width; i++) {
            x[(size_t)r * (size_t)v.width + (size_t)i] *= w[i];
        }
        rc = emu_q8_check(at, v.width, r, qn_cuda_fine(&emu->opts, v.width), x + (size_t)r * (size_t)v.width,
                          err);
    }
    free(x);
    return rc;
}

/* What kernels wrote in 8 bits beside f32. */
static int check_q8_outputs(const emu_case *c, qn_exec *emu, const qn_cuda_list *list, int rows, qn_err *err)
{
    static const struct {
        const char *kernel;
        int arg;
    } writers[] = {{"norm", 9},          {"glu_q8", 5},         {"glu_cols", 5}, {"attention_decode", 9},
                   {"attention_mma", 9}, {"attention_rope", 14}};
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        const qn_cuda_action *a = emu_find_action(emu, list, writers[i].kernel, 0);
        if (a && strstr(emu_exec_lowered(emu)->programs[a->program].source.text, "q8_out = 1;") &&
            check_view(emu, a->step->out[0], a->args[writers[i].arg], ops_rows_of(c, rows), NULL, err)) {
            return qn_fail_prefix(err, "%s", writers[i].kernel);
        }
    }
    return 0;
}

/* The nth product of 8-bit activations in a list. */
static const qn_cuda_action *find_q8(const qn_exec *emu, const qn_cuda_list *list, int nth)
{
    const qn_cuda_action *a = emu_find_action(emu, list, "linear_q8", nth), *first;
    if (a) {
        return a;
    }
    first = a = emu_find_action(emu, list, "linear_cols", 0); /* of a step: one for each number of columns */
    for (int i = 1; nth > 0 && a && a->step == first->step; i++) {
        a = emu_find_action(emu, list, "linear_cols", i);
    }
    return a;
}

static bool has_const(const qn_exec *emu, const qn_cuda_action *a, const char *text)
{
    return strstr(emu_exec_lowered(emu)->programs[a->program].source.text, text) != NULL;
}

/* The row that a product's blocks make of the stream (norm_in.cuh): the 8-bit groups of what its norm weighs,
 * times the norm's factor. In f32 as the kernel has it, so that no code differs. */
static void make_left(qn_cpu *x, const qn_step *norm, const float *stream)
{
    const int n = norm->in[0].width, group = qn_cuda_fine(&x->base.opts, n) ? 16 : 32;
    const float *w = norm->w[0] ? (const float *)norm->w[0]->data : NULL;
    float *row = qn_cpu_at(x, norm->out[0], 0);
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += (double)stream[i] * (double)stream[i];
        row[i] = stream[i] * (w ? w[i] : 1.0f);
    }
    const double factor = 1 / sqrt(sum / n + (double)norm->spec.norm.eps);
    for (int g = 0; g < n; g += group) {
        float top = 0;
        for (int i = g; i < g + group; i++) {
            top = fmaxf(top, fabsf(row[i]));
        }
        const float step = top * (1.0f / 127.0f), inverse = top > 0 ? 127.0f / top : 0;
        for (int i = g; i < g + group; i++) {
            row[i] = (float)((double)(step * (float)lrintf(row[i] * inverse)) * factor);
        }
    }
}

/* The new stream that such a product wrote, into the buffer that the plan has for it; NULL: not all of it is
 * there. */
static const float *left_stream(qn_exec *emu, const qn_cuda_action *reader, qn_view v, qn_err *err)
{
    emu_report r;
    const float *stream = (const float *)(uintptr_t)reader->args[reader->n_arg - 1];
    float *buf = (float *)(uintptr_t)emu_exec_mem(emu)->bufs[v.buf];
    if (emu_readable(stream, sizeof *stream * (size_t)v.width, &r)) {
        qn_fail(err, "the stream behind a norm: %s", r.text);
        return NULL;
    }
    if (buf != stream) {
        memcpy(buf, stream, sizeof *stream * (size_t)v.width);
    }
    return buf;
}

/* The second half of a chain: the first norm of two, the other norm's output as the last step got it, then
 * that step. */
static int run_chain(emu_case *c, const ops_way *w, qn_exec *cpu, qn_exec *emu, const qn_cuda_list *list,
                     int rows, ops_error *e, qn_err *err)
{
    enum { Q8_NEXT = 19, MOST_LEFT = 6144 };
    qn_cpu *x = (qn_cpu *)cpu;
    const qn_step *last = &c->steps[c->plans.prefill.n_step - 1], *norm = last - 1;
    const qn_cuda_action *first = find_q8(emu, list, 0);
    bool begun = has_const(emu, first, "norm_next = 1;"), post = norm > &c->steps[1];
    const float *weight = norm->w[0] ? (const float *)norm->w[0]->data : NULL;
    float factor[CASE_UBATCH];
    bool inside = post && w->decode && !w->no_fuse;
    const qn_cuda_action *reader = inside ? emu_find_action(emu, list, "linear_q8", 1) : NULL;
    reader = inside && !reader ? emu_find_action(emu, list, "glu_q8", 0) : reader;
    reader = reader && norm->in[0].width <= MOST_LEFT ? reader : NULL; /* wider: the product's blocks wait */
    if (inside != (reader ? has_const(emu, reader, "in_norm = 1;") : has_const(emu, first, "post = 1;"))) {
        return qn_fail(err, "the norm behind the product is not where it is due");
    }
    const float *stream = reader ? left_stream(emu, reader, norm->in[0], err) : NULL;
    if (reader && !stream) {
        return -1;
    }
    if (!inside && ops_compare_view(c->steps[0].out[0], rows, cpu, emu, e, err)) {
        return -1;
    }
    if (post && (qn_cpu_ops[QN_OP_NORM](x, &c->steps[1], err) ||
                 ops_compare_view(c->steps[1].out[0], rows, cpu, emu, e, err))) {
        return -1;
    }
    if (qn_cpu_ops[QN_OP_NORM](x, norm, err)) {
        return -1;
    }
    if (reader) {
        make_left(x, norm, stream);
    } else if (begun) {
        if (check_view(emu, norm->in[0], first->args[Q8_NEXT], rows, weight, err)) {
            return qn_fail_prefix(err, "begun norm");
        }
        for (int r = 0; r < rows; r++) {
            double sum = 0;
            for (int i = 0; i < norm->in[0].width; i++) {
                double v = (double)qn_cpu_at(x, norm->in[0], r)[i];
                sum += v * v;
            }
            factor[r] = (float)(1 / sqrt(sum / norm->in[0].width + (double)norm->spec.norm.eps));
        }
        take_q8(x, norm->out[0], first->args[Q8_NEXT], rows, factor);
    } else if (emu_exec_launches(emu, "glu_q8") || emu_exec_launches(emu, "glu_cols") ||
               find_q8(emu, list, 1)) {
        const qn_cuda_action *made = emu_find_action(emu, list, "norm", 1);
        made = made ? made : emu_find_action(emu, list, "norm", 0);
        take_q8(x, norm->out[0], made->args[9], rows, NULL);
    }
    return qn_cpu_ops[last->op->id](x, last, err);
}

/* Do all products of the case round their input alike? Then the last rounding in memory is the reference's
 * input. */
bool ops_one_rounding(const emu_case *c)
{
    const qn_step *s = &c->steps[0];
    bool product = s->op->id == QN_OP_LINEAR || s->op->id == QN_OP_GLU;
    int bf16 = 0, other = 0;
    for (int i = 0; product && i < (s->op->id == QN_OP_LINEAR ? 3 : 2); i++) {
        const qn_tensor *t = s->w[emu_weight_roles[i]];
        bf16 += t && t->type == QN_BF16;
        other += t && t->type != QN_BF16;
    }
    return product && c->plans.prefill.n_step == 1 && (bf16 == 0 || other == 0);
}

/* Does a prompt's head run as in decode? */
static bool few_head(const emu_case *c, const ops_way *w)
{
    return w->prefill && c->steps[0].op->id == QN_OP_LINEAR && c->steps[0].rows == QN_ROWS_OUTPUTS &&
           ops_rows_of(c, w->rows) <= QN_CUDA_HEAD_FEW;
}

/* Rows of the input as they stand in 16 bits, from the device's row `first` on. */
static int take_halves(emu_case *c, qn_exec *cpu, qn_exec *emu, int first, int rows, qn_err *err)
{
    const qn_cuda_mem *m = emu_exec_mem(emu);
    qn_view v = c->steps[0].in[0];
    bool bf16 = c->steps[0].w[0] ? c->steps[0].w[0]->type == QN_BF16 : c->steps[0].w[3]->type == QN_BF16;
    for (int r = 0; r < rows; r++) {
        float *row = qn_cpu_at((qn_cpu *)cpu, v, r),
              scale = ((const float *)(uintptr_t)m->row_scale)[first + r];
        const uint16_t *a = (const uint16_t *)(uintptr_t)m->a16 + (size_t)(first + r) * (size_t)v.width;
        emu_report readable;
        if (emu_readable(a, sizeof *a * (size_t)v.width, &readable)) {
            return qn_fail(err, "%s", readable.text);
        }
        for (int i = 0; i < v.width; i++) {
            float x = (bf16 ? qn_bf16_to_f32(a[i]) : qn_f16_to_f32(a[i])) * scale;
            double off = fabs((double)x - (double)row[i]);
            if (!(off <= fabs((double)row[i]) * (bf16 ? 0x1p-8 : 0x1p-11) ||
                  off <= 0x1p-24 * (double)scale)) {
                return qn_fail(err, "row %d, value %d: %g was rounded to %g", first + r, i, (double)row[i],
                               (double)x);
            }
            row[i] = x;
        }
    }
    return 0;
}

static int run_rounded(emu_case *c, qn_exec *cpu, qn_exec *emu, const qn_run *run, int rows, qn_err *err)
{
    emu_rounded w;
    if (take_halves(c, cpu, emu, 0, rows, err)) {
        return -1;
    }
    emu_round_weights(&c->steps[0], &w);
    int rc = cpu->run(cpu, run, err);
    emu_restore_weights(&c->steps[0], &w);
    return rc;
}

/* Row `row` of a run as the only one of the reference's next. */
static int start_row(const emu_case *c, qn_exec *cpu, int row)
{
    qn_err err;
    for (int i = 0; i < CASE_BUFS; i++) {
        size_t width = (size_t)c->bufs[i].width;
        if (c->start[i]) {
            memcpy(((qn_cpu *)cpu)->bufs[i], c->start[i] + width * (size_t)row, sizeof(float) * width);
        }
    }
    qn_exec_set_length(cpu, c->seq, c->pos + row, c->pos + row);
    return qn_exec_select(cpu, c->seq, &err);
}

static int sample_row(emu_case *c, qn_exec *cpu, qn_exec *emu, const qn_run *run, int row, ops_error *e,
                      qn_err *err)
{
    const qn_step *last = &c->steps[c->plans.prefill.n_step - 1];
    const bool mmq = qn_cuda_takes_mmq(&c->steps[0], &c->exec), halves = ops_one_rounding(c) && !mmq;
    const qn_cuda_action *q =
        mmq ? emu_find_action(emu, &emu_exec_lowered(emu)->prefill, "quantise", 0) : NULL;
    qn_run one = *run;
    one.n = 1;
    one.tokens += row;
    one.pos += row;
    if (start_row(c, cpu, row) || (halves && take_halves(c, cpu, emu, row, 1, err))) {
        return -1;
    }
    if (q) {
        take_q8_from((qn_cpu *)cpu, c->steps[0].in[0], q->args[3], row, 1, NULL);
    }
    int rc = cpu->run(cpu, &one, err);
    for (int i = 0; i < QN_STEP_VIEWS && rc == 0; i++) {
        rc = last->out[i].buf >= 0 ? ops_compare_row(last->out[i], row, 0, cpu, emu, e, err) : 0;
    }
    if (rc == 0 && last->op->id == QN_OP_ROPE_KV && last->kv >= 0) {
        ops_compare_stored(c, c->seq, c->pos + row, cpu, emu, e);
    }
    return rc;
}

int ops_compare_samples(emu_case *c, qn_exec *cpu, qn_exec *emu, const qn_run *run, ops_error *e, qn_err *err)
{
    const bool round = ops_one_rounding(c) && !qn_cuda_takes_mmq(&c->steps[0], &c->exec);
    emu_rounded weights;
    int rc = 0;
    if (round) {
        emu_round_weights(&c->steps[0], &weights);
    }
    for (int i = 0; i < c->n_sample && rc == 0; i++) {
        rc = sample_row(c, cpu, emu, run, c->sample[i], e, err);
    }
    if (round) {
        emu_restore_weights(&c->steps[0], &weights);
    }
    return rc;
}

int ops_run_reference(emu_case *c, const ops_way *w, qn_exec *cpu, qn_exec *emu, const qn_run *run,
                      ops_error *e, qn_err *err)
{
    const qn_lowered *low = emu_exec_lowered(emu);
    const qn_cuda_list *list = w->decode    ? &low->decode
                               : w->prefill ? &low->prefill
                               : w->many    ? &low->each
                                            : &low->few;
    const qn_cuda_action *q = emu_find_action(emu, list, "quantise", 0);
    qn_run first = *run;
    int n = ops_rows_of(c, w->rows);
    if (w->route == QN_PREFILL_FP8) {
        return emu_fp8_reference(c, cpu, emu, run, n, err);
    }
    bool mmq = w->prefill && qn_cuda_takes_mmq(&c->steps[0], &c->exec);
    if (w->prefill && ops_one_rounding(c) && !few_head(c, w) && !mmq) {
        return run_rounded(c, cpu, emu, run, n, err);
    }
    if (q && !qn_cuda_runs(q, n, 0)) { /* the head's other number of rows */
        q = emu_find_action(emu, list, "quantise", 1);
    }
    if (q) {
        if (check_view(emu, c->steps[0].in[0], q->args[3], n, NULL, err)) {
            return -1;
        }
        take_q8((qn_cpu *)cpu, c->steps[0].in[0], q->args[3], n, NULL);
        first.stop_after = 0;
    }
    return cpu->run(cpu, &first, err) || check_q8_outputs(c, emu, list, w->rows, err) ||
                   (q && c->plans.prefill.n_step >= 3 && run_chain(c, w, cpu, emu, list, n, e, err))
               ? -1
               : 0;
}
