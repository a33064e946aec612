/* emu_cases.c: pairwise choice of levels, and the parts that every case has. */
#include "emu_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "codegen/nvrtc.h"

void *case_alloc(emu_case *c, size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p || c->n_alloc == CASE_ALLOCS) {
        abort();
    }
    c->allocs[c->n_alloc++] = p;
    return p;
}

static bool empty;

void emu_cases_empty(bool is)
{
    empty = is;
}

bool case_is_empty(void)
{
    return empty;
}

int case_random(emu_case *c, int n)
{
    c->random = c->random * 6364136223846793005u + 1442695040888963407u;
    return (int)((c->random >> 33) % (uint64_t)n);
}

float case_uniform(emu_case *c)
{
    return (float)case_random(c, 1 << 24) * (2.0f / (1 << 24)) - 1.0f;
}

/* Bytes of the halves in a block that scale it; -1: none. */
typedef struct block_scales {
    qn_type type;
    int at[2];
} block_scales;
static const block_scales scales[] = {
    {QN_Q4_0, {0, -1}}, {QN_Q4_1, {0, 2}},    {QN_Q5_0, {0, -1}},   {QN_Q5_1, {0, 2}},
    {QN_Q8_0, {0, -1}}, {QN_Q2_K, {80, 82}},  {QN_Q3_K, {108, -1}}, {QN_Q4_K, {0, 2}},
    {QN_Q5_K, {0, 2}},  {QN_Q6_K, {208, -1}}, {QN_IQ4_NL, {0, -1}}, {QN_IQ4_XS, {0, -1}},
};

static void fill_plain(emu_case *c, uint8_t *data, qn_type type, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++) {
        float v = scale * case_uniform(c);
        uint16_t h = type == QN_F16 ? qn_f32_to_f16(v) : qn_f32_to_bf16(v);
        if (type == QN_F32) {
            memcpy(data + 4 * i, &v, sizeof v);
        } else {
            memcpy(data + 2 * i, &h, sizeof h);
        }
    }
}

/* Random bits, but scales that keep values finite and of one size. */
static void fill_blocks(emu_case *c, uint8_t *data, const qn_dtype *d, qn_type type, size_t bytes)
{
    const block_scales *s = scales;
    while (s->type != type) {
        s++;
    }
    enum { LARGE = 1 << 22 };
    for (size_t i = 0; i < bytes && bytes < LARGE; i++) {
        data[i] = (uint8_t)case_random(c, 256);
    }
    uint64_t x = c->random | 1; /* of tensors that take long otherwise: xorshift64 (Marsaglia 2003) */
    for (size_t i = 0; i + sizeof x <= bytes && bytes >= LARGE; i += sizeof x) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy(data + i, &x, sizeof x);
    }
    for (size_t b = 0; b < bytes; b += d->block_bytes) {
        for (int k = 0; k < 2; k++) {
            if (s->at[k] >= 0) {
                uint16_t h = qn_f32_to_f16(0.01f + 0.005f * case_uniform(c));
                memcpy(data + b + (size_t)s->at[k], &h, sizeof h);
            }
        }
    }
}

qn_tensor *case_tensor(emu_case *c, qn_type type, int n_in, int n_out, float scale)
{
    const qn_dtype *d = qn_dtype_get(type);
    size_t bytes = (size_t)n_in / d->block_values * d->block_bytes * (size_t)n_out;
    uint8_t *data = case_alloc(c, bytes);
    if (empty) {
        /* zeros */
    } else if (type == QN_F32 || type == QN_F16 || type == QN_BF16) {
        fill_plain(c, data, type, (size_t)n_in * (size_t)n_out, scale);
    } else {
        fill_blocks(c, data, d, type, bytes);
    }
    if (c->n_tensor == CASE_TENSORS) {
        abort();
    }
    qn_tensor *t = &c->tensors[c->n_tensor++];
    *t = (qn_tensor){.name = "weight",
                     .type = type,
                     .n_dims = 2,
                     .ne = {(uint64_t)n_in, (uint64_t)n_out, 1, 1},
                     .n_bytes = bytes,
                     .data = data};
    return t;
}

