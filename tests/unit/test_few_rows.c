// Which kernels few rows take, and that nothing in them that orders a sum hangs on the card's size.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/programs.h"
#include "cuda/tune_kernels.h"
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

// Value of a constant in a program's source; -1: it has none.
static int constant(const qn_lowered *l, const qn_cuda_action *a, const char *name)
{
    char line[64];
    snprintf(line, sizeof line, "constexpr int %s = ", name);
    const char *at = a->is_gemm ? NULL : strstr(l->programs[a->program].source.text, line);
    return at ? atoi(at + strlen(line)) : -1;
}

// However many rows there are, one launch of a product runs, and has columns for all of them, twice as many
// at most.
static void check_columns(const qn_lowered *low)
{
    for (int i = 0; i < low->few.n; i++) {
        const qn_step *step = low->few.actions[i].step;
        if (strcmp(low->few.actions[i].path, "mma 8-bit") != 0) {
            continue;
        }
        for (int rows = 2; rows <= 8; rows++) {
            int n = 0;
            for (int k = 0; k < low->few.n; k++) {
                const qn_cuda_action *a = &low->few.actions[k];
                if (a->step == step && strcmp(a->path, "mma 8-bit") == 0 && qn_cuda_runs(a, rows, 0)) {
                    int cols = constant(low, a, "cols");
                    n++;
                    assert_true(cols >= rows && cols < 2 * rows);
                }
            }
            assert_int_equal(n, 1);
        }
    }
}

