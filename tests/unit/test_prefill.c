// What a prompt goes through on a GPU, without one: kernels of a layer, weights kept as 16-bit rows where
// memory allows, the stream that makes them otherwise, the head of few outputs.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/exec.h"
#include "cuda/programs.h"
#include "engine/engine.h"
#include "engine/memory.h"

#define QUANTISED QN_TEST_DATA "/goldens/quants/llama-Q4_K.gguf" /* one layer */
#define LAYERS    QN_BUILD_DIR "/goldens/archs/llama.gguf"       /* f32 */
#define COPIED    QN_BUILD_DIR "/goldens/archs/gemma4-31b.gguf"  /* 4 heads of 64 */

static const qn_cuda_target h200 = {.multiprocessors = 132,
                                    .arch = {.name = "sm_90a", .cc = 90, .variant = 90}};

static quern_model *open_model(const char *path)
{
    quern_model *m;
    quern_error err;
    const quern_model_params p = {.n_ctx = 256, .no_tokenizer = true};
    if (quern_model_load(&m, path, &p, &err)) {
        fail_msg("%s", err.text);
    }
    return m;
}

static qn_exec_opts options(qn_weight_cache cache)
{
    return (qn_exec_opts){.cuda = true, .n_ctx = 256, .n_ubatch = 64, .n_outputs = 64, .weight_cache = cache};
}

static qn_lowered lower(const quern_model *m, qn_exec_opts o)
{
    qn_lowered low;
    qn_err err;
    if (qn_cuda_lower_only(&low, m->plans, &o, &h200, &err)) {
        fail_msg("%s", err.text);
    }
    return low;
}

// Launches of one layer: all, and those that are products of the library.
static int layer_launches(const quern_model *m, qn_exec_opts o, int *n_gemm)
{
    qn_lowered low = lower(m, o);
    int n = 0;
    *n_gemm = 0;
    for (int i = 0; i < low.prefill.n; i++) {
        const qn_cuda_action *a = &low.prefill.actions[i];
        if (a->step && a->step->layer == 1 && qn_cuda_runs(a, o.n_ubatch, 0)) {
            n++;
            *n_gemm += a->is_gemm;
        }
    }
    qn_lowered_free(&low);
    return n;
}

static void kernels_of_a_layer(void **state)
{
    (void)state;
    quern_model *m = open_model(LAYERS);
    qn_exec_opts o = options(QN_WEIGHT_CACHE_ON);
    int gemm;
    // norm, qkv, rope, attention, out, norm, gate and up, activation, down
    assert_int_equal(layer_launches(m, o, &gemm), 9);
    assert_int_equal(gemm, 4);
    o.no_fuse = true; // + rounding of 4 inputs, what follows 3 products
    assert_int_equal(layer_launches(m, o, &gemm), 16);
    assert_int_equal(gemm, 4);
    o = options(QN_WEIGHT_CACHE_OFF); // + 7 weights to 16 bits
    assert_int_equal(layer_launches(m, o, &gemm), 16);
    assert_int_equal(gemm, 4);
    o.no_fuse = true; // as it was before
    assert_int_equal(layer_launches(m, o, &gemm), 23);
    quern_model_free(m);
}

// Own kernels: each product a launch, quantised weights as they are where 8-bit products are asked for.
static void own_kernels(void **state)
{
    (void)state;
    quern_model *m = open_model(QUANTISED);
    for (int mmq = 0; mmq < 2; mmq++) {
        qn_exec_opts o = options(mmq ? QN_WEIGHT_CACHE_OFF : QN_WEIGHT_CACHE_ON);
        o.prefill = mmq ? QN_PREFILL_MMQ : QN_PREFILL_MMA;
        qn_lowered low = lower(m, o);
        int products = 0;
        for (int i = 0; i < low.prefill.n; i++) {
            const qn_cuda_action *a = &low.prefill.actions[i];
            assert_false(a->is_gemm);
            products += a->rows == QN_ROWS_TOKENS && strcmp(a->path, mmq ? "mmq 8-bit" : "mma f16") == 0;
            assert_false(mmq && a->w16);
        }
        assert_int_equal(products, mmq ? 7 : 4); // a launch a weight; or qkv, out, gate and up, down
        qn_lowered_free(&low);
    }
    quern_model_free(m);
}

