// rooms: room_cuda
// Norms behind products: which of them the product's own launch makes or the next product's, and how many
// launches a token then has.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "cuda/programs.h"

enum { N = 640, WIDE = 6400, STREAM = 512, VOCAB = 96, LAYER = 6, LAYERS = 3, STEPS = LAYER * LAYERS + 1 };
enum { X, H, Y, Z, LOGITS, BUFS };

// Layers with norms behind both products: two products with nothing between them stand for attention.
typedef struct world {
    qn_model model;
    qn_plans plans;
    qn_buf bufs[BUFS];
    qn_step steps[STEPS];
    qn_tensor matrix, vector;
    qn_exec_opts exec;
    qn_lower_opts opts;
    qn_cuda_mem mem;
    uint64_t some[BUFS];
} world;

static uint64_t weight_at(const void *user, const qn_tensor *t)
{
    (void)user;
    return t ? 4096 : 0;
}

static void set_linear(world *w, qn_step *s, qn_view in, qn_view out)
{
    s->op = &qn_ops[QN_OP_LINEAR];
    s->in[0] = in;
    s->out[0] = out;
    s->w[0] = &w->matrix;
    s->spec.linear = (qn_spec_linear){.n_in = in.width,
                                      .n_out = out.width,
                                      .n_seg = 1,
                                      .seg_out = {out.width},
                                      .seg_dtype = {QN_Q8_0, -1, -1},
                                      .out_scale = 1};
}

static void set_norm(world *w, qn_step *s, qn_view in, qn_view base, qn_view out)
{
    s->op = &qn_ops[QN_OP_NORM];
    s->in[0] = in;
    s->in[1] = base;
    s->out[0] = out;
    s->w[0] = &w->vector;
    s->spec.norm = (qn_spec_norm){.n = in.width,
                                  .groups = 1,
                                  .kind = QN_NORM_RMS,
                                  .has_w = 1,
                                  .residual = base.buf >= 0,
                                  .eps = 1e-6f,
                                  .out_scale = 1};
}

static void open_wide(world *w, int n)
{
    const qn_view none = {-1, 0, 0}, x = {X, 0, n}, h = {H, 0, n}, y = {Y, 0, n}, z = {Z, 0, n};
    static const char *const names[BUFS] = {"x", "h", "y", "z", "logits"};
    const int widths[BUFS] = {n, n, n, n, VOCAB};
    memset(w, 0, sizeof *w);
    w->matrix =
        (qn_tensor){.name = "matrix", .type = QN_Q8_0, .n_dims = 2, .ne = {(uint64_t)n, (uint64_t)n, 1, 1}};
    w->vector = (qn_tensor){.name = "vector", .type = QN_F32, .n_dims = 1, .ne = {(uint64_t)n, 1, 1, 1}};
    for (int i = 0; i < STEPS; i++) {
        w->steps[i].kv = w->steps[i].layer = -1;
        snprintf(w->steps[i].name, sizeof w->steps[i].name, "step%d", i);
        for (int k = 0; k < QN_STEP_VIEWS; k++) {
            w->steps[i].in[k] = w->steps[i].out[k] = none;
        }
    }
    for (int i = 0; i < LAYERS; i++) {
        qn_step *s = w->steps + LAYER * i;
        set_linear(w, &s[0], h, y);
        set_norm(w, &s[1], y, x, x);
        set_norm(w, &s[2], x, none, h);
        set_linear(w, &s[3], h, z);
        set_norm(w, &s[4], z, x, x);
        set_norm(w, &s[5], x, none, h);
    }
    set_linear(w, &w->steps[STEPS - 1], h, (qn_view){LOGITS, 0, VOCAB});
    for (int i = 0; i < BUFS; i++) {
        w->bufs[i] = (qn_buf){names[i], widths[i], QN_ROWS_TOKENS};
        w->some[i] = 4096 * (uint64_t)(i + 1);
    }
    w->model = (qn_model){.n_embd = n, .n_vocab = VOCAB};
    const qn_plan plan = {QN_PHASE_DECODE, STEPS, w->steps, LOGITS};
    w->plans =
        (qn_plans){.model = &w->model, .decode = plan, .prefill = plan, .n_buf = BUFS, .bufs = w->bufs};
    w->plans.prefill.phase = QN_PHASE_PREFILL;
    w->exec = (qn_exec_opts){.n_ctx = 64, .n_ubatch = 16};
    w->mem =
        (qn_cuda_mem){.bufs = w->some, .k = w->some, .v = w->some, .weight = weight_at, .stream = STREAM};
    w->opts = (qn_lower_opts){
        .exec = &w->exec, .mem = &w->mem, .variant = QN_VARIANT_SM90A, .multiprocessors = 132};
}

static void open_world(world *w)
{
    open_wide(w, N);
}

static qn_lowered lower(const world *w)
{
    qn_lowered low;
    qn_err err;
    if (qn_lower(&low, &w->plans, &w->opts, &err)) {
        fail_msg("%s", err.text);
    }
    return low;
}

