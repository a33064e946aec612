// rooms: room_model
/* A model from arbitrary bytes: opened, resolved against the shipped configs, every slot bound; then
 * everything that later stages read of it is read. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/config.h"
#include "model/model.h"
#include "model/model_draft.h"

static volatile unsigned sink; /* keeps the reads */

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void read_tensor(const qn_tensor *t)
{
    if (t) {
        must(t->n_bytes > 0 && t->ne[0] > 0);
        sink += t->data[0] + t->data[t->n_bytes - 1];
    }
}

static void read_linear(const qn_linear *l, uint64_t n_in)
{
    read_tensor(l->w);
    read_tensor(l->b);
    read_tensor(l->scale);
    must(!l->w || l->w->ne[0] == n_in);
    must(!l->b || l->b->ne[0] == l->w->ne[1]);
}

static void read_norm(const qn_norm *n)
{
    must(n->eps >= 0 && n->eps <= 1);
    read_tensor(n->w);
    read_tensor(n->b);
}

static void read_attn(const qn_model *m, const qn_attn *a, int i)
{
    uint64_t e = (uint64_t)m->n_embd;
    must(a->kv_source >= 0 && a->kv_source <= i);
    read_norm(&a->norm);
    read_norm(&a->q_norm);
    read_norm(&a->k_norm);
    read_norm(&a->post_norm);
    if (a->kind != QN_ATTN_STANDARD) {
        return;
    }
    must(a->n_head > 0 && a->n_head_kv > 0 && a->n_head % a->n_head_kv == 0 && a->k_dim > 0 && a->v_dim > 0);
    read_linear(&a->qkv, e);
    read_linear(&a->q, e);
    read_linear(&a->k, e);
    read_linear(&a->v, e);
    read_linear(&a->out, (uint64_t)a->n_head * (uint64_t)a->v_dim);
    must(a->rope.n_rot % 2 == 0 && a->rope.n_rot <= a->k_dim);
    for (int k = 0; k < a->rope.n_rot / 2; k++) {
        must(a->rope.freq[k] >= 0 && a->rope.freq[k] <= 1e6f);
    }
}

static void read_model(const qn_model *m)
{
    must(m->n_embd > 0 && m->n_vocab > 0 && m->n_layer > 0 && m->n_ctx > 0);
    read_tensor(m->tok_embd);
    read_norm(&m->out_norm);
    read_linear(&m->out, (uint64_t)m->n_embd);
    must(m->out.w->ne[1] == (uint64_t)m->n_vocab);
    for (int i = 0; i < m->n_layer; i++) {
        const qn_layer *l = &m->layers[i];
        read_attn(m, &l->attn, i);
        read_norm(&l->ffn.norm);
        read_norm(&l->ffn.post_norm);
        read_linear(&l->ffn.gate, (uint64_t)m->n_embd);
        read_linear(&l->ffn.up, (uint64_t)m->n_embd);
        read_linear(&l->ffn.down, (uint64_t)l->ffn.n_ff);
    }
    must(qn_model_weight_bytes(m) <= qn_gguf_file_bytes(m->gguf));
}

/* A config proposed for whatever the file says parses. */
static void draft(qn_gguf *g)
{
    char *text;
    qn_config *c;
    qn_err err = {""};
    if (qn_model_draft(&text, g, &err)) {
        must(text == NULL && err.text[0]);
        return;
    }
    must(qn_config_parse(&c, text, strlen(text), "draft", &err) == 0);
    qn_config_free(c);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qn_gguf *g;
    qn_model *m;
    qn_err err = {""};
    if (qn_gguf_open_memory(&g, data, size, "fuzz", &err)) {
        return 0;
    }
    draft(g);
    if (qn_model_from_gguf(&m, g, NULL, &err)) {
        must(m == NULL && err.text[0]);
        qn_gguf_close(g);
        return 0;
    }
    read_model(m);
    qn_model_free(m);
    return 0;
}
