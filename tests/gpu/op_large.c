/* op_large.c: see op_large.h. Sizes are those of Qwen3 8B, Gemma 3 12B, Llama 3 and a few others; some 2048
 * rows of a prompt, of which a sample is compared. */
#include "op_large.h"

#include <stdio.h>
#include <string.h>

#include "codegen/kv_type.h"
#include "codegen/nvrtc.h"

enum { ROWS = 2048, N_SAMPLE = 10, N_FEW = 5, CONTEXT = 32768 };
static const int sample[N_SAMPLE] = {0, 1, 63, 64, 127, 520, 1023, 1500, 1986, 2047},
                 few[N_FEW] = {0, 127, 520, 1986, 2047};

typedef struct large_case {
    const char *op, *name;
    int variant, rows; /* rows 0: only the runs of few rows, and 13 of a prompt */
    int pos, kv_types; /* kv_types: 1: 8-bit keys, 2: values */
    bool outputs;      /* a row of logits for the last token only */
    qn_spec spec;
    bool (*make)(emu_case *c, const struct large_case *l); /* NULL: emu_case_of_spec */
} large_case;

static bool make_attention(emu_case *c, const large_case *l)
{
    const qn_spec_attention *s = &l->spec.attention;
    c->exec.n_seq = 1;
    c->seq = 0;
    c->pos = l->pos;
    c->exec.n_ctx = CONTEXT;
    c->exec.k_type = l->kv_types & 1 ? QN_CACHE_Q8_0 : QN_CACHE_F16;
    c->exec.v_type = l->kv_types & 2 ? QN_CACHE_Q8_0 : QN_CACHE_F16;
    case_attention_cache(c, s->n_head_kv, s->k_dim, s->v_dim, s->window);
    case_fill_cache(c);
    c->bufs[0].width = s->n_head * s->k_dim;
    c->bufs[1].width = s->n_head * s->v_dim;
    case_fill(c, 0, 1);
    c->steps[0].in[0] = (qn_view){0, 0, c->bufs[0].width};
    c->steps[0].out[0] = (qn_view){1, 0, c->bufs[1].width};
    c->steps[0].spec = l->spec;
    c->tol_many = l->kv_types ? 3e-6 : 2e-6;
    return true;
}

static bool make_rope(emu_case *c, const large_case *l)
{
    bool made = emu_case_of_spec(c, &l->spec, &l->spec);
    c->pos = l->pos;
    c->exec.n_ctx = CONTEXT;
    c->exec.k_type = l->kv_types & 1 ? QN_CACHE_Q8_0 : QN_CACHE_F16;
    c->exec.v_type = l->kv_types & 2 ? QN_CACHE_Q8_0 : QN_CACHE_F16;
    if (l->kv_types) {
        c->tol_few = c->tol_many = 1e-5; /* codes on the edge */
    }
    return made;
}

/* The head, and the sum and choice of its logits. */
static bool make_choice(emu_case *c, const large_case *l)
{
    const int n = l->spec.linear.n_out;
    c->argmax = true;
    c->outputs = QN_OUT_ALL;
    c->model.n_vocab = n;
    c->bufs[0].width = l->spec.linear.n_in;
    c->bufs[3].width = n;
    case_fill(c, 0, 1);
    c->steps[0].w[0] = case_tensor(c, (qn_type)l->spec.linear.seg_dtype[0], l->spec.linear.n_in, n, 1);
    c->steps[0].in[0] = (qn_view){0, 0, l->spec.linear.n_in};
    c->steps[0].out[0] = (qn_view){3, 0, n};
    c->steps[0].spec = l->spec;
    c->tol_many = 1e-4;
    return true;
}

