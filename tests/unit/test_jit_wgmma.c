// Products of warpgroups run side by side with what decodes their operands: a compiler that serialises them
// (ptxas says so: C7510 to C7512) takes that away without a change of results. Needs an NVRTC; no GPU.
#include "unit/jit_util.h"

#include "codegen/compile.h"
#include "model/dtype.h"

static void nothing_is_serialised(void **state)
{
    (void)state;
    // The widest tile, where registers are fewest: codes of 16 and 8 bytes a group, with planes of bits
    // above; levels.
    static const struct {
        int type, tokens, groups, stages;
    } cases[] = {{QN_Q4_K, 256, 2, 5},
                 {QN_Q6_K, 256, 2, 5},
                 {QN_Q2_K, 256, 2, 5},
                 {QN_IQ4_XS, 256, 2, 5},
                 {QN_F16, 256, 2, 4}};
    static qn_nvrtc nvrtc;
    qn_arch arch;
    qn_kernel_files files;
    qn_err err;
    if (qn_nvrtc_load(&nvrtc, 0, &err) != 0 || qn_arch_by_name(&arch, &nvrtc, "sm_90a", &err) != 0 ||
        qn_kernel_files_load(&files, NULL, &err) != 0) {
        fail_msg("%s", err.text);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char source[400], *log = NULL;
        qn_kernel k = {0};
        snprintf(source, sizeof source,
                 "namespace spec {\nconstexpr int dtype = %d, tokens = %d, groups = %d, stages = %d, variant "
                 "= 90;\n}\n"
                 "#define QN_VARIANT 90\n#define QN_KERNEL product\n#include \"product_wgmma.cu\"\n",
                 cases[i].type, cases[i].tokens, cases[i].groups, cases[i].stages);
        if (qn_compile(&nvrtc, &arch, &files, "product.cu", source, &k, &log, &err) != 0) {
            fail_msg("%s", err.text);
        }
        assert_non_null(log);
        if (strstr(log, "C751")) {
            fail_msg("type %d: %s", cases[i].type, log);
        }
        assert_int_equal(k.n_entry, 1);
        assert_int_equal(k.entries[0].spill_stores, 0);
        assert_int_equal(k.entries[0].stack, 0);
        free(log);
        qn_kernel_clear(&k);
    }
    qn_kernel_files_free(&files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_serialised)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
