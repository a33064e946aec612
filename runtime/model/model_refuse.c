/* model_refuse.c: what a file is that is no dense decoder. Told by keys and tensors that only such files
 * have. */
#include <stdio.h>
#include <string.h>

#include "model/model_internal.h"

/* A tensor whose name holds (or begins with) a mark belongs to a family of models. */
typedef struct mark {
    const char *text;
    bool at_start;
    bool beside; /* may stand in one file with a language model, which can do without it */
    const char *what;
} mark;

static const mark marks[] = {
    {"v.blk.", true, true, "the vision part of a model (mmproj)"},
    {"a.blk.", true, true, "the audio part of a model (mmproj)"},
    {"mm.", true, true, "the projector of a multimodal model (mmproj)"},
    {"_exps.", false, false, "a mixture of experts (MoE)"},
    {"ffn_gate_inp.", false, false, "a mixture of experts (MoE)"},
    {".ssm_", false, false, "a state-space model"},
    {".time_mix_", false, false, "a recurrent model"},
    {".shortconv.", false, false, "a convolutional hybrid"},
    {"enc.blk.", true, false, "an encoder-decoder"},
    {"token_types.", true, false, "an encoder (embeddings only)"},
};

/* "general.type" of files that hold no model of their own. */
static int refuse_type(const qn_gguf *g, qn_err *err)
{
    const qn_kv *kv = qn_gguf_find(g, "general.type");
    qn_str s;
    if (!kv || !qn_kv_str(kv, 0, &s) || (s.len == 5 && memcmp(s.data, "model", 5) == 0) ||
        (s.len == 5 && memcmp(s.data, "vocab", 5) == 0)) {
        return 0;
    }
    bool mmproj = s.len == 6 && memcmp(s.data, "mmproj", 6) == 0;
    return qn_fail(err, "%s: holds %s%.*s, not a language model (general.type)", qn_gguf_path(g),
                   mmproj ? "the vision or audio part of a model: " : "", (int)(s.len < 40 ? s.len : 40),
                   s.data);
}

static const qn_kv *arch_key(const qn_gguf *g, const char *arch, const char *name)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", arch, name);
    return qn_gguf_find(g, key);
}

int qn_model_refuse(const qn_gguf *g, const char *arch, qn_err *err)
{
    if (refuse_type(g, err)) {
        return -1;
    }
    const qn_kv *experts = arch_key(g, arch, "expert_count"), *causal = arch_key(g, arch, "attention.causal");
    int64_t n = 0;
    bool is_causal = true;
    if (experts && qn_kv_i64(experts, 0, &n) && n > 0) {
        return qn_fail(err,
                       "%s: \"%s\" with %lld experts is a mixture of experts (MoE), which is not supported",
                       qn_gguf_path(g), arch, (long long)n);
    }
    if (causal && qn_kv_bool(causal, 0, &is_causal) && !is_causal) {
        return qn_fail(err, "%s: \"%s\" does not generate text (%s is false), not supported", qn_gguf_path(g),
                       arch, causal->key);
    }
    bool decoder = qn_gguf_find_tensor(g, "blk.0.ffn_down.weight");
    for (uint64_t i = 0; i < qn_gguf_n_tensors(g); i++) {
        const char *name = qn_gguf_tensor(g, i)->name;
        for (size_t k = 0; k < sizeof marks / sizeof marks[0]; k++) {
            const char *at = strstr(name, marks[k].text);
            if (at && (at == name || !marks[k].at_start) && !(marks[k].beside && decoder)) {
                return qn_fail(err, "%s: \"%s\" is %s (it has %s), which is not supported", qn_gguf_path(g),
                               arch, marks[k].what, name);
            }
        }
    }
    return 0;
}
