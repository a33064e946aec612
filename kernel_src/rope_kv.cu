// rope_kv.cu: QK norm, RoPE, temperature; q in place, k and v as f16 into the KV cache.
// A team does one unit of a row: first the query heads, then k heads, then v heads; where the QK norm spans
// the whole width, all query heads are one unit and all k heads another (q is rewritten in place: no other
// team may need it). A team is a block, or (spec::by_warp) a warp: then many rows need fewer blocks, and none
// waits for others. spec::kv_rows: rows of the cache, position p in row p % kv_rows. spec::scaled: q, k and v
// are a product whose rows wait for their factors. grid: (rows, units / teams of a block); block:
// spec::threads; shared: for each team heads of a q unit * k_dim floats, for a block threads / 32 more.
#include "reduce.cuh"

constexpr bool full_width = spec::qk_norm != NORM_NONE && spec::qk_width == QK_FULL;
constexpr int q_heads = full_width ? spec::n_head : 1, k_heads = full_width ? spec::n_head_kv : 1;
constexpr int q_units = spec::n_head / q_heads, k_units = spec::n_head_kv / k_heads;

constexpr int n_unit = q_units + (spec::has_kv ? k_units + spec::n_head_kv : 0);
constexpr int team = spec::by_warp ? WARP : spec::threads, teams = spec::threads / team;

QN_DEV int member()
{
    return spec::by_warp ? (int)threadIdx.x % WARP : (int)threadIdx.x;
}

QN_DEV void team_sync()
{
    if constexpr (spec::by_warp) {
        __syncwarp();
    } else {
        __syncthreads();
    }
}

QN_DEV float team_sum(float v, float *scratch)
{
    if constexpr (spec::by_warp) {
        return warp_sum(v);
    } else {
        return block_sum<spec::threads>(v, scratch);
    }
}

// Factor of an RMS or layer norm over n values x * up, and their mean.
QN_DEV float norm_scale(const float *x, float up, int n, int kind, float *mean, float *scratch)
{
    float sum = 0.0f, square = 0.0f;
    if (kind == NORM_LAYER) {
        for (int i = member(); i < n; i += team) {
            sum += x[i] * up;
        }
        sum = team_sum(sum, scratch) / n;
    }
    for (int i = member(); i < n; i += team) {
        square += (x[i] * up - sum) * (x[i] * up - sum);
    }
    *mean = sum;
    return 1.0f / sqrtf(team_sum(square, scratch) / n + spec::eps);
}

// x[] = norm over n_head heads at once (whole width: their common mean square) or over the one head h.
QN_DEV void normalise(float *x, int n_head, int h, const float *w, float *scratch)
{
    const int n = n_head * spec::k_dim;
    float mean;
    const float scale = norm_scale(x, 1.0f, n, spec::qk_norm, &mean, scratch);
    team_sync();
    for (int i = member(); i < n; i += team) {
        float y = (x[i] - mean) * scale;
        if (w) {
            const bool per_channel = spec::qk_weight == QKW_CHANNEL && !full_width;
            y *= spec::qk_weight == QKW_PER_HEAD ? w[h + i / spec::k_dim]
                 : per_channel                   ? w[i]
                                                 : w[h * spec::k_dim + i];
        }
        x[i] = y;
    }
    team_sync();
}

// Pairs of dimensions rot_at .. rot_at + n_rot of each head turn by pos * freq. The angle is reduced in
// double: at position 100,000 a float product would be off by thousandths of a turn.
QN_DEV void rotate(float *x, int n_head, int pos, const float *freq)
{
    constexpr int half = spec::n_rot > 1 ? spec::n_rot / 2 : 1;
    for (int t = member(); t < n_head * half; t += team) {
        const int i = t % half;
        float *head = x + t / half * spec::k_dim + spec::rot_at;
        const double turn = 6.283185307179586476925286766559;
        double angle = (double)pos * (double)freq[i];
        angle -= turn * rint(angle / turn);
        const float c = cosf((float)angle) * spec::mscale, s = sinf((float)angle) * spec::mscale;
        const int a = spec::rope_style == ROPE_NEOX ? i : 2 * i;
        const int b = spec::rope_style == ROPE_NEOX ? i + half : 2 * i + 1;
        const float u = head[a], v = head[b];
        head[a] = u * c - v * s;
        head[b] = u * s + v * c;
    }
    team_sync();
}

QN_ENTRY(spec::threads)
QN_KERNEL(const qn_state *st, float *q, i64 stride, const float *k, const float *v, half_t *k_cache,
          half_t *v_cache, const float *q_norm, const float *k_norm, const float *freq,
          const float *row_scale)
{
    ptx_grid_launch();
    ptx_grid_wait();
    const int row = blockIdx.x;
    if (row >= st->n_rows) {
        return;
    }
    const int which = spec::by_warp ? (int)threadIdx.x / WARP : 0;
    float *x = qn_shared<float>(0) + which * (q_heads * spec::k_dim);
    float *scratch = x + q_heads * spec::k_dim; // of a block
    const int pos = row_pos(st, row), unit = (int)blockIdx.y * teams + which;
    if (unit >= n_unit) {
        return;
    }
    const i64 slot = (i64)row_seq(st, row) * spec::kv_rows + pos % spec::kv_rows;
    const float up = spec::scaled ? row_scale[row] : 1.0f;
    if (unit >= q_units + k_units) { // v
        const int h = unit - q_units - k_units;
        const float *src = v + row * stride + h * spec::v_dim;
        float mean = 0.0f, scale = 1.0f;
        if (spec::v_norm != NORM_NONE) {
            scale = norm_scale(src, up, spec::v_dim, spec::v_norm, &mean, scratch);
        }
        half_t *dst = v_cache + slot * (spec::n_head_kv * spec::v_dim) + h * spec::v_dim;
        for (int i = member(); i < spec::v_dim; i += team) {
            dst[i] = float_to_half((src[i] * up - mean) * scale);
        }
        return;
    }
    const bool is_q = unit < q_units;
    const int n_head = is_q ? q_heads : k_heads, n = n_head * spec::k_dim, h = is_q ? unit : unit - q_units;
    const float *src = (is_q ? (const float *)q : k) + row * stride + h * spec::k_dim;
    const float *w = is_q ? (spec::q_has_w ? q_norm : nullptr) : (spec::k_has_w ? k_norm : nullptr);
    const bool norm = spec::qk_norm != NORM_NONE && (is_q ? spec::q_has_norm : spec::k_has_norm);
    for (int i = member(); i < n; i += team) {
        x[i] = src[i] * up;
    }
    team_sync();
    if (norm && spec::qk_order == QK_BEFORE_ROPE) {
        normalise(x, n_head, h, w, scratch);
    }
    if (spec::rope_style != ROPE_NONE) {
        rotate(x, n_head, pos, freq);
    }
    if (norm && spec::qk_order == QK_AFTER_ROPE) {
        normalise(x, n_head, h, w, scratch);
    }
    float temp = 1.0f;
    if constexpr (spec::temp_scale != 0.0f) {
        temp = 1.0f + spec::temp_scale * logf(floorf((float)pos / (float)spec::temp_ctx) + 1.0f);
    }
    for (int i = member(); i < n; i += team) {
        if (is_q) {
            q[row * stride + h * spec::k_dim + i] = x[i] * temp;
        } else {
            k_cache[slot * (spec::n_head_kv * spec::k_dim) + h * spec::k_dim + i] = float_to_half(x[i]);
        }
    }
}
