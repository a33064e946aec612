/* lower_attention.c: attention over many query rows: which kernel (attention_prefill.cu, attention_wgmma.cu)
 * with which launch shape. */
#include "cuda/lower_internal.h"

enum { TMA_WARPS = 8 }; /* of attention_tma.cu, where there are many pairs */

/* Rows of queries (16 * tiles * warps), keys of a tile, tiles of keys in shared memory. The first that fits
 * is taken. `many`: only for so many query rows that the blocks still fill the card; then many rows a block,
 * since each key in shared memory serves all of them. Order and sizes as measured (docs/performance-log.md).
 */
typedef struct shape {
    int warps, tiles, keys, stages;
    bool many;
    int max_v; /* dimensions of the values whose sums fit into registers */
} shape;
static const shape shapes[] = {
    {4, 2, 64, 2, true, 64},   {4, 2, 32, 2, true, 128},  {8, 1, 64, 2, true, 256},
    {8, 1, 32, 1, true, 256},  {4, 1, 64, 2, false, 256}, {4, 1, 32, 2, false, 256},
    {4, 1, 64, 1, false, 256}, {4, 1, 32, 1, false, 256}, {4, 1, 16, 1, false, 256},
    {2, 1, 16, 1, false, 256}, {1, 1, 16, 1, false, 256},
};

static int round16(int n)
{
    return (n + 15) / 16 * 16;
}

static size_t shared_bytes(const shape *s, int k_dim, int v_part)
{
    size_t k_pitch = (size_t)round16(k_dim) + 8, v_pitch = (size_t)v_part + 8;
    size_t rows = 16 * (size_t)s->tiles * (size_t)s->warps, keys = (size_t)s->keys * (size_t)s->stages;
    return 2 * (rows * k_pitch + keys * (k_pitch + v_pitch));
}

size_t qn_lower_shared_limit(int variant)
{
    return 1024 * (size_t)(variant < QN_VARIANT_SM80 ? 64 : variant < QN_VARIANT_SM90A ? 99 : 227);
}

static const shape *choose(const lowerer *l, const qn_spec_attention *sp, int v_part)
{
    enum { MANY_ROWS = 20000 }; /* rows times heads: below, 128-row blocks leave multiprocessors idle */
    bool sm80 = l->opts->variant >= QN_VARIANT_SM80;
    bool many = sm80 && (int64_t)l->opts->exec->n_ubatch * sp->n_head >= MANY_ROWS;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const shape *s = &shapes[i];
        bool fits = shared_bytes(s, sp->k_dim, v_part) <= qn_lower_shared_limit(l->opts->variant) &&
                    v_part <= s->max_v && (s->tiles == 1 || sp->k_dim <= 256);
        if (fits && (many || !s->many) && (sm80 || s->stages == 1)) {
            return s;
        }
    }
    return NULL;
}

/* Query heads that share a block's rows: the largest divisor of the group that wastes at most 1/32 of them.
 */
static int packed_heads(int group, int rows)
{
    int best = 1;
    for (int h = 2; h <= 16; h++) {
        if (group % h == 0 && 32 * (rows % h) <= rows) {
            best = h;
        }
    }
    return best;
}

/* The least width of the values' products on sm_90a that holds v_dim, at most 256. */
static int value_width(int v_dim)
{
    static const int widths[] = {64, 96, 128, 256};
    int i = 0;
    while (widths[i] < v_dim) {
        i++;
    }
    return widths[i];
}

/* Launch shape of attention_wgmma.cu; false: it does not serve these heads. */
static bool choose_wgmma(const lowerer *l, const qn_spec_attention *sp, shape *out, int *v_part,
                         size_t *shared)
{
    bool narrow = sp->k_dim <= 128 && sp->v_dim <= 128,
         large = sp->k_dim > 128 && sp->k_dim <= 256 && sp->v_dim <= 256;
    if (l->opts->variant < QN_VARIANT_SM90A || !(narrow || large) || sp->k_dim <= 32 || sp->v_dim <= 32) {
        return false;
    }
    /* Of small heads two blocks of one warpgroup share a multiprocessor: one computes while the other waits.
     */
    *out = (shape){.warps = narrow ? 4 : 8, .tiles = 1, .stages = 2};
    out->keys = !narrow ? 80 : sp->k_dim <= 64 && sp->v_dim <= 64 ? 128 : 96;
    *v_part = value_width(sp->v_dim);
    size_t k_wide = (size_t)(sp->k_dim + 63) / 64 * 64, v_wide = (size_t)(*v_part + 63) / 64 * 64;
    *shared = 1024 + 8 + 4 * (size_t)out->keys * (k_wide + v_wide) +
              (narrow ? 0 : 32 * (size_t)out->warps * k_wide);
    return true;
}