// Weights as they are for the products of warpgroups: weights of one type side by side, a tile for any number
// of rows.
static void warpgroups(void **state)
{
    (void)state;
    quern_model *m = open_model(QUANTISED);
    qn_exec_opts o = options(QN_WEIGHT_CACHE_OFF);
    o.prefill = QN_PREFILL_WGMMA;
    o.n_ubatch = 300;
    qn_lowered low = lower(m, o);
    const qn_step *step = NULL;
    int products = 0, widths[QN_CUDA_ACT_WIDTHS];
    for (int i = 0; i < low.prefill.n; i++) {
        const qn_cuda_action *a = &low.prefill.actions[i];
        assert_false(a->is_gemm || a->w16);
        if (strcmp(a->path, "wgmma f16") == 0 && a->rows == QN_ROWS_TOKENS && a->step != step) {
            step = a->step;
            products++;
            for (int rows = 9; rows <= 300; rows++) {
                int n = 0;
                for (int k = i; k < low.prefill.n && low.prefill.actions[k].step == step; k++) {
                    n += strcmp(low.prefill.actions[k].path, "wgmma f16") == 0 &&
                         qn_cuda_runs(&low.prefill.actions[k], rows, 0);
                }
                assert_int_equal(n, 1); // qkv, out, gate and up, down: one launch each
                assert_int_equal(qn_cuda_bucket(rows, 300) <= 64, rows <= 64); // as the graph that replays it
            }
        }
    }
    assert_int_equal(products, 4);
    assert_in_range(qn_cuda_act_widths(m->plans, &o, widths), 1, 4);
    qn_tma t = qn_act_tma_of(widths[0], &o);
    assert_true(t.dims[0] == (uint64_t)widths[0] && t.dims[1] == 300 &&
                t.strides[0] == 2 * (uint64_t)widths[0]);
    assert_true(t.strides[0] % 16 == 0 && t.box[0] == 64 && t.box[1] == 64);
    qn_lowered_free(&low);
    qn_half_cache c;
    qn_err err;
    assert_int_equal(qn_half_cache_make(&c, m->plans, &o, &err), 0);
    assert_int_equal(c.n, 0);
    qn_half_cache_free(&c);
    const qn_cuda_target a100 = {.multiprocessors = 108, .arch = {.name = "sm_80", .cc = 80, .variant = 80}};
    assert_int_equal(qn_cuda_lower_only(&low, m->plans, &o, &a100, &err), -1);
    assert_non_null(strstr(err.text, "--prefill wgmma is for sm_90a"));
    quern_model_free(m);
    m = open_model(LAYERS); // f32 weights: by rows made for them
    low = lower(m, o);
    for (int i = 0; i < low.prefill.n; i++) {
        assert_true(strcmp(low.prefill.actions[i].path, "wgmma f16") != 0);
    }
    qn_lowered_free(&low);
    quern_model_free(m);
}

