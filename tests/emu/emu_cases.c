/* emu_cases.c: pairwise choice of levels, and the parts that every case has. */
#include "emu_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"

void *case_alloc(emu_case *c, size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p || c->n_alloc == CASE_ALLOCS) {
        abort();
    }
    c->allocs[c->n_alloc++] = p;
    return p;
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
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)case_random(c, 256);
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
    if (type == QN_F32 || type == QN_F16 || type == QN_BF16) {
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

void case_fill(emu_case *c, int buf, float scale)
{
    size_t n = (size_t)c->bufs[buf].width * CASE_UBATCH;
    const size_t all = n / CASE_UBATCH * CASE_ROWS;
    c->start[buf] = case_alloc(c, all * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        c->start[buf][i] = scale * case_uniform(c);
    }
    for (size_t i = n; i < all; i++) {
        c->start[buf][i] = -0.75f * c->start[buf][i - n];
    }
}

static void case_init(emu_case *c, int op, uint64_t seed)
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
    c->outputs = QN_OUT_ALL;
    c->tol_few = c->tol_many = 1e-10;
    c->plans = (qn_plans){.model = &c->model, .n_buf = CASE_BUFS, .bufs = c->bufs, .n_kv = 0, .kv = &c->kv};
    c->plans.prefill = (qn_plan){QN_PHASE_PREFILL, 1, s, 3};
    c->plans.decode = (qn_plan){QN_PHASE_DECODE, 1, s, 3};
}

static void case_free(emu_case *c)
{
    for (int i = 0; i < c->n_alloc; i++) {
        free(c->allocs[i]);
    }
}

/* Which pairs of levels have been chosen together: [factor a][level][factor b][level]. */
enum { MAX_LEVELS = 16, TRIES = 40, MAX_CASES = 600 };
typedef struct pairs {
    bool seen[MAX_FACTORS][MAX_LEVELS][MAX_FACTORS][MAX_LEVELS];
    int left;
} pairs;

static int new_pairs(const pairs *p, const emu_factors *f, const int *choice)
{
    int n = 0;
    for (int a = 0; a < f->n; a++) {
        for (int b = a + 1; b < f->n; b++) {
            n += !p->seen[a][choice[a]][b][choice[b]];
        }
    }
    return n;
}

static void take(pairs *p, const emu_factors *f, const int *choice)
{
    for (int a = 0; a < f->n; a++) {
        for (int b = a + 1; b < f->n; b++) {
            bool *seen = &p->seen[a][choice[a]][b][choice[b]];
            p->left -= !*seen;
            *seen = true;
        }
    }
}

/* A choice that holds the first pair not yet seen, else the best of some random ones. */
static void choose(const pairs *p, const emu_factors *f, emu_case *random, int *best)
{
    int best_new = -1;
    for (int t = 0; t < TRIES; t++) {
        int choice[MAX_FACTORS];
        for (int a = 0; a < f->n; a++) {
            choice[a] = case_random(random, f->levels[a]);
        }
        bool forced = false;
        for (int a = 0; a < f->n && !forced; a++) {
            for (int b = a + 1; b < f->n && !forced; b++) {
                for (int k = 0; k < f->levels[a] * f->levels[b] && !forced; k++) {
                    int la = k / f->levels[b], lb = k % f->levels[b];
                    if (!p->seen[a][la][b][lb]) {
                        choice[a] = la;
                        choice[b] = lb;
                        forced = true;
                    }
                }
            }
        }
        int n = new_pairs(p, f, choice);
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

static int run_factors(const emu_factors *f, int op, int *n_case, emu_case_fn fn, void *user)
{
    static emu_case c;
    pairs *p = calloc(1, sizeof *p);
    emu_case random = {.random = 5};
    for (int a = 0; a < f->n; a++) {
        for (int b = a + 1; b < f->n; b++) {
            p->left += f->levels[a] * f->levels[b];
        }
    }
    int rc = 0;
    bool once = false; /* a single factor has no pairs */
    for (int i = 0; rc == 0 && i < MAX_CASES && (p->left > 0 || (f->n == 1 && i < f->levels[0]) || !once);
         i++) {
        int choice[MAX_FACTORS] = {i};
        once = true;
        if (f->n > 1) {
            choose(p, f, &random, choice);
            take(p, f, choice);
        }
        case_init(&c, op, (uint64_t)*n_case);
        if (f->make(&c, choice) == 0) {
            set_steps(&c, *n_case);
            rc = fn(user, &c);
            ++*n_case;
        }
        case_free(&c);
    }
    free(p);
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
    return rc;
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
