// sample_topk.cu: penalties, top-k (1 to spec::top_k), top-p, min-p, temperature and draw for each row of
// logits; then the device state advances (sample.cuh). Each block finds the k best of its part of the
// vocabulary, the one that ends last the k best of those. Rows with SAMPLE_GREEDY take the best.
// grid: (spec::blocks, rows); block: spec::threads; shared: 8 * (spec::keys + 3 * spec::top_k) + 4 * 264
// bytes, spec::keys = max(ceil(n_vocab / blocks), blocks * top_k). found: [rows][blocks][top_k + 1] keys and
// BAD_*; arrived: [rows], zero before the first launch and after each. marks: [rows][n_vocab]; history:
// [rows][n_ctx].
#include "sample.cuh"

constexpr int part = (spec::n_vocab + spec::blocks - 1) / spec::blocks;

struct scratch {
    u64 *keys;              // [spec::keys]
    u64 *best, *one, *warm; // [top_k] keys in order, weights at temperature 1 and at the row's
    u32 *hist;              // [256]
    u32 *word;              // [8]
};

// Lane l of the first warp looks at bins 255 - 8l down to 248 - 8l: where does the count from the top reach
// `want`? word[0]: the bin (256: nowhere), word[1]: the count above it.
QN_DEV void find_bin(const scratch &s, u32 want)
{
    const int lane = threadIdx.x;
    if (lane == 0) {
        s.word[0] = 256;
        s.word[1] = 0;
    }
    __syncwarp();
    u32 sum = 0;
    for (int i = 0; i < 8; i++) {
        sum += s.hist[255 - 8 * lane - i];
    }
    u32 above = sum;
    for (int d = 1; d < WARP; d *= 2) {
        const u32 v = __shfl_up_sync(0xffffffffu, above, d);
        above += lane >= d ? v : 0;
    }
    above -= sum;
    if (above < want && want <= above + sum) {
        int bin = 255 - 8 * lane;
        while (above + s.hist[bin] < want) {
            above += s.hist[bin--];
        }
        s.word[0] = (u32)bin;
        s.word[1] = above;
    }
}

// The least of the `want` largest keys, or 1 where there are no more than that.
QN_DEV u64 threshold(const scratch &s, int n, u32 want)
{
    u64 prefix = 0;
    for (int shift = 48; shift >= 0; shift -= 8) {
        __syncthreads(); // hist and word may still be read
        for (int i = threadIdx.x; i < 256; i += spec::threads) {
            s.hist[i] = 0;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += spec::threads) {
            const u64 key = s.keys[i];
            if (key != 0 && key >> (shift + 8) == prefix) {
                atomicAdd(s.hist + (int)(key >> shift & 255), 1u);
            }
        }
        __syncthreads();
        if (threadIdx.x < WARP) {
            find_bin(s, want);
        }
        __syncthreads();
        const u32 bin = s.word[0];
        if (bin == 256) {
            return 1;
        }
        want -= s.word[1];
        prefix = prefix << 8 | bin;
        if (s.hist[bin] == want) {
            return prefix << shift;
        }
    }
    return prefix; // not reached: keys differ
}

// Keys of at least t to out, at most `most`; their number in word[2].
QN_DEV void gather(const scratch &s, int n, u64 t, u64 *out)
{
    if (threadIdx.x == 0) {
        s.word[2] = 0;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += spec::threads) {
        if (s.keys[i] >= t) {
            out[atomicAdd(s.word + 2, 1u)] = s.keys[i];
        }
    }
    __syncthreads();
}

// Sum of the first i + 1 weights.
QN_DEV u64 sum_to(const u64 *w, int i)
{
    u64 sum = 0;
    for (int k = 0; k <= i; k++) {
        sum += w[k];
    }
    return sum;
}