// e4m3: a byte a weight, a power of two a product, one product for q, k and v and one for gate and up, where
// both sizes of all weights are multiples of 16; the head as ever.
static void bytes(void **state)
{
    (void)state;
    quern_model *m = open_model(QUANTISED);
    qn_exec_opts o = options(QN_WEIGHT_CACHE_ON), half = o;
    o.prefill = QN_PREFILL_FP8;
    qn_half_cache c, h;
    qn_err err;
    assert_int_equal(qn_half_cache_make(&c, m->plans, &o, &err), 0);
    assert_int_equal(qn_half_cache_make(&h, m->plans, &half, &err), 0);
    assert_int_equal(c.n, h.n);
    assert_int_equal(c.n_fp8, 4); // one layer
    assert_true(2 * c.bytes >= h.bytes && 2 * c.bytes <= h.bytes + 2 * 256 * 4);
    qn_lowered low = lower(m, o);
    assert_int_equal(low.tops.n, c.n);
    assert_int_equal(low.halves.n, c.n);
    int products = 0, rounded = 0, last = 0;
    for (int i = 0; i < low.prefill.n; i++) {
        const qn_cuda_action *a = &low.prefill.actions[i];
        rounded += !a->is_gemm && strcmp(low.programs[a->program].name, "to_fp8") == 0;
        if (a->is_gemm && a->gemm.fp8) {
            assert_string_equal(a->path, "cuBLASLt fp8");
            assert_int_equal(a->gemm.fp8, last + 1); // each its own power of two
            last = a->gemm.fp8;
            products++;
        } else if (a->is_gemm) {
            assert_int_equal(a->rows, QN_ROWS_OUTPUTS);
        }
        assert_false(a->rows == QN_ROWS_TOKENS && a->w16);
    }
    assert_int_equal(products, 4);
    assert_int_equal(rounded, 4);
    const qn_run r = {.n = 40, .phase = QN_PHASE_PREFILL, .outputs = QN_OUT_LAST};
    const qn_exec e = {.opts = o};
    for (int i = 0; i < m->plans->prefill.n_step; i++) {
        const qn_step *s = &m->plans->prefill.steps[i];
        const qn_tensor *w[3];
        if (qn_product_weights(s, w) > 0 && s->rows == QN_ROWS_TOKENS) {
            assert_int_equal(qn_cuda_arith(&e, &r, s), QN_ARITH_FP8);
        }
    }
    qn_lowered_free(&low);
    qn_half_cache_free(&c);
    qn_half_cache_free(&h);
    assert_true(qn_cuda_fp8_up(256.0f) == 2.0f && qn_cuda_fp8_up(255.9f) == 1.0f &&
                qn_cuda_fp8_up(0.0f) == 1.0f);
    assert_true(qn_cuda_fp8_up(0.5f) == 0x1p-8f && qn_cuda_fp8_up(1e-44f) == 0x1p-100f);
    const qn_cuda_target a100 = {.multiprocessors = 108, .arch = {.name = "sm_80", .cc = 80, .variant = 80}};
    assert_int_equal(qn_cuda_lower_only(&low, m->plans, &o, &a100, &err), -1);
    assert_non_null(
        strstr(err.text, "--prefill fp8 needs a card with fp8 products, sm_89 or newer; this is sm_80"));
    o.weight_cache = QN_WEIGHT_CACHE_AUTO; // there is no other way
    assert_int_equal(qn_memory_fit(m->plans, &o, true, UINT64_MAX, &err), 0);
    assert_int_equal(o.weight_cache, QN_WEIGHT_CACHE_ON);
    o.weight_cache = QN_WEIGHT_CACHE_AUTO;
    assert_int_equal(qn_memory_fit(m->plans, &o, true, 1000, &err), -1);
    quern_model_free(m);
}

// Query rows of a block of attention by tensor copies: 64 for few pairs of a head and 64 rows (4 heads: up to
// 132 pairs), and for up to 396 near the beginning; one launch whatever the chunk.
static void rows_of_a_block(void **state)
{
    (void)state;
    quern_model *m = open_model(COPIED);
    qn_exec_opts o = options(QN_WEIGHT_CACHE_ON);
    o.n_ctx = 20000;
    o.n_ubatch = 10000;
    for (int always = 0; always < 2; always++) {
        o.tma_attention = always;
        qn_lowered low = lower(m, o);
        static const int starts[4] = {0, QN_CUDA_SHALLOW, QN_CUDA_SHALLOW + 1, 9000};
        bool by_depth = false;
        for (int j = 0; j < low.prefill.n; j++) {
            by_depth = by_depth || low.prefill.actions[j].depth != QN_DEPTH_ANY;
        }
        assert_int_equal(by_depth, !always);
        for (int rows = 1; rows <= o.n_ubatch; rows += 33) {
            for (int k = 0; k < 4; k++) {
                bool few = !always && (rows <= 33 * 64 || (rows <= 99 * 64 && starts[k] <= QN_CUDA_SHALLOW));
                const qn_step *step = NULL;
                for (int i = 0; i < low.prefill.n; i++) {
                    const qn_cuda_action *a = &low.prefill.actions[i];
                    if (strcmp(a->path, "wgmma, TMA") == 0 && qn_cuda_runs(a, rows, starts[k])) {
                        assert_ptr_not_equal(a->step, step); // one a step
                        step = a->step;
                        assert_int_equal(a->threads, few ? 256 : 384);
                        assert_int_equal(a->rows_axis, few ? 1 : -1);
                    }
                }
                assert_non_null(step);
            }
        }
        qn_lowered_free(&low);
    }
    quern_model_free(m);
}

