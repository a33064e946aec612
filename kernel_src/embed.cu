// embed.cu: out[r] = scale * row(tokens[r]) (+ position row); one block a row.
// grid: (rows); block: spec::threads; shared: none.
#include "quant.cuh"

extern "C" __global__ void __launch_bounds__(spec::threads)
    QN_KERNEL(const qn_state *st, const i32 *tokens, float *out, i64 out_stride, const u8 *table,
              const u8 *positions)
{
    const int row = blockIdx.x;
    if (row >= st->n_rows) {
        return;
    }
    constexpr int pos_dt = spec::pos_dtype < 0 ? 0 : spec::pos_dtype;
    const u8 *src = table + (i64)tokens[row] * row_bytes<spec::dtype>(spec::n_embd);
    out += row * out_stride;
    for (int k = threadIdx.x * 8; k < spec::n_embd; k += spec::threads * 8) {
        float v[8];
        decode8<spec::dtype>(src, k, v);
        for (int i = 0; i < 8; i++) {
            out[k + i] = spec::scale * v[i];
        }
        if (spec::n_pos > 0) {
            decode8<pos_dt>(positions + (i64)(st->pos + row) * row_bytes<pos_dt>(spec::n_embd), k, v);
            for (int i = 0; i < 8; i++) {
                out[k + i] += v[i];
            }
        }
    }
}
