// attention_tma.cu: attention of many query rows by the products of warpgroups (sm_90a), where a warp of its
// own has the tensor memory accelerator bring keys and values (after FlashAttention-3: Shah et al., 2024).
// Each tile has two barriers, "full" and "empty", so that warpgroups may drift apart. spec::stay: blocks take
// (head, rows) pairs from a counter, those with the most keys first; else a block has one, for few pairs
// (spec::warps 4: 64 rows, two blocks a multiprocessor). As many dimensions of k as of v, a
// multiple of 8; queries in registers, or in shared memory where there are over 128. Where spec::q_tiles they
// come as tiles (query_tile.cuh), which the producing warp brings too, else as f32 rows that the consumers
// convert. Grid: as many blocks as fit, or (n_head, blocks of rows); 32 * spec::warps threads of
// consumers, 128 of which one produces. shared: 1024 bytes to align, K and V spec::stages times [keys][64] a
// 64 dimensions, where q_shared or q_tiles the queries [block_rows][64] a 64 dimensions, where q_tiles their
// factors, barriers. maps: of the caches, boxes of 64 values x keys x dimensions / 64 x 1 head, or (where 64
// does not divide the dimensions) spec::boxes of 64 values side by side, the last one zero beyond the head;
// counter: two words, zero between launches.

// Two consuming warpgroups stand behind the producer's: before it they take 3 % longer. One takes 2 % longer
// there, and for heads over 128 nothing changes (docs/performance-log.md).
constexpr int producer = spec::warps == 8 && spec::k_dim <= 128 ? 0 : 32 * spec::warps,
              first_thread = producer == 0 ? 128 : 0;
#include "attention_wgmma.cuh"

constexpr int wide = (spec::k_dim + 63) / 64 * 64, tile_bytes = spec::keys * wide * 2;
constexpr int query_bytes = spec::q_tiles || q_shared ? block_rows * wide * 2 : 0,
              factor_bytes = spec::q_tiles ? block_rows * 4 : 0;
enum { TILE_FULL, TILE_EMPTY, BARRIERS };

// Where things lie in shared memory.
struct areas {
    u8 *k, *v;
    half_t *q;
    u64 *barriers; // TILE_FULL, TILE_EMPTY, then full and empty of each stage of K, of V
    i32 *tile;     // the pair that the consumers are to do; -1: none is left
};

QN_DEV areas find_areas()
{
    u8 *base = qn_shared<u8>(0);
    base += (1024 - ptx_shared_address(base) % 1024) % 1024;
    u8 *v = base + spec::stages * tile_bytes;
    u8 *q = v + spec::stages * tile_bytes;
    u64 *barriers = (u64 *)(q + query_bytes + factor_bytes);
    return areas{base, v, (half_t *)q, barriers, (i32 *)(barriers + BARRIERS + 4 * spec::stages)};
}

QN_DEV u64 *full(const areas &s, int of_v, int stage)
{
    return s.barriers + BARRIERS + of_v * 2 * spec::stages + stage;
}

QN_DEV u64 *empty(const areas &s, int of_v, int stage)
{
    return full(s, of_v, stage) + spec::stages;
}

// Pair t of a chunk of n_rows rows at `pos`: heads within blocks of rows, the last rows (which see the most
// keys) first.
QN_DEV place place_of_pair(int pos, int n_rows, int t)
{
    place p;
    const int n_block = (n_rows + tokens - 1) / tokens;
    p.row0 = (n_block - 1 - t / spec::n_head) * tokens;
    p.pos0 = pos + p.row0;
    p.head0 = t % spec::n_head;
    p.g = p.head0 / group;
    p.v0 = 0;
    p.low = spec::window > 0 ? max(0, p.pos0 - spec::window + 1) : 0;
    p.end = min(p.pos0 + tokens, pos + n_rows);
    return p;
}

