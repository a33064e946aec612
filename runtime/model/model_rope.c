/* model_rope.c: rotary frequencies: base, NTK alpha, linear stretch, YaRN, divisors from the file.
 *
 * RoFormer (https://arxiv.org/abs/2104.09864); YaRN (https://arxiv.org/abs/2309.00071); long factors as GGUF
 * files of long-context models carry them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/model_internal.h"

/* Radians per position. True ones are about 1 at most; with this bound no angle overflows. */
static const float MAX_FREQ = 1e6f;
static const double pi = 3.14159265358979323846;

/* Dimension at which a frequency makes `turns` turns within the original context. */
static double yarn_dim(const qn_layer_cfg *c, double base, double turns)
{
    return c->rope.dim * log(c->rope.orig_ctx / (turns * 2 * pi)) / (2 * log(base));
}

void qn_rope_frequencies(const qn_layer_cfg *c, double *freq, double *mscale)
{
    int n_rot = c->rope.dim;
    double factor = c->rope.factor != 0 ? c->rope.factor : 1;
    double base = c->rope.base, stretch = c->rope.scaling == QN_SCALING_NONE ? 1 : 1 / factor;
    bool yarn = c->rope.scaling == QN_SCALING_YARN;
    double lo = 0, hi = 0;
    *mscale = c->rope.attn_factor;
    if (c->rope.ntk_alpha > 0) {
        base *= pow(c->rope.ntk_alpha, c->attention.head_dim / (c->attention.head_dim - 2.0));
    }
    if (yarn) {
        lo = fmax(0, floor(yarn_dim(c, base, c->rope.beta_fast)));
        hi = fmin(n_rot - 1, ceil(yarn_dim(c, base, c->rope.beta_slow)));
        *mscale *= (1 + 0.1 * log(factor)) / (1 + 0.1 * c->rope.yarn_log_multiplier * log(factor));
    }
    for (int i = 0; i < n_rot / 2; i++) {
        double f = pow(base, -2.0 * i / n_rot);
        if (yarn) {
            double ramp = fmin(1, fmax(0, (i - lo) / fmax(0.001, hi - lo)));
            freq[i] = f * (stretch * ramp + (1 - ramp));
        } else {
            freq[i] = f * stretch;
        }
    }
}

/* A tensor of n divisors; *out NULL where the file has none of that name. */
static int take_factors(qn_binder *b, const char *name, int n, const qn_tensor **out)
{
    int il = b->il;
    b->il = -1;
    int rc = qn_bind_named(b, out, name, "weight", (qn_shape){{(uint64_t)n, 1, 1, 1}, true}, QN_NEED_OPTIONAL,
                           &b->cfg->rope.factors);
    b->il = il;
    return rc;
}

static int find_factors(qn_binder *b, int n, const qn_tensor **out)
{
    const qn_layer_cfg *c = b->cfg;
    *out = NULL;
    if (c->rope.factors == QN_FACTORS_NONE) {
        return 0;
    }
    if (take_factors(b, "rope_freqs", n, out)) {
        return -1;
    }
    bool is_long = c->rope.factors == QN_FACTORS_LONGROPE && b->m->n_ctx > c->rope.orig_ctx;
    const char *name = is_long ? "rope_factors_long" : "rope_factors_short";
    if (!*out && c->rope.factors == QN_FACTORS_LONGROPE && take_factors(b, name, n, out)) {
        return -1;
    }
    if (!*out && c->rope.factors_required) {
        char origin[192];
        qn_config_origin(b->config, c, &c->rope.factors, origin, sizeof origin);
        return qn_fail(b->err, "%s: tensor %s.weight [%d] is missing (asked for by %s)", qn_gguf_path(b->g),
                       c->rope.factors == QN_FACTORS_LONGROPE ? name : "rope_freqs", n, origin);
    }
    return 0;
}

