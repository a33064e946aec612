// attention_merge.cuh: the ends of attention_mma.cuh: what a block's warps have summed up is merged in shared
// memory, and blocks' parts in global memory by the block that comes last. A launch runs this code once, as
// fast as it comes from L2, so that its length counts. defines: finish
#ifndef QN_ATTENTION_MERGE_CUH
#define QN_ATTENTION_MERGE_CUH
#include "attention_mma.cuh"
#include "quantise.cuh"

// This warp's maximum (as a power of two), sum and values of each head to shared memory.
QN_DEV void write_record(running &r, float *values, float *sums, int n_h)
{
    const int warp = warp_index(), lane = threadIdx.x % WARP;
#pragma unroll
    for (int t = 0; t < q_tiles; t++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int h = 8 * t + 2 * (lane % 4) + i;
            float l = r.l[t][i];
#pragma unroll
            for (int d = 4; d < WARP; d *= 2) {
                l += __shfl_xor_sync(0xffffffffu, l, d);
            }
            if (h >= n_h) {
                continue;
            }
            if (lane < 4) {
                sums[2 * (warp * spec::heads + h)] = r.m[t][i] * (plain ? r.factor[t][i] : 1.0f);
                sums[2 * (warp * spec::heads + h) + 1] = l;
            }
            float *to = values + (warp * spec::heads + h) * record + lane / 4;
#pragma unroll
            for (int j = 0; j < v_tiles; j++) {
                to[16 * j] = r.o[j][t][i];
                to[16 * j + 8] = r.o[j][t][i + 2];
            }
        }
    }
}

// A lane's value of head h, divided, to where the next step reads it.
QN_DEV void write_one(float v, int h, int c, float *out, u8 *q8_out)
{
    const int d = c * WARP + (int)threadIdx.x % WARP;
    if (spec::v_dim % WARP == 0 || d < spec::v_dim) {
        out[h * spec::v_dim + d] = v;
    }
    if (spec::q8_out) {
        quantise_group<spec::fine_out>(v, q8_out, spec::n_head * spec::v_dim, h * spec::v_dim / GROUP + c);
    }
}

// What is merged goes by units, 32 dimensions of a head, of which a warp takes at_once at a time, step by
// step: one after the other each would wait for its loads, shuffles and reductions.
constexpr u32 units_of_warp = (spec::heads * v_groups + spec::warps - 1) / spec::warps;
constexpr int at_once = units_of_warp < 4 ? units_of_warp : 4;
// Every warp has whole turns of units.
constexpr bool whole_turns =
    per_kv % spec::heads == 0 && spec::heads * v_groups % (at_once * spec::warps) == 0;

struct units {
    int h[at_once], c[at_once], d[at_once]; // head of the block, its 32 dimensions, this lane's

    // From unit u on; where there is none, the first once more.
    QN_DEV_MEMBER units(u32 u, u32 n)
    {
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            const u32 own = whole_turns || u + i * spec::warps < n ? u + i * spec::warps : u;
            h[i] = own / v_groups;
            c[i] = own % v_groups;
            d[i] = c[i] * WARP + threadIdx.x % WARP;
        }
    }
    QN_DEV_MEMBER bool inside(int i) const
    {
        return spec::v_dim % WARP == 0 || d[i] < spec::v_dim;
    }
};

// Values of units, divided by their sums, to where the next step reads them.
QN_DEV void write_out(const units &u, const float (&v)[at_once], const float (&sum)[at_once], float *out,
                      u8 *q8_out, const place &p)
{
    float y[at_once];
    int group[at_once];
#pragma unroll
    for (int i = 0; i < at_once; i++) {
        y[i] = v[i] * ptx_reciprocal(sum[i]);
        group[i] = (p.h0 + u.h[i]) * spec::v_dim / GROUP + u.c[i];
        if (u.inside(i)) {
            out[(p.h0 + u.h[i]) * spec::v_dim + u.d[i]] = y[i];
        }
    }
    if (spec::q8_out) {
        quantise_groups<spec::fine_out>(y, q8_out, spec::n_head * spec::v_dim, group);
    }
}

// The warps' records as one. With one part it is the result.
QN_DEV void merge_warps(const float *values, const float *sums, float *part, bool only, float *out,
                        u8 *q8_out, const place &p)
{
    constexpr int TEAM = spec::warps > 8 ? 16 : spec::warps > 4 ? 8 : spec::warps > 2 ? 4 : spec::warps;
    const int lane = threadIdx.x % WARP;
    const bool there = lane % TEAM < spec::warps; // a lane has the maximum and the sum of one warp
#pragma unroll 1
    for (u32 u0 = warp_index(); u0 < (u32)(p.n_h * v_groups); u0 += at_once * spec::warps) {
        const units u(u0, p.n_h * v_groups);
        float top[at_once], f[at_once], sum[at_once], v[at_once];
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            const float *own = sums + 2 * ((there ? lane % TEAM : 0) * spec::heads + u.h[i]);
            top[i] = f[i] = own[0];
            sum[i] = own[1];
            v[i] = 0.0f;
        }
#pragma unroll
        for (int d = 1; d < TEAM; d *= 2) {
#pragma unroll
            for (int i = 0; i < at_once; i++) {
                top[i] = fmaxf(top[i], __shfl_xor_sync(0xffffffffu, top[i], d));
            }
        }
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            f[i] = there ? ptx_exp2(f[i] - top[i]) : 0.0f;
            sum[i] *= f[i];
        }