// Tile n of K or V into stage i % stages, once what it held has been read. A ring is a multiple of a tile
// long.
QN_DEV void load(const areas &s, const void *map, int of_v, int i, int n, int g, int seq_row)
{
    const int stage = i % spec::stages;
    ptx_barrier_wait(empty(s, of_v, stage), (i / spec::stages & 1) ^ 1);
    ptx_barrier_expect(full(s, of_v, stage), tile_bytes);
#pragma unroll
    for (int b = 0; b < spec::boxes; b++) {
        ptx_tensor_load((of_v ? s.v : s.k) + stage * tile_bytes + b * (spec::keys * 128), map,
                        full(s, of_v, stage), 64 * b, seq_row + n * spec::keys % spec::kv_rows, 0, g);
    }
}

// A pair's queries: a tile, or a part of one, whose rows lie together in each block of 64 dimensions.
QN_DEV void load_tile_queries(const areas &s, const u8 *q_tiles, const place &p)
{
    const int r = p.row0 % query_tile_rows;
    const u8 *tile =
        q_tiles + (i64)(p.row0 / query_tile_rows * spec::n_head + p.head0) * query_tile_bytes(wide);
    u64 *barrier = s.barriers + TILE_FULL;
    ptx_barrier_expect(barrier, query_bytes + factor_bytes);
    if constexpr (block_rows == query_tile_rows) {
        ptx_bulk_load(s.q, tile, barrier, query_bytes + factor_bytes);
    } else {
#pragma unroll
        for (int b = 0; b < wide / 64; b++) {
            ptx_bulk_load((u8 *)s.q + b * (block_rows * 128), tile + query_piece_at(r, 8 * b), barrier,
                          block_rows * 128);
        }
        ptx_bulk_load((u8 *)s.q + query_bytes, tile + query_factor_at(wide) + 4 * r, barrier, factor_bytes);
    }
}

// A pair's keys and values, in the order in which the consumers need them: K0 K1 V0 K2 V1 ... i: of the
// block's count. Returns the block's next pair where blocks stay. It is claimed when this one's last keys are
// asked for: claimed at its beginning, the next ones would all go to those who have the longest in hand.
QN_DEV int load_pair_tiles(const areas &s, const void *k_map, const void *v_map, const place &p, int seq_row,
                           int &i, u32 *counter)
{
    const int last = (p.end - 1) / spec::keys, oldest = p.low / spec::keys;
    int next = -1;
    for (int n = last; n >= oldest; n--, i++) {
        if (spec::stay && n == oldest) {
            next = (int)(gridDim.x + atomicAdd(counter, 1u));
        }
        load(s, k_map, 0, i, n, p.g, seq_row);
        if (n < last) {
            load(s, v_map, 1, i - 1, n + 1, p.g, seq_row);
        }
    }
    load(s, v_map, 1, i - 1, oldest, p.g, seq_row);
    return next;
}

// One thread: the block's only pair.
QN_DEV void produce_one(const areas &s, const place &p, int seq_row, const void *k_map, const void *v_map,
                        const u8 *q_tiles)
{
    int i = 0;
    if constexpr (spec::q_tiles) {
        load_tile_queries(s, q_tiles, p);
    }
    load_pair_tiles(s, k_map, v_map, p, seq_row, i, nullptr);
}

// One thread.
QN_DEV void produce(const areas &s, const qn_state *st, const void *k_map, const void *v_map,
                    const u8 *q_tiles, u32 *counter)
{
    const int pos = st->pos, n_rows = st->n_rows, seq_row = st->seq * spec::kv_rows,
              n_pair = (n_rows + tokens - 1) / tokens * spec::n_head;
    int i = 0, t = (int)blockIdx.x;
    for (int k = 0;; k++) {
        ptx_barrier_wait(s.barriers + TILE_EMPTY, (k & 1) ^ 1);
        *s.tile = t < n_pair ? t : -1;
        if (t >= n_pair) {
            ptx_barrier_arrive(s.barriers + TILE_FULL);
            break;
        }
        const place p = place_of_pair(pos, n_rows, t);
        if constexpr (spec::q_tiles) {
            load_tile_queries(s, q_tiles, p);
        } else {
            ptx_barrier_arrive(s.barriers + TILE_FULL);
        }
        t = load_pair_tiles(s, k_map, v_map, p, seq_row, i, counter);
    }
    if (atomicAdd(counter + 1, 1u) ==
        gridDim.x - 1) { // the last block: all others have taken their last pair
        atomicExch(counter, 0u);
        atomicExch(counter + 1, 0u);
    }
}

