/* fast_impl.h: the kernels of fast.h in vector-friendly C; included once by each fast_<isa>.c, which defines
 * QN_FAST_NAME and may define QN_F16_LOAD8 (8 halves to 8 floats). Loops have fixed trip counts so that the
 * compiler turns them into vector code. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "cpu/fast.h"

enum { TILE = QN_ATTN_TILE, RB = 4, LANES = 16 };

/* exp(x), relative error below 1e-7 in [-87, 87]: x = n ln 2 + r, a degree-6 polynomial in r. */
static inline float fast_exp(float x)
{
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    float n = __builtin_roundevenf(x * 1.44269504088896341f);
    float r = x - n * 0.693145751953125f;
    r = r - n * 1.42860682030941723e-6f;
    float p = 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * qn_f32_from_bits((uint32_t)((int32_t)n + 127) << 23);
}

static inline float fast_tanh(float x)
{
    return 1.0f - 2.0f / (fast_exp(2.0f * x) + 1.0f);
}

static inline float fast_silu(float x)
{
    return x / (1.0f + fast_exp(-x));
}

/* tanh form; sqrt(2/pi) and 0.044715 as in the paper (Hendrycks and Gimpel, 2016). */
static inline float fast_gelu(float x)
{
    return 0.5f * x * (1.0f + fast_tanh(0.79788456080286535588f * x * (1.0f + 0.044715f * x * x)));
}

static void silu_mul(const float *gate, const float *up, float *out, int n)
{
    for (int i = 0; i < n; i++) {
        out[i] = fast_silu(gate[i]) * up[i];
    }
}

static void gelu_mul(const float *gate, const float *up, float *out, int n)
{
    for (int i = 0; i < n; i++) {
        out[i] = fast_gelu(gate[i]) * up[i];
    }
}

static void silu(float *x, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] = fast_silu(x[i]);
    }
}

static void gelu(float *x, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] = fast_gelu(x[i]);
    }
}

static inline void load_f16(const uint16_t *in, float *out, int n)
{
    int i = 0;
#ifdef QN_F16_LOAD8
    for (; i + 8 <= n; i += 8) {
        QN_F16_LOAD8(in + i, out + i);
    }
#endif
    for (; i < n; i++) {
        out[i] = qn_f16_to_f32(in[i]);
    }
}

static void to_f16(const float *x, uint16_t *out, int n)
{
    int i = 0;
#ifdef QN_F16_STORE8
    for (; i + 8 <= n; i += 8) {
        QN_F16_STORE8(x + i, out + i);
    }
#endif
    for (; i < n; i++) {
        out[i] = qn_f32_to_f16(x[i]);
    }
}

/* K of one tile transposed to [k_dim][TILE], V as [TILE][v_dim]; rows past n are zero. */
static void load_tile(const qn_attn_block *b, int key, int n, float *kt, float *vt, float *line)
{
    for (int j = 0; j < TILE; j++) {
        if (j >= n) {
            for (int d = 0; d < b->k_dim; d++) {
                kt[d * TILE + j] = 0.0f;
            }
            memset(vt + (size_t)j * b->v_dim, 0, sizeof(float) * (size_t)b->v_dim);
            continue;
        }
        size_t row = (size_t)((key + j) % b->cache_rows);
        load_f16(b->k + row * b->k_stride, line, b->k_dim);
        for (int d = 0; d < b->k_dim; d++) {
            kt[d * TILE + j] = line[d];
        }
        load_f16(b->v + row * b->v_stride, vt + (size_t)j * b->v_dim, b->v_dim);
    }
}

/* s[r][j] = q_r . k_j for RB rows and one tile. */
static void scores(const float *const q[RB], const float *kt, int k_dim, float s[RB][TILE])
{
    for (int j0 = 0; j0 < TILE; j0 += LANES) {
        float a0[LANES] = {0}, a1[LANES] = {0}, a2[LANES] = {0}, a3[LANES] = {0};
        const float *k = kt + j0;
        for (int d = 0; d < k_dim; d++, k += TILE) {
            for (int j = 0; j < LANES; j++) {
                a0[j] += q[0][d] * k[j];
                a1[j] += q[1][d] * k[j];
                a2[j] += q[2][d] * k[j];
                a3[j] += q[3][d] * k[j];
            }
        }
        memcpy(s[0] + j0, a0, sizeof a0);
        memcpy(s[1] + j0, a1, sizeof a1);
        memcpy(s[2] + j0, a2, sizeof a2);
        memcpy(s[3] + j0, a3, sizeof a3);
    }
}