static bool make_select(emu_case *c, const large_case *l)
{
    const int n = l->spec.select.n;
    c->bufs[0].width = c->bufs[1].width = n;
    c->bufs[1].rows = c->steps[0].rows = QN_ROWS_OUTPUTS;
    c->outputs = QN_OUT_ALL;
    case_fill(c, 0, 1);
    c->steps[0].in[0] = (qn_view){0, 0, n};
    c->steps[0].out[0] = (qn_view){1, 0, n};
    c->steps[0].spec = l->spec;
    return true;
}

static bool make_mix(emu_case *c, const large_case *l)
{
    const int n = l->spec.mix.n;
    c->bufs[0].width = c->bufs[1].width = c->bufs[2].width = n;
    case_fill(c, 0, 1);
    case_fill(c, 2, 1);
    c->steps[0].in[0] = (qn_view){0, 0, n};
    c->steps[0].in[1] = (qn_view){2, 0, n};
    c->steps[0].out[0] = (qn_view){1, 0, n};
    c->steps[0].w[0] = case_tensor(c, QN_F32, 1, 1, 2);
    c->steps[0].spec = l->spec;
    return true;
}

static bool make_mul(emu_case *c, const large_case *l)
{
    make_mix(c, l);
    c->steps[0].w[0] = NULL;
    return true;
}

static bool make_rescale(emu_case *c, const large_case *l)
{
    static const int choice[4] = {2, 1, 1, 0};
    (void)l;
    return emu_make_rescale(c, choice) == 0;
}

static bool make_altup(emu_case *c, const large_case *l)
{
    static const int choice[5] = {2, 1, 1, 1, 0};
    (void)l;
    return emu_make_altup(c, choice) == 0;
}

#define SM75 QN_VARIANT_SM75
#define SM80 QN_VARIANT_SM80
#define SM90 QN_VARIANT_SM90A
/* A product of one weight. */
#define ONE(type, in, out, add)                                                                              \
    {                                                                                                        \
        .linear = {                                                                                          \
            .n_in = in,                                                                                      \
            .n_out = out,                                                                                    \
            .n_seg = 1,                                                                                      \
            .seg_out = {out},                                                                                \
            .seg_dtype = {type, -1, -1},                                                                     \
            .out_scale = 1,                                                                                  \
            .residual = add                                                                                  \
        }                                                                                                    \
    }
#define QKV(a, b, in, q, kv)                                                                                 \
    {                                                                                                        \
        .linear = {                                                                                          \
            .n_in = in,                                                                                      \
            .n_out = q + 2 * kv,                                                                             \
            .n_seg = 3,                                                                                      \
            .seg_out = {q, kv, kv},                                                                          \
            .seg_dtype = {a, a, b},                                                                          \
            .out_scale = 1                                                                                   \
        }                                                                                                    \
    }
#define GLU(type, in, ff, how)                                                                               \
    {                                                                                                        \
        .glu = {.n_in = in, .n_ff = ff, .act = how, .gate_dtype = type, .up_dtype = type }                   \
    }
#define NORM(width, n_group, weight)                                                                         \
    {                                                                                                        \
        .norm = {                                                                                            \
            .n = width,                                                                                      \
            .groups = n_group,                                                                               \
            .kind = QN_NORM_RMS,                                                                             \
            .has_w = weight,                                                                                 \
            .eps = 1e-6f,                                                                                    \
            .out_scale = 1                                                                                   \
        }                                                                                                    \
    }
#define HEADS(q, kv, dim, last)                                                                              \
    {                                                                                                        \
        .attention = { q, kv, dim, dim, last, 0.1f, 0, 0 }                                                   \
    }
#define ROPE(q, kv, dim, normed)                                                                             \
    {                                                                                                        \
        .rope_kv = {                                                                                         \
            .n_head = q,                                                                                     \
            .n_head_kv = kv,                                                                                 \
            .k_dim = dim,                                                                                    \
            .v_dim = dim,                                                                                    \
            .has_kv = 1,                                                                                     \
            .qk_norm = normed ? QN_NORM_RMS : QN_NORM_NONE,                                                  \
            .q_has_norm = normed,                                                                            \
            .k_has_norm = normed,                                                                            \
            .q_has_w = normed,                                                                               \
            .k_has_w = normed,                                                                               \
            .rope_style = QN_ROPE_NEOX,                                                                      \
            .n_rot = dim,                                                                                    \
            .eps = 1e-6f,                                                                                    \
            .mscale = 1                                                                                      \
        }                                                                                                    \
    }

