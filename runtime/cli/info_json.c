#include <string.h>

#include "cli/info.h"
#include "cli/json.h"
#include "engine/memory.h"

/* Longer arrays (vocabularies) appear as {"type", "count"}. */
enum { MAX_ARRAY = 256 };

static void put_element(qn_json_out *o, const qn_kv *kv, uint64_t i)
{
    qn_kv_type type = kv->type == QN_KV_ARRAY ? kv->elem_type : kv->type;
    int64_t n;
    double x;
    bool b;
    qn_str s;
    if (type == QN_KV_STRING && qn_kv_str(kv, i, &s)) {
        qn_json_string(o, s.data, s.len);
    } else if (type == QN_KV_BOOL && qn_kv_bool(kv, i, &b)) {
        qn_json_bool(o, b);
    } else if (type != QN_KV_F32 && type != QN_KV_F64 && qn_kv_i64(kv, i, &n)) {
        qn_json_int(o, n);
    } else if (!qn_kv_f64(kv, i, &x)) {
        qn_json_null(o);
    } else if (type == QN_KV_F32) {
        qn_json_float(o, (float)x);
    } else {
        qn_json_double(o, x);
    }
}

static void put_value(qn_json_out *o, const qn_kv *kv)
{
    if (kv->type != QN_KV_ARRAY) {
        put_element(o, kv, 0);
        return;
    }
    if (kv->count > MAX_ARRAY) {
        qn_json_open(o, '{');
        qn_json_add_str(o, "type", qn_kv_type_name(kv->elem_type));
        qn_json_add_uint(o, "count", kv->count);
        qn_json_close(o, '}');
        return;
    }
    qn_json_open(o, '[');
    for (uint64_t i = 0; i < kv->count; i++) {
        put_element(o, kv, i);
    }
    qn_json_close(o, ']');
}

static void add_tensors(qn_json_out *o, const qn_info *i)
{
    qn_json_add_open(o, "tensor_types", '{');
    for (uint32_t t = 0; t < QN_TYPE_COUNT; t++) {
        if (i->facts.type_tensors[t] > 0) {
            qn_json_add_open(o, qn_dtype_get(t)->name, '{');
            qn_json_add_uint(o, "tensors", i->facts.type_tensors[t]);
            qn_json_add_uint(o, "bytes", i->facts.type_bytes[t]);
            qn_json_close(o, '}');
        }
    }
    qn_json_close(o, '}');
    if (!i->tensors) {
        return;
    }
    qn_json_add_open(o, "tensors", '[');
    for (uint64_t k = 0; k < qn_gguf_n_tensors(i->gguf); k++) {
        const qn_tensor *t = qn_gguf_tensor(i->gguf, k);
        qn_json_open(o, '{');
        qn_json_add_str(o, "name", t->name);
        qn_json_add_str(o, "type", qn_dtype_get(t->type)->name);
        qn_json_add_open(o, "shape", '[');
        for (uint32_t d = 0; d < t->n_dims; d++) {
            qn_json_uint(o, (uint64_t)t->ne[d]);
        }
        qn_json_close(o, ']');
        qn_json_add_uint(o, "bytes", t->n_bytes);
        qn_json_close(o, '}');
    }
    qn_json_close(o, ']');
}

static void add_memory(qn_json_out *o, const qn_info *i)
{
    qn_json_add_open(o, "memory", '{');
    qn_json_add_str(o, "backend", i->opts.cuda ? "cuda" : "cpu");
    qn_json_add_int(o, "n_ctx", i->opts.n_ctx);
    qn_json_add_uint(o, "weights", i->memory.weights);
    qn_json_add_uint(o, "kv", i->memory.kv);
    qn_json_add_uint(o, "activations", i->memory.activations);
    qn_json_add_uint(o, "other", i->memory.other);
    qn_json_add_uint(o, "total", qn_memory_total(&i->memory));
    qn_json_close(o, '}');
}

static void add_model(qn_json_out *o, const qn_info *i)
{
    if (i->model == NULL || i->plans == NULL) {
        qn_json_add_str(o, "cannot_run", i->model == NULL ? i->model_why : i->plans_why);
    }
    if (i->model == NULL) {
        return;
    }
    const qn_model *m = i->model;
    qn_json_add_open(o, "model", '{');
    qn_json_add_str(o, "config", m->config_name);
    qn_json_add_int(o, "n_layer", m->n_layer);
    qn_json_add_int(o, "n_embd", m->n_embd);
    qn_json_add_int(o, "n_vocab", m->n_vocab);
    qn_json_add_int(o, "n_ctx", m->n_ctx);
    qn_json_add_int(o, "n_ctx_train", m->n_ctx_train);
    qn_json_add_bool(o, "tied", m->tied);
    qn_json_add_open(o, "unused_tensors", '[');
    for (const char **u = m->unused; u != NULL && *u != NULL; u++) {
        qn_json_string(o, *u, strlen(*u));
    }
    qn_json_close(o, ']');
    qn_json_close(o, '}');
    if (i->plans != NULL) {
        add_memory(o, i);
    }
}

static void add_tokenizer(qn_json_out *o, const qn_info *i)
{
    if (i->tok == NULL) {
        qn_json_add_str(o, "no_tokenizer", i->tok_why);
        return;
    }
    qn_json_add_open(o, "tokenizer", '{');
    qn_json_add_str(o, "model", qn_tokenizer_model(i->tok));
    qn_json_add_str(o, "pre", qn_tokenizer_pre(i->tok));
    qn_json_add_int(o, "n_vocab", qn_tokenizer_n_vocab(i->tok));
    qn_json_add_bool(o, "add_bos", qn_tokenizer_add_bos(i->tok));
    qn_json_add_bool(o, "add_eos", qn_tokenizer_add_eos(i->tok));
    qn_json_add_bool(o, "add_space_prefix", qn_tokenizer_add_space_prefix(i->tok));
    qn_json_add_open(o, "roles", '{');
    for (int r = 0; r < QN_N_ROLES; r++) {
        int32_t id = qn_tokenizer_role(i->tok, (qn_token_role)r);
        if (id >= 0) {
            qn_json_add_int(o, qn_token_role_name((qn_token_role)r), id);
        }
    }
    qn_json_close(o, '}');
    size_t n;
    const int32_t *end = qn_tokenizer_eog(i->tok, &n);
    qn_json_add_i32s(o, "end_tokens", end, n);
    qn_json_close(o, '}');
}

int qn_info_json(const qn_info *i)
{
    qn_json_out o = {.indented = true};
    qn_json_open(&o, '{');
    qn_json_add_str(&o, "file", i->path);
    qn_json_add_int(&o, "gguf_version", qn_gguf_version(i->gguf));
    qn_json_add_uint(&o, "file_bytes", qn_gguf_file_bytes(i->gguf));
    qn_json_add_str(&o, "architecture", i->arch);
    qn_json_add_uint(&o, "n_params", i->facts.n_params);
    qn_json_add_uint(&o, "n_tensors", qn_gguf_n_tensors(i->gguf));
    qn_json_add_open(&o, "metadata", '{');
    for (uint64_t k = 0; k < qn_gguf_n_kv(i->gguf); k++) {
        const qn_kv *kv = qn_gguf_kv(i->gguf, k);
        qn_json_key(&o, kv->key);
        put_value(&o, kv);
    }
    qn_json_close(&o, '}');
    add_tensors(&o, i);
    add_model(&o, i);
    add_tokenizer(&o, i);
    qn_json_close(&o, '}');
    return qn_json_print(&o);
}
