// product.cu: out = a * w^T of 16-bit rows with f32 sums: a matrix product of many rows without a library.
// a [rows][n_in], w [n_out][n_in], f16 or (spec::bf16) bf16; out f32, rows ld_out apart. Tiles of 128 rows by
// 128 outputs; 32 values of both at a time go to shared memory, spec::stages of them under way (one without
// asynchronous copies). grid: (ceil(n_out / 128), ceil(rows / 128)); block: 256; shared: spec::stages *
// 20480. spec::outputs; spec::whole: n_in is a multiple of 8, so that rows can be copied 16 bytes at a time.
#include "reduce.cuh"

enum { TILE = 128, STEP = 32, PITCH = STEP + 8, THREADS = 256 }; // halves; eight rows' 16 bytes: all banks
constexpr int half_stage = TILE * PITCH, stage_halves = 2 * half_stage;
constexpr bool sm80 = spec::variant >= 80;

// Warps stand 2 x 4: 64 rows by 32 outputs each, as 16 x 8 tiles.
typedef float sums[4][4][4];

// Rows [first, first + TILE) of a matrix of n rows, values [k0, k0 + STEP), into a tile; zero beyond.
QN_DEV void load_tile(u16 *tile, const u16 *m, int first, int n, int n_in, int k0)
{
#pragma unroll
    for (int i = 0; i < TILE * (STEP / 8) / THREADS; i++) {
        const int c = (int)threadIdx.x + i * THREADS, r = c / (STEP / 8), k = k0 + c % (STEP / 8) * 8;
        u16 *dst = tile + r * PITCH + c % (STEP / 8) * 8;
        const u16 *src = m + (i64)(first + r) * n_in + k;
        const bool there = first + r < n && k < n_in;
        if constexpr (spec::whole && sm80) {
            ptx_copy_async16(dst, there ? src : m, there);
        } else if constexpr (spec::whole) {
            u32x4 v = {0, 0, 0, 0};
            if (there) {
                v = *(const u32x4 *)src;
            }
            *(u32x4 *)dst = v;
        } else {
            for (int e = 0; e < 8; e++) {
                dst[e] = there && k + e < n_in ? src[e] : (u16)0;
            }
        }
    }
}

QN_DEV float value16(u16 v)
{
    return spec::bf16 ? bf16_to_float(v) : half_to_float(v);
}

// c += one 16 x 8 tile's product over 16 values. rows_a, rows_b: the tiles' rows in shared memory, for what
// has no such product: bf16 before sm_80.
QN_DEV void multiply(float c[4], const u32 a[4], const u32 b[2], const u16 *rows_a, const u16 *rows_b)
{
    if constexpr (spec::bf16 && sm80) {
        ptx_mma_bf16(c, a, b);
    } else if constexpr (sm80) {
        ptx_mma_f16(c, a, b);
    } else if constexpr (!spec::bf16) {
        const u32 low[2] = {a[0], a[1]}, high[2] = {a[2], a[3]};
        ptx_mma_f16_k8(c, low, b[0]);
        ptx_mma_f16_k8(c, high, b[1]);
    } else {
        const int lane = (int)threadIdx.x % WARP;
        for (int e = 0; e < 4; e++) {
            const u16 *x = rows_a + (lane / 4 + e / 2 * 8) * PITCH,
                      *y = rows_b + (lane % 4 * 2 + e % 2) * PITCH;
            for (int k = 0; k < 16; k++) {
                c[e] += value16(x[k]) * value16(y[k]);
            }
        }
    }
}

QN_DEV void multiply_tiles(sums &c, const u16 *a_s, const u16 *b_s)
{
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    const u16 *a_w = a_s + warp / 4 * 64 * PITCH, *b_w = b_s + warp % 4 * 32 * PITCH;
#pragma unroll
    for (int k = 0; k < STEP; k += 16) {
        u32 a[4][4], b[2][4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            ptx_ldmatrix_x4(a[i], a_w + (i * 16 + lane % 16) * PITCH + k + lane / 16 * 8);
        }
#pragma unroll
        for (int j = 0; j < 2; j++) {
            ptx_ldmatrix_x4(b[j], b_w + (j * 16 + lane / 16 * 8 + lane % 8) * PITCH + k + lane / 8 % 2 * 8);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                multiply(c[i][j], a[i], b[j / 2] + j % 2 * 2, a_w + i * 16 * PITCH + k,
                         b_w + j * 8 * PITCH + k);
            }
        }
    }
}

QN_DEV void write_tile(const sums &c, float *out, i64 ld_out, int row0, int out0, int n_rows, int n_out)
{
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int r = row0 + warp / 4 * 64 + i * 16 + lane / 4 + e / 2 * 8;
                const int o = out0 + warp % 4 * 32 + j * 8 + lane % 4 * 2 + e % 2;
                if (r < n_rows && o < n_out) {
                    out[r * ld_out + o] = c[i][j][e];
                }
            }
        }
    }
}

QN_ENTRY(256)
QN_KERNEL(const i32 *rows, const u16 *a, const u16 *w, float *out, i64 n_in64, i64 n_out64, i64 ld_out)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int n_rows = *rows, n_in = (int)n_in64, n_out = (int)n_out64;
    const int row0 = (int)blockIdx.y * TILE, out0 = (int)blockIdx.x * TILE, n = (n_in + STEP - 1) / STEP;
    if (row0 >= n_rows) {
        return;
    }
    u16 *shared = qn_shared<u16>(0);
    sums c = {};
    for (int s = 0; s < spec::stages - 1; s++) { // spec::stages - 1 steps are under way
        if (s < n) {
            load_tile(shared + s * stage_halves, a, row0, n_rows, n_in, s * STEP);
            load_tile(shared + s * stage_halves + half_stage, w, out0, n_out, n_in, s * STEP);
        }
        if constexpr (sm80) {
            ptx_copy_commit();
        }
    }
    for (int s = 0; s < n; s++) {
        const int ahead = s + spec::stages - 1;
        if constexpr (spec::stages > 1) {
            ptx_copy_wait<spec::stages - 2>(); // step s has landed
            __syncthreads();                   // everybody's; and the tile to be filled has been read
        }
        if (ahead < n) {
            u16 *tile = shared + ahead % spec::stages * stage_halves;
            load_tile(tile, a, row0, n_rows, n_in, ahead * STEP);
            load_tile(tile + half_stage, w, out0, n_out, n_in, ahead * STEP);
        }
        if constexpr (spec::stages > 1) {
            ptx_copy_commit();
        } else {
            __syncthreads();
        }
        const u16 *tile = shared + s % spec::stages * stage_halves;
        multiply_tiles(c, tile, tile + half_stage);
        if constexpr (spec::stages == 1) {
            __syncthreads();
        }
    }
    write_tile(c, out, ld_out, row0, out0, n_rows, n_out);
}
