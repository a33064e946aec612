/* roles.c: which tokens begin and end things: ids of the file, and names from vocabulary.yaml.
 *
 * vocabulary.yaml:
 *
 *     models: [{name: ..., algorithm: bpe | spm | none | unsupported, ...}]      # read by tokenizer.c
 *     roles: {eot: [name, ...], ...}     # a role that the file gives no id is taken by the first name there
 * is end_of_generation: names: [name, ...] roles: [eos, ...] except:                          # `token` ends
 * nothing in a vocabulary that has all of `with`
 *         - {token: name, with: [name, ...], becomes: normal | user_defined}
 *     user_defined: [name, ...]          # always recognised in text and always shown
 *     strip_after:                       # white space behind special tokens is dropped
 *       - {model_name: [part of general.name, ...], except: [name, ...]}
 *
 * Tokens named under `roles` and `end_of_generation` are control tokens whatever type the file gives them. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "model/yaml.h"
#include "text/tok_internal.h"

static const struct {
    const char *name, *key, *old_key;
} role_rows[QN_N_ROLES] = {
    [QN_ROLE_BOS] = {"bos", "tokenizer.ggml.bos_token_id", NULL},
    [QN_ROLE_EOS] = {"eos", "tokenizer.ggml.eos_token_id", NULL},
    [QN_ROLE_EOT] = {"eot", "tokenizer.ggml.eot_token_id", NULL},
    [QN_ROLE_EOM] = {"eom", "tokenizer.ggml.eom_token_id", NULL},
    [QN_ROLE_UNK] = {"unk", "tokenizer.ggml.unknown_token_id", NULL},
    [QN_ROLE_SEP] = {"sep", "tokenizer.ggml.seperator_token_id", NULL}, /* the format spells it so */
    [QN_ROLE_PAD] = {"pad", "tokenizer.ggml.padding_token_id", NULL},
    [QN_ROLE_MASK] = {"mask", "tokenizer.ggml.mask_token_id", NULL},
    [QN_ROLE_FIM_PRE] = {"fim_pre", "tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"},
    [QN_ROLE_FIM_SUF] = {"fim_suf", "tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"},
    [QN_ROLE_FIM_MID] = {"fim_mid", "tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"},
    [QN_ROLE_FIM_PAD] = {"fim_pad", "tokenizer.ggml.fim_pad_token_id", NULL},
    [QN_ROLE_FIM_REP] = {"fim_rep", "tokenizer.ggml.fim_rep_token_id", NULL},
    [QN_ROLE_FIM_SEP] = {"fim_sep", "tokenizer.ggml.fim_sep_token_id", NULL},
};

const char *qn_token_role_name(qn_token_role role)
{
    return (unsigned)role < QN_N_ROLES ? role_rows[role].name : "?";
}

static int role_of(const char *name)
{
    for (int r = 0; r < QN_N_ROLES; r++) {
        if (strcmp(role_rows[r].name, name) == 0) {
            return r;
        }
    }
    return -1;
}

/* A node that must be a list of texts (or absent). */
static int check_names(const qn_yaml_node *list, qn_err *err)
{
    if (list && list->kind != QN_YAML_SEQ) {
        return qn_yaml_fail(list, err, "expected a list of names");
    }
    for (const qn_yaml_node *c = list ? list->child : NULL; c; c = c->next) {
        if (c->kind != QN_YAML_SCALAR) {
            return qn_yaml_fail(c, err, "expected a name");
        }
    }
    return 0;
}

static int32_t find(const qn_tokenizer *t, const qn_yaml_node *name)
{
    return qn_strmap_get(&t->vocab.by_text, name->text, name->len);
}

static int id_from_key(qn_tokenizer *t, const qn_gguf *g, qn_token_role role, const char *key, qn_err *err)
{
    const qn_kv *kv = key ? qn_gguf_find(g, key) : NULL;
    int64_t id;
    if (!kv) {
        return 0;
    }
    if (!qn_kv_i64(kv, 0, &id)) {
        return qn_fail(err, "%s: %s is not a token id", qn_gguf_path(g), key);
    }
    if (id < 0 || id >= t->vocab.n) {
        return qn_tok_warn(t, err, "%s = %lld is outside the vocabulary of %d tokens and is ignored", key,
                           (long long)id, t->vocab.n);
    }
    t->role[role] = (int32_t)id;
    return 0;
}