// Heads of 64 or 128 in a cache that a tile never leaves.
static void tensor_copies(void **state)
{
    (void)state;
    qn_exec_opts o = {.n_ctx = 4096, .n_ubatch = 512};
    qn_kv_cache kv = {.n_head_kv = 8, .k_dim = 128, .v_dim = 128};
    qn_tma t = qn_tma_of(&kv, &o);
    assert_int_equal(t.keys, 128);
    assert_int_equal(t.strides[0], 2 * 8 * 128);
    assert_true(t.dims[0] == 64 && t.dims[1] == 4096 && t.dims[2] == 2 && t.dims[3] == 8);
    kv.window = 1024; // a ring of 1536 rows
    assert_int_equal(qn_tma_of(&kv, &o).keys, 128);
    kv.window = 1000; // of 1512, and so of 1536 rows
    assert_int_equal(qn_tma_of(&kv, &o).dims[1], 1536);
    kv.window = 100; // of 612: no multiple of a tile
    assert_int_equal(qn_tma_of(&kv, &o).keys, 0);
    kv.window = 0;
    kv.v_dim = 64;
    assert_int_equal(qn_tma_of(&kv, &o).keys, 0);
    kv.k_dim = kv.v_dim = 64;
    assert_int_equal(qn_tma_of(&kv, &o).stages, 3);
    qn_tma few = qn_tma_short_of(&kv, &o);
    assert_true(few.keys == 64 && few.stages == 2 && few.box[1] == 64 && few.box[2] == 1);
    kv.k_dim = kv.v_dim = 96; // two boxes, the second cut off at the head's end
    t = qn_tma_of(&kv, &o);
    assert_true(t.keys == 128 && t.boxes == 2 && t.dims[0] == 96 && t.dims[2] == 1 && t.box[2] == 1);
    kv.k_dim = kv.v_dim = 256;
    kv.window = 1024; // of 1536 rows, 19.2 tiles: 1600
    t = qn_tma_of(&kv, &o);
    assert_true(t.keys == 80 && t.boxes == 1 && t.dims[1] == 1600 && t.dims[2] == 4 && t.box[2] == 4);
    assert_int_equal(qn_tma_short_of(&kv, &o).keys, 0); // no room for two blocks
    kv.k_dim = kv.v_dim = 192;                          // no product has such a width
    assert_int_equal(qn_tma_of(&kv, &o).keys, 0);
    kv.k_dim = kv.v_dim = 100; // rows of heads that are no whole pieces of 16 bytes
    assert_int_equal(qn_tma_of(&kv, &o).keys, 0);
    kv.k_dim = kv.v_dim = 128;
    o.flash_attention = true;
    assert_int_equal(qn_tma_of(&kv, &o).keys, 0);
}

