// Products through cuBLASLt: a library and a clock of the test's own. Which algorithm is taken, what is
// timed, what is remembered, and what a damaged or foreign file changes.
// rooms: room_cuda
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/exec.h"

// The library: five algorithms, of which number 2 does not run and number 3 wants too much memory; algorithm
// i takes `cost[i]` on the clock.
static int n_offered = 5, n_matmul, n_heuristic;
static uint64_t last_algo, salt;
static float last_alpha;
static unsigned int operand_type;
static float clock_ms, cost[8] = {5.0f, 4.0f, 1.0f, 0.5f, 3.0f};
static bool all_fail, first_fails;

static qn_lt_status make(void **out)
{
    *out = malloc(1);
    return QN_LT_SUCCESS;
}

static qn_lt_status drop(void *p)
{
    free(p);
    return QN_LT_SUCCESS;
}

static qn_lt_status desc_create(qn_lt_desc *d, unsigned int c, unsigned int s)
{
    (void)c;
    (void)s;
    return make(d);
}

static qn_lt_status layout_create(qn_lt_layout *d, unsigned int t, uint64_t r, uint64_t c, int64_t ld)
{
    operand_type = t == QN_LT_R_32F ? operand_type : t;
    (void)r;
    (void)c;
    (void)ld;
    return make(d);
}

static qn_lt_status set(void *d, unsigned int a, const void *v, size_t n)
{
    (void)d;
    (void)a;
    (void)v;
    (void)n;
    return QN_LT_SUCCESS;
}

static qn_lt_status heuristic(qn_lt_handle h, qn_lt_desc d, qn_lt_layout a, qn_lt_layout b, qn_lt_layout c,
                              qn_lt_layout e, qn_lt_preference p, int asked, qn_lt_heuristic *out, int *n)
{
    (void)h, (void)d, (void)a, (void)b, (void)c, (void)e, (void)p;
    n_heuristic++;
    *n = n_offered < asked ? n_offered : asked;
    for (int i = 0; i < *n; i++) {
        out[i] = (qn_lt_heuristic){.algo.data = {(uint64_t)i, salt},
                                   .workspace = i == 3 ? 1 << 30 : 0,
                                   .state = i == 2 && !first_fails ? QN_LT_NOT_SUPPORTED : QN_LT_SUCCESS};
    }
    return QN_LT_SUCCESS;
}

static qn_lt_status matmul(qn_lt_handle h, qn_lt_desc d, const void *al, const void *a, qn_lt_layout la,
                           const void *b, qn_lt_layout lb, const void *be, const void *c, qn_lt_layout lc,
                           void *o, qn_lt_layout lo, const qn_lt_algo *algo, void *w, size_t n,
                           qn_lt_stream s)
{
    last_alpha = *(const float *)al;
    (void)h, (void)d, (void)a, (void)la, (void)b, (void)lb, (void)be, (void)c, (void)lc, (void)o;
    (void)lo, (void)w, (void)n, (void)s;
    n_matmul++;
    last_algo = algo->data[0];
    if (all_fail || (first_fails && last_algo == 0)) {
        return QN_LT_NOT_SUPPORTED;
    }
    clock_ms += cost[last_algo];
    return QN_LT_SUCCESS;
}

// The driver's clock: an event holds the time at which it was recorded.
static qn_cu_result event_create(qn_cu_event *e, unsigned int flags)
{
    (void)flags;
    *e = calloc(1, sizeof(float));
    return QN_CU_SUCCESS;
}

static qn_cu_result event_destroy(qn_cu_event e)
{
    free(e);
    return QN_CU_SUCCESS;
}

static qn_cu_result event_record(qn_cu_event e, qn_cu_stream s)
{
    (void)s;
    *(float *)(void *)e = clock_ms;
    return QN_CU_SUCCESS;
}

static qn_cu_result event_wait(qn_cu_event e)
{
    (void)e;
    return QN_CU_SUCCESS;
}

static qn_cu_result elapsed(float *ms, qn_cu_event a, qn_cu_event b)
{
    *ms = *(float *)(void *)b - *(float *)(void *)a;
    return QN_CU_SUCCESS;
}

static const qn_cuda_api driver = {.EventCreate = event_create,
                                   .EventDestroy = event_destroy,
                                   .EventRecord = event_record,
                                   .EventSynchronize = event_wait,
                                   .EventElapsedTime = elapsed};

static char dir[] = "/tmp/quern-gemm-XXXXXX";

