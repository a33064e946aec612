// rooms: room_cuda
// The driver's loader and its messages, against tests/fake/fake_cuda.c (on the loader path through ctest).
#include "unit/jit_util.h"

#include "cuda/cublaslt.h"
#include "cuda/driver.h"

static qn_cuda cuda;

static void set(const char *name, const char *value)
{
    if (value) {
        setenv(name, value, 1);
    } else {
        unsetenv(name);
    }
}

static void tells_file_and_version(void **state)
{
    (void)state;
    assert_non_null(strstr(cuda.lib.path, "/fake_cuda/libcuda.so"));
    assert_string_equal(cuda.lib.place, "loader path");
    assert_int_equal(cuda.version, 13000);
    assert_null(cuda.api.LaunchKernelEx); // optional, and not in the fake one
    assert_null(cuda.api.TensorMapEncodeTiled);
    assert_non_null(cuda.api.LaunchKernel);
}

static void describes_devices(void **state)
{
    (void)state;
    qn_err err;
    qn_cuda_device d;
    set("FAKE_DEVICES", "2");
    assert_int_equal(qn_cuda_init(&cuda, &err), 0);
    assert_int_equal(cuda.n_device, 2);
    assert_int_equal(qn_cuda_device_get(&cuda, 1, &d, &err), 0);
    assert_string_equal(d.name, "Fake card 1");
    assert_int_equal(d.cc, 90);
    assert_int_equal(d.multiprocessors, 132);
    assert_true(d.memory == (uint64_t)140 << 30);
    assert_int_equal(qn_cuda_device_get(&cuda, 2, &d, &err), -1);
    assert_non_null(strstr(err.text, "device 2"));
    assert_int_equal(qn_cuda_device_get(&cuda, -1, &d, &err), -1);
    set("FAKE_DEVICES", NULL);
}

// Every failure names its cause and what to do.
static void explains_why_it_does_not_start(void **state)
{
    (void)state;
    static const struct {
        const char *result, *devices, *visible, *cause, *remedy;
    } cases[] = {
        {"100", NULL, "", "CUDA_VISIBLE_DEVICES is set to ''", "unset it"},
        {"101", NULL, "7", "CUDA_VISIBLE_DEVICES is set to '7'", "nvidia-smi -L"},
        {"0", "0", "-1", "CUDA_VISIBLE_DEVICES is set to '-1'", "unset it"},
        {"100", NULL, NULL, "CUDA_ERROR_NO_DEVICE 100", "--gpus"},
        {"0", "0", NULL, "no device", "nvidia-smi"},
        {"999", NULL, NULL, "CUDA_ERROR_UNKNOWN 999 (unknown error)", "nvidia-uvm"},
        {"999", NULL, "0", "CUDA_ERROR_UNKNOWN 999", "nvidia-uvm"},
        {"803", NULL, NULL, "803", "reboot"},
        {"804", NULL, NULL, "804", "cuda-compat"},
        {"802", NULL, NULL, "802", "fabricmanager"},
        {"34", NULL, NULL, "34", "stub"},
        {"46", NULL, NULL, "46", "exclusively"},
        {"304", NULL, NULL, "304", "/dev/nvidia"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qn_err err = {""};
        qn_cuda c = cuda;
        set("FAKE_CUINIT", cases[i].result);
        set("FAKE_DEVICES", cases[i].devices);
        set("CUDA_VISIBLE_DEVICES", cases[i].visible);
        assert_int_equal(qn_cuda_init(&c, &err), -1);
        if (!strstr(err.text, cases[i].cause) || !strstr(err.text, "remedy") ||
            !strstr(err.text, cases[i].remedy)) {
            fail_msg("case %zu: %s", i, err.text);
        }
    }
    set("FAKE_CUINIT", NULL);
    set("FAKE_DEVICES", NULL);
    set("CUDA_VISIBLE_DEVICES", NULL);
}

// A library with a name that is looked for but not with the symbols: refused, and the message says which is
// missing.
static void cublaslt_of_another_kind_is_refused(void **state)
{
    (void)state;
    char dir[256], sub[300], file[400], text[64];
    qn_err err = {""};
    qn_cublaslt lt;
    temp_dir(dir);
    snprintf(sub, sizeof sub, "%s/lib64", dir);
    assert_int_equal(mkdir(sub, 0777), 0);
    snprintf(file, sizeof file, "%s/libcublasLt.so.13", sub);
    assert_int_equal(symlink(cuda.lib.path, file), 0);
    set("CUDA_PATH", dir);
    if (qn_cublaslt_load(&lt, 0, &err) == 0) {
        assert_string_not_equal(lt.lib.path, cuda.lib.path); // a real one stands behind it
        assert_true(lt.version >= 120000);
        snprintf(text, sizeof text, "%s", lt.api.GetStatusString(QN_LT_SUCCESS));
        assert_true(text[0] != '\0');
    } else {
        assert_non_null(strstr(err.text, "cublasLtGetVersion"));
    }
    set("CUDA_PATH", NULL);
    remove_tree(dir);
}

static int load(void **state)
{
    (void)state;
    qn_err err;
    unsetenv("CUDA_VISIBLE_DEVICES");
    if (qn_cuda_load(&cuda, &err) != 0) {
        print_error("%s\n(run it through ctest, which puts the fake driver on the loader path)\n", err.text);
        return -1;
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_file_and_version),
        cmocka_unit_test(describes_devices),
        cmocka_unit_test(explains_why_it_does_not_start),
        cmocka_unit_test(cublaslt_of_another_kind_is_refused),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}
