/* sampler.c: penalties, top-k, top-p, min-p, temperature and a draw that depends on nothing but its
 * arguments.
 *
 * Candidates are ordered by logit, highest first, lowest id first among equals. They come out of a heap one
 * at a time, as far as the filters and the draw need them. */
#include "engine/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "engine/engine.h"

struct quern_sampler {
    quern_sampler_params p;
    int cap;         /* vocabulary size the arrays below hold */
    float *logits;   /* [cap] penalised copy */
    int32_t *ids;    /* [cap] heap, sorted part at its end */
    uint32_t *stamp; /* [cap] equals `round` where the id was penalised in this call */
    uint32_t round;
};

/* ids[0, n_heap) is a heap with the best candidate on top; ids[n_heap, n) holds the best n - n_heap, best
 * last. */
typedef struct candidates {
    const float *logits;
    int32_t *ids;
    int n, n_heap;
} candidates;

qn_choice qn_sampler_choice(const quern_sampler *s)
{
    return (qn_choice){.temperature = s->p.temperature,
                       .top_p = s->p.top_p,
                       .min_p = s->p.min_p,
                       .repeat_penalty = s->p.repeat_penalty,
                       .top_k = s->p.top_k,
                       .repeat_last_n = s->p.repeat_last_n,
                       .seed = s->p.seed};
}

void qn_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4], k0 = key[0], k1 = key[1];
    memcpy(c, counter, sizeof c);
    for (int i = 0; i < 10; i++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        c[0] = (uint32_t)(b >> 32) ^ c[1] ^ k0;
        c[2] = (uint32_t)(a >> 32) ^ c[3] ^ k1;
        c[1] = (uint32_t)b;
        c[3] = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof c);
}

uint64_t qn_sampler_random(uint64_t seed, uint64_t n_history)
{
    uint32_t counter[4] = {(uint32_t)n_history, (uint32_t)(n_history >> 32), 0, 0};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t r[4];
    qn_philox(counter, key, r);
    return (uint64_t)r[0] << 32 | r[1];
}

