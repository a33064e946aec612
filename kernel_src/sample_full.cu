// sample_full.cu: the sampler without a small top-k: one step of finding a key digit by digit, launched
// spec::passes times a token. First the best candidate; then, each in 5 digits of 11 bits, the last key of
// top-k, the last key of top-p, and the key drawn: a histogram of weights by digit over all blocks, in which
// the block that ends last finds the digit. What is not asked for is left out, and launches left over do
// nothing. grid: (spec::blocks, rows); block: spec::threads (256); shared: 8 * (2048 + 256 + 4) bytes. work:
// [rows], zero before the first launch. marks: [rows][n_vocab]; history: [rows][n_ctx]. pass: 0 in a token's
// first launch.
#include "sample.cuh"

enum { BINS = 2048, DIGIT = 11, FIRST_SHIFT = 45, LAST_SHIFT = 1 };
enum { FIND_BEST, FIND_TOP_K, FIND_TOP_P, FIND_DRAW, FOUND };

struct sample_work {
    u64 hist[BINS];
    u64 best;    // key
    u64 cut;     // candidates are keys from here on
    u64 prefix;  // digits found so far
    u64 above;   // weight of the candidates above them
    u64 goal;    // of FIND_DRAW
    double part; // goal of FIND_TOP_P
    i32 phase, shift;
    u32 bad, arrived;
};

QN_DEV void start_phase(sample_work *w, const qn_sampling &p, i32 phase)
{
    phase = phase == FIND_TOP_K && p.top_k == 0 ? FIND_TOP_P : phase;
    phase = phase == FIND_TOP_P && !(p.top_p < 1.0) ? FIND_DRAW : phase;
    w->phase = phase;
    w->shift = FIRST_SHIFT;
    w->prefix = 0;
    w->above = 0;
}

QN_DEV u64 weight_in(const sample_work *w, i32 phase, const qn_sampling &p, u64 key, double max)
{
    if (phase == FIND_TOP_K) {
        return 1;
    }
    if (phase == FIND_TOP_P) {
        return key_weight(key, max, 1.0);
    }
    const bool kept = key == w->best || !(p.least > 0.0) || (double)key_weight(key, max, 1.0) >= p.least;
    return kept ? key_weight(key, max, p.inv_temp) : 0;
}

QN_DEV bool reached(const sample_work *w, i32 phase, const qn_sampling &p, u64 sum)
{
    return phase == FIND_TOP_K   ? sum >= (u64)p.top_k
           : phase == FIND_TOP_P ? (double)sum >= w->part
                                 : sum > w->goal;
}

// The last block: from the histogram to the digit. Bins are taken from the top, 8 a thread.
QN_DEV void find_digit(sample_work *w, i32 phase, const qn_sampling &p, u64 *sums, u64 *result,
                       const i32 *pos)
{
    const int t = threadIdx.x, top = BINS - 1 - t * (BINS / spec::threads);
    volatile u64 *hist = w->hist;
    u64 sum = 0;
    for (int i = 0; i < BINS / spec::threads; i++) {
        sum += hist[top - i];
    }
    sums[t] = sum;
    __syncthreads();
    u64 before = 0, total = 0;
    for (int i = 0; i < spec::threads; i++) {
        before += i < t ? sums[i] : 0;
        total += sums[i];
    }
    if (t == 0) {
        result[0] = BINS;
        if (w->shift == FIRST_SHIFT) { // the goal, at least 1, so that the best candidate reaches it
            const double part = __dmul_rn(p.top_p, (double)total);
            w->part = part > 1.0 ? part : 1.0;
            w->goal = __umul64hi(random_bits(p.seed, (u32)*pos + 1), total);
        }
    }
    __syncthreads();
    before += w->above;
    if (!reached(w, phase, p, before) && reached(w, phase, p, before + sum)) {
        int bin = top;
        while (!reached(w, phase, p, before + hist[bin])) {
            before += hist[bin--];
        }
        result[0] = (u64)bin;
        result[1] = before;
    }
    __syncthreads();
    for (int i = 0; i < BINS / spec::threads; i++) {
        hist[top - i] = 0;
    }
}

