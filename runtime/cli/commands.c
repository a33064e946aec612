/* commands.c: the table of commands. */
#include "cli/commands.h"

const qn_command qn_commands[] = {
    {"run", qn_cmd_run, "complete a prompt", "Generate"},
    {"chat", qn_cmd_chat, "a conversation by the model's chat template", "Generate"},
    {"info", qn_cmd_info, "what a file says: metadata, tensors, tokenizer, memory", "Look inside"},
    {"plan", qn_cmd_plan, "the steps a model's tokens go through", "Look inside"},
    {"ptx", qn_cmd_ptx, "the kernels a model is compiled to", "Look inside"},
    {"logits", qn_cmd_logits, "logits, or one step's output, for a file of ids", "Look inside"},
    {"tokenize", qn_cmd_tokenize, "token ids of a text", "Text"},
    {"detokenize", qn_cmd_detokenize, "text of token ids", "Text"},
    {"template", qn_cmd_template, "what a chat template makes of a conversation", "Text"},
    {"check", qn_cmd_check, "a model config, alone or against a file", "Model configs"},
    {"draft", qn_cmd_draft, "a config proposed for a file whose architecture has none", "Model configs"},
    {"bench", qn_cmd_bench, "tokens per second", "Measure"},
    {"profile", qn_cmd_profile, "where the time goes, step by step", "Measure"},
    {"tune", qn_cmd_tune, "shapes of decode's launches, measured and kept", "Measure"},
    {"perplexity", qn_cmd_perplexity, "how well a model predicts a text", "Measure"},
    {"doctor", qn_cmd_doctor, "what of CUDA was found, and what is missing", "This machine"},
    {"cache", qn_cmd_cache, "list, verify, warm or clear the compiled kernels", "This machine"},
    {"man", qn_cmd_man, "the manual page", "Shell"},
    {"completion", qn_cmd_completion, "completion of commands and options for bash, zsh or fish", "Shell"},
    {0},
};
