/* emu_sample: the device's samplers under emulation against quern_sample, token for token: random and tied
 * logits, -inf, NaN and infinity, banned tokens, windows of the penalty that move, several rows with choices
 * of their own. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu_cases.h"
#include "emu_exec.h"
#include "engine/sampler.h"

enum { ROWS = 3 };

typedef struct rng {
    uint64_t x;
} rng;

static uint32_t next(rng *r)
{
    r->x = r->x * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->x >> 33);
}

static float normal(rng *r)
{
    float s = 0;
    for (int i = 0; i < 4; i++) {
        s += (float)(next(r) % 65536) / 32768.0f - 1.0f;
    }
    return s;
}

/* Shapes of logits: bell, coarse (many equal), all equal, a peak, holes of -inf, few left, -0 among 0. */
enum { SHAPES = 7 };
static void fill(float *x, int n, int shape, rng *r)
{
    for (int i = 0; i < n; i++) {
        float v = normal(r);
        x[i] = shape == 0   ? 3 * v
               : shape == 1 ? floorf(2 * v)
               : shape == 2 ? 1.5f
               : shape == 3 ? (i == n / 3 ? 20 : v)
               : shape == 4 ? (next(r) % 3 ? -INFINITY : v)
               : shape == 5 ? (i % (n / 7 + 1) == 3 ? v : -INFINITY)
                            : (next(r) % 2   ? -0.0f
                               : next(r) % 5 ? 0.0f
                                             : v - 4);
    }
}

typedef struct setting {
    float temperature, top_p, min_p, penalty;
    int top_k, last_n;
    bool ban;
} setting;

