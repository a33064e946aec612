/* backend.h: what an executor offers the engine. Implemented by runtime/cpu and runtime/cuda. */
#ifndef QN_CODEGEN_BACKEND_H
#define QN_CODEGEN_BACKEND_H

#include "base/error.h"
#include "codegen/plan.h"

enum { QN_MAX_SEQ = 8 }; /* sequences of an executor, each with KV caches of its own */

typedef enum qn_outputs { QN_OUT_NONE, QN_OUT_LAST, QN_OUT_ALL } qn_outputs;

enum { QN_LOADING_WEIGHTS, QN_LOADING_KERNELS, QN_LOADING_CHOICES };

/* Weights as 16-bit rows for the products of prompts (CUDA). AUTO is for the planner (engine/memory.h), which
 * makes ON or OFF of it before anything is allocated. */
typedef enum qn_weight_cache {
    QN_WEIGHT_CACHE_AUTO,
    QN_WEIGHT_CACHE_ON,     /* made once, when the model is loaded */
    QN_WEIGHT_CACHE_OFF,    /* made for each use, on a stream beside the product before */
    QN_WEIGHT_CACHE_SERIAL, /* made for each use, between the products */
} qn_weight_cache;

/* What computes the products of prompts (CUDA). AUTO: cuBLASLt, or MMA where the library is missing. */
typedef enum qn_prefill {
    QN_PREFILL_AUTO,
    QN_PREFILL_CUBLASLT,
    QN_PREFILL_MMA,   /* own kernel, 16-bit operands */
    QN_PREFILL_MMQ,   /* own kernel, quantised weights times 8-bit activations; plain weights as MMA */
    QN_PREFILL_WGMMA, /* own kernel of sm_90a: f16 made of the weights in registers; f32 and bf16 weights as
                         MMA */
    QN_PREFILL_FP8,   /* the library, e4m3 operands */
} qn_prefill;
/* How a KV cache stores its values: codegen/kv_type.h. */
typedef enum qn_cache_type { QN_CACHE_F16, QN_CACHE_Q8_0 } qn_cache_type;

typedef struct qn_exec_opts {
    int n_ctx;                    /* positions the KV caches hold */
    int n_ubatch;                 /* most tokens of one run call */
    int n_threads;                /* CPU; 0: all CPUs of this process */
    bool exact;                   /* CPU: f32 throughout */
    qn_cache_type k_type, v_type; /* of the KV caches */
    int n_outputs;                /* most rows of logits of one run call; 0: n_ubatch */
    int n_seq;                    /* sequences, at most QN_MAX_SEQ; 0: 1 */
    bool cuda;                    /* which executor these are for; the rest is CUDA's */
    int device;
    const char *cache;      /* --cache DIR, "none" or NULL (codegen/cache.h: qn_cache_place) */
    const char *kernel_src; /* replaces the embedded kernel sources; NULL: embedded */
    const char *variant;    /* "sm75", "sm80", "sm90a"; NULL: the card's best */
    bool no_graph;          /* decode and prompts by direct launches */
    bool no_prompt_graph;   /* prompts by direct launches */
    bool persistent;        /* decode as one launch a token */
    bool rows_apart;        /* few rows: each goes through the weights by itself, as in decode */
    bool plain_gemv;        /* f16 and bf16 weights: a warp a row, as for f32 weights */
    bool plain_attention;   /* prompts through the kernels of decode */
    bool flash_attention;   /* prompts not through attention_tma.cu, where it serves (sm_90a) */
    /* Prompts through attention_tma.cu with 128 query rows a block, however few there are; a card or driver
     * without what it needs is an error. */
    bool tma_attention;
    bool f32_products; /* prompts: no products as f16 */
    qn_weight_cache weight_cache;
    qn_prefill prefill;
    bool no_tune; /* nothing that was chosen by measuring: neither algorithms of products nor kernels */
    double
        tune_seconds; /* kernels without a choice are measured for about so long while loading; 0: none is */
    bool rows_attention;  /* decode: attention by f32 products on the plain cores (attention_decode.cu) */
    bool no_fuse;         /* norms are kernels of their own, so that every step's output can be read */
    bool f32_activations; /* few rows: f32 activations for quantised weights too, instead of 8-bit ones */
    int fine_below; /* 8-bit activations: rows narrower than this have a step for every 16 values, others
                       for every 32; 0: QN_CUDA_FINE_BELOW (cuda/lower.h) */
    void (*log)(void *log_user, int level, const char *line); /* level 0: shown by default; may be NULL */
    void *log_user;
    /* While it is made: bytes of weights sent, kernels compiled, choices measured; from two threads at once;
     * may be NULL. */
    void (*loading)(void *user, int what, uint64_t done, uint64_t total);
    void *loading_user;
} qn_exec_opts;

