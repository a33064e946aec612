// attention_mma.cu: attention of few query rows on the tensor cores; queries are finished, keys in the cache.
// Launch shape and scratch memory: attention_mma.cuh. spec::q_vec: floats of q that one load may take.
#include "attention_merge.cuh"

struct cached_rows {
    const float *q; // of this block's heads

    QN_DEV_MEMBER void queries(running &r, const place &p)
    {
        take_queries<spec::k_dim, spec::q_vec>(r, q, p);
    }
    QN_DEV_MEMBER void put_key(half_t *, int, const place &)
    {
    }
    QN_DEV_MEMBER void put_value(half_t *, int, const place &)
    {
    }
};

QN_ENTRY(32 * spec::warps, 1)
QN_KERNEL(const qn_state *st, const float *q, i64 q_stride, const u8 *k_cache, const u8 *v_cache,
          float *parts, u32 *arrived, float *out, i64 out_stride, u8 *q8_out)
{
    ptx_grid_wait();
    ptx_grid_launch();
    place p;
    running r;
    find_heads(p);
    if (!find_keys(p, st, true)) {
        return;
    }
    cached_rows rows = {q + p.row * q_stride + p.h0 * spec::k_dim};
    reset(r);
    all_tiles(r, rows, k_cache, v_cache, p);
    finish(r, parts, arrived, out, out_stride, q8_out, p);
}