static qn_gemm open_gemm(void)
{
    qn_gemm g = {.loaded = true, .workspace_bytes = 1 << 20};
    g.lt.version = 130001;
    g.lt.api = (qn_cublaslt_api){.MatmulDescCreate = desc_create,
                                 .MatmulDescDestroy = drop,
                                 .MatmulDescSetAttribute = set,
                                 .MatrixLayoutCreate = layout_create,
                                 .MatrixLayoutDestroy = drop,
                                 .MatmulPreferenceCreate = make,
                                 .MatmulPreferenceDestroy = drop,
                                 .MatmulPreferenceSetAttribute = set,
                                 .MatmulAlgoGetHeuristic = heuristic,
                                 .Matmul = matmul};
    return g;
}

// Two products, one of them twice, and a product over rows of outputs, which is not timed.
static qn_cuda_action actions[4] = {
    {.is_gemm = true, .gemm = {.n_in = 64, .n_out = 96, .ld_out = 96}},
    {.is_gemm = true, .gemm = {.n_in = 64, .n_out = 64, .ld_out = 64}},
    {.is_gemm = true, .gemm = {.n_in = 64, .n_out = 96, .ld_out = 96}},
    {.is_gemm = true, .gemm = {.n_in = 64, .n_out = 999, .ld_out = 999}, .rows = QN_ROWS_OUTPUTS},
};
static const qn_cuda_list list = {actions, 4, 4};

static qn_tuned tune(qn_gemm *g, const char *card, double budget)
{
    const qn_tuning t = {.cu = &driver,
                         .dir = dir,
                         .card = card,
                         .driver = 13000,
                         .list = &list,
                         .rows = 512,
                         .budget = budget};
    return qn_gemm_tune(g, &t);
}

static uint64_t algo_of(qn_gemm *g, int i)
{
    qn_err err;
    assert_int_equal(qn_gemm_run(g, &actions[i].gemm, 512, NULL, &err), 0);
    return last_algo;
}

static void untimed_takes_the_first(void **state)
{
    (void)state;
    qn_gemm g = open_gemm();
    n_matmul = 0;
    assert_int_equal(algo_of(&g, 0), 0);
    assert_int_equal(algo_of(&g, 0), 0);
    assert_int_equal(n_matmul, 2);
    assert_int_equal(g.n, 1); // planned once
    assert_int_equal(g.plans[0].n_algo, 3);
    qn_gemm_close(&g);
}

// Products of e4m3: planned apart from those of the same shape, with the weights' power of two.
static void bytes_have_a_factor(void **state)
{
    (void)state;
    static const float up[2] = {1.0f, 0.25f};
    qn_gemm g = open_gemm();
    g.fp8_up = up;
    qn_cuda_gemm q = actions[0].gemm;
    qn_err err;
    assert_int_equal(qn_gemm_run(&g, &q, 512, NULL, &err), 0);
    assert_true(last_alpha == 1.0f);
    assert_int_equal(operand_type, QN_LT_R_16F);
    q.fp8 = 2;
    assert_int_equal(qn_gemm_run(&g, &q, 512, NULL, &err), 0);
    assert_true(last_alpha == 0.25f);
    assert_int_equal(operand_type, QN_LT_R_8F_E4M3);
    q.fp8 = 1;
    assert_int_equal(qn_gemm_run(&g, &q, 512, NULL, &err), 0);
    assert_true(last_alpha == 1.0f);
    assert_int_equal(g.n, 2);
    qn_gemm_close(&g);
}

static void times_once_and_remembers(void **state)
{
    (void)state;
    qn_gemm g = open_gemm();
    n_matmul = 0;
    qn_tuned n = tune(&g, "Card A", 100);
    assert_int_equal(n.timed, 2);
    assert_int_equal(n.found, 0);
    assert_int_equal(n_matmul, 2 * 3 * 4); // products, algorithms, runs
    assert_int_equal(algo_of(&g, 0), 4);   // not 2, which is not supported, nor 3, which is too large
    assert_int_equal(algo_of(&g, 1), 4);
    qn_gemm_close(&g);

    g = open_gemm(); // a later session
    n_matmul = 0;
    n = tune(&g, "Card A", 100);
    assert_int_equal(n.timed, 0);
    assert_int_equal(n.found, 2);
    assert_int_equal(n_matmul, 0);
    assert_int_equal(algo_of(&g, 0), 4);
    qn_gemm_close(&g);

    g = open_gemm(); // another card knows nothing of it
    assert_int_equal(tune(&g, "Card B", 100).timed, 2);
    qn_gemm_close(&g);
    g = open_gemm(); // another library neither
    g.lt.version = 130002;
    assert_int_equal(tune(&g, "Card A", 100).timed, 2);
    qn_gemm_close(&g);
    g = open_gemm(); // algorithms that are not offered any more are timed anew
    salt = 7;
    assert_int_equal(tune(&g, "Card A", 100).timed, 2);
    salt = 0;
    qn_gemm_close(&g);
}