static const setting settings[] = {
    {0, 1, 0, 1, 0, 0, false},
    {0, 1, 0, 1.3f, 0, 4, true},
    {0.8f, 0.95f, 0.05f, 1, 40, 64, false},
    {0.8f, 0.95f, 0, 1.1f, 40, 5, false},
    {1.5f, 1, 0, 1, 100, 64, true},
    {1, 0, 0, 1, 17, 0, false},
    {0.6f, 0.5f, 0.2f, 0.7f, 1, -1, false},
    {2, 0.9f, 0, 1.2f, 0, 3, true},
    {1, 1, 0, 1, 0, 0, false},
    {1, 0.95f, 0, 1, 0, 0, false},
    {0.7f, 1, 0.1f, 1, 101, 0, false},
    {3, 0.999f, 1e-4f, 1.5f, 1000, 8, false},
    {0.01f, 0.3f, 0, 1, 5000000, 0, false},
    {1e-30f, 1, 0, 1, 3, 0, false},
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

typedef struct runner {
    int n_run, n_failed, n_vocab;
    rng random;
    bool large; /* cases with a large vocabulary only, or only others */
} runner;

/* One sequence as the test follows it. */
typedef struct sequence {
    quern_sampler *sampler;
    setting set;
    int32_t history[64];
    int n;
    int32_t banned[2];
} sequence;

static qn_cuda_choice least_choice(const setting *s)
{
    return s->temperature == 0                         ? QN_CHOOSE_BEST
           : s->top_k > 0 && s->top_k <= QN_CUDA_TOP_K ? QN_CHOOSE_TOP_K
                                                       : QN_CHOOSE_FULL;
}

static void start_row(runner *r, qn_exec *emu, sequence *q, int row, const setting *s, int n_vocab)
{
    const qn_cuda_mem *m = emu_exec_mem(emu);
    quern_sampler_params p = {.temperature = s->temperature,
                              .top_k = s->top_k,
                              .top_p = s->top_p,
                              .min_p = s->min_p,
                              .repeat_penalty = s->penalty,
                              .repeat_last_n = s->last_n,
                              .seed = (uint64_t)next(&r->random) << 31 | next(&r->random)};
    quern_error err;
    q->set = *s;
    if (quern_sampler_new(&q->sampler, &p, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    q->n = 1 + (int)(next(&r->random) % 20);
    for (int i = 0; i < q->n; i++) {
        q->history[i] = (int32_t)(next(&r->random) % (uint32_t)n_vocab);
    }
    bool penalty = s->penalty != 1 && s->last_n != 0;
    qn_cuda_sampling d = {.inv_temp = s->temperature == 0 ? 1 : 1.0 / (double)s->temperature,
                          .top_p = (double)s->top_p,
                          .least = (double)s->min_p * 0x1p44,
                          .seed = p.seed,
                          .penalty = s->penalty,
                          .top_k = s->top_k,
                          .last_n = penalty ? s->last_n : 0,
                          .flags = (s->temperature == 0 ? QN_SAMPLE_GREEDY : 0) |
                                   (penalty || s->ban ? QN_SAMPLE_MARKED : 0)};
    emu_put(m->sampling + sizeof d * (size_t)row, &d, sizeof d);
    uint32_t *marks = calloc((size_t)n_vocab, sizeof *marks);
    int first = d.last_n < 0 ? 0 : q->n > d.last_n ? q->n - d.last_n : 0;
    for (int i = first; i < q->n; i++) {
        marks[q->history[i]]++;
    }
    for (int i = 0; s->ban && i < 2; i++) {
        q->banned[i] = (int32_t)(next(&r->random) % (uint32_t)n_vocab);
        marks[q->banned[i]] |= QN_MARK_BANNED;
    }
    emu_put(m->marks + sizeof *marks * (size_t)row * (size_t)n_vocab, marks, sizeof *marks * (size_t)n_vocab);
    emu_put(m->history + sizeof(int32_t) * (size_t)row * (size_t)emu->opts.n_ctx, q->history,
            sizeof(int32_t) * (size_t)q->n);
    free(marks);
}

static int check_row(runner *r, sequence *q, const float *logits, int32_t id, int step, qn_err *err)
{
    int32_t want;
    quern_error e;
    float *masked = malloc(sizeof *masked * (size_t)r->n_vocab);
    memcpy(masked, logits, sizeof *masked * (size_t)r->n_vocab);
    for (int i = 0; q->set.ban && i < 2; i++) {
        masked[q->banned[i]] = -INFINITY;
    }
    if (quern_sample(q->sampler, masked, r->n_vocab, q->history, (size_t)q->n, &want, &e)) {
        want = strstr(e.text, "NaN") ? QN_CHOSE_NAN : strstr(e.text, "is inf") ? QN_CHOSE_INF : QN_CHOSE_NONE;
    }
    free(masked);
    q->history[q->n++] = want < 0 ? 0 : want;
    return id == want ? 0 : qn_fail(err, "step %d: the device chose %d, the host %d", step, id, want);
}

/* Some steps of n rows, each with its setting. */
static int run_steps(runner *r, qn_exec *emu, const setting *const *sets, int n, int steps, int bad,
                     qn_err *err)
{
    const qn_cuda_mem *m = emu_exec_mem(emu);
    int n_vocab = r->n_vocab, rc = 0;
    qn_cuda_choice how = QN_CHOOSE_BEST;
    sequence q[ROWS] = {0};
    qn_cuda_state s = {.n_rows = n, .n_out = n, .many = n > 1};
    for (int i = 0; i < n; i++) {
        start_row(r, emu, &q[i], i, sets[i], n_vocab);
        qn_cuda_choice own = least_choice(sets[i]);
        how = own > how ? own : how;
        s.rows[i].pos = q[i].n - 1;
    }
    s.pos = q[0].n - 1;
    emu_put(m->state, &s, sizeof s);
    float *logits = malloc(sizeof *logits * (size_t)n_vocab * (size_t)n);
    for (int step = 0; step < steps && rc == 0; step++) {
        for (int i = 0; i < n; i++) {
            float *x = logits + (size_t)i * (size_t)n_vocab;
            fill(x, n_vocab, (int)(next(&r->random) % SHAPES), &r->random);
            if (bad && i == n - 1 && step == steps - 1) {
                for (int k = 0; k < (bad == 3 ? n_vocab : 1); k++) {
                    x[bad == 3 ? k : (int)(next(&r->random) % (uint32_t)n_vocab)] = bad == 1   ? NAN
                                                                                    : bad == 2 ? INFINITY
                                                                                               : -INFINITY;
                }
            }
        }
        emu_put(m->bufs[emu->plans->decode.logits_buf], logits, sizeof *logits * (size_t)n_vocab * (size_t)n);
        rc = emu_exec_choose(emu, how, n, err);
        const int32_t *ring = (const int32_t *)(uintptr_t)m->ring;
        const qn_cuda_state *now = (const qn_cuda_state *)(uintptr_t)m->state;
        const int32_t *tokens = (const int32_t *)(uintptr_t)m->tokens;
        for (int i = 0; i < n && rc == 0; i++) {
            rc = check_row(r, &q[i], logits + (size_t)i * (size_t)n_vocab, ring[step * QN_MAX_SEQ + i], step,
                           err);
            int pos = n > 1 ? now->rows[i].pos : now->pos;
            int32_t token = n > 1 ? tokens[i] : now->token;
            if (rc == 0 && (pos != q[i].n - 1 || token != q[i].history[q[i].n - 1])) {
                rc = qn_fail(err, "step %d: position %d and token %d are left, not %d and %d", step, pos,
                             token, q[i].n - 1, q[i].history[q[i].n - 1]);
            }
        }
    }
    for (int i = 0; i < n; i++) {
        quern_sampler_free(q[i].sampler);
    }
    free(logits);
    return rc;
}

static void note(runner *r, int rc, const char *what, int a, int b, const qn_err *err)
{
    r->n_run++;
    if (rc) {
        r->n_failed++;
        printf("FAILED n_vocab %d, %s %d %d: %s\n", r->n_vocab, what, a, b, err->text);
    }
}

static int run_case(void *user, emu_case *c)
{
    runner *r = user;
    if (r->n_vocab == c->model.n_vocab || (c->model.n_vocab > 100000) != r->large) {
        return 0; /* cases differ in more than their vocabulary */
    }
    r->n_vocab = c->model.n_vocab;
    qn_exec *emu;
    qn_err err;
    int n_program;
    emu_exec_opts eo = {.variant = QN_VARIANT_SM80, .multiprocessors = CASE_MULTIPROCESSORS, .seed = 3};
    eo.programs = emu_programs(&n_program);
    eo.n_program = n_program;
    c->exec.n_seq = ROWS;
    if (emu_exec_new(&emu, &c->plans, &c->exec, &eo, &err)) {
        printf("FAILED: %s\n", err.text);
        return 1;
    }
    int steps = r->n_vocab < 100 ? 6 : r->n_vocab < 10000 ? 3 : 1;
    for (int i = 0; i < N_SETTINGS; i++) {
        if (r->large && i % 3 != 2) {
            continue;
        }
        const setting *one = &settings[i];
        for (int k = 0; k < (r->n_vocab < 100 ? 6 : r->n_vocab < 10000 ? 3 : 1); k++) {
            note(r, run_steps(r, emu, &one, 1, steps, 0, &err), "setting", i, k, &err);
        }
        for (int bad = 1; bad <= 3 && r->n_vocab < 10000; bad++) {
            note(r, run_steps(r, emu, &one, 1, 1, bad, &err), "setting, bad logits", i, bad, &err);
        }
    }
    for (int i = 0; i < N_SETTINGS && r->n_vocab < 10000; i++) {
        const setting *three[ROWS] = {&settings[i], &settings[(i + 3) % N_SETTINGS],
                                      &settings[(i * 5 + 1) % N_SETTINGS]};
        note(r, run_steps(r, emu, three, ROWS, steps, i % 4, &err), "rows", i, 0, &err);
    }
    emu->free(emu);
    return 0;
}

int main(int argc, char **argv)
{
    static runner r = {.random = {9}};
    r.large = argc > 1 && strcmp(argv[1], "large") == 0;
    int rc = emu_cases("argmax", run_case, &r);
    printf("%d runs, %d failed\n", r.n_run, r.n_failed);
    return rc || r.n_failed || r.n_run == 0;
}
