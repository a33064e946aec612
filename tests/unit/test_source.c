// rooms: room_codegen
// Steps as source text, and what is read of a compiler's output. No NVRTC.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/compile.h"
#include "codegen/kernel_files.h"
#include "codegen/persistent.h"
#include "codegen/source.h"

static void constants_are_written_as_they_are(void **state)
{
    (void)state;
    qn_source s;
    qn_err err;
    qn_spec spec = {0};
    spec.linear = (qn_spec_linear){.n_in = 4096,
                                   .n_out = 6144,
                                   .n_seg = 3,
                                   .seg_out = {4096, 1024, 1024},
                                   .seg_dtype = {12, 12, 14},
                                   .seg_bias = {1, 0, 1},
                                   .residual = 1,
                                   .out_scale = 1.0f,
                                   .softcap = 0.1f,
                                   .xielu = {-2.5e-8f, 3.0e20f, 0.0f, 1.0f}};
    const qn_source_const consts[] = {{"warps", 4, true}, {"outputs", 0, false}};
    assert_int_equal(qn_source_generate(&s, &qn_ops[QN_OP_LINEAR], &spec, 80, consts, 2, &err), 0);
    static const char *const wanted[] = {
        "namespace spec {\n",
        "constexpr int n_in = 4096;\n",
        "constexpr int seg_out[3] = {4096, 1024, 1024};\n",
        "constexpr int seg_dtype[3] = {12, 12, 14}; // q4_K q4_K q6_K\n",
        "constexpr int seg_bias[3] = {1, 0, 1};\n",
        "constexpr int act = 0; // none\n",
        "constexpr float out_scale = 1.0f;\n",
        "constexpr float softcap = 0.100000001f;\n",
        "constexpr float xielu[4] = {-2.50000003e-08f, 3.00000006e+20f, 0.0f, 1.0f};\n",
        "constexpr int warps = 4;\n",
        "constexpr int outputs = 0;\n",
        "constexpr int variant = 80;\n",
        "#include \"linear.cu\"\n",
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (!strstr(s.text, wanted[i])) {
            fail_msg("missing: %s in\n%s", wanted[i], s.text);
        }
    }
    char define[220];
    snprintf(define, sizeof define, "#define QN_KERNEL %s\n", s.symbol);
    assert_non_null(strstr(s.text, define));
    assert_memory_equal(s.symbol, "linear_n_in4096_n_out6144", 25);
    assert_non_null(strstr(s.symbol, "_seg_out4096_1024_1024_q4_K_q4_K_q6_K_seg_bias0_seg_bias2_"));
    qn_source_free(&s);
}

// A program of two ops has the fields of both, those of one name once; they must agree.
static void two_ops_in_one_program(void **state)
{
    (void)state;
    qn_source s;
    qn_err err;
    qn_spec attention = {0}, rope = {0};
    attention.attention =
        (qn_spec_attention){.n_head = 8, .n_head_kv = 2, .k_dim = 64, .v_dim = 64, .window = 5};
    rope.rope_kv =
        (qn_spec_rope_kv){.n_head = 8, .n_head_kv = 2, .k_dim = 64, .v_dim = 64, .has_kv = 1, .n_rot = 48};
    qn_source_request r = {.name = "both",
                           .kernel = "attention_rope.cu",
                           .op = &qn_ops[QN_OP_ATTENTION],
                           .spec = &attention,
                           .also = &qn_ops[QN_OP_ROPE_KV],
                           .also_spec = &rope,
                           .variant = 80};
    assert_int_equal(qn_source_make(&s, &r, &err), 0);
    const char *k_dim = strstr(s.text, "constexpr int k_dim = 64;");
    assert_non_null(k_dim);
    assert_null(strstr(k_dim + 1, "constexpr int k_dim"));
    assert_non_null(strstr(s.text, "constexpr int window = 5;"));
    assert_non_null(strstr(s.text, "constexpr int n_rot = 48;"));
    assert_non_null(strstr(s.symbol, "_window5_has_kv_n_rot48"));
    qn_source_free(&s);
    rope.rope_kv.v_dim = 32;
    assert_int_equal(qn_source_make(&s, &r, &err), -1);
    assert_string_equal(err.text, "v_dim is 64 of attention and 32 of rope_kv");
}