static void routes(void **state)
{
    (void)state;
    quern_model *m = open_model("llama-Q4_0");
    qn_lowered low = lower(m, QN_VARIANT_SM80, 132, false, false);
    assert_true(count(&low.few, "mma 8-bit") >= 4);
    assert_int_equal(count(&low.few, "gemv 8-bit"), 1); // the head of one row
    assert_int_equal(count(&low.decode, "mma 8-bit"), 0);
    // Rows of one sequence need each other's keys; of several sequences attention finishes its own.
    assert_int_equal(count(&low.few, "rope, mma f16"), 0);
    assert_int_equal(count(&low.each, "rope, mma f16"), count(&low.few, "mma f16"));
    for (int i = 0; i < low.few.n; i++) { // a captured prompt of a bucket's rows must be that of fewer
        assert_false(low.few.actions[i].rows_share);
    }
    assert_int_equal(low.each.n, low.few.n - count(&low.few, "mma f16"));
    check_columns(&low);
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
            assert_int_equal(a->grid[1], b->grid[1]);
        } else if (s->kind == QN_KNOBS_HALF) {
            assert_true(a->shared <= 48 * 1024);
        } else if (s->kind == QN_KNOBS_COLS) {
            assert_true(a->shared <= s->room.limit);
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

// The sites of decode that have a tuned choice.
static int count_tuned(const qn_lowered *l)
{
    int n = 0;
    for (int i = 0; i < l->decode.n; i++) {
        n += l->decode.actions[i].site && l->sites[l->decode.actions[i].site - 1].tuned;
    }
    return n;
}

static const qn_cuda_target some_card = {.has_device = true,
                                         .device = {.name = "Some card", .cc = 90},
                                         .driver = 13000,
                                         .multiprocessors = 132,
                                         .has_nvrtc = true,
                                         .arch = {.name = "sm_90a", .cc = 90, .variant = QN_VARIANT_SM90A}};

static qn_lowered lower_on(const quern_model *m, const qn_cuda_target *t, const qn_exec_opts *o)
{
    qn_lowered low;
    qn_err err;
    if (qn_cuda_lower_only(&low, m->plans, o, t, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return low;
}

// Keeps one choice for the first site of 8-bit products, and says how many launches of decode then have one.
static int tuned_with(const quern_model *m, const char *dir, const char *knobs, const qn_exec_opts *o,
                      const qn_cuda_target *t)
{
    qn_err err;
    qn_choices c;
    qn_lowered low = lower_on(m, t, &(qn_exec_opts){.n_ctx = 256, .n_ubatch = 64, .no_tune = true});
    const qn_kernel_world w = {.card = "Some card", .cc = 90, .driver = 13000, .arch = &some_card.arch};
    int site = 0;
    while (low.sites[site].kind != QN_KNOBS_Q8) {
        site++;
    }
    assert_int_equal(qn_kernel_choices_open(&c, dir, &w, &err), 0);
    assert_true(qn_choices_put(&c, low.sites[site].key, knobs));
    assert_int_equal(qn_choices_keep(&c, &err), 0);
    qn_lowered_free(&low);
    low = lower_on(m, t, o);
    int n = count_tuned(&low);
    qn_lowered_free(&low);
    assert_int_equal(unlink(c.path), 0);
    qn_choices_free(&c);
    return n;
}

static void kept_choices_are_taken(void **state)
{
    (void)state;
    static const char good[] = "warps 8, slices 1, ahead 4, blocks 2";
    char dir[] = "/tmp/quern-kept-XXXXXX";
    assert_non_null(mkdtemp(dir));
    quern_model *m = open_model("llama-Q4_0");
    const qn_exec_opts o = {.n_ctx = 256, .n_ubatch = 64, .cache = dir};
    qn_exec_opts off = o, phases = o, memory = o;
    off.no_tune = phases.persistent = true;
    memory.cache = "none";
    qn_cuda_target other = some_card, older = some_card, none = some_card;
    snprintf(other.device.name, sizeof other.device.name, "Another card");
    older.driver = 12080;
    none.has_device = false;
    assert_int_equal(tuned_with(m, dir, good, &o, &some_card), 1);
    assert_int_equal(tuned_with(m, dir, good, &off, &some_card), 0);
    assert_int_equal(tuned_with(m, dir, good, &phases, &some_card), 0);
    assert_int_equal(tuned_with(m, dir, good, &memory, &some_card), 0);
    assert_int_equal(tuned_with(m, dir, good, &o, &other), 0);
    assert_int_equal(tuned_with(m, dir, good, &o, &older), 0);
    assert_int_equal(tuned_with(m, dir, good, &o, &none), 0);
    // What is shipped, what does not fit, what is no choice.
    static const char *const idle[] = {"warps 16, slices 1, ahead 2, blocks 1",
                                       "warps 16, slices 16, ahead 2, blocks 1",
                                       "warps 16, slices 1, ahead 2, blocks 4", "warps 8", "fast"};
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++) {
        assert_int_equal(tuned_with(m, dir, idle[i], &o, &some_card), 0);
    }
    quern_model_free(m);
    assert_int_equal(rmdir(dir), 0);
}

// Launches of a list that read 8-bit rows; of each the steps are those of a row of its width.
static int check_steps(const qn_lowered *l, const qn_cuda_list *list, const qn_exec_opts *o, int *n_fine)
{
    int n = 0;
    for (int i = 0; i < list->n; i++) {
        const qn_cuda_action *a = &list->actions[i];
        const qn_step *s = a->step;
        int in = constant(l, a, "fine_in"), out = constant(l, a, "fine_out");
        bool product = s && (s->op->id == QN_OP_LINEAR || s->op->id == QN_OP_GLU);
        if (in >= 0) {
            assert_true(product);
            assert_int_equal(in, qn_cuda_fine(o, s->in[0].width));
            n++;
            *n_fine += in;
        }
        if (out >= 0 && a->grid[0] && constant(l, a, "q8_out") == 1) {
            assert_int_equal(out, qn_cuda_fine(o, s->out[0].width));
            *n_fine += out;
        }
    }
    return n;
}

// Rows narrower than 2048 have steps of 16 values, whoever makes or reads them.
static void narrow_rows_have_fine_steps(void **state)
{
    (void)state;
    qn_exec_opts o = {.n_ctx = 256, .n_ubatch = 64};
    assert_true(qn_cuda_fine(&o, 32) && qn_cuda_fine(&o, 2016));
    assert_false(qn_cuda_fine(&o, 2048) || qn_cuda_fine(&o, 4096));
    o.fine_below = 288;
    assert_true(qn_cuda_fine(&o, 256));
    assert_false(qn_cuda_fine(&o, 288));
    quern_model *m = open_model("llama-mix-Q4_K_M");
    static const int below[] = {0, 1, 257, 512};
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        for (int route = 0; route < 2; route++) {
            o.fine_below = below[i];
            o.prefill = route ? QN_PREFILL_MMQ : QN_PREFILL_AUTO;
            qn_lowered low = lower_on(m, &some_card, &o);
            int fine = 0, none = 0;
            assert_true(check_steps(&low, &low.decode, &o, &fine) >= 4);
            assert_true(check_steps(&low, &low.few, &o, &fine) >= 4);
            assert_true((check_steps(&low, &low.prefill, &o, &none) >= 4) == (route == 1));
            assert_true((fine > 0) == (below[i] != 1));
            qn_lowered_free(&low);
        }
    }
    quern_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes),
        cmocka_unit_test(narrow_rows_have_fine_steps),
        cmocka_unit_test(sums_are_alike_on_every_card),
        cmocka_unit_test(kept_choices_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
