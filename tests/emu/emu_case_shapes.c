/* emu_case_shapes.c: cases from the plans of real models' shapes (tests/shapes) and of the golden models: the
 * constants of their steps are real, but for the number of a product's outputs and of embedded tokens, which
 * only the launch shape and a bound depend on, for products' longest rows, and for attention's groups
 * of heads. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "codegen/nvrtc.h"
#include "emu_cases.h"
#include "shape_model.h"

/* Steps seen so far, as they would be tested. */
enum { MAX_SPECS = 2000 };
typedef struct shape_cases {
    qn_op_id op;
    emu_case_fn fn;
    void *user;
    qn_spec *specs;
    int n_spec, n_case, rc;
    const char *model;
} shape_cases;

static int bounded(int n)
{
    return n > 16 ? 8 + n % 8 : n;
}

/* A row length: what is left of pieces of 512 is real. (Long rows: make_linear_long.) */
static int bounded_in(int n)
{
    return n > 2048 && !EMU_EXHAUSTIVE ? 1536 + n % 512 : n;
}

static qn_spec bounded_spec(const qn_step *s)
{
    qn_spec b = s->spec;
    if (s->op->id == QN_OP_EMBED) {
        b.embed.n_vocab = CASE_VOCAB;
        b.embed.n_pos = b.embed.n_pos ? 64 : 0;
    } else if (s->op->id == QN_OP_LINEAR) {
        b.linear.n_in = bounded_in(b.linear.n_in);
        b.linear.n_out = 0;
        for (int k = 0; k < b.linear.n_seg; k++) {
            b.linear.seg_out[k] = bounded(b.linear.seg_out[k]);
            b.linear.n_out += b.linear.seg_out[k];
        }
    } else if (s->op->id == QN_OP_GLU) {
        b.glu.n_in = bounded_in(b.glu.n_in);
        b.glu.n_ff = bounded(b.glu.n_ff);
    } else if (s->op->id == QN_OP_ATTENTION && b.attention.n_head_kv > 2 && !EMU_EXHAUSTIVE) {
        b.attention.n_head = b.attention.n_head / b.attention.n_head_kv * 2; /* groups are as they are */
        b.attention.n_head_kv = 2;
    }
    return b;
}

static bool new_value(const shape_cases *x, const qn_spec *spec, const qn_field *f, int i)
{
    size_t at = f->offset + 4 * (size_t)i;
    for (int k = 0; k < x->n_spec; k++) {
        if (memcmp((const char *)&x->specs[k] + at, (const char *)spec + at, 4) == 0) {
            return false;
        }
    }
    return true;
}

/* A spec with a value of some field that no spec before has; with EMU_EXHAUSTIVE, any new spec. */
static bool is_new(const shape_cases *x, const qn_spec *spec)
{
    const qn_op *op = &qn_ops[x->op];
    bool same = false, fresh = false;
    for (int k = 0; k < x->n_spec && !same; k++) {
        same = true;
        for (int f = 0; f < op->n_field && same; f++) {
            const qn_field *field = &op->fields[f];
            same = memcmp((const char *)&x->specs[k] + field->offset, (const char *)spec + field->offset,
                          4 * (size_t)field->count) == 0;
        }
    }
    for (int f = 0; f < op->n_field; f++) {
        for (int i = 0; i < op->fields[f].count; i++) {
            fresh = fresh || new_value(x, spec, &op->fields[f], i);
        }
    }
    return EMU_EXHAUSTIVE ? !same : fresh;
}

static void simple_views(emu_case *c, int n_in, int n_out)
{
    c->bufs[0].width = n_in;
    c->bufs[1].width = c->bufs[2].width = n_out;
    case_fill(c, 0, 2);
    c->steps[0].in[0] = (qn_view){0, 0, n_in};
    c->steps[0].out[0] = (qn_view){1, 0, n_out};
}

static void residual_view(emu_case *c, bool has)
{
    if (has) {
        case_fill(c, 1, 1);
        c->steps[0].in[1] = c->steps[0].out[0];
    }
}

static void make_embed(emu_case *c, const qn_spec_embed *s)
{
    c->bufs[1].width = s->n_embd;
    c->steps[0].out[0] = (qn_view){1, 0, s->n_embd};
    c->steps[0].w[0] = case_tensor(c, (qn_type)s->dtype, s->n_embd, s->n_vocab, 1);
    c->steps[0].w[1] = s->n_pos ? case_tensor(c, (qn_type)s->pos_dtype, s->n_embd, s->n_pos, 1) : NULL;
}

static void make_norm(emu_case *c, const qn_spec_norm *s)
{
    simple_views(c, s->n * s->groups, s->n * s->groups);
    residual_view(c, s->residual);
    c->steps[0].w[0] = s->has_w ? case_tensor(c, QN_F32, s->n, 1, 2) : NULL;
    c->steps[0].w[1] = s->has_b ? case_tensor(c, QN_F32, s->n, 1, 2) : NULL;
}

