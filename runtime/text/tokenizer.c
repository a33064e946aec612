/* tokenizer.c: makes a tokenizer from a file's metadata and the YAML data. */
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/yaml.h"
#include "text/tok_internal.h"

static const char key_model[] = "tokenizer.ggml.model";
static const char key_pre[] = "tokenizer.ggml.pre";

/* A string key; *out is NULL where the file has none. Copied. */
static int string_key(qn_tokenizer *t, const qn_gguf *g, const char *key, const char **out, qn_err *err)
{
    const qn_kv *kv = qn_gguf_find(g, key);
    qn_str s;
    *out = NULL;
    if (!kv) {
        return 0;
    }
    if (kv->type != QN_KV_STRING || !qn_kv_str(kv, 0, &s)) {
        return qn_fail(err, "%s: %s is %s, not a string", qn_gguf_path(g), key, qn_kv_type_name(kv->type));
    }
    *out = qn_arena_strndup(&t->arena, s.data, s.len);
    return *out ? 0 : qn_fail(err, "out of memory");
}

/* A flag key; *found says whether the file has it. */
static int bool_key(const qn_gguf *g, const char *key, bool *out, bool *found, qn_err *err)
{
    const qn_kv *kv = qn_gguf_find(g, key);
    *found = kv != NULL;
    if (kv && !qn_kv_bool(kv, 0, out)) {
        return qn_fail(err, "%s: %s is %s, not a bool", qn_gguf_path(g), key, qn_kv_type_name(kv->type));
    }
    return 0;
}

/* "a, b" of the models that work, for messages. */
static void list_models(const qn_yaml_node *models, char *buf, size_t size)
{
    size_t n = 0;
    buf[0] = '\0';
    for (const qn_yaml_node *m = models->child; m; m = m->next) {
        const qn_yaml_node *name = qn_yaml_get(m, "name"), *alg = qn_yaml_get(m, "algorithm");
        bool works = alg && alg->text && (strcmp(alg->text, "bpe") == 0 || strcmp(alg->text, "spm") == 0);
        if (works && name && name->text && n + name->len + 3 < size) {
            n += (size_t)snprintf(buf + n, size - n, "%s%s", n ? ", " : "", name->text);
        }
    }
}

static const qn_yaml_node *find_model(const qn_yaml_node *models, const char *name)
{
    for (const qn_yaml_node *m = models->child; m; m = m->next) {
        const qn_yaml_node *n = qn_yaml_get(m, "name");
        if (n && n->text && strcmp(n->text, name) == 0) {
            return m;
        }
    }
    return NULL;
}

/* The row of vocabulary.yaml that a file's tokenizer.ggml.model names; NULL with a message where it cannot be
 * served. */
static const qn_yaml_node *model_row(qn_tokenizer *t, const qn_gguf *g, const qn_yaml_node *rules,
                                     qn_err *err)
{
    static const char *const keys[] = {"name", "algorithm", "pre", "what", "bos", "eos", "unk"};
    const qn_yaml_node *models = qn_yaml_get(rules, "models");
    if (!models || models->kind != QN_YAML_SEQ) {
        qn_yaml_fail(rules, err, "`models` must be a list");
        return NULL;
    }
    if (string_key(t, g, key_model, &t->model, err)) {
        return NULL;
    }
    if (!t->model) {
        qn_fail(err, "%s: no tokenizer in this file (%s is missing)", qn_gguf_path(g), key_model);
        return NULL;
    }
    char known[256];
    list_models(models, known, sizeof known);
    const qn_yaml_node *row = find_model(models, t->model);
    if (!row) {
        qn_fail(err, "%s: %s = \"%.64s\" is not a known kind of tokenizer (supported: %s)", qn_gguf_path(g),
                key_model, t->model, known);
        return NULL;
    }
    const qn_yaml_node *alg = qn_yaml_get(row, "algorithm"), *what = qn_yaml_get(row, "what");
    if (qn_yaml_check_keys(row, keys, sizeof keys / sizeof keys[0], err)) {
        return NULL;
    }
    if (!alg || alg->kind != QN_YAML_SCALAR) {
        qn_yaml_fail(row, err, "`algorithm` is missing");
        return NULL;
    }
    if (strcmp(alg->text, "none") == 0) {
        qn_fail(err, "%s: no tokenizer in this file (%s = \"%s\")", qn_gguf_path(g), key_model, t->model);
        return NULL;
    }
    if (strcmp(alg->text, "unsupported") == 0) {
        qn_fail(err, "%s: tokenizers of kind \"%s\"%s%s%s are not supported (supported: %s)", qn_gguf_path(g),
                t->model, what && what->text ? " (" : "", what && what->text ? what->text : "",
                what && what->text ? ")" : "", known);
        return NULL;
    }
    t->algorithm = strcmp(alg->text, "spm") == 0 ? QN_ALG_SPM : QN_ALG_BPE;
    if (t->algorithm == QN_ALG_BPE && strcmp(alg->text, "bpe") != 0) {
        qn_yaml_fail(alg, err, "expected bpe, spm, none or unsupported, found %.64s", alg->text);
        return NULL;
    }
    return row;
}

