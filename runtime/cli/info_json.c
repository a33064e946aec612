#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/info.h"
#include "cli/json.h"
#include "engine/memory.h"

/* Longer arrays (vocabularies) appear as {"type", "count"}. */
enum { MAX_ARRAY = 256 };

static cJSON *element(const qn_kv *kv, uint64_t i)
{
    qn_kv_type type = kv->type == QN_KV_ARRAY ? kv->elem_type : kv->type;
    int64_t n;
    double x;
    bool b;
    qn_str s;
    if (type == QN_KV_STRING && qn_kv_str(kv, i, &s)) {
        char *quoted = qn_json_quote(s.data, s.len);
        cJSON *item = cJSON_CreateRaw(quoted != NULL ? quoted : "null");
        free(quoted);
        return item;
    }
    if (type == QN_KV_BOOL && qn_kv_bool(kv, i, &b)) {
        return cJSON_CreateBool(b);
    }
    if (type != QN_KV_F32 && type != QN_KV_F64 && qn_kv_i64(kv, i, &n)) {
        char text[32];
        snprintf(text, sizeof text, "%" PRId64, n);
        return cJSON_CreateRaw(text);
    }
    return qn_kv_f64(kv, i, &x) && isfinite(x) ? cJSON_CreateNumber(x) : cJSON_CreateNull();
}

static cJSON *value(const qn_kv *kv)
{
    if (kv->type != QN_KV_ARRAY) {
        return element(kv, 0);
    }
    if (kv->count > MAX_ARRAY) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "type", qn_kv_type_name(kv->elem_type));
        qn_json_u64(o, "count", kv->count);
        return o;
    }
    cJSON *array = cJSON_CreateArray();
    for (uint64_t i = 0; i < kv->count; i++) {
        cJSON_AddItemToArray(array, element(kv, i));
    }
    return array;
}

static void add_tensors(cJSON *o, const qn_info *i)
{
    cJSON *types = cJSON_AddObjectToObject(o, "tensor_types");
    for (uint32_t t = 0; t < QN_TYPE_COUNT; t++) {
        if (i->facts.type_tensors[t] > 0) {
            cJSON *row = cJSON_AddObjectToObject(types, qn_dtype_get(t)->name);
            qn_json_u64(row, "tensors", i->facts.type_tensors[t]);
            qn_json_u64(row, "bytes", i->facts.type_bytes[t]);
        }
    }
    if (!i->tensors) {
        return;
    }
    cJSON *list = cJSON_AddArrayToObject(o, "tensors");
    for (uint64_t k = 0; k < qn_gguf_n_tensors(i->gguf); k++) {
        const qn_tensor *t = qn_gguf_tensor(i->gguf, k);
        cJSON *row = cJSON_CreateObject();
        cJSON_AddItemToArray(list, row);
        qn_json_text(row, "name", t->name, strlen(t->name));
        cJSON_AddStringToObject(row, "type", qn_dtype_get(t->type)->name);
        cJSON *shape = cJSON_AddArrayToObject(row, "shape");
        for (uint32_t d = 0; d < t->n_dims; d++) {
            cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)t->ne[d]));
        }
        qn_json_u64(row, "bytes", t->n_bytes);
    }
}

static void add_memory(cJSON *o, const qn_info *i)
{
    cJSON *m = cJSON_AddObjectToObject(o, "memory");
    cJSON_AddNumberToObject(m, "n_ctx", i->opts.n_ctx);
    qn_json_u64(m, "weights", i->memory.weights);
    qn_json_u64(m, "kv", i->memory.kv);
    qn_json_u64(m, "activations", i->memory.activations);
    qn_json_u64(m, "other", i->memory.other);
    qn_json_u64(m, "total", qn_memory_total(&i->memory));
}

static void add_model(cJSON *o, const qn_info *i)
{
    if (i->model == NULL || i->plans == NULL) {
        const char *why = i->model == NULL ? i->model_why : i->plans_why;
        qn_json_text(o, "cannot_run", why, strlen(why));
    }
    if (i->model == NULL) {
        return;
    }
    const qn_model *m = i->model;
    cJSON *row = cJSON_AddObjectToObject(o, "model");
    cJSON_AddStringToObject(row, "config", m->config_name);
    cJSON_AddNumberToObject(row, "n_layer", m->n_layer);
    cJSON_AddNumberToObject(row, "n_embd", m->n_embd);
    cJSON_AddNumberToObject(row, "n_vocab", m->n_vocab);
    cJSON_AddNumberToObject(row, "n_ctx", m->n_ctx);
    cJSON_AddNumberToObject(row, "n_ctx_train", m->n_ctx_train);
    cJSON_AddBoolToObject(row, "tied", m->tied);
    cJSON *unused = cJSON_AddArrayToObject(row, "unused_tensors");
    for (const char **u = m->unused; u != NULL && *u != NULL; u++) {
        cJSON_AddItemToArray(unused, cJSON_CreateString(*u));
    }
    if (i->plans != NULL) {
        add_memory(o, i);
    }
}

static void add_tokenizer(cJSON *o, const qn_info *i)
{
    if (i->tok == NULL) {
        qn_json_text(o, "no_tokenizer", i->tok_why, strlen(i->tok_why));
        return;
    }
    cJSON *t = cJSON_AddObjectToObject(o, "tokenizer");
    cJSON_AddStringToObject(t, "model", qn_tokenizer_model(i->tok));
    cJSON_AddStringToObject(t, "pre", qn_tokenizer_pre(i->tok));
    cJSON_AddNumberToObject(t, "n_vocab", qn_tokenizer_n_vocab(i->tok));
    cJSON_AddBoolToObject(t, "add_bos", qn_tokenizer_add_bos(i->tok));
    cJSON_AddBoolToObject(t, "add_eos", qn_tokenizer_add_eos(i->tok));
    cJSON_AddBoolToObject(t, "add_space_prefix", qn_tokenizer_add_space_prefix(i->tok));
    cJSON *roles = cJSON_AddObjectToObject(t, "roles");
    for (int r = 0; r < QN_N_ROLES; r++) {
        int32_t id = qn_tokenizer_role(i->tok, (qn_token_role)r);
        if (id >= 0) {
            cJSON_AddNumberToObject(roles, qn_token_role_name((qn_token_role)r), id);
        }
    }
    size_t n;
    const int32_t *end = qn_tokenizer_eog(i->tok, &n);
    qn_json_i32s(t, "end_tokens", end, n);
}

int qn_info_json(const qn_info *i)
{
    cJSON *o = cJSON_CreateObject();
    qn_json_text(o, "file", i->path, strlen(i->path));
    cJSON_AddNumberToObject(o, "gguf_version", qn_gguf_version(i->gguf));
    qn_json_u64(o, "file_bytes", qn_gguf_file_bytes(i->gguf));
    qn_json_text(o, "architecture", i->arch, strlen(i->arch));
    qn_json_u64(o, "n_params", i->facts.n_params);
    qn_json_u64(o, "n_tensors", qn_gguf_n_tensors(i->gguf));
    cJSON *meta = cJSON_AddObjectToObject(o, "metadata");
    for (uint64_t k = 0; k < qn_gguf_n_kv(i->gguf); k++) {
        const qn_kv *kv = qn_gguf_kv(i->gguf, k);
        cJSON_AddItemToObject(meta, kv->key, value(kv));
    }
    add_tensors(o, i);
    add_model(o, i);
    add_tokenizer(o, i);
    return qn_json_print(o, 1);
}