static void make_linear(emu_case *c, const qn_spec_linear *s)
{
    bool bf16 = false;
    simple_views(c, s->n_in, s->n_out);
    residual_view(c, s->residual);
    for (int k = 0; k < s->n_seg; k++) {
        c->steps[0].w[3 * k] = case_tensor(c, (qn_type)s->seg_dtype[k], s->n_in, s->seg_out[k], 0.1f);
        c->steps[0].w[3 * k + 1] = s->seg_bias[k] ? case_tensor(c, QN_F32, s->seg_out[k], 1, 1) : NULL;
        c->steps[0].w[3 * k + 2] = s->seg_scale[k] ? case_tensor(c, QN_F32, 1, 1, 3) : NULL;
        bf16 = bf16 || s->seg_dtype[k] == QN_BF16;
    }
    c->tol_many = bf16 ? 1e-3 : 1e-4;
    c->tol_few = s->act ? 1e-9 : 1e-10; /* an activation magnifies what is left of a rounding */
}

static void make_glu(emu_case *c, const qn_spec_glu *s)
{
    qn_step *t = &c->steps[0];
    int up_rows = s->fused ? 2 * s->n_ff : s->n_ff;
    simple_views(c, s->n_in, s->n_ff);
    qn_tensor *up = case_tensor(c, (qn_type)s->up_dtype, s->n_in, up_rows, 0.1f), *gate = up;
    t->w[3] = up;
    t->w[4] = s->has_bias ? case_tensor(c, QN_F32, up_rows, 1, 1) : NULL;
    t->w[5] = s->has_scale ? case_tensor(c, QN_F32, 1, 1, 2) : NULL;
    if (!s->fused) {
        gate = case_tensor(c, (qn_type)s->gate_dtype, s->n_in, s->n_ff, 0.1f);
        t->w[0] = gate;
        t->w[1] = s->has_bias ? case_tensor(c, QN_F32, s->n_ff, 1, 1) : NULL;
        t->w[2] = s->has_scale ? case_tensor(c, QN_F32, 1, 1, 2) : NULL;
    }
    case_gate(gate);
    c->tol_many = s->up_dtype == QN_BF16 ? 1e-3 : 1e-4;
}

static void make_rope_kv(emu_case *c, const qn_spec_rope_kv *s)
{
    int nq = s->n_head * s->k_dim, nk = s->n_head_kv * s->k_dim, nv = s->n_head_kv * s->v_dim;
    qn_step *t = &c->steps[0];
    c->bufs[0].width = nq + nk + nv;
    case_fill(c, 0, 2);
    t->in[0] = t->out[0] = (qn_view){0, 0, nq};
    if (s->has_kv) {
        t->in[1] = (qn_view){0, nq, nk};
        t->in[2] = s->v_from_k ? t->in[1] : (qn_view){0, nq + nk, nv};
    }
    bool per_head = s->qk_weight == QN_QKW_PER_HEAD, full = s->qk_width == QN_QK_FULL,
         channel = s->qk_weight == QN_QKW_CHANNEL && !full;
    if (s->q_has_w) {
        t->w[0] = case_tensor(c, QN_F32, per_head ? s->n_head : channel ? s->k_dim : nq, 1, 2);
    }
    if (s->k_has_w) {
        t->w[1] = case_tensor(c, QN_F32, per_head ? s->n_head_kv : channel ? s->k_dim : nk, 1, 2);
    }
    if (s->rope_style) {
        float *freq = case_alloc(c, sizeof(float) * (size_t)s->n_rot);
        for (int i = 0; i < s->n_rot / 2; i++) {
            freq[i] = powf(10000.0f, -2.0f * (float)i / (float)s->n_rot);
        }
        t->table = freq;
    }
    c->pos = 37;
    case_attention_cache(c, s->n_head_kv, s->k_dim, s->v_dim, 0);
    t->kv = s->has_kv ? 0 : -1;
    c->tol_few = c->tol_many = s->has_kv ? 5e-8 : 1e-10;
}

/* n_head: of the real step. */
static void make_attention(emu_case *c, const qn_spec_attention *s, int n_head)
{
    enum { LARGEST_WINDOW = 512, UBATCH = 512, MANY_ROWS = 20000 };
    bool beyond = s->window > 0 && s->window <= LARGEST_WINDOW; /* larger ones take too long to fill */
    c->pos = beyond ? s->window + 5 : 37;
    c->exec.n_ctx = beyond ? s->window + 64 : 256;
    c->exec.n_ubatch = UBATCH * n_head >= MANY_ROWS ? MANY_ROWS / s->n_head + 1 : CASE_UBATCH;
    case_attention_cache(c, s->n_head_kv, s->k_dim, s->v_dim, s->window);
    case_fill_cache(c);
    simple_views(c, s->n_head * s->k_dim, s->n_head * s->v_dim);
    c->tol_many = 1e-6;
}