/* Ids that a kind of tokenizer has unless the file says otherwise. */
static int default_roles(qn_tokenizer *t, const qn_yaml_node *row, qn_err *err)
{
    static const struct {
        const char *key;
        qn_token_role role;
    } rows[] = {{"bos", QN_ROLE_BOS}, {"eos", QN_ROLE_EOS}, {"unk", QN_ROLE_UNK}};
    for (int r = 0; r < QN_N_ROLES; r++) {
        t->role[r] = -1;
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const qn_yaml_node *node = qn_yaml_get(row, rows[i].key);
        int64_t id = -1;
        if (node && qn_yaml_i64(node, &id, err)) {
            return -1;
        }
        t->role[rows[i].role] = id >= 0 && id < t->vocab.n ? (int32_t)id : -1;
    }
    return 0;
}

/* The name of a pre-tokenizer whose tell-tale tokens are all in the vocabulary; NULL: none. */
static const char *recognise(const qn_tokenizer *t, const qn_tok_config *c)
{
    const char *name;
    const qn_yaml_node *list;
    for (size_t i = 0; (list = qn_tok_config_recognise(c, i, &name)); i++) {
        const qn_yaml_node *x = list->child;
        while (x && x->kind == QN_YAML_SCALAR && qn_strmap_get(&t->vocab.by_text, x->text, x->len) >= 0) {
            x = x->next;
        }
        if (list->child && !x) {
            return name;
        }
    }
    return NULL;
}

static int choose_pre(qn_tokenizer *t, const qn_gguf *g, const qn_yaml_node *row, const qn_tok_config *c,
                      const qn_tok_opts *opts, qn_err *err)
{
    const qn_yaml_node *fixed = qn_yaml_get(row, "pre");
    const char *name = opts ? opts->pre : NULL;
    if (!name && fixed && fixed->kind == QN_YAML_SCALAR) {
        name = fixed->text;
    }
    if (!name && string_key(t, g, key_pre, &name, err)) {
        return -1;
    }
    if (!name || !*name) {
        name = recognise(t, c);
        int rc = name ? qn_tok_warn(t, err, "%s is missing; \"%s\" is used, which the vocabulary looks like",
                                    key_pre, name)
                      : qn_tok_warn(
                            t, err,
                            "%s is missing; \"default\" is used, and the model may be worse than it could be",
                            key_pre);
        if (rc) {
            return -1;
        }
        name = name ? name : "default";
    }
    const qn_yaml_node *config = qn_tok_config_pre(c, name, err);
    if (!config) {
        return qn_fail_prefix(err, "%s: %s", qn_gguf_path(g), key_pre);
    }
    return qn_pre_new(&t->pre, config, name, err);
}

/* What is added around a text, and to it. */
static int load_flags(qn_tokenizer *t, const qn_gguf *g, qn_err *err)
{
    static const char key_bos[] = "tokenizer.ggml.add_bos_token", key_eos[] = "tokenizer.ggml.add_eos_token";
    bool spm = t->algorithm == QN_ALG_SPM, found_bos, found;
    t->add_space_prefix = spm;
    t->add_bos = spm || t->pre->add_bos != QN_PRE_BOS_NO;
    if (bool_key(g, key_bos, &t->add_bos, &found_bos, err) ||
        bool_key(g, key_eos, &t->add_eos, &found, err) ||
        bool_key(g, "tokenizer.ggml.add_space_prefix", &t->add_space_prefix, &found, err) ||
        bool_key(g, "tokenizer.ggml.remove_extra_whitespaces", &t->remove_extra_spaces, &found, err)) {
        return -1;
    }
    t->add_space_prefix = t->add_space_prefix && spm;
    if (!spm && t->pre->add_bos == QN_PRE_BOS_ALWAYS && !t->add_bos) {
        t->add_bos = true;
        if (found_bos &&
            qn_tok_warn(t, err, "%s is false, but this kind of model always wants it", key_bos)) {
            return -1;
        }
    }
    if (t->add_bos && t->role[QN_ROLE_BOS] < 0) {
        if (found_bos) {
            return qn_fail(err, "%s: %s is true, but tokenizer.ggml.bos_token_id is missing", qn_gguf_path(g),
                           key_bos);
        }
        t->add_bos = false;
        if (qn_tok_warn(
                t, err,
                "a text should begin with the BOS token, but tokenizer.ggml.bos_token_id is missing")) {
            return -1;
        }
    }
    if (t->add_eos && t->role[QN_ROLE_EOS] < 0) {
        return qn_fail(err, "%s: %s is true, but tokenizer.ggml.eos_token_id is missing", qn_gguf_path(g),
                       key_eos);
    }
    return 0;
}

