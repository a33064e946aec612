// epilogue.cuh: what follows a product in `linear`: scale, bias, clamp, activation, division, out_scale,
// soft-cap. defines: linear_epilogue
#ifndef QN_EPILOGUE_CUH
#define QN_EPILOGUE_CUH
#include "types.cuh"

QN_DEV float xielu(float v)
{
    const float ap = log1pf(expf(spec::xielu[1])), an = spec::xielu[2] + log1pf(expf(spec::xielu[0]));
    return v > 0.0f ? ap * v * v + spec::xielu[2] * v
                    : (expm1f(fminf(v, spec::xielu[3])) - v) * an + spec::xielu[2] * v;
}

// y: the product of row `at` (of n_out) in segment `seg`, row `local` of it.
QN_DEV float linear_epilogue(float y, int at, int seg, int local, const float *bias, const float *scale,
                             const float *div)
{
    if (spec::seg_scale[seg]) {
        y *= *scale;
    }
    if (spec::seg_bias[seg]) {
        y += bias[local];
    }
    if (spec::clamp > 0.0f) {
        y = fminf(fmaxf(y, -spec::clamp), spec::clamp);
    }
    y = spec::act == ACT_XIELU ? xielu(y) : activate<spec::act>(y);
    if (spec::has_div) {
        y /= div[at];
    }
    y *= spec::out_scale;
    if constexpr (spec::softcap > 0.0f) {
        y = spec::softcap * tanhf(y / spec::softcap);
    }
    return y;
}

#endif
