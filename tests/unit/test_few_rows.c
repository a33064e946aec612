// Which kernels few rows take, and that nothing in them that orders a sum hangs on the card's size.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "cuda/programs.h"
#include "engine/engine.h"
#include "engine/quern.h"

static quern_model *open_model(const char *name)
{
    char path[512];
    quern_model *m;
    quern_error err;
    const quern_model_params mp = {.n_ctx = 256, .no_tokenizer = true};
    snprintf(path, sizeof path, QN_TEST_DATA "/goldens/quants/%s.gguf", name);
    if (quern_model_load(&m, path, &mp, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return m;
}

static qn_lowered lower(const quern_model *m, int variant, int multiprocessors, bool apart, bool plain)
{
    qn_lowered low;
    qn_err err;
    const qn_exec_opts o = {.n_ctx = 256, .n_ubatch = 64, .rows_apart = apart, .plain_gemv = plain};
    qn_cuda_target t = {.multiprocessors = multiprocessors,
                        .arch = {.name = "sm_90a", .cc = 90, .variant = variant}};
    if (qn_cuda_lower_only(&low, m->plans, &o, &t, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return low;
}

static int count(const qn_cuda_list *list, const char *path)
{
    int n = 0;
    for (int i = 0; i < list->n; i++) {
        n += strcmp(list->actions[i].path, path) == 0;
    }
    return n;
}

static void routes(void **state)
{
    (void)state;
    quern_model *m = open_model("llama-Q4_0");
    qn_lowered low = lower(m, QN_VARIANT_SM80, 132, false, false);
    assert_true(count(&low.few, "mma 8-bit") >= 4);
    assert_int_equal(count(&low.few, "gemv 8-bit"), 1); // the head of one row
    assert_int_equal(count(&low.decode, "mma 8-bit"), 0);
    qn_lowered_free(&low);
    low = lower(m, QN_VARIANT_SM80, 132, true, false);
    assert_int_equal(count(&low.few, "mma 8-bit"), 0);
    qn_lowered_free(&low);
    low = lower(m, QN_VARIANT_SM75, 132, false, false);
    assert_int_equal(count(&low.few, "mma 8-bit"), 0);
    qn_lowered_free(&low);
    quern_model_free(m);
    m = open_model("llama-BF16");
    low = lower(m, QN_VARIANT_SM90A, 132, false, false);
    assert_true(count(&low.decode, "gemv bf16") >= 4 && count(&low.few, "gemv bf16") >= 4);
    assert_int_equal(count(&low.decode, "gemv"), 0);
    qn_lowered_free(&low);
    low = lower(m, QN_VARIANT_SM90A, 132, false, true);
    assert_int_equal(count(&low.decode, "gemv bf16"), 0);
    assert_true(count(&low.decode, "gemv") >= 4);
    qn_lowered_free(&low);
    quern_model_free(m);
}

// What is chosen for a launch, and so what orders its sums, is the same on every card.
static void compare_lists(const qn_lowered *x, const qn_cuda_list *xs, const qn_lowered *y,
                          const qn_cuda_list *ys, int *n_site)
{
    assert_int_equal(xs->n, ys->n);
    for (int i = 0; i < xs->n; i++) {
        const qn_cuda_action *a = &xs->actions[i], *b = &ys->actions[i];
        assert_string_equal(a->path, b->path);
        assert_int_equal(a->site, b->site);
        if (a->site == 0) {
            continue;
        }
        const qn_site *s = &x->sites[a->site - 1], *t = &y->sites[b->site - 1];
        ++*n_site;
        assert_string_equal(s->key, t->key);
        assert_false(s->tuned);
        assert_memory_equal(&s->now, &t->now, sizeof s->now);
        assert_memory_equal(&s->now, &s->shipped, sizeof s->now);
        if (s->kind == QN_KNOBS_MMA || s->kind == QN_KNOBS_ROWS) {
            assert_int_equal(a->grid[0], b->grid[0]);
        } else if (s->kind == QN_KNOBS_HALF || s->kind == QN_KNOBS_COLS) {
            assert_true(a->shared <= 48 * 1024);
        }
        assert_true(qn_knobs_fit(s->kind, &s->room, &s->now));
        assert_string_equal(x->programs[a->program].source.text, y->programs[b->program].source.text);
    }
}

static void sums_are_alike_on_every_card(void **state)
{
    (void)state;
    static const char *const models[] = {"llama-Q4_0", "llama-BF16"};
    static const int sizes[] = {8, 46, 128, 144};
    for (int k = 0; k < 2; k++) {
        quern_model *m = open_model(models[k]);
        qn_lowered want = lower(m, QN_VARIANT_SM90A, 132, false, false);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            qn_lowered low = lower(m, QN_VARIANT_SM90A, sizes[i], false, false);
            int n = 0;
            compare_lists(&low, &low.few, &want, &want.few, &n);
            compare_lists(&low, &low.decode, &want, &want.decode, &n);
            assert_true(n >= 12);
            qn_lowered_free(&low);
        }
        qn_lowered_free(&want);
        quern_model_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes),
        cmocka_unit_test(sums_are_alike_on_every_card),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