// The draw among the n best, which stand in order: thread i looks after candidate i.
QN_DEV i32 draw(const scratch &s, int n, const qn_sampling &p, u32 n_history)
{
    const int i = threadIdx.x;
    const double max = key_value(s.best[0]);
    if (i < n) {
        s.one[i] = key_weight(s.best[i], max, 1.0);
        s.warm[i] = key_weight(s.best[i], max, p.inv_temp);
    }
    if (i == 0) {
        s.word[3] = (u32)n;
        s.word[4] = (u32)n - 1;
    }
    __syncthreads();
    if (i < n) {
        const double goal = __dmul_rn(p.top_p, (double)sum_to(s.one, n - 1));
        if (p.top_p < 1.0 && (double)sum_to(s.one, i) >= goal) {
            atomicMin(s.word + 3, (u32)i + 1);
        }
        if (i > 0 && p.least > 0.0 && (double)s.one[i] < p.least) {
            atomicMin(s.word + 3, (u32)i);
        }
    }
    __syncthreads();
    const int limit = (int)s.word[3];
    if (i < limit) {
        const u64 goal = __umul64hi(random_bits(p.seed, n_history), sum_to(s.warm, limit - 1));
        if (sum_to(s.warm, i) > goal) {
            atomicMin(s.word + 4, (u32)i);
        }
    }
    __syncthreads();
    return key_id(s.best[s.word[4]]);
}

QN_ENTRY(spec::threads)
QN_KERNEL(qn_state *st, const float *logits, const qn_sampling *params, u32 *marks, i32 *history, u64 *found,
          u32 *arrived, i32 *tokens, i32 *ring)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.y;
    if (row >= st->n_rows) {
        return;
    }
    scratch s;
    s.keys = qn_shared<u64>(0);
    s.best = s.keys + spec::keys;
    s.one = s.best + spec::top_k;
    s.warm = s.one + spec::top_k;
    s.hist = (u32 *)(s.warm + spec::top_k);
    s.word = s.hist + 256;
    const qn_sampling p = params[row];
    const int k = p.flags & SAMPLE_GREEDY ? 1 : p.top_k;
    logits += (i64)row * spec::n_vocab;
    marks += (i64)row * spec::n_vocab;
    found += (i64)row * spec::blocks * (spec::top_k + 1);
    const int first = blockIdx.x * part, n = max(0, min(part, spec::n_vocab - first));
    u32 bad = 0;
    for (int i = threadIdx.x; i < n; i += spec::threads) {
        s.keys[i] = taken_key(logits, marks, p, first + i, &bad);
    }
    const int nan = __syncthreads_or((int)(bad & BAD_NAN)), inf = __syncthreads_or((int)(bad & BAD_INF));
    gather(s, n, threshold(s, n, (u32)k), s.best);
    u64 *mine = found + blockIdx.x * (spec::top_k + 1);
    for (int i = threadIdx.x; i < k; i += spec::threads) {
        mine[i] = i < (int)s.word[2] ? s.best[i] : 0;
    }
    if (threadIdx.x == 0) {
        mine[spec::top_k] = (nan ? BAD_NAN : 0) | (inf ? BAD_INF : 0);
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        s.word[5] = atomicAdd(arrived + row, 1u) == spec::blocks - 1;
    }
    __syncthreads();
    if (!s.word[5]) {
        return;
    }
    __threadfence();
    bad = 0;
    for (int i = threadIdx.x; i < spec::blocks; i += spec::threads) {
        bad |= (u32) * (const volatile u64 *)(found + i * (spec::top_k + 1) + spec::top_k);
    }
    for (int i = threadIdx.x; i < spec::blocks * k; i += spec::threads) {
        s.keys[i] = *(const volatile u64 *)(found + i / k * (spec::top_k + 1) + i % k);
    }
    const int any_nan = __syncthreads_or((int)(bad & BAD_NAN)),
              any_inf = __syncthreads_or((int)(bad & BAD_INF));
    gather(s, spec::blocks * k, threshold(s, spec::blocks * k, (u32)k), s.one);
    const int n_found = (int)s.word[2];
    if (threadIdx.x < n_found) { // in order, by counting the better ones
        int rank = 0;
        for (int i = 0; i < n_found; i++) {
            rank += s.one[i] > s.one[threadIdx.x];
        }
        s.best[rank] = s.one[threadIdx.x];
    }
    __syncthreads();
    const i32 pos = st->many ? st->rows[row].pos : st->pos;
    i32 id = bad_choice((any_nan ? BAD_NAN : 0) | (any_inf ? BAD_INF : 0));
    if (!any_nan && !any_inf && n_found > 0) {
        id = p.flags & SAMPLE_GREEDY ? key_id(s.best[0]) : draw(s, n_found, p, (u32)pos + 1);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        advance(st, row, id, p, marks, history + (i64)row * spec::n_ctx, tokens, ring);
        arrived[row] = 0;
    }
}