typedef struct qn_run {
    const int32_t *tokens; /* n ids, each in [0, n_vocab) (checked) */
    int n;                 /* 1..n_ubatch */
    int pos;               /* position of tokens[0]; must equal the executor's length */
    qn_phase phase;        /* DECODE only with n = 1 */
    qn_outputs outputs;
    float *logits;  /* [outputs][n_vocab] host memory; NULL with QN_OUT_NONE */
    int stop_after; /* index of the last step to run; -1: all */
    int first_step; /* index of the first one; the buffers hold what those before it made */
    /* Asked before every step by a backend that can; false: the run fails, the executor's length stays. May
     * be NULL. */
    bool (*go_on)(void *user);
    void *go_on_user;
    bool hold;       /* the executor's length stays as it is, so that more steps of these tokens can follow */
    const int *seqs; /* NULL: the tokens follow each other in the selected sequence. Otherwise token i is the
                      * next one of sequence seqs[i], n different ones, each at its own length (pos is
                      * unused), in prefill's phase */
} qn_run;

/* How a device chooses tokens by itself: fields as in quern_sampler_params. */
typedef struct qn_choice {
    float temperature, top_p, min_p, repeat_penalty;
    int top_k, repeat_last_n;
    uint64_t seed;
} qn_choice;

/* A sequence of a device loop. */
typedef struct qn_loop_row {
    int seq;
    int32_t token; /* the first to be fed, at the sequence's length */
    int n;         /* most choices */
    qn_choice how;
    const int32_t *history; /* ids of positions 0 .. length - 1 */
    const int32_t *banned;  /* [n_banned] ids that are never chosen */
    size_t n_banned;
    /* Gets every choice in order; true: this was the last. May be NULL. */
    bool (*take)(void *user, int32_t id);
    void *user;
    int n_done; /* out: choices taken */
} qn_loop_row;

/* What an executor has done so far; zero where it has no such thing. */
typedef struct qn_exec_stats {
    double driver, upload, kernels, capture; /* seconds: opening the device; reading and sending weights;
                                              * finding, compiling and loading kernels; capturing graphs */
    uint64_t upload_bytes, device_bytes;
    int n_kernels, n_compiled;
    int captures, syncs;
    int prompt_captures, prompt_replays;        /* of graphs of prompts */
    char graph_off[160], prompt_graph_off[160]; /* why decode, prompts are not captured; "" */
} qn_exec_stats;

/* Where memory goes, before anything is allocated (bytes). */
typedef struct qn_memory {
    uint64_t weights; /* file bytes read in place or uploaded */
    uint64_t kv, activations, other;
    uint64_t weight_cache; /* weights as 16-bit rows beside their own form */
} qn_memory;

/* A kind of launch of decode that was measured with other knobs than the shipped ones. Times are of one
 * launch, in milliseconds, 0: not measured; bytes: what one reads. Of attention, sums over the positions
 * measured. */
typedef struct qn_tune_row {
    const char *site, *shipped, *chosen; /* kernel, shape and types; knobs in words */
    bool tuned;                          /* another choice than the shipped one is kept */
    int n_launch, n_tried, n_left;       /* launches a token; choices measured, and not come to */
    double shipped_ms, chosen_ms, bytes;
} qn_tune_row;

typedef struct qn_tune_opts {
    double seconds;                                    /* about; nothing is begun after that */
    void (*progress)(void *user, int done, int total); /* measurements; may be NULL */
    void (*row)(void *user, const qn_tune_row *row);   /* each result, at the end; may be NULL */
    void *user;
} qn_tune_opts;

typedef struct qn_tune_result {
    int n_row, n_tuned, n_compiled;
    double seconds, shipped_ms, tuned_ms; /* of a whole token, both 0 where nothing was chosen */
    bool dropped;                         /* what was chosen made no faster token, and was dropped */
    char kept[4096 + 64];                 /* the file that the choices are in */
} qn_tune_result;

typedef struct qn_exec qn_exec;

