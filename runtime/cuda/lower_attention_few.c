/* lower_attention_few.c: attention of few query rows: which kernel (attention_mma.cu, attention_rope.cu,
 * attention_decode.cu) with which launch shape. */
#include "cuda/lower_internal.h"

#include <string.h>

static uint32_t ceil_div(int64_t a, int64_t b)
{
    return (uint32_t)((a + b - 1) / b);
}

static int round16(int n)
{
    return (n + 15) / 16 * 16;
}

static int bounded(int split)
{
    return split < 1 ? 1 : split > QN_CUDA_MAX_SPLIT ? QN_CUDA_MAX_SPLIT : split;
}

/* attention_decode.cu: f32 products on the plain cores, for every card and every dimension. */
static int lower_rows(lowerer *l)
{
    const qn_step *s = l->step;
    if (l->opts->exec->k_type != QN_CACHE_F16 || l->opts->exec->v_type != QN_CACHE_F16) {
        return qn_fail(l->err,
                       "step %s: a q8_0 KV cache needs decode's attention on the tensor cores (sm_80; no "
                       "--decode-attention rows, no --attention plain)",
                       s->name);
    }
    const qn_spec_attention *sp = &s->spec.attention;
    const qn_cuda_mem *m = l->opts->mem;
    int group = sp->n_head / sp->n_head_kv;
    int heads = group < 8 ? group : 8;
    while (heads > 1 && heads * (sp->v_dim + sp->k_dim) > 2048) {
        heads = (heads + 1) / 2; /* the heads' sums must fit into registers */
    }
    int chunks = (group + heads - 1) / heads, blocks = sp->n_head_kv * chunks;
    /* The split decides what is summed with what, so it is the same on every card. */
    int turns = l->opts->persistent ? 1 : 2, split = bounded((int)ceil_div(turns * QN_LOWER_NOMINAL, blocks));
    split = l->mode == LOWER_PREFILL ? 1 : split;
    const qn_knobs shipped = {.warps = 4, .split = split};
    const qn_knob_room room = {.split = bounded((int)ceil_div(turns * l->opts->multiprocessors, blocks)),
                               .warp_bytes = 4 * (size_t)heads * (size_t)(32 + 2 + sp->v_dim),
                               .fixed_bytes = 4 * (size_t)(heads * sp->k_dim + 4),
                               .limit = qn_lower_shared_limit(l->opts->variant)};
    launch site = {0};
    const qn_knobs *c = qn_lower_knobs(l, &site, QN_KNOBS_ROWS, "attention_decode", NULL, &room, &shipped);
    if (!c) {
        return -1;
    }
    int warps = c->warps;
    size_t shared = room.fixed_bytes + (size_t)warps * room.warp_bytes;
    bool q8 = sp->v_dim % 32 == 0 && qn_lower_q8_target(l, s->out[0]);
    launch k = {.kernel = "attention_decode.cu",
                .path = "f32",
                .consts = {{"warps", warps, false},
                           {"heads", heads, false},
                           {"kv_rows", qn_kv_rows(&l->plans->kv[s->kv], l->opts->exec), false},
                           {"q8_out", q8, false},
                           {"fine_out", q8 && qn_cuda_fine(l->opts->exec, s->out[0].width), false}},
                .n_const = 5,
                .site = site.site,
                .grid = {(uint32_t)c->split, (uint32_t)blocks, 1},
                .threads = 32 * (uint32_t)warps,
                .shared = (uint32_t)shared,
                .rows_axis = 2,
                .args = {m->state, qn_lower_at(l, s->in[0]), qn_lower_stride(l, s->in[0]), m->k[s->kv],
                         m->v[s->kv], m->parts, m->part_count, qn_lower_at(l, s->out[0]),
                         qn_lower_stride(l, s->out[0]), qn_lower_q8_at(l)},
                .n_arg = 10};
    return qn_lower_launch(l, &k);
}

/* Launch shape of attention_mma.cu: the shipped warps and tiles under way, and what others have to fit. */
typedef struct shape {
    int heads, chunks;
    qn_knobs shipped;
    qn_knob_room room;
} shape;

static size_t shared_bytes(const qn_knob_room *r, const qn_knobs *k)
{
    size_t warps = (size_t)k->warps, merge = warps * r->merge_bytes + 16;
    size_t ring = r->fixed_bytes + warps * (r->warp_bytes + (size_t)k->ahead * r->tile_bytes);
    return ring > merge ? ring : merge;
}

/* Shared memory that a kernel needs beside the rings: attention_rope.cu. */
static size_t rope_bytes(const qn_spec_attention *sp, int heads, int n_rot)
{
    size_t turns = n_rot > 1 ? ((size_t)n_rot / 2 + 1) / 2 * 2 : 2;
    size_t pitch = (size_t)(sp->k_dim > sp->v_dim ? sp->k_dim : sp->v_dim);
    size_t ready = (size_t)heads * (2 * (size_t)(round16(sp->k_dim) + 8) + 4);
    return 8 * turns + 4 * (size_t)(heads + 2) * pitch + 2 * (size_t)(sp->k_dim + sp->v_dim) + ready;
}