// Launches of a template in a list; in how many of them blocks wait for each other.
static int count(const qn_lowered *low, const qn_cuda_list *list, const char *name, int *resident)
{
    int n = 0;
    *resident = 0;
    for (int i = 0; i < list->n; i++) {
        const qn_cuda_action *a = &list->actions[i];
        if (!a->is_gemm && strcmp(low->programs[a->program].name, name) == 0) {
            n++;
            *resident += a->resident;
        }
    }
    return n;
}

static void expect(const world *w, int products, int resident, int norms)
{
    int r;
    qn_lowered low = lower(w);
    assert_int_equal(count(&low, &low.decode, "linear_q8", &r), products);
    assert_int_equal(r, resident);
    assert_int_equal(count(&low, &low.decode, "norm", &r), norms);
    for (int i = 0; i < low.decode.n; i++) {
        const qn_cuda_action *a = &low.decode.actions[i];
        assert_true(!a->resident || (int)a->grid[0] <= w->opts.multiprocessors);
    }
    assert_true(count(&low, &low.few, "norm", &r) >= 2 * LAYERS); // several rows keep their norms
    qn_lowered_free(&low);
}

// Two norms behind each of two products a layer are made by the products that read them.
static void readers_make_norms(void **state)
{
    (void)state;
    enum { ROW = 1, SQUARES = 17 }; // arguments in whose places the product before and the stream are
    world w;
    open_world(&w);
    qn_lowered low = lower(&w);
    uint64_t stream = w.some[X];
    int seen = 0;
    for (int i = 0; i < low.decode.n; i++) {
        const qn_cuda_action *a = &low.decode.actions[i];
        const qn_cuda_program *p = &low.programs[a->program];
        if (strcmp(p->name, "linear_q8") != 0 || seen++ == 0) {
            continue; // the first one reads no norm
        }
        const uint64_t to = a->args[a->n_arg - 1];
        assert_non_null(strstr(p->source.text, "in_norm = 1;"));
        assert_int_equal(a->args[ROW], w.some[seen % 2 == 0 ? Y : Z]);
        assert_int_equal(a->args[SQUARES], stream);
        assert_int_equal(to, stream == STREAM ? w.some[X] : STREAM); // never in place
        stream = to;
    }
    assert_int_equal(seen, 2 * LAYERS + 1);
    qn_lowered_free(&low);
    expect(&w, 2 * LAYERS + 1, 0, 0);
    open_world(&w); // as phases of one launch too
    w.opts.persistent = true;
    low = lower(&w);
    for (int i = 0; i < low.decode.n; i++) {
        assert_false(low.decode.actions[i].resident);
    }
    qn_lowered_free(&low);
    open_world(&w); // the reader takes the stream, too: its blocks must not change it meanwhile
    w.steps[3].spec.linear.residual = 1;
    w.steps[3].in[1] = (qn_view){X, 0, N};
    expect(&w, 2 * LAYERS + 1, 1, 1);
    open_world(&w); // readers (two) write what the product before left, which their blocks read
    w.steps[3].out[0] = w.steps[4].in[0] = (qn_view){Y, 0, N};
    expect(&w, 2 * LAYERS + 1, 2, 0);
}

// Where rows are wider than a block's threads keep, by the product before them, whose blocks wait.
static void norms_go_with_their_products(void **state)
{
    (void)state;
    world w;
    open_wide(&w, WIDE);
    const int products = 2 * LAYERS + 1, norms = 4 * LAYERS;
    static const int cards[] = {1, 5, 46, 132, 264};
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        w.opts.multiprocessors = cards[i];
        expect(&w, products, 2 * LAYERS, 0);
    }
    w.opts.variant = QN_VARIANT_SM75;
    expect(&w, products, 2 * LAYERS, 0);
    w.opts.no_fuse = true;
    expect(&w, products, 0, norms);
    w.opts.no_fuse = false;
    w.opts.f32_activations = true;
    expect(&w, 0, 0, norms);
}

// As phases of one launch they wait for each other too.
static void phases_are_alike(void **state)
{
    (void)state;
    world w;
    int r;
    open_wide(&w, WIDE);
    w.opts.persistent = true;
    qn_lowered low = lower(&w);
    assert_int_equal(count(&low, &low.decode, "norm", &r), 0);
    for (int i = 0; i < low.decode.n; i++) {
        if (low.decode.actions[i].resident) {
            assert_true(low.phases[i].n_block <= 132);
        }
    }
    qn_lowered_free(&low);
}

// What the source of the persistent kernel makes of argument `arg` of a phase; *text: behind it.
static uint64_t argument(const qn_lowered *low, const qn_cuda_phase *p, const char **text)
{
    unsigned long long v = 0;
    int n = 0;
    if (sscanf(*text, "qn_any{own[%llu]}%n", &v, &n) == 1 && n > 0) {
        *text += n;
        assert_true(v < QN_CUDA_ARGS);
        return p->own[v];
    }
    if (sscanf(*text, "qn_any{words.w[%llu]}%n", &v, &n) == 1 && n > 0) {
        *text += n;
        assert_true(v < (unsigned long long)low->n_word);
        return low->words[v];
    }
    assert_true(sscanf(*text, "qn_any{%lluu}%n", &v, &n) == 1 && n > 0);
    *text += n;
    return v;
}