/* Keeps one copy of equal tables. */
static int keep(qn_binder *b, const float *freq, int n, const float **out)
{
    for (int i = 0; i < b->n_tables; i++) {
        if (b->table[i].n == n && memcmp(b->table[i].freq, freq, (size_t)n * sizeof *freq) == 0) {
            *out = b->table[i].freq;
            return 0;
        }
    }
    float *copy = qn_arena_alloc(&b->m->arena, (size_t)n * sizeof *copy);
    if (b->n_tables == b->cap_tables) {
        int cap = b->cap_tables ? 2 * b->cap_tables : 8;
        qn_rope_table *bigger = realloc(b->table, (size_t)cap * sizeof *bigger);
        if (bigger) {
            b->table = bigger;
            b->cap_tables = cap;
        }
    }
    if (!copy || b->n_tables == b->cap_tables) {
        return qn_fail(b->err, "%s: out of memory", qn_gguf_path(b->g));
    }
    memcpy(copy, freq, (size_t)n * sizeof *copy);
    b->table[b->n_tables++] = (qn_rope_table){copy, n};
    *out = copy;
    return 0;
}

static int check(const qn_binder *b)
{
    const qn_layer_cfg *c = b->cfg;
    const char *file = qn_gguf_path(b->g);
    char origin[192];
    qn_config_origin(b->config, c, &c->rope.dim, origin, sizeof origin);
    if (c->rope.dim < 2 || c->rope.dim % 2 || c->rope.dim > c->attention.head_dim) {
        return qn_fail(b->err,
                       "%s: layer %d rotates %d dimensions of a head of %d; must be even, at least 2 and at "
                       "most the head (%s)",
                       file, b->il, c->rope.dim, c->attention.head_dim, origin);
    }
    if (c->rope.scaling == QN_SCALING_YARN && (c->rope.orig_ctx < 1 || c->rope.base <= 1)) {
        return qn_fail(b->err, "%s: YaRN needs an original context (%d) and a base above 1 (%g)", file,
                       c->rope.orig_ctx, c->rope.base);
    }
    if (c->rope.ntk_alpha > 0 && c->attention.head_dim <= 2) {
        return qn_fail(b->err, "%s: rope.ntk_alpha needs heads wider than 2", file);
    }
    return 0;
}

/* Divides, rounds to f32 and refuses what is not a frequency. */
static int finish(qn_binder *b, const double *freq, const qn_tensor *factors, int n, float *out)
{
    for (int i = 0; i < n; i++) {
        float divisor = 1;
        if (factors) {
            memcpy(&divisor, factors->data + (size_t)i * sizeof divisor, sizeof divisor);
        }
        out[i] = (float)(freq[i] / divisor);
        if (!(divisor > 0) || !(out[i] <= MAX_FREQ) || !isfinite(divisor)) {
            return qn_fail(b->err, "%s: layer %d: RoPE frequency %d is %g (divisor %g%s%s)",
                           qn_gguf_path(b->g), b->il, i, (double)out[i], (double)divisor,
                           factors ? " of tensor " : "", factors ? factors->name : "");
        }
    }
    return 0;
}

int qn_bind_rope(qn_binder *b, qn_rope *out)
{
    const qn_layer_cfg *c = b->cfg;
    out->style = (qn_rope_style)c->rope.style;
    out->mscale = 1;
    if (out->style == QN_ROPE_NONE) {
        return 0;
    }
    const qn_tensor *factors;
    int n = c->rope.dim / 2;
    double mscale = 1;
    if (check(b) || find_factors(b, n, &factors)) {
        return -1;
    }
    double *freq = qn_calloc((size_t)n, sizeof *freq);
    float *rounded = qn_calloc((size_t)n, sizeof *rounded);
    if (!freq || !rounded) {
        free(freq);
        free(rounded);
        return qn_fail(b->err, "%s: out of memory", qn_gguf_path(b->g));
    }
    qn_rope_frequencies(c, freq, &mscale);
    int rc = finish(b, freq, factors, n, rounded) || keep(b, rounded, n, &out->freq);
    free(freq);
    free(rounded);
    out->n_rot = c->rope.dim;
    out->mscale = (float)mscale;
    if (!rc && !isfinite(out->mscale)) {
        rc = qn_fail(b->err, "%s: layer %d: the factor of RoPE's cos and sin is not finite",
                     qn_gguf_path(b->g), b->il);
    }
    return rc ? -1 : 0;
}