static const large_case cases[] = {
    {"embed", "151936 rows of 4096, q4_K", SM90, ROWS, .spec.embed = {4096, 151936, QN_Q4_K, -1, 0, 1}},
    {"embed", "262144 rows of 1152, f16", SM80, ROWS, .spec.embed = {1152, 262144, QN_F16, -1, 0, 33.94f}},
    {"select", "4096", SM90, ROWS, .spec.select = {4096}, .make = make_select},
    {"norm", "4096", SM90, ROWS, .spec = NORM(4096, 1, 1)},
    {"norm", "8192", SM80, ROWS, .spec = NORM(8192, 1, 1)},
    {"norm", "32 heads of 128", SM75, ROWS, .spec = NORM(128, 32, 1)},
    {"linear", "4096 to 4096, q4_K", SM90, ROWS, .spec = ONE(QN_Q4_K, 4096, 4096, 1)},
    {"linear", "4096 to 4096, q4_K", SM75, ROWS, .spec = ONE(QN_Q4_K, 4096, 4096, 1)},
    {"linear", "4096 to 4096, q8_0", SM80, ROWS, .spec = ONE(QN_Q8_0, 4096, 4096, 0)},
    {"linear", "4096 to 4096, bf16", SM90, ROWS, .spec = ONE(QN_BF16, 4096, 4096, 0)},
    {"linear", "2048 to 8192, f16", SM80, ROWS, .spec = ONE(QN_F16, 2048, 8192, 0)},
    {"linear", "12288 to 4096, q6_K", SM90, ROWS, .spec = ONE(QN_Q6_K, 12288, 4096, 1)},
    {"linear", "12288 to 4096, q6_K", SM80, ROWS, .spec = ONE(QN_Q6_K, 12288, 4096, 1)},
    {"linear", "4096 to 12288, q4_0", SM90, ROWS, .spec = ONE(QN_Q4_0, 4096, 12288, 0)},
    {"linear", "4096 to 12288, q5_K", SM80, ROWS, .spec = ONE(QN_Q5_K, 4096, 12288, 0)},
    {"linear", "4096 to 4096, 1024 and 1024, q4_K and q6_K", SM90, ROWS,
     .spec = QKV(QN_Q4_K, QN_Q6_K, 4096, 4096, 1024)},
    {"linear", "3840 to 4096, 2048 and 2048, iq4_xs and q3_K", SM80, ROWS,
     .spec = QKV(QN_IQ4_XS, QN_Q3_K, 3840, 4096, 2048)},
    {"linear", "head of 4096 to 151936, q6_K", SM90, 0, .outputs = true,
     .spec = ONE(QN_Q6_K, 4096, 151936, 0)},
    {"linear", "head of 4096 to 151936, q8_0", SM80, 0, .outputs = true,
     .spec = ONE(QN_Q8_0, 4096, 151936, 0)},
    {"glu", "4096 to 12288, q4_K", SM90, ROWS, .spec = GLU(QN_Q4_K, 4096, 12288, QN_ACT_SILU)},
    {"glu", "3840 to 15360, q4_0", SM80, ROWS, .spec = GLU(QN_Q4_0, 3840, 15360, QN_ACT_GELU)},
    {"glu", "2048 to 8192, q8_0", SM75, ROWS, .spec = GLU(QN_Q8_0, 2048, 8192, QN_ACT_SILU)},
    {"rope_kv", "32 and 8 heads of 128 at 30000, normed", SM90, ROWS, 30000, .spec = ROPE(32, 8, 128, 1),
     .make = make_rope},
    {"rope_kv", "16 and 8 heads of 256 at 9000, 8-bit", SM80, ROWS, 9000, 3, .spec = ROPE(16, 8, 256, 1),
     .make = make_rope},
    {"rope_kv", "32 and 8 heads of 64", SM75, ROWS, .spec = ROPE(32, 8, 64, 0), .make = make_rope},
    {"attention", "32 and 8 heads of 128, 32k keys", SM90, ROWS, CONTEXT - ROWS, .spec = HEADS(32, 8, 128, 0),
     .make = make_attention},
    {"attention", "32 and 8 heads of 128, 32k keys of 8 bits", SM90, ROWS, CONTEXT - ROWS, 3,
     .spec = HEADS(32, 8, 128, 0), .make = make_attention},
    {"attention", "32 and 8 heads of 64, 32k keys", SM80, ROWS, CONTEXT - ROWS, .spec = HEADS(32, 8, 64, 0),
     .make = make_attention},
    {"attention", "32 and 8 heads of 128, a prompt's start", SM90, ROWS, 0, .spec = HEADS(32, 8, 128, 0),
     .make = make_attention},
    {"attention", "16 and 8 heads of 256, window 1024 at 20000", SM90, ROWS, 20000,
     .spec = HEADS(16, 8, 256, 1024), .make = make_attention},
    {"attention", "40 heads of 128, 8k keys", SM75, ROWS, 6144, .spec = HEADS(40, 40, 128, 0),
     .make = make_attention},
    {"mix", "4096", SM90, ROWS, .spec.mix = {4096, 4096, 1.5f, -0.5f}, .make = make_mix},
    {"mul", "8192", SM90, ROWS, .spec.mul = {8192, 0}, .make = make_mul},
    {"rescale", "3 groups of 2100", SM90, ROWS, .make = make_rescale},
    {"altup", "4 streams of 2100", SM90, ROWS, .make = make_altup},
    {"latent_kv", "40 heads of 64 + 32, 64", SM90, ROWS, .spec.latent_kv = {40, 64, 32, 64}},
    {"argmax", "262144 logits", SM90, 0, .spec = ONE(QN_F16, 8, 262144, 0), .make = make_choice},
};