static void time_is_bounded(void **state)
{
    (void)state;
    qn_gemm g = open_gemm();
    n_matmul = 0;
    assert_int_equal(tune(&g, "Card C", 0).timed, 0);
    assert_int_equal(n_matmul, 0);
    assert_int_equal(algo_of(&g, 0), 0);
    qn_gemm_close(&g);
}

// Noise of less than a hundredth does not unseat the library's choice.
static void nearly_equal_keeps_the_first(void **state)
{
    (void)state;
    qn_gemm g = open_gemm();
    float was = cost[4];
    cost[1] = cost[4] = 4.98f;
    assert_int_equal(tune(&g, "Card D", 100).timed, 2);
    assert_int_equal(algo_of(&g, 0), 0);
    cost[4] = was;
    cost[1] = 4.0f;
    qn_gemm_close(&g);
}

static void failing_algorithms(void **state)
{
    (void)state;
    qn_err err;
    qn_gemm g = open_gemm();
    all_fail = true;
    assert_int_equal(tune(&g, "Card E", 100).timed, 0);
    assert_int_equal(g.plans[0].chosen, 0);
    assert_int_equal(qn_gemm_run(&g, &actions[0].gemm, 512, NULL, &err), -1);
    assert_non_null(strstr(err.text, "cuBLASLt: matmul"));
    all_fail = false;
    qn_gemm_close(&g);
    n_offered = 0;
    g = open_gemm();
    assert_int_equal(tune(&g, "Card E", 100).timed, 0);
    assert_int_equal(qn_gemm_run(&g, &actions[0].gemm, 512, NULL, &err), -1);
    assert_non_null(strstr(err.text, "96 x 64 by 512 rows"));
    n_offered = 5;
    qn_gemm_close(&g);
}

// Every byte of a remembered file may be wrong: what is not understood is timed again, and nothing but an
// algorithm that the library offers is ever run.
static void damaged_files(void **state)
{
    (void)state;
    DIR *d = opendir(dir);
    assert_non_null(d);
    char path[600] = "", text[4096];
    qn_gemm g = open_gemm();
    tune(&g, "Card F", 100);
    qn_gemm_close(&g);
    for (struct dirent *e; (e = readdir(d));) {
        char one[600];
        snprintf(one, sizeof one, "%s/%s", dir, e->d_name);
        FILE *f = strstr(e->d_name, "products-") ? fopen(one, "r") : NULL;
        size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
        text[n] = '\0';
        if (f) {
            fclose(f);
        }
        if (strstr(text, "Card F")) {
            snprintf(path, sizeof path, "%s", one);
            break;
        }
    }
    closedir(d);
    assert_true(path[0]);
    size_t size = strlen(text);
    for (size_t i = 0; i <= size; i++) {
        FILE *f = fopen(path, "w");
        fwrite(text, 1, i, f); // cut short, or with one byte changed
        if (i < size) {
            fputc(text[i] ^ 0x15, f);
            fwrite(text + i + 1, 1, size - i - 1, f);
        }
        fclose(f);
        g = open_gemm();
        qn_tuned n = tune(&g, "Card F", 100);
        assert_int_equal(n.timed + n.found, 2);
        uint64_t a = algo_of(&g, 0);
        assert_true(a == 0 || a == 1 || a == 4);
        qn_gemm_close(&g);
    }
}

static int remove_dir(void **state)
{
    (void)state;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        unlink(path);
    }
    closedir(d);
    return rmdir(dir);
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_have_a_factor),
        cmocka_unit_test(untimed_takes_the_first),
        cmocka_unit_test(times_once_and_remembers),
        cmocka_unit_test(time_is_bounded),
        cmocka_unit_test(nearly_equal_keeps_the_first),
        cmocka_unit_test(failing_algorithms),
        cmocka_unit_test(damaged_files),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
