// The sampler against distributions and hand values, one filter at a time.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quern.h"
#include "engine/sampler.h"

/* The number in [0, 1) that decides the token after n_history tokens. */
static double uniform(uint64_t seed, uint64_t n_history)
{
    return (double)(qn_sampler_random(seed, n_history) >> 11) * 0x1p-53;
}

static quern_sampler_params plain(void)
{
    return (quern_sampler_params){.temperature = 1,
                                  .top_k = 0,
                                  .top_p = 1,
                                  .min_p = 0,
                                  .repeat_penalty = 1,
                                  .repeat_last_n = 64,
                                  .seed = 1};
}

static int32_t sample(const quern_sampler_params *p, const float *logits, int n, const int32_t *history,
                      size_t n_history)
{
    quern_sampler *s;
    quern_error err;
    int32_t token = -1;
    assert_int_equal(quern_sampler_new(&s, p, &err), 0);
    if (quern_sample(s, logits, n, history, n_history, &token, &err) != 0) {
        fail_msg("%s", err.text);
    }
    quern_sampler_free(s);
    return token;
}

/* Draws at n history lengths; counts[token]++. */
static void count_draws(const quern_sampler_params *p, const float *logits, int n, int draws, int *counts)
{
    quern_sampler *s;
    quern_error err;
    memset(counts, 0, (size_t)n * sizeof *counts);
    assert_int_equal(quern_sampler_new(&s, p, &err), 0);
    int32_t *history = calloc((size_t)draws, sizeof *history);
    for (int i = 0; i < draws; i++) {
        int32_t token;
        history[i] = -1; /* outside the vocabulary: never penalised */
        assert_int_equal(quern_sample(s, logits, n, history, (size_t)i, &token, &err), 0);
        assert_in_range(token, 0, n - 1);
        counts[token]++;
    }
    free(history);
    quern_sampler_free(s);
}

/* Which of the n <= 31 tokens 3000 draws reach, as bits. */
static unsigned support(const quern_sampler_params *p, const float *logits, int n)
{
    int counts[31];
    unsigned bits = 0;
    count_draws(p, logits, n, 3000, counts);
    for (int i = 0; i < n; i++) {
        bits |= counts[i] > 0 ? 1u << i : 0;
    }
    return bits;
}

/* 1/2, 1/4, 1/8, 1/8 with an offset, which must not matter. */
static const double quarters_p[4] = {0.5, 0.25, 0.125, 0.125};
static void quarters(float logits[4])
{
    for (int i = 0; i < 4; i++) {
        logits[i] = (float)(log(quarters_p[i]) + 7);
    }
}

