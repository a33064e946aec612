#include "cli/info.h"
#include "cli/json.h"
#include "engine/memory.h"

/* Longer arrays (vocabularies) appear as {"type", "count"}. */
enum { MAX_ARRAY = 256 };

static json_t *integer(uint64_t v)
{
    return v <= INT64_MAX ? json_integer((json_int_t)v) : qn_json_real((double)v);
}

static json_t *element(const qn_kv *kv, uint64_t i)
{
    qn_kv_type type = kv->type == QN_KV_ARRAY ? kv->elem_type : kv->type;
    int64_t n;
    double x;
    bool b;
    qn_str s;
    if (type == QN_KV_STRING && qn_kv_str(kv, i, &s)) {
        return qn_json_text(s.data, s.len);
    }
    if (type == QN_KV_BOOL && qn_kv_bool(kv, i, &b)) {
        return json_boolean(b);
    }
    if (type != QN_KV_F32 && type != QN_KV_F64 && qn_kv_i64(kv, i, &n)) {
        return json_integer(n);
    }
    if (!qn_kv_f64(kv, i, &x)) {
        return json_null();
    }
    return qn_json_real(x);
}

static json_t *kv_value(const qn_kv *kv)
{
    if (kv->type != QN_KV_ARRAY) {
        return element(kv, 0);
    }
    int bad = 0;
    if (kv->count > MAX_ARRAY) {
        json_t *o = json_object();
        bad |= qn_json_set(o, "type", qn_json_str(qn_kv_type_name(kv->elem_type)));
        bad |= qn_json_set(o, "count", integer(kv->count));
        return qn_json_whole(o, bad);
    }
    json_t *a = json_array();
    for (uint64_t i = 0; i < kv->count; i++) {
        bad |= json_array_append_new(a, element(kv, i));
    }
    return qn_json_whole(a, bad);
}

static json_t *metadata(const qn_gguf *g)
{
    json_t *o = json_object();
    int bad = 0;
    for (uint64_t k = 0; k < qn_gguf_n_kv(g); k++) {
        const qn_kv *kv = qn_gguf_kv(g, k);
        bad |= qn_json_set(o, kv->key, kv_value(kv));
    }
    return qn_json_whole(o, bad);
}

static json_t *tensor_types(const qn_model_facts *f)
{
    json_t *o = json_object();
    int bad = 0;
    for (uint32_t t = 0; t < QN_TYPE_COUNT; t++) {
        if (f->type_tensors[t] > 0) {
            json_t *type = json_object();
            bad |= qn_json_set(type, "tensors", integer(f->type_tensors[t]));
            bad |= qn_json_set(type, "bytes", integer(f->type_bytes[t]));
            bad |= qn_json_set(o, qn_dtype_get(t)->name, type);
        }
    }
    return qn_json_whole(o, bad);
}

static json_t *tensor(const qn_tensor *t)
{
    json_t *o = json_object(), *shape = json_array();
    int bad = 0;
    for (uint32_t d = 0; d < t->n_dims; d++) {
        bad |= json_array_append_new(shape, integer((uint64_t)t->ne[d]));
    }
    bad |= qn_json_set(o, "name", qn_json_str(t->name));
    bad |= qn_json_set(o, "type", qn_json_str(qn_dtype_get(t->type)->name));
    bad |= qn_json_set(o, "shape", shape);
    bad |= qn_json_set(o, "bytes", integer(t->n_bytes));
    return qn_json_whole(o, bad);
}

static json_t *tensors(const qn_gguf *g)
{
    json_t *a = json_array();
    int bad = 0;
    for (uint64_t k = 0; k < qn_gguf_n_tensors(g); k++) {
        bad |= json_array_append_new(a, tensor(qn_gguf_tensor(g, k)));
    }
    return qn_json_whole(a, bad);
}

static json_t *memory(const qn_info *i)
{
    json_t *o = json_object();
    int bad = 0;
    bad |= qn_json_set(o, "backend", qn_json_str(i->opts.cuda ? "cuda" : "cpu"));
    bad |= qn_json_set(o, "n_ctx", json_integer(i->opts.n_ctx));
    bad |= qn_json_set(o, "weights", integer(i->memory.weights));
    bad |= qn_json_set(o, "weight_cache", integer(i->memory.weight_cache));
    bad |= qn_json_set(o, "kv", integer(i->memory.kv));
    bad |= qn_json_set(o, "activations", integer(i->memory.activations));
    bad |= qn_json_set(o, "other", integer(i->memory.other));
    bad |= qn_json_set(o, "total", integer(qn_memory_total(&i->memory)));
    return qn_json_whole(o, bad);
}

