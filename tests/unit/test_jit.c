// rooms: room_codegen
// NVRTC, targets and the kernel compiler. Needs an NVRTC (docs/jit-and-cache.md: how to get one); no GPU.
#include "unit/jit_util.h"

#include "codegen/compile.h"
#include "codegen/jit.h"
#include "codegen/source.h"

static qn_nvrtc nvrtc;

// What the callbacks of a jit have heard.
struct heard {
    int warnings, details, starts, steps, last_done, total, cached;
    bool kept;
    char first[1200], all[4000];
};

static void hear(void *user, int level, const char *line)
{
    struct heard *h = user;
    if (level > 0) {
        h->details++;
        return;
    }
    if (h->warnings++ == 0) {
        snprintf(h->first, sizeof h->first, "%s", line);
    }
    size_t used = strlen(h->all);
    snprintf(h->all + used, sizeof h->all - used, "%s\n", line);
}

static void hear_progress(void *user, const qn_jit_progress *p)
{
    struct heard *h = user;
    h->starts += p->done == 0;
    h->steps += p->done != 0;
    assert_int_equal(p->name == NULL, p->done == 0);
    assert_int_equal(p->done, h->last_done + (p->done != 0)); // one at a time, in order
    h->last_done = p->done;
    h->total = p->total;
    h->cached = p->cached;
    h->kept = p->kept;
}

