/* lower_choice.c: how the next token is chosen on the device: one list of launches a way. */
#include "cuda/lower_internal.h"

enum { THREADS = 256, TOP_K_THREADS = 512, BINS = 2048, MAX_VOCAB = 1 << 20 };

/* Of kernel_src/sample_full.cu: sample_work. */
enum { WORK_BYTES = 8 * BINS + 6 * 8 + 16 };

/* Blocks that share a vocabulary: about a thousand tokens each, as far as blocks go. */
static int choice_blocks(int n_vocab)
{
    int n = (n_vocab + 1023) / 1024;
    return n < QN_CUDA_CHOICE_BLOCKS ? n : QN_CUDA_CHOICE_BLOCKS;
}

/* Keys that a block of sample_topk.cu holds: its part of the vocabulary, or all blocks' best. */
static int top_k_keys(int n_vocab)
{
    int blocks = choice_blocks(n_vocab), part = (n_vocab + blocks - 1) / blocks, all = blocks * QN_CUDA_TOP_K;
    return part > all ? part : all;
}

void qn_cuda_choice_sizes(qn_cuda_sizes *z, int n_vocab, const qn_exec_opts *opts)
{
    size_t rows = (size_t)qn_n_seq(opts);
    z->sampling = rows * sizeof(qn_cuda_sampling);
    z->marks = rows * (size_t)n_vocab * sizeof(uint32_t);
    z->history = rows * (size_t)opts->n_ctx * sizeof(int32_t);
    z->found = rows * (size_t)choice_blocks(n_vocab) * (QN_CUDA_TOP_K + 1) * sizeof(uint64_t);
    z->arrived = rows * sizeof(uint32_t);
    z->sample_work = rows * WORK_BYTES;
}

/* What the three kernels share. `own`: their scratch memory. */
static launch choice_launch(const lowerer *l, const qn_plan *decode, const char *kernel, int threads)
{
    const qn_cuda_mem *m = l->opts->mem;
    int blocks = choice_blocks(l->plans->model->n_vocab);
    return (launch){.kernel = kernel,
                    .bare = true,
                    .consts = {{"n_vocab", l->plans->model->n_vocab, true, false},
                               {"n_ctx", l->opts->exec->n_ctx, false, false},
                               {"ring", QN_CUDA_RING, false, false},
                               {"threads", threads, false, false},
                               {"blocks", blocks, false, false}},
                    .n_const = 5,
                    .grid = {(uint32_t)blocks, 1, 1},
                    .threads = (uint32_t)threads,
                    .rows_axis = 1,
                    .args = {m->state, m->bufs[decode->logits_buf], m->sampling, m->marks, m->history},
                    .n_arg = 5};
}

static void add_ends(const lowerer *l, launch *k)
{
    k->args[k->n_arg++] = l->opts->mem->tokens;
    k->args[k->n_arg++] = l->opts->mem->ring;
}

static int lower_best(lowerer *l, const qn_plan *decode)
{
    launch k = choice_launch(l, decode, "argmax.cu", THREADS);
    k.shared = THREADS / 32 * 16 + 8;
    k.args[k.n_arg++] = l->opts->mem->found;
    k.args[k.n_arg++] = l->opts->mem->arrived;
    add_ends(l, &k);
    return qn_lower_launch(l, &k);
}

static int lower_top_k(lowerer *l, const qn_plan *decode)
{
    launch k = choice_launch(l, decode, "sample_topk.cu", TOP_K_THREADS);
    int keys = top_k_keys(l->plans->model->n_vocab);
    k.consts[k.n_const++] = (qn_source_const){"top_k", QN_CUDA_TOP_K, false, false};
    k.consts[k.n_const++] = (qn_source_const){"keys", keys, false, false};
    k.shared = 8 * (uint32_t)(keys + 3 * QN_CUDA_TOP_K) + 4 * 264;
    k.args[k.n_arg++] = l->opts->mem->found;
    k.args[k.n_arg++] = l->opts->mem->arrived;
    add_ends(l, &k);
    return qn_lower_launch(l, &k);
}

static int lower_full(lowerer *l, const qn_plan *decode)
{
    launch k = choice_launch(l, decode, "sample_full.cu", THREADS);
    k.shared = 8 * (BINS + THREADS + 4);
    k.args[k.n_arg++] = l->opts->mem->sample_work;
    add_ends(l, &k);
    int pass = k.n_arg++;
    for (int i = 0; i < QN_CUDA_SAMPLE_PASSES; i++) {
        k.args[pass] = (uint64_t)i;
        if (qn_lower_launch(l, &k)) {
            return -1;
        }
    }
    return 0;
}

int qn_lower_choices(lowerer *l, const qn_plan *decode)
{
    if (l->plans->model->n_vocab >= MAX_VOCAB) {
        return qn_fail(l->err, "a vocabulary of %d tokens: the samplers take fewer than %d",
                       l->plans->model->n_vocab, MAX_VOCAB);
    }
    l->list = &l->out->decode;
    if (lower_best(l, decode)) {
        return -1;
    }
    l->list = &l->out->choose[QN_CHOOSE_BEST];
    int rc = lower_best(l, decode);
    l->list = &l->out->choose[QN_CHOOSE_TOP_K];
    rc = rc ? rc : lower_top_k(l, decode);
    l->list = &l->out->choose[QN_CHOOSE_FULL];
    return rc ? rc : lower_full(l, decode);
}