// One thread: what the last block has found decides the next launch, or the token. result: find_digit's.
QN_DEV i32 step_on(sample_work *w, i32 phase, const qn_sampling &p, const u64 *result)
{
    if (phase == FIND_BEST) {
        const u64 top = *(volatile u64 *)&w->best;
        const u32 wrong = *(volatile u32 *)&w->bad;
        w->cut = 0;
        start_phase(w, p, FIND_TOP_K);
        if (wrong || top == 0 || p.flags & SAMPLE_GREEDY) {
            w->phase = FOUND;
            return wrong || top == 0 ? bad_choice(wrong) : key_id(top);
        }
    } else if (result[0] == BINS) { // top-k of fewer candidates
        start_phase(w, p, phase + 1);
    } else {
        const bool last = w->shift == LAST_SHIFT;
        w->prefix = w->prefix << DIGIT | result[0];
        w->above = result[1];
        w->shift -= DIGIT;
        const u64 key = w->prefix << LAST_SHIFT;
        if (last && phase == FIND_DRAW) {
            w->phase = FOUND;
            return key_id(key);
        }
        if (last) {
            w->cut = key;
            start_phase(w, p, phase + 1);
        }
    }
    return CHOSE_NONE;
}

QN_ENTRY(spec::threads)
QN_KERNEL(qn_state *st, const float *logits, const qn_sampling *params, u32 *marks, i32 *history,
          sample_work *work, i32 *tokens, i32 *ring, i64 pass)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.y;
    sample_work *w = work + row;
    const i32 phase = pass == 0 ? FIND_BEST : w->phase;
    if (row >= st->n_rows || phase == FOUND) {
        return;
    }
    u64 *hist = qn_shared<u64>(0), *sums = hist + BINS, *result = sums + spec::threads;
    const qn_sampling p = params[row];
    logits += (i64)row * spec::n_vocab;
    marks += (i64)row * spec::n_vocab;
    for (int i = threadIdx.x; i < BINS; i += spec::threads) {
        hist[i] = 0;
    }
    __syncthreads();
    const u64 cut = phase == FIND_BEST ? 0 : w->cut, prefix = w->prefix;
    const i32 shift = w->shift;
    const double max = phase == FIND_BEST ? 0.0 : key_value(w->best);
    u64 best = 0;
    u32 bad = 0;
    for (int i = blockIdx.x * spec::threads + threadIdx.x; i < spec::n_vocab;
         i += spec::threads * spec::blocks) {
        const u64 key = taken_key(logits, marks, p, i, &bad);
        if (phase == FIND_BEST) {
            best = key > best ? key : best;
        } else if (key != 0 && key >= cut && (shift == FIRST_SHIFT || key >> (shift + DIGIT) == prefix)) {
            atomicAdd(hist + (int)(key >> shift & (BINS - 1)), weight_in(w, phase, p, key, max));
        }
    }
    if (phase == FIND_BEST && best != 0) {
        atomicMax(&w->best, best);
    }
    if (phase == FIND_BEST && bad != 0) {
        atomicOr(&w->bad, bad);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += spec::threads) {
        if (hist[i] != 0) {
            atomicAdd(w->hist + i, hist[i]);
        }
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        result[2] = atomicAdd(&w->arrived, 1u) == spec::blocks - 1;
    }
    __syncthreads();
    if (!result[2]) {
        return;
    }
    __threadfence();
    if (phase != FIND_BEST) {
        find_digit(w, phase, p, sums, result, st->many ? &st->rows[row].pos : &st->pos);
    }
    if (threadIdx.x != 0) {
        return;
    }
    w->arrived = 0;
    const i32 id = step_on(w, phase, p, result);
    if (w->phase == FOUND) {
        w->best = 0;
        w->bad = 0;
        advance(st, row, id, p, marks, history + (i64)row * spec::n_ctx, tokens, ring);
    }
}
