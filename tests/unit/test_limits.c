// rooms: room_cpu
// The loops that measure what a CPU can do: all instruction sets read everything and count what they do.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "cpu/limits.h"
#include "cpu/limits_kernels.h"

static const qn_limits_kernels *kernels_of(qn_isa isa)
{
    const qn_limits_kernels *const all[QN_ISA_COUNT] = {
        &qn_limits_portable,
#if defined(__x86_64__)
        &qn_limits_avx2,
        &qn_limits_avx512,
#endif
    };
    return qn_isa_usable(isa) ? all[isa] : NULL;
}

static void every_byte_is_read(void **state)
{
    (void)state;
    enum { BYTES = 8192 };
    uint64_t *words = qn_alloc64(BYTES);
    assert_non_null(words);
    for (int isa = 0; isa < QN_ISA_COUNT; isa++) {
        const qn_limits_kernels *k = kernels_of((qn_isa)isa);
        for (int i = 0; k != NULL && i < BYTES / 8; i += 7) {
            memset(words, 0, BYTES);
            words[i] = (uint64_t)i * 0x9e3779b97f4a7c15u + 1;
            assert_true(k->read(words, BYTES) == words[i]);
        }
    }
    free(words);
}

static void operations_are_counted(void **state)
{
    (void)state;
    static const struct {
        double f32, int8; /* a round: two for each lane of each register */
    } want[QN_ISA_COUNT] = {{2 * 64, 2 * 64}, {2 * 8 * 12, 2 * 32 * 8}, {2 * 16 * 16, 2 * 64 * 16}};
    for (int isa = 0; isa < QN_ISA_COUNT; isa++) {
        const qn_limits_kernels *k = kernels_of((qn_isa)isa);
        double ops;
        if (k != NULL) {
            double few = k->f32(10, &ops);
            assert_true(ops == 10 * want[isa].f32);
            assert_true(k->f32(1000, &ops) != few); /* the rounds are done */
            few = k->int8(10, &ops);
            assert_true(ops == 10 * want[isa].int8);
            assert_true(k->int8(1001, &ops) != few);
        }
    }
}

static void refusals(void **state)
{
    (void)state;
    qn_cpu_limits l;
    qn_err err;
    assert_int_equal(qn_cpu_limits_measure(&l, 1, QN_ISA_PORTABLE, 1000, &err), -1);
    assert_non_null(strstr(err.text, "1000 bytes"));
    for (int isa = 0; isa < QN_ISA_COUNT; isa++) {
        if (!qn_isa_usable((qn_isa)isa)) {
            assert_int_equal(qn_cpu_limits_measure(&l, 1, (qn_isa)isa, 1 << 20, &err), -1);
            assert_non_null(strstr(err.text, qn_isa_name((qn_isa)isa)));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_is_read),
        cmocka_unit_test(operations_are_counted),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