#pragma unroll
        for (int d = 1; d < TEAM; d *= 2) {
#pragma unroll
            for (int i = 0; i < at_once; i++) {
                sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], d);
            }
        }
#pragma unroll
        for (int w = 0; w < spec::warps; w++) {
#pragma unroll
            for (int i = 0; i < at_once; i++) {
                const float x = u.inside(i) ? values[(w * spec::heads + u.h[i]) * record + u.d[i]] : 0.0f;
                v[i] += __shfl_sync(0xffffffffu, f[i], w) * x;
            }
        }
        if (only) {
            write_out(u, v, sum, out, q8_out, p);
            continue;
        }
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            float *to = part + u.h[i] * (gridDim.y * part_size);
            if (u.inside(i)) {
                to[2 + u.d[i]] = v[i];
            }
            if (u.c[i] == 0 && lane == 0) {
                to[0] = top[i];
                to[1] = sum[i];
            }
        }
    }
}

// The parts of all blocks, in the same way; at most 64 of them. A warp asks for the first 16 parts of all its
// units, with their maxima and sums, before it uses any.
QN_DEV void merge_parts(const float *parts, int n_part, float *out, u8 *q8_out, const place &p)
{
    constexpr u32 FIRST = 16, MORE = 8, AT_ONCE = at_once;
    const u32 lane = threadIdx.x % WARP, n = n_part, n_unit = p.n_h * v_groups;
    const u32 head_size = gridDim.y * part_size;
#pragma unroll 1
    for (u32 u0 = warp_index(); u0 < n_unit; u0 += AT_ONCE * spec::warps) {
        float m[AT_ONCE], l[AT_ONCE], first[AT_ONCE][FIRST];
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) {
            const u32 u = u0 + i * spec::warps, d = u % v_groups * WARP + lane;
            const bool there = whole_turns || u < n_unit, inside = spec::v_dim % WARP == 0 || d < spec::v_dim;
            const float *from = parts + u / v_groups * head_size, *sums = from + lane * part_size;
            m[i] = -QN_INF;
            l[i] = 0.0f;
            if (there && lane < n) {
                m[i] = sums[0];
                l[i] = sums[1];
            }
            from += 2 + d;
#pragma unroll
            for (u32 k = 0; k < FIRST; k++) {
                first[i][k] = there && k < n && inside ? from[k * part_size] : 0.0f;
            }
        }
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) {
            const u32 u = u0 + i * spec::warps, h = u / v_groups, c = u % v_groups, d = c * WARP + lane;
            if (!whole_turns && u >= n_unit) {
                break;
            }
            const float *from = parts + h * head_size;
            float high = -QN_INF, w_high = 0.0f, l_high = 0.0f;
            if (n > WARP && lane + WARP < n) {
                high = from[(lane + WARP) * part_size];
                l_high = from[(lane + WARP) * part_size + 1];
            }
            const float top = warp_max(fmaxf(m[i], high)), w = ptx_exp2(m[i] - top);
            w_high = ptx_exp2(high - top);
            const float sum = warp_sum(w * l[i] + w_high * l_high);
            float v = 0.0f;
#pragma unroll
            for (u32 k = 0; k < FIRST; k++) { // weights of parts that are not there are 0
                v += __shfl_sync(0xffffffffu, w, k) * first[i][k];
            }
#pragma unroll 1
            for (u32 k0 = FIRST; k0 < n; k0 += MORE) {
                const float w_k = k0 < WARP ? w : w_high;
                float more[MORE];
#pragma unroll
                for (u32 k = 0; k < MORE; k++) {
                    more[k] = k0 + k < n && d < spec::v_dim ? from[(k0 + k) * part_size + 2 + d] : 0.0f;
                }
#pragma unroll
                for (u32 k = 0; k < MORE; k++) {
                    v += __shfl_sync(0xffffffffu, w_k, (k0 + k) % WARP) * more[k];
                }
            }
            write_one(v * ptx_reciprocal(sum), p.h0 + h, c, out, q8_out);
        }
    }
}

// Is this the last of n_part blocks to come here? What the others wrote before is visible then.
QN_DEV bool arrive_last(u32 *count, u32 *last, int n_part)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        *last = ptx_add_acq_rel(count, 1) == (u32)n_part - 1;
        if (*last) {
            *count = 0;
        }
    }
    __syncthreads();
    return *last;
}

// From the warps' sums to the result.
QN_DEV void finish(running &r, float *parts, u32 *arrived, float *out, i64 out_stride, u8 *q8_out,
                   const place &p)
{
    float *values = qn_shared<float>(0), *sums = values + spec::warps * spec::heads * record;
    __syncthreads(); // the records take the rings' place
    write_record(r, values, sums, p.n_h);
    __syncthreads();
    float *part = parts + ((i64)p.row * spec::n_head + p.h0) * gridDim.y * part_size;
    float *row_out = out + p.row * out_stride;
    u8 *row_q8 = q8_out + p.row * q8_row_bytes<spec::fine_out>(spec::n_head * spec::v_dim);
    merge_warps(values, sums, part + p.part * part_size, p.n_part == 1, row_out, row_q8, p);
    if (p.n_part == 1) {
        return;
    }
    u32 *last = (u32 *)(sums + 2 * spec::warps * spec::heads);
    if (arrive_last(arrived + p.row * gridDim.x + p.column, last, p.n_part)) {
        merge_parts(part, p.n_part, row_out, row_q8, p);
    }
}

#endif