qn_tma qn_tma_of(const qn_kv_cache *kv, const qn_exec_opts *opts)
{
    /* Tiles in shared memory by dimensions: where queries are there too, keys that leave room for them. */
    static const struct {
        int most_dims, keys, stages;
    } tiles[] = {{64, 128, 3}, {128, 128, 2}, {256, 80, 2}};
    uint64_t dim = (uint64_t)kv->k_dim, rows = (uint64_t)qn_kv_rows(kv, opts),
             heads = (uint64_t)kv->n_head_kv;
    bool served =
        kv->k_dim == kv->v_dim && dim % 8 == 0 && dim > 32 && dim <= 256 && (dim <= 128 || dim > 192);
    if (opts->flash_attention || opts->plain_attention || opts->k_type != QN_CACHE_F16 ||
        opts->v_type != QN_CACHE_F16 || !served) {
        return (qn_tma){0};
    }
    int i = 0;
    while ((int)dim > tiles[i].most_dims) {
        i++;
    }
    if (rows < (uint64_t)opts->n_ctx && rows % (uint64_t)tiles[i].keys != 0) {
        return (qn_tma){0}; /* a ring: a tile would go over its end */
    }
    /* One box a tile where rows are whole pieces of 64 values, else one a piece, cut off at the head's end.
     */
    bool whole = dim % 64 == 0;
    uint64_t pieces = (dim + 63) / 64;
    return (qn_tma){.keys = tiles[i].keys,
                    .stages = tiles[i].stages,
                    .boxes = whole ? 1 : (int)pieces,
                    .dims = {whole ? 64 : dim, rows * (uint64_t)qn_n_seq(opts), whole ? pieces : 1, heads},
                    .strides = {2 * heads * dim, whole ? 128 : 2 * dim, 2 * dim},
                    .box = {64, (uint32_t)tiles[i].keys, whole ? (uint32_t)pieces : 1, 1}};
}

qn_tma qn_tma_short_of(const qn_kv_cache *kv, const qn_exec_opts *opts)
{
    enum { KEYS = 64, STAGES = 2 };
    qn_tma t = qn_tma_of(kv, opts);
    if (t.keys == 0 || kv->k_dim > 128 || opts->tma_attention) {
        return (qn_tma){0};
    }
    t.keys = KEYS;
    t.stages = STAGES;
    t.box[1] = KEYS;
    return t;
}

bool qn_cuda_tiles_dim(int k_dim)
{
    return k_dim == 64 || k_dim == 128 || k_dim == 256;
}

size_t qn_cuda_query_tile_bytes(int k_dim)
{
    return 128 * (2 * (size_t)k_dim + sizeof(float));
}

bool qn_lower_query_tiles(const lowerer *l, const qn_step *rope)
{
    const qn_step *steps = l->plan->steps, *a = rope + 1;
    if (l->opts->variant < QN_VARIANT_SM90A || l->opts->no_fuse || rope < steps ||
        a >= steps + l->plan->n_step || rope->op->id != QN_OP_ROPE_KV || a->op->id != QN_OP_ATTENTION ||
        !qn_lower_takes_rows(l, rope)) {
        return false;
    }
    return qn_cuda_tiles_dim(a->spec.attention.k_dim) &&
           a->spec.attention.n_head == rope->spec.rope_kv.n_head && rope->in[0].buf == a->in[0].buf &&
           rope->in[0].col == a->in[0].col && qn_tma_of(&l->plans->kv[a->kv], l->opts->exec).keys != 0 &&
           !qn_lower_read_later(l, a, a->in[0]);
}

/* attention_tma.cu: one query head and 16 * warps rows at a time, blocks that stay where TMA_WARPS. half,
 * f32: of qn_lower_half_out. */