// A warp is done with what a barrier guards.
QN_DEV void release(u64 *barrier)
{
    __syncwarp();
    if (threadIdx.x % WARP == 0) {
        ptx_barrier_arrive(barrier);
    }
}

// The pair that is next, number k of the block's; -1: none is left.
QN_DEV int next_pair(const areas &s, int k)
{
    ptx_barrier_wait(s.barriers + TILE_FULL, k & 1);
    const int t = *s.tile;
    if (!spec::q_tiles || t < 0) {
        release(s.barriers + TILE_EMPTY);
    }
    return t;
}

// A tile's queries, and what their scores are multiplied with.
QN_DEV void take_tile(const areas &s, running &w, query_tile &qf, const place &p)
{
    static_assert(!spec::q_tiles ||
                      (query_tile_rows % block_rows == 0 && spec::heads == 1 && spec::tiles == 1),
                  "a tile, or a part of one, a pair");
    const u8 *tile = (const u8 *)s.q;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float up = *(const float *)(tile + query_bytes + 4 * row_of(0, half));
        take_factor(w, 0, half, up * spec::scale, p.head0);
    }
    if constexpr (!q_shared) {
        const int lane = (int)threadIdx.x % WARP,
                  r = ((int)threadIdx.x - first_thread) / WARP * 16 + lane % 16;
#pragma unroll
        for (int k = 0; k < k_pad / 16; k++) {
            ptx_ldmatrix_x4(qf[k], tile + query_piece_at(r, 2 * k + lane / 16, block_rows));
        }
        if constexpr (spec::stay) {
            release(s.barriers + TILE_EMPTY);
        }
    }
}

// Nothing seen so far in any row.
QN_DEV void clear(running &w)
{
    clear_row(w, 0, 0);
    clear_row(w, 0, 1);
}

// A pair's queries. f32 rows in shared memory take the place of those before, whose products all have waited
// for.
QN_DEV void take_queries(const areas &s, running &w, query_tile &qf, const float *q, i64 q_stride,
                         const place &p, int n_rows)
{
    if constexpr (spec::q_tiles) {
        take_tile(s, w, qf, p);
        clear(w);
    } else if constexpr (q_shared) {
        ptx_named_barrier(1, threads);
        load_queries(w, qf, s.q, q, q_stride, p, n_rows);
        ptx_fence_async();
        ptx_named_barrier(1, threads);
    } else {
        load_queries(w, qf, nullptr, q, q_stride, p, n_rows);
    }
}

// What the consumers have in hand.
struct work {
    running w;
    query_tile qf;
    score_tile scores;
    weight_tile weights;
    u64 k_at, v_at, q_at;
    int i; // tile of the block's count
};

// The scores of the pair's first tile are on their way from here on.
QN_DEV void start_pair(const areas &s, work &u)
{
    const int stage = u.i % spec::stages;
    ptx_barrier_wait(full(s, 0, stage), u.i / spec::stages & 1);
    start_scores(u.scores, u.qf, u.q_at, u.k_at + (u64)(stage * tile_bytes >> 4));
}

QN_DEV void finish_first(const areas &s, work &u)
{
    ptx_wgmma_wait<0>();
    ptx_pin<spec::keys / 2>(&u.scores[0][0][0]);
    release(empty(s, 0, u.i % spec::stages));
}

