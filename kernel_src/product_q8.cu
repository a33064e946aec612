// product_q8.cu: out = x * w^T of rows of 8-bit activations (quantise.cuh) and a quantised weight as its
// planes (planes.cuh): many rows of what linear_q8.cu does for few. The tensor cores sum 32 (or, where a type
// has a scale for 16 values, 16) products in integers; each such sum is scaled in f32. spec::fine_in: rows of
// activations have two steps a group.
// Tiles of spec::outs outputs by 64 rows; eight groups of 32 values at a time go to shared memory: codes as
// they lie by asynchronous copies, with the next eight on their way; scales, and bits that stand in planes of
// their own, through registers. A warp has 32 outputs, the weights are the left operand.
// grid: (ceil(n_out / outs), ceil(rows / 64)); block: 256; shared: spec::stages * stage_bytes.
// rows: their number on the device. spec::dtype.
#include "quantise.cuh"

constexpr int DT = spec::dtype;
typedef planes<spec::dtype> P;
enum { THREADS = 256, ROWS = 64, CHUNK = 8 };
constexpr int warps_out = spec::outs / 32, warps_row = THREADS / WARP / warps_out;
constexpr int row_tiles = ROWS / warps_row / 8; // 16 x 8 tiles of a warp along the rows
constexpr bool two_scales = DT == DT_Q6_K || DT == DT_Q3_K || DT == DT_Q2_K;
constexpr bool shifted = DT == DT_Q4_0 || DT == DT_Q4_1 || DT == DT_Q5_0 || DT == DT_Q5_1 || DT == DT_Q4_K ||
                         DT == DT_Q5_K || DT == DT_Q2_K; // value = a * code + b
constexpr int n_affine = (two_scales ? 2 : 1) * (shifted ? 2 : 1);
constexpr bool fine = spec::fine_in, halves = two_scales || fine;
// Floats of a group of activations: its steps, then steps times sums: one, or for DT_Q2_K one of each half.
constexpr int n_step = fine ? 2 : 1, n_sum = n_step + (DT == DT_Q2_K ? 2 : 1);
constexpr bool copied = P::q_bytes >= 16; // codes go by asynchronous copies
// Bytes and, of the last two, floats from one row to the next: in all of them, eight rows lie in other banks.
constexpr int x_pitch = CHUNK * 32 + 16, q_pitch = CHUNK * P::q_bytes + 16, h_pitch = CHUNK * P::h_bytes + 8;
constexpr int a_pitch = CHUNK * n_affine + (n_affine == 1   ? 1
                                            : n_affine == 2 ? 2
                                                            : 4),
              s_pitch = CHUNK * n_sum + 2;
constexpr int q_at = ROWS * x_pitch, h_at = q_at + spec::outs * q_pitch;
constexpr int a_at = h_at + (P::h_bytes ? spec::outs * h_pitch : 0), s_at = a_at + 4 * spec::outs * a_pitch;
constexpr int stage_bytes = (s_at + 4 * ROWS * s_pitch + 15) / 16 * 16;
constexpr int w_items = spec::outs * CHUNK / THREADS, x_items = ROWS * CHUNK / THREADS;

struct tile_place {
    const u8 *w, *x;
    i64 n_out;
    int n_in, n_group, out0, row0, n_rows;
};

// Codes of the groups [8 * chunk, + 8) on their way to a stage.
QN_DEV void copy16(u8 *dst, const u8 *src, bool there, const u8 *some)
{
    if constexpr (spec::variant >= 80) {
        ptx_copy_async16(dst, there ? src : some, there);
    } else {
        u32x4 v = {0, 0, 0, 0};
        if (there) {
            v = *(const u32x4 *)src;
        }
        *(u32x4 *)dst = v;
    }
}

