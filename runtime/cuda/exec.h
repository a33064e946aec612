/* exec.h: inside of the CUDA executor. */
#ifndef QN_CUDA_EXEC_H
#define QN_CUDA_EXEC_H

#include "codegen/jit.h"
#include "cuda/cublaslt.h"
#include "cuda/driver.h"
#include "cuda/lower.h"

/* One matrix product as cuBLASLt has planned it, with the algorithms it offers; the first is its own choice.
 */
enum { QN_GEMM_ALGOS = 8 };
typedef struct qn_gemm_plan {
    int n_in, n_out, ld_out, rows;
    bool bf16, fp8, half_out;
    uint32_t align[3]; /* of w, a, out: bytes, at most 256 */
    qn_lt_desc desc;
    qn_lt_layout a, b, c;
    qn_lt_algo algos[QN_GEMM_ALGOS];
    int n_algo, chosen;
} qn_gemm_plan;

typedef struct qn_gemm {
    qn_cublaslt lt;
    bool loaded;
    qn_lt_handle handle;
    uint64_t workspace;
    size_t workspace_bytes;
    qn_gemm_plan *plans;
    int n, cap;
    const float
        *fp8_up; /* by product of e4m3 weights: the power of two that brings it back; the executor's */
} qn_gemm;

int qn_gemm_open(qn_gemm *g, int driver_major, uint64_t workspace, size_t bytes, qn_err *err);
void qn_gemm_close(qn_gemm *g);
/* out = a * w^T, f32 accumulation. */
int qn_gemm_run(qn_gemm *g, const qn_cuda_gemm *p, int rows, qn_cu_stream stream, qn_err *err);
/* The plan of a product, made where it is new; NULL: err says why. Valid until the next call. */
qn_gemm_plan *qn_gemm_find(qn_gemm *g, const qn_cuda_gemm *q, int rows, qn_err *err);

/* tune.c: times the algorithms of a list's products for so many rows, and keeps the fastest of each in a file
 * of `dir`, where later sessions find it: keyed by card, driver, library and shape. No product is timed once
 * `budget` seconds have passed; what was not timed, or cannot be, keeps the library's choice. */
typedef struct qn_tuning {
    const qn_cuda_api *cu;
    qn_cu_stream stream;
    const char *dir, *card;
    int driver; /* CUDA version */
    const qn_cuda_list *list;
    int rows;
    double budget;
    void (*log)(void *user, int level, const char *line); /* may be NULL */
    void *user;
} qn_tuning;

/* How many products were timed | found in the file. */
typedef struct qn_tuned {
    int timed, found;
} qn_tuned;
qn_tuned qn_gemm_tune(qn_gemm *g, const qn_tuning *t);

/* A piece of host memory and where it goes on the device. */
typedef struct qn_upload_item {
    const void *src;
    uint64_t dst;
    size_t bytes;
} qn_upload_item;

/* Copies through pinned buffers with several reader threads; returns when all is on the device. The calling
 * thread's context is used. seconds: may be NULL. sent: called from this thread with the bytes on their way
 * so far; may be NULL. */
int qn_upload(const qn_cuda *cuda, qn_cu_context ctx, const qn_upload_item *items, int n, int n_threads,
              double *seconds, void (*sent)(void *user, uint64_t bytes), void *user, qn_err *err);

/* A captured chunk of a prompt: of up to `bucket` tokens, with n_out (0 or 1) rows of logits. deep: of those
 * behind QN_CUDA_SHALLOW, where launches differ by that. */
typedef struct qn_prompt_graph {
    int bucket, n_out, uses; /* bucket 0: an empty place */
    bool deep;
    qn_cu_graph_exec exec; /* NULL: not captured */
} qn_prompt_graph;
enum { QN_CUDA_PROMPT_GRAPHS = 48 }; /* at least four times as many as there are buckets */

typedef struct qn_cuda_exec {
    qn_exec base;
    qn_cuda cuda;
    qn_cuda_device dev;
    qn_cu_context ctx;
    qn_cu_stream stream;
    qn_nvrtc nvrtc;
    qn_jit *jit;
    qn_gemm gemm;
    qn_lowered low;
    qn_cu_module *modules;     /* by program */
    qn_cu_function *functions; /* by program */
    qn_cuda_mem mem;
    qn_half_cache halves;
    float *fp8_up;     /* [halves.n_fp8] */
    qn_cu_stream side; /* makes 16-bit weights beside the products; NULL: they are made between them */
    qn_cu_event w16_made[2], w16_read[2]; /* of the areas of mem.w16 */
    qn_placed *placed;                    /* weights and tables */
    int n_placed;
    uint64_t allocs[128];
    int n_alloc;
    uint64_t device_bytes;
    qn_cuda_state *host_state; /* pinned */
    int32_t *host_tokens;      /* pinned [n_ubatch] */
    float *host_logits;        /* pinned [n_outputs][n_vocab] */
    volatile int32_t
        *ring; /* pinned and mapped: choices of step s, row r at s % (RING / MAX_SEQ) * MAX_SEQ + r */
    qn_cu_graph_exec graphs[QN_CHOOSE_COUNT][QN_MAX_SEQ + 1]; /* by number of sequences; NULL: not captured */
    qn_prompt_graph prompts[QN_CUDA_PROMPT_GRAPHS];           /* in the order of their first use */
    bool dependent; /* programmatic dependent launch: a kernel's blocks start while the one before ends */
} qn_cuda_exec;