static void test_philox(void **state)
{
    (void)state;
    /* Known answers published with the generator (Random123, kat_vectors). */
    const uint32_t zero[4] = {0}, ones[4] = {~0u, ~0u, ~0u, ~0u},
                   pi[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
    const uint32_t pi_key[2] = {0xa4093822, 0x299f31d0};
    const uint32_t want_zero[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    const uint32_t want_ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    const uint32_t want_pi[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    uint32_t out[4];
    qn_philox(zero, zero, out);
    assert_memory_equal(out, want_zero, sizeof out);
    qn_philox(ones, ones, out);
    assert_memory_equal(out, want_ones, sizeof out);
    qn_philox(pi, pi_key, out);
    assert_memory_equal(out, want_pi, sizeof out);
}

static void test_uniform(void **state)
{
    (void)state;
    double sum = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        double u = uniform(42, i);
        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(fabs(sum / 20000 - 0.5) < 0.01);
    assert_true(uniform(1, 5) != uniform(2, 5));
    assert_true(uniform(1, 5) != uniform(1, 6));
    assert_true(uniform(1, 5) != uniform(1ull << 32 | 1, 5));
}

static void test_exp(void **state)
{
    (void)state;
    assert_true(qn_exp_portable(0) == 1);
    assert_true(qn_exp_portable(-INFINITY) == 0);
    assert_true(qn_exp_portable(-1e9) == 0);
    for (double x = 0; x > -700; x -= 0.0137) {
        assert_true(fabs(qn_exp_portable(x) / exp(x) - 1) < 5e-16);
    }
    /* These bits must come out everywhere. */
    assert_true(qn_exp_portable(-1) == 0x1.78b56362cef38p-2);
}

static void test_params(void **state)
{
    (void)state;
    quern_sampler *s;
    quern_error err;
    quern_sampler_params d = quern_sampler_defaults();
    assert_true(d.temperature == 0.8f && d.top_k == 40 && d.top_p == 0.95f && d.min_p == 0.05f &&
                d.repeat_penalty == 1.0f && d.repeat_last_n == 64);
    quern_sampler_params bad[12];
    for (int i = 0; i < 12; i++) {
        bad[i] = d;
    }
    bad[0].temperature = -0.1f;
    bad[1].temperature = NAN;
    bad[2].temperature = INFINITY;
    bad[3].top_k = -1;
    bad[4].top_p = 1.5f;
    bad[5].top_p = NAN;
    bad[6].min_p = -0.1f;
    bad[7].min_p = 1.1f;
    bad[8].repeat_penalty = 0;
    bad[9].repeat_penalty = NAN;
    bad[10].repeat_last_n = -2;
    bad[11].top_p = -0.5f;
    for (int i = 0; i < 12; i++) {
        err.text[0] = 0;
        assert_int_equal(quern_sampler_new(&s, &bad[i], &err), -1);
        assert_null(s);
        assert_true(strlen(err.text) > 10);
    }
}

static void test_greedy(void **state)
{
    (void)state;
    quern_sampler_params p = plain();
    p.temperature = 0;
    const float ties[5] = {1, 3, 2, 3, 3}, low[3] = {-INFINITY, -5, -4}, flat[4] = {0, 0, 0, 0};
    for (p.seed = 0; p.seed < 20; p.seed++) {
        assert_int_equal(sample(&p, ties, 5, NULL, 0), 1);
        assert_int_equal(sample(&p, low, 3, NULL, 0), 2);
        assert_int_equal(sample(&p, flat, 4, NULL, 0), 0);
    }
    p.top_k = 1; /* filters keep the best token whatever they are */
    p.top_p = 0;
    p.min_p = 1;
    assert_int_equal(sample(&p, ties, 5, NULL, 0), 1);
}

static void test_bad_logits(void **state)
{
    (void)state;
    quern_sampler *s;
    quern_error err;
    int32_t token = 77;
    float nan_at_end[4] = {0, 1, 2, NAN}, inf[3] = {0, INFINITY, 1}, none[2] = {-INFINITY, -INFINITY};
    for (int greedy = 0; greedy < 2; greedy++) {
        quern_sampler_params p = plain();
        p.temperature = greedy ? 0 : 1;
        assert_int_equal(quern_sampler_new(&s, &p, &err), 0);
        assert_int_equal(quern_sample(s, nan_at_end, 4, NULL, 0, &token, &err), -1);
        assert_non_null(strstr(err.text, "token 3 is NaN"));
        assert_int_equal(quern_sample(s, inf, 3, NULL, 0, &token, &err), -1);
        assert_non_null(strstr(err.text, "token 1 is inf"));
        assert_int_equal(quern_sample(s, none, 2, NULL, 0, &token, &err), -1);
        assert_int_equal(quern_sample(s, none, 0, NULL, 0, &token, &err), -1);
        assert_int_equal(token, 77);
        assert_int_equal(quern_sample(s, nan_at_end, 3, NULL, 0, &token, &err), 0); /* still of use */
        quern_sampler_free(s);
        token = 77;
    }
}

/* The draw is the inverse of the cumulative distribution in order of probability: exact, token by token. */
static void test_draw_is_inverse_cdf(void **state)
{
    (void)state;
    float logits[4];
    quarters(logits);
    quern_sampler_params p = plain();
    int32_t history[1000] = {0};
    for (size_t n = 0; n < 1000; n++) {
        double u = uniform(p.seed, n);
        int32_t want = u < 0.5 ? 0 : u < 0.75 ? 1 : u < 0.875 ? 2 : 3;
        assert_int_equal(sample(&p, logits, 4, history, n), want);
    }
    /* Likeliest first, whatever the ids. */
    const float reversed[4] = {logits[3], logits[2], logits[1], logits[0]};
    for (size_t n = 0; n < 1000; n++) {
        double u = uniform(p.seed, n);
        int32_t want = u < 0.5 ? 3 : u < 0.75 ? 2 : u < 0.875 ? 0 : 1; /* equals: lowest id first */
        assert_int_equal(sample(&p, reversed, 4, history, n), want);
    }
}

static void expect_frequencies(const quern_sampler_params *p, const float *logits, int n, const double *want)
{
    enum { DRAWS = 20000 };
    int counts[16];
    double chi2 = 0;
    count_draws(p, logits, n, DRAWS, counts);
    for (int i = 0; i < n; i++) {
        if (want[i] == 0) {
            assert_int_equal(counts[i], 0);
        } else {
            chi2 += pow(counts[i] - want[i] * DRAWS, 2) / (want[i] * DRAWS);
        }
    }
    assert_true(chi2 < 25); /* at most 3 degrees of freedom: P < 2e-5, and the draws are fixed */
}

static void test_distribution(void **state)
{
    (void)state;
    float logits[4];
    quarters(logits);
    quern_sampler_params p = plain();
    expect_frequencies(&p, logits, 4, quarters_p);
    p.temperature = 0.5f; /* p^2: 16 : 4 : 1 : 1 */
    expect_frequencies(&p, logits, 4, (const double[]){16 / 22., 4 / 22., 1 / 22., 1 / 22.});
    p.temperature = 2; /* sqrt p */
    double z = sqrt(0.5) + 0.5 + 2 * sqrt(0.125);
    expect_frequencies(&p, logits, 4,
                       (const double[]){sqrt(0.5) / z, 0.5 / z, sqrt(0.125) / z, sqrt(0.125) / z});
    p.temperature = 1;
    p.top_k = 2;
    expect_frequencies(&p, logits, 4, (const double[]){2 / 3., 1 / 3., 0, 0});
    p.top_k = 0;
    p.min_p = 0.3f; /* of 0.5: tokens of at least 0.15 */
    expect_frequencies(&p, logits, 4, (const double[]){2 / 3., 1 / 3., 0, 0});
    p.min_p = 0;
    p.top_p = 0.8f;
    expect_frequencies(&p, logits, 4, (const double[]){4 / 7., 2 / 7., 1 / 7., 0});
    const float with_inf[4] = {logits[0], -INFINITY, logits[1], -INFINITY};
    p.top_p = 1;
    expect_frequencies(&p, with_inf, 4, (const double[]){2 / 3., 0, 1 / 3., 0});
}

static void test_filters(void **state)
{
    (void)state;
    float logits[4];
    quarters(logits);
    const struct {
        int top_k;
        float top_p, min_p;
        unsigned want;
    } cases[] = {
        {0, 1, 0, 0xf},     {1, 1, 0, 0x1},        {3, 1, 0, 0x7}, /* equals: the lower id stays */
        {4, 1, 0, 0xf},     {1000, 1, 0, 0xf},     {0, 0, 0, 0x1},
        {0, 0.49f, 0, 0x1}, {0, 0.51f, 0, 0x3},    {0, 0.74f, 0, 0x3},
        {0, 0.76f, 0, 0x7}, {0, 0.88f, 0, 0xf},    {2, 0.6f, 0, 0x1}, /* of 2/3 + 1/3 */
        {2, 0.7f, 0, 0x3},  {0, 0.6f, 0, 0x3},     {0, 1, 0.24f, 0xf},
        {0, 1, 0.26f, 0x3}, {0, 1, 0.49f, 0x3},    {0, 1, 0.51f, 0x1},
        {0, 1, 1, 0x1},     {3, 0.95f, 0.1f, 0x7}, {3, 0.7f, 0.6f, 0x1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        quern_sampler_params p = plain();
        p.top_k = cases[i].top_k;
        p.top_p = cases[i].top_p;
        p.min_p = cases[i].min_p;
        if (support(&p, logits, 4) != cases[i].want) {
            fail_msg("case %zu: tokens %x, not %x", i, support(&p, logits, 4), cases[i].want);
        }
        p.temperature = 1.5f; /* filters come before temperature */
        if (support(&p, logits, 4) != cases[i].want) {
            fail_msg("case %zu at temperature 1.5: tokens %x, not %x", i, support(&p, logits, 4),
                     cases[i].want);
        }
    }
}

/* Filters that leave the same tokens leave the same draws. */
static void test_equal_sets_draw_alike(void **state)
{
    (void)state;
    float logits[50];
    for (int i = 0; i < 50; i++) {
        logits[i] = sinf((float)(7 * i)) * 3;
    }
    quern_sampler_params off = plain(), k = plain(), p_almost = plain(), m = plain();
    k.top_k = 50;
    p_almost.top_p = 0.9999999f;
    m.min_p = 1e-6f;
    int32_t history[500] = {0};
    for (size_t n = 0; n < 500; n++) {
        int32_t want = sample(&off, logits, 50, history, n);
        assert_int_equal(sample(&k, logits, 50, history, n), want);
        assert_int_equal(sample(&p_almost, logits, 50, history, n), want);
        assert_int_equal(sample(&m, logits, 50, history, n), want);
    }
}

static void test_penalty(void **state)
{
    (void)state;
    quern_sampler_params p = plain();
    p.temperature = 0;
    p.repeat_penalty = 2;
    const float positive[3] = {4, 3, 1}, negative[3] = {-1, -1.5f, -9}, mixed[2] = {0.5f, -0.1f};
    const int32_t zero[4] = {0, 0, 0, 0}, mix[5] = {0, 2, 2, -7, 1000};
    assert_int_equal(sample(&p, positive, 3, NULL, 0), 0);
    assert_int_equal(sample(&p, positive, 3, zero, 4), 1); /* 4 / 2 < 3 */
    assert_int_equal(sample(&p, negative, 3, zero, 1), 1); /* -1 * 2 < -1.5 */
    assert_int_equal(sample(&p, mixed, 2, zero, 4), 0);    /* once, and a positive logit stays positive */
    assert_int_equal(sample(&p, positive, 3, mix, 5), 1);  /* ids outside the vocabulary are skipped */
    p.repeat_penalty = 1.3f;
    assert_int_equal(sample(&p, positive, 3, zero, 4), 0); /* 4 / 1.3 > 3: once, however often it was seen */
    p.repeat_penalty = 0.5f;
    assert_int_equal(sample(&p, positive, 3, (const int32_t[]){1}, 1), 1); /* below 1: a reward */
    p.repeat_penalty = 2;
    p.repeat_last_n = 0;
    assert_int_equal(sample(&p, positive, 3, zero, 4), 0);
    p.repeat_last_n = 2;
    assert_int_equal(sample(&p, positive, 3, (const int32_t[]){0, 2, 2}, 3), 0); /* out of the window */
    assert_int_equal(sample(&p, positive, 3, (const int32_t[]){2, 0, 2}, 3), 1);
    p.repeat_last_n = -1;
    int32_t longer[300] = {0};
    for (int i = 1; i < 300; i++) {
        longer[i] = 2;
    }
    assert_int_equal(sample(&p, positive, 3, longer, 300), 1);
}

/* The marks of one call must not be seen by the next. */
static void test_penalty_state(void **state)
{
    (void)state;
    quern_sampler_params p = plain();
    p.temperature = 0;
    p.repeat_penalty = 2;
    quern_sampler *s;
    quern_error err;
    int32_t token;
    const float logits[2] = {4, 3};
    const int32_t zero = 0, one = 1;
    assert_int_equal(quern_sampler_new(&s, &p, &err), 0);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(quern_sample(s, logits, 2, &zero, 1, &token, &err), 0);
        assert_int_equal(token, 1);
        assert_int_equal(quern_sample(s, logits, 2, &one, 1, &token, &err), 0);
        assert_int_equal(token, 0);
    }
    quern_sampler_free(s);
}

static void test_seed(void **state)
{
    (void)state;
    float logits[64] = {0};
    quern_sampler_params p = plain();
    int same = 0;
    int32_t history[200] = {0};
    for (size_t n = 0; n < 200; n++) {
        p.seed = 123456789012345ull;
        int32_t a = sample(&p, logits, 64, history, n), b = sample(&p, logits, 64, history, n);
        p.seed = 123456789012346ull;
        assert_int_equal(a, b);
        same += a == sample(&p, logits, 64, history, n);
    }
    assert_true(same < 20); /* 3 expected by chance */
}

static const float *sort_logits;
static int by_logit(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    float lx = sort_logits[x], ly = sort_logits[y];
    return lx > ly ? -1 : lx < ly ? 1 : x - y;
}

/* A large vocabulary with many equal logits: top-k is the front of a full sort. */
static void test_large_vocabulary(void **state)
{
    (void)state;
    enum { N = 150000 };
    float *logits = malloc(N * sizeof *logits);
    int32_t *order = malloc(N * sizeof *order);
    uint32_t x = 1;
    for (int i = 0; i < N; i++) {
        x = x * 1664525u + 1013904223u;
        logits[i] = (float)(x >> 22) / 64;
        order[i] = i;
    }
    sort_logits = logits;
    qsort(order, N, sizeof *order, by_logit);
    quern_sampler_params p = plain();
    p.top_k = 300;
    p.temperature = 50;
    int32_t history[200] = {0};
    for (size_t n = 0; n < 200; n++) {
        double u = uniform(p.seed, n), total = 0, sum = 0;
        for (int i = 0; i < 300; i++) {
            total += exp((logits[order[i]] - logits[order[0]]) / 50.0);
        }
        int want = 0;
        for (; want < 299; want++) {
            sum += exp((logits[order[want]] - logits[order[0]]) / 50.0);
            if (sum > u * total) {
                break;
            }
        }
        assert_int_equal(sample(&p, logits, N, history, n), order[want]);
    }
    free(order);
    free(logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox),
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_params),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_bad_logits),
        cmocka_unit_test(test_draw_is_inverse_cdf),
        cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_filters),
        cmocka_unit_test(test_equal_sets_draw_alike),
        cmocka_unit_test(test_penalty),
        cmocka_unit_test(test_penalty_state),
        cmocka_unit_test(test_seed),
        cmocka_unit_test(test_large_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
