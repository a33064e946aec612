// Bytes and operations of steps, against sums done by hand.
// rooms: room_codegen
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "codegen/cost.h"

static void products(void **state)
{
    (void)state;
    const qn_tensor w = {.type = QN_F16, .ne = {64, 32, 1, 1}, .n_bytes = 64 * 32 * 2};
    qn_step s = {.op = &qn_ops[QN_OP_LINEAR], .rows = QN_ROWS_TOKENS, .w = {&w}};
    s.spec.linear = (qn_spec_linear){.n_in = 64, .n_out = 32, .n_seg = 1};
    qn_cost c = qn_step_cost(&s, 7, 100, 1);
    assert_true(c.bytes == 4096 && c.flop == 2.0 * 64 * 32 * 7);
    s.rows = QN_ROWS_OUTPUTS;
    c = qn_step_cost(&s, 7, 100, 1);
    assert_true(c.bytes == 4096 && c.flop == 2.0 * 64 * 32);
    c = qn_step_cost(&s, 7, 100, 0); // no logits asked for: the head is not run
    assert_true(c.bytes == 0 && c.flop == 0);
    s = (qn_step){.op = &qn_ops[QN_OP_GLU], .rows = QN_ROWS_TOKENS, .w = {&w, NULL, NULL, &w}};
    s.spec.glu = (qn_spec_glu){.n_in = 64, .n_ff = 32};
    c = qn_step_cost(&s, 3, 0, 1);
    assert_true(c.bytes == 8192 && c.flop == 2.0 * 2 * 64 * 32 * 3);
}

static void attention(void **state)
{
    (void)state;
    qn_step s = {.op = &qn_ops[QN_OP_ATTENTION], .rows = QN_ROWS_TOKENS};
    s.spec.attention = (qn_spec_attention){.n_head = 8, .n_head_kv = 2, .k_dim = 16, .v_dim = 4};
    qn_cost c = qn_step_cost(&s, 3, 10, 1); // 11 + 12 + 13 keys, the last sees 13
    assert_true(c.flop == 2.0 * 8 * 20 * 36 && c.bytes == 2.0 * 2 * 20 * 13);
    s.spec.attention.window = 12;
    c = qn_step_cost(&s, 3, 10, 1); // 11 + 12 + 12
    assert_true(c.flop == 2.0 * 8 * 20 * 35 && c.bytes == 2.0 * 2 * 20 * 12);
    qn_step two[2] = {s, s};
    const qn_plan plan = {.n_step = 2, .steps = two};
    qn_cost sum = qn_plan_cost(&plan, 3, 10, 1);
    assert_true(sum.flop == 2 * c.flop && sum.bytes == 2 * c.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(products), cmocka_unit_test(attention)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