static void set_rows(emu_case *c, const large_case *l)
{
    c->variant = l->variant;
    c->exec.n_ctx = CONTEXT;
    c->rows = l->rows;
    if (l->rows) {
        const bool slow = strcmp(l->op, "attention") == 0; /* its reference, over many keys */
        c->sample = slow ? few : sample;
        c->n_sample = slow ? N_FEW : N_SAMPLE;
        c->few_rows = slow ? 3 : c->few_rows;
        c->exec.n_ubatch = l->rows;
    }
    if (l->outputs) {
        c->steps[0].rows = QN_ROWS_OUTPUTS;
    }
}

int op_large_cases(const char *op, bool (*take)(void *user, const emu_case *c), emu_case_fn fn, void *user)
{
    static emu_case c;
    int rc = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases && rc == 0; i++) {
        const large_case *l = &cases[i];
        if (strcmp(l->op, op) != 0) {
            continue;
        }
        case_init(&c, (int)qn_op_find(strcmp(op, "argmax") == 0 ? "linear" : op)->id, 9000 + i);
        set_rows(&c, l);
        snprintf(c.name, sizeof c.name, "%s large %s", l->op, l->name);
        if (take(user, &c)) {
            char name[sizeof c.name];
            memcpy(name, c.name, sizeof name);
            if (!(l->make ? l->make(&c, l) : emu_case_of_spec(&c, &l->spec, &l->spec))) {
                rc = -1;
            }
            memcpy(c.name, name, sizeof name);
            rc = rc ? rc : fn(user, &c);
        }
        case_free(&c);
    }
    return rc;
}
