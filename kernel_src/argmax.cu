// argmax.cu: greedy choice of one row of logits, lowest id on ties; NaN anywhere gives -1. Then the device
// state advances: the chosen token becomes the next input, the position grows by one, and the token is put
// into the ring that the host reads. grid: (spec::blocks); block: spec::threads; shared: 2 * threads / 32
// words. spec::n_vocab, spec::ring. best: [blocks] {value, id}; arrived: zero before the first launch, zero
// again after each.
#include "reduce.cuh"

struct candidate {
    float value;
    i32 id;
};

QN_DEV candidate better(candidate a, candidate b)
{
    if (a.id < 0 || b.id < 0) { // -1: NaN was seen
        return candidate{0.0f, -1};
    }
    return b.value > a.value || (b.value == a.value && b.id < a.id) ? b : a;
}

QN_DEV candidate block_best(candidate c, candidate *scratch)
{
    for (int d = WARP / 2; d > 0; d /= 2) {
        c = better(
            c, candidate{__shfl_xor_sync(0xffffffffu, c.value, d), __shfl_xor_sync(0xffffffffu, c.id, d)});
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
QN_KERNEL(qn_state *st, const float *logits, candidate *best, u32 *arrived, i32 *ring)
{
    ptx_grid_launch();
    ptx_grid_wait();
    candidate *scratch = qn_shared<candidate>(0);
    u32 *last = (u32 *)(scratch + spec::threads / WARP);
    candidate c = {-QN_INF, 0x7fffffff};
    for (int i = blockIdx.x * spec::threads + threadIdx.x; i < spec::n_vocab;
         i += spec::threads * spec::blocks) {
        const float v = logits[i];
        c = better(c, candidate{v, v == v ? i : -1});
    }
    c = block_best(c, scratch);
    if (threadIdx.x == 0) {
        best[blockIdx.x] = c;
        __threadfence();
        *last = atomicAdd(arrived, 1u) == spec::blocks - 1;
    }
    __syncthreads();
    if (!*last) {
        return;
    }
    __threadfence();
    c = candidate{-QN_INF, 0x7fffffff};
    for (int i = threadIdx.x; i < spec::blocks; i += spec::threads) {
        const volatile candidate *b = best + i;
        c = better(c, candidate{b->value, b->id});
    }
    c = block_best(c, scratch);
    if (threadIdx.x == 0) {
        ring[st->step % spec::ring] = c.id;
        st->token = c.id < 0 ? 0 : c.id;
        st->step += 1;
        st->pos += 1;
        *arrived = 0;
    }
}