// No product reads the pair's queries any more.
QN_DEV void release_shared(const areas &s)
{
    if constexpr (spec::q_tiles && q_shared) {
        release(s.barriers + TILE_EMPTY);
    }
}

// The pair's last values.
QN_DEV void start_last(const areas &s, work &u)
{
    const int stage = u.i % spec::stages;
    ptx_barrier_wait(full(s, 1, stage), u.i / spec::stages & 1);
    start_values(u.w, u.weights, u.v_at + (u64)(stage * tile_bytes >> 4));
}

// The pair's tiles up to the last, whose weights are there and whose values are not taken yet.
QN_DEV void attend(const areas &s, const place &p, work &u)
{
    row_pair keep;
    const int oldest = p.low / spec::keys;
    int n = (p.end - 1) / spec::keys, stage = u.i % spec::stages, i = u.i;
    if (n == oldest) {
        release_shared(s);
    }
    shape_scores(u.scores, u.w, n * spec::keys, p);
    softmax_step(u.w, u.scores, keep);
    take_weights(u.w, u.weights, u.scores, keep);
    if (n > oldest) {
        ptx_barrier_wait(full(s, 0, (i + 1) % spec::stages), (i + 1) / spec::stages & 1);
    }
    // In each turn: weights are those of tile n, whose values are on their way; the keys of tile n - 1 are
    // there.
    for (; n > oldest; n--, i++) {
        const int next = (i + 1) % spec::stages;
        start_scores(u.scores, u.qf, u.q_at, u.k_at + (u64)(next * tile_bytes >> 4));
        ptx_barrier_wait(full(s, 1, stage), i / spec::stages & 1);
        start_values(u.w, u.weights, u.v_at + (u64)(stage * tile_bytes >> 4));
        ptx_wgmma_wait<1>();
        ptx_pin<spec::keys / 2>(&u.scores[0][0][0]);
        release(empty(s, 0, next));
        if (n - 1 == oldest) {
            release_shared(s);
        }
        shape_scores(u.scores, u.w, (n - 1) * spec::keys, p);
        softmax_step(u.w, u.scores, keep);
        ptx_pin<spec::keys / 2>(&u.scores[0][0][0]);
        // A wait, not only for the keys: without a loop here the compiler moves the wait for the values above
        // the exponentials, and nothing overlaps.
        if (n - 1 > oldest) {
            ptx_barrier_wait(full(s, 0, (i + 2) % spec::stages), (i + 2) / spec::stages & 1);
        }
        finish_values(u.w);
        release(empty(s, 1, stage));
        take_weights(u.w, u.weights, u.scores, keep);
        stage = next;
    }
    u.i = i;
}

QN_DEV void start_work(const areas &s, work &u)
{
    u.k_at = matrix_at(ptx_shared_address(s.k), 16);
    u.v_at = matrix_at(ptx_shared_address(s.v), spec::keys * 128);
    u.q_at = matrix_at(ptx_shared_address(s.q) + (threadIdx.x - first_thread) / 128 * (64 * 128), 16);
    u.i = 0;
}

// The block's only pair.
QN_DEV void consume_one(const areas &s, const place &p, int n_rows, const float *q, i64 q_stride, float *out,
                        i64 out_stride, half_t *half_rows, float *row_scale)
{
    work u;
    start_work(s, u);
    if constexpr (spec::q_tiles) {
        ptx_barrier_wait(s.barriers + TILE_FULL, 0);
    }
    take_queries(s, u.w, u.qf, q, q_stride, p, n_rows);
    start_pair(s, u);
    finish_first(s, u);
    attend(s, p, u);
    start_last(s, u);
    finish_values(u.w);
    write_rows(u.w, out, out_stride, half_rows, row_scale, p, n_rows);
}