static int launch_tma(lowerer *l, const qn_tma *t, int warps, int half, bool f32)
{
    const qn_step *s = l->step;
    const qn_spec_attention *sp = &s->spec.attention;
    const qn_cuda_mem *m = l->opts->mem;
    const bool stay = warps == TMA_WARPS;
    const uint64_t map = stay ? 0 : QN_CUDA_MAP_BYTES;
    const int processors = l->opts->multiprocessors > 0 ? l->opts->multiprocessors : 1;
    bool aligned = s->in[0].col % 4 == 0 && qn_lower_stride(l, s->in[0]) % 4 == 0;
    bool q_tiles = qn_lower_query_tiles(l, s - 1);
    size_t wide = (size_t)(sp->k_dim + 63) / 64 * 64, rows = 16 * (size_t)warps;
    size_t queries = q_tiles ? rows * (2 * wide + sizeof(float)) : wide > 128 ? rows * 2 * wide : 0;
    size_t tiles = 2 * (size_t)t->stages * (size_t)t->keys * wide * 2 + queries;
    launch k = {.kernel = "attention_tma.cu",
                .path = "wgmma, TMA",
                .consts = {{"warps", warps, false},
                           {"tiles", 1, false},
                           {"keys", t->keys, false},
                           {"stages", t->stages, false},
                           {"heads", 1, false},
                           {"v_part", value_width(sp->v_dim), false},
                           {"boxes", t->boxes, false},
                           {"kv_rows", qn_kv_rows(&l->plans->kv[s->kv], l->opts->exec), false},
                           {"q_vec", aligned ? 4 : 1, false},
                           {"q_tiles", q_tiles, false},
                           {"stay", stay, false},
                           {"swizzled", 1, false},
                           {"half_out", half, true},
                           {"f32_out", f32, false}},
                .n_const = 14,
                .grid = {(uint32_t)(stay ? processors : sp->n_head), 1, 1},
                .threads = 32 * (uint32_t)warps + 128,
                .shared = (uint32_t)(1024 + tiles + 8 * (2 + 4 * (size_t)t->stages) + 8),
                .rows_axis = stay ? -1 : 1,
                .rows_per = (uint32_t)rows,
                .args = {m->state, qn_lower_at(l, s->in[0]), qn_lower_stride(l, s->in[0]), m->q16,
                         m->k_map[s->kv] + map, m->v_map[s->kv] + map, qn_lower_at(l, s->out[0]),
                         qn_lower_stride(l, s->out[0]), m->a16, m->row_scale, m->pairs},
                .n_arg = 11};
    return qn_lower_launch(l, &k);
}

/* Shapes by the number of pairs of a head and 64 rows, as measured (docs/performance-log.md): 64 rows, two
 * blocks a multiprocessor, where 128 would leave half of a nominal card idle; near the beginning, where pairs
 * are short and differ much in length, up to three pairs a multiprocessor too. 128 rows for all others. The
 * limits are ends of captured prompts. */
static int lower_tma(lowerer *l, const qn_tma *t)
{
    enum { SHORT_WARPS = TMA_WARPS / 2, SHORT_ROWS = 16 * SHORT_WARPS };
    static const struct {
        int places; /* most pairs; 0: no limit */
        bool few;
        qn_cuda_depth depth;
    } ranges[] = {{QN_LOWER_NOMINAL, true, QN_DEPTH_ANY},
                  {3 * QN_LOWER_NOMINAL, true, QN_DEPTH_SHALLOW},
                  {3 * QN_LOWER_NOMINAL, false, QN_DEPTH_DEEP},
                  {0, false, QN_DEPTH_ANY}};
    const qn_step *s = l->step;
    const qn_spec_attention *sp = &s->spec.attention;
    const int least = l->min_rows, most = l->max_rows, n_ubatch = l->opts->exec->n_ubatch;
    qn_tma few = qn_tma_short_of(&l->plans->kv[s->kv], l->opts->exec);
    bool f32 = true;
    int half = s->out[0].width == sp->n_head * sp->v_dim ? qn_lower_half_out(l, s->out[0], &f32) : 0;
    int rc = 0, done = 0;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges && rc == 0; i++) {
        int rows = ranges[i].places / sp->n_head * SHORT_ROWS, end = rows < n_ubatch ? rows : n_ubatch;
        end = ranges[i].places == 0 ? n_ubatch : few.keys ? end : 0;
        if (end > done) {
            l->min_rows = done > 0 ? done + 1 : least;
            l->max_rows = end < n_ubatch ? end : most;
            l->depth = ranges[i].depth;
            rc = launch_tma(l, ranges[i].few ? &few : t, ranges[i].few ? SHORT_WARPS : TMA_WARPS, half, f32);
            done = ranges[i].depth == QN_DEPTH_SHALLOW ? done : end;
        }
    }
    l->min_rows = least;
    l->max_rows = most;
    l->depth = QN_DEPTH_ANY;
    return rc;
}