static int roles_from_names(qn_tokenizer *t, const qn_yaml_node *roles, qn_err *err)
{
    if (roles && roles->kind != QN_YAML_MAP) {
        return qn_yaml_fail(roles, err, "expected a map of roles");
    }
    for (const qn_yaml_node *r = roles ? roles->child : NULL; r; r = r->next) {
        int role = role_of(r->key);
        if (role < 0) {
            return qn_yaml_fail_key(r, err, "\"%.64s\" is not a role", r->key);
        }
        if (check_names(r, err)) {
            return -1;
        }
        for (const qn_yaml_node *c = r->child; c && t->role[role] < 0; c = c->next) {
            int32_t id = find(t, c);
            if (id >= 0) {
                t->role[role] = id;
                t->vocab.attr[id] = QN_TOKEN_CONTROL;
            }
        }
    }
    return 0;
}

static int add_eog(qn_ids *l, int32_t id, qn_err *err)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->id[i] == id) {
            return 0;
        }
    }
    return id < 0 ? 0 : qn_ids_push(l, id, err);
}

static int eog_exception(qn_tokenizer *t, const qn_yaml_node *rule, qn_ids *l, qn_err *err)
{
    static const char *const keys[] = {"token", "with", "becomes"};
    if (qn_yaml_check_keys(rule, keys, 3, err)) {
        return -1;
    }
    const qn_yaml_node *token = qn_yaml_get(rule, "token"), *with = qn_yaml_get(rule, "with");
    const qn_yaml_node *becomes = qn_yaml_get(rule, "becomes");
    if (!token || token->kind != QN_YAML_SCALAR || !with || !becomes || becomes->kind != QN_YAML_SCALAR ||
        check_names(with, err)) {
        return qn_yaml_fail(rule, err, "an exception needs `token`, a list `with`, and `becomes`");
    }
    bool user = strcmp(becomes->text, "user_defined") == 0;
    if (!user && strcmp(becomes->text, "normal") != 0) {
        return qn_yaml_fail(becomes, err, "expected normal or user_defined");
    }
    for (const qn_yaml_node *c = with->child; c; c = c->next) {
        if (find(t, c) < 0) {
            return 0;
        }
    }
    int32_t id = find(t, token);
    for (size_t i = 0; i < l->n; i++) {
        if (l->id[i] == id) {
            l->id[i] = l->id[--l->n];
            t->vocab.attr[id] = user ? QN_TOKEN_USER_DEFINED : QN_TOKEN_NORMAL;
            t->vocab.guarded[id] = user;
        }
    }
    return 0;
}

static int eog_from_rules(qn_tokenizer *t, const qn_yaml_node *rules, qn_ids *l, qn_err *err)
{
    static const char *const keys[] = {"names", "roles", "except"};
    if (!rules) {
        return 0;
    }
    const qn_yaml_node *names = qn_yaml_get(rules, "names"), *roles = qn_yaml_get(rules, "roles");
    const qn_yaml_node *except = qn_yaml_get(rules, "except");
    if (qn_yaml_check_keys(rules, keys, 3, err) || check_names(names, err) || check_names(roles, err)) {
        return -1;
    }
    for (const qn_yaml_node *c = names ? names->child : NULL; c; c = c->next) {
        int32_t id = find(t, c);
        if (id >= 0) {
            t->vocab.attr[id] = QN_TOKEN_CONTROL;
        }
        if (add_eog(l, id, err)) {
            return -1;
        }
    }
    for (const qn_yaml_node *c = roles ? roles->child : NULL; c; c = c->next) {
        int role = role_of(c->text);
        if (role < 0) {
            return qn_yaml_fail(c, err, "\"%.64s\" is not a role", c->text);
        }
        if (add_eog(l, t->role[role], err)) {
            return -1;
        }
    }
    for (const qn_yaml_node *c = except ? except->child : NULL; c; c = c->next) {
        if (eog_exception(t, c, l, err)) {
            return -1;
        }
    }
    return 0;
}

