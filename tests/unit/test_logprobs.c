#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"

static void test_order_and_values(void **state)
{
    (void)state;
    const float logits[] = {1, 3, -INFINITY, 3, 2, -100};
    quern_logprob top[6];
    quern_error err;
    float chosen;
    assert_int_equal(quern_logprobs(logits, 6, 4, &chosen, top, 6, &err), 0);
    const int32_t order[] = {1, 3, 4, 0, 5, 2};
    double norm = log(exp(1) + 2 * exp(3) + exp(2) + exp(-100));
    for (int i = 0; i < 6; i++) {
        assert_int_equal(top[i].token, order[i]);
        double want = logits[order[i]] - norm;
        assert_true(top[i].logprob == want || fabs(top[i].logprob - want) < 1e-5);
    }
    assert_float_equal(chosen, 2 - norm, 1e-6);
    for (int n = 0; n < 6; n++) { /* a shorter list is the beginning of the longest */
        quern_logprob few[6];
        assert_int_equal(quern_logprobs(logits, 6, 0, NULL, few, n, &err), 0);
        for (int i = 0; i < n; i++) {
            assert_int_equal(few[i].token, top[i].token);
            assert_true(few[i].logprob == top[i].logprob);
        }
    }
    assert_int_equal(quern_logprobs(logits, 6, 2, &chosen, NULL, 0, &err), 0);
    assert_true(chosen == -INFINITY);
}

static void test_large_logits(void **state)
{
    (void)state;
    float logits[1000], chosen;
    quern_error err;
    for (int i = 0; i < 1000; i++) {
        logits[i] = 3e38f; /* their exponentials alone would overflow */
    }
    assert_int_equal(quern_logprobs(logits, 1000, 999, &chosen, NULL, 0, &err), 0);
    assert_float_equal(chosen, -log(1000), 1e-5);
}

static void test_refusals(void **state)
{
    (void)state;
    float logits[] = {0, NAN, 1};
    quern_logprob top[8];
    quern_error err;
    float chosen;
    assert_int_equal(quern_logprobs(logits, 3, 0, &chosen, top, 2, &err), -1);
    assert_non_null(strstr(err.text, "token 1 is NaN"));
    logits[1] = INFINITY;
    assert_int_equal(quern_logprobs(logits, 3, 0, &chosen, top, 2, &err), -1);
    logits[0] = logits[1] = logits[2] = -INFINITY;
    assert_int_equal(quern_logprobs(logits, 3, 0, &chosen, top, 2, &err), -1);
    logits[0] = 1;
    assert_int_equal(quern_logprobs(logits, 3, 3, &chosen, top, 2, &err), -1);
    assert_int_equal(quern_logprobs(logits, 3, -1, &chosen, top, 2, &err), -1);
    assert_int_equal(quern_logprobs(logits, 3, 0, &chosen, top, 4, &err), -1);
    assert_int_equal(quern_logprobs(logits, 3, 0, &chosen, top, -1, &err), -1);
    assert_int_equal(quern_logprobs(logits, 0, 0, &chosen, top, 0, &err), -1);
    assert_int_equal(quern_logprobs(logits, 3, -1, NULL, top, 2, &err), 0); /* no token asked for */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_values),
        cmocka_unit_test(test_large_logits),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