static void make_latent_kv(emu_case *c, const qn_spec_latent_kv *s)
{
    int nk = s->n_head * (s->nope + s->n_rot), nv = s->n_head * s->v_dim,
        n_in = s->n_head * (s->nope + s->v_dim);
    simple_views(c, n_in, nk + nv);
    c->bufs[2].width = s->n_rot;
    case_fill(c, 2, 1);
    c->steps[0].in[1] = (qn_view){2, 0, s->n_rot};
    c->steps[0].out[0] = (qn_view){1, 0, nk};
    c->steps[0].out[1] = (qn_view){1, nk, nv};
}

bool emu_case_of_spec(emu_case *c, const qn_spec *s, const qn_spec *real)
{
    c->steps[0].spec = *s;
    switch (c->steps[0].op->id) {
    case QN_OP_EMBED:
        make_embed(c, &s->embed);
        return true;
    case QN_OP_NORM:
        make_norm(c, &s->norm);
        return true;
    case QN_OP_LINEAR:
        make_linear(c, &s->linear);
        return !s->linear.has_div && s->linear.act != QN_ACT_XIELU;
    case QN_OP_GLU:
        make_glu(c, &s->glu);
        return true;
    case QN_OP_ROPE_KV:
        make_rope_kv(c, &s->rope_kv);
        return true;
    case QN_OP_ATTENTION:
        make_attention(c, &s->attention, real->attention.n_head);
        return true;
    case QN_OP_LATENT_KV:
        make_latent_kv(c, &s->latent_kv);
        return true;
    default:
        return false;
    }
}

static int one_case(shape_cases *x, const qn_step *s, const qn_spec *spec, int variant)
{
    static emu_case c;
    case_init(&c, (int)x->op, 5000 + (uint64_t)x->n_spec);
    c.variant = variant;
    if (emu_case_of_spec(&c, spec, &s->spec)) {
        snprintf(c.name, sizeof c.name, "%s shape %.70s %.38s", s->op->name, x->model, s->name);
        x->rc = x->fn(x->user, &c);
        x->n_case++;
    }
    case_free(&c);
    return x->rc;
}

/* Variants take turns; with EMU_EXHAUSTIVE a step is tested on each. */
static int one_step(shape_cases *x, const qn_step *s)
{
    static const int variants[3] = {QN_VARIANT_SM80, QN_VARIANT_SM90A, QN_VARIANT_SM75};
    qn_spec spec = bounded_spec(s);
    if (s->op->id != x->op || x->n_spec == MAX_SPECS || !is_new(x, &spec)) {
        return 0;
    }
    x->specs[x->n_spec++] = spec;
    for (int i = 0; i < 3 && x->rc == 0; i++) {
        if (EMU_EXHAUSTIVE || i == x->n_spec % 3) {
            one_case(x, s, &spec, variants[i]);
        }
    }
    return x->rc;
}

static const char *shapes = EMU_SHAPE_MODELS;

void emu_set_shapes(const char *dir)
{
    shapes = dir;
}

/* All models, opened once for the ops that follow each other, and kept to the end of the process. */
enum { MAX_MODELS = 512 };
static shape_model models[MAX_MODELS];
static int n_model;

static int open_one(void *user, const char *path)
{
    qn_err *err = user;
    if (n_model == MAX_MODELS) {
        return qn_fail(err, "more than %d shapes", MAX_MODELS);
    }
    if (shape_model_open(&models[n_model], path, 0, err)) {
        return -1;
    }
    n_model++;
    return 0;
}

static int open_models(qn_err *err)
{
    char goldens[4096];
    snprintf(goldens, sizeof goldens, "%s/goldens", shapes);
    return n_model > 0 ? 0
           : shape_models_each(shapes, open_one, err, err) || shape_models_each(goldens, open_one, err, err)
               ? -1
               : 0;
}

int emu_shape_cases(int op, int *n_case, emu_case_fn fn, void *user)
{
    static qn_spec specs[MAX_SPECS];
    shape_cases x = {.op = (qn_op_id)op, .fn = fn, .user = user, .specs = specs};
    qn_err err;
    if (open_models(&err)) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    for (int m = 0; m < n_model && x.rc == 0; m++) {
        x.model = models[m].name;
        for (int i = 0; i < models[m].plans->prefill.n_step && x.rc == 0; i++) {
            one_step(&x, &models[m].plans->prefill.steps[i]);
        }
    }
    *n_case += x.n_case;
    return x.rc;
}