static int ascending(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Keeps a sorted copy. */
static int keep_eog(qn_tokenizer *t, const int32_t *id, size_t n, qn_err *err)
{
    for (size_t i = 0; i < n; i++) {
        if (id[i] < 0 || id[i] >= t->vocab.n) {
            return qn_fail(err, "end token %d is outside the vocabulary of %d tokens", id[i], t->vocab.n);
        }
    }
    t->eog = qn_arena_alloc(&t->arena, n * sizeof *t->eog);
    if (!t->eog) {
        return qn_fail(err, "out of memory");
    }
    if (n) {
        memcpy(t->eog, id, n * sizeof *id);
        qsort(t->eog, n, sizeof *id, ascending);
    }
    t->n_eog = n;
    return 0;
}

static int mark_user_defined(qn_tokenizer *t, const qn_yaml_node *names, qn_err *err)
{
    if (check_names(names, err)) {
        return -1;
    }
    for (const qn_yaml_node *c = names ? names->child : NULL; c; c = c->next) {
        int32_t id = find(t, c);
        if (id >= 0) {
            t->vocab.attr[id] = QN_TOKEN_USER_DEFINED;
            t->vocab.guarded[id] = 1;
        }
    }
    return 0;
}

/* Whether general.name contains one of the parts, whatever its case. */
static bool name_contains(const qn_gguf *g, const qn_yaml_node *parts)
{
    const qn_kv *kv = qn_gguf_find(g, "general.name");
    qn_str name;
    if (!kv || !qn_kv_str(kv, 0, &name)) {
        return false;
    }
    for (const qn_yaml_node *c = parts ? parts->child : NULL; c; c = c->next) {
        for (uint64_t i = 0; i + c->len <= name.len; i++) {
            if (strncasecmp(name.data + i, c->text, c->len) == 0) {
                return true;
            }
        }
    }
    return false;
}

static int mark_strip(qn_tokenizer *t, const qn_gguf *g, const qn_yaml_node *rules, qn_err *err)
{
    static const char *const keys[] = {"model_name", "except"};
    for (const qn_yaml_node *r = rules ? rules->child : NULL; r; r = r->next) {
        const qn_yaml_node *parts = qn_yaml_get(r, "model_name"), *except = qn_yaml_get(r, "except");
        if (qn_yaml_check_keys(r, keys, 2, err) || check_names(parts, err) || check_names(except, err)) {
            return -1;
        }
        if (!name_contains(g, parts)) {
            continue;
        }
        memset(t->vocab.strip, 1, (size_t)t->vocab.n); /* matters only for special tokens */
        for (const qn_yaml_node *c = except ? except->child : NULL; c; c = c->next) {
            int32_t id = find(t, c);
            if (id >= 0) {
                t->vocab.strip[id] = 0;
            }
        }
    }
    return 0;
}

int qn_roles_load(qn_tokenizer *t, const qn_gguf *g, const qn_yaml_node *rules, const qn_tok_opts *opts,
                  qn_err *err)
{
    static const char *const keys[] = {"models", "roles", "end_of_generation", "user_defined", "strip_after"};
    if (qn_yaml_check_keys(rules, keys, 5, err)) {
        return -1;
    }
    for (int r = 0; r < QN_N_ROLES; r++) {
        if (id_from_key(t, g, r, role_rows[r].key, err) || id_from_key(t, g, r, role_rows[r].old_key, err)) {
            return -1;
        }
    }
    qn_ids l = {0};
    int rc = roles_from_names(t, qn_yaml_get(rules, "roles"), err);
    rc = rc ? rc : eog_from_rules(t, qn_yaml_get(rules, "end_of_generation"), &l, err);
    rc = rc ? rc : mark_user_defined(t, qn_yaml_get(rules, "user_defined"), err);
    rc = rc ? rc : mark_strip(t, g, qn_yaml_get(rules, "strip_after"), err);
    if (!rc) {
        bool given = opts && opts->eog;
        rc = keep_eog(t, given ? opts->eog : l.id, given ? opts->n_eog : l.n, err);
    }
    free(l.id);
    return rc;
}
