// attention_decode.cu: attention of few query rows, keys split over blocks.
// One block: one row, up to spec::heads query heads of one KV head, one part of the keys. A lane owns a key
// while scores are made and dimensions while values are summed; each warp has its own online softmax, merged
// at the end. The block that finishes last merges the parts and writes the result, in f32 and, where
// spec::q8_out, as 8-bit groups (v_dim is a multiple of 32 then). grid: (n_split, n_head_kv * head_chunks,
// rows); block: 32 * spec::warps; shared: heads * k_dim + warps * heads * (32 + 2 + v_dim) + 4 floats. parts:
// [rows][n_head][n_split][v_dim + 2]: maximum, sum, values not yet divided. arrived: [rows][n_head_kv *
// head_chunks] counters, zero before and after.
#include "quantise.cuh"

constexpr int per_kv = spec::n_head / spec::n_head_kv;
constexpr int head_chunks = (per_kv + spec::heads - 1) / spec::heads;
constexpr int v_lane = (spec::v_dim + WARP - 1) / WARP;

QN_DEV float alibi_slope(int h)
{
    int n2 = 1;
    while (2 * n2 <= spec::n_head) {
        n2 *= 2;
    }
    const float m = spec::alibi_max_bias / (float)n2;
    return h < n2 ? exp2f(-m * (float)(h + 1)) : exp2f(-0.5f * m * (float)(2 * (h - n2) + 1));
}

// Scores of this lane's key for every head of the block.
QN_DEV void key_scores(const half_t *k, const float *q, float s[spec::heads])
{
    for (int h = 0; h < spec::heads; h++) {
        s[h] = 0.0f;
    }
    for (int d = 0; d < spec::k_dim; d += 2) {
        const u32 pair = *(const u32 *)(k + d);
        const float k0 = half_to_float((half_t)(pair & 0xffff)), k1 = half_to_float((half_t)(pair >> 16));
        for (int h = 0; h < spec::heads; h++) {
            s[h] += q[h * spec::k_dim + d] * k0 + q[h * spec::k_dim + d + 1] * k1;
        }
    }
}

// What a warp carries over its tiles: maximum, this lane's share of the sum, values of this lane's
// dimensions.
struct running {
    float m[spec::heads], l[spec::heads], acc[spec::heads][v_lane];
};

// Mask, soft-cap and ALiBi of this lane's scores, one online softmax step for every head; p_s gets the
// weights.
QN_DEV void softmax_step(running &r, float s[spec::heads], int key, int pos, int h0, float *p_s)
{
    const int lane = threadIdx.x % WARP;
    for (int h = 0; h < spec::heads; h++) {
        if constexpr (spec::softcap > 0.0f) {
            s[h] = spec::softcap * tanhf(s[h] / spec::softcap);
        }
        if (spec::alibi_max_bias > 0.0f) {
            s[h] -= alibi_slope(h0 + h) * (float)(pos - key);
        }
        s[h] = key <= pos ? s[h] : -QN_INF;
        const float top = fmaxf(r.m[h], warp_max(s[h])), keep = expf(r.m[h] - top), p = expf(s[h] - top);
        r.m[h] = top;
        r.l[h] = r.l[h] * keep + p;
        for (int i = 0; i < v_lane; i++) {
            r.acc[h][i] *= keep;
        }
        p_s[h * WARP + lane] = p;
    }
}

QN_DEV void add_values(running &r, const half_t *v_head, int first, int n_key, const float *p_s)
{
    const int lane = threadIdx.x % WARP;
    for (int j = 0; j < n_key; j++) {
        const half_t *v = v_head + (i64)((first + j) % spec::kv_rows) * (spec::n_head_kv * spec::v_dim);
        for (int i = 0; i < v_lane; i++) {
            const int d = i * WARP + lane;
            const float x = d < spec::v_dim ? half_to_float(v[d]) : 0.0f;
            for (int h = 0; h < spec::heads; h++) {
                r.acc[h][i] += p_s[h * WARP + j] * x;
            }
        }
    }
}

constexpr int record = spec::v_dim + 2; // maximum, sum, values

QN_DEV void write_record(const running &r, float *merge)
{
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    for (int h = 0; h < spec::heads; h++) {
        float *out = merge + (warp * spec::heads + h) * record;
        const float sum = warp_sum(r.l[h]);
        if (lane == 0) {
            out[0] = r.m[h];
            out[1] = sum;
        }
        for (int i = 0; i < v_lane; i++) {
            if (i * WARP + lane < spec::v_dim) {
                out[2 + i * WARP + lane] = r.acc[h][i];
            }
        }
    }
}

// The warps' records of head h as one.
QN_DEV void merge_records(const float *merge, int h, float *out)
{
    const int lane = threadIdx.x % WARP;
    float top = -QN_INF;
    for (int w = 0; w < spec::warps; w++) {
        top = fmaxf(top, merge[(w * spec::heads + h) * record]);
    }
    for (int i = lane + 1; i < record; i += WARP) {
        float v = 0.0f;
        for (int w = 0; w < spec::warps; w++) {
            const float *r = merge + (w * spec::heads + h) * record;
            v += r[0] == -QN_INF ? 0.0f : expf(r[0] - top) * r[i];
        }
        out[i] = v;
    }
    if (lane == 0) {
        out[0] = top;
    }
}

