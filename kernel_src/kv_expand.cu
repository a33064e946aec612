// kv_expand.cu: the rows of an 8-bit KV cache that a chunk sees, as halves, for the attention of prompts.
// A warp: one head of one row. spec::dim, n_head_kv, kv_rows, window, warps. grid: (heads of a sequence's
// rows / warps); block: 32 * spec::warps. cache, out: rows of all sequences, out [n_head_kv][dim] halves a
// row.
#include "kv_q8.cuh"

QN_ENTRY(32 * spec::warps)
QN_KERNEL(const qn_state *st, const u8 *cache, half_t *out)
{
    ptx_grid_wait();
    ptx_grid_launch();
    i64 at = (i64)blockIdx.x * spec::warps + threadIdx.x / WARP;
    const int row = (int)(at / spec::n_head_kv), last = st->pos + st->n_rows - 1;
    const int low = spec::window > 0 ? max(0, st->pos - spec::window + 1) : 0;
    if (row >= spec::kv_rows || last < row) {
        return;
    }
    const int pos = last - (last - row) % spec::kv_rows; // the newest position of this row
    if (pos < low) {
        return;
    }
    at += (i64)st->seq * (spec::kv_rows * spec::n_head_kv);
    const u8 *unit = cache + at * kv_unit<spec::dim, 1>;
    for (int c = threadIdx.x % WARP; c < spec::dim / 16; c += WARP) {
        u32x4 h[2];
        kv_unpack16(h, ((const u32x4 *)unit)[c], ((const half_t *)(unit + spec::dim))[c / 2]);
        u32x4 *to = (u32x4 *)(out + at * spec::dim) + 2 * c;
        to[0] = h[0];
        to[1] = h[1];
    }
}
