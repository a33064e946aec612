// The kernel that measures a device's memory compiles for every target. Needs an NVRTC; no GPU.
#include "unit/jit_util.h"

#include "codegen/jit.h"
#include "cuda/limits.h"

static void the_kernel_compiles(void **state)
{
    (void)state;
    static const char *const archs[] = {"sm_75", "sm_80", "sm_90a"};
    static qn_nvrtc nvrtc;
    qn_err err;
    if (qn_nvrtc_load(&nvrtc, 0, &err) != 0) {
        fail_msg("%s", err.text);
    }
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        qn_jit_opts o = {.nvrtc = &nvrtc, .n_threads = 1};
        qn_jit *jit;
        qn_source s;
        const qn_kernel *k;
        if (qn_arch_by_name(&o.arch, &nvrtc, archs[i], &err) != 0 || qn_jit_new(&jit, &o, &err) != 0 ||
            qn_cuda_limits_source(&s, o.arch.variant, &err) != 0) {
            fail_msg("%s", err.text);
        }
        qn_jit_program p = {"read_limit", s.spec, s.text, s.symbol};
        if (qn_jit_compile_all(jit, &p, 1, &k, &err) != 0) {
            fail_msg("%s", err.text);
        }
        const qn_kernel_entry *e = qn_kernel_find(k, "read_limit_threads256");
        assert_non_null(e);
        assert_int_equal(e->spill_stores, 0);
        // The loads are there, eight before anything is done with one.
        const char *ptx = k->ptx.data;
        int loads = 0;
        while ((ptx = strstr(ptx, ".v4.u32")) != NULL) {
            loads++;
            ptx++;
        }
        assert_true(loads >= 8);
        qn_source_free(&s);
        qn_jit_free(jit);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_kernel_compiles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
