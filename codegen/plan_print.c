#include "codegen/plan.h"

#include <string.h>

static void print_view(const qn_plans *p, qn_view v, FILE *f)
{
    const qn_buf *b = &p->bufs[v.buf];
    fputs(b->name, f);
    if (v.col != 0 || v.width != b->width) {
        fprintf(f, "[%d:%d]", v.col, v.col + v.width);
    }
}

static void print_value(const qn_field *fd, const unsigned char *at, FILE *f)
{
    float fl;
    int32_t i;
    memcpy(&fl, at, sizeof fl);
    memcpy(&i, at, sizeof i);
    const qn_dtype *d;
    switch (fd->kind) {
    case QN_FIELD_FLOAT:
        fprintf(f, "%g", (double)fl);
        break;
    case QN_FIELD_ENUM:
        fputs(fd->names[i], f);
        break;
    case QN_FIELD_DTYPE:
        d = i < 0 ? NULL : qn_dtype_get((uint32_t)i);
        fputs(d ? d->name : "-", f);
        break;
    default:
        fprintf(f, "%d", i);
    }
}

/* Zero, false and absent say nothing: they are left out of the line. */
static bool is_default(const qn_field *fd, const unsigned char *at)
{
    for (int k = 0; k < fd->count; k++) {
        int32_t i;
        memcpy(&i, at + 4 * k, sizeof i);
        if (fd->kind == QN_FIELD_DTYPE ? i >= 0 : i != 0) {
            return false;
        }
    }
    return true;
}

static void print_fields(const qn_step *s, FILE *f)
{
    for (int i = 0; i < s->op->n_field; i++) {
        const qn_field *fd = &s->op->fields[i];
        const unsigned char *at = (const unsigned char *)&s->spec + fd->offset;
        if (is_default(fd, at)) {
            continue;
        }
        fprintf(f, " %s=", fd->name);
        for (int k = 0; k < fd->count; k++) {
            if (k) {
                fputc(',', f);
            }
            print_value(fd, at + 4 * k, f);
        }
    }
}

static void print_weights(const qn_step *s, FILE *f)
{
    for (int i = 0; i < QN_STEP_WEIGHTS; i++) {
        const qn_tensor *t = s->w[i];
        if (t) {
            fprintf(f, " %s:%s", t->name, qn_dtype_get(t->type)->name);
        }
    }
}

void qn_step_print(const qn_plans *p, const qn_step *s, FILE *f)
{
    fprintf(f, "%-22s %-9s", s->name, s->op->name);
    const char *sep = " ";
    for (int i = 0; i < QN_STEP_VIEWS; i++) {
        if (s->in[i].buf >= 0) {
            fputs(sep, f);
            print_view(p, s->in[i], f);
            sep = ", ";
        }
    }
    fputs(" ->", f);
    for (int i = 0; i < QN_STEP_VIEWS; i++) {
        if (s->out[i].buf >= 0) {
            fputc(' ', f);
            print_view(p, s->out[i], f);
        }
    }
    if (s->kv >= 0) {
        fprintf(f, " kv%d", s->kv);
    }
    fputs(" |", f);
    print_fields(s, f);
    fputs(" |", f);
    print_weights(s, f);
    uint64_t bytes = qn_step_weight_bytes(s);
    if (bytes) {
        fprintf(f, " %.3f MB", (double)bytes / 1e6);
    }
}

void qn_plan_print(const qn_plans *p, qn_phase phase, FILE *f)
{
    const qn_plan *plan = phase == QN_PHASE_PREFILL ? &p->prefill : &p->decode;
    uint64_t bytes = 0;
    fprintf(f, "%s plan: %d steps, %d KV caches (config %s, n_ctx %d)\n",
            phase == QN_PHASE_PREFILL ? "prefill" : "decode", plan->n_step, p->n_kv, p->model->config_name,
            p->model->n_ctx);
    fputs("buffers (f32 values a row):", f);
    for (int i = 0; i < p->n_buf; i++) {
        if (p->bufs[i].width) {
            fprintf(f, " %s=%d%s", p->bufs[i].name, p->bufs[i].width,
                    p->bufs[i].rows == QN_ROWS_OUTPUTS ? " (outputs)" : "");
        }
    }
    fputc('\n', f);
    for (int i = 0; i < p->n_kv; i++) {
        const qn_kv_cache *k = &p->kv[i];
        if (i && memcmp(&k->n_head_kv, &k[-1].n_head_kv, sizeof *k - sizeof k->layer) == 0) {
            continue; /* like the one before */
        }
        fprintf(f, "kv%d.. layer %d.. heads=%d k_dim=%d v_dim=%d window=%d\n", i, k->layer, k->n_head_kv,
                k->k_dim, k->v_dim, k->window);
    }
    for (int i = 0; i < plan->n_step; i++) {
        fprintf(f, "%4d ", i);
        qn_step_print(p, &plan->steps[i], f);
        fputc('\n', f);
        bytes += qn_step_weight_bytes(&plan->steps[i]);
    }
    fprintf(f, "weights read a pass: %.3f MB\n", (double)bytes / 1e6);
}