// Every row of the op table, with every field set: a symbol that is an identifier and fits, and the same text
// twice.
static void every_op_has_a_source(void **state)
{
    (void)state;
    for (int op = 0; op < QN_OP_COUNT; op++) {
        for (int fill = 0; fill < 3; fill++) {
            qn_spec spec = {0};
            qn_source a, b;
            qn_err err;
            for (int f = 0; f < qn_ops[op].n_field; f++) {
                const qn_field *field = &qn_ops[op].fields[f];
                for (int i = 0; i < field->count; i++) {
                    int32_t v = field->kind == QN_FIELD_INT ? fill * 1000000007 : fill > 0;
                    float x = (float)fill * 1.5f;
                    memcpy((char *)&spec + field->offset + 4 * i,
                           field->kind == QN_FIELD_FLOAT ? (void *)&x : &v, 4);
                }
            }
            assert_int_equal(qn_source_generate(&a, &qn_ops[op], &spec, 75, NULL, 0, &err), 0);
            assert_int_equal(qn_source_generate(&b, &qn_ops[op], &spec, 75, NULL, 0, &err), 0);
            assert_string_equal(a.text, b.text);
            size_t n = strlen(a.symbol);
            assert_in_range(n, 4, sizeof a.symbol - 1);
            assert_int_equal(
                strspn(a.symbol, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"), n);
            assert_memory_equal(a.symbol, qn_ops[op].name, strlen(qn_ops[op].name));
            qn_source_free(&a);
            qn_source_free(&b);
        }
    }
}

static void what_cannot_be_written_is_an_error(void **state)
{
    (void)state;
    qn_source s;
    qn_err err;
    qn_spec spec = {.norm = {.n = 64, .groups = 1, .kind = 1, .eps = NAN, .out_scale = 1.0f}};
    assert_int_equal(qn_source_generate(&s, &qn_ops[QN_OP_NORM], &spec, 80, NULL, 0, &err), -1);
    assert_non_null(strstr(err.text, "norm: eps"));
    spec.norm.eps = 1e-6f;
    spec.norm.kind = 77;
    assert_int_equal(qn_source_generate(&s, &qn_ops[QN_OP_NORM], &spec, 80, NULL, 0, &err), -1);
    assert_non_null(strstr(err.text, "77"));
    assert_null(s.text);
}

static void entries_are_read_of_ptx_and_log(void **state)
{
    (void)state;
    static const char ptx[] =
        ".visible .entry first(\n.param .u64 p\n)\n.maxntid 256, 1, 1\n{\nret;\n}\n"
        ".visible .entry second_one(\n)\n{\nret;\n}\n.entry third()\n.maxntid 16, 4, 1\n{\n}\n";
    static const char log[] =
        "x.cu(1): warning: 17 bytes of nothing\n"
        "ptxas info    : 24 bytes gmem\n"
        "ptxas info    : Compiling entry function 'second_one' for 'sm_80'\n"
        "ptxas info    : Function properties for second_one\n"
        "    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n"
        "ptxas info    : Function properties for helper\n"
        "    96 bytes stack frame, 99 bytes spill stores, 99 bytes spill loads\n"
        "ptxas info    : Used 255 registers, used 1 barriers, 4096 bytes smem, 400 bytes cmem[0]\n"
        "ptxas info    : Compiling entry function 'first' for 'sm_80'\n"
        "ptxas info    : Function properties for first\n"
        "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 12 registers, 368 bytes cmem[0]\n";
    qn_kernel k = {0};
    qn_err err;
    assert_int_equal(qn_compile_entries(ptx, log, &k, &err), 0);
    assert_int_equal(k.n_entry, 3);
    const qn_kernel_entry *e = qn_kernel_find(&k, "first");
    assert_non_null(e);
    assert_int_equal(e->threads, 256);
    assert_int_equal(e->regs, 12);
    assert_int_equal(e->smem_static + e->stack + e->spill_stores + e->spill_loads, 0);
    e = qn_kernel_find(&k, "second_one");
    assert_non_null(e);
    assert_int_equal(e->threads, -1);
    assert_int_equal(e->regs, 255);
    assert_int_equal(e->smem_static, 4096);
    assert_int_equal(e->stack, 16);
    assert_int_equal(e->spill_stores, 8);
    assert_int_equal(e->spill_loads, 12);
    e = qn_kernel_find(&k, "third");
    assert_non_null(e);
    assert_int_equal(e->threads, 64);
    assert_int_equal(e->regs, -1); // not in the log
    assert_int_equal(qn_compile_entries(".version 8.0\n", NULL, &k, &err), -1);
    assert_non_null(strstr(err.text, "no kernel function"));
    char many[2000] = "";
    for (int i = 0; i < QN_KERNEL_ENTRIES + 1; i++) {
        strcat(many, ".entry f(\n)\n{\n}\n");
    }
    assert_int_equal(qn_compile_entries(many, NULL, &k, &err), -1);
    char longest[QN_SYMBOL_MAX + 32] = ".entry ";
    memset(longest + 7, 'a', QN_SYMBOL_MAX);
    assert_int_equal(qn_compile_entries(longest, NULL, &k, &err), -1);
}

/* A persistent kernel includes such headers once a program (kernel_src/again.cuh). */
static void headers_that_hang_on_a_program_may_be_included_again(void **state)
{
    (void)state;
    qn_kernel_files f;
    qn_err err;
    assert_int_equal(qn_kernel_files_load(&f, NULL, &err), 0);
    const char *list = qn_kernel_files_find(&f, "again.cuh");
    assert_non_null(list);
    bool again[64] = {0};
    for (int pass = 0; pass < f.n_header; pass++) { /* until those that include such ones are known too */
        for (int i = 0; i < f.n_header; i++) {
            const char *name = f.names[i], *text = f.texts[i];
            if (strcmp(name, "again.cuh") == 0 || strcmp(name, "ptx.cuh") == 0 ||
                strcmp(name, "persistent_begin.cuh") == 0) {
                continue;
            }
            again[i] = again[i] || strstr(text, "spec::") || strstr(text, "__syncthreads") ||
                       strstr(text, "QN_VARIANT");
            for (int k = 0; k < f.n_header && !again[i]; k++) {
                char include[96];
                snprintf(include, sizeof include, "#include \"%s\"", f.names[k]);
                again[i] = again[k] && strstr(text, include);
            }
        }
    }
    for (int i = 0; i < f.n_header; i++) {
        char guard[96] = "QN_", line[128];
        size_t n = 3;
        for (const char *c = f.names[i]; *c; c++) {
            guard[n++] = *c == '.' ? '_' : (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
        }
        guard[n] = '\0';
        snprintf(line, sizeof line, "#undef %s\n", guard);
        bool listed = strstr(list, line) != NULL;
        snprintf(line, sizeof line, "#ifndef %s\n#define %s\n", guard, guard);
        bool guarded = strstr(f.texts[i], line) != NULL;
        if (listed != again[i] || guarded != again[i]) {
            fail_msg(
                "%s %s constants of a program or __syncthreads: it must %shave the guard %s and stand %sin "
                "again.cuh",
                f.names[i], again[i] ? "hangs on" : "hangs on no", again[i] ? "" : "not ", guard,
                again[i] ? "" : "not ");
        }
    }
    qn_kernel_files_free(&f);
}

static void a_persistent_kernel_holds_its_programs(void **state)
{
    (void)state;
    qn_source norm, linear, both, again;
    qn_err err;
    qn_spec a = {0}, b = {0};
    a.norm = (qn_spec_norm){.n = 64, .groups = 1, .kind = 1, .eps = 1e-5f, .out_scale = 1.0f};
    b.linear = (qn_spec_linear){.n_in = 64, .n_out = 64, .n_seg = 1, .seg_out = {64}, .out_scale = 1.0f};
    const qn_source_const threads = {"threads", 64, true, false}, warps = {"warps", 4, true, false};
    assert_int_equal(qn_source_generate(&norm, &qn_ops[QN_OP_NORM], &a, 90, &threads, 1, &err), 0);
    assert_int_equal(qn_source_generate(&linear, &qn_ops[QN_OP_LINEAR], &b, 90, &warps, 1, &err), 0);
    qn_persistent_part parts[2] = {
        {.source = &norm, .threads = 64, .grid = {1, 1, 1}},
        {.source = &linear,
         .threads = 128,
         .grid = {20, 2, 1},
         .passes = true,
         .args = {{QN_FROM_LAUNCH, 3}, {QN_FROM_PHASE, 1}, {QN_FROM_SOURCE, 96}},
         .n_arg = 3},
    };
    const qn_persistent_launch launch = {.n_word = 4, .threads = 128, .variant = 90};
    assert_int_equal(qn_source_persistent(&both, parts, 2, &launch, &err), 0);
    static const char *const wanted[] = {"#define QN_PERSISTENT 1\n#define QN_LAUNCH_THREADS 128\n",
                                         "#define QN_RING_BYTES 0\n",
                                         "#define QN_THREADS 64\n#define QN_KERNEL run\n#include "
                                         "\"again.cuh\"\n#include \"norm.cu\"\n",
                                         "typedef qn_phase_shape<20, 2, 1, 128, 1> shape;\n",
                                         "    u64 w[4];\n",
                                         "p0::run();",
                                         "p1::run(qn_any{words.w[3]}, qn_any{own[1]}, qn_any{96u});",
                                         "#define QN_THREADS 128\n#define QN_KERNEL persistent_",
                                         "#include \"persistent.cu\"\n"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (!strstr(both.text, wanted[i])) {
            fail_msg("missing: %s in\n%s", wanted[i], both.text);
        }
    }
    parts[1].threads = 64;
    assert_int_equal(qn_source_persistent(&again, parts, 2, &launch, &err), 0);
    assert_string_not_equal(again.symbol, both.symbol);
    qn_source_free(&again);
    parts[1].threads = 48;
    assert_int_equal(qn_source_persistent(&again, parts, 2, &launch, &err), -1);
    assert_non_null(strstr(err.text, "48 threads"));
    qn_source_free(&norm);
    qn_source_free(&linear);
    qn_source_free(&both);
}

/* Only a part that can, and whose blocks are all in the launch, takes weights through the ring: the others
 * have none of their own, and nothing is brought for them. */
static void a_ring_is_for_those_that_can(void **state)
{
    (void)state;
    qn_source linear, src;
    qn_err err;
    qn_spec b = {0};
    b.linear = (qn_spec_linear){.n_in = 64, .n_out = 64, .n_seg = 1, .seg_out = {64}, .out_scale = 1.0f};
    const qn_source_const warps = {"warps", 4, true, false};
    assert_int_equal(qn_source_generate(&linear, &qn_ops[QN_OP_LINEAR], &b, 90, &warps, 1, &err), 0);
    qn_persistent_part parts[3];
    for (int i = 0; i < 3; i++) {
        parts[i] =
            (qn_persistent_part){.source = &linear,
                                 .threads = 128,
                                 .grid = {20, 1, 1},
                                 .rings = i > 0,
                                 .passes = i == 2,
                                 .args = {{QN_FROM_LAUNCH, 3}, {QN_FROM_PHASE, 1}, {QN_FROM_SOURCE, 96}},
                                 .n_arg = 3};
    }
    const qn_persistent_launch launch = {
        .n_word = 4, .threads = 128, .ring_at = 4096, .ring_bytes = 100000, .variant = 90};
    assert_int_equal(qn_source_persistent(&src, parts, 3, &launch, &err), 0);
    static const char none[] = "constexpr int qn_ring_bytes = 0;\n";
    static const char *const wanted[] = {"#define QN_RING_AT 4096\n#define QN_RING_BYTES 100000\n",
                                         "#define QN_THREADS 160\n#define QN_KERNEL persistent_",
                                         "    case 1: {\n        const u64 args[] = {words.w[3], own[1], "
                                         "96u};\n        return p1::bring(job, args, number, lane);"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (!strstr(src.text, wanted[i])) {
            fail_msg("missing: %s in\n%s", wanted[i], src.text);
        }
    }
    assert_null(strstr(src.text, "p0::bring"));
    assert_null(strstr(src.text, "p2::bring"));
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "namespace p%d {", i);
        const char *at = strstr(src.text, name), *next = at ? strstr(at, none) : NULL;
        const char *end = at ? strstr(at, "} // namespace p") : NULL;
        assert_non_null(end);
        assert_int_equal(next && next < end, i != 1);
    }
    qn_source_free(&src);
    qn_source_free(&linear);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constants_are_written_as_they_are),
        cmocka_unit_test(two_ops_in_one_program),
        cmocka_unit_test(every_op_has_a_source),
        cmocka_unit_test(what_cannot_be_written_is_an_error),
        cmocka_unit_test(entries_are_read_of_ptx_and_log),
        cmocka_unit_test(headers_that_hang_on_a_program_may_be_included_again),
        cmocka_unit_test(a_persistent_kernel_holds_its_programs),
        cmocka_unit_test(a_ring_is_for_those_that_can),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