/* Bytes of a key (or value) in a warp's ring, and of the room in which one is unpacked. */
static size_t ring_bytes(qn_cache_type type, int dim)
{
    return type == QN_CACHE_Q8_0 ? qn_cuda_kv_bytes(type, 1, dim) : 2 * (size_t)(round16(dim) + 8);
}

static size_t open_bytes(qn_cache_type type, int dim)
{
    return type == QN_CACHE_Q8_0 ? 2 * (size_t)(round16(dim) + 8) : 0;
}

/* Warps and tiles of 16 keys in flight for each: 64 KB of keys and values in flight keep the memory of the
 * largest cards busy, so the first that fits is taken. rope: the step that is served too; NULL: none. */
static bool choose(const lowerer *l, const qn_spec_attention *sp, const qn_spec_rope_kv *rope, shape *out)
{
    static const int shapes[][2] = {{8, 2}, {8, 1}, {4, 2}, {4, 1}, {2, 1}, {1, 1}};
    enum { KEYS = 16, FRAGMENTS = 192 /* registers for queries and sums of values */ };
    enum { ALONE = 16, LEAST = 8 };
    /* Beside a phase of the persistent kernel lies the ring that weights come through: a fifth is left for
     * phases, if one of the shapes needs no more. */
    size_t limit = qn_lower_shared_limit(l->opts->variant) - (l->opts->persistent ? QN_CUDA_PHASE_SHARED : 0);
    size_t first_limit = qn_lower_rings(l) ? limit / 5 : limit;
    int k_pad = round16(sp->k_dim), v_pad = round16(sp->v_dim), group = sp->n_head / sp->n_head_kv;
    int most = FRAGMENTS / (k_pad / 8 + v_pad / 4) * 8;
    if (l->opts->variant < QN_VARIANT_SM80 || l->opts->exec->rows_attention || sp->k_dim % 8 != 0 ||
        sp->v_dim % 8 != 0 || most == 0) {
        return false;
    }
    const qn_exec_opts *o = l->opts->exec;
    out->chunks = (group + most - 1) / most;
    out->heads = (group + out->chunks - 1) / out->chunks;
    out->room = (qn_knob_room){
        .split = bounded(l->opts->multiprocessors / (sp->n_head_kv * out->chunks)),
        .warp_bytes = KEYS * (open_bytes(o->k_type, sp->k_dim) + open_bytes(o->v_type, sp->v_dim)),
        .tile_bytes = KEYS * (ring_bytes(o->k_type, sp->k_dim) + ring_bytes(o->v_type, sp->v_dim)),
        .fixed_bytes = rope ? rope_bytes(sp, out->heads, rope->n_rot) : 0,
        .merge_bytes = 4 * (size_t)out->heads * (size_t)(v_pad + 4 + 2),
        .limit = limit};
    /* All parts at once on a nominal card: what is summed with what is the same on every card. */
    int split = bounded(QN_LOWER_NOMINAL / (sp->n_head_kv * out->chunks));
    enum { SHAPES = sizeof shapes / sizeof *shapes };
    for (int i = 0; i < 2 * SHAPES; i++) {
        const int *at = shapes[i % SHAPES];
        out->shipped =
            (qn_knobs){.warps = at[0], .ahead = at[1], .split = split, .alone = ALONE, .least = LEAST};
        if (shared_bytes(&out->room, &out->shipped) <= (i < SHAPES ? first_limit : limit)) {
            return true;
        }
    }
    return false;
}

/* What attention_mma.cu and attention_rope.cu have in common; the step is the attention. n_const 0: out of
 * memory. */
static launch mma_launch(lowerer *l, const shape *sh, const char *kernel, const qn_step *also)
{
    const qn_step *s = l->step;
    const qn_spec_attention *sp = &s->spec.attention;
    launch k = {.kernel = kernel, .also = also};
    const qn_knobs *c = qn_lower_knobs(l, &k, QN_KNOBS_MMA, kernel, also, &sh->room, &sh->shipped);
    if (!c) {
        return k;
    }
    bool q8 = sp->v_dim % 32 == 0 && qn_lower_q8_target(l, s->out[0]);
    return (launch){.kernel = kernel,
                    .also = also,
                    .site = k.site,
                    .consts = {{"warps", c->warps, false},
                               {"stages", c->ahead, false},
                               {"heads", sh->heads, false},
                               {"kv_rows", qn_kv_rows(&l->plans->kv[s->kv], l->opts->exec), false},
                               {"q8_out", q8, false},
                               {"k_q8", l->opts->exec->k_type == QN_CACHE_Q8_0, false},
                               {"v_q8", l->opts->exec->v_type == QN_CACHE_Q8_0, false},
                               {"alone", c->alone, false},
                               {"least", c->least, false},
                               {"fine_out", q8 && qn_cuda_fine(l->opts->exec, s->out[0].width), false}},
                    .n_const = 10,
                    .grid = {(uint32_t)(sp->n_head_kv * sh->chunks), (uint32_t)c->split, 1},
                    .threads = 32 * (uint32_t)c->warps,
                    .shared = (uint32_t)shared_bytes(&sh->room, c),
                    .rows_axis = 2,
                    .rows_share = l->each}; /* whose graphs are of an exact number of rows */
}