// One warp merges the parts of a head.
QN_DEV void merge_parts(const float *parts, int n_part, float *out, u8 *q8_out, int h)
{
    constexpr int width = spec::n_head * spec::v_dim;
    const int lane = threadIdx.x % WARP;
    float top = -QN_INF, sum = 0.0f;
    for (int k = lane; k < n_part; k += WARP) {
        top = fmaxf(top, parts[k * record]);
    }
    top = warp_max(top);
    for (int k = lane; k < n_part; k += WARP) {
        sum += parts[k * record] == -QN_INF ? 0.0f : expf(parts[k * record] - top) * parts[k * record + 1];
    }
    sum = warp_sum(sum);
    for (int c = 0; c < v_lane; c++) {
        const int i = c * WARP + lane;
        float v = 0.0f;
        for (int k = 0; k < n_part && i < spec::v_dim; k++) {
            const float m = parts[k * record];
            v += m == -QN_INF ? 0.0f : expf(m - top) * parts[k * record + 2 + i];
        }
        v /= sum;
        if (i < spec::v_dim) {
            out[h * spec::v_dim + i] = v;
        }
        if (spec::q8_out) {
            quantise_group<spec::fine_out>(v, q8_out, width, (h * spec::v_dim) / GROUP + c);
        }
    }
}

QN_ENTRY(32 * spec::warps)
QN_KERNEL(const qn_state *st, const float *q, i64 q_stride, const half_t *k_cache, const half_t *v_cache,
          float *parts, u32 *arrived, float *out, i64 out_stride, u8 *q8_out)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.z;
    if (row >= st->n_rows) {
        return;
    }
    const int g = blockIdx.y / head_chunks, h0 = g * per_kv + blockIdx.y % head_chunks * spec::heads;
    const int n_h = min(spec::heads, (g + 1) * per_kv - h0);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    float *q_s = qn_shared<float>(0);
    float *p_s = q_s + spec::heads * spec::k_dim + warp * spec::heads * WARP;
    float *merge = q_s + spec::heads * spec::k_dim + spec::warps * spec::heads * WARP;
    const int pos = row_pos(st, row);
    const int low = spec::window > 0 ? max(0, pos - spec::window + 1) : 0;
    const int n_tile = (pos + 1 - low + WARP - 1) / WARP, share = (n_tile + gridDim.x - 1) / gridDim.x;
    if ((int)blockIdx.x * share >= n_tile) {
        return; // no keys for this part
    }
    const int tile_end = min(n_tile, (int)(blockIdx.x + 1) * share);
    for (int i = threadIdx.x; i < spec::heads * spec::k_dim; i += 32 * spec::warps) {
        q_s[i] = i < n_h * spec::k_dim ? q[row * q_stride + h0 * spec::k_dim + i] * spec::scale : 0.0f;
    }
    __syncthreads();
    const i64 seq_row = (i64)row_seq(st, row) * spec::kv_rows;
    const half_t *k_head = k_cache + (seq_row * spec::n_head_kv + g) * spec::k_dim;
    const half_t *v_head = v_cache + (seq_row * spec::n_head_kv + g) * spec::v_dim;
    running r;
    for (int h = 0; h < spec::heads; h++) {
        r.m[h] = -QN_INF;
        r.l[h] = 0.0f;
        for (int i = 0; i < v_lane; i++) {
            r.acc[h][i] = 0.0f;
        }
    }
    for (int tile = blockIdx.x * share + warp; tile < tile_end; tile += spec::warps) {
        const int first = low + tile * WARP, key = first + lane;
        float s[spec::heads];
        key_scores(k_head + (i64)(min(key, pos) % spec::kv_rows) * (spec::n_head_kv * spec::k_dim), q_s, s);
        softmax_step(r, s, key, pos, h0, p_s);
        __syncwarp();
        add_values(r, v_head, first, min(WARP, pos + 1 - first), p_s);
        __syncwarp();
    }
    write_record(r, merge);
    __syncthreads();
    float *part = parts + ((i64)row * spec::n_head + h0) * gridDim.x * record;
    for (int h = warp; h < n_h; h += spec::warps) {
        merge_records(merge, h, part + ((i64)h * gridDim.x + blockIdx.x) * record);
    }
    const int n_part = (n_tile + share - 1) / share;
    if (n_part > 1) {
        u32 *last = (u32 *)(merge + spec::warps * spec::heads * record);
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            u32 *count = arrived + row * gridDim.y + blockIdx.y;
            *last = atomicAdd(count, 1u) == (u32)n_part - 1;
            if (*last) {
                *count = 0;
            }
        }
        __syncthreads();
        if (!*last) {
            return;
        }
        __threadfence();
    } else {
        __syncwarp(); // a head's part is read by the warp that wrote it
    }
    for (int h = warp; h < n_h; h += spec::warps) {
        merge_parts(part + (i64)h * gridDim.x * record, n_part, out + row * out_stride,
                    q8_out + row * q8_row_bytes<spec::fine_out>(spec::n_head * spec::v_dim), h0 + h);
    }
}