static uint64_t weight_by_tensor(const void *user, const qn_tensor *t)
{
    (void)user;
    return (uint64_t)(uintptr_t)t;
}

// Each phase gets the arguments that its launch has; the kernel is the same wherever the buffers lie.
static void phases_have_their_arguments(void **state)
{
    (void)state;
    world w;
    open_world(&w);
    const qn_tensor other = w.matrix;
    w.steps[LAYER].w[0] = &other;
    w.opts.persistent = true;
    w.mem.weight = weight_by_tensor;
    qn_cuda_placeholders(&w.mem, &w.plans);
    qn_lowered low = lower(&w);
    const qn_source *src = &low.programs[low.persistent.actions[0].program].source;
    assert_int_equal(low.n_phase, low.decode.n);
    assert_true(low.n_word > 0 && low.persistent.actions[0].words == low.words);
    int n_own = 0;
    for (int i = 0; i < low.n_phase; i++) {
        const qn_cuda_action *a = &low.decode.actions[i];
        char call[32];
        snprintf(call, sizeof call, " p%d::run(", low.phases[i].program);
        const char *at = strstr(src->text, call);
        assert_non_null(at);
        at += strlen(call);
        for (int k = 0; k < a->n_arg; k++) {
            n_own += strncmp(at, "qn_any{own", 10) == 0;
            assert_int_equal(argument(&low, &low.phases[i], &at), a->args[k]);
            at += strspn(at, ", ");
        }
        assert_int_equal(*at, ')');
    }
    assert_true(n_own > 0);
    for (int i = 0; i < BUFS; i++) {
        w.some[i] += (uint64_t)(BUFS - i) << 50;
    }
    qn_lowered moved = lower(&w);
    assert_string_equal(moved.programs[moved.persistent.actions[0].program].source.text, src->text);
    qn_lowered_free(&moved);
    qn_lowered_free(&low);
}

static void others_keep_theirs(void **state)
{
    (void)state;
    world w;
    const int products = 2 * LAYERS + 1;
    open_world(&w); // a mean is taken off
    w.steps[1].spec.norm.kind = QN_NORM_LAYER;
    expect(&w, products, 0, 1);
    open_world(&w); // no residual; the next norm cannot be made before it
    w.steps[1].spec.norm.residual = 0;
    w.steps[1].in[1].buf = -1;
    expect(&w, products, 0, 2);
    open_world(&w); // somebody else reads the product
    w.steps[2].in[0] = (qn_view){Y, 0, N};
    expect(&w, products, 0, 2);
    open_world(&w); // the product has a residual of its own
    w.steps[0].spec.linear.residual = 1;
    w.steps[0].in[1] = (qn_view){X, 0, N};
    expect(&w, products, 0, 1);
    open_world(&w); // the next norm's result is read as f32: it stays, the other one goes
    w.steps[2].spec.norm.kind = QN_NORM_LAYER;
    expect(&w, products, 1, 1);
}

// Blocks that might not all be on the card at once do not wait for each other: rows of 16384 sums leave no
// room for a block on a card of two multiprocessors.
static void blocks_must_fit(void **state)
{
    (void)state;
    world w;
    open_wide(&w, 16384);
    expect(&w, 2 * LAYERS + 1, 2 * LAYERS, 0);
    w.opts.multiprocessors = 2;
    expect(&w, 2 * LAYERS + 1, 0, 2 * LAYERS);
}

static bool choose(void *user, const qn_site *s, qn_knobs *k)
{
    *k = *(const qn_knobs *)user;
    return s->kind == QN_KNOBS_Q8;
}

// What is tuned has a choice of its own for products that wait, and as many blocks as it wants.
static void tuned_blocks_wait_too(void **state)
{
    (void)state;
    static const qn_knobs chosen = {.warps = 8, .slices = 1, .ahead = 2, .per_sm = 2};
    world w;
    int r, tuned = 0, normed = 0;
    open_wide(&w, WIDE);
    w.opts.knobs = choose;
    w.opts.knobs_user = (void *)(uintptr_t)&chosen;
    qn_lowered low = lower(&w);
    assert_int_equal(count(&low, &low.decode, "linear_q8", &r), 2 * LAYERS + 1);
    assert_int_equal(r, 2 * LAYERS);
    for (int i = 0; i < low.n_site; i++) {
        tuned += low.sites[i].tuned;
        normed += strncmp(low.sites[i].key, "linear_q8 normed in 6400 out 6400 q8_0, norm", 43) == 0;
    }
    assert_true(tuned >= 2);
    assert_int_equal(normed, 1);
    qn_lowered_free(&low);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_make_norms),    cmocka_unit_test(norms_go_with_their_products),
        cmocka_unit_test(phases_are_alike),      cmocka_unit_test(phases_have_their_arguments),
        cmocka_unit_test(others_keep_theirs),    cmocka_unit_test(blocks_must_fit),
        cmocka_unit_test(tuned_blocks_wait_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
