/* config.h: a model config (YAML) as rows of a schema, and its resolution for one layer of one file.
 *
 * The schema is a table (config_schema.c): one row a leaf, with its dotted path, type, default and the member
 * of qn_layer_cfg it fills. A config is a list of settings (row, value, where it stands), in three groups:
 * base, one group a layer kind, one group a `when` variant. Resolution for layer l applies defaults, base,
 * matching model-level variants, the kind's settings, matching layer-level variants, in that order, and then
 * evaluates each value against the file. Nothing here knows any architecture. docs/model-configs.md explains
 * every leaf. */
#ifndef QN_MODEL_CONFIG_H
#define QN_MODEL_CONFIG_H

#include "model/gguf.h"
#include "model/model.h"

typedef enum qn_need { QN_NEED_NO, QN_NEED_YES, QN_NEED_OPTIONAL } qn_need;
typedef enum qn_fused { QN_FUSED_AUTO, QN_FUSED_YES, QN_FUSED_NO } qn_fused;
typedef enum qn_tied { QN_TIED_AUTO, QN_TIED_ALWAYS, QN_TIED_NEVER } qn_tied;
typedef enum qn_rope_factors { QN_FACTORS_NONE, QN_FACTORS_FREQS, QN_FACTORS_LONGROPE } qn_rope_factors;
typedef enum qn_rope_scaling {
    QN_SCALING_FILE,
    QN_SCALING_NONE,
    QN_SCALING_LINEAR,
    QN_SCALING_YARN
} qn_rope_scaling;

enum { QN_LEAF_MAX = 128 }; /* rows of the schema, at most */

/* One layer's leaves, evaluated. Tensor names are bases ("attn_q"): ".weight", ".bias", ".scale" and the
 * "blk.N." prefix are added when binding; NULL: `none`. Model-level leaves are read from layer 0's. */
typedef struct qn_layer_cfg {
    struct {
        int count, skip_last, loops;
        bool loop_norm;
    } layers;
    struct {
        int width; /* n_embd */
        const char *tensor, *norm, *positions;
        double scale;
        int per_layer_width;
        const char *per_layer_tensor, *per_layer_proj, *per_layer_norm;
    } embedding;
    struct {
        int kind;         /* qn_norm_kind */
        int weight, bias; /* qn_need */
        double eps;
    } norm;
    struct {
        int kind; /* qn_attn_kind */
        const char *norm, *post_norm, *sub_norm, *q, *k, *v, *qkv, *out;
        int n_head, n_head_kv, head_dim, value_dim;
        int fused;                    /* qn_fused */
        int bias, out_bias, v_from_k; /* qn_need: v_from_k optional = where attn v is absent */
        struct {
            int kind, width, order, weight;
            const char *q, *k;
        } qk_norm;
        int v_norm; /* qn_norm_kind */
        double clamp, scale, softcap, alibi, temperature;
        int temperature_ctx, window, kv_shared;
    } attention;
    struct {
        int kv_rank, q_rank;
        const char *q_a, *q_b, *kv_a, *kv_b, *q_a_norm, *kv_a_norm;
    } latent;
    struct {
        int style, dim, scaling, factors; /* scaling: `file` is replaced by what the file says */
        bool factors_required;
        double base, factor, attn_factor, beta_fast, beta_slow, yarn_log_multiplier, ntk_alpha;
        int orig_ctx;
    } rope;
    struct {
        int kind, activation, n_ff, fused, bias;
        bool input_shared; /* `norm: shared`; norm is then NULL */
        const char *norm, *post_norm, *sub_norm, *gate, *up, *down, *act_div;
        double sparsity_std, xielu_alpha_n, xielu_alpha_p, xielu_beta, xielu_eps;
    } ffn;
    struct {
        bool parallel, skip_layer;
        double scale;
        const char *layer_scale, *embed_skip;
    } residual;
    struct {
        int scale; /* qn_need: "<name>.scale" tensors multiply each product */
    } weights;
    struct {
        const char *gate, *proj, *post_norm;
    } per_layer;
    struct {
        int streams;
        const char *router, *router_norm, *predict, *correct, *correct_scale, *proj, *unembd;
        const char *laurel_l, *laurel_r, *laurel_norm;
    } altup;
    struct {
        const char *norm, *tensor;
        int tied, bias; /* qn_tied, qn_need */
        double norm_scale, scale, softcap;
    } output;
    int n_layer;                                  /* blocks of the file that are layers: count - skip_last */
    const struct qn_yaml_node *from[QN_LEAF_MAX]; /* what set each leaf, by schema row; for messages */
} qn_layer_cfg;

typedef struct qn_config qn_config;

/* Parses and checks one YAML document against the schema. `name` is the file's, for messages
 * ("model_configs/x.yaml:12:7: unknown key 'atention' (did you mean 'attention'?)"). */
int qn_config_parse(qn_config **out, const char *text, size_t len, const char *name, qn_err *err);
void qn_config_free(qn_config *c);
const char *qn_config_name(const qn_config *c);
/* i-th architecture the config serves; NULL past the end. */
const char *qn_config_arch(const qn_config *c, int i);

/* The config that serves `arch`, from `dir` (or embedded where NULL). No such: an error that lists what there
 * is. */
int qn_config_find(qn_config **out, const char *arch, const char *dir, qn_err *err);

/* Evaluates all leaves for layer `il` of file `g`, n_ctx the run's context. *kind: the pattern's kind or "".
 */
int qn_config_resolve(const qn_config *c, const qn_gguf *g, int il, int n_ctx, qn_layer_cfg *out,
                      const char **kind, qn_err *err);

/* Writes where the leaf whose value is at `member` (inside cfg) got it: "ffn.up, model_configs/x.yaml:3:7" or
 * "ffn.up, the default in model_configs/x.yaml". Returns buf. */
const char *qn_config_origin(const qn_config *c, const qn_layer_cfg *cfg, const void *member, char *buf,
                             size_t size);

/* Rows of the schema, for documentation and `check`: NULL past the end. */
typedef struct qn_schema_row {
    const char *path;         /* "attention.qk_norm.order" */
    const char *type;         /* "name", "int", "float", "bool", "need", or "a | b | c" for an enumeration */
    const char *default_text; /* as it would stand in YAML; NULL: required */
    const char *doc;          /* one sentence */
} qn_schema_row;
const qn_schema_row *qn_schema(int i);

#endif
