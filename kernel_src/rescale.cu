// rescale.cu: groups of n values get the length of a reference row; or their mean with it. One block a row.
// grid: (rows); block: spec::threads; shared: threads / 32 floats.
#include "reduce.cuh"

// Root of the sum of squares of n values.
QN_DEV float length_of(const float *x, float *scratch)
{
    float square = 0.0f;
    for (int i = threadIdx.x; i < spec::n; i += spec::threads) {
        square += x[i] * x[i];
    }
    return sqrtf(block_sum<spec::threads>(square, scratch));
}

QN_ENTRY(spec::threads)
QN_KERNEL(const qn_state *st, const float *in0, i64 in0_stride, const float *ref, i64 ref_stride, float *out,
          i64 out_stride)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.x;
    if (row >= (spec::outputs ? st->n_out : st->n_rows)) {
        return;
    }
    float *scratch = qn_shared<float>(0);
    in0 += row * in0_stride;
    ref += row * ref_stride;
    out += row * out_stride;
    const float due = length_of(ref, scratch);
    float factor[spec::groups];
    for (int g = 0; g < spec::groups; g++) {
        const float is = length_of(in0 + g * spec::n, scratch);
        factor[g] = is > 0.0f ? due / is : 0.0f;
    }
    for (int i = threadIdx.x; i < spec::n; i += spec::threads) {
        float sum = ref[i];
        for (int g = 0; g < spec::groups; g++) {
            const float y = factor[g] * in0[g * spec::n + i];
            sum += y;
            if (!spec::average) {
                out[g * spec::n + i] = y;
            }
        }
        if (spec::average) {
            out[i] = sum / (spec::groups + 1);
        }
    }
}