// One product takes q, k and v, and one gate and up: their kept rows lie back to back.
static void kept_rows(void **state)
{
    (void)state;
    quern_model *m = open_model(QUANTISED);
    qn_lowered low = lower(m, options(QN_WEIGHT_CACHE_ON));
    qn_half_cache c;
    qn_err err;
    qn_exec_opts o = options(QN_WEIGHT_CACHE_ON);
    assert_int_equal(qn_half_cache_make(&c, m->plans, &o, &err), 0);
    uint64_t values = 0;
    int layers = 0;
    for (int i = 0; i < m->plans->prefill.n_step; i++) {
        const qn_step *s = &m->plans->prefill.steps[i];
        const qn_tensor *w[3];
        int n = qn_product_weights(s, w);
        layers += s->op->id == QN_OP_GLU;
        for (int k = 0; k < n && s->rows == QN_ROWS_TOKENS; k++) {
            values += w[k]->ne[0] * w[k]->ne[1];
            assert_true(k == 0 || qn_half_cache_at(&c, w[k]) ==
                                      qn_half_cache_at(&c, w[k - 1]) + 2 * w[k - 1]->ne[0] * w[k - 1]->ne[1]);
        }
    }
    assert_int_equal(c.n, 7 * layers);
    assert_true(c.bytes >= 2 * values && c.bytes < 2 * values + 256 * (uint64_t)c.n);
    assert_int_equal(low.halves.n, c.n); // each made once, at load
    for (int i = 0; i < low.prefill.n; i++) {
        const qn_cuda_action *a = &low.prefill.actions[i];
        assert_false(a->rows == QN_ROWS_TOKENS && a->w16);
    }
    qn_half_cache_free(&c);
    o.prefill = QN_PREFILL_MMQ;
    assert_int_equal(qn_half_cache_make(&c, m->plans, &o, &err), 0);
    assert_int_equal(c.n, 0); // 8-bit products read the quantised weights
    qn_half_cache_free(&c);
    qn_lowered_free(&low);
    quern_model_free(m);
}

// Made for each use: areas in turn, or one only; every product reads the area just written.
static void areas_take_turns(void **state)
{
    (void)state;
    quern_model *m = open_model(LAYERS);
    for (int serial = 0; serial < 2; serial++) {
        qn_lowered low = lower(m, options(serial ? QN_WEIGHT_CACHE_SERIAL : QN_WEIGHT_CACHE_OFF));
        int last = 0, products = 0;
        for (int i = 0; i < low.prefill.n; i++) {
            const qn_cuda_action *a = &low.prefill.actions[i];
            if (a->is_gemm && a->rows == QN_ROWS_TOKENS) {
                assert_true(a->w16 > 0 && low.prefill.actions[i - 1].makes_w16);
                assert_int_equal(low.prefill.actions[i - 1].w16, a->w16);
                assert_true(products == 0 || (serial ? a->w16 == last : a->w16 == 3 - last));
                last = a->w16;
                products++;
            }
            assert_true(!a->makes_w16 || a->w16 > 0);
        }
        assert_true(products > 4);
        qn_lowered_free(&low);
    }
    quern_model_free(m);
}

// Few rows of logits: the head's kernels of decode; more: products of pieces of it.
static void head(void **state)
{
    (void)state;
    quern_model *m = open_model(QUANTISED);
    qn_lowered low = lower(m, options(QN_WEIGHT_CACHE_ON));
    int few = 0, many = 0;
    for (int i = 0; i < low.prefill.n; i++) {
        const qn_cuda_action *a = &low.prefill.actions[i];
        if (a->step && a->step->out[0].buf == m->plans->prefill.logits_buf) {
            assert_true(qn_cuda_runs(a, 1, 0) != qn_cuda_runs(a, QN_CUDA_HEAD_FEW + 1, 0));
            assert_int_equal(qn_cuda_runs(a, 1, 0), qn_cuda_runs(a, QN_CUDA_HEAD_FEW, 0));
            few += qn_cuda_runs(a, 1, 0);
            many += qn_cuda_runs(a, 5, 0);
            assert_true(!a->is_gemm || !qn_cuda_runs(a, 1, 0));
        }
    }
    assert_int_equal(few, 2);  // activations to 8 bits, product
    assert_int_equal(many, 4); // activations and weights to 16 bits, product, what follows it
    qn_lowered_free(&low);
    quern_model_free(m);
}

