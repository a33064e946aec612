// row_sum.cuh: a sum over all outputs of a launch, inside that launch: each group of 32 outputs has a word in
// global memory, in which its sum stands beside the number of the turn, one more than the launch before left
// there; so nothing needs clearing. Whoever needs the total waits until all words are of this turn, and adds
// them in an order that does not hang on the blocks.
// All blocks of the launch must come to be on the card together: lowering sees to that (lower_post.c). Where
// the next kernel's blocks may start early (ptx_grid_launch), they cannot take these blocks' places: each
// block says so behind its wait, and they start when all blocks have. defines: row_turn, row_put, row_total
#ifndef QN_ROW_SUM_CUH
#define QN_ROW_SUM_CUH
#include "reduce.cuh"

constexpr int n_row_sum = spec::post ? spec::n_out / 32 : 1;

// The turn of this launch, by the word of group g before it is written.
QN_DEV u32 row_turn(const u64 *words, int g)
{
    u64 v[2];
    ptx_load_words(v, words + (g & ~1));
    return (u32)((g % 2 ? v[1] : v[0]) >> 32) + 1;
}

QN_DEV void row_put(u64 *words, int g, u32 turn, float sum)
{
    ptx_store_word(words + g, (u64)turn << 32 | __float_as_uint(sum));
}

// The total, by all lanes of a warp, once they have put what they have.
QN_DEV float row_total(const u64 *words, u32 turn)
{
    constexpr int pairs = (n_row_sum + 1) / 2, per_lane = (pairs + WARP - 1) / WARP;
    const int lane = threadIdx.x % WARP;
    u64 v[per_lane][2];
    bool there;
    do {
        there = true;
#pragma unroll
        for (int i = 0; i < per_lane; i++) {
            const int at = 2 * (i * WARP + lane);
            v[i][0] = v[i][1] = (u64)turn << 32; // zeros beyond the row
            if (at < n_row_sum) {
                ptx_load_words(v[i], words + at);
            }
            if (at + 1 >= n_row_sum) {
                v[i][1] = (u64)turn << 32;
            }
            there = there && (u32)(v[i][0] >> 32) == turn && (u32)(v[i][1] >> 32) == turn;
        }
    } while (!there);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < per_lane; i++) {
        sum += __uint_as_float((u32)v[i][0]) + __uint_as_float((u32)v[i][1]);
    }
    return warp_sum(sum);
}

#endif
