// epilogue.cuh: what follows a product in `linear`: scale, bias, clamp, activation, division, out_scale,
// soft-cap. defines: segment_of, segment_row_of, linear_tail, load_tail, linear_epilogue
#ifndef QN_EPILOGUE_CUH
#define QN_EPILOGUE_CUH
#include "types.cuh"

QN_DEV float xielu(float v)
{
    const float ap = log1pf(expf(spec::xielu[1])), an = spec::xielu[2] + log1pf(expf(spec::xielu[0]));
    return v > 0.0f ? ap * v * v + spec::xielu[2] * v
                    : (expm1f(fminf(v, spec::xielu[3])) - v) * an + spec::xielu[2] * v;
}

// One of three constants by a segment that is known at run time. (An array of constants would be read from
// memory: at decode two more waits for DRAM in every product.)
QN_DEV int of_segment(int seg, const int v[3])
{
    return spec::n_seg < 2 || seg == 0 ? v[0] : spec::n_seg < 3 || seg == 1 ? v[1] : v[2];
}

QN_DEV int segment_of(int at)
{
    constexpr int end0 = spec::seg_out[0], end1 = end0 + spec::seg_out[1];
    return spec::n_seg < 2 || at < end0 ? 0 : spec::n_seg < 3 || at < end1 ? 1 : 2;
}

// Row of its segment that output `at` is.
QN_DEV int segment_row_of(int at)
{
    constexpr int end0 = spec::seg_out[0], end1 = end0 + spec::seg_out[1];
    const int seg = segment_of(at);
    return seg == 0 ? at : seg == 1 ? at - end0 : at - end1;
}

// What the epilogue of output `at` reads of weights: it hangs on no other kernel.
struct linear_tail {
    float bias, scale, div;
};

QN_DEV linear_tail load_tail(int at, const float *bias, const float *scale, const float *div)
{
    const int seg = segment_of(at);
    linear_tail t = {0.0f, 1.0f, 1.0f};
    if (of_segment(seg, spec::seg_scale)) {
        t.scale = *scale;
    }
    if (of_segment(seg, spec::seg_bias)) {
        t.bias = bias[segment_row_of(at)];
    }
    if (spec::has_div) {
        t.div = div[at];
    }
    return t;
}

// y: the product of row `at` (of n_out).
QN_DEV float linear_epilogue(float y, int at, const linear_tail &t)
{
    const int seg = segment_of(at);
    if (of_segment(seg, spec::seg_scale)) {
        y *= t.scale;
    }
    if (of_segment(seg, spec::seg_bias)) {
        y += t.bias;
    }
    if (spec::clamp > 0.0f) {
        y = fminf(fmaxf(y, -spec::clamp), spec::clamp);
    }
    y = spec::act == ACT_XIELU ? xielu(y) : activate<spec::act>(y);
    if (spec::has_div) {
        y /= t.div;
    }
    y *= spec::out_scale;
    if constexpr (spec::softcap > 0.0f) {
        y = spec::softcap * tanhf(y / spec::softcap);
    }
    return y;
}

#endif