void case_gate(qn_tensor *t)
{
    if (empty) {
        return;
    }
    const qn_dtype *d = qn_dtype_get(t->type);
    const size_t n = (size_t)t->ne[0], rows = t->ne[1] < 8 ? (size_t)t->ne[1] : 8;
    float *v = malloc(sizeof *v * n * rows);
    double sum = 0;
    d->decode(t->data, v, (int64_t)(n * rows));
    for (size_t i = 0; i < n * rows; i++) {
        sum += (double)v[i] * (double)v[i];
    }
    free(v);
    const float factor = (float)(2 / sqrt(sum / (double)rows));
    uint8_t *data = (uint8_t *)(uintptr_t)t->data;
    const block_scales *s = scales;
    const block_scales *const end = scales + sizeof scales / sizeof *scales;
    while (s < end && s->type != t->type) {
        s++;
    }
    for (size_t b = 0; b < t->n_bytes; b += d->block_bytes) {
        if (t->type == QN_F32) {
            float x;
            memcpy(&x, data + b, sizeof x);
            x *= factor;
            memcpy(data + b, &x, sizeof x);
        }
        for (int k = 0; k < 2 && t->type != QN_F32; k++) {
            int at = s < end ? s->at[k] : k ? -1 : 0;
            uint16_t h;
            if (at >= 0) {
                memcpy(&h, data + b + at, sizeof h);
                h = t->type == QN_BF16 ? qn_f32_to_bf16(factor * qn_bf16_to_f32(h))
                                       : qn_f32_to_f16(factor * qn_f16_to_f32(h));
                memcpy(data + b + at, &h, sizeof h);
            }
        }
    }
}

void case_fill(emu_case *c, int buf, float scale)
{
    const int first = c->rows > 0 ? c->rows : CASE_UBATCH;
    size_t n = (size_t)c->bufs[buf].width * (size_t)first;
    const size_t all = c->rows > 0 ? n : n / CASE_UBATCH * CASE_ROWS;
    c->start[buf] = case_alloc(c, all * sizeof(float));
    for (size_t i = 0; i < n && !empty; i++) {
        c->start[buf][i] = scale * case_uniform(c);
    }
    for (size_t i = n; i < all && !empty; i++) {
        c->start[buf][i] = -0.75f * c->start[buf][i - n];
    }
}

void case_small_row(emu_case *c, int buf)
{
    for (int i = 0, n = c->bufs[buf].width; i < n; i++) {
        c->start[buf][n + i] *= 1.0f / 256;
    }
}

void case_init(emu_case *c, int op, uint64_t seed)
{
    memset(c, 0, sizeof *c);
    c->random = 77 + 1000003u * seed;
    c->model = (qn_model){.n_embd = 8, .n_vocab = CASE_VOCAB};
    static const char *const names[CASE_BUFS] = {"x", "out", "base", "logits", "y", "z"};
    for (int i = 0; i < CASE_BUFS; i++) {
        c->bufs[i] = (qn_buf){names[i], 8, QN_ROWS_TOKENS};
    }
    c->bufs[3].width = CASE_VOCAB;
    c->bufs[3].rows = QN_ROWS_OUTPUTS;
    qn_step *s = c->steps;
    for (int k = 0; k < 4; k++) {
        s[k].op = &qn_ops[op];
        s[k].kv = s[k].layer = -1;
        snprintf(s[k].name, sizeof s[k].name, "step%d", k);
        for (int i = 0; i < QN_STEP_VIEWS; i++) {
            s[k].in[i] = s[k].out[i] = (qn_view){-1, 0, 0};
        }
    }
    c->exec = (qn_exec_opts){.n_ctx = 256, .n_ubatch = CASE_UBATCH, .n_threads = 1, .exact = true};
    c->exec.n_seq = CASE_SEQS;
    c->seq = (int)(seed / 2 % CASE_SEQS);
    c->outputs = QN_OUT_LAST; /* fewer outputs than rows */
    c->tol_few = c->tol_many = 1e-10;
    c->variant = QN_VARIANT_SM80;
    c->few_rows = 2 + (int)(seed % 7);
    c->plans = (qn_plans){.model = &c->model, .n_buf = CASE_BUFS, .bufs = c->bufs, .n_kv = 0, .kv = &c->kv};
    c->plans.prefill = (qn_plan){QN_PHASE_PREFILL, 1, s, 3};
    c->plans.decode = (qn_plan){QN_PHASE_DECODE, 1, s, 3};
}

