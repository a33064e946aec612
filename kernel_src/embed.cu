// embed.cu: out[r] = scale * row(tokens[r]) (+ position row); one block a row.
// grid: (rows); block: spec::threads; shared: none.
#include "planes.cuh"

QN_ENTRY(spec::threads)
QN_KERNEL(const qn_state *st, const i32 *tokens, float *out, i64 out_stride, const u8 *table,
          const u8 *positions)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.x;
    if (row >= st->n_rows) {
        return;
    }
    constexpr int pos_dt = spec::pos_dtype < 0 ? 0 : spec::pos_dtype;
    const plane_ptr src = row_planes<spec::dtype>(table, spec::n_vocab, spec::n_embd, tokens[row]);
    const plane_ptr pos = row_planes<pos_dt>(positions, spec::n_pos, spec::n_embd, row_pos(st, row));
    for (int i = threadIdx.x; i < spec::n_embd; i += spec::threads) {
        float v = spec::scale * decode_value<spec::dtype>(src, i);
        if (spec::n_pos > 0) {
            v += decode_value<pos_dt>(pos, i);
        }
        out[row * out_stride + i] = v;
    }
}
