// attention_wgmma.cu: attention of many query rows by the products of warpgroups (sm_90a), after the pattern
// of FlashAttention-3 (Shah et al., 2024): scores of the next tile and the values' sum of this one run while
// the softmax of the next is made. One or two warpgroups of 64 query rows; queries in registers, or in shared
// memory where k_dim is over 128. Two tiles of K and two of V in shared memory, filled by cp.async. grid:
// (n_head / heads, blocks of tokens, 1); block: 32 * spec::warps; shared: 1024 bytes to align, K and V twice
// [keys][64] a 64 dimensions, where q_shared the queries [block_rows][64] a 64 dimensions, a barrier of 8
// bytes.
constexpr int first_thread = 0;
#include "attention_wgmma.cuh"

// This thread's copies have landed, the tensor cores may read them, and all threads are here.
QN_DEV void wait_copies()
{
    ptx_copy_wait<0>();
    ptx_fence_async();
    __syncthreads();
}

QN_ENTRY(threads, 8 / spec::warps)
QN_KERNEL(const qn_state *st, const float *q, i64 q_stride, const half_t *k_cache, const half_t *v_cache,
          float *out, i64 out_stride, half_t *half_rows, float *row_scale)
{
    ptx_grid_wait();
    ptx_grid_launch();
    place p;
    if (!find_place(p, st)) {
        return;
    }
    k_cache += (i64)st->seq * (spec::kv_rows * spec::n_head_kv * spec::k_dim);
    v_cache += (i64)st->seq * (spec::kv_rows * spec::n_head_kv * spec::v_dim);
    const int n_rows = st->n_rows;
    u8 *base = qn_shared<u8>(0);
    half_t *k_s = (half_t *)(base + (1024 - ptx_shared_address(base) % 1024) % 1024), *v_s = k_s + 2 * k_tile;
    half_t *q_s = v_s + 2 * v_tile;
    const u64 k_at = matrix_at(ptx_shared_address(k_s), 16),
              v_at = matrix_at(ptx_shared_address(v_s), spec::keys * 128);
    const u64 q_at = matrix_at(ptx_shared_address(q_s) + threadIdx.x / 128 * (64 * 128), 16);
    u64 *passed = (u64 *)(q_s + (q_shared ? block_rows * ((k_pad + 63) / 64 * 64) : 0));
    if (threadIdx.x == 0) {
        ptx_barrier_init(passed, 1);
    }
    running w;
    query_tile qf;
    score_tile s;
    weight_tile weights;
    row_pair keep;
    const int oldest = p.low / spec::keys;
    int n = (p.end - 1) / spec::keys, turn = 0;
    load_keys(k_s, k_cache, n * spec::keys, p);
    commit();
    load_queries(w, qf, q_s, q, q_stride, p, n_rows);
    wait_copies();
    load_values(v_s, v_cache, n * spec::keys, p);
    if (n > oldest) {
        load_keys(k_s + k_tile, k_cache, (n - 1) * spec::keys, p);
    }
    commit();
    start_scores(s, qf, q_at, k_at);
    ptx_wgmma_wait<0>();
    ptx_pin<spec::keys / 2>(&s[0][0][0]);
    shape_scores(s, w, n * spec::keys, p);
    softmax_step(w, s, keep);
    take_weights(w, weights, s, keep);
    // Here and in each turn: weights are those of tile n; its values and the keys of tile n - 1 are on their
    // way.
    for (; n > oldest; n--, turn ^= 1) {
        wait_copies();
        start_scores(s, qf, q_at, k_at + (u64)((turn ^ 1) * k_tile * 2 >> 4));
        start_values(w, weights, v_at + (u64)(turn * v_tile * 2 >> 4));
        load_values(v_s + (turn ^ 1) * v_tile, v_cache, (n - 1) * spec::keys, p);
        if (n - 1 > oldest) {
            load_keys(k_s + turn * k_tile, k_cache, (n - 2) * spec::keys, p);
        }
        commit();
        ptx_wgmma_wait<1>();
        ptx_pin<spec::keys / 2>(&s[0][0][0]);
        shape_scores(s, w, (n - 1) * spec::keys, p);
        softmax_step(w, s, keep);
        ptx_pin<spec::keys / 2>(&s[0][0][0]);
        // A loop, left at once: without one the compiler moves the wait above the exponentials, and nothing
        // overlaps.
        ptx_barrier_wait(passed, 1);
        finish_values(w);
        take_weights(w, weights, s, keep);
    }
    wait_copies();
    start_values(w, weights, v_at + (u64)(turn * v_tile * 2 >> 4));
    finish_values(w);
    write_rows(w, out, out_stride, half_rows, row_scale, p, n_rows);
}