void case_free(emu_case *c)
{
    for (int i = 0; i < c->n_alloc; i++) {
        free(c->allocs[i]);
    }
}

/* Which tuples of levels have been chosen together: pairs, or triples with EMU_EXHAUSTIVE. */
enum { MAX_LEVELS = 16, TRIES = 40, MAX_CASES = 10000, STRENGTH = EMU_EXHAUSTIVE ? 3 : 2 };
typedef struct tuples {
    int n, factor[MAX_FACTORS * MAX_FACTORS * MAX_FACTORS][STRENGTH]; /* the factors of each tuple */
    bool *seen;                                                       /* [n][MAX_LEVELS ^ STRENGTH] */
    int left;
} tuples;

enum { PLACES = EMU_EXHAUSTIVE ? MAX_LEVELS * MAX_LEVELS * MAX_LEVELS : MAX_LEVELS * MAX_LEVELS };

static void find_tuples(tuples *t, const emu_factors *f)
{
    int strength = f->n < STRENGTH ? f->n : STRENGTH;
    for (int set = 0; set < 1 << f->n; set++) {
        if (__builtin_popcount((unsigned)set) != strength) {
            continue;
        }
        int *of = t->factor[t->n++], n = 0, all = 1;
        for (int a = 0; a < f->n; a++) {
            if (set >> a & 1) {
                of[n++] = a;
                all *= f->levels[a];
            }
        }
        for (; n < STRENGTH; n++) {
            of[n] = of[0]; /* fewer factors than a tuple has places */
        }
        t->left += all;
    }
    t->seen = calloc((size_t)t->n, PLACES);
}

static bool *place(const tuples *t, int tuple, const int *choice)
{
    size_t at = 0;
    for (int i = 0; i < STRENGTH; i++) {
        at = at * MAX_LEVELS + (size_t)choice[t->factor[tuple][i]];
    }
    return &t->seen[(size_t)tuple * PLACES + at];
}

static int new_tuples(const tuples *t, const int *choice)
{
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        n += !*place(t, i, choice);
    }
    return n;
}

static void take(tuples *t, const int *choice)
{
    for (int i = 0; i < t->n; i++) {
        bool *seen = place(t, i, choice);
        t->left -= !*seen;
        *seen = true;
    }
}

/* Puts the levels of the first tuple not yet seen into the choice. */
static void force_one(const tuples *t, const emu_factors *f, int *choice)
{
    for (int i = 0; i < t->n; i++) {
        int all = 1, trial[MAX_FACTORS];
        for (int k = 0; k < STRENGTH; k++) {
            all *= f->levels[t->factor[i][k]];
        }
        for (int code = 0; code < all; code++) {
            memcpy(trial, choice, sizeof trial);
            for (int k = 0, rest = code; k < STRENGTH; k++) {
                trial[t->factor[i][k]] = rest % f->levels[t->factor[i][k]];
                rest /= f->levels[t->factor[i][k]];
            }
            if (!*place(t, i, trial)) {
                memcpy(choice, trial, sizeof trial);
                return;
            }
        }
    }
}

/* A choice that holds the first tuple not yet seen: of some random ones the one with most new tuples. */
static void choose(const tuples *t, const emu_factors *f, emu_case *random, int *best)
{
    int best_new = -1;
    for (int i = 0; i < TRIES; i++) {
        int choice[MAX_FACTORS] = {0};
        for (int a = 0; a < f->n; a++) {
            choice[a] = case_random(random, f->levels[a]);
        }
        force_one(t, f, choice);
        int n = new_tuples(t, choice);
        if (n > best_new) {
            best_new = n;
            memcpy(best, choice, sizeof choice);
        }
    }
}

/* 8-bit activations: half of the cases have a step for every 32 values, however narrow their rows are. */
static void set_steps(emu_case *c, int n_case)
{
    if (n_case % 2 == 1) {
        size_t used = strlen(c->name);
        c->exec.fine_below = 1;
        snprintf(c->name + used, sizeof c->name - used, " steps of 32");
    }
}