static void planning(void **state)
{
    (void)state;
    quern_model *m = open_model(QUANTISED);
    qn_err err;
    qn_memory with, without;
    const uint64_t reserve = (uint64_t)1 << 30;
    qn_exec_opts on = options(QN_WEIGHT_CACHE_ON), off = options(QN_WEIGHT_CACHE_OFF), o;
    qn_memory_of(m->plans, &on, &with);
    qn_memory_of(m->plans, &off, &without);
    assert_true(with.weight_cache > 0);
    assert_int_equal(without.weight_cache, 0);
    assert_int_equal(with.kv, without.kv);
    assert_true(with.other < without.other); // no areas for the layers' weights
    uint64_t need = qn_memory_total(&with);
    o = options(QN_WEIGHT_CACHE_AUTO);
    assert_int_equal(qn_memory_fit(m->plans, &o, true, need + reserve, &err), 0);
    assert_int_equal(o.weight_cache, QN_WEIGHT_CACHE_ON);
    assert_int_equal(o.n_ctx, 256);
    o = options(QN_WEIGHT_CACHE_AUTO); // one byte less: the context comes first
    assert_int_equal(qn_memory_fit(m->plans, &o, true, need + reserve - 1, &err), 0);
    assert_int_equal(o.weight_cache, QN_WEIGHT_CACHE_OFF);
    assert_int_equal(o.n_ctx, 256);
    o = options(QN_WEIGHT_CACHE_AUTO); // the context shrinks only where it must without a cache too
    assert_int_equal(qn_memory_fit(m->plans, &o, true, qn_memory_total(&without) - 1, &err), 0);
    assert_int_equal(o.weight_cache, QN_WEIGHT_CACHE_OFF);
    assert_true(o.n_ctx < 256);
    o = on; // asked for: no reserve is kept
    assert_int_equal(qn_memory_fit(m->plans, &o, false, need, &err), 0);
    assert_int_equal(qn_memory_fit(m->plans, &o, false, need - 1, &err), -1);
    assert_non_null(strstr(err.text, "weight cache"));
    assert_non_null(strstr(err.text, "--weight-cache off"));
    assert_int_equal(qn_memory_fit(m->plans, &o, true, 1000, &err), -1);
    assert_non_null(strstr(err.text, "no context fits (remedy: --weight-cache off)"));
    o = options(QN_WEIGHT_CACHE_AUTO); // the CPU has none
    o.cuda = false;
    assert_int_equal(qn_memory_fit(m->plans, &o, true, UINT64_MAX, &err), 0);
    assert_int_equal(o.weight_cache, QN_WEIGHT_CACHE_AUTO);
    quern_model_free(m);
}

static void refused_options(void **state)
{
    (void)state;
    static const struct {
        quern_session_params p;
        const char *says;
    } cases[] = {
        {{.backend = QUERN_BACKEND_CPU, .weight_cache = QUERN_WEIGHT_CACHE_ON}, "--weight-cache on is for"},
        {{.backend = QUERN_BACKEND_CPU, .prefill = QUERN_PREFILL_MMQ}, "--prefill is for backend cuda"},
        {{.backend = QUERN_BACKEND_CPU, .prefill = (quern_prefill)9}, "prefill 9: no such choice"},
        {{.backend = QUERN_BACKEND_CPU, .weight_cache = (quern_weight_cache)4}, "weight cache 4"},
    };
    quern_model *m = open_model(QUANTISED);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        quern_session *s;
        quern_error err;
        assert_int_equal(quern_session_new(&s, m, &cases[i].p, &err), -1);
        assert_null(s);
        if (!strstr(err.text, cases[i].says)) {
            fail_msg("%s", err.text);
        }
    }
    quern_model_free(m);
}

// A driver that writes down what it is told: L launch, W wait, R record; m main stream, s second; a, b:
// events "made" of area 1 and 2, c, d: "read".
static char told[128];
static qn_cuda_exec x;