struct qn_exec {
    const char *name; /* "cpu", "cuda" */
    const qn_plans *plans;
    qn_exec_opts opts;
    int seq;    /* the selected sequence: length, high, truncate, kv_rows and runs without seqs are of it */
    int length; /* positions held: the next token's position */
    int high;   /* positions written since nothing was held: rings have forgotten what lies far below */
    int lengths[QN_MAX_SEQ], highs[QN_MAX_SEQ]; /* of the sequences that are not selected */
    qn_exec_stats stats;
    /* Decoding on the device, in n_row different sequences at once: feeds each row's token, then each choice.
     * Returns when a row has ended (its n or its take), after the choices that others had made by then; what
     * was computed beyond is dropped. Choices equal quern_sample's for equal logits. Afterwards a sequence
     * holds its token and the choices but for the last. Returns 1, with nothing done, where it does not serve
     * such rows. NULL where the backend has no loop of its own. */
    int (*loop)(qn_exec *e, qn_loop_row *rows, int n_row, qn_err *err);
    /* Runs one chunk and advances length by n. NaN or Inf in the logits is an error. */
    int (*run)(qn_exec *e, const qn_run *r, qn_err *err);
    /* Forgets positions >= length. Fails (length unchanged) where a ring no longer holds what is needed. */
    int (*truncate)(qn_exec *e, int length, qn_err *err);
    /* Copies rows of a view of the last run's buffers to out [rows][width] (debugging, --check). */
    int (*read)(qn_exec *e, qn_view v, int row, int n_rows, float *out, qn_err *err);
    /* The counterpart of read: rows of a view from in [rows][width]. */
    int (*write)(qn_exec *e, qn_view v, int row, int n_rows, const float *in, qn_err *err);
    /* Rows of positions [pos, pos + n) of KV cache `kv`, all of them in the cache at once: copied out to, or
     * (store) in from, k [n][n_head_kv * k_dim] and v [n][n_head_kv * v_dim]. */
    int (*kv_rows)(qn_exec *e, int kv, int pos, int n, float *k, float *v, bool store, qn_err *err);
    /* What the output of a step of such a run is computed in. */
    qn_arith (*arith)(const qn_exec *e, const qn_run *r, const qn_step *s);
    /* The input of an 8-bit product (arith) as that product has it: `rows` rows of n values rounded in place
     * to multiples of their groups' scales. False: the step has weights that take it unrounded; nothing is
     * changed. NULL: no step is 8-bit. */
    bool (*round_input)(const qn_exec *e, const qn_step *s, float *x, int rows, int n);
    /* Runs like `run` (no logits taken) and measures: ms[i] is the time of step i of the phase's plan, and
     * what follows the last step is added to it. Steps run one after the other, each waited for by an event.
     * NULL: not offered. */
    int (*profile)(qn_exec *e, const qn_run *r, float *ms, qn_err *err);
    /* Measures choices of decode's launches and keeps them for later sessions on such a card; the session
     * must be empty, and goes on with what it was made with. NULL: not offered. */
    int (*tune)(qn_exec *e, const qn_tune_opts *o, qn_tune_result *r, qn_err *err);
    /* What a step of decode may be launched with otherwise, and whether that was tuned: "warps 16, ...
     * (shipped)" into text; false: there is nothing to choose. NULL: not offered. */
    bool (*knobs)(const qn_exec *e, const qn_step *s, char *text, size_t size);
    void (*free)(qn_exec *e);
};

/* runtime/cpu */
int qn_cpu_exec_new(qn_exec **out, const qn_plans *plans, const qn_exec_opts *opts, qn_err *err);
void qn_cpu_memory(const qn_plans *plans, const qn_exec_opts *opts, qn_memory *out);

/* runtime/cuda */
int qn_cuda_exec_new(qn_exec **out, const qn_plans *plans, const qn_exec_opts *opts, qn_err *err);
void qn_cuda_memory(const qn_plans *plans, const qn_exec_opts *opts, qn_memory *out);
/* Is there a device that the CUDA executor can use? 0: yes, and *free_bytes of it are free. */
int qn_cuda_available(int device, uint64_t *free_bytes, qn_err *err);
/* Makes the device's context, or joins one that is there, and keeps it until qn_cuda_release: what asks the
 * device, opens it or closes it meanwhile finds it made. Making one takes a quarter of a second. */
int qn_cuda_hold(int device, qn_err *err);
void qn_cuda_release(int device);
/* The same as qn_cuda_available, and whether kernels can be compiled for it and products computed: NVRTC, an
 * architecture that is served, cuBLASLt. */
int qn_cuda_usable(int device, uint64_t *free_bytes, qn_err *err);

/* Makes a sequence the selected one; an error where there is no such one. */
int qn_exec_select(qn_exec *e, int seq, qn_err *err);
/* Positions that a sequence holds. */
int qn_exec_length(const qn_exec *e, int seq);
/* A sequence holds `length` positions now, and has written positions below `high`. */
void qn_exec_set_length(qn_exec *e, int seq, int length, int high);
int qn_n_seq(const qn_exec_opts *opts);

/* Rows of a buffer: n_ubatch, or n_outputs of those that hold output rows. */
int qn_buf_rows(const qn_buf *b, const qn_exec_opts *opts);

/* Rows a KV cache needs for one sequence with these options: n_ctx, or window + n_ubatch where that is less.
 */
int qn_kv_rows(const qn_kv_cache *kv, const qn_exec_opts *opts);

/* Is it a view with these rows? An error otherwise. */
int qn_exec_check_view(const qn_exec *e, qn_view v, int row, int n_rows, qn_err *err);
/* Are positions [pos, pos + n) rows of KV cache `kv` at the same time? An error otherwise. */
int qn_exec_check_kv(const qn_exec *e, int kv, int pos, int n, qn_err *err);
/* Positions from length on, n of them, are written: length and high move (not where the run holds). */
void qn_exec_advance(qn_exec *e, const qn_run *r);

/* Can an executor forget positions >= length? An error where a ring no longer holds what would be read. */
int qn_kv_check_truncate(const qn_exec *e, int length, qn_err *err);

/* Is a run with n_out rows of logits one that an executor takes: sizes, position, context, ids? */
int qn_run_check(const qn_exec *e, const qn_run *r, int n_out, qn_err *err);

#endif
