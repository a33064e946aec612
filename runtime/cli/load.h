/* load.h: the options that every command with a model shares, and what they open. */
#ifndef QN_CLI_LOAD_H
#define QN_CLI_LOAD_H

#include "cli/opts.h"
#include "engine/engine.h"

typedef struct qn_model_args {
    const char *path;
    const char *config_dir, *kernel_dir;
    int n_ctx; /* -1: not given, 0: the trained context */
    int backend, device, attention, decode_attention, weight_cache, prefill, products, k_type, v_type;
    int n_threads;
    int n_batch, n_ubatch;
    bool deterministic; /* nothing that a session holds of an earlier prompt is used again */
    bool exact, no_graph, no_prompt_graph, persistent, rows_apart, plain_gemv, no_fuse, f32_activations,
        no_tune;
    const char
        *tune; /* as given: auto, off or seconds; qn_model_args_finish reads it into the next, and no_tune */
    double tune_seconds; /* kernels are measured at load for so long where nothing is known of them */
    int n_sequences;     /* 0: one */
    int n_outputs;       /* most logits rows of a chunk; 0: the default */
    const char *cache, *variant;
    qn_ints end_tokens;
} qn_model_args;

extern const qn_model_args qn_model_args_defaults;
extern const char *const qn_decode_attentions[]; /* values of --decode-attention */

/* Groups of rows over `a`: what to load | how to run it. */
qn_opt_group qn_load_group(qn_model_args *a);
qn_opt_group qn_backend_group(qn_model_args *a);
qn_opt_group qn_device_group(qn_model_args *a); /* without threads and chunk sizes */
/* Names of quern_weight_cache, quern_prefill and of kernels of attention, NULL-terminated. */
extern const char *const qn_weight_cache_names[], *const qn_prefill_names[], *const qn_attention_names[],
                                                                                 *const qn_product_names[];

/* Makes `positional` (may be NULL) the model's path where -m gave none. -1: go on, else the exit status. */
int qn_model_args_finish(qn_model_args *a, const char *command, const char *positional);

typedef struct qn_loaded {
    quern_model *model;
    quern_session *session;
    double seconds;
    bool held; /* the context of `device`, for all sessions */
    int device;
} qn_loaded;

/* What a command needs of a model beyond its plans: a session, its tokenizer. */
enum { QN_LOAD_SESSION = 1, QN_LOAD_TEXT = 2 };

/* Loads the model and what `what` asks for; says so on stderr. 0, or -1 after printing the error. */
int qn_cli_load(qn_loaded *out, const qn_model_args *a, unsigned what);
void qn_loaded_free(qn_loaded *l);

/* Params of the library calls. */
quern_model_params qn_cli_model_params(const qn_model_args *a);
quern_session_params qn_cli_session_params(const qn_model_args *a);

/* One line a part, the sum, and what is available (0: not printed), on stdout, or as details. */
void qn_print_memory(bool to_stdout, const qn_memory *m, uint64_t available);

/* Seconds of a clock that only goes forward; bytes this process had resident at most. */
double qn_seconds(void);
uint64_t qn_peak_memory(void);

#endif
