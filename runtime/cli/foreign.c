#include "cli/foreign.h"

#include <string.h>

typedef struct foreign {
    const char *names; /* between blanks */
    const char *why;
} foreign;

static const foreign options[] = {
    {" -ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split -ot --override-tensor -nkvo "
     "--no-kv-offload "
     "-cmoe --cpu-moe -ncmoe --n-cpu-moe --num-gpu ",
     "a model runs whole on one GPU or on the CPU; --backend and --device choose which"},
    {" -mg --main-gpu -dev ", "--device N chooses the GPU"},
    {" --list-devices ", "'quern doctor' lists the devices"},
    {" --lora --lora-scaled --lora-base --control-vector --control-vector-scaled --adapter ",
     "adapters are not applied; merge them into the GGUF file beforehand"},
    {" --grammar --grammar-file -j --json-schema -jf --json-schema-file --format ",
     "answers are not constrained by a grammar or schema"},
    {" -md --model-draft --draft --draft-max --draft-n --draft-min --draft-n-min --draft-p-min "
     "--num-draft-tokens "
     "--spec-type --lookup ",
     "there is no speculative decoding"},
    {" -hf -hfr --hf-repo -hff --hf-file -hft --hf-token -mu --model-url -dr --docker-repo ",
     "nothing is downloaded; give the path of a GGUF file"},
    {" -mm --mmproj --image --audio --mtmd ", "only text models run"},
    {" --prompt-cache --prompt-cache-all --prompt-cache-ro --slot-save-path ",
     "prompts are not kept between runs; --prompts FILE runs several in one"},
    {" --embedding --embeddings --pooling --rerank --reranking ", "there are no embeddings, only generation"},
    {" --host --port --api-key ", "there is no server; 'quern run -o jsonl' streams JSON"},
    {" -cnv --conversation -i --interactive -if --interactive-first -ins ",
     "'run' never becomes interactive; 'quern chat' is a conversation"},
    {" --jinja --no-jinja ", "chat templates are always read as Jinja ('quern chat')"},
    {" --hidethinking --reasoning --reasoning-format ", "'quern chat --think on|off|hide'"},
    {" -fa --flash-attn ", "attention is always fused; --attention plain takes decode's kernels for prompts"},
    {" --mlock --no-mmap --direct-io ", "weights are read through a map of the file"},
    {" --rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor "
     "--yarn-attn-factor ",
     "positions are scaled as the file and the model config say (--model-configs)"},
    {" --override-kv ", "the file's keys count; a model config can replace them (--model-configs)"},
    {" --keep --context-shift --no-context-shift -gan --grp-attn-n -gaw --grp-attn-w ",
     "a full context ends the answer; nothing is shifted"},
    {" --mirostat --mirostat-lr --mirostat-ent --typical --typical-p --tfs --dynatemp-range "
     "--xtc-probability "
     "--xtc-threshold --dry-multiplier --top-nsigma --top-n-sigma --presence-penalty --frequency-penalty "
     "--logit-bias --samplers --sampler-seq ",
     "the samplers are repeat penalty, top-k, top-p, min-p and temperature"},
    {" --numa --prio --poll --cpu-mask --cpu-strict ", "use numactl or taskset"},
    {" -np --parallel -ns --sequences ", "--prompts FILE runs several prompts one after the other"},
    {" --rpc ", "a model runs on one machine"},
};

static const foreign commands[] = {
    {" serve server start ", "there is no server; 'quern run -o jsonl' streams JSON"},
    {" pull push search login download ", "nothing is downloaded; give the path of a GGUF file"},
    {" list ls ps rm cp stop models ", "models are plain GGUF files; give a path"},
    {" show metadata ", "'quern info' shows what a file says"},
    {" create convert quantize quantise merge export-lora ", "files are only read"},
    {" embed embedding embeddings rerank ", "there are no embeddings, only generation"},
    {" finetune train lora ", "there is no training"},
    {" generate complete cli ", "'quern run' completes a prompt"},
    {" ppl ", "'quern perplexity' measures it"},
    {" eval ", "'quern perplexity' measures how well a model predicts a text"},
};

static const char *find(const foreign *rows, size_t n, const char *name, size_t len)
{
    for (size_t i = 0; i < n; i++) {
        for (const char *p = rows[i].names; (p = strchr(p, ' ')) != NULL && p[1] != '\0'; p++) {
            if (strncmp(p + 1, name, len) == 0 && p[1 + len] == ' ') {
                return rows[i].why;
            }
        }
    }
    return NULL;
}

const char *qn_foreign_option(const char *name, size_t len)
{
    return find(options, sizeof options / sizeof *options, name, len);
}

const char *qn_foreign_command(const char *name)
{
    return find(commands, sizeof commands / sizeof *commands, name, strlen(name));
}