/* o_r += sum_j p[r][j] v_j for RB rows. */
static void accumulate(float *const o[RB], const float p[RB][TILE], const float *vt, int n_key, int v_dim)
{
    int c = 0;
    for (; c + LANES <= v_dim; c += LANES) {
        float a0[LANES], a1[LANES], a2[LANES], a3[LANES];
        memcpy(a0, o[0] + c, sizeof a0);
        memcpy(a1, o[1] + c, sizeof a1);
        memcpy(a2, o[2] + c, sizeof a2);
        memcpy(a3, o[3] + c, sizeof a3);
        const float *v = vt + c;
        for (int j = 0; j < n_key; j++, v += v_dim) {
            for (int i = 0; i < LANES; i++) {
                a0[i] += p[0][j] * v[i];
                a1[i] += p[1][j] * v[i];
                a2[i] += p[2][j] * v[i];
                a3[i] += p[3][j] * v[i];
            }
        }
        memcpy(o[0] + c, a0, sizeof a0);
        memcpy(o[1] + c, a1, sizeof a1);
        memcpy(o[2] + c, a2, sizeof a2);
        memcpy(o[3] + c, a3, sizeof a3);
    }
    for (; c < v_dim; c++) {
        for (int r = 0; r < RB; r++) {
            float a = o[r][c];
            for (int j = 0; j < n_key; j++) {
                a += p[r][j] * vt[(size_t)j * v_dim + c];
            }
            o[r][c] = a;
        }
    }
}

/* Soft-cap, ALiBi and mask of one row's scores, then the online softmax step; s becomes p. Returns the factor
 * by which what was accumulated before must be multiplied. */
static float softmax_step(const qn_attn_block *b, int row, int key, int n, float *s)
{
    int pos = b->row_pos[row];
    if (b->softcap > 0) {
        float cap = b->softcap, inv = 1.0f / cap;
        for (int j = 0; j < TILE; j++) {
            s[j] = cap * fast_tanh(s[j] * inv);
        }
    }
    float slope = b->slope[row];
    if (slope != 0) {
        for (int j = 0; j < TILE; j++) {
            s[j] -= slope * (float)(pos - key - j);
        }
    }
    int last = pos + 1 - key, first = b->window > 0 ? pos - b->window + 1 - key : 0;
    last = last < n ? last : n;
    first = first > 0 ? first : 0;
    if (first >= last) {
        memset(s, 0, sizeof(float) * TILE);
        return 1.0f;
    }
    float top = b->m[row];
    for (int j = first; j < last; j++) {
        top = s[j] > top ? s[j] : top;
    }
    float keep = b->m[row] == -INFINITY ? 0.0f : fast_exp(b->m[row] - top);
    for (int j = 0; j < TILE; j++) {
        s[j] = fast_exp(s[j] - top);
    }
    memset(s, 0, sizeof(float) * (size_t)first);
    memset(s + last, 0, sizeof(float) * (size_t)(TILE - last));
    float lanes[LANES] = {0}, sum = 0;
    for (int j = 0; j < TILE; j += LANES) {
        for (int i = 0; i < LANES; i++) {
            lanes[i] += s[j + i];
        }
    }
    for (int i = 0; i < LANES; i++) {
        sum += lanes[i];
    }
    b->m[row] = top;
    b->l[row] = b->l[row] * keep + sum;
    return keep;
}

static void attention_rows(const qn_attn_block *b, int r0, int key, int n, const float *kt, const float *vt)
{
    float s[RB][TILE], spare_o[QN_ATTN_MAX_DIM] = {0};
    const float *q[RB];
    float *o[RB];
    for (int r = 0; r < RB; r++) {
        int row = r0 + r < b->n_row ? r0 + r : r0; /* short blocks repeat row r0; its copies are dropped */
        q[r] = b->q + (size_t)row * b->k_dim;
    }
    scores(q, kt, b->k_dim, s);
    for (int r = 0; r < RB; r++) {
        if (r0 + r >= b->n_row) {
            memset(s[r], 0, sizeof s[r]);
            o[r] = spare_o;
            continue;
        }
        o[r] = b->o + (size_t)(r0 + r) * b->v_dim;
        float keep = softmax_step(b, r0 + r, key, n, s[r]);
        if (keep != 1.0f) {
            for (int d = 0; d < b->v_dim; d++) {
                o[r][d] *= keep;
            }
        }
    }
    accumulate(o, (const float(*)[TILE])s, vt, n, b->v_dim);
}

static void attention(const qn_attn_block *b)
{
    float *kt = b->scratch;
    float *vt = kt + (size_t)TILE * b->k_dim;
    float *line = vt + (size_t)TILE * b->v_dim;
    for (int r = 0; r < b->n_row; r++) {
        b->m[r] = -INFINITY;
        b->l[r] = 0;
    }
    memset(b->o, 0, sizeof(float) * (size_t)b->n_row * (size_t)b->v_dim);
    for (int key = b->key_first; key < b->key_last; key += TILE) {
        int n = b->key_last - key < TILE ? b->key_last - key : TILE;
        load_tile(b, key, n, kt, vt, line);
        for (int r = 0; r < b->n_row; r += RB) {
            attention_rows(b, r, key, n, kt, vt);
        }
    }
}

const qn_fast_kernels QN_FAST_NAME = {QN_FAST_LABEL, attention, silu_mul, gelu_mul, silu, gelu, to_f16};
