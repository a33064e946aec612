// attention_combine.cu: merges the parts that attention_decode.cu left; one block a row and head.
// grid: (n_head, rows); block: spec::threads; shared: none. n_split parts of each head.
#include "types.cuh"

extern "C" __global__ void __launch_bounds__(spec::threads)
    QN_KERNEL(const qn_state *st, const float *parts, i64 n_split, float *out, i64 out_stride)
{
    const int row = blockIdx.y, h = blockIdx.x;
    if (row >= st->n_rows) {
        return;
    }
    constexpr int rec = spec::v_dim + 2;
    parts += ((i64)row * spec::n_head + h) * n_split * rec;
    float top = -QN_INF, sum = 0.0f;
    for (int k = 0; k < n_split; k++) {
        top = fmaxf(top, parts[k * rec]);
    }
    for (int k = 0; k < n_split; k++) {
        sum += parts[k * rec] == -QN_INF ? 0.0f : expf(parts[k * rec] - top) * parts[k * rec + 1];
    }
    for (int i = threadIdx.x; i < spec::v_dim; i += spec::threads) {
        float v = 0.0f;
        for (int k = 0; k < n_split; k++) {
            v += parts[k * rec] == -QN_INF ? 0.0f : expf(parts[k * rec] - top) * parts[k * rec + 2 + i];
        }
        out[row * out_stride + h * spec::v_dim + i] = v / sum;
    }
}
