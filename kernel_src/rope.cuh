// rope.cuh: QK norm, RoPE and temperature of the heads of a row, done by a team: the THREADS threads of a
// block, or (THREADS == WARP) a warp. Values stand in shared memory. defines: full_width, half_rot, f32x2,
// norm_scale, find_turn, find_turns, finish_heads, query_factor
#ifndef QN_ROPE_CUH
#define QN_ROPE_CUH
#include "reduce.cuh"

// One norm over all heads of a row.
constexpr bool full_width = spec::qk_norm != NORM_NONE && spec::qk_width == QK_FULL;
constexpr int half_rot = spec::n_rot > 1 ? spec::n_rot / 2 : 1;

template <int THREADS> QN_DEV int team_rank()
{
    return (int)threadIdx.x % THREADS;
}

template <int THREADS> QN_DEV void team_sync()
{
    if constexpr (THREADS == WARP) {
        __syncwarp();
    } else {
        __syncthreads();
    }
}

// Factor of an RMS or layer norm over n values x * up, and their mean. scratch: THREADS / 32 floats.
template <int THREADS>
QN_DEV float norm_scale(const float *x, float up, int n, int kind, float *mean, float *scratch)
{
    float sum = 0.0f, square = 0.0f;
    if (kind == NORM_LAYER) {
        for (int i = team_rank<THREADS>(); i < n; i += THREADS) {
            sum += x[i] * up;
        }
        sum = block_sum<THREADS>(sum, scratch) / n;
    }
    for (int i = team_rank<THREADS>(); i < n; i += THREADS) {
        square += (x[i] * up - sum) * (x[i] * up - sum);
    }
    *mean = sum;
    return 1.0f / sqrtf(block_sum<THREADS>(square, scratch) / n + spec::eps);
}

// x[] = norm over n_head heads at once (whole width: their common mean square) or over the one head h.
template <int THREADS> QN_DEV void normalise(float *x, int n_head, int h, const float *w, float *scratch)
{
    const int n = n_head * spec::k_dim;
    float mean;
    const float scale = norm_scale<THREADS>(x, 1.0f, n, spec::qk_norm, &mean, scratch);
    team_sync<THREADS>();
    for (int i = team_rank<THREADS>(); i < n; i += THREADS) {
        float y = (x[i] - mean) * scale;
        if (w) {
            const bool per_channel = spec::qk_weight == QKW_CHANNEL && !full_width;
            y *= spec::qk_weight == QKW_PER_HEAD ? w[h + i / spec::k_dim]
                 : per_channel                   ? w[i]
                                                 : w[h * spec::k_dim + i];
        }
        x[i] = y;
    }
    team_sync<THREADS>();
}

// Cosine and sine (times mscale) of a pair's angle pos * freq. It is brought into half a turn in double: at
// position 100,000 a float product would be off by thousandths of a turn.
QN_DEV f32x2 find_turn(int pos, float freq)
{
    const double angle = (double)pos * (double)freq * 0.15915494309189533576888376337251; // 1 / (2 pi)
    float sine, cosine;
    sincospif(2.0f * (float)(angle - rint(angle)), &sine, &cosine);
    return f32x2{cosine * spec::mscale, sine * spec::mscale};
}

// Those of all pairs, by the threads of a block.
template <int THREADS> QN_DEV void find_turns(f32x2 *turns, int pos, const float *freq)
{
    for (int i = threadIdx.x; i < half_rot; i += THREADS) {
        turns[i] = find_turn(pos, freq[i]);
    }
}

// Pairs of dimensions rot_at .. rot_at + n_rot of each head turn.
template <int THREADS> QN_DEV void rotate(float *x, int n_head, const f32x2 *turns)
{
    for (int t = team_rank<THREADS>(); t < n_head * half_rot; t += THREADS) {
        const int i = t % half_rot;
        float *head = x + t / half_rot * spec::k_dim + spec::rot_at;
        const int a = spec::rope_style == ROPE_NEOX ? i : 2 * i;
        const int b = spec::rope_style == ROPE_NEOX ? i + half_rot : 2 * i + 1;
        const float u = head[a], v = head[b];
        head[a] = u * turns[i].x - v * turns[i].y;
        head[b] = u * turns[i].y + v * turns[i].x;
    }
    team_sync<THREADS>();
}

// Norm and RoPE, in their order, of n_head heads from head h on (of the query heads, or of the KV heads). w:
// norm weights, may be null.
template <int THREADS>
QN_DEV void finish_heads(float *x, int n_head, int h, bool norm, const float *w, const f32x2 *turns,
                         float *scratch)
{
    if (norm && spec::qk_order == QK_BEFORE_ROPE) {
        normalise<THREADS>(x, n_head, h, w, scratch);
    }
    if (spec::rope_style != ROPE_NONE) {
        rotate<THREADS>(x, n_head, turns);
    }
    if (norm && spec::qk_order == QK_AFTER_ROPE) {
        normalise<THREADS>(x, n_head, h, w, scratch);
    }
}

// What queries are multiplied with at a position.
QN_DEV float query_factor(int pos)
{
    if constexpr (spec::temp_scale != 0.0f) {
        return 1.0f + spec::temp_scale * logf(floorf((float)pos / (float)spec::temp_ctx) + 1.0f);
    } else {
        return 1.0f;
    }
}

#endif
