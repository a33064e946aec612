// argmax.cu: the greedy choice of each row of logits, after penalties, lowest id on ties. Then the device
// state advances (sample.cuh). grid: (spec::blocks, rows); block: spec::threads; shared: 2 * threads / 32 + 1
// words of 8 bytes. spec::n_vocab, spec::n_ctx, spec::ring. best: [rows][blocks][2] key and BAD_*; arrived:
// [rows], zero before the first launch and after each. marks: [rows][n_vocab]; history: [rows][n_ctx].
#include "sample.cuh"

struct candidate {
    u64 key;
    u64 bad;
};

QN_DEV candidate better(candidate a, candidate b)
{
    return candidate{b.key > a.key ? b.key : a.key, a.bad | b.bad};
}

QN_DEV candidate block_best(candidate c, candidate *scratch)
{
    for (int d = WARP / 2; d > 0; d /= 2) {
        c = better(c,
                   candidate{__shfl_xor_sync(0xffffffffu, c.key, d), __shfl_xor_sync(0xffffffffu, c.bad, d)});
    }
    __syncthreads();
    if (threadIdx.x % WARP == 0) {
        scratch[threadIdx.x / WARP] = c;
    }
    __syncthreads();
    for (int i = 0; i < spec::threads / WARP; i++) {
        c = better(c, scratch[i]);
    }
    return c;
}

QN_ENTRY(spec::threads)
QN_KERNEL(qn_state *st, const float *logits, const qn_sampling *params, u32 *marks, i32 *history,
          candidate *best, u32 *arrived, i32 *tokens, i32 *ring)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.y;
    if (row >= st->n_rows) {
        return;
    }
    candidate *scratch = qn_shared<candidate>(0);
    u32 *last = (u32 *)(scratch + spec::threads / WARP);
    const qn_sampling p = params[row];
    logits += (i64)row * spec::n_vocab;
    marks += (i64)row * spec::n_vocab;
    best += row * spec::blocks;
    candidate c = {0, 0};
    for (int i = blockIdx.x * spec::threads + threadIdx.x; i < spec::n_vocab;
         i += spec::threads * spec::blocks) {
        u32 bad = 0;
        const u64 key = taken_key(logits, marks, p, i, &bad);
        c = better(c, candidate{key, bad});
    }
    c = block_best(c, scratch);
    if (threadIdx.x == 0) {
        best[blockIdx.x] = c;
        __threadfence();
        *last = atomicAdd(arrived + row, 1u) == spec::blocks - 1;
    }
    __syncthreads();
    if (!*last) {
        return;
    }
    __threadfence();
    c = candidate{0, 0};
    for (int i = threadIdx.x; i < spec::blocks; i += spec::threads) {
        const volatile candidate *b = best + i;
        c = better(c, candidate{b->key, b->bad});
    }
    c = block_best(c, scratch);
    if (threadIdx.x == 0) {
        advance(st, row, c.bad || !c.key ? bad_choice((u32)c.bad) : key_id(c.key), p, marks,
                history + (i64)row * spec::n_ctx, tokens, ring);
        arrived[row] = 0;
    }
}
