// latent_kv.cu: keys [part of the head | shared rope key] and values out of one row of both.
// grid: (rows, n_head); block: spec::threads; shared: none.
#include "types.cuh"

QN_ENTRY(spec::threads)
QN_KERNEL(const qn_state *st, const float *kv, i64 kv_stride, const float *rope, i64 rope_stride, float *k,
          i64 k_stride, float *v, i64 v_stride)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.x, head = blockIdx.y;
    if (row >= st->n_rows) {
        return;
    }
    constexpr int k_dim = spec::nope + spec::n_rot, from_dim = spec::nope + spec::v_dim;
    const float *from = kv + row * kv_stride + head * from_dim;
    for (int i = threadIdx.x; i < k_dim + spec::v_dim; i += spec::threads) {
        if (i < spec::nope) {
            k[row * k_stride + head * k_dim + i] = from[i];
        } else if (i < k_dim) {
            k[row * k_stride + head * k_dim + i] = rope[row * rope_stride + i - spec::nope];
        } else {
            v[row * v_stride + head * spec::v_dim + i - k_dim] = from[i - spec::n_rot];
        }
    }
}