static void add_args(launch *k, const uint64_t *args, int n)
{
    memcpy(k->args + k->n_arg, args, sizeof *args * (size_t)n);
    k->n_arg += n;
}

/* The arguments from the parts on. */
static void add_result_args(const lowerer *l, launch *k)
{
    const qn_cuda_mem *m = l->opts->mem;
    qn_view out = l->step->out[0];
    add_args(k,
             (const uint64_t[]){m->parts, m->part_count, qn_lower_at(l, out), qn_lower_stride(l, out),
                                qn_lower_q8_at(l)},
             5);
}

static int lower_mma(lowerer *l, const shape *sh)
{
    const qn_step *s = l->step;
    const qn_cuda_mem *m = l->opts->mem;
    launch k = mma_launch(l, sh, "attention_mma.cu", NULL);
    if (k.n_const == 0) {
        return -1;
    }
    bool even = s->in[0].col % 2 == 0 && qn_lower_stride(l, s->in[0]) % 2 == 0;
    k.path = "mma f16";
    k.consts[k.n_const++] = (qn_source_const){"q_vec", even ? 2 : 1, false, false};
    add_args(&k,
             (const uint64_t[]){m->state, qn_lower_at(l, s->in[0]), qn_lower_stride(l, s->in[0]), m->k[s->kv],
                                m->v[s->kv]},
             5);
    add_result_args(l, &k);
    return qn_lower_launch(l, &k);
}

int qn_lower_attention(lowerer *l)
{
    shape sh;
    if (l->mode == LOWER_PREFILL && !l->opts->exec->plain_attention) {
        return qn_lower_attention_prefill(l);
    }
    bool mma = l->mode != LOWER_PREFILL && choose(l, &l->step->spec.attention, NULL, &sh);
    return mma ? lower_mma(l, &sh) : lower_rows(l);
}

/* The attention that reads what this step finishes, and nothing else does; NULL: there is none, or the two
 * stay apart: a norm over all heads needs all blocks' values, and a row of several needs the others' keys. */
static const qn_step *attention_of(const lowerer *l)
{
    const qn_step *s = l->step, *next = s + 1;
    const qn_spec_rope_kv *sp = &s->spec.rope_kv;
    bool whole = sp->qk_norm != QN_NORM_NONE && sp->qk_width == QN_QK_FULL;
    bool there = (l->mode == LOWER_DECODE || l->each) && !l->opts->no_fuse && !whole &&
                 next < l->plan->steps + l->plan->n_step && next->op->id == QN_OP_ATTENTION &&
                 memcmp(&s->out[0], &next->in[0], sizeof next->in[0]) == 0 &&
                 (!sp->has_kv || s->kv == next->kv);
    return there ? next : NULL;
}

int qn_lower_attention_rope(lowerer *l, bool *done)
{
    const qn_step *s = l->step, *next = attention_of(l);
    const qn_cuda_mem *m = l->opts->mem;
    shape sh;
    *done = next && choose(l, &next->spec.attention, &s->spec.rope_kv, &sh);
    if (!*done) {
        return 0;
    }
    l->step = next;
    launch k = mma_launch(l, &sh, "attention_rope.cu", s);
    if (k.n_const == 0) {
        *done = false;
        return -1;
    }
    k.path = "rope, mma f16";
    if (l->q8_view.buf == next->out[0].buf && !k.consts[4].value) {
        l->q8_view.buf = -1;
    }
    add_args(&k,
             (const uint64_t[]){m->state, qn_lower_at(l, s->in[0]), qn_lower_stride(l, s->in[0]),
                                qn_lower_at(l, s->in[1]), qn_lower_at(l, s->in[2]), m->k[next->kv],
                                m->v[next->kv], qn_lower_weight(l, s->w[0]), qn_lower_weight(l, s->w[1]),
                                s->table ? m->table(m->user, s->table) : 0},
             10);
    add_result_args(l, &k);
    *done = qn_lower_launch(l, &k) == 0;
    l->step = s;
    l->done = next;
    return *done ? 0 : -1;
}
