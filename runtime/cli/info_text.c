#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/info.h"
#include "cli/load.h"
#include "engine/memory.h"

enum { MAX_TEXT = 160, MAX_ELEMENTS = 6 };

/* At most `max` bytes of file-supplied text, on one line and without control bytes. */
static void print_text(const char *s, uint64_t len, uint64_t max)
{
    for (uint64_t i = 0; i < len && i < max; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '\n') {
            fputs("\\n", stdout);
        } else {
            putchar(c < 0x20 || c == 0x7f ? '?' : c);
        }
    }
    if (len > max) {
        printf("... (%" PRIu64 " bytes)", len);
    }
}

static void print_element(const qn_kv *kv, uint64_t i)
{
    qn_kv_type type = kv->type == QN_KV_ARRAY ? kv->elem_type : kv->type;
    int64_t n;
    double x;
    bool b;
    qn_str s;
    if (type == QN_KV_STRING && qn_kv_str(kv, i, &s)) {
        print_text(s.data, s.len, kv->type == QN_KV_ARRAY ? 24 : MAX_TEXT);
    } else if (type == QN_KV_BOOL && qn_kv_bool(kv, i, &b)) {
        fputs(b ? "true" : "false", stdout);
    } else if (type != QN_KV_F32 && type != QN_KV_F64 && qn_kv_i64(kv, i, &n)) {
        printf("%" PRId64, n);
    } else if (qn_kv_f64(kv, i, &x)) {
        printf("%.9g", x);
    } else {
        putchar('?');
    }
}

static void print_kv(const qn_kv *kv)
{
    bool array = kv->type == QN_KV_ARRAY;
    size_t len = strlen(kv->key);
    fputs("  ", stdout);
    print_text(kv->key, len, MAX_TEXT);
    printf("%*s ", len < 46 ? (int)(46 - len) : 0, "");
    if (!array) {
        printf("%-5s ", qn_kv_type_name(kv->type));
        print_element(kv, 0);
        putchar('\n');
        return;
    }
    printf("%s[%" PRIu64 "]", qn_kv_type_name(kv->elem_type), kv->count);
    for (uint64_t i = 0; i < kv->count && i < MAX_ELEMENTS; i++) {
        fputs(i == 0 ? " " : ", ", stdout);
        print_element(kv, i);
    }
    puts(kv->count > MAX_ELEMENTS ? ", ..." : "");
}

static void print_file(const qn_info *i)
{
    char bytes[24];
    printf("file          %s\n", i->path);
    printf("format        GGUF v%u, %s, %" PRIu64 " keys, %" PRIu64 " tensors\n", qn_gguf_version(i->gguf),
           qn_memory_text(qn_gguf_file_bytes(i->gguf), bytes), qn_gguf_n_kv(i->gguf),
           qn_gguf_n_tensors(i->gguf));
    printf("architecture  %s\n", i->arch[0] != 0 ? i->arch : "not given");
    printf("parameters    %" PRIu64 "\n", i->facts.n_params);
    puts("\nmetadata");
    for (uint64_t k = 0; k < qn_gguf_n_kv(i->gguf); k++) {
        print_kv(qn_gguf_kv(i->gguf, k));
    }
}

static void print_tensors(const qn_info *i)
{
    char bytes[24];
    puts("\ntensor types");
    for (uint32_t t = 0; t < QN_TYPE_COUNT; t++) {
        if (i->facts.type_tensors[t] > 0) {
            printf("  %-10s %6" PRIu64 " tensors %12s\n", qn_dtype_get(t)->name, i->facts.type_tensors[t],
                   qn_memory_text(i->facts.type_bytes[t], bytes));
        }
    }
    if (!i->tensors) {
        return;
    }
    puts("\ntensors");
    for (uint64_t k = 0; k < qn_gguf_n_tensors(i->gguf); k++) {
        const qn_tensor *t = qn_gguf_tensor(i->gguf, k);
        size_t len = strlen(t->name);
        fputs("  ", stdout);
        print_text(t->name, len, MAX_TEXT);
        printf("%*s %-8s [", len < 36 ? (int)(36 - len) : 0, "", qn_dtype_get(t->type)->name);
        for (uint32_t d = 0; d < t->n_dims; d++) {
            printf("%s%" PRIu64, d > 0 ? ", " : "", t->ne[d]);
        }
        printf("] %s\n", qn_memory_text(t->n_bytes, bytes));
    }
}