static int warn_missing_bytes(qn_tokenizer *t, qn_err *err)
{
    int n = 0, first = -1;
    for (int b = 255; b >= 0; b--) {
        if (t->vocab.byte_token[b] < 0) {
            n++;
            first = b;
        }
    }
    bool replaced = t->algorithm == QN_ALG_SPM && t->role[QN_ROLE_UNK] >= 0;
    return n == 0 || replaced
               ? 0
               : qn_tok_warn(t, err, "the vocabulary has no token for %d of the 256 bytes (0x%02x...)", n,
                             (unsigned)first);
}

static int build(qn_tokenizer *t, const qn_gguf *g, const qn_tok_config *c, const qn_tok_opts *opts,
                 qn_err *err)
{
    const qn_yaml_node *rules = qn_tok_config_vocabulary(c);
    const qn_yaml_node *row = model_row(t, g, rules, err);
    if (!row || qn_vocab_load(t, g, err) || default_roles(t, row, err)) {
        return -1;
    }
    bool bpe = t->algorithm == QN_ALG_BPE;
    if (bpe && choose_pre(t, g, row, c, opts, err)) {
        return -1;
    }
    if (qn_roles_load(t, g, rules, opts, err) || load_flags(t, g, err) || qn_specials_build(t, err) ||
        qn_vocab_decode(t, bpe && t->pre->byte_encode, !bpe || t->pre->escape_spaces, err)) {
        return -1;
    }
    if (bpe ? qn_bpe_new(&t->bpe, t, g, err) : qn_spm_init(t, err)) {
        return -1;
    }
    return warn_missing_bytes(t, err);
}

int qn_tokenizer_new(qn_tokenizer **out, const qn_gguf *g, const qn_tok_opts *opts, qn_err *err)
{
    *out = NULL;
    qn_tok_config *c;
    if (qn_tok_config_open(&c, opts ? opts->config_dir : NULL, err)) {
        return -1;
    }
    qn_tokenizer *t = qn_calloc(1, sizeof *t);
    int rc = t ? build(t, g, c, opts, err) : qn_fail(err, "out of memory");
    qn_tok_config_free(c);
    if (rc) {
        qn_tokenizer_free(t);
        return -1;
    }
    *out = t;
    return 0;
}

void qn_tokenizer_free(qn_tokenizer *t)
{
    if (t) {
        qn_bpe_free(t->bpe);
        qn_pre_free(t->pre);
        qn_strmap_free(&t->vocab.by_text);
        qn_pairs_free(&t->vocab.pairs);
        qn_arena_free(&t->arena);
        free(t);
    }
}

bool qn_tokenizer_present(const qn_gguf *g)
{
    return qn_gguf_find(g, "tokenizer.ggml.tokens") != NULL;
}

size_t qn_tokenizer_n_warnings(const qn_tokenizer *t)
{
    return t->n_warnings;
}

const char *qn_tokenizer_warning(const qn_tokenizer *t, size_t i)
{
    return i < t->n_warnings ? t->warning[i] : NULL;
}

int32_t qn_tokenizer_n_vocab(const qn_tokenizer *t)
{
    return t->vocab.n;
}

int32_t qn_tokenizer_role(const qn_tokenizer *t, qn_token_role role)
{
    return (unsigned)role < QN_N_ROLES ? t->role[role] : -1;
}

bool qn_tokenizer_add_bos(const qn_tokenizer *t)
{
    return t->add_bos;
}

bool qn_tokenizer_add_eos(const qn_tokenizer *t)
{
    return t->add_eos;
}

bool qn_tokenizer_add_space_prefix(const qn_tokenizer *t)
{
    return t->add_space_prefix;
}

const char *qn_tokenizer_model(const qn_tokenizer *t)
{
    return t->model;
}

const char *qn_tokenizer_pre(const qn_tokenizer *t)
{
    return t->pre ? t->pre->name : "";
}

const int32_t *qn_tokenizer_eog(const qn_tokenizer *t, size_t *n)
{
    *n = t->n_eog;
    return t->eog;
}

bool qn_tokenizer_is_eog(const qn_tokenizer *t, int32_t id)
{
    for (size_t i = 0; i < t->n_eog; i++) {
        if (t->eog[i] == id) {
            return true;
        }
    }
    return false;
}