QN_DEV void start_copies(u8 *stage, const tile_place &t, int chunk)
{
    constexpr int parts = copied ? P::q_bytes / 16 : 1;
#pragma unroll
    for (int i = 0; copied && i < spec::outs * CHUNK * parts / THREADS; i++) {
        const int c = (int)threadIdx.x + i * THREADS, r = c / (CHUNK * parts), k = c / parts % CHUNK;
        const int g = chunk * CHUNK + k;
        const bool there = t.out0 + r < t.n_out && g < t.n_group;
        const plane_ptr p = row_planes<DT>(t.w, t.n_out, t.n_in, there ? t.out0 + r : 0);
        copy16(stage + q_at + r * q_pitch + k * P::q_bytes + c % parts * 16,
               p.q + (there ? place_of(t.n_group, g) : 0) * P::q_bytes + c % parts * 16, there, t.w);
    }
#pragma unroll
    for (int i = 0; i < ROWS * CHUNK * 2 / THREADS; i++) {
        const int c = (int)threadIdx.x + i * THREADS, r = c / (CHUNK * 2), half = c / CHUNK % 2,
                  k = c % CHUNK;
        const int g = chunk * CHUNK + k;
        const bool there = t.row0 + r < t.n_rows && g < t.n_group;
        copy16(stage + r * x_pitch + k * 32 + half * 16,
               t.x + (t.row0 + r) * q8_row_bytes<fine>(t.n_in) +
                   (half * n_places(t.n_group) + (there ? place_of(t.n_group, g) : 0)) * 16,
               there, t.x);
    }
}

// What goes through registers: read before the products of one chunk, put into shared memory behind them.
struct beside {
    group<spec::dtype> w[w_items];
    q8_scales<fine> x[x_items];
    float low[DT == DT_Q2_K ? x_items : 1]; // d * sum of values 0-15
};