static void tell(char what, qn_cu_stream s, qn_cu_event e)
{
    size_t n = strlen(told);
    char event = e == x.w16_made[0]   ? 'a'
                 : e == x.w16_made[1] ? 'b'
                 : e == x.w16_read[0] ? 'c'
                 : e == x.w16_read[1] ? 'd'
                                      : '-';
    told[n++] = what;
    told[n++] = s == x.side ? 's' : 'm';
    if (e) {
        told[n++] = event;
    }
    told[n++] = ' ';
    told[n] = '\0';
}

static qn_cu_result launch(qn_cu_function f, unsigned int gx, unsigned int gy, unsigned int gz,
                           unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                           qn_cu_stream s, void **params, void **extra)
{
    (void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)params,
        (void)extra;
    tell('L', s, NULL);
    return QN_CU_SUCCESS;
}

static qn_cu_result wait_event(qn_cu_stream s, qn_cu_event e, unsigned int flags)
{
    (void)flags;
    tell('W', s, e);
    return QN_CU_SUCCESS;
}

static qn_cu_result record(qn_cu_event e, qn_cu_stream s)
{
    tell('R', s, e);
    return QN_CU_SUCCESS;
}

static void run(int w16, bool makes, bool in_turn)
{
    qn_err err;
    const qn_cuda_action a = {
        .w16 = w16, .makes_w16 = makes, .rows_axis = -1, .threads = 32, .grid = {1, 1, 1}};
    assert_int_equal(qn_cuda_action_run(&x, &a, 1, in_turn, &err), 0);
}

static void streams(void **state)
{
    (void)state;
    static char handles[6];
    qn_cu_function function = NULL;
    x = (qn_cuda_exec){
        .cuda.api = {.LaunchKernel = launch, .StreamWaitEvent = wait_event, .EventRecord = record},
        .functions = &function,
        .stream = (qn_cu_stream)(void *)&handles[0],
        .side = (qn_cu_stream)(void *)&handles[1]};
    for (int i = 0; i < 2; i++) {
        x.w16_made[i] = (qn_cu_event)(void *)&handles[2 + i];
        x.w16_read[i] = (qn_cu_event)(void *)&handles[4 + i];
    }
    run(0, false, false);
    assert_string_equal(told, "Lm "); // nothing to do with 16-bit weights
    told[0] = '\0';
    run(1, true, false); // made once the product before has read the area, on the second stream
    run(1, false, false);
    run(2, true, false);
    run(2, false, false);
    assert_string_equal(told, "Wsc Ls Rsa Wma Lm Rmc Wsd Ls Rsb Wmb Lm Rmd ");
    told[0] = '\0';
    x.low.prefill =
        (qn_cuda_list){NULL, 0, 0}; // a list begins with both areas free: captures take the stream along
    const qn_plan none = {0};
    qn_err err;
    assert_int_equal(qn_cuda_launch(&x, &none, &x.low.prefill, 16, 1, 0, -1, &err), 0);
    assert_int_equal(qn_cuda_launch(&x, &none, &x.low.few, 8, 1, 0, -1, &err), 0);
    assert_string_equal(told, "Rmc Rmd ");
    told[0] = '\0';
    run(1, true, true); // measured: one after the other
    run(1, false, true);
    x.side = NULL; // no second stream
    run(1, true, false);
    run(1, false, false);
    assert_string_equal(told, "Lm Lm Lm Lm ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_of_a_layer),
        cmocka_unit_test(kept_rows),
        cmocka_unit_test(own_kernels),
        cmocka_unit_test(warpgroups),
        cmocka_unit_test(bytes),
        cmocka_unit_test(rows_of_a_block),
        cmocka_unit_test(tensor_copies),
        cmocka_unit_test(areas_take_turns),
        cmocka_unit_test(head),
        cmocka_unit_test(planning),
        cmocka_unit_test(refused_options),
        cmocka_unit_test(streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