static void print_model(const qn_info *i)
{
    const qn_model *m = i->model;
    puts("\nmodel");
    if (m == NULL) {
        printf("  cannot run: %s\n", i->model_why);
        return;
    }
    printf("  config        %s\n", m->config_name);
    printf("  layers        %d\n  n_embd        %d\n  n_vocab       %d\n", m->n_layer, m->n_embd, m->n_vocab);
    if (m->n_layer > 0) {
        const qn_layer *l = &m->layers[0];
        printf("  n_head        %d, n_head_kv %d, head_dim %d (layer 0)\n  n_ff          %d (layer 0)\n",
               l->attn.n_head, l->attn.n_head_kv, l->attn.k_dim, l->ffn.n_ff);
    }
    printf("  context       %d of %d trained\n", m->n_ctx, m->n_ctx_train);
    printf("  output        %s\n", m->tied ? "tied to the token embedding" : "own matrix");
    for (const char **u = m->unused; u != NULL && *u != NULL; u++) {
        printf("  unused tensor %s\n", *u);
    }
    if (i->plans == NULL) {
        printf("  cannot run: %s\n", i->plans_why);
        return;
    }
    printf("\nmemory on backend %s with a context of %d\n", i->opts.cuda ? "cuda" : "cpu", i->opts.n_ctx);
    qn_print_memory(true, &i->memory, i->available);
}

static void print_tokenizer(const qn_info *i)
{
    puts("\ntokenizer");
    if (i->tok == NULL) {
        printf("  %s\n", i->tok_why);
        return;
    }
    const char *pre = qn_tokenizer_pre(i->tok);
    printf("  kind          %s%s%s, %d tokens\n", qn_tokenizer_model(i->tok), pre[0] != 0 ? ", " : "", pre,
           qn_tokenizer_n_vocab(i->tok));
    printf("  adds          bos %s, eos %s, space prefix %s\n", qn_tokenizer_add_bos(i->tok) ? "yes" : "no",
           qn_tokenizer_add_eos(i->tok) ? "yes" : "no", qn_tokenizer_add_space_prefix(i->tok) ? "yes" : "no");
    for (int r = 0; r < QN_N_ROLES; r++) {
        int32_t id = qn_tokenizer_role(i->tok, (qn_token_role)r);
        size_t len = 0;
        const char *text = id >= 0 ? qn_token_text(i->tok, id, &len) : NULL;
        if (text != NULL) {
            printf("  %-13s %d '", qn_token_role_name((qn_token_role)r), id);
            print_text(text, len, MAX_TEXT);
            puts("'");
        }
    }
    size_t n;
    const int32_t *end = qn_tokenizer_eog(i->tok, &n);
    fputs("  end tokens   ", stdout);
    for (size_t k = 0; k < n; k++) {
        size_t len = 0;
        const char *text = qn_token_text(i->tok, end[k], &len);
        printf(" %d '", end[k]);
        print_text(text != NULL ? text : "", len, MAX_TEXT);
        putchar('\'');
    }
    puts(n == 0 ? " none" : "");
    printf("  chat template %s\n", qn_gguf_find(i->gguf, "tokenizer.chat_template") != NULL ? "yes" : "no");
    for (size_t w = 0; w < qn_tokenizer_n_warnings(i->tok); w++) {
        printf("  warning       %s\n", qn_tokenizer_warning(i->tok, w));
    }
}

void qn_info_text(const qn_info *i)
{
    print_file(i);
    print_tensors(i);
    print_model(i);
    print_tokenizer(i);
}
