#include "table_programs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a run may be asked for that makes other programs. */
static const qn_exec_opts option_sets[] = {
    {.n_ubatch = 512},
    {.n_ubatch = 2048},
    {.n_ubatch = 512, .f32_activations = true},
    {.n_ubatch = 512, .no_fuse = true},
    {.n_ubatch = 512, .plain_attention = true},
    {.n_ubatch = 512, .tma_attention = true},
    {.n_ubatch = 512, .plain_gemv = true, .rows_apart = true},
    {.n_ubatch = 512, .prefill = QN_PREFILL_MMQ},
    {.n_ubatch = 512, .prefill = QN_PREFILL_MMA},
    {.n_ubatch = 512, .prefill = QN_PREFILL_WGMMA},
    {.n_ubatch = 512, .prefill = QN_PREFILL_FP8, .weight_cache = QN_WEIGHT_CACHE_ON},
    {.n_ubatch = 512, .k_type = QN_CACHE_Q8_0, .v_type = QN_CACHE_Q8_0},
    {.n_ubatch = 512, .k_type = QN_CACHE_Q8_0, .v_type = QN_CACHE_Q8_0, .rows_attention = true},
    {.n_ubatch = 512, .rows_attention = true},
    {.n_ubatch = 512, .persistent = true},
};

static uint64_t hash_of(const char *text)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (const char *c = text; *c; c++) {
        h = (h ^ (unsigned char)*c) * 0x100000001b3u;
    }
    return h;
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end ? end + 1 : line + strlen(line);
}

/* A constant of a program's source: its name, and what stands behind "=" (values, then a remark). False: the
 * line is none. */
static bool constant(const char *line, char name[64], char value[160])
{
    char left[100] = "";
    if (sscanf(line, "constexpr %*s %99[^=]= %159[^\n]", left, value) != 2) {
        return false;
    }
    left[strcspn(left, "[ ")] = '\0';
    snprintf(name, 64, "%.63s", left);
    return true;
}

static int value_of(const char *text, const char *name)
{
    char line[64];
    snprintf(line, sizeof line, "constexpr int %.40s = ", name);
    const char *at = strstr(text, line);
    return at ? atoi(at + strlen(line)) : -1;
}

enum { MAX_TYPES = 8 };
typedef struct type_names {
    char name[MAX_TYPES][16];
    int n;
} type_names;

/* The tensor types that a constant's remark names, into an ordered list where they are new. */
static void add_types(type_names *t, const char *value)
{
    const char *remark = strstr(value, "//");
    char words[160];
    snprintf(words, sizeof words, "%s", remark ? remark + 2 : "");
    for (char *w = strtok(words, " "); w && t->n < MAX_TYPES; w = strtok(NULL, " ")) {
        int at = 0;
        while (at < t->n && strcmp(t->name[at], w) < 0) {
            at++;
        }
        if (strcmp(w, "none") == 0 || (at < t->n && strcmp(t->name[at], w) == 0)) {
            continue;
        }
        memmove(t->name[at + 1], t->name[at], sizeof t->name[0] * (size_t)(t->n - at));
        snprintf(t->name[at], sizeof t->name[0], "%.15s", w);
        t->n++;
    }
}

static void set_class(table_program *p)
{
    char name[64], value[160];
    type_names types = {.n = 0};
    int k = value_of(p->text, "k_dim"), v = value_of(p->text, "v_dim");
    size_t used = (size_t)snprintf(p->class, sizeof p->class, "%s", p->name);
    bool one = strcmp(p->name, "persistent") == 0;
    for (const char *line = p->text; *line && !one; line = next_line(line)) {
        if (constant(line, name, value) && strstr(name, "dtype")) {
            add_types(&types, value);
        }
    }
    for (int i = 0; i < types.n; i++) {
        used += (size_t)snprintf(p->class + used, sizeof p->class - used, " %.15s", types.name[i]);
    }
    if (k >= 0 && !one && strcmp(p->name, "rope_kv") != 0) {
        snprintf(p->class + used, sizeof p->class - used, v == k ? " d%d" : " d%d/%d", k, v);
    }
}

static int add(table_programs *t, const qn_lowered *low, int index, const char *model, int variant)
{
    const qn_cuda_program *q = &low->programs[index];
    uint32_t shared = qn_cuda_dynamic_shared(low, index);
    uint64_t hash = hash_of(q->source.text);
    for (int i = 0; i < t->n; i++) {
        if (t->p[i].hash == hash && t->p[i].variant == variant && strcmp(t->p[i].text, q->source.text) == 0) {
            t->p[i].shared = shared > t->p[i].shared ? shared : t->p[i].shared;
            return 0;
        }
    }
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 1024;
        t->p = realloc(t->p, sizeof *t->p * (size_t)t->cap);
        if (!t->p) {
            abort();
        }
    }
    table_program *p = &t->p[t->n++];
    *p = (table_program){
        .text = strdup(q->source.text), .spec = strdup(q->source.spec), .variant = variant, .hash = hash};
    snprintf(p->symbol, sizeof p->symbol, "%s", q->source.symbol);
    snprintf(p->name, sizeof p->name, "%s", q->name);
    snprintf(p->model, sizeof p->model, "%s", model);
    p->shared = shared;
    set_class(p);
    return 0;
}

