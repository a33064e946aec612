// gemv_half.cuh: pairs of f16 or bf16 rows times up to spec::cols rows of f32 activations (columns). A warp
// works on a pair, or with others (spec::slices of them, a divisor of spec::warps) on a part of it, in pieces
// of 512 values: 16 bytes of each row a lane and step. spec::ahead pieces are under way, in registers that
// take turns, and the first ones are sent for before the kernel before has ended. n_in is a multiple of 8;
// rows of activations begin at multiples of 16 bytes. Sums in f32. defines: gemv_half, half_sum
#ifndef QN_GEMV_HALF_CUH
#define QN_GEMV_HALF_CUH
#include "reduce.cuh"

enum { PIECE = 512, STEP = 256 };
constexpr int n_piece = (spec::n_in + PIECE - 1) / PIECE;

struct half_piece {
    u32x4 w[2][PIECE / STEP]; // [row of the pair][step]
};

constexpr int n_team = spec::warps / spec::slices; // pairs a block works on at a time

// This warp's share of the work: item i is a piece of a pair.
struct half_share {
    int team, slice, per_pair, n;
};

QN_DEV half_share share_of(int pairs)
{
    half_share s;
    const int warp = threadIdx.x / WARP;
    s.slice = warp % spec::slices;
    s.team = warp / spec::slices;
    s.per_pair = (n_piece - s.slice + spec::slices - 1) / spec::slices;
    s.n = s.team < pairs ? (pairs - s.team + n_team - 1) / n_team * s.per_pair : 0;
    return s;
}

template <class W> QN_DEV void load_piece(half_piece &p, const W &w, const half_share &s, int i)
{
    if (i >= s.n) {
        no_value(p);
        return;
    }
    const int pair = s.team + i / s.per_pair * n_team, piece = s.slice + i % s.per_pair * spec::slices;
    for (int r = 0; r < 2; r++) {
        const u16 *row = w.row(pair, r);
        for (int k = 0; k < PIECE / STEP; k++) {
            const int at = piece * PIECE + k * STEP + threadIdx.x % WARP * 8;
            p.w[r][k] = u32x4{0, 0, 0, 0};
            if (at < spec::n_in) {
                p.w[r][k] = ptx_load_stream(row + at);
            }
        }
    }
}

QN_DEV float half_value(u32 word, int i)
{
    if (spec::bf16) {
        return __uint_as_float(i ? word & 0xffff0000u : word << 16);
    }
    return half_to_float((half_t)(i ? word >> 16 : word & 0xffff));
}

QN_DEV void multiply_piece(float acc[2][spec::cols], const half_piece &p, const float *x, i64 x_stride,
                           int n_col, int piece)
{
    for (int k = 0; k < PIECE / STEP; k++) {
        const int at = piece * PIECE + k * STEP + threadIdx.x % WARP * 8;
        if (at >= spec::n_in) {
            break;
        }
        float v[2][8];
        for (int r = 0; r < 2; r++) {
            const u32 words[4] = {p.w[r][k].x, p.w[r][k].y, p.w[r][k].z, p.w[r][k].w};
            for (int i = 0; i < 8; i++) {
                v[r][i] = half_value(words[i / 2], i % 2);
            }
        }
#pragma unroll
        for (int col = 0; col < spec::cols; col++) {
            if (col >= n_col) {
                break;
            }
            const f32x4 lo = *(const f32x4 *)(x + col * x_stride + at),
                        hi = *(const f32x4 *)(x + col * x_stride + at + 4);
            for (int r = 0; r < 2; r++) {
                acc[r][col] += v[r][0] * lo.x + v[r][1] * lo.y + v[r][2] * lo.z + v[r][3] * lo.w +
                               v[r][4] * hi.x + v[r][5] * hi.y + v[r][6] * hi.z + v[r][7] * hi.w;
            }
        }
    }
}

// Item i, which has arrived; with the last of a pair its sums go to res[((2 * pair + r) * cols + column) *
// slices + slice].
QN_DEV void do_piece(float acc[2][spec::cols], const half_piece &p, const half_share &s, int i,
                     const float *x, i64 x_stride, int n_col, float *res)
{
    const int nth = i % s.per_pair, pair = s.team + i / s.per_pair * n_team;
    multiply_piece(acc, p, x, x_stride, n_col, s.slice + nth * spec::slices);
    if (nth != s.per_pair - 1) {
        return;
    }
    for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int col = 0; col < spec::cols; col++) {
            if (col >= n_col) {
                break;
            }
            const float sum = warp_sum(acc[r][col]);
            acc[r][col] = 0.0f;
            if (threadIdx.x % WARP == 0) {
                res[((2 * pair + r) * spec::cols + col) * spec::slices + s.slice] = sum;
            }
        }
    }
}

// All pairs of a block. w.row(pair, r): row r of a pair. Waits for the kernel before; n_rows and first_row of
// the launch are read behind that: columns are rows blockIdx.y * cols .. of *n_row.
template <class W>
QN_DEV int gemv_half(const W &w, int pairs, const float *x, i64 x_stride, const i32 *n_row, float *res)
{
    const half_share s = share_of(pairs);
    half_piece p[spec::ahead];
#pragma unroll
    for (int k = 0; k < spec::ahead; k++) {
        load_piece(p[k], w, s, k); // weights do not depend on the kernel before
    }
    ptx_grid_wait();
    ptx_grid_launch();
    const int n_col = min((int)spec::cols, *n_row - (int)blockIdx.y * spec::cols);
    x += (i64)blockIdx.y * spec::cols * x_stride;
    float acc[2][spec::cols] = {};
    for (int i = 0; i < s.n; i += spec::ahead) {
#pragma unroll
        for (int k = 0; k < spec::ahead; k++) {
            if (i + k < s.n) {
                do_piece(acc, p[k], s, i + k, x, x_stride, n_col, res);
                load_piece(p[k], w, s, i + k + spec::ahead);
            }
        }
    }
    return n_col;
}

QN_DEV float half_sum(const float *res, int row, int col)
{
    float y = 0.0f;
    for (int k = 0; k < spec::slices; k++) {
        y += res[(row * spec::cols + col) * spec::slices + k];
    }
    return y;
}
#endif
