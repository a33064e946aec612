// rope_kv.cu: QK norm, RoPE, temperature; q in place, k and v into the KV cache, as f16 or (spec::k_q8, v_q8)
// in 8 bits. A team does one unit of a row: first the query heads, then k heads, then v heads; where the QK
// norm spans the whole width, all query heads are one unit and all k heads another (q is rewritten in place:
// no other team may need it). A team is a block, or (spec::by_warp) a warp: then many rows need fewer blocks.
// spec::kv_rows: rows of the cache, position p in row p % kv_rows. spec::scaled: q, k and v are a product
// whose rows wait for their factors. grid: (rows, units / teams of a block); block: spec::threads; shared: 2
// * half_rot floats, for each team heads of a q unit * k_dim, for a block threads / 32 more.
#include "kv_q8.cuh"
#include "rope.cuh"

constexpr int q_heads = full_width ? spec::n_head : 1, k_heads = full_width ? spec::n_head_kv : 1;
constexpr int q_units = spec::n_head / q_heads, k_units = spec::n_head_kv / k_heads;
constexpr int n_unit = q_units + (spec::has_kv ? k_units + spec::n_head_kv : 0);
constexpr int team = spec::by_warp ? WARP : spec::threads, teams = spec::threads / team;

QN_ENTRY(spec::threads)
QN_KERNEL(const qn_state *st, float *q, i64 stride, const float *k, const float *v, u8 *k_cache, u8 *v_cache,
          const float *q_norm, const float *k_norm, const float *freq, const float *row_scale)
{
    ptx_grid_wait();
    ptx_grid_launch();
    const int row = blockIdx.x;
    if (row >= st->n_rows) {
        return;
    }
    const int which = spec::by_warp ? (int)threadIdx.x / WARP : 0, member = team_rank<team>();
    f32x2 *turns = qn_shared<f32x2>(0);
    float *x = (float *)(turns + half_rot) + which * (q_heads * spec::k_dim);
    float *scratch = x + q_heads * spec::k_dim; // of a block
    const int pos = row_pos(st, row), unit = (int)blockIdx.y * teams + which;
    if (spec::rope_style != ROPE_NONE) {
        find_turns<spec::threads>(turns, pos, freq);
        __syncthreads();
    }
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
            scale = norm_scale<team>(src, up, spec::v_dim, spec::v_norm, &mean, scratch);
        }
        u8 *head =
            v_cache + slot * kv_row_bytes<spec::v_dim, spec::v_q8> + h * kv_unit<spec::v_dim, spec::v_q8>;
        for (int i = member; i < spec::v_dim; i += team) {
            kv_keep<spec::v_dim, spec::v_q8>((src[i] * up - mean) * scale, head, i, true);
        }
        return;
    }
    const bool is_q = unit < q_units;
    const int n_head = is_q ? q_heads : k_heads, n = n_head * spec::k_dim, h = is_q ? unit : unit - q_units;
    const float *src = (is_q ? (const float *)q : k) + row * stride + h * spec::k_dim;
    const float *w = is_q ? (spec::q_has_w ? q_norm : nullptr) : (spec::k_has_w ? k_norm : nullptr);
    const bool norm = spec::qk_norm != NORM_NONE && (is_q ? spec::q_has_norm : spec::k_has_norm);
    for (int i = member; i < n; i += team) {
        x[i] = src[i] * up;
    }
    team_sync<team>();
    finish_heads<team>(x, n_head, h, norm, w, turns, scratch);
    if (is_q) {
        const float factor = query_factor(pos);
        for (int i = member; i < n; i += team) {
            q[row * stride + h * spec::k_dim + i] = x[i] * factor;
        }
        return;
    }
    for (int i = member; i < n; i += team) {
        u8 *head = k_cache + slot * kv_row_bytes<spec::k_dim, spec::k_q8> +
                   (h + i / spec::k_dim) * kv_unit<spec::k_dim, spec::k_q8>;
        kv_keep<spec::k_dim, spec::k_q8>(x[i], head, i % spec::k_dim, true);
    }
}