// All pairs of the block. Where queries come as tiles into registers, the next pair's first scores are
// started behind the last values of the one before, whose results are written meanwhile.
QN_DEV void consume(const areas &s, const qn_state *st, const float *q, i64 q_stride, float *out,
                    i64 out_stride, half_t *half_rows, float *row_scale)
{
    constexpr bool ahead = spec::q_tiles && !q_shared;
    const int pos = st->pos, n_rows = st->n_rows;
    work u;
    start_work(s, u);
    int t = next_pair(s, 0);
    if (t < 0) {
        return;
    }
    place p = place_of_pair(pos, n_rows, t);
    take_queries(s, u.w, u.qf, q, q_stride, p, n_rows);
    start_pair(s, u);
    finish_first(s, u);
    for (int k = 1;; k++) {
        attend(s, p, u);
        if constexpr (ahead) {
            t = next_pair(s, k);
            if (t < 0) {
                break;
            }
            const place done = p;
            const int stage = u.i % spec::stages;
            p = place_of_pair(pos, n_rows, t);
            start_last(s, u);
            take_tile(s, u.w, u.qf, p);
            u.i++;
            start_pair(s, u);
            ptx_wgmma_wait<1>();
            ptx_pin<n_value / 2>(&u.w.o[0][0][0]);
            release(empty(s, 1, stage));
            write_rows(u.w, out, out_stride, half_rows, row_scale, done, n_rows);
            finish_first(s, u);
            clear(u.w);
        } else {
            start_last(s, u);
            finish_values(u.w);
            release(empty(s, 1, u.i % spec::stages));
            u.i++;
            write_rows(u.w, out, out_stride, half_rows, row_scale, p, n_rows);
            t = next_pair(s, k);
            if (t < 0) {
                return;
            }
            p = place_of_pair(pos, n_rows, t);
            take_queries(s, u.w, u.qf, q, q_stride, p, n_rows);
            start_pair(s, u);
            finish_first(s, u);
        }
    }
    start_last(s, u);
    finish_values(u.w);
    write_rows(u.w, out, out_stride, half_rows, row_scale, p, n_rows);
}

QN_ENTRY(threads + 128, 8 / spec::warps)
QN_KERNEL(const qn_state *st, const float *q, i64 q_stride, const u8 *q_tiles, const void *k_map,
          const void *v_map, float *out, i64 out_stride, half_t *half_rows, float *row_scale, u32 *counter)
{
    const areas s = find_areas();
    if (threadIdx.x == 0) {
        ptx_barrier_init(s.barriers + TILE_FULL, 1);
        ptx_barrier_init(s.barriers + TILE_EMPTY, spec::warps);
        for (int i = 0; i < spec::stages; i++) {
            for (int of_v = 0; of_v < 2; of_v++) {
                ptx_barrier_init(full(s, of_v, i), 1);
                ptx_barrier_init(empty(s, of_v, i), spec::warps);
            }
        }
        ptx_barrier_init_fence();
    }
    if ((int)threadIdx.x == producer + WARP) {
        ptx_tensor_prefetch(k_map);
        ptx_tensor_prefetch(v_map);
    }
    __syncthreads();
    ptx_grid_wait();
    ptx_grid_launch();
    place p;
    if (!spec::stay && !find_place(p, st)) {
        return;
    }
    if ((int)threadIdx.x / 128 == producer / 128) {
        ptx_fewer_registers<24>();
        if ((int)threadIdx.x == producer) {
            if constexpr (spec::stay) {
                produce(s, st, k_map, v_map, q_tiles, counter);
            } else {
                produce_one(s, p, st->seq * spec::kv_rows, k_map, v_map, q_tiles);
            }
        }
        return;
    }
    ptx_more_registers<spec::warps == 8 ? 240 : 232>(); // with 24 a thread of the others: all there are
    if constexpr (spec::stay) {
        consume(s, st, q, q_stride, out, out_stride, half_rows, row_scale);
    } else {
        consume_one(s, p, st->n_rows, q, q_stride, out, out_stride, half_rows, row_scale);
    }
}