QN_DEV void read_beside(beside &b, const tile_place &t, int chunk)
{
#pragma unroll
    for (int i = 0; i < w_items; i++) {
        const int c = (int)threadIdx.x + i * THREADS, r = c / CHUNK, g = chunk * CHUNK + c % CHUNK;
        b.w[i] = {};
        if (t.out0 + r < t.n_out && g < t.n_group) {
            const plane_ptr p = row_planes<DT>(t.w, t.n_out, t.n_in, t.out0 + r);
            const int place = place_of(t.n_group, g);
            if constexpr (!copied) {
                load_short_codes(b.w[i], p, place);
            }
            load_beside(b.w[i], p, place);
            if constexpr (P::s_groups == 8) {
                load_header<DT>(b.w[i].s, b.w[i].d, p, g / 8);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < x_items; i++) {
        const int c = (int)threadIdx.x + i * THREADS, r = c / CHUNK, g = chunk * CHUNK + c % CHUNK;
        b.x[i] = {};
        if (t.row0 + r < t.n_rows && g < t.n_group) {
            const u8 *row = t.x + (t.row0 + r) * q8_row_bytes<fine>(t.n_in);
            const int place = place_of(t.n_group, g);
            b.x[i] = ((const q8_scales<fine> *)(row + n_places(t.n_group) * 32))[place];
            if constexpr (DT == DT_Q2_K) {
                const u32x4 codes = ((const u32x4 *)row)[place];
                i32 sum = 0;
                for (int k = 0; k < 4; k++) {
                    sum = ptx_dp4a(0x01010101u, word_of(codes, k), sum);
                }
                b.low[i] = b.x[i].x * (float)sum;
            }
        }
    }
}

QN_DEV void put_beside(u8 *stage, const beside &b, int chunk)
{
#pragma unroll
    for (int i = 0; i < w_items; i++) {
        const int c = (int)threadIdx.x + i * THREADS, r = c / CHUNK, k = c % CHUNK;
        const group<DT> &g = b.w[i];
        float *a = (float *)(stage + a_at) + r * a_pitch + k * n_affine;
        const affine f = group_affine<DT>(g, k); // chunks begin at multiples of eight groups
        if constexpr (!copied) {
            *(u32x2 *)(stage + q_at + r * q_pitch + k * 8) = u32x2{g.q0.x, g.q0.y};
        }
        if constexpr (P::h_bytes == 4) {
            *(u32 *)(stage + h_at + r * h_pitch + k * 4) = g.h0;
        } else if constexpr (P::h_bytes == 8) {
            *(u32x2 *)(stage + h_at + r * h_pitch + k * 8) = u32x2{g.h0, g.h1};
        }
        a[0] = f.a[0];
        if constexpr (two_scales) {
            a[1] = f.a[1];
        }
        if constexpr (shifted) {
            a[n_affine / 2] = f.b[0];
        }
        if constexpr (shifted && two_scales) {
            a[3] = f.b[1];
        }
    }
#pragma unroll
    for (int i = 0; i < x_items; i++) {
        const int c = (int)threadIdx.x + i * THREADS, r = c / CHUNK, k = c % CHUNK;
        float *s = (float *)(stage + s_at) + r * s_pitch + k * n_sum;
        const q8_scales<fine> &v = b.x[i];
        s[0] = v.x;
        s[n_step - 1] = q8_scales_of<fine>::upper_step(v);
        s[n_step] = q8_scales_of<fine>::sum(v);
        if constexpr (DT == DT_Q2_K) {
            s[n_step] = b.low[i];
            s[n_step + 1] = q8_scales_of<fine>::sum(v) - b.low[i];
        }
    }
}

// Codes of values 4w.. and 16 + 4w.. of group k of output r of the tile, as two words.
QN_DEV void code_words(u32 v[2], const u8 *stage, int r, int k, int w)
{
    const u8 *q = stage + q_at + r * q_pitch + k * P::q_bytes;
    group<DT> g = {};
    if constexpr (P::q_bytes == 8) {
        const u32x2 both = *(const u32x2 *)q;
        g.q0.x = both.x >> (2 * w);
        g.q0.y = both.y >> (2 * w);
    } else {
        g.q0.x = *(const u32 *)(q + 4 * w);
        g.q1.x = P::q_bytes == 32 ? *(const u32 *)(q + 16 + 4 * w) : 0u;
    }
    if constexpr (P::h_bytes == 4) {
        g.h0 = *(const u32 *)(stage + h_at + r * h_pitch + k * 4) >> w;
    } else if constexpr (P::h_bytes == 8) {
        const u32x2 h = *(const u32x2 *)(stage + h_at + r * h_pitch + k * 8);
        g.h0 = h.x >> (2 * w);
        g.h1 = h.y >> (2 * w);
    }
    v[0] = code_word<DT>(g, 0, false); // the shifts above stand for w
    v[1] = code_word<DT>(g, 0, true);
}

typedef float sums[2][row_tiles][4];

// The integer sums of a 16 x 8 tile over values 0-15 | 16-31 of group k (over both in low where not
// `halves`). Before sm_80 without the tensor cores.
QN_DEV void multiply(i32 low[4], i32 high[4], const u8 *stage, int r0, int x0, int k, const u32 a[4],
                     const u32 b[2])
{
    for (int e = 0; e < 4; e++) {
        low[e] = high[e] = 0;
    }
    if constexpr (spec::variant >= 80 && halves) {
        const u32 first[2] = {a[0], a[1]}, second[2] = {a[2], a[3]};
        ptx_mma_s8_k16(low, first, b[0]);
        ptx_mma_s8_k16(high, second, b[1]);
    } else if constexpr (spec::variant >= 80) {
        ptx_mma_s8(low, a, b[0], b[1]);
    } else {
        const int lane = (int)threadIdx.x % WARP;
        for (int e = 0; e < 4; e++) {
            const u8 *x = stage + (x0 + lane % 4 * 2 + e % 2) * x_pitch + k * 32;
            for (int w = 0; w < 4; w++) {
                u32 v[2];
                code_words(v, stage, r0 + lane / 4 + e / 2 * 8, k, w);
                low[e] = ptx_dp4a(v[0], *(const u32 *)(x + 4 * w), low[e]);
                i32 &rest = halves ? high[e] : low[e];
                rest = ptx_dp4a(v[1], *(const u32 *)(x + 16 + 4 * w), rest);
            }
        }
    }
}

QN_DEV void multiply_chunk(sums &c, const u8 *stage)
{
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    const int out0 = warp % warps_out * 32, x0 = warp / warps_out * (row_tiles * 8);
    const float *affines = (const float *)(stage + a_at), *factors = (const float *)(stage + s_at);
#pragma unroll 2
    for (int k = 0; k < CHUNK; k++) {
        u32 b[row_tiles][2];
#pragma unroll
        for (int j = 0; j < row_tiles; j++) {
            const u8 *x = stage + (x0 + j * 8 + lane / 4) * x_pitch + k * 32 + lane % 4 * 4;
            b[j][0] = *(const u32 *)x;
            b[j][1] = *(const u32 *)(x + 16);
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int r0 = out0 + i * 16, r = r0 + lane / 4;
            u32 v[2][2];
            code_words(v[0], stage, r, k, lane % 4);
            code_words(v[1], stage, r + 8, k, lane % 4);
            const u32 a[4] = {v[0][0], v[1][0], v[0][1], v[1][1]};
#pragma unroll
            for (int j = 0; j < row_tiles; j++) {
                i32 low[4], high[4];
                multiply(low, high, stage, r0, x0 + j * 8, k, a, b[j]);
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const float *f = affines + (r + e / 2 * 8) * a_pitch + k * n_affine;
                    const float *s = factors + (x0 + j * 8 + lane % 4 * 2 + e % 2) * s_pitch + k * n_sum;
                    float y = f[0] * (float)low[e];
                    if constexpr (fine) {
                        y = s[0] * y + s[1] * (f[two_scales ? 1 : 0] * (float)high[e]);
                    } else if constexpr (two_scales) {
                        y += f[1] * (float)high[e];
                    }
                    c[i][j][e] += fine ? y : s[0] * y;
                    if constexpr (shifted) {
                        c[i][j][e] += f[n_affine / 2] * s[n_step];
                    }
                    if constexpr (shifted && two_scales) {
                        c[i][j][e] += f[3] * s[n_step + 1];
                    }
                }
            }
        }
    }
}

QN_ENTRY(256)
QN_KERNEL(const i32 *rows, const u8 *x, const u8 *w, float *out, i64 n_in, i64 n_out, i64 ld_out)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int n_rows = *rows;
    const tile_place t = {
        w,     x, n_out, (int)n_in, (int)n_in / GROUP, (int)blockIdx.x * spec::outs, (int)blockIdx.y * ROWS,
        n_rows};
    if (t.row0 >= n_rows) {
        return;
    }
    const int n = (t.n_group + CHUNK - 1) / CHUNK;
    u8 *shared = qn_shared<u8>(0);
    sums c = {};
    beside b;
    start_copies(shared, t, 0);
    if constexpr (spec::variant >= 80) {
        ptx_copy_commit();
    }
    read_beside(b, t, 0);
    put_beside(shared, b, 0);
    for (int k = 0; k < n; k++) {
        u8 *stage = shared + k % spec::stages * stage_bytes,
           *next = shared + (k + 1) % spec::stages * stage_bytes;
        if constexpr (spec::variant >= 80) {
            ptx_copy_wait<0>();
        }
        __syncthreads(); // this chunk is there, and the other stage has been read
        if (spec::stages > 1 && k + 1 < n) {
            start_copies(next, t, k + 1);
        }
        if constexpr (spec::variant >= 80) {
            ptx_copy_commit();
        }
        if (k + 1 < n) {
            read_beside(b, t, k + 1);
        }
        multiply_chunk(c, stage);
        if constexpr (spec::stages == 1) {
            __syncthreads();
            if (k + 1 < n) {
                start_copies(next, t, k + 1);
            }
        }
        if (k + 1 < n) {
            put_beside(next, b, k + 1);
        }
    }
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int j = 0; j < row_tiles; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int o = t.out0 + warp % warps_out * 32 + i * 16 + lane / 4 + e / 2 * 8;
                const int r = t.row0 + (warp / warps_out * row_tiles + j) * 8 + lane % 4 * 2 + e % 2;
                if (o < n_out && r < n_rows) {
                    out[r * ld_out + o] = c[i][j][e];
                }
            }
        }
    }
}