static int run_factors(const emu_factors *table, int op, int *n_case, emu_case_fn fn, void *user)
{
    static const int variants[3] = {QN_VARIANT_SM80, QN_VARIANT_SM90A, QN_VARIANT_SM75};
    emu_factors with = *table, *f = &with;
    if (!f->any_variant) {
        f->levels[f->n++] = 3;
    }
    static emu_case c;
    tuples *t = calloc(1, sizeof *t);
    emu_case random = {.random = 5};
    int rc = 0;
    find_tuples(t, f);
    for (int i = 0; rc == 0 && i < MAX_CASES && t->left > 0; i++) {
        int choice[MAX_FACTORS];
        choose(t, f, &random, choice);
        take(t, choice);
        case_init(&c, op, (uint64_t)*n_case);
        c.variant = f->any_variant ? QN_VARIANT_SM80 : variants[choice[f->n - 1]];
        if (f->make(&c, choice) == 0) {
            set_steps(&c, *n_case);
            rc = fn(user, &c);
            ++*n_case;
        }
        case_free(&c);
    }
    free(t->seen);
    free(t);
    return rc;
}

int emu_cases(const char *op, emu_case_fn fn, void *user)
{
    int n_case = 0, rc = 0;
    const qn_op *row = qn_op_find(strcmp(op, "argmax") == 0 ? "linear" : op);
    for (const emu_factors *f = emu_all_factors; f->op && rc == 0 && row; f++) {
        if (strcmp(f->op, op) == 0) {
            rc = run_factors(f, (int)row->id, &n_case, fn, user);
        }
    }
    return rc || !row || strcmp(op, "argmax") == 0 ? rc : emu_shape_cases((int)row->id, &n_case, fn, user);
}

bool emu_case_has_route(const qn_plans *plans, int variant, const emu_route *r)
{
    const qn_step *s = &plans->prefill.steps[0];
    bool linear = s->op->id == QN_OP_LINEAR, product = linear || s->op->id == QN_OP_GLU,
         one = plans->prefill.n_step == 1, sm80 = variant == QN_VARIANT_SM80;
    const qn_op_id last = s[plans->prefill.n_step - 1].op->id; /* of tma: queries may be tiles before it */
    if (product && (r->f32_products || plans->prefill.n_step == 2)) {
        return !r->tma && r->prefill == QN_PREFILL_AUTO && !one && sm80 && !r->f32 && !r->no_fuse;
    }
    switch (r->prefill) {
    case QN_PREFILL_AUTO:
        if (r->tma) {
            const qn_spec_attention *a = &s[plans->prefill.n_step - 1].spec.attention;
            return last == QN_OP_ATTENTION && variant == QN_VARIANT_SM90A &&
                   (r->tokens == 0 || (a->k_dim <= 128 && (r->tokens != EMU_FEW_TYPES || a->window == 0)));
        }
        return !r->f32_products;
    case QN_PREFILL_FP8:
        return linear && one && sm80;
    case QN_PREFILL_WGMMA: {
        enum { LONGEST = 1300 }; /* of rows that wider tiles are emulated with: they are slow */
        qn_type type = linear ? s->w[0]->type : QN_F32;
        bool some = linear && one && s->spec.linear.n_in <= LONGEST &&
                    (type == QN_Q4_K || type == QN_Q6_K || type == QN_Q2_K || type == QN_F16);
        return product && variant == QN_VARIANT_SM90A && (one || !linear || s->spec.linear.n_out <= 512) &&
               (some || r->tokens == 64);
    }
    case QN_PREFILL_MMA: /* what reads a product is the same in all variants */
        return product && variant != QN_VARIANT_SM90A && (one || sm80);
    default:
        return product && variant != QN_VARIANT_SM90A && one;
    }
}

const char *const *emu_case_ops(void)
{
    static const char *names[QN_OP_COUNT + 2];
    for (int i = 0; i < QN_OP_COUNT; i++) {
        names[i] = qn_ops[i].name;
    }
    names[QN_OP_COUNT] = "argmax";
    return names;
}