static json_t *model(const qn_model *m)
{
    json_t *o = json_object(), *unused = json_array();
    int bad = 0;
    bad |= qn_json_set(o, "config", qn_json_str(m->config_name));
    bad |= qn_json_set(o, "n_layer", json_integer(m->n_layer));
    bad |= qn_json_set(o, "n_embd", json_integer(m->n_embd));
    bad |= qn_json_set(o, "n_vocab", json_integer(m->n_vocab));
    bad |= qn_json_set(o, "n_ctx", json_integer(m->n_ctx));
    bad |= qn_json_set(o, "n_ctx_train", json_integer(m->n_ctx_train));
    bad |= qn_json_set(o, "tied", json_boolean(m->tied));
    for (const char **u = m->unused; u != NULL && *u != NULL; u++) {
        bad |= json_array_append_new(unused, qn_json_str(*u));
    }
    bad |= qn_json_set(o, "unused_tensors", unused);
    return qn_json_whole(o, bad);
}

static json_t *tokenizer(const qn_tokenizer *t)
{
    json_t *o = json_object(), *roles = json_object();
    int bad = 0;
    bad |= qn_json_set(o, "model", qn_json_str(qn_tokenizer_model(t)));
    bad |= qn_json_set(o, "pre", qn_json_str(qn_tokenizer_pre(t)));
    bad |= qn_json_set(o, "n_vocab", json_integer(qn_tokenizer_n_vocab(t)));
    bad |= qn_json_set(o, "add_bos", json_boolean(qn_tokenizer_add_bos(t)));
    bad |= qn_json_set(o, "add_eos", json_boolean(qn_tokenizer_add_eos(t)));
    bad |= qn_json_set(o, "add_space_prefix", json_boolean(qn_tokenizer_add_space_prefix(t)));
    for (int r = 0; r < QN_N_ROLES; r++) {
        int32_t id = qn_tokenizer_role(t, (qn_token_role)r);
        if (id >= 0) {
            bad |= qn_json_set(roles, qn_token_role_name((qn_token_role)r), json_integer(id));
        }
    }
    bad |= qn_json_set(o, "roles", roles);
    size_t n;
    const int32_t *end = qn_tokenizer_eog(t, &n);
    bad |= qn_json_set(o, "end_tokens", qn_json_i32s(end, n));
    return qn_json_whole(o, bad);
}

int qn_info_json(const qn_info *i)
{
    json_t *o = json_object();
    int bad = 0;
    bad |= qn_json_set(o, "file", qn_json_str(i->path));
    bad |= qn_json_set(o, "gguf_version", json_integer(qn_gguf_version(i->gguf)));
    bad |= qn_json_set(o, "file_bytes", integer(qn_gguf_file_bytes(i->gguf)));
    bad |= qn_json_set(o, "architecture", qn_json_str(i->arch));
    bad |= qn_json_set(o, "n_params", integer(i->facts.n_params));
    bad |= qn_json_set(o, "n_tensors", integer(qn_gguf_n_tensors(i->gguf)));
    bad |= qn_json_set(o, "metadata", metadata(i->gguf));
    bad |= qn_json_set(o, "tensor_types", tensor_types(&i->facts));
    if (i->tensors) {
        bad |= qn_json_set(o, "tensors", tensors(i->gguf));
    }
    if (i->model == NULL || i->plans == NULL) {
        bad |= qn_json_set(o, "cannot_run", qn_json_str(i->model == NULL ? i->model_why : i->plans_why));
    }
    if (i->model != NULL) {
        bad |= qn_json_set(o, "model", model(i->model));
    }
    if (i->model != NULL && i->plans != NULL) {
        bad |= qn_json_set(o, "memory", memory(i));
    }
    if (i->tok != NULL) {
        bad |= qn_json_set(o, "tokenizer", tokenizer(i->tok));
    } else {
        bad |= qn_json_set(o, "no_tokenizer", qn_json_str(i->tok_why));
    }
    return qn_json_print(qn_json_whole(o, bad), JSON_INDENT(2));
}