/* The rows that the step sees of an 8-bit cache as halves; of another the cache itself: *at. */
static int open_cache(lowerer *l, qn_cache_type type, int dim, uint64_t cache, uint64_t open, uint64_t *at)
{
    enum { WARPS = 8 };
    const qn_kv_cache *kv = &l->plans->kv[l->step->kv];
    int rows = qn_kv_rows(kv, l->opts->exec);
    *at = type == QN_CACHE_F16 ? cache : open;
    launch k = {.kernel = "kv_expand.cu",
                .bare = true,
                .consts = {{"dim", dim, true},
                           {"n_head_kv", kv->n_head_kv, true},
                           {"kv_rows", rows, false},
                           {"window", l->step->spec.attention.window, false},
                           {"warps", WARPS, false}},
                .n_const = 5,
                .grid = {(uint32_t)(((int64_t)rows * kv->n_head_kv + WARPS - 1) / WARPS), 1, 1},
                .threads = 32 * WARPS,
                .rows_axis = -1,
                .args = {l->opts->mem->state, cache, open},
                .n_arg = 3};
    return type == QN_CACHE_F16 ? 0 : qn_lower_launch(l, &k);
}

int qn_lower_attention_prefill(lowerer *l)
{
    enum { V_PART = 256 }; /* sums of values that fit into a warp's registers */
    const qn_step *s = l->step;
    const qn_spec_attention *sp = &s->spec.attention;
    const qn_cuda_mem *m = l->opts->mem;
    qn_tma tma = qn_tma_of(&l->plans->kv[s->kv], l->opts->exec);
    if (l->opts->variant >= QN_VARIANT_SM90A && tma.keys) {
        return lower_tma(l, &tma);
    }
    int parts = (sp->v_dim + V_PART - 1) / V_PART, v_part;
    shape sh;
    size_t shared;
    bool wgmma = choose_wgmma(l, sp, &sh, &v_part, &shared);
    if (!wgmma) {
        v_part = round16((sp->v_dim + parts - 1) / parts);
        const shape *found = choose(l, sp, v_part);
        if (!found) {
            return qn_fail(l->err, "step %s: heads of %d and %d dimensions do not fit into shared memory",
                           s->name, sp->k_dim, sp->v_dim);
        }
        sh = *found;
        shared = shared_bytes(&sh, sp->k_dim, v_part);
    }
    uint64_t keys, values;
    if (open_cache(l, l->opts->exec->k_type, sp->k_dim, m->k[s->kv], m->k16, &keys) ||
        open_cache(l, l->opts->exec->v_type, sp->v_dim, m->v[s->kv], m->v16, &values)) {
        return -1;
    }
    int rows = 16 * sh.tiles * sh.warps, heads = packed_heads(sp->n_head / sp->n_head_kv, rows);
    bool f32 = true, pairs = sp->v_dim % 2 == 0 && s->out[0].width == sp->n_head * sp->v_dim;
    int half = pairs ? qn_lower_half_out(l, s->out[0], &f32) : 0;
    bool aligned = s->in[0].col % 4 == 0 && qn_lower_stride(l, s->in[0]) % 4 == 0 && sp->k_dim % 4 == 0;
    launch k = {.kernel = wgmma ? "attention_wgmma.cu" : "attention_prefill.cu",
                .consts = {{"warps", sh.warps, false},
                           {"tiles", sh.tiles, false},
                           {"keys", sh.keys, false},
                           {"stages", sh.stages, false},
                           {"heads", heads, false},
                           {"v_part", v_part, false},
                           {"kv_rows", qn_kv_rows(&l->plans->kv[s->kv], l->opts->exec), false},
                           {"q_vec", aligned ? 4 : 1, false},
                           {"swizzled", wgmma, false},
                           {"half_out", half, true},
                           {"f32_out", f32, false}},
                .n_const = 11,
                .grid = {(uint32_t)(sp->n_head / heads), 1, (uint32_t)parts},
                .threads = 32 * (uint32_t)sh.warps,
                .shared = (uint32_t)shared,
                .rows_axis = 1,
                .rows_per = (uint32_t)(rows / heads),
                .args = {m->state, qn_lower_at(l, s->in[0]), qn_lower_stride(l, s->in[0]), keys, values,
                         qn_lower_at(l, s->out[0]), qn_lower_stride(l, s->out[0]), m->a16, m->row_scale},
                .n_arg = 9};
    return qn_lower_launch(l, &k);
}