double qn_exp_portable(double x)
{
    if (!(x > -708.0)) {
        return 0.0;
    }
    /* x = k ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts, the first with room for an exact product. */
    double k = floor(x * 0x1.71547652b82fep0 + 0.5);
    double r = (x - k * 0x1.62e42feep-1) - k * 0x1.a39ef35793c76p-33;
    static const double factorials[15] = {/* 1 / i! */
                                          0x1p+0,
                                          0x1p+0,
                                          0x1p-1,
                                          0x1.5555555555555p-3,
                                          0x1.5555555555555p-5,
                                          0x1.1111111111111p-7,
                                          0x1.6c16c16c16c17p-10,
                                          0x1.a01a01a01a01ap-13,
                                          0x1.a01a01a01a01ap-16,
                                          0x1.71de3a556c734p-19,
                                          0x1.27e4fb7789f5cp-22,
                                          0x1.ae64567f544e4p-26,
                                          0x1.1eed8eff8d898p-29,
                                          0x1.6124613a86d09p-33,
                                          0x1.93974a8c07c9dp-37};
    double sum = factorials[14];
    for (int i = 13; i >= 0; i--) {
        sum = sum * r + factorials[i];
    }
    uint64_t bits = (uint64_t)((int64_t)k + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return sum * scale;
}

quern_sampler_params quern_sampler_defaults(void)
{
    return (quern_sampler_params){
        .temperature = 0.8f,
        .top_k = 40,
        .top_p = 0.95f,
        .min_p = 0.05f,
        .repeat_penalty = 1.0f,
        .repeat_last_n = 64,
        .seed = 0,
    };
}

static int check_params(const quern_sampler_params *p, qn_err *err)
{
    if (!(p->temperature >= 0) || !isfinite(p->temperature)) {
        return qn_fail(err, "temperature %g is not a finite number >= 0", (double)p->temperature);
    }
    if (p->top_k < 0) {
        return qn_fail(err, "top-k %d is negative (0 turns it off)", p->top_k);
    }
    if (!(p->top_p >= 0 && p->top_p <= 1)) {
        return qn_fail(err, "top-p %g is not in 0..1 (1 turns it off)", (double)p->top_p);
    }
    if (!(p->min_p >= 0 && p->min_p <= 1)) {
        return qn_fail(err, "min-p %g is not in 0..1 (0 turns it off)", (double)p->min_p);
    }
    if (!(p->repeat_penalty > 0) || !isfinite(p->repeat_penalty)) {
        return qn_fail(err, "repeat penalty %g is not a finite number > 0 (1 turns it off)",
                       (double)p->repeat_penalty);
    }
    if (p->repeat_last_n < -1) {
        return qn_fail(err, "repeat window %d is below -1 (-1: whole context, 0: off)", p->repeat_last_n);
    }
    return 0;
}

int quern_sampler_new(quern_sampler **out, const quern_sampler_params *params, quern_error *error)
{
    qn_err *err = qn_engine_err(error);
    *out = NULL;
    if (check_params(params, err) != 0) {
        return -1;
    }
    quern_sampler *s = qn_calloc(1, sizeof *s);
    if (s == NULL) {
        return qn_fail(err, "out of memory for a sampler");
    }
    s->p = *params;
    *out = s;
    return 0;
}

void quern_sampler_free(quern_sampler *s)
{
    if (s != NULL) {
        free(s->logits);
        free(s->ids);
        free(s->stamp);
        free(s);
    }
}

static int reserve(quern_sampler *s, int n_vocab, qn_err *err)
{
    if (s->cap >= n_vocab) {
        return 0;
    }
    free(s->logits);
    free(s->ids);
    free(s->stamp);
    s->logits = qn_calloc((size_t)n_vocab, sizeof *s->logits);
    s->ids = qn_calloc((size_t)n_vocab, sizeof *s->ids);
    s->stamp = qn_calloc((size_t)n_vocab, sizeof *s->stamp);
    s->round = 0;
    s->cap = s->logits != NULL && s->ids != NULL && s->stamp != NULL ? n_vocab : 0;
    return s->cap != 0 ? 0 : qn_fail(err, "out of memory for a sampler over %d tokens", n_vocab);
}

/* Each distinct token of the window once: positive logits are divided, others multiplied (Keskar et al.,
 * "CTRL", 2019, with the sign taken care of). */
static void penalise(quern_sampler *s, int n_vocab, const int32_t *history, size_t n_history)
{
    size_t window = s->p.repeat_last_n < 0 ? n_history : (size_t)s->p.repeat_last_n;
    if (s->p.repeat_penalty == 1.0f || window == 0) {
        return;
    }
    if (++s->round == 0) {
        memset(s->stamp, 0, (size_t)s->cap * sizeof *s->stamp);
        s->round = 1;
    }
    for (size_t i = n_history > window ? n_history - window : 0; i < n_history; i++) {
        int32_t id = history[i];
        if (id < 0 || id >= n_vocab || s->stamp[id] == s->round) {
            continue;
        }
        s->stamp[id] = s->round;
        s->logits[id] =
            s->logits[id] > 0 ? s->logits[id] / s->p.repeat_penalty : s->logits[id] * s->p.repeat_penalty;
    }
}

static bool better(const candidates *c, int32_t a, int32_t b)
{
    return c->logits[a] > c->logits[b] || (c->logits[a] == c->logits[b] && a < b);
}

static void sift_down(candidates *c, int i)
{
    int32_t id = c->ids[i];
    for (int child; (child = 2 * i + 1) < c->n_heap; i = child) {
        if (child + 1 < c->n_heap && better(c, c->ids[child + 1], c->ids[child])) {
            child++;
        }
        if (!better(c, c->ids[child], id)) {
            break;
        }
        c->ids[i] = c->ids[child];
    }
    c->ids[i] = id;
}

/* The i-th best candidate, i < n. */
static int32_t nth_best(candidates *c, int i)
{
    while (c->n - c->n_heap <= i) {
        int32_t top = c->ids[0];
        c->ids[0] = c->ids[--c->n_heap];
        c->ids[c->n_heap] = top;
        if (c->n_heap > 1) {
            sift_down(c, 0);
        }
    }
    return c->ids[c->n - 1 - i];
}

/* Weights are whole numbers of 2^-44, so that sums do not depend on the order of addition. */
static uint64_t weight(const candidates *c, int32_t id, double max, double inv_temp)
{
    return (uint64_t)(qn_exp_portable(((double)c->logits[id] - max) * inv_temp) * QN_SAMPLER_ONE);
}

/* Sum over the best `limit` candidates; below 2^64, as there are fewer than 2^20. */
static uint64_t total_weight(candidates *c, int limit, double max, double inv_temp)
{
    uint64_t total = 0;
    for (int i = 0; i < limit; i++) {
        total += weight(c, limit < c->n ? nth_best(c, i) : c->ids[i], max, inv_temp);
    }
    return total;
}

/* How many of the best candidates the filters leave, at least 1. */
static int filter(const quern_sampler_params *p, candidates *c, double max)
{
    int limit = p->top_k > 0 && p->top_k < c->n ? p->top_k : c->n;
    if (p->top_p < 1) {
        double goal = (double)p->top_p * (double)total_weight(c, limit, max, 1.0);
        uint64_t sum = 0;
        for (int i = 0; i < limit; i++) {
            sum += weight(c, nth_best(c, i), max, 1.0);
            if ((double)sum >= goal) {
                limit = i + 1;
            }
        }
    }
    if (p->min_p > 0) {
        double least = (double)p->min_p * QN_SAMPLER_ONE;
        for (int i = 1; i < limit; i++) {
            if ((double)weight(c, nth_best(c, i), max, 1.0) < least) {
                limit = i;
            }
        }
    }
    return limit;
}

/* The upper half of a product. */
static uint64_t multiply_high(uint64_t a, uint64_t b)
{
    uint64_t a0 = a & 0xffffffff, a1 = a >> 32, b0 = b & 0xffffffff, b1 = b >> 32;
    uint64_t mid = a1 * b0 + (a0 * b0 >> 32), low = a0 * b1 + (mid & 0xffffffff);
    return a1 * b1 + (mid >> 32) + (low >> 32);
}

/* The first candidate at which the sum of weights passes the random part of their total. */
static int32_t draw(candidates *c, int limit, double max, double inv_temp, uint64_t random)
{
    uint64_t goal = multiply_high(random, total_weight(c, limit, max, inv_temp)), sum = 0;
    for (int i = 0; i < limit - 1; i++) {
        sum += weight(c, nth_best(c, i), max, inv_temp);
        if (sum > goal) {
            return nth_best(c, i);
        }
    }
    return nth_best(c, limit - 1);
}

int quern_sample(quern_sampler *s, const float *logits, int n_vocab, const int32_t *history, size_t n_history,
                 int32_t *token, quern_error *error)
{
    qn_err *err = qn_engine_err(error);
    if (n_vocab < 1 || n_vocab >= QN_SAMPLER_MAX_VOCAB) {
        return qn_fail(err, "%s to sample from (n_vocab %d)", n_vocab < 1 ? "no logits" : "too many logits",
                       n_vocab);
    }
    if (reserve(s, n_vocab, err) != 0) {
        return -1;
    }
    for (int i = 0; i < n_vocab; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY) {
            return qn_fail(err, "logit of token %d is %s after %zu tokens", i,
                           isnan(logits[i]) ? "NaN" : "inf", n_history);
        }
    }
    memcpy(s->logits, logits, (size_t)n_vocab * sizeof *logits);
    penalise(s, n_vocab, history, n_history);
    candidates c = {.logits = s->logits, .ids = s->ids};
    int32_t best = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        if (s->logits[i] > -INFINITY) {
            c.ids[c.n++] = i;
            best = s->logits[i] > s->logits[best] ? i : best;
        }
    }
    if (c.n == 0) {
        return qn_fail(err, "every token's logit is -inf after %zu tokens", n_history);
    }
    if (s->p.temperature == 0) {
        *token = best;
        return 0;
    }
    c.n_heap = c.n;
    for (int i = c.n / 2 - 1; i >= 0; i--) {
        sift_down(&c, i);
    }
    double max = s->logits[best];
    int limit = filter(&s->p, &c, max);
    *token = draw(&c, limit, max, 1.0 / (double)s->p.temperature, qn_sampler_random(s->p.seed, n_history));
    return 0;
}