/* Seconds of a clock that only goes forward. */
double qn_cuda_seconds(void);

/* fp8_scales.c: the powers of two of weights kept as e4m3, found once the weights are on the device. */
int qn_cuda_find_fp8_scales(qn_cuda_exec *x, qn_err *err);

/* exec_setup.c; fills base.stats */
int qn_cuda_setup(qn_cuda_exec *x, qn_err *err);

/* exec_kernels.c: lowers the plans with what was chosen for the card, compiles and loads; base.stats. */
int qn_cuda_build_kernels(qn_cuda_exec *x, qn_err *err);
/* Measures choices for opts.tune_seconds where none are known, and builds the kernels again with them. What
 * cannot be measured is no error. */
int qn_cuda_tune_at_load(qn_cuda_exec *x, qn_err *err);
/* What the session's lists are lowered with, but for tuned choices. */
qn_lower_opts qn_cuda_lower_opts(const qn_cuda_exec *x, int variant);
/* A line to opts.log; user: the executor. */
void qn_cuda_log(void *user, int level, const char *line);
/* qn_exec's knobs. */
bool qn_cuda_knobs_of(const qn_exec *e, const qn_step *s, char *text, size_t size);
/* Waits for all that was launched. */
int qn_cuda_sync(qn_cuda_exec *x, qn_err *err);

/* loop.c: qn_exec's loop. One token in each of n sequences, as put_rows has said, and its choice: by a graph
 * that is captured at first use, or by launches where base.stats.graph_off says why not. */
int qn_cuda_loop(qn_exec *e, qn_loop_row *rows, int n_row, qn_err *err);
int qn_cuda_token(qn_cuda_exec *x, qn_cuda_choice how, int n, qn_err *err);
/* Row i is token tokens[i] of sequence seqs[i]; one row is one for the decode list. */
int qn_cuda_put_rows(qn_cuda_exec *x, const int *seqs, const int32_t *tokens, int n, qn_err *err);

/* Until the end: launches of x->stream become a graph. Returns the driver's error. */
qn_cu_result qn_cuda_capture_begin(qn_cuda_exec *x);
/* *out: the graph, on the device, where it could be made. out NULL: what was captured is dropped. */
qn_cu_result qn_cuda_capture_end(qn_cuda_exec *x, qn_cu_graph_exec *out);

/* prompt_graph.c. Rows that the library multiplies where `rows` are asked for. */
int qn_cuda_product_rows(const qn_cuda_exec *x, const qn_cuda_action *a, int rows);
/* A chunk of a prompt, whose tokens and state are on the device: by its bucket's graph or by launches. */
int qn_cuda_prompt(qn_cuda_exec *x, const qn_run *r, int n_out, qn_err *err);
void qn_cuda_prompts_free(qn_cuda_exec *x);

int qn_cuda_launch_one(qn_cuda_exec *x, const qn_cuda_action *a, int rows, qn_err *err);
/* The same by another function than the action's program has, and on any stream. dependent: it may start
 * while the launch before it ends. */
int qn_cuda_launch_as(qn_cuda_exec *x, qn_cu_function function, const qn_cuda_action *a, int rows,
                      qn_cu_stream stream, bool dependent, qn_err *err);
/* One action of a list: a kernel or a product. In turn: nothing runs beside it. */
int qn_cuda_action_run(qn_cuda_exec *x, const qn_cuda_action *a, int rows, bool in_turn, qn_err *err);
/* Launches the actions of the steps [first, stop_after] of a list (-1: up to the end). */
int qn_cuda_launch(qn_cuda_exec *x, const qn_plan *plan, const qn_cuda_list *list, int rows, int n_out,
                   int first, int stop_after, qn_err *err);

/* tensor_maps.c: maps of the KV caches (mem.k, mem.v) to device memory at `at`, so many bytes; fills
 * mem.k_map and mem.v_map. */
size_t qn_cuda_map_bytes(const qn_plans *p);
int qn_cuda_make_maps(qn_cuda_exec *x, uint64_t at, qn_err *err);
/* Maps of mem.a16 with rows of each of n widths. */
int qn_cuda_make_act_maps(qn_cuda_exec *x, uint64_t at, const int *widths, int n, qn_err *err);
/* The list a run takes. */
const qn_cuda_list *qn_cuda_list_of(const qn_cuda_exec *x, const qn_run *r);

/* exec_read.c: qn_exec's read, write, kv_rows and arith. */
int qn_cuda_read(qn_exec *e, qn_view v, int row, int n_rows, float *out, qn_err *err);
int qn_cuda_write(qn_exec *e, qn_view v, int row, int n_rows, const float *in, qn_err *err);
int qn_cuda_kv_rows(qn_exec *e, int kv, int pos, int n, float *k, float *v, bool store, qn_err *err);
qn_arith qn_cuda_arith(const qn_exec *e, const qn_run *r, const qn_step *s);
/* qn_exec's round_input: groups of 32 or 16 (qn_cuda_fine), as kernel_src/quantise.cuh makes them. Rows are
 * multiples of 32 values. */
bool qn_cuda_round_input(const qn_exec *e, const qn_step *s, float *x, int rows, int n);

#endif