int table_add_model(table_programs *t, const qn_plans *plans, const char *model, int variant, qn_err *err)
{
    qn_cuda_target target = {.multiprocessors = 132, .arch = {.variant = variant}};
    for (size_t i = 0; i < sizeof option_sets / sizeof *option_sets; i++) {
        int n_ctx = plans->model->n_ctx;
        qn_exec_opts o = option_sets[i];
        qn_lowered low;
        o.n_ctx = n_ctx;
        o.n_ubatch = o.n_ubatch < n_ctx ? o.n_ubatch : n_ctx;
        o.n_outputs = 64;
        o.cuda = true;
        if (qn_cuda_lower_only(&low, plans, &o, &target, err)) {
            if (i > 0) {
                continue; /* the model, or the variant, has no such way */
            }
            return qn_fail_prefix(err, "%s", model);
        }
        for (int k = 0; k < low.n_program; k++) {
            add(t, &low, k, model, variant);
        }
        qn_lowered_free(&low);
    }
    return 0;
}

/* All features, by number: hashes of what they say. */
typedef struct feature_list {
    uint64_t *hash;
    int n, cap;
} feature_list;

/* What a program has: numbers of features. */
enum { MAX_FEATURES = 96 };
typedef struct features {
    int id[MAX_FEATURES], n;
} features;

static void have(feature_list *f, features *p, const char *text)
{
    uint64_t h = hash_of(text);
    int i = 0;
    while (i < f->n && f->hash[i] != h) {
        i++;
    }
    if (i == f->n) {
        if (f->n == f->cap) {
            f->cap = f->cap ? 2 * f->cap : 1024;
            f->hash = realloc(f->hash, sizeof *f->hash * (size_t)f->cap);
        }
        if (!f->hash) {
            abort();
        }
        f->hash[f->n++] = h;
    }
    if (p->n < MAX_FEATURES) {
        p->id[p->n++] = i;
    }
}

/* A size as what a kernel may do differently for it. */
static void size_kind(const char *value, char *out, size_t size)
{
    int v = atoi(value), log = 0;
    while (v >> log > 1) {
        log++;
    }
    snprintf(out, size, "%s 2^%d",
             v % 256 == 0  ? "256n"
             : v % 32 == 0 ? "32n"
             : v % 2 == 0  ? "2n"
                           : "odd",
             log / 3);
}

static void describe(const char *name, const char *value, bool is_float, char out[120])
{
    static const char *const sizes[] = {"n_in", "n", "n_ff", "n_embd"};
    static const char *const ignored[] = {"n_out",  "n_vocab",   "seg_out",  "n_pos",        "kv_rows",
                                          "n_head", "n_head_kv", "temp_ctx", "rms_eps_bits", "variant"};
    snprintf(out, 120, "%.*s", (int)strcspn(value, ";"), value);
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) {
        if (strcmp(name, ignored[i]) == 0) {
            snprintf(out, 120, "any");
        }
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (strcmp(name, sizes[i]) == 0) {
            size_kind(value, out, 120);
        }
    }
    if (is_float || strcmp(name, "window") == 0) {
        double v = atof(value);
        snprintf(out, 120, "%s", v > 0.999 && v < 1.001 ? "1" : v < 0 || v > 0 ? "set" : "0");
    }
}

static void find_features(feature_list *f, const table_program *p, features *out)
{
    char name[64], value[160], kind[120], text[320];
    if (strcmp(p->name, "persistent") ==
        0) { /* all kernels of a model, each of which is there by itself too */
        static const char *const few[] = {"gemma3-1b-q4_k_m", "llama3.2-1b-q8_0", "qwen3-8b-q4_k_m"};
        for (size_t i = 0; i < sizeof few / sizeof *few; i++) {
            if (strcmp(p->model, few[i]) == 0) {
                snprintf(text, sizeof text, "%d persistent %s", p->variant, p->model);
                have(f, out, text);
            }
        }
        return;
    }
    snprintf(text, sizeof text, "%d %s", p->variant, p->class);
    have(f, out, text);
    int heads = value_of(p->text, "n_head"), kv = value_of(p->text, "n_head_kv");
    if (heads > 0 && kv > 0) {
        snprintf(text, sizeof text, "%d %s group %d", p->variant, p->name, heads / kv);
        have(f, out, text);
    }
    for (const char *line = p->text; *line; line = next_line(line)) {
        if (constant(line, name, value)) {
            describe(name, value, starts(line, "constexpr float"), kind);
            snprintf(text, sizeof text, "%d %.39s %.60s %.100s", p->variant, p->name, name, kind);
            have(f, out, text);
        }
    }
}

static int count_new(const features *p, const bool *taken)
{
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        n += !taken[p->id[i]];
    }
    return n;
}

/* Greedy: whichever has most that is new. */
void table_sample(table_programs *t)
{
    feature_list f = {0};
    features *of = calloc((size_t)t->n + 1, sizeof *of);
    for (int i = 0; of && i < t->n; i++) {
        find_features(&f, &t->p[i], &of[i]);
    }
    bool *taken = calloc((size_t)f.n + 1, 1);
    if (!of || !taken) {
        abort();
    }
    for (;;) {
        int best = -1, most = 0;
        for (int i = 0; i < t->n; i++) {
            int n = count_new(&of[i], taken);
            if (n > most) {
                most = n;
                best = i;
            }
        }
        if (best < 0) {
            break;
        }
        t->p[best].sampled = true;
        for (int k = 0; k < of[best].n; k++) {
            taken[of[best].id[k]] = true;
        }
    }
    free(taken);
    free(of);
    free(f.hash);
}

void table_free(table_programs *t)
{
    for (int i = 0; i < t->n; i++) {
        free(t->p[i].text);
        free(t->p[i].spec);
    }
    free(t->p);
    *t = (table_programs){0};
}