static qn_jit *jit_for(const char *arch, const char *cache, const char *kernel_src, struct heard *h)
{
    qn_err err;
    qn_jit *jit = NULL;
    qn_jit_opts o = {.nvrtc = &nvrtc, .cache_dir = cache, .kernel_src = kernel_src, .n_threads = 3};
    if (h) {
        memset(h, 0, sizeof *h);
        o.log = hear;
        o.progress = hear_progress;
        o.user = h;
    }
    if (qn_arch_by_name(&o.arch, &nvrtc, arch, &err) != 0 || qn_jit_new(&jit, &o, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return jit;
}

static void compile(qn_jit *jit, const qn_jit_program *p, int n, const qn_kernel **k)
{
    qn_err err;
    if (qn_jit_compile_all(jit, p, n, k, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

enum { SMALL = 6 };
static char small_source[SMALL][300], small_symbol[SMALL][24];
static qn_jit_program small[SMALL];

static void make_small(void)
{
    for (int i = 0; i < SMALL; i++) {
        snprintf(small_symbol[i], sizeof small_symbol[i], "fill_%d", i);
        snprintf(small_source[i], sizeof small_source[i],
                 "#include \"types.cuh\"\nextern \"C\" __global__ void __launch_bounds__(64) %s(float *x)\n"
                 "{\n    x[threadIdx.x] = %d.0f;\n}\n",
                 small_symbol[i], i);
        small[i] = (qn_jit_program){"fill", "small", small_source[i], small_symbol[i]};
    }
}

static const char *const norm_names[] = {"none", "rms", "layer", NULL};
#define F(m, kind, names)                                                                                    \
    {                                                                                                        \
#m, kind, offsetof(qn_spec, norm.m), 1, names                                                        \
    }
static const qn_field norm_fields[] = {
    F(n, QN_FIELD_INT, NULL),      F(groups, QN_FIELD_INT, NULL),      F(kind, QN_FIELD_ENUM, norm_names),
    F(has_w, QN_FIELD_BOOL, NULL), F(has_b, QN_FIELD_BOOL, NULL),      F(residual, QN_FIELD_BOOL, NULL),
    F(eps, QN_FIELD_FLOAT, NULL),  F(out_scale, QN_FIELD_FLOAT, NULL),
};
static const qn_op norm_op = {QN_OP_NORM, "norm", "norm.cu", "", norm_fields, 8, NULL};
static const qn_source_const norm_consts[] = {
    {"threads", 256, true}, {"outputs", 0, false}, {"q8_out", 0, false},        {"product", 0, false},
    {"add", 0, false},      {"scaled", 0, false},  {"sum_out", 0, false},       {"half_out", 0, false},
    {"f32_out", 1, false},  {"next", 0, false},    {"next_eps_bits", 0, false}, {"fine_out", 0, false}};

static void norm_source(qn_source *s, int n, float eps, int variant)
{
    qn_err err;
    qn_spec spec = {.norm = {.n = n, .groups = 1, .kind = 1, .has_w = 1, .eps = eps, .out_scale = 1.0f}};
    if (qn_source_generate(s, &norm_op, &spec, variant, norm_consts,
                           (int)(sizeof norm_consts / sizeof *norm_consts), &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static void nvrtc_tells_where_it_is(void **state)
{
    (void)state;
    assert_true(nvrtc.major >= QN_NVRTC_MIN_MAJOR);
    assert_int_equal(nvrtc.lib.path[0], '/');
    assert_non_null(strstr(nvrtc.builtins, "libnvrtc-builtins.so"));
    char version[32];
    snprintf(version, sizeof version, ".so.%d.%d", nvrtc.major, nvrtc.minor);
    assert_non_null(strstr(nvrtc.builtins, version));
    assert_memory_equal(nvrtc.builtins, nvrtc.lib.dir, strlen(nvrtc.lib.dir)); // from NVRTC's own folder
    for (int i = 1; i < nvrtc.n_arch; i++) {
        assert_true(nvrtc.archs[i] > nvrtc.archs[i - 1]);
    }
}

static void targets_follow_the_device(void **state)
{
    (void)state;
    static const qn_nvrtc old = {.major = 12, .minor = 6, .n_arch = 5, .archs = {70, 75, 80, 89, 90}};
    static const struct {
        int cc;
        const char *name;
        bool ptx_only;
        int variant;
    } cases[] = {
        {75, "sm_75", false, QN_VARIANT_SM75},      {80, "sm_80", false, QN_VARIANT_SM80},
        {89, "sm_89", false, QN_VARIANT_SM80},      {90, "sm_90a", false, QN_VARIANT_SM90A},
        {86, "compute_80", true, QN_VARIANT_SM80},  {100, "compute_90", true, QN_VARIANT_SM80},
        {121, "compute_90", true, QN_VARIANT_SM80},
    };
    qn_arch a;
    qn_err err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(qn_arch_for_device(&a, &old, cases[i].cc, &err), 0);
        assert_string_equal(a.name, cases[i].name);
        assert_int_equal(a.ptx_only, cases[i].ptx_only);
        assert_int_equal(a.variant, cases[i].variant);
    }
    assert_int_equal(qn_arch_for_device(&a, &old, 70, &err), -1);
    assert_non_null(strstr(err.text, "7.0"));
}

static void targets_by_name(void **state)
{
    (void)state;
    static const qn_nvrtc some = {.major = 12, .minor = 8, .n_arch = 4, .archs = {75, 80, 90, 120}};
    static const char *const good[] = {"sm_75", "sm_80", "sm_90", "sm_90a", "sm_120a", "compute_80"};
    static const char *const bad[] = {"sm_86",       "sm_75a", "sm_90b", "sm_90aa",
                                      "sm_",         "90",     "",       "SM_90",
                                      "compute_90a", "sm_-90", "sm_ 90", "sm_900000000000"};
    qn_arch a;
    qn_err err;
    int v;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(qn_arch_by_name(&a, &some, good[i], &err), 0);
        assert_string_equal(a.name, good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(qn_arch_by_name(&a, &some, bad[i], &err), -1);
        assert_non_null(strstr(err.text, "sm_120"));
    }
    assert_int_equal(qn_arch_by_name(&a, &some, "sm_90", &err), 0);
    assert_int_equal(a.variant, QN_VARIANT_SM80); // its instructions are sm_90a's only
    assert_int_equal(qn_variant_by_name(&v, &a, "sm75", &err), 0);
    assert_int_equal(v, QN_VARIANT_SM75);
    assert_int_equal(qn_variant_by_name(&v, &a, "sm90a", &err), -1);
    assert_int_equal(qn_variant_by_name(&v, &a, "sm99", &err), -1);
    assert_string_equal(qn_variant_name(QN_VARIANT_SM90A), "sm90a");
}

static void one_compile_gives_cubin_and_ptx_for_every_target(void **state)
{
    (void)state;
    static const char *const archs[] = {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"};
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        if (i >= 5 && (nvrtc.major < 13 && nvrtc.minor < 8)) {
            continue; // 12.8 was the first to know these cards
        }
        qn_jit *jit = jit_for(archs[i], NULL, NULL, NULL);
        qn_source s;
        norm_source(&s, 4096, 1e-6f, qn_jit_arch(jit)->variant);
        qn_jit_program p = {"norm", s.spec, s.text, s.symbol};
        const qn_kernel *k;
        compile(jit, &p, 1, &k);
        char target[40];
        snprintf(target, sizeof target, ".target %s", archs[i]);
        assert_non_null(strstr(k->ptx.data, target));
        assert_memory_equal(k->cubin.data, "\177ELF", 4);
        assert_string_equal(k->arch, archs[i]);
        assert_int_equal(k->n_entry, 1);
        const qn_kernel_entry *e = qn_kernel_find(k, "norm_n4096_groups1_rms_has_w_threads256");
        assert_non_null(e);
        assert_int_equal(e->threads, 256);
        assert_in_range(e->regs, 8, 255);
        assert_int_equal(e->spill_stores, 0);
        assert_int_equal(e->spill_loads, 0);
        assert_int_equal(e->stack, 0);
        assert_int_equal(qn_jit_compiles(jit), 1);
        qn_source_free(&s);
        qn_jit_free(jit);
    }
}

static void a_newer_card_gets_ptx(void **state)
{
    (void)state;
    char dir[256];
    temp_dir(dir);
    qn_jit *jit = jit_for("compute_80", dir, NULL, NULL);
    const qn_kernel *k;
    compile(jit, small, 1, &k);
    assert_int_equal(k->cubin.size, 0);
    assert_non_null(strstr(k->ptx.data, "fill_0"));
    assert_int_equal(k->entries[0].regs, -1);
    qn_jit_free(jit);
    jit = jit_for("compute_80", dir, NULL, NULL);
    compile(jit, small, 1, &k);
    assert_int_equal(qn_jit_compiles(jit), 0);
    assert_true(k->ptx.size > 0);
    qn_jit_free(jit);
    assert_int_equal(whole_entries(dir), 1);
    remove_tree(dir);
}

static void the_second_run_compiles_nothing(void **state)
{
    (void)state;
    char dir[256], name[256];
    temp_dir(dir);
    struct heard h;
    const qn_kernel *first[SMALL], *second[SMALL];
    qn_jit *a = jit_for("sm_80", dir, NULL, &h);
    compile(a, small, SMALL, first);
    assert_int_equal(qn_jit_compiles(a), SMALL);
    assert_int_equal(h.starts, 1);
    assert_int_equal(h.steps, SMALL);
    assert_int_equal(h.total, SMALL);
    assert_int_equal(h.cached, 0);
    assert_true(h.kept);
    assert_int_equal(h.warnings, 0);
    compile(a, small, SMALL, second); // the same jit: nothing again
    assert_int_equal(qn_jit_compiles(a), SMALL);
    assert_memory_equal(first, second, sizeof first);
    qn_jit *b = jit_for("sm_80", dir, NULL, &h);
    qn_jit_seal(b); // so that a compile would be an error
    compile(b, small, SMALL, second);
    assert_int_equal(qn_jit_compiles(b), 0);
    assert_int_equal(h.starts + h.steps + h.warnings, 0);
    for (int i = 0; i < SMALL; i++) {
        assert_true(second[i]->cached && !first[i]->cached);
        assert_string_equal(first[i]->name, second[i]->name);
        assert_int_equal(first[i]->cubin.size, second[i]->cubin.size);
        assert_memory_equal(first[i]->cubin.data, second[i]->cubin.data, first[i]->cubin.size);
        assert_memory_equal(&first[i]->entries[0].threads, &second[i]->entries[0].threads, 6 * sizeof(int));
    }
    qn_jit_free(a);
    qn_jit_free(b);
    assert_int_equal(whole_entries(dir), SMALL);
    assert_int_equal(count_names(dir, "fill-small-", name), SMALL);
    remove_tree(dir);
}

static void equal_programs_are_compiled_once(void **state)
{
    (void)state;
    qn_jit_program p[4] = {small[0], small[1], small[0], small[0]};
    const qn_kernel *k[4];
    qn_jit *jit = jit_for("sm_80", NULL, NULL, NULL);
    compile(jit, p, 4, k);
    assert_int_equal(qn_jit_compiles(jit), 2);
    assert_ptr_equal(k[0], k[2]);
    assert_ptr_equal(k[0], k[3]);
    assert_ptr_not_equal(k[0], k[1]);
    qn_jit_free(jit);
}

static void after_sealing_a_compile_is_an_error(void **state)
{
    (void)state;
    qn_err err;
    const qn_kernel *k[2];
    qn_jit *jit = jit_for("sm_80", NULL, NULL, NULL);
    compile(jit, small, 1, k);
    qn_jit_seal(jit);
    compile(jit, small, 1, k);
    assert_int_equal(qn_jit_compile_all(jit, small, 2, k, &err), -1);
    assert_non_null(strstr(err.text, "after loading"));
    assert_int_equal(qn_jit_compiles(jit), 1);
    qn_jit_free(jit);
}

static void errors_show_file_and_line_and_publish_nothing(void **state)
{
    (void)state;
    char dir[256], src[256], path[400];
    temp_dir(dir);
    temp_dir(src);
    snprintf(path, sizeof path, "%s/types.cuh", src);
    write_file(path, "#pragma once\n", 13);
    snprintf(path, sizeof path, "%s/broken.cu", src);
    static const char broken[] =
        "#include \"types.cuh\"\nextern \"C\" __global__ void f(float *x)\n{\n    x[0] = nothing;\n}\n";
    write_file(path, broken, sizeof broken - 1);
    struct heard h;
    qn_err err;
    const qn_kernel *k[2];
    qn_jit *jit = jit_for("sm_80", dir, src, &h);
    qn_jit_program p[] = {{"broken", "n1", "#include \"broken.cu\"\n", "f"}};
    assert_int_equal(qn_jit_compile_all(jit, p, 1, k, &err), -1);
    assert_non_null(strstr(err.text, "broken.cu(4): error"));
    assert_non_null(strstr(err.text, "nothing"));
    assert_non_null(strstr(h.all, "broken.cu(4): error"));
    assert_non_null(strstr(h.all, "x[0] = nothing;"));
    p[0] = (qn_jit_program){"plain", "n1", "__global__ void f() {\n\n oops }\n", "f"};
    assert_int_equal(qn_jit_compile_all(jit, p, 1, k, &err), -1);
    assert_non_null(strstr(err.text, "plain-n1.cu(3): error"));
    p[0] = (qn_jit_program){"empty", "n1", "#include \"types.cuh\"\n", NULL};
    assert_int_equal(qn_jit_compile_all(jit, p, 1, k, &err), -1);
    assert_non_null(strstr(err.text, "no kernel function"));
    p[0] = (qn_jit_program){"other", "n1", "extern \"C\" __global__ void g() {}\n", "f"};
    assert_int_equal(qn_jit_compile_all(jit, p, 1, k, &err), -1);
    assert_non_null(strstr(err.text, "kernel function f"));
    p[0] = (qn_jit_program){"cwd", "n1", "#include \"CMakeLists.txt\"\n", NULL};
    assert_int_equal(qn_jit_compile_all(jit, p, 1, k, &err), -1);
    assert_non_null(strstr(err.text, "CMakeLists.txt"));
    assert_int_equal(qn_jit_compiles(jit), 5); // failures count
    qn_jit_free(jit);
    assert_int_equal(count_names(dir, "", NULL), 0);
    remove_tree(dir);
    remove_tree(src);
}

// Copies the kernel sources to a folder, with text added to one of them.
static void copy_sources(char *dir, const char *changed, const char *added)
{
    temp_dir(dir);
    DIR *d = opendir(QN_SOURCE_DIR "/kernel_src");
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        char from[600], to[600];
        if (!strstr(e->d_name, ".cu")) {
            continue;
        }
        size_t size;
        snprintf(from, sizeof from, QN_SOURCE_DIR "/kernel_src/%s", e->d_name);
        snprintf(to, sizeof to, "%s/%s", dir, e->d_name);
        char *text = read_file(from, &size);
        write_file(to, text, size);
        free(text);
        if (strcmp(e->d_name, changed) == 0) {
            FILE *f = fopen(to, "a");
            assert_non_null(f);
            fputs(added, f);
            fclose(f);
        }
    }
    closedir(d);
}

// One constant changed recompiles its kernel only; a changed template those made from it; a changed header
// all; where the sources lie does not matter.
static void the_key_is_contents_and_nothing_else(void **state)
{
    (void)state;
    char dir[256], same[256], template[256], header[256];
    temp_dir(dir);
    copy_sources(same, "", "");
    copy_sources(template, "norm.cu", "// changed\n");
    copy_sources(header, "types.cuh", "// changed\n");
    qn_source a, b, c;
    norm_source(&a, 512, 1e-6f, QN_VARIANT_SM80);
    norm_source(&b, 1024, 1e-6f, QN_VARIANT_SM80);
    norm_source(&c, 1024, 1e-5f, QN_VARIANT_SM80);
    const struct {
        const char *src;
        const qn_source *second;
        const char *arch;
        int compiles;
    } steps[] = {
        {NULL, &b, "sm_80", 3},     {NULL, &b, "sm_80", 0},   {same, &b, "sm_80", 0}, {NULL, &c, "sm_80", 1},
        {template, &b, "sm_80", 2}, {header, &b, "sm_80", 3}, {NULL, &b, "sm_86", 3}, {NULL, &c, "sm_80", 0},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        qn_jit *jit = jit_for(steps[i].arch, dir, steps[i].src, NULL);
        qn_jit_program p[3] = {
            {"norm", a.spec, a.text, a.symbol},
            {"norm", steps[i].second->spec, steps[i].second->text, steps[i].second->symbol},
            small[0]};
        const qn_kernel *k[3];
        compile(jit, p, 3, k);
        assert_int_equal(qn_jit_compiles(jit), steps[i].compiles);
        qn_jit_free(jit);
    }
    assert_int_equal(whole_entries(dir), 3 + 1 + 2 + 3 + 3);
    qn_source_free(&a);
    qn_source_free(&b);
    qn_source_free(&c);
    remove_tree(dir);
    remove_tree(same);
    remove_tree(template);
    remove_tree(header);
}

static void a_refused_kernel_is_replaced_once(void **state)
{
    (void)state;
    char dir[256];
    temp_dir(dir);
    qn_err err;
    const qn_kernel *k;
    qn_jit *jit = jit_for("sm_80", dir, NULL, NULL);
    compile(jit, small, 1, &k);
    assert_int_equal(qn_jit_replace(jit, &k, "invalid image", &err), -1); // it was compiled here
    assert_non_null(strstr(err.text, "invalid image"));
    qn_jit_free(jit);
    struct heard h;
    jit = jit_for("sm_80", dir, NULL, &h);
    compile(jit, small, 1, &k);
    assert_true(k->cached);
    assert_int_equal(qn_jit_replace(jit, &k, "invalid image", &err), 0);
    assert_false(k->cached);
    assert_true(k->cubin.size > 0);
    assert_int_equal(h.warnings, 1);
    assert_non_null(strstr(h.first, "invalid image"));
    assert_int_equal(qn_jit_compiles(jit), 1);
    assert_int_equal(qn_jit_replace(jit, &k, "invalid image", &err), -1);
    qn_jit_free(jit);
    assert_int_equal(whole_entries(dir), 1);
    remove_tree(dir);
}

static void odd_names_fit_a_file_system(void **state)
{
    (void)state;
    char dir[256], name[256], spec[400] = "a/../b c";
    temp_dir(dir);
    memset(spec + 8, 'x', sizeof spec - 9);
    qn_jit_program p = {"../op", spec, small_source[0], NULL};
    const qn_kernel *k;
    qn_jit *jit = jit_for("sm_80", dir, NULL, NULL);
    compile(jit, &p, 1, &k);
    qn_jit_free(jit);
    assert_int_equal(whole_entries(dir), 1);
    assert_int_equal(count_names(dir, "_._op-a_.._b_cxxx", name), 1);
    remove_tree(dir);
}

static int find_nvrtc(void **state)
{
    (void)state;
    qn_err err;
    if (qn_nvrtc_load(&nvrtc, 0, &err) != 0) {
        print_error("%s\n(scripts/fetch-nvrtc.sh fetches one; -DQUERN_NVRTC_TESTS=OFF disables this test)\n",
                    err.text);
        return -1;
    }
    make_small();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nvrtc_tells_where_it_is),
        cmocka_unit_test(targets_follow_the_device),
        cmocka_unit_test(targets_by_name),
        cmocka_unit_test(one_compile_gives_cubin_and_ptx_for_every_target),
        cmocka_unit_test(a_newer_card_gets_ptx),
        cmocka_unit_test(the_second_run_compiles_nothing),
        cmocka_unit_test(equal_programs_are_compiled_once),
        cmocka_unit_test(after_sealing_a_compile_is_an_error),
        cmocka_unit_test(errors_show_file_and_line_and_publish_nothing),
        cmocka_unit_test(the_key_is_contents_and_nothing_else),
        cmocka_unit_test(a_refused_kernel_is_replaced_once),
        cmocka_unit_test(odd_names_fit_a_file_system),
    };
    return cmocka_run_group_tests(tests, find_nvrtc, NULL);
}
